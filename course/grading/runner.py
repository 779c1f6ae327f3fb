"""Grade a whole class: in parallel, resumable, and no submission stops another.

Boxes run side by side in threads that mostly wait, or on the workers of a Dask cluster; the gradebook is written
by this thread alone. A result is written last, whole or not at all, with a fingerprint of what it was made from.
So a run that is killed loses nothing that was finished, and the next one grades only what is missing or has changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock

import nbformat
import torch
from tqdm import tqdm

from course.grading import box, collect, course, intake, job, judge, machine, record, roster
from course.grading.classroom import Classroom, write
from course.grading.course import Exercise
from course.grading.intake import Submission
from helpers import checks

SECONDS_TO_CONNECT = 10
TOGETHER = 4  # submissions in a task: what is not written yet when a run is killed is graded again
_preparing = Lock()  # two threads must not compute the same expected answers side by side


def skeleton_of(room: Classroom, exercise: Exercise):
    """The released notebook, on which every submission is rebuilt."""
    path = room.folder / "released" / exercise.assignment.name / exercise.notebook.name
    if not path.exists():
        raise FileNotFoundError(f"{exercise.assignment.name} was not released to this class: run `grade release` first")
    return nbformat.read(path, as_version=4)


def version(assignment: str) -> str:
    """A digest of the code that marks depend on: exercise, grader, torch."""
    exercise, digest = course.load(assignment), hashlib.sha256(torch.__version__.encode())
    folders = (exercise.folder, job.HERE, Path(checks.__file__).parent)
    for path in sorted([exercise.notebook, *(path for folder in folders for path in folder.glob("*.py"))]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Task:
    """What a worker needs to grade a few submissions."""

    assignment: str
    secret: str
    submissions: list[Submission]
    boxed: bool
    only_item: str | None


def run(
    room: Classroom, exercise: Exercise, workers: int | None = None, boxed: bool = True, only_item: str | None = None,
    scheduler: str | None = None,
) -> dict[str, int]:  # fmt: skip
    """Grade what is new or changed, or `only_item` for everybody. Returns how many were graded and kept."""
    if boxed:
        machine.require_unseen(room.folder)
    if scheduler is None:
        machine.require(boxed)
        machine.clear_leftovers()
    if only_item:
        exercise.assignment.item(only_item)
    name, (todo, kept) = exercise.assignment.name, _to_do(room, exercise, boxed, only_item)
    room.log("run", assignment=name, students=len(todo), boxed=boxed, limits=asdict(box.Limits()), item=only_item,
             cluster=scheduler)  # fmt: skip
    read = partial(intake.read, notebook_name=exercise.notebook.name, skeleton=skeleton_of(room, exercise),
                   released=room.folder / "released" / name)  # fmt: skip
    bar = tqdm(total=len(todo), desc=f"grading {name}", leave=False)
    with bar, hands(workers, scheduler, partial(version, name)) as (executor, at_a_time):
        tasks = (
            (part, Task(name, room.secret, [read(room.submission(who, name)) for who, _ in part], boxed, only_item))
            for part in _parts(todo, at_a_time)
        )
        for part, task, results in _as_they_finish(executor, tasks, most=2 * at_a_time):
            for (student, mark), submission, result in zip(part, task.submissions, results, strict=True):
                _keep(room, student, mark, task, submission, result)
                bar.update()
    return {"graded": len(todo), "kept": kept}


def noteworthy(room: Classroom, exercise: Exercise) -> list[str]:
    """What a teacher should look at before the marks go out: what was not read, refused or left out; or nothing."""
    name = exercise.assignment.name
    lines = collect.remarks(room, name)
    for student in room.students(name):
        result = room.result(name, student) or {"readable": True, "notes": [], "items": {}}
        if not result.get("readable", True):
            lines.append(f"{student}: {result['notes'][0]}")
        refused = {item: row["message"] for item, row in result["items"].items() if row.get("refused")}
        lines += [f"{student}: {item} earned nothing. {message}" for item, message in refused.items()]
    known, said = roster.read(room), " ".join(lines)
    strays = [s for s in room.students(name) if known and s not in known and f"{s} is not on" not in said]
    lines += [f"{s} is not on the class list: correct {roster.FILE}, or delete submitted/{s}" for s in strays]
    odd = {path.parent.name for path in (room.folder / "submitted").glob(f"*/{name}")} - {*room.students(name)}
    lines += [f"{s!r} in submitted/ was left out: rename the folder to letters and digits" for s in sorted(odd)]
    shown = [f"  {collect.shown(line, 500)}" for line in lines]
    return ["Please look at these before the marks go out:", *shown] if lines else []


def _to_do(room: Classroom, exercise: Exercise, boxed: bool, only_item: str | None) -> tuple[list[tuple], int]:
    """Students whose submission is new or changed, each with a mark of what would be graded."""
    name, todo, kept = exercise.assignment.name, [], 0
    base = f"{version(name)} {room.secret} {boxed} "
    for student in room.students(name):
        mark = hashlib.sha256((base + collect.fingerprint(room.submission(student, name))).encode()).hexdigest()
        old = room.result(name, student)
        if old and old["fingerprint"] == mark and not only_item:
            kept += 1
        else:
            todo.append((student, mark))
    return todo, kept


def _parts(todo: list, at_a_time: int) -> Iterator[list]:
    """A few at a time; fewer in the end, so that no worker has long to wait for the last."""
    while part := todo[: max(1, min(TOGETHER, len(todo) // at_a_time))]:
        yield part
        todo = todo[len(part) :]


def _as_they_finish(executor: Executor, tasks: Iterator, most: int) -> Iterator[tuple[list, Task, list]]:
    """Grade with a few submissions in memory at a time, however large the class."""
    running: dict[Future, tuple] = {}
    while True:
        while len(running) < most and (entry := next(tasks, None)):
            running[executor.submit(grade_task, entry[1])] = entry
        if not running:
            return
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            yield (*running.pop(future), future.result())


@lru_cache(maxsize=4)
def _sheets(assignment: str, secret: str, only_item: str | None) -> tuple[Exercise, list[judge.Sheet]]:
    """Hidden inputs and expected answers, made once in each process that grades."""
    exercise = course.load(assignment)
    sheets = judge.prepare(exercise, secret)
    return exercise, [sheet for sheet in sheets if only_item in (None, sheet.item.name)]


def grade_task(task: Task) -> list[dict]:
    """Grade some submissions; a failure of the grader itself becomes a result that says so, and costs nobody else."""
    with _preparing:
        exercise, sheets = _sheets(task.assignment, task.secret, task.only_item)
    try:
        return judge.grade(exercise, task.submissions, sheets, boxed=task.boxed)
    except machine.BoxError:
        raise
    except Exception as problem:
        if len(task.submissions) > 1:
            return [grade_task(replace(task, submissions=[one]))[0] for one in task.submissions]
        message = "The grader failed; tell your teacher"
        items = {s.item.name: {"points": 0.0, "of": s.item.points, "message": message} for s in sheets}
        note = f"The grader failed on this submission: {type(problem).__name__}: {problem}"
        return [{"items": items, "notes": [note], "printed": "", "boxed": task.boxed, "readable": False}]


def _keep(room: Classroom, student: str, mark: str, task: Task, submission: Submission, result: dict) -> None:
    """Enter the points in the gradebook, then write the result."""
    name = task.assignment
    old = room.result(name, student)
    if task.only_item and old:
        result["items"] = old["items"] | result["items"]
    arrived = collect.arrival(room.submission(student, name))
    points = {item: row["points"] for item, row in result["items"].items()}
    record.enter(room, name, student, submission.notebook, points, arrived)
    result |= {"student": student, "assignment": name, "arrived": arrived.isoformat(timespec="seconds")}
    result |= {"graded": datetime.now(UTC).isoformat(timespec="seconds")}
    result |= {"versions": {"python": platform.python_version(), "torch": torch.__version__}}
    # A run for one item leaves the others as they were, so it must not pass for a full run.
    result["fingerprint"] = (old or {}).get("fingerprint", "") if task.only_item else mark
    write(room.result_path(name, student), json.dumps(result, indent=1))
    seeds = hashlib.sha256(room.secret.encode()).hexdigest()[:12]  # which secret it was, not the secret
    room.log("graded", assignment=name, student=student, item=task.only_item, points=sum(points.values()),
             fingerprint=mark[:12], seeds=seeds, boxed=result["boxed"], versions=result["versions"])  # fmt: skip


class ClusterError(RuntimeError):
    """The cluster cannot be used; says why and what to do."""


@contextmanager
def hands(workers: int | None, scheduler: str | None, version: Callable[[], str]) -> Iterator[tuple[Executor, int]]:
    """Open something that runs tasks, threads here or a cluster of the same `version`, and say how many at a time."""
    if scheduler is None:
        threads = ThreadPoolExecutor(workers or os.cpu_count())
        try:
            yield threads, workers or os.cpu_count()
        finally:
            threads.shutdown(wait=True, cancel_futures=True)
        return
    try:
        from distributed import Client

        client = Client(scheduler, timeout=SECONDS_TO_CONNECT, set_as_default=False)
    except ImportError:
        raise ClusterError("grading over a Dask cluster needs the extra: pip install -e '.[dask]'") from None
    except (OSError, ValueError) as problem:
        remedy = "start one with `dask scheduler` and give the address that it prints"
        raise ClusterError(f"no Dask scheduler answers at {scheduler!r} ({problem}); {remedy}") from None
    with client:
        yield client.get_executor(pure=False), _check(client, scheduler, version)


def _check(client, scheduler: str, version: Callable[[], str]) -> int:
    """Refuse a cluster whose marks would not be ours. Returns how many tasks it runs at a time."""
    slots = sum(client.nthreads().values())
    if slots == 0:
        raise ClusterError(f"the scheduler at {scheduler} has no workers; start some with `dask worker {scheduler}`")
    try:
        versions = client.run(version)
    except Exception as problem:  # whatever a worker raises comes back as it is
        why = f"{type(problem).__name__}: {problem}"
        raise ClusterError(f"a worker at {scheduler} cannot load the course ({why}); install it there") from None
    if odd := [worker for worker, theirs in versions.items() if theirs != version()]:
        raise ClusterError(f"these workers have another version of the course or of torch: {', '.join(sorted(odd))}")
    return slots
