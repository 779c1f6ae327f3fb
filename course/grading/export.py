"""Marks as tables: one row per student for a learning-management system, one row per item for pandas."""

from __future__ import annotations

import csv
import hashlib
import hmac
import io
from pathlib import Path

import pandas as pd

from course.grading import record
from course.grading.classroom import Classroom, write


def pseudonym(room: Classroom, student: str) -> str:
    """A name that stays the same in one class and that nobody without its secret can trace back."""
    return "p" + hmac.new(room.secret.encode(), student.encode(), hashlib.sha256).hexdigest()[:10]


def table(room: Classroom, assignments: list[str], pseudonyms: bool = False) -> pd.DataFrame:
    """All marks, a row per item; the late penalty is an item of its own."""
    rows = []
    for assignment in assignments:
        for student in room.students(assignment):
            result = room.result(assignment, student)
            if result is None:
                continue
            shown = pseudonym(room, student) if pseudonyms else student
            for item, row in record.scores(room, assignment, student).items():
                rows.append([shown, assignment, item, row["points"], row["of"], row["waiting"], result["boxed"]])
    return pd.DataFrame(rows, columns=["student", "assignment", "item", "points", "of", "waiting", "boxed"])


def export(room: Classroom, assignments: list[str], pseudonyms: bool = False) -> list[Path]:
    """Write items.csv (long), and per assignment a table with all items and the total in columns. Returns the files."""
    marks = table(room, assignments, pseudonyms)
    folder = room.folder / "export"
    files = [folder / "items.csv"]
    _write_csv(files[0], marks)
    for assignment, part in marks.groupby("assignment"):
        items = list(dict.fromkeys(part["item"]))
        wide = part.pivot_table(index="student", columns="item", values="points", sort=False)[items]
        wide["total"] = wide.sum(axis=1).clip(lower=0)
        wide["waiting for hand grading"] = part.groupby("student")["waiting"].any()
        wide["boxed"] = part.groupby("student")["boxed"].all()
        files.append(folder / f"{assignment}.csv")
        _write_csv(files[-1], wide.reset_index())
    room.log("export", assignments=assignments, pseudonyms=pseudonyms)
    return files


def _write_csv(path: Path, frame: pd.DataFrame) -> None:
    text = io.StringIO()
    frame.to_csv(text, index=False, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\r\n")
    write(path, text.getvalue())
