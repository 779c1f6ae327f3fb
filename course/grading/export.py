"""Marks as tables for spreadsheets and pandas, and as Moodle and Canvas read them."""

from pathlib import Path

import pandas as pd

from course.grading import record, roster
from course.grading.classroom import Classroom, pseudonym, write_table
from course.grading.course import Exercise


def table(room: Classroom, assignments: list[str], pseudonyms: bool = False) -> pd.DataFrame:
    """All marks, a row per item; the late penalty is an item of its own."""
    rows = []
    for assignment in assignments:
        students = room.students(assignment)
        # In the order of what is shown: that of the names would give pseudonyms away.
        for shown, student in sorted(
            (pseudonym(room, one) if pseudonyms else one, one) for one in students
        ):
            if not (result := room.result(assignment, student)):
                continue
            for item, row in record.scores(room, assignment, student).items():
                rows.append(
                    [
                        shown,
                        assignment,
                        item,
                        row["points"],
                        row["of"],
                        row["waiting"],
                        result["boxed"],
                    ]
                )
    return pd.DataFrame(
        rows, columns=["student", "assignment", "item", "points", "of", "waiting", "boxed"]
    )


def export(room: Classroom, assignments: list[str], pseudonyms: bool = False) -> list[Path]:
    """Write items.csv (long), and per assignment a table with all items and the total in columns.

    Returns the files.
    """
    marks, folder = table(room, assignments, pseudonyms), room.folder / "export"
    tables = {"items": marks}
    for assignment, part in marks.groupby("assignment"):
        items = list(dict.fromkeys(part["item"]))
        wide = part.pivot_table(index="student", columns="item", values="points", sort=False)[items]
        wide["total"] = wide.sum(axis=1).clip(lower=0).round(2)
        wide["waiting for hand grading"] = part.groupby("student")["waiting"].any()
        wide["boxed"] = part.groupby("student")["boxed"].all()
        tables[assignment] = wide.reset_index()
    for assignment in set(assignments) - set(tables):
        (folder / f"{assignment}.csv").unlink(missing_ok=True)  # of those who are no longer there
    room.log("export", assignments=assignments, pseudonyms=pseudonyms)
    return [
        write_table(
            folder / f"{name}.csv",
            list(frame),
            frame.astype(object).where(frame.notna(), "").to_numpy(),
        )
        for name, frame in tables.items()
    ]


def export_for(system: str, room: Classroom, exercises: list[Exercise]) -> list[Path | str]:
    """Write the files of one system.

    Returns them, and remarks: marks left empty, students who are not on the list.
    """
    folder, listed = room.folder / "export" / system, roster.read(room)
    handed_in = {exercise: room.students(exercise.assignment.name) for exercise in exercises}
    if any(handed_in.values()):  # an edition releases those that a class leaves out, too
        exercises = [exercise for exercise in exercises if handed_in[exercise]]
    remarks = (
        []
        if listed
        else [f"without {room.folder / roster.FILE} the numbers of the students are missing"]
    )
    without = [student for student, one in listed.items() if not one.id]
    if without:
        more = f" and {len(without) - 10} more" * (len(without) > 10)
        told = f"without a number in the column id of {roster.FILE}"
        remarks.append(f"{told}: {', '.join(without[:10])}{more}")
    for exercise, students in handed_in.items():
        odd = [student for student in students if listed and student not in listed]
        remarks += _remark(exercise, "handed in, but not on the class list", odd)
    totals = {exercise.assignment.name: _totals(room, exercise, remarks) for exercise in exercises}
    people = {s: listed.get(s) or roster.Listed(s) for marks in totals.values() for s in marks}
    if system == "moodle":
        new = {
            n: [[people[s].id, people[s].name or s, mark] for s, mark in m.items()]
            for n, m in totals.items()
        }
        return [
            *(
                write_table(folder / f"{n}.csv", ["ID number", "Full name", n], r)
                for n, r in new.items()
            ),
            *remarks,
        ]
    return [_canvas(people, exercises, totals, folder), *remarks]


def _remark(exercise: Exercise, words: str, students: list[str]) -> list[str]:
    """One line with some of the students whom it concerns, or none."""
    more = f" and {len(students) - 10} more" if len(students) > 10 else ""
    return (
        [f"{exercise.assignment.name}: {words}: {', '.join(students[:10])}{more}"]
        if students
        else []
    )


def _totals(room: Classroom, exercise: Exercise, remarks: list[str]) -> dict[str, str]:
    """The points of everybody; none where nothing was handed in, nothing graded, or answers or
    points given by hand wait.
    """
    name, found, unread, again = exercise.assignment.name, {}, [], []
    for student in roster.everybody(room, name):
        rows = record.scores(room, name, student) if room.result(name, student) else {}
        waiting = any(row["waiting"] for row in rows.values())
        unread += [student] * any(row["waiting"] and not row.get("again") for row in rows.values())
        known = record.known_as(room, student)
        again += [f"{known}'s {item}" for item, row in rows.items() if row.get("again")]
        points = max(0.0, sum(row["points"] for row in rows.values()))
        found[student] = f"{points:g}" if rows and not waiting else ""
    remarks += _remark(exercise, "left empty until their written answers have been read", unread)
    words = "left empty until you look again at the points given by hand, as the hand-in changed"
    remarks += _remark(exercise, words, again)
    return found


def _canvas(
    people: dict[str, roster.Listed],
    exercises: list[Exercise],
    totals: dict[str, dict],
    folder: Path,
) -> Path:
    """What Canvas's gradebook reads: its five columns first, and a line with the points that are
    possible.
    """
    rows = [
        ["    Points Possible", "", "", "", "", *(f"{e.assignment.points:g}" for e in exercises)]
    ]
    for student, person in people.items():
        marks = [of_one.get(student, "") for of_one in totals.values()]
        rows.append([person.name or student, person.id, "", student, person.section, *marks])
    header = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", *totals]
    return write_table(folder / "gradebook.csv", header, rows)
