"""Grade a whole class: in parallel, resumable, and no submission stops another.

Boxes run side by side in threads that mostly wait; the gradebook is written by this thread alone. A
result is written last, whole or not at all, with a fingerprint of what it was made from. So a run
that is killed loses nothing that was finished, and the next one grades only what is missing or has
changed.
"""

import hashlib
import json
import platform
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from socket import gethostname
from typing import Any

import nbformat
import torch
from tqdm import tqdm

from course.grading import (
    arrivals,
    box,
    course,
    handed_in,
    intake,
    job,
    judge,
    machine,
    record,
    release,
)
from course.grading.classroom import Classroom, ClassroomError, write
from course.grading.course import Exercise
from course.grading.intake import Submission
from course.workers import cluster, threads
from helpers import checks

# Modules beside this one on which no mark depends; whatever is not named here counts.
NOT_JUDGING = ("answers", "arrivals", "classroom", "collect", "export", "feedback")
NOT_JUDGING += ("gradescope", "handout", "noteworthy", "release", "similarity", "stats")
TOGETHER = 4  # submissions in a task: what is not written yet when a run is killed is graded again


@dataclass(frozen=True)
class Task:
    """Whose hand-in is graded; `work` stands for it, secret and release, `mark` for code too.

    With `is_restored` the gradebook holds other points than the last run gave: it is a backup.
    """

    student: str
    hand_in: str
    work: str
    mark: str
    is_restored: bool = False


def skeleton_of(room: Classroom, exercise: Exercise):
    """The released notebook, on which every submission is rebuilt."""
    path = room.folder / "released" / exercise.assignment.name / exercise.notebook.name
    if not path.exists():
        raise FileNotFoundError(
            f"{exercise.assignment.name} was not released to this class: run `grade release` first"
        )
    return nbformat.read(path, as_version=4)


def version(assignment: str) -> str:
    """A digest of the code that marks depend on: exercise, grader, torch, Python."""
    versions = f"{torch.__version__} {sys.version_info[:2]}"
    exercise, digest = course.load(assignment), hashlib.sha256(versions.encode())
    folders = (exercise.folder, job.HERE, Path(checks.__file__).parent)
    paths = {path for folder in folders for path in folder.rglob("*.py")}
    paths -= {job.HERE / f"{name}.py" for name in NOT_JUDGING}
    paths -= {exercise.folder / name for name in ("answers.py", "make_network.py")}
    digest.update(" ".join(sorted(course.answer_cells(assignment))).encode())
    for path in sorted(paths):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def run(
    room: Classroom,
    exercise: Exercise,
    workers: int | None = None,
    boxed: bool = True,
    scheduler: str | None = None,
    item: str | None = None,
    changed: list[str] | None = None,
) -> dict[str, int]:
    """Grade what is new or changed, here or on a cluster. Returns how many were graded and kept.

    With an `item`, that one alone is graded, in hand-ins that are as they were. `changed` takes a
    line for each change of points where the hand-in is the same.
    """
    items = [one.name for one in exercise.assignment.items]
    if item not in (None, *items):
        raise ClassroomError(
            f"{exercise.assignment.name} has no item {item!r}; there are {', '.join(items)}"
        )
    if boxed:
        machine.require_unseen(room.folder)
    machine.require(boxed and scheduler is None)
    machine.clear_leftovers()
    skeleton = skeleton_of(room, exercise)
    release.require_released_points(room, exercise)
    name, (todo, kept) = exercise.assignment.name, _to_do(room, exercise, boxed)
    if item:
        todo = [task for task in todo if _old(room, name, task).get("work") == task.work]
    limits = asdict(box.Limits())
    room.log("run", assignment=name, students=len(todo), boxed=boxed, limits=limits, item=item)
    if scheduler:
        work = partial(grade_elsewhere, name, version(name), room.secret, boxed, item)
        pools = cluster(scheduler, workers)
    else:
        work = partial(grade, exercise, _sheets(exercise, room.secret, item), boxed)
        pools = threads(workers)
    read = partial(
        intake.read,
        notebook_name=exercise.notebook.name,
        skeleton=skeleton,
        released=room.folder / "released" / name,
    )
    with (
        pools as (pool, at_a_time),
        tqdm(total=len(todo), desc=f"grading {name}", leave=False, disable=not todo) as bar,
    ):
        tasks = (
            (part, [read(room.submission(task.student, name)) for task in part])
            for part in _parts(todo, at_a_time)
        )
        for part, *done in _as_they_finish(pool, work, tasks, most=2 * at_a_time):
            for task, submission, result in zip(part, *done, strict=True):
                lines = _keep(room, name, task, submission, result, item)
                if changed is not None:
                    changed += lines
                bar.update()
    return {"graded": len(todo), "kept": kept}


def pending(room: Classroom, exercise: Exercise) -> list[str]:
    """One line if hand-ins have no marks, or some of an older hand-in or by older rules."""
    name, (todo, _) = exercise.assignment.name, _to_do(room, exercise, boxed=None)
    words = f"{name}: hand-ins without an up-to-date mark: {len(todo)}."
    return [f"{words} `grade run {name}` first"] if todo else []


def _old(room: Classroom, name: str, task: Task) -> dict:
    """The result that is there, or nothing."""
    return room.result(name, task.student) or {}


def _sheets(exercise: Exercise, secret: str, item: str | None) -> list[judge.Sheet]:
    """The hidden inputs and expected answers of all items or one."""
    sheets = judge.prepare(exercise, secret)
    return [sheet for sheet in sheets if item in (None, sheet.item.name)]


def _to_do(room: Classroom, exercise: Exercise, boxed: bool | None) -> tuple[list[Task], int]:
    """What is new or changed (None: boxed or not as before), and how much is not."""
    name, todo, kept = exercise.assignment.name, [], 0
    released = handed_in.fingerprint(room.folder / "released" / name, "*.ipynb")
    code, in_book = version(name), record.code_points(room, name)
    # Not by name: the order in which marks are written would give pseudonyms away.
    for student in sorted(room.students(name), key=lambda one: record.known_as(room, one)):
        old = room.result(name, student) or {}
        way = old.get("boxed") if boxed is None else boxed
        hand_in = handed_in.fingerprint(room.submission(student, name))
        work = _digest(room.secret, released, way, hand_in)
        given = {item: row["points"] for item, row in old.get("items", {}).items()}
        is_restored = bool(old) and in_book.get(record.known_as(room, student)) != given
        task = Task(student, hand_in, work, _digest(code, work), is_restored)
        if old.get("fingerprint") == task.mark and not is_restored:
            kept += 1
        else:
            todo.append(task)
    return todo, kept


def _digest(*parts: object) -> str:
    return hashlib.sha256(" ".join(map(str, parts)).encode()).hexdigest()


def _parts(todo: list, at_a_time: int) -> Iterator[list]:
    """A few at a time; fewer in the end, so that no worker has long to wait for the last."""
    while part := todo[: max(1, min(TOGETHER, len(todo) // at_a_time))]:
        yield part
        todo = todo[len(part) :]


def _as_they_finish(pool: Executor, work: Callable, tasks: Iterator, most: int) -> Iterator[tuple]:
    """Grade with a few submissions in memory at a time, however large the class."""
    running: dict[Future, tuple] = {}
    while True:
        while len(running) < most and (entry := next(tasks, None)):
            running[pool.submit(work, entry[1])] = entry
        if not running:
            return
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            yield (*running.pop(future), future.result())


def grade(
    exercise: Exercise, sheets: list[judge.Sheet], boxed: bool, submissions: list[Submission]
) -> list[dict]:
    """Grade some submissions; a failure of the grader itself becomes a result that says so, and
    costs nobody else.
    """
    try:
        return judge.grade(exercise, submissions, sheets, boxed=boxed)
    except machine.BoxError:
        raise
    except Exception as problem:
        if len(submissions) > 1:
            return [grade(exercise, sheets, boxed, [one])[0] for one in submissions]
        message = "The grader failed; tell your teacher"
        items = {
            s.item.name: {"points": 0.0, "of": s.item.points, "message": message} for s in sheets
        }
        note = (
            f"The grader failed on this submission: {type(problem).__name__}: {problem}; the next"
            " run tries again"
        )
        return [{"items": items, "notes": [note], "printed": "", "boxed": boxed, "readable": False}]


def grade_elsewhere(
    name: str,
    wanted: str,
    secret: str,
    boxed: bool,
    item: str | None,
    submissions: list[Submission],
) -> list[dict]:
    """Grade on another machine, which must have the same versions and a box."""
    if version(name) != wanted:
        remedy = "install the same there, start its worker again, and run again"
        raise machine.BoxError(
            f"{gethostname()} has another version of the course, torch or Python: {remedy}"
        )
    machine.require(boxed)
    return grade(course.load(name), _prepared(name, secret, item), boxed, submissions)


@cache
def _prepared(name: str, secret: str, item: str | None) -> list[judge.Sheet]:
    return _sheets(course.load(name), secret, item)


def _keep(
    room: Classroom,
    name: str,
    task: Task,
    submission: Submission,
    result: dict,
    item: str | None = None,
) -> list[str]:
    """Enter the points in the gradebook, then write the result; of one item, beside the others.

    Where the grader failed, the marks of the same hand-in stay as they were. Returns whose points
    of the same hand-in changed, and how.
    """
    student, old, words = task.student, _old(room, name, task), words_of(submission.notebook)
    same_words = old.get("words") == words and not task.is_restored
    same_hand_in = old.get("hand_in") == task.hand_in or old.get("work") == task.work
    same_hand_in = same_hand_in and not task.is_restored
    failed = submission.readable and not result.get("readable", True)  # the grader
    if failed and same_hand_in:
        result = old | {"notes": [*dict.fromkeys(result["notes"] + old["notes"])]}
    elif item:
        result = old | {"items": old["items"] | result["items"]}
    arrived = arrivals.arrival(room, name, student)
    points = {item: row["points"] for item, row in result["items"].items()}
    same = {"same_words": same_words, "same_hand_in": same_hand_in}
    record.enter(room, name, student, submission.notebook, points, arrived, **same)
    result |= {"student": student, "assignment": name, "words": words, "hand_in": task.hand_in}
    result |= {"graded": datetime.now(UTC).isoformat(timespec="seconds")}
    result |= {"versions": {"python": platform.python_version(), "torch": torch.__version__}}
    # The others were graded by the code as it was, so a whole run has to grade them again; also if
    # that code comes back.
    result |= {"work": task.work, "fingerprint": "" if item else task.mark}
    if failed:  # so that the next run tries again
        result |= {"work": "", "fingerprint": ""}
    write(room.result_path(name, student), json.dumps(result, indent=1))
    # Which secret it was, not the secret.
    seeds = hashlib.sha256(room.secret.encode()).hexdigest()[:12]
    room.log(
        "graded",
        assignment=name,
        student=student,
        points=sum(points.values()),
        fingerprint=task.mark[:12],
        item=item,
        seeds=seeds,
        boxed=result["boxed"],
        versions=result["versions"],
    )
    before = (
        {item: row["points"] for item, row in old.get("items", {}).items()} if same_hand_in else {}
    )
    changed = {one: was for one, was in before.items() if points.get(one, was) != was}
    if not changed:
        return []
    rows = record.scores(room, name, student)
    stays = ", but the points given by hand stay"
    return [
        f"{student}: {one} had {was:g} points, now {points[one]:g}"
        + stays * bool(rows.get(one, {}).get("by_hand"))
        for one, was in changed.items()
    ]


def words_of(notebook: Any) -> str:
    """A digest of the written answers, without the texts of the release, which may be corrected."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "markdown"]
    texts = [cell.source for cell in cells if not cell.metadata.get("nbgrader", {}).get("locked")]
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()
