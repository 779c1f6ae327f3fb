import ast
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from unittest.mock import Mock

import nbformat
import pytest

from course.commands.hosted import with_hosting
from course.grading import answers, course, gradescope, handout, intake, release, runner, wire
from course.grading.classroom import Classroom, write
from tests.course.grading.trying import handed_in
from tests.marks import IN_CI

NAMES = course.names()
FIRST = [NAMES[0], *(pytest.param(name, marks=IN_CI) for name in NAMES[1:])]
TRIVIAL = 12  # shorter lines, such as `return a, b`, may stand anywhere


def text_of(name, data):
    """A file as text: of a notebook its sources, of all others every byte."""
    if name.endswith(".ipynb"):
        return "\n".join(cell.source for cell in nbformat.reads(data.decode(), as_version=4).cells)
    return data.decode("latin-1")


def solutions(exercise):
    """What stands between the marks of each solution cell."""
    for cell in nbformat.read(exercise.notebook, as_version=4).cells:
        if cell.metadata.nbgrader.solution and cell.cell_type == "code":
            yield re.search(r"BEGIN SOLUTION\n(.*?)\n\s*### END", cell.source, re.DOTALL)[1]
        elif cell.metadata.nbgrader.solution:
            yield cell.source


def secret_code(exercise):
    """What the specification and the files that it imports define."""
    for path in exercise.folder.rglob("*.py"):
        if path.name not in ("driver.py", "answers.py"):
            yield from ast.parse(path.read_text()).body


@pytest.mark.parametrize("name", FIRST)
def test_a_release_holds_what_a_student_needs_and_no_solution_and_no_oracle(name, released):
    exercise, bundle = course.load(name), released(name).folder / "released" / name
    support = {path.name for path in handout.SUPPORT}
    needed = {f"{name}.ipynb", "driver.py", "visible.safetensors", handout.GUIDE} | support
    assert {path.name for path in bundle.rglob("*")} == needed
    visible = wire.decode((bundle / "visible.safetensors").read_bytes())
    for item in exercise.assignment.items:
        cases = item.make_cases(handout.VISIBLE_SEED)
        assert [case["label"] for case in visible[item.name]["cases"]] == [
            case.label for case in cases
        ]
    lines = [line.strip() for text in solutions(exercise) for line in text.splitlines()]
    lines += [
        line.strip()
        for a in answers.read(exercise)
        for line in a.code.splitlines()
        if "return" in line
    ]
    given = exercise.driver.read_text()  # holds lines such as `return nn.Sequential(*modules)`
    lines = [line for line in lines if len(line) > TRIVIAL and line not in given]
    names = {node.name for node in secret_code(exercise) if isinstance(node, ast.FunctionDef)}
    functions = [
        function for function in names if function.endswith(("_oracle", "_cases", "_edges"))
    ]
    assert len(lines) > 50 and len(functions) >= 2 * len(exercise.assignment.items)
    for path in bundle.iterdir():
        text = text_of(path.name, path.read_bytes())
        found = [word for word in (*lines, "BEGIN SOLUTION", "BEGIN HIDDEN") if word in text]
        assert found + [name for name in functions if re.search(rf"\b{name}\b", text)] == [], (
            path.name
        )


@pytest.mark.parametrize("name", FIRST)
def test_who_learns_alone_gets_the_notebook_that_a_class_gets(name, released):
    exercise, bundle = course.load(name), released(name).folder / "released" / name
    own = nbformat.reads(handout.without_solutions(exercise.notebook), as_version=4)
    theirs = nbformat.read(bundle / exercise.notebook.name, as_version=4)
    assert [cell.source for cell in own.cells] == [cell.source for cell in theirs.cells]


@pytest.fixture(scope="module")
def edition(released, tmp_path_factory):
    """The folder of an unpacked edition with two assignments."""
    return unpacked(released, tmp_path_factory.mktemp("edition"))


def unpacked(released, folder, **patches):
    """An edition with two assignments, made with other functions of `release`."""
    made = {name: released(name).folder / "released" / name for name in ("a1", "a5")}
    exercises = [course.load(name) for name in made]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(release, "release", lambda _, one: made[one.folder.name])
        for name, function in patches.items():
            patch.setattr(release, name, function)
        with zipfile.ZipFile(release.edition(Classroom.open(folder), exercises)) as archive:
            archive.extractall(folder)
            modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
    readable = (release.FOLDER.parents[1] / "README.md").stat().st_mode & 0o044
    assert {f"{mode:o}" for mode in modes.values() if mode & 0o044 != readable} == set()
    return folder / "course"


def files_of(edition):
    """By name, so that a test reads as what a student sees."""
    files = [path for path in edition.rglob("*") if path.is_file()]
    return {path.relative_to(edition).as_posix(): path for path in files}


def test_an_edition_holds_the_course_and_the_assignments(edition):
    files = files_of(edition)
    assert {"helpers/__init__.py", "notebooks/01_batchnorm_math.ipynb", "environment.yml"} <= set(
        files
    )
    assert any(name.startswith("notebooks/exercises/") for name in files)
    bundles = [name for name in files if name.startswith("notebooks/assignments/")]
    assert {name.split("/")[2] for name in bundles} == {"a1", "a5"}
    of_teachers = ("course/grading/", "tests/", ".ci/", "data/training/", "CONTRIBUTING.md")
    of_teachers += ("Dockerfile", ".dockerignore", ".github/", "course/commands/grade.py")
    assert [name for name in files if name.startswith(of_teachers)] == []


def test_the_guides_of_an_edition_offer_what_is_in_it_and_speak_of_no_repository(edition):
    readme, makefile = ((edition / name).read_text() for name in ("README.md", "Makefile"))
    guides = readme + makefile
    assert "\ncd course\nmake lab" in readme and not re.search(r"git (clone|pull)", guides)
    assert "work/assignments" in readme
    assert "COURSE_REPOSITORY" not in readme  # a zip file has no address to clone
    assert "under *Code*" not in readme and "\n\n## Your own network" in readme
    lessons = [text_of(path.name, path.read_bytes()) for path in edition.glob("notebooks/[0-9]*")]
    of_teachers = r"INSTRUCTOR|CONTRIBUTING|tests\b|course grade"
    assert not re.search(of_teachers, "\n".join([guides, *lessons]))
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    assert set(re.findall(r"`make (?!run|clean)(\w+)", guides)) <= targets and "lab" in targets
    assert not targets & {"grade", "test", "check", "check-versions", "reference", "site"}
    phony = re.search(r"^\.PHONY: (.*)", makefile, re.MULTILINE)[1]
    assert set(phony.split()) == targets


def test_no_file_of_an_edition_leads_to_the_repository(edition, released, tmp_path):
    """It has the solutions."""
    marked = lambda name, text: f"{name}, without"  # noqa: E731
    files = files_of(unpacked(released, tmp_path, without_repository=marked))
    for name in ("pyproject.toml", "notebooks/01_batchnorm_math.ipynb", "notebooks/progress.ipynb"):
        assert files[name].read_text(encoding="utf-8") == f"{name}, without"
    for name in ("pyproject.toml", "notebooks/01_batchnorm_math.ipynb"):
        shipped = (edition / name).read_text(encoding="utf-8")
        setting = 'repository = "someone/course"'
        known = re.sub('^repository = ""', setting, shipped, flags=re.MULTILINE)
        if name.endswith(".ipynb"):
            known = with_hosting(shipped, name, "someone/course")
        assert "someone/course" in known
        assert release.without_repository(name, known) == shipped


def secrets_of(exercise):
    """Oracles, recorded answers and solutions, as texts."""
    specification = (exercise.folder / "specification.py").read_text()
    nodes = ast.parse(specification).body
    oracles = [node for node in nodes if getattr(node, "name", "").endswith("_oracle")]
    texts = [ast.get_source_segment(specification, node).split("\n", 1)[1] for node in oracles]
    parts = re.split(r"\n# %% .*", (exercise.folder / "answers.py").read_text())[1:]
    texts += [text.strip() for text in (*parts, *solutions(exercise))]
    return [text for text in texts if text]


def test_an_edition_holds_nothing_that_is_secret(edition):
    files = files_of(edition)
    read = {
        name: text_of(name, path.read_bytes())
        for name, path in files.items()
        if not name.startswith("data/") and not name.endswith((".svg", ".png"))
    }
    everything = "\n".join(read.values())
    networks = {path.read_bytes() for path in files.values() if path.suffix == ".safetensors"}
    assert "make_network.py" not in " ".join(files)
    for exercise in map(course.load, NAMES):
        texts = secrets_of(exercise)
        assert len(texts) > 20 and [text for text in texts if text in everything] == []
        assert not networks & set(handed_in(exercise).values())


def test_the_menu_of_an_edition_has_no_grading(edition):
    words = [sys.executable, "-m", "course", "grade"]
    there = os.environ | {"PYTHONPATH": "."}
    done = subprocess.run(
        words, check=False, cwd=edition, env=there, capture_output=True, text=True
    )
    menu = done.stderr.partition("choose from")[2]
    assert done.returncode == 2 and "train" in menu and "grade" not in menu, done.stderr


def run_from_top_to_bottom(notebook, replaced):
    """Run a notebook's code cells as one script, in the bundle's own folder, without the course's
    library.
    """
    cells = [
        cell for cell in nbformat.read(notebook, as_version=4).cells if cell.cell_type == "code"
    ]
    script = "\n\n".join(
        replaced.get(cell.metadata.nbgrader.grade_id, cell.source) for cell in cells
    )
    (notebook.parent / "script.py").write_text(script)
    words = [sys.executable, "script.py"]
    return subprocess.run(words, cwd=notebook.parent, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("name", NAMES)
def test_an_untouched_release_runs_and_a_solved_one_is_right(name, released, tmp_path):
    exercise, items = course.load(name), len(course.load(name).assignment.items)
    notebook = (
        shutil.copytree(released(name).folder / "released" / name, tmp_path / name)
        / exercise.notebook.name
    )
    done = run_from_top_to_bottom(notebook, {})
    assert done.returncode == 0 and done.stdout.count("not done yet") == items, done.stderr
    for file, content in handed_in(exercise).items():
        (notebook.parent / file).write_bytes(content)
    solved = run_from_top_to_bottom(notebook, answers.solution_cells(exercise))
    assert solved.stdout.count("right on the visible inputs") == items, (
        solved.stdout + solved.stderr
    )
    for wrong in [a for a in answers.read(exercise) if not a.right][
        :6
    ]:  # some are wrong on hidden inputs alone
        solved = run_from_top_to_bottom(notebook, {f"{wrong.item}_solution": wrong.code})
        if "not right yet" in solved.stdout:
            break
    assert solved.stdout.count("not right yet") == 1, solved.stdout + solved.stderr


MISFITS = [
    ('"points": 12', '"points": 13', "12 points in specification.py, 13 in a1.ipynb: corr"),
    ('"grade_id": "fold_conv_solution"', '"grade_id": "fold_conv_answer"', "no cell"),
    ('"points": 6', '"points": 7', "points together"),
    ('"fold_conv_solution"', '"bn_affine_solution"', "second cell with the ID"),
    ('"nbgrader": {', '"other": {', "read-only"),
]


def test_a_notebook_that_does_not_fit_its_specification_or_is_not_there_is_refused(a1, tmp_path):
    notebook = shutil.copytree(a1.folder, tmp_path / "a1") / "a1.ipynb"
    room, text = Classroom.open(tmp_path / "class"), notebook.read_text()
    for find, replace, says in MISFITS:
        assert find in text
        notebook.write_text(text.replace(find, replace))
        with pytest.raises(ValueError, match=says):
            release.release(room, course.load("a1", tmp_path))
        assert not (room.folder / "released" / "a1").exists()
    with pytest.raises(ValueError, match=r"no assignment .a9. in .*; there are a1, a2, a3, a4, a5"):
        course.load("a9")


def test_a_release_that_is_stopped_leaves_the_zip_file_whole(room, a1, monkeypatch):
    path = room.folder / "released" / "a1.zip"
    before = path.read_bytes()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(zipfile.ZipFile, "write", Mock(side_effect=KeyboardInterrupt))
        release.release(room, a1)
    assert path.read_bytes() == before


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_bytes(b"half")])
def test_a_release_whose_zip_file_is_lost_is_named_with_what_to_run(room, a1, hand_in, spoil):
    released = room.folder / "released" / "a1"
    spoil(released.with_suffix(".zip"))
    with pytest.raises(ValueError, match=r"a1\.zip cannot be read .*`grade release a1` again"):
        intake.read(hand_in("ada", {}), "a1.ipynb", runner.skeleton_of(room, a1), released)


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A small course in a git repository of its own; a module of a1 was not added yet."""
    folder = tmp_path / "clone" / "notebooks" / "assignments"
    for name in ("specification.py", "gone.py", "mine.py"):
        write(folder / "a1" / name, "")
    git = ["git", "-C", str(tmp_path / "clone")]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "add", "notebooks/assignments/a1/[sg]*"], check=True)
    (folder / "a1" / "gone.py").unlink()
    monkeypatch.setattr(course, "FOLDER", folder)
    monkeypatch.setattr(gradescope, "ROOT", tmp_path / "clone")
    return folder


def test_gradescope_gets_modules_that_were_not_added_to_git_yet(room, a1, clone):
    packed = gradescope.pack(room, course.Exercise(a1.assignment, clone / "a1"))
    names = {Path(name).name for name in zipfile.ZipFile(packed).namelist()}
    assert {"specification.py", "mine.py", "secret"} < names and "gone.py" not in names
    assert not [name for name in course.listed_files() if "specification" not in name]


def test_without_git_neither_an_edition_nor_an_autograder_is_made(room, a1, tmp_path, monkeypatch):
    monkeypatch.setattr(course, "FOLDER", tmp_path / "notebooks" / "assignments")
    (tmp_path / "notebooks" / "assignments").mkdir(parents=True)
    for make in (lambda: gradescope.pack(room, a1), lambda: release.edition(room, [])):
        with pytest.raises(ValueError, match=r"is no git repository.*clone the course"):
            make()


def test_a_copied_assignment_that_kept_its_name_is_refused(a1, tmp_path):
    shutil.copytree(a1.folder, tmp_path / "a6")
    with pytest.raises(ValueError, match=r"specification.py calls its assignment 'a1': write 'a6'"):
        course.load("a6", tmp_path)
