"""What every committed notebook must be; reading alone, nothing is run."""

import re
import statistics

import nbformat
import pytest

from course.publish import page
from course.publish.runner import NOTEBOOKS, lessons
from helpers import checks

ALL = lessons()


@pytest.fixture(params=ALL, ids=[path.stem for path in ALL])
def notebook(request):
    return nbformat.read(request.param, as_version=4)


def test_outputs_of_a_real_run_without_errors_warnings_and_paths(notebook):
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        assert cell.execution_count, f"{cell.id} was not run"
        for output in cell.outputs:
            assert output.output_type != "error", cell.id
            assert output.get("name") != "stderr", f"{cell.id}: {output.text}"
    text = "\n".join(re.sub(r"base64,[^\"]*", "", nbformat.writes(notebook)).splitlines())
    assert not re.search(r"/(home|root|work|tmp|usr|Users)/", text)
    assert "Warning" not in text


def test_figures_have_alternative_text(notebook):
    found = page.figures(notebook)
    assert found and all(len(alt) > 30 for _, alt in found)
    assert all(
        "<img " not in output.get("data", {}).get("text/html", "") or 'alt="' in output.data["text/html"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
    )


def test_goals_time_summary_and_questions(notebook):
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    for part in ("**After this lesson you can**", "**Time:**", "## Summary", "## Questions", "**Sources"):
        assert part in text, part


def test_cell_names_are_stable_and_cells_are_short(notebook):
    for cell in notebook.cells:
        assert re.fullmatch(r"[a-z0-9-]+", cell.id) and not re.fullmatch(r"[0-9a-f]{8}", cell.id), cell.id
    lines = [len(cell.source.splitlines()) for cell in notebook.cells if cell.cell_type == "code"]
    assert len(notebook.cells) <= 60 and max(lines) <= 40 and statistics.median_high(lines) <= 8


def test_links_to_other_lessons_lead_somewhere(notebook):
    planned = {path.name for path in ALL}
    for cell in notebook.cells:
        for target in re.findall(r"\]\((\d\d_[a-z0-9_]+\.ipynb)\)", cell.source):
            assert target in planned, target


def test_every_exercise_is_asked_checked_and_solved():
    """Each exercise of the package stands in its lesson: an answer cell, a check, a folded solution."""
    checks.use(NOTEBOOKS / "exercises" / "lesson_00.py")
    for lesson, items in checks.lessons().by_lesson.items():
        (path,) = lessons([lesson.removeprefix("lesson_")])
        source = "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells)
        assert len(items) >= 2
        for item in items:
            assert source.count(f"def {item.function}(") >= 2, f"{item.function} lacks its answer cell or its solution"
            assert f"checks.check({item.function})" in source
            asked = source[: source.index(f"def {item.function}(")].rpartition("### Exercise")[2]
            assert f"*{item.minutes} minutes · {'●' * item.dots}{'○' * (3 - item.dots)}*" in asked, item.function
            assert item.nudge and item.nudge != item.hint, item.function


def test_all_notebooks_together_are_small():
    assert sum(path.stat().st_size for path in NOTEBOOKS.glob("*.ipynb")) < 10e6
