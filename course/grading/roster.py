"""The class list: who is in the class, under which number the university knows them, and who has more time.

`class_list.csv` in the class folder. Any learning-management system or spreadsheet can write it; only `student`, the
name that hand-ins carry, must be there:

    student,id,name,section,group,extra_days,extra_days_a3
    ada,1001,Ada Lovelace,A,1,,
    ben,1002,Benjamin Peirce,A,1,1,7
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, field

from course.grading.classroom import Classroom, ClassroomError, checked_name

FILE = "class_list.csv"
COLUMNS = ("student", "id", "name", "section", "group")
EXTRA = re.compile(r"extra_days(?:_(\w+))?")


@dataclass(frozen=True)
class Listed:
    """One line of the class list; `extra_days` by assignment, under "" for all that are not named."""

    student: str
    id: str = ""
    name: str = ""
    section: str = ""
    group: str = ""
    extra_days: dict[str, float] = field(default_factory=dict)

    def extension(self, assignment: str) -> float:
        """How many days later than everybody this student may hand in."""
        return self.extra_days.get(assignment, self.extra_days.get("", 0.0))


def read(room: Classroom) -> dict[str, Listed]:
    """The class list by student, empty where there is none; a `ClassroomError` names the line and what is wrong."""
    path = room.folder / FILE
    if not path.exists():
        return {}
    found: dict[str, Listed] = {}
    try:
        rows = csv.DictReader(path.read_text(encoding="utf-8-sig").splitlines())
        columns = [(column or "").strip() for column in rows.fieldnames or []]
        unknown = [column for column in columns if column not in COLUMNS and not EXTRA.fullmatch(column)]
        if "student" not in columns or unknown:
            right = f"{', '.join(COLUMNS)}, extra_days, extra_days_a1"
            raise ValueError(f"the columns are {', '.join(columns)}; use {right}")
        for row in rows:
            listed = _listed({(key or "").strip(): (value or "").strip() for key, value in row.items() if key})
            if listed.student in found:
                raise ValueError(f"line {rows.line_num}: {listed.student} stands there twice")
            found[listed.student] = listed
    except (ValueError, csv.Error) as problem:  # of which UnicodeDecodeError and ClassroomError are two
        raise ClassroomError(f"{path} cannot be read: {problem}") from problem
    return found


def _listed(row: dict[str, str]) -> Listed:
    extra = {}
    for column, value in row.items():
        if (match := EXTRA.fullmatch(column)) and value:
            extra[match[1] or ""] = float(value)
            if not 0 <= extra[match[1] or ""] < 1000:
                raise ValueError(f"{row['student']}: {column} is {value}; it is a number of days")
    return Listed(checked_name(row["student"]), *(row.get(column, "") for column in COLUMNS[1:]), extra)


def everybody(room: Classroom, assignment: str) -> dict[str, Listed]:
    """The class list, and after it those who handed in and do not stand on it."""
    listed = read(room)
    return listed | {student: Listed(student) for student in room.students(assignment) if student not in listed}
