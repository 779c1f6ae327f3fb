"""Release assignments to a class: each as a folder and a zip file, or all with the course."""

import functools
import io
import re
import zipfile
from pathlib import Path

import nbformat

from course.commands.hosted import notebooks, with_hosting
from course.grading import record
from course.grading.classroom import Classroom, ClassroomError, write
from course.grading.course import FOLDER, Exercise, listed_files
from course.grading.handout import hand_out

# Sources of assignments with their solutions, oracles and networks, and the code that grades them.
NOT_FOR_STUDENTS = ("notebooks/assignments/", "course/grading/", "course/commands/grade.py",
                    "tests/", ".ci/", ".github/", "data/training/", "data/results/unfinished/",
                    "CONTRIBUTING.md", "Dockerfile", ".dockerignore")  # fmt: skip

# Lines of README and Makefile about what an edition does not hold, each with those that continue
# it.
FOR_TEACHERS = re.compile(
    r"^(\| see how grading|\| run the tests|\| for maintainers|\| read the course as a website"
    r"|.*pytest|(grade|test|check.*|reference|site):"
    r"|# (One thread|After each|A represent|The reference|Each finished|Versions of|them most)"
    r").*\n([ \t]+.*\n)*",
    re.MULTILINE,
)
GRADE = re.compile(r"^\* \*\*Grade.*\n([ \t]+.*\n)*", re.MULTILINE)
# From the repository, which has the solutions; a zip file cannot be cloned.
HOSTED = re.compile(r"^\* \*\*Google Colab.*\n([ \t]+.*\n)*", re.MULTILINE)
HAND_IN = (
    "* **Hand in**: `make lab` puts the assignments into `work/assignments/`; read `STUDENT.md` in"
    " one of them first.\n"
)
INSTEAD_OF_GIT = {  # what README and Makefile say, and what is so of a zip file
    r"git clone .*\ncd .*": "cd course",
    "`git clone` and ": "",
    r"`<address>` below is what this page shows under \*Code\*. ": "",
    "`git pull`": "unpack a newer zip file over this one",
    "After git pull": "After an update",
}

WRITTEN = "written answers"
SAME_ITEMS = (
    "once hand-ins were graded, items can be neither added nor removed: undo that, or grade in a"
    " class folder of its own (`--folder`, `--new`)"
)


def for_students(text: str) -> str:
    """README or Makefile of the edition, which offers only what is in it."""
    text = HOSTED.sub("", FOR_TEACHERS.sub("", GRADE.sub(HAND_IN, text)))
    for git, unpacked in INSTEAD_OF_GIT.items():
        text = re.sub(git, unpacked, text)
    text = re.sub(r"\s+To\s+change something, read \[CONTRIBUTING.*", "", text)
    targets = re.findall(r"^([a-z-]+):", text, re.MULTILINE)
    text = re.sub(r"^\.PHONY: .*", f".PHONY: {' '.join(targets)}", text, flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", text)


def without_repository(name: str, text: str) -> str:
    """A file that leads to the repository, with its solutions, as it is while that is unknown."""
    if name == "pyproject.toml":
        return re.sub(r'^repository = ".*"', 'repository = ""', text, flags=re.MULTILINE)
    return with_hosting(text, name, "")


def verify(exercise: Exercise) -> None:
    """Refuse a source notebook whose graded cells or points differ from the specification."""
    assignment = exercise.assignment
    cells = {}
    for cell in nbformat.read(exercise.notebook, as_version=4).cells:
        marks = cell.metadata.get("nbgrader")
        cell_name = f"{exercise.notebook.name}: {cell.source[:60]!r}"
        if not marks:
            raise ValueError(
                f"{cell_name} has no nbgrader type. In JupyterLab's sidebar, Create Assignment,"
                " choose read-only, or autograded answer and an ID such as bn_affine_solution for"
                " the function of an exercise"
            )
        if marks["grade_id"] in cells:
            raise ValueError(
                f"{cell_name} is the second cell with the ID {marks['grade_id']}; give it one of"
                " its own in JupyterLab's sidebar, Create Assignment"
            )
        cells[marks["grade_id"]] = (cell.cell_type, marks)
    graded = {
        name: marks["points"]
        for name, (kind, marks) in cells.items()
        if marks["grade"] and kind == "code"
    }
    wanted = {item.name: item.points for item in assignment.items}
    if changed := _differences(wanted, graded, exercise.notebook.name):
        raise ValueError(
            f"{changed}: correct one of the two, the notebook in JupyterLab's sidebar, Create"
            " Assignment"
        )
    manual = sum(
        marks["points"] for kind, marks in cells.values() if marks["grade"] and kind == "markdown"
    )
    if manual != assignment.manual_points:
        raise ValueError(
            f"the written answers of {exercise.notebook.name} have {manual:g} points together;"
            f" specification.py says {assignment.manual_points:g}"
        )
    if missing := [name for name in wanted if f"{name}_solution" not in cells]:
        raise ValueError(f"{exercise.notebook.name} has no cell <name>_solution for {missing}")


def require_released_points(room: Classroom, exercise: Exercise) -> None:
    """Refuse to grade where items or points of the specification are not those of the release."""
    assignment, name = exercise.assignment, exercise.assignment.name
    path = room.folder / "released" / name / exercise.notebook.name
    marked = [
        (cell.metadata.nbgrader.grade_id, cell.cell_type, cell.metadata.nbgrader.points)
        for cell in nbformat.read(path, as_version=4).cells
        if cell.metadata.get("nbgrader", {}).get("grade")
    ]
    wanted = {item.name: item.points for item in assignment.items}
    wanted[WRITTEN] = assignment.manual_points
    in_book = record.points_in_book(room, name)
    if not in_book and _was_graded(room, name):
        raise record.lost(room, name, name)
    for where, cells in (("released notebook", marked), ("gradebook", in_book or marked)):
        found = {item: points for item, kind, points in cells if kind == "code"}
        found[WRITTEN] = sum(points for _, kind, points in cells if kind == "markdown")
        changed = _differences(wanted, found, f"the {where}")
        if not changed:
            continue
        remedy = f"`grade release {name}`, then `grade run {name}` again"
        if wanted.keys() != found.keys() and _was_graded(room, name):
            remedy = SAME_ITEMS
        raise ClassroomError(f"nothing was graded. {changed}. Remedy: {remedy}")


def require_same_items(room: Classroom, exercise: Exercise) -> None:
    """Refuse to release other items than those of a gradebook in which there are marks."""
    name = exercise.assignment.name
    wanted = {item.name for item in exercise.assignment.items}
    found = {item for item, kind, _ in record.points_in_book(room, name) if kind == "code"}
    if not found or not _was_graded(room, name):
        return
    if found != wanted:
        which = ", ".join(sorted(found ^ wanted))
        raise ClassroomError(
            f"{name} was not released, for its items changed ({which}): {SAME_ITEMS}"
        )
    # nbgrader would refuse it, and take the release away.
    marks = [c.metadata.get("nbgrader") for c in nbformat.read(exercise.notebook, 4).cells]
    kinds = ("grade", "solution", "locked", "task")  # a cell of none of them is not in the book
    cells = {m["grade_id"] for m in marks if m and any(m.get(kind) for kind in kinds)}
    if changed := record.cells_in_book(room, name) ^ cells:
        raise ClassroomError(
            f"{name} was not released, for its cells changed ({', '.join(sorted(changed))}): texts"
            f" may change, but {SAME_ITEMS.replace('items', 'cells')}"
        )


def _was_graded(room: Classroom, assignment: str) -> bool:
    return any((room.folder / "results" / assignment).glob("*.json"))


def _differences(wanted: dict[str, float], found: dict[str, float], where: str) -> str:
    """Items whose points are others than the specification's, in words."""
    return "; ".join(
        f"{item}: {_points(wanted, item)} points in specification.py, {_points(found, item)}"
        f" in {where}"
        for item in dict.fromkeys([*wanted, *found])
        if wanted.get(item) != found.get(item)
    )


def _points(by_item: dict[str, float], item: str) -> str:
    return f"{by_item[item]:g}" if item in by_item else "none"


def release(room: Classroom, exercise: Exercise) -> Path:
    """Write the student bundle, as a folder, which is returned, and as a zip file beside it."""
    verify(exercise)
    require_same_items(room, exercise)
    name = exercise.assignment.name
    student_version = record.register(room, name, exercise.notebook)
    notebook = (student_version / exercise.notebook.name).read_text(encoding="utf-8")
    bundle, data = hand_out(exercise, notebook, room.folder / "released" / name), io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(bundle.rglob("*")):
            archive.write(path, Path(name) / path.relative_to(bundle))
    write(bundle.with_suffix(".zip"), data.getvalue())
    room.log("release", assignment=name, points=exercise.assignment.points)
    return bundle


def edition(room: Classroom, exercises: list[Exercise]) -> Path:
    """Write one zip file with the course without what is secret, and the bundles in the place of
    their sources.
    """
    root, data, names = FOLDER.parents[1], io.BytesIO(), listed_files()
    changed = dict.fromkeys(["README.md", "Makefile"], for_students)
    for name in ("pyproject.toml", *(one.relative_to(root).as_posix() for one in notebooks())):
        changed[name] = functools.partial(without_repository, name)
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            if name in changed:
                entry = zipfile.ZipInfo.from_file(root / name, f"course/{name}")
                text = changed[name]((root / name).read_text(encoding="utf-8"))
                archive.writestr(entry, text, zipfile.ZIP_DEFLATED)
            elif not name.startswith(NOT_FOR_STUDENTS):
                archive.write(root / name, Path("course", name))
        for exercise in exercises:
            bundle = release(room, exercise)
            for path in sorted(bundle.iterdir()):
                archive.write(path, Path("course/notebooks/assignments", bundle.name, path.name))
    write(room.folder / "released" / "edition.zip", data.getvalue())
    return room.folder / "released" / "edition.zip"
