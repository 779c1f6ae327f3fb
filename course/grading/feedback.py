"""One self-contained page per student: the points, what was lost and why, and the student's own answers."""

from __future__ import annotations

import html
from datetime import datetime
from pathlib import Path

import nbformat

from course.grading import page, record
from course.grading.classroom import Classroom, write
from course.grading.course import Exercise

STAMP = "Graded without the box (--unsafe): these marks are not protected against cheating code."


def write_all(room: Classroom, exercise: Exercise) -> list[Path]:
    """Write the feedback page of everybody whose submission was graded.

    Returns:
        The pages, in order of the students' names.
    """
    name, pages = exercise.assignment.name, []
    for student in room.students(name):
        if result := room.result(name, student):
            path = room.folder / "feedback" / name / f"{student}.html"
            write(path, render(room, exercise, student, result))
            pages.append(path)
    room.log("feedback", assignment=name, students=len(pages))
    return pages


def render(room: Classroom, exercise: Exercise, student: str, result: dict) -> str:
    """The page of one student, as text."""
    scores = record.scores(room, exercise.assignment.name, student)
    title = f"{exercise.assignment.name}: {exercise.assignment.title}"
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p>{html.escape(student)}, handed in {datetime.fromisoformat(result['arrived']):%Y-%m-%d %H:%M} UTC</p>",
    ]
    if not result["boxed"]:
        parts.append(f'<p class="stamp">{STAMP}</p>')
    parts += [_summary(scores, exercise), _table(scores, result)]
    if result["notes"]:
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in result["notes"])
        parts.append(f"<h2>What was noticed</h2><ul>{notes}</ul>")
    if result["printed"]:
        parts.append(f"<h2>What your code printed</h2><pre>{html.escape(result['printed'])}</pre>")
    notebook = room.folder / "checked" / student / exercise.assignment.name / exercise.notebook.name
    parts += ["<h2>What you handed in</h2>", *_cells(nbformat.read(notebook, as_version=4), scores)]
    return page.document(f"{title}, {student}", "\n".join(parts))


def _summary(scores: dict, exercise: Exercise) -> str:
    total = sum(row["points"] for row in scores.values())
    words = f"<p><strong>{total:g} of {exercise.assignment.points:g} points.</strong>"
    if any(row["waiting"] for row in scores.values()):
        words += " Written answers are still waiting to be read."
    if late := scores["late penalty"]["points"]:
        words += f" {-late:g} points were taken off because the submission was late."
    return words + "</p>"


def _table(scores: dict, result: dict) -> str:
    rows = []
    for name, row in scores.items():
        if name == "late penalty":
            continue
        message = result["items"].get(name, {}).get("message", "") or row["comment"]
        points = f"waiting, {row['of']:g} at most" if row["waiting"] else f"{row['points']:g} of {row['of']:g}"
        lost = f'<div class="lost">{html.escape(message)}</div>' if message else ""
        rows.append(f'<tr><td>{html.escape(name)}</td><td class="number">{points}</td><td>{lost}</td></tr>')
    return f"<table><tr><th>Exercise</th><th>Points</th><th>What was lost and why</th></tr>{''.join(rows)}</table>"


def _cells(notebook, scores: dict) -> list[str]:
    parts = []
    for cell in notebook.cells:
        name = cell.metadata.get("nbgrader", {}).get("grade_id", "")
        if cell.cell_type == "markdown":
            parts.append(page.markdown(cell.source))
        else:
            parts.append(f"<pre>{html.escape(cell.source)}</pre>")
        if name in scores and cell.cell_type == "markdown" and scores[name]["comment"]:
            parts.append(f'<p class="lost">{html.escape(scores[name]["comment"])}</p>')
    return parts
