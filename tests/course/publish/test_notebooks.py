"""What every committed notebook must be; reading alone, nothing is run."""

import ast
import re
import statistics

import nbformat
import pytest

from course.publish import page, runner, slides
from course.publish.runner import NOTEBOOKS, TALK, lessons
from helpers.checks.lessons import Lessons, names_in

READ = {path: nbformat.read(path, as_version=4) for path in lessons(talk=True)}
THE_TALK = READ[NOTEBOOKS / TALK]
any_notebook = pytest.mark.parametrize(
    "notebook", [pytest.param(book, id=path.stem) for path, book in READ.items()]
)
# What the course was ordered to contain: each item is met in code, in a cell that carries the tag
# `seed:ID`.
ORDERED = {
    # the pass folder: interface, errors, canonicalize, identities, constants, conv-bn, conv-add
    "A": 7,
    "B": 10,  # pass infrastructure: rewriting, metadata, pass class, manager, matcher, partitioner
    # convolution, BatchNorm, the worked example, fused kernels, engines, ten families of patterns
    "C": 6,
    "D": 5,  # passes in a deployment engine: kinds, registry, what they are for, predictor, fuser
    # structured pruning and quantization by hand, the promised table, its defects, talking points
    "E": 11,
}
IDS = {f"{letter}{number}" for letter, count in ORDERED.items() for number in range(1, count + 1)}


def text_of(notebook, kind="markdown"):
    return "\n".join(cell.source for cell in notebook.cells if cell.cell_type == kind)


@any_notebook
def test_outputs_of_a_real_run_without_errors_warnings_and_paths(notebook):
    for cell in (cell for cell in notebook.cells if cell.cell_type == "code"):
        assert cell.execution_count, f"{cell.id} was not run"
        for output in cell.outputs:
            assert output.output_type != "error", cell.id
            assert output.get("name") != "stderr", f"{cell.id}: {output.text}"
    text = re.sub(r"base64,[^\"]*", "", nbformat.writes(notebook))
    assert not re.search(r"/(home|root|work|tmp|usr|Users)/", text)
    assert "Warning" not in text


@any_notebook
def test_the_outputs_come_from_the_tables_and_networks_that_are_shipped(notebook):
    """What fails here was run before one of them changed: `PROFILE=full python -m course run
    --publish` makes it anew.
    """
    assert runner.made_from(notebook) == notebook.metadata.made_from


@any_notebook
def test_the_outputs_come_from_the_code_above_them(notebook):
    """What fails here was edited since it was run; the same command makes it anew."""
    assert notebook.metadata.get("code") == runner.code_digest(notebook)


def progress_row(lesson):
    """The line of a lesson, "04a", in the first table of the page of progress."""
    page_of_progress = (NOTEBOOKS / "progress.ipynb").read_text(encoding="utf-8")
    return next(line for line in page_of_progress.splitlines() if f"({lesson}_" in line)


def test_the_page_of_progress_shows_every_exercise_and_the_minutes_of_each_lesson():
    shown = (NOTEBOOKS / "progress.ipynb").read_text(encoding="utf-8")
    for lesson, items in Lessons(NOTEBOOKS / "exercises").by_lesson.items():
        lesson = lesson.removeprefix("lesson_")
        lines = [f"| {lesson} | {item.function} | {item.minutes} |" for item in items]
        assert all(line in shown for line in lines), lesson
        minutes = sum(item.minutes for item in items)
        assert f" 0 of {len(items)} | {minutes} | " in progress_row(lesson), lesson


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in lessons()])
def test_the_page_of_progress_names_the_assignment_that_the_lesson_names(path):
    link = re.compile(r"\(assignments/(a\d)/")
    named = set(link.findall(text_of(READ[path])))
    assert set(link.findall(progress_row(path.stem.split("_")[0]))) == named


@any_notebook
def test_figures_have_alternative_text(notebook):
    found = page.figures(notebook)
    assert len(found) >= (10 if notebook is THE_TALK else 1) and all(
        len(one["text/plain"]) > 30 for _, one in found
    )
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    pages = [output.get("data", {}).get("text/html", "") for output in outputs]
    assert all('alt="' in html for html in pages if "<img " in html)


@pytest.mark.parametrize("notebook", [pytest.param(READ[path], id=path.stem) for path in lessons()])
def test_a_lesson_has_its_parts_stable_names_of_cells_short_code_and_links_that_lead_somewhere(
    notebook,
):
    for part in (
        "**After this lesson you can**",
        "**Time:**",
        "## Summary",
        "## Questions",
        "**Sources",
    ):
        assert part in text_of(notebook), part
    for cell in notebook.cells:
        assert re.fullmatch(r"[a-z0-9-]+", cell.id) and not re.fullmatch(r"[0-9a-f]{8}", cell.id), (
            cell.id
        )
    lines = [len(cell.source.splitlines()) for cell in notebook.cells if cell.cell_type == "code"]
    most = 50 if "# 04b" in notebook.cells[0].source else 45  # 04b is optional
    assert len(notebook.cells) - 1 <= most  # the first, for Colab, is hidden
    assert max(lines) <= 35 and statistics.median_high(lines) <= 17
    targets = re.findall(
        r"\]\((\d\d_[a-z0-9_]+\.ipynb)\)", "\n".join(cell.source for cell in notebook.cells)
    )
    assert set(targets) <= {path.name for path in lessons()}


DRAWS = {"plots", "ax", "axes", "figure"}


def lines_that_draw(source):
    """How many lines of a cell draw, and how many there are; blank ones do not count."""
    drawn = whole = 0
    for part in ast.parse(source).body:
        lines = part.end_lineno - part.lineno + 1
        whole += lines
        names = {node.id for node in ast.walk(part) if isinstance(node, ast.Name)}
        drawn += lines if names & DRAWS else 0
    return drawn, whole


@pytest.mark.parametrize("notebook", [pytest.param(READ[path], id=path.stem) for path in lessons()])
def test_little_of_the_visible_code_draws_and_no_visible_cell_only_draws(notebook):
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    seen = [cell for cell in code if not cell.metadata.get("jupyter", {}).get("source_hidden")]
    lines = {cell.id: lines_that_draw(cell.source) for cell in seen}
    assert (
        sum(drawn for drawn, _ in lines.values()) <= sum(whole for _, whole in lines.values()) / 4
    )
    assert [name for name, (drawn, whole) in lines.items() if drawn == whole] == []
    for cell in code:
        if cell.metadata.get("jupyter", {}).get("source_hidden"):
            assert {"hide-input", "hide-cell"} & {*cell.metadata.tags}, (
                f"{cell.id}: for the website"
            )


def test_every_exercise_is_asked_checked_and_solved():
    """Each exercise of the package stands in its lesson: an answer cell, a check, a folded
    solution.
    """
    for lesson, items in Lessons(NOTEBOOKS / "exercises").by_lesson.items():
        (path,) = lessons([lesson.removeprefix("lesson_")])
        source = "\n".join(cell.source for cell in READ[path].cells)
        assert items
        for item in items:
            assert source.count(f"def {item.function}(") >= 2, (
                f"{item.function} lacks its answer cell or its solution"
            )
            assert f"checks.check({item.function})" in source
            asked = source[: source.index(f"def {item.function}(")].rpartition("### Exercise")[2]
            assert (
                f"*{item.minutes} minutes · {'●' * item.dots}{'○' * (3 - item.dots)}*" in asked
            ), item.function
            assert item.nudge and item.nudge != item.hint, item.function


def names_defined(code):
    """What a cell leaves behind: functions, classes, imports and variables."""
    for part in ast.parse(code).body:
        if isinstance(part, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in part.names)
        elif isinstance(part, ast.FunctionDef | ast.ClassDef):
            yield part.name
        else:
            nodes = (node for node in ast.walk(part) if isinstance(node, ast.Name))
            yield from (node.id for node in nodes if isinstance(node.ctx, ast.Store))


def test_a_solution_can_be_pasted_over_the_whole_cell_of_its_exercise():
    course = Lessons(NOTEBOOKS / "exercises")
    cells = [cell.source for notebook in READ.values() for cell in notebook.cells]
    for name in course.items:
        (cell,) = (source for source in cells if f"\nchecks.check({name})" in source)
        lost = {*names_defined(cell)} - {*names_defined(course.solution(name))}
        assert not lost, f"{name}: move {lost} into a cell above, and keep the exercise alone"


def test_what_a_learner_writes_is_used_afterwards():
    course = Lessons(NOTEBOOKS / "exercises")
    code = "\n".join(text_of(notebook, "code") for notebook in READ.values())
    used = {*re.findall(r'yours\("(\w+)"\)', code)}
    for name in course.items:
        used |= names_in(ast.parse(course.solution(name))) - {name}
    assert course.items.keys() - used == set()


def test_all_are_small_and_what_was_ordered_has_a_cell_that_ran_and_no_tag_names_anything_else():
    assert sum(path.stat().st_size for path in NOTEBOOKS.glob("*.ipynb")) < 10e6
    cells = [
        c for path in NOTEBOOKS.glob("*.ipynb") for c in nbformat.read(path, as_version=4).cells
    ]
    tagged = [
        (tag.removeprefix("seed:"), cell)
        for cell in cells
        for tag in cell.metadata.get("tags", [])
        if tag.startswith("seed:")
    ]
    ran = {name for name, cell in tagged if cell.cell_type == "code" and cell.execution_count
           and all(output.output_type != "error" for output in cell.outputs)}  # fmt: skip
    assert IDS - ran == set(), f"no cell that ran is tagged for {sorted(IDS - ran)}"
    assert {name for name, _ in tagged} <= IDS


def test_the_talk_has_about_twelve_slides_with_notes_and_what_the_room_was_promised():
    shown = slides.slides_of(THE_TALK)
    assert 12 <= len(shown) <= 16
    assert all('<aside class="notes">' in "".join(parts) for parts in shown)
    for part in (
        "Why this network",
        "Why whole channels",
        "Why from scratch",
        "Where is it hard",
        "What to use when",
    ):
        assert part in text_of(THE_TALK), part


def test_the_hours_in_readme_are_those_of_its_lessons():
    text = (runner.REPOSITORY / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(\w+) .*\| (\d+) \|$", text, re.M)
    minutes = {name: int(number) for name, number in rows}
    assert [f"{name}_" for name in minutes] == [
        re.match(r"\w+?_", path.name)[0] for path in runner.lessons()
    ]
    for path, number in zip(lessons(), minutes.values(), strict=True):
        assert f"**Time:** about {number} minutes" in text_of(READ[path]), path.stem
    shortest, longest = map(int, re.search(r"(\d+) to (\d+) minutes a lesson", text).groups())
    assert {*sorted(minutes.values())[1:]} <= {*range(shortest, longest + 1)}  # 00 is shorter
    said = re.findall(r"((?:\d\w+, )+\d\w+) \((\d+) hours\)", text)
    said.append((", ".join(minutes), re.search(r"(\d+) hours for all", text)[1]))
    assert len(said) == 4
    for names, hours in said:
        assert abs(int(hours) - sum(minutes[name] for name in names.split(", ")) / 60) < 0.7, names
