"""Hand points to nbgrader, which keeps the gradebook, the manual grading and the autograded
notebooks.

nbgrader would execute the notebook and read points off the outputs. Here no student code runs: a
preprocessor takes the place of its `Execute` and puts the points that the judge awarded into the
graded cells, as the plain number that nbgrader expects (anything else, such as `tensor(0.)`, would
count as full marks).
"""

import logging
import math
import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_output
from nbgrader.api import Grade, Gradebook, MissingEntry
from nbgrader.converters import Autograde, GenerateAssignment
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import CheckCellMetadata, NbGraderPreprocessor, SaveAutoGrades
from traitlets import Bool, Dict
from traitlets.config import Config

from course.grading import arrivals, roster
from course.grading.classroom import Classroom, ClassroomError, pseudonym

CONFIG_FILE = """\
# For nbgrader's own tools, such as the Formgrader of JupyterLab for the manual grading, started in
# this folder.
c = get_config()
c.CourseDirectory.root = "."
c.CourseDirectory.submitted_directory = "checked"
# Grading runs student code outside the box here: use `python -m course grade run` instead.
c.Execute.enabled = False
# What students wrote is shown, and nothing in it runs; formulas need no network.
c.HTMLExporter.preprocessors = ["course.grading.feedback.SafeMarkdown"]
"""


_FORCE = Config({"BaseConverter": {"force": True}})


class AwardPoints(NbGraderPreprocessor):
    """Write the points of each graded code cell into its output."""

    points = Dict(help="points by grade id")

    def preprocess_cell(self, cell, resources, cell_index):
        """Give a graded code cell its points and take every other output away."""
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
            marks = cell.metadata.get("nbgrader", {})
            if marks.get("grade"):
                given = float(self.points.get(marks["grade_id"], 0.0))
                value = (
                    min(float(marks["points"]), max(0.0, given)) if math.isfinite(given) else 0.0
                )
                cell.outputs = [
                    new_output("execute_result", {"text/plain": repr(value)}, execution_count=1)
                ]
        return cell, resources


class SaveMarks(SaveAutoGrades):
    """Write the marks into the gradebook; points given by hand stay settled if what they were given
    for is unchanged.
    """

    same_words = Bool(help="whether the written answers are those of last time")
    same_hand_in = Bool(help="whether all that was handed in is as it was last time")

    def preprocess(self, nb, resources):
        """Take all marks; texts in cells of the student's own may be written answers, so somebody
        has to read them.
        """
        texts = (cell for cell in nb.cells if cell.cell_type == "markdown" and cell.source.strip())
        self.own_words = any("nbgrader" not in cell.metadata for cell in texts)
        return super().preprocess(nb, resources)

    def _add_score(self, cell, resources):
        place = (self.notebook_id, self.assignment_id, self.student_id)
        grade = self.gradebook.find_grade(cell.metadata["nbgrader"]["grade_id"], *place)
        written = cell.cell_type == "markdown"
        settled = grade.manual_score is not None and not grade.needs_manual_grade
        same = self.same_words if written else self.same_hand_in
        super()._add_score(cell, resources)
        grade.needs_manual_grade |= (
            written and self.own_words
        )  # nbgrader gives an untouched cell 0 and calls it settled
        grade.needs_manual_grade &= not (settled and same)
        self.gradebook.db.commit()


def _coursedir(room: Classroom, assignment: str, student: str = "*") -> CourseDirectory:
    folders = {
        "root": str(room.folder),
        "db_url": f"sqlite:///{room.gradebook}",
        "submitted_directory": "checked",
    }
    return CourseDirectory(course_id="", assignment_id=assignment, student_id=student, **folders)


@contextmanager
def _nbgrader(what: str) -> Iterator[None]:
    """Run one of nbgrader's converters: silently, its tools found, with one kind of error."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda entry: lines.append(entry.getMessage())
    log = logging.getLogger("traitlets")
    handlers, propagate, path = log.handlers, log.propagate, os.environ.get("PATH", "")
    log.handlers, log.propagate = [handler], False
    # nbgrader calls `alembic` by name, which is not on the path of an environment that is not
    # activated.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{path}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of SQLAlchemy, about how nbgrader uses it
            yield
    except KeyboardInterrupt:
        raise
    except BaseException as problem:  # nbgrader ends with SystemExit when it fails
        told = [line for line in lines if line.startswith("Traceback")] or lines or [str(problem)]
        why = told[-1].strip().splitlines()[-1:]
        raise RuntimeError(f"nbgrader {what} failed: {''.join(why)}") from problem
    finally:
        log.handlers, log.propagate = handlers, propagate
        os.environ["PATH"] = path


def register(room: Classroom, assignment: str, source: Path) -> Path:
    """Let nbgrader make the student version of a source notebook and enter it in the gradebook.

    Returns its folder.
    """
    target = room.folder / "source" / assignment
    target.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
    (room.folder / "nbgrader_config.py").write_text(CONFIG_FILE, encoding="utf-8")
    with _nbgrader(f"generate_assignment of {source.name}"):
        GenerateAssignment(coursedir=_coursedir(room, assignment), config=_FORCE).start()
    return room.folder / "release" / assignment


def points_in_book(room: Classroom, assignment: str) -> list[tuple[str, str, float]]:
    """Name, type and points of the graded cells that the gradebook knows; none where it is lost."""
    if not room.gradebook.exists():
        return []
    with Gradebook(f"sqlite:///{room.gradebook}") as book:
        notebooks = [n for one in book.assignments if one.name == assignment for n in one.notebooks]
        cells = [cell for notebook in notebooks for cell in notebook.grade_cells]
        return [(cell.name, cell.cell_type, cell.max_score) for cell in cells]


def cells_in_book(room: Classroom, assignment: str) -> set[str]:
    """The names of all cells that the gradebook knows, texts too; none where it is lost."""
    if not room.gradebook.exists():
        return set()
    with Gradebook(f"sqlite:///{room.gradebook}") as book:
        notebooks = [n for one in book.assignments if one.name == assignment for n in one.notebooks]
        return {cell.name for notebook in notebooks for cell in notebook.source_cells}


def code_points(room: Classroom, assignment: str) -> dict[str, dict[str, float]]:
    """What the gradebook holds of each student's code: points by item, none above the highest."""
    if not room.gradebook.exists():
        return {}
    with Gradebook(f"sqlite:///{room.gradebook}") as book:
        return {
            one.student_id: {
                grade.name: grade.auto_score
                for notebook in one.notebooks
                for grade in notebook.grades
                if _is_code(grade)
            }
            for one in book.assignment_submissions(assignment)
        }


def known_as(room: Classroom, student: str) -> str:
    """Under which name nbgrader, and so who reads written answers, knows a student."""
    names = {False: student, True: pseudonym(room, student)}
    anonymous = room.rules.anonymous
    if (room.folder / "checked" / names[not anonymous]).exists():
        before, now = f"{not anonymous}".lower(), f"{anonymous}".lower()
        raise ClassroomError(
            f"{room.settings} says anonymous = {now}, but this class was graded with {before}:"
            " set it back"
        )
    return names[anonymous]


def enter(
    room: Classroom,
    assignment: str,
    student: str,
    notebook: Any,
    points: dict[str, float],
    arrived: datetime,
    same_words: bool = False,
    same_hand_in: bool = False,
) -> None:
    """Enter a graded submission, a rebuilt notebook; manual scores stay, and wait no second time:
    with `same_words` those of written answers, with `same_hand_in` those of code.
    """
    student = known_as(room, student)
    folder = room.folder / "checked" / student / assignment
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{assignment}.ipynb"
    nbformat.write(notebook, path)
    (folder / "timestamp.txt").write_text(f"{arrived:%Y-%m-%d %H:%M:%S.%f} UTC", encoding="utf-8")
    converter = Autograde(coursedir=_coursedir(room, assignment, student), config=_FORCE)
    converter.sanitize_preprocessors = [CheckCellMetadata]
    converter.autograde_preprocessors = [
        AwardPoints(points=points),
        SaveMarks(same_words=same_words, same_hand_in=same_hand_in),
    ]
    with _nbgrader(f"autograde of {student}'s {assignment}"):
        converter.start()


def waiting(room: Classroom, assignment: str) -> tuple[int, list[str]]:
    """How many hand-ins have written answers that nobody has read yet, and whose code has points
    given by hand that wait for another look, such as "ada's fold_conv", named as in the Formgrader.
    """
    if not room.gradebook.exists():
        return 0, []
    known = {known_as(room, student) for student in room.students(assignment)}
    unread, again = 0, []
    with Gradebook(f"sqlite:///{room.gradebook}") as book:
        for one in book.assignment_submissions(assignment):
            if one.student_id not in known or not one.needs_manual_grade:
                continue
            grades = [grade for notebook in one.notebooks for grade in notebook.grades]
            left = [grade for grade in grades if grade.needs_manual_grade]
            unread += any(not _is_code(grade) for grade in left)
            again += [f"{one.student_id}'s {grade.name}" for grade in left if _is_code(grade)]
    return unread, sorted(again)


def _is_code(grade: Grade) -> bool:
    return grade.cell.cell_type == "code"


def scores(room: Classroom, assignment: str, student: str) -> dict[str, dict]:
    """What the gradebook holds of each graded cell; `again` where points given to code wait.

    Points for words count once somebody has read these words, not others of the same student.
    The late penalty is worked out anew: points by hand count, too.
    """
    rows, person = {}, roster.read(room).get(student) or roster.Listed(student)
    try:
        if not room.gradebook.exists():  # where nbgrader would begin an empty one
            raise MissingEntry
        with Gradebook(f"sqlite:///{room.gradebook}") as book:
            submission = book.find_submission(assignment, known_as(room, student))
            arrived = submission.timestamp.replace(tzinfo=UTC)
            if room.submission(
                student, assignment
            ).exists():  # its date or the deadline may be corrected afterwards
                arrived = arrivals.arrival(room, assignment, student)
            for notebook in submission.notebooks:
                comments = {comment.name: comment.comment for comment in notebook.comments}
                # The Formgrader takes words below a solution, not below its check.
                by_hand = [comment for comment in notebook.comments if comment.manual_comment]
                comments |= {
                    comment.name.removesuffix("_solution"): comment.comment for comment in by_hand
                }
                for grade in notebook.grades:
                    waits, code = bool(grade.needs_manual_grade), _is_code(grade)
                    rows[grade.name] = {
                        "points": 0.0 if waits and not code else grade.score,
                        "of": grade.max_score,
                        "comment": comments.get(grade.name) or "",
                        "waiting": waits,
                        "again": waits and code,
                        "by_hand": grade.manual_score is not None,
                    }
                total = sum(row["points"] for row in rows.values())
                days = arrivals.lateness(room, assignment, student, person)
                late = room.rules.penalty(assignment, arrived, total, *days)
                notebook.late_submission_penalty = late
                rows["late penalty"] = {
                    "points": 0.0 - late,
                    "of": 0,
                    "comment": "",
                    "waiting": False,
                    "by_hand": False,
                }
            book.db.commit()
    except MissingEntry:
        what, result = f"{student}'s {assignment}", f"results/{assignment}/{student}.json"
        raise lost(room, assignment, what, result) from None
    return rows


def lost(room: Classroom, assignment: str, what: str, results: str = "") -> RuntimeError:
    """The error where the gradebook does not hold what was graded; `results` have to go then."""
    results = results or f"results/{assignment}"
    again = f"`grade release {assignment}`, delete {results}, `grade run {assignment}`"
    return RuntimeError(
        f"{room.gradebook} holds nothing of {what}, which was graded: restore it from a backup."
        f" Without one, the points given by hand are lost: {again}"
    )
