"""What a teacher should look at before the marks go out."""

import nbformat

from course.grading import arrivals, collect, handed_in, intake, record, roster
from course.grading.classroom import Classroom
from course.grading.course import Exercise
from course.grading.inside import files
from course.grading.tokens import names_in


def noteworthy(room: Classroom, exercise: Exercise) -> list[str]:
    """The lines that `run` and `feedback` print about it, or none."""
    name = exercise.assignment.name
    lines, why = [], {}
    for student in room.students(name):
        result = room.result(name, student) or {"readable": True, "notes": [], "items": {}}
        if intake.PICTURES in result["notes"]:
            lines.append(f"{student}: a text holds pictures: look into submitted/{student}/{name}")
        if not result.get("readable", True) or result.get("work") == "":  # the grader failed
            why[student] = result["notes"][0]  # which `collect` may have said already
            lines.append(f"{student}: {why[student]}")
        refused = {
            item: row["message"] for item, row in result["items"].items() if row.get("refused")
        }
        calls = calls_of_what_is_wrong(room, exercise, student, result)
        if refused or calls:  # points that somebody gave by hand have settled it
            by_hand = {i for i, row in record.scores(room, name, student).items() if row["by_hand"]}
            refused = {i: words for i, words in refused.items() if i not in by_hand}
            calls = [(i, called) for i, called in calls if i not in by_hand]
        lines += [
            f"{student}: {item} earned nothing. {message}" for item, message in refused.items()
        ]
        if any(row["points"] < row["of"] for row in result["items"].values()):
            lines += [f"{student}: {note}" for note in result["notes"] if intake.AGAIN in note]
            stopped = [note for note in result["notes"] if note.startswith("Your code was stopped")]
            lines += [f"{student}: {note}" for note in stopped]
            if files.INSTALLS_NOTHING in result.get("printed", ""):
                lines.append(f"{student}: a cell wanted to install something (see the page)")
        lines += [
            f"{student}: {item} calls {' and '.join(called)}, wrong too: it may be one mistake"
            for item, called in calls
        ]
        if odd := result.get("odd"):
            lines.append(f"{student}: read the code, as no exercise needs {', '.join(odd)}")
    told = collect.remarks(room, name, why)
    lines = told + lines
    lines += strays(room, name, told)
    odd = {path.parent.name for path in (room.folder / "submitted").glob(f"*/{name}")} - {
        *room.students(name)
    }
    lines += [
        f"{s!r} in submitted/ was left out: rename the folder to letters and digits"
        for s in sorted(odd)
    ]
    lines += late_or_not(room, name) + unsettled(room, name)
    shown = [f"  {handed_in.shown(line, 500)}" for line in lines]
    return ["Please look at these before the marks go out:", *shown] if lines else []


def calls_of_what_is_wrong(
    room: Classroom, exercise: Exercise, student: str, result: dict
) -> list[tuple[str, list[str]]]:
    """Items that lost points, with those others that lost some and that their code calls."""
    wrong = [item for item, row in result["items"].items() if row["points"] < row["of"]]
    folder = room.folder / "checked" / record.known_as(room, student) / exercise.assignment.name
    path = folder / exercise.notebook.name
    if len(wrong) < 2 or not path.exists():
        return []
    cells = nbformat.read(path, as_version=4).cells
    sources = {cell.metadata.get("nbgrader", {}).get("grade_id"): cell.source for cell in cells}
    found = []
    for item in wrong:
        if result["items"][item].get("message", "").startswith("it calls"):  # which says it already
            continue
        named = names_in(sources.get(f"{item}_solution", ""))
        if called := [other for other in wrong if other in named - {item}]:
            found.append((item, called))
    return found


def strays(room: Classroom, assignment: str, told: list[str]) -> list[str]:
    """Who is not on the class list, if there is one, but for those of whom it was told already."""
    known, said = roster.read(room), " ".join(told)
    return [
        f"{s} is not on the class list: add the student to {roster.FILE}; or, if this is an old"
        f" name of somebody on it, delete submitted/{s}; for one who has left, see set_up.md"
        for s in room.students(assignment)
        if known and s not in known and f"{s} is not on" not in said
    ]


def late_or_not(room: Classroom, assignment: str) -> list[str]:
    """Whom Canvas calls late while the class list does not say by how many days."""
    people = roster.everybody(room, assignment)
    days = {
        student: people[student].lateness(assignment)[1]
        for student in room.students(assignment)
        if arrivals.came_late(room, assignment, student)
    }
    why = {
        0: "is empty or 0, which means in time",
        None: "is not there, and dates may be those of the download",
    }
    return [
        f"{student}: Canvas says late, but late_days_{assignment} in {roster.FILE} {why[count]}:"
        " write the days there"
        for student, count in days.items()
        if count == 0 or (count is None and assignment in room.rules.due)
    ]


def unsettled(room: Classroom, assignment: str) -> list[str]:
    """What somebody still has to read, or to look at again."""
    unread, again = record.waiting(room, assignment)
    words = f"written answers that nobody has read yet: in {unread} hand-in{'s' * (unread != 1)}"
    changed = "the hand-in changed, so look again at the points given by hand"
    return [words] * bool(unread) + [f"{one}: {changed}" for one in again]
