"""Which hand-ins resemble each other more than the task explains. Everything stays on this machine.

The code of a hand-in becomes a row of tokens in which every name that the student chose is the same
word; comments, spaces and the released text are gone. Runs of tokens that many students share say
little, so each run counts by how few hand-ins have it (as in text search). A high number is a
reason to read two hand-ins side by side, and no proof.
"""

import html
import itertools
import math
from collections import Counter
from pathlib import Path

from course.grading import intake
from course.grading.classroom import Classroom, write
from course.grading.course import Exercise
from course.grading.feedback import document
from course.grading.runner import skeleton_of
from course.grading.tokens import runs_of

LEAST_WEIGHT = 5.0  # of a hand-in; less is too little text to compare


def similar(
    sources: dict[str, list[str]], released: list[str], threshold: float
) -> list[tuple[float, str, str]]:
    """Pairs of students whose code has more than a share (of the smaller one) in common, most alike
    first.
    """
    given = runs_of(released)
    runs = {student: runs_of(cells) - given for student, cells in sources.items()}
    owners = Counter(itertools.chain.from_iterable(runs.values()))
    weight = {
        run: math.log(len(runs) / count) if len(runs) > 2 else 1.0 for run, count in owners.items()
    }
    total = {student: sum(weight[run] for run in mine) for student, mine in runs.items()}
    pairs = []
    for one, other in itertools.combinations(sorted(runs), 2):
        smaller = min(total[one], total[other])
        if smaller >= LEAST_WEIGHT:
            common = sum(weight[run] for run in runs[one] & runs[other]) / smaller
            if common >= threshold:
                pairs.append((common, one, other))
    return sorted(pairs, key=lambda pair: (-pair[0], *pair[1:]))


def by_cell(submission: intake.Submission) -> dict[str, str]:
    """The code of a hand-in by the name of its cell or file; a student's own cells are one text."""
    found: dict[str, str] = {}
    for cell in submission.code:
        found[cell["name"]] = f"{found.get(cell['name'], '')}\n{cell['source']}".strip()
    files = {n: data.decode("latin-1") for n, data in submission.files.items() if n.endswith(".py")}
    return found | files | submission.code_of_notebooks


def write_report(room: Classroom, exercise: Exercise, threshold: float = 0.6) -> tuple[Path, int]:
    """One page with the pairs above the threshold side by side. Returns it, and their number."""
    name, skeleton = exercise.assignment.name, skeleton_of(room, exercise)
    bundle = room.folder / "released" / name
    read = {
        s: intake.read(room.submission(s, name), exercise.notebook.name, skeleton, bundle)
        for s in room.students(name)
    }
    code = {student: by_cell(one) for student, one in read.items()}
    released = by_cell(intake.Submission(skeleton))
    pairs = similar(
        {s: list(cells.values()) for s, cells in code.items()}, list(released.values()), threshold
    )
    parts = [
        f"<h1>{name}: hand-ins that resemble each other</h1><p>{len(code)} hand-ins, {len(pairs)} "
        f"pairs above {threshold:.0%}. The number is the share of the smaller hand-in that stands "
        "in the other one as well, names, comments, layout and the released text left out; what "
        "many share counts little. It is a reason to read both, and no proof of anything.</p>"
    ]
    for share, one, other in pairs:
        parts.append(f"<h2>{share:.0%}: {html.escape(one)} and {html.escape(other)}</h2>")
        cells = [
            cell
            for who in (one, other)
            for cell in code[who]
            if code[who][cell] != released.get(cell)
        ]
        for cell in sorted(
            dict.fromkeys(cells), key=lambda cell: not (cell in code[one] and cell in code[other])
        ):
            sides = "".join(
                f"<td><pre>{html.escape(code[who].get(cell, ''))}</pre></td>"
                for who in (one, other)
            )
            parts.append(f"<h3>{html.escape(cell)}</h3><table><tr>{sides}</tr></table>")
    path = room.folder / "similarity" / f"{name}.html"
    write(path, document(f"{name}: similarity", "\n".join(parts)))
    return path, len(pairs)
