import ast
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile

import nbformat
import pytest

from course.grading import answers, course, release, wire
from course.grading.classroom import Classroom

NAMES = course.names()
TRIVIAL = 12  # shorter lines, such as `return a, b`, may stand anywhere


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    """Folder of each released assignment, by name. Not to be written to."""
    room = Classroom.open(tmp_path_factory.mktemp("bundles"))
    return {name: release.release(room, course.load(name)) for name in NAMES}


def _texts(bundle):
    """Every released file as text, with notebooks' sources unescaped."""
    texts = {}
    for path in bundle.rglob("*"):
        if path.suffix == ".ipynb":
            texts[path.name] = "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells)
        elif path.is_file():
            texts[path.name] = path.read_bytes().decode("latin-1")
    return texts


def _secret_lines(exercise):
    """Lines of the solutions that do not stand in the cell's given part."""
    for cell in nbformat.read(exercise.notebook, as_version=4).cells:
        if cell.metadata.nbgrader.solution and cell.cell_type == "code":
            inside = re.search(r"BEGIN SOLUTION\n(.*?)\n\s*### END", cell.source, re.DOTALL)[1]
            yield from (line.strip() for line in inside.splitlines())
        elif cell.metadata.nbgrader.solution:
            yield from cell.source.splitlines()
    for answer in answers.read(exercise):
        yield from (line.strip() for line in answer.code.splitlines() if "return" in line)


@pytest.mark.parametrize("name", NAMES)
def test_a_release_holds_no_solution(name, bundles):
    exercise = course.load(name)
    lines = [line for line in _secret_lines(exercise) if len(line) > TRIVIAL]
    assert len(lines) > 50
    given = exercise.driver.read_text()  # holds lines such as `return nn.Sequential(*modules)`
    texts = _texts(bundles[name])
    leaked = [(line, file) for file, text in texts.items() for line in lines if line in text and line not in given]
    assert leaked == []


@pytest.mark.parametrize("name", NAMES)
def test_a_release_holds_no_oracle_and_no_library(name, bundles):
    found = {path.name for path in bundles[name].rglob("*")}
    assert found == {
        f"{name}.ipynb",
        "driver.py",
        *(path.name for path in release.SUPPORT),
        "visible.safetensors",
        release.GUIDE,
    }
    exercise = course.load(name)
    tree = ast.parse((exercise.folder / "specification.py").read_text())
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    functions = {function for function in names if function.endswith(("_oracle", "_cases", "_edges"))}
    assert len(functions) >= 2 * len(exercise.assignment.items)
    for file, text in _texts(bundles[name]).items():
        assert not [function for function in functions if re.search(rf"\b{function}\b", text)], file
        assert "BEGIN SOLUTION" not in text and "BEGIN HIDDEN" not in text


@pytest.mark.parametrize("name", NAMES)
def test_the_instant_check_knows_only_the_visible_inputs(name, bundles):
    visible = wire.decode((bundles[name] / "visible.safetensors").read_bytes())
    for item in course.load(name).assignment.items:
        cases = item.make_cases(release.VISIBLE_SEED)
        assert [case["label"] for case in visible[item.name]["cases"]] == [case.label for case in cases]


def test_an_edition_holds_the_course_and_nothing_that_is_secret(tmp_path):
    exercises = [course.load(name) for name in ("a1", "a5")]
    with zipfile.ZipFile(release.edition(Classroom.open(tmp_path), exercises)) as archive:
        files = {name.removeprefix("course/"): archive.read(name) for name in archive.namelist()}
    assert {"helpers/__init__.py", "notebooks/01_batchnorm_math.ipynb", "environment.yml"} <= set(files)
    assert any(name.startswith("notebooks/exercises/") for name in files)
    guides = (files["README.md"] + files["Makefile"]).decode()
    assert "make lab" in guides and "\nlab: " in guides
    assert not re.search(r"make (grade|test)|INSTRUCTOR|pytest|^(grade|test|check\S*): ", guides, re.MULTILINE)
    assert {name.split("/")[2] for name in files if name.startswith("notebooks/assignments/")} == {"a1", "a5"}
    everything = b"\n".join(files.values()).decode("latin-1")
    for exercise in map(course.load, NAMES):
        secret = (exercise.folder / "specification.py").read_text()
        oracles = [node for node in ast.parse(secret).body if getattr(node, "name", "").endswith("_oracle")]
        texts = [ast.get_source_segment(secret, node).split("\n", 1)[1] for node in oracles]
        parts = re.split(r"\n# %% .*", (exercise.folder / "answers.py").read_text())[1:]
        texts += [text.strip() for text in parts if text.strip()]  # an answer of one line is no code of its own
        assert len(texts) > 20 and [text for text in texts if text in everything] == []
        for cell in nbformat.read(exercise.notebook, as_version=4).cells:
            if cell.metadata.nbgrader.solution and cell.cell_type == "code":
                body = re.search(r"BEGIN SOLUTION\n(.*?)\n\s*### END", cell.source, re.DOTALL)[1]
                assert body not in everything and json.dumps(body)[1:-1] not in everything, cell.metadata.nbgrader
        assert not any(data in files.values() for data in exercise.handed_in.values())
    assert "make_network.py" not in " ".join(files)
    with zipfile.ZipFile(tmp_path / "released" / "edition.zip") as archive:
        archive.extractall(tmp_path)
    words = [sys.executable, "-m", "course", "grade"]
    done = subprocess.run(
        words, cwd=tmp_path / "course", env=os.environ | {"PYTHONPATH": "."}, capture_output=True, text=True
    )
    menu = done.stderr.partition("choose from")[2]
    assert done.returncode == 2 and "train" in menu and "grade" not in menu, done.stderr


def _run_from_top_to_bottom(folder, notebook, replaced=None):
    """Run a notebook's code cells as one script, in the bundle's own folder, without the course's library."""
    script = []
    for cell in nbformat.read(notebook, as_version=4).cells:
        if cell.cell_type == "code":
            script.append((replaced or {}).get(cell.metadata.nbgrader.grade_id, cell.source))
    (folder / "script.py").write_text("\n\n".join(script))
    return subprocess.run([sys.executable, "script.py"], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("name", NAMES)
def test_an_untouched_release_runs_and_a_solved_one_is_right(name, tmp_path):
    exercise = course.load(name)
    bundle = release.release(Classroom.open(tmp_path / "class"), exercise)
    items = len(exercise.assignment.items)
    done = _run_from_top_to_bottom(bundle, bundle / exercise.notebook.name)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("not done yet") == items
    for file, content in exercise.handed_in.items():
        (bundle / file).write_bytes(content)
    solved = _run_from_top_to_bottom(bundle, bundle / exercise.notebook.name, answers.solution_cells(exercise))
    assert solved.stdout.count("right on the visible inputs") == items, solved.stdout + solved.stderr
    for wrong in [a for a in answers.read(exercise) if not a.right][:6]:  # some are wrong on hidden inputs alone
        cells = {f"{wrong.item}_solution": wrong.code}
        solved = _run_from_top_to_bottom(bundle, bundle / exercise.notebook.name, cells)
        if "not right yet" in solved.stdout:
            break
    assert solved.stdout.count("not right yet") == 1, solved.stdout + solved.stderr


@pytest.mark.parametrize(
    ("find", "replace", "says"),
    [
        ('"points": 12', '"points": 13', "grades"),
        ('"grade_id": "fold_conv_solution"', '"grade_id": "fold_conv_answer"', "no cell"),
        ('"points": 6', '"points": 7', "by hand"),
        ('"nbgrader": {', '"other": {', "read-only"),
    ],
)
def test_a_notebook_that_does_not_fit_its_specification_is_refused(a1, tmp_path, find, replace, says):
    folder = tmp_path / "a1"
    shutil.copytree(a1.folder, folder)
    text = (folder / "a1.ipynb").read_text()
    assert find in text
    (folder / "a1.ipynb").write_text(text.replace(find, replace))
    room = Classroom.open(tmp_path / "class")
    with pytest.raises(release.ReleaseError, match=says):
        release.release(room, course.load("a1", tmp_path))
    assert not (room.folder / "released" / "a1").exists()
