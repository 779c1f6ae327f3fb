"""When a hand-in came: the date that `collect` noted of it, what Canvas says of it, and how late
that is.

submissions/<student>/.a1.arrived        2026-11-30T21:59:07+00:00 in-time
"""

from datetime import UTC, datetime
from pathlib import Path

from course.grading import roster
from course.grading.classroom import Classroom, write

IN_TIME, LATE = "in-time", "late"  # as Canvas says it


def note(submission: Path, arrived: datetime, canvas_says: str) -> None:
    """Note the date of a hand-in, and what Canvas says of it."""
    write(_path(submission), f"{arrived.isoformat()} {canvas_says}".strip())


def noted(submission: Path) -> tuple[datetime, str]:
    """What `note` noted, else the time of the folder itself."""
    try:
        date, _, canvas_says = _path(submission).read_text(encoding="utf-8").partition(" ")
        return datetime.fromisoformat(date), canvas_says
    except (OSError, ValueError):
        return datetime.fromtimestamp(submission.lstat().st_mtime, UTC), ""


def forget(submission: Path) -> None:
    """Delete what was noted of the submission that is about to go."""
    _path(submission).unlink(missing_ok=True)


def _path(submission: Path) -> Path:
    return submission.parent / f".{submission.name}.arrived"


def came_late(room: Classroom, assignment: str, student: str) -> bool:
    """Whether Canvas calls a submission late."""
    return noted(room.submission(student, assignment))[1] == LATE


def came_in_time(room: Classroom, assignment: str, student: str) -> bool:
    """Whether the system that delivered it calls a submission in time."""
    target = room.submission(student, assignment)
    return target.exists() and noted(target)[1] == IN_TIME


def arrival(room: Classroom, assignment: str, student: str) -> datetime:
    """When a submission came in, in UTC; what came in time is no later than the deadline, as it
    stands now.
    """
    arrived, says = noted(room.submission(student, assignment))
    return _counted(room, assignment, arrived, says == IN_TIME).astimezone(UTC)


def _counted(room: Classroom, assignment: str, arrived: datetime, in_time: bool) -> datetime:
    """The date that counts of a hand-in."""
    return min(arrived, room.rules.due.get(assignment, arrived)) if in_time else arrived


def is_worthless(
    room: Classroom, assignment: str, person: roster.Listed, arrived: datetime, in_time: bool
) -> bool:
    """Whether a hand-in of this date is so late that it earns nothing."""
    counted = _counted(room, assignment, arrived, in_time)
    extra, late = person.lateness(assignment)
    return room.rules.penalty(assignment, counted, 100, extra, None if in_time else late) == 100


def lateness(
    room: Classroom, assignment: str, student: str, person: roster.Listed
) -> tuple[float, float | None]:
    """As the class list says; its days do not concern what Canvas calls in time."""
    extra, late = person.lateness(assignment)
    return extra, None if came_in_time(room, assignment, student) else late
