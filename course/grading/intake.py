"""Read a submission that may be broken or hostile, and rebuild it on the released notebook.

Only two things are taken from the student: the sources of the cells meant for answers, and cells of
the student's own. Everything else, locked cells, ids, points and metadata, comes from the release.
So a deleted, edited, duplicated or re-pointed cell changes nothing, and nbgrader only ever sees a
well-formed notebook.
"""

import copy
import re
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nbformat.v4 import new_code_cell, new_markdown_cell

from course.grading.handed_in import UNREADABLE, IntakeError, cells_of, files_of, require_answers

AGAIN = "is defined again"
OWN = "a cell of your own"
DEFINED = re.compile(r"^(?:def|class) (\w+)", re.MULTILINE)
ASSIGNED = re.compile(r"^([a-zA-Z]\w*) *=(?!=)", re.MULTILINE)
IMPORTED = re.compile(r"^(?:from [\w.]+ )?import (.+)", re.MULTILINE)
PICTURES = "Your words hold pictures. No page shows them; your teacher finds them in your file."


@dataclass
class Submission:
    """What was taken from a submission folder."""

    notebook: Any  # the rebuilt notebook, an nbformat node
    notes: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    readable: bool = True  # False where nothing of the student's could be taken; a note says why

    @property
    def code(self) -> list[dict[str, str]]:
        """The cells to execute, in order: everything but the graded checks."""
        return [
            {
                "name": cell.metadata.get("nbgrader", {}).get("grade_id") or _own(cell.source),
                "source": cell.source,
            }
            for cell in self.notebook.cells
            if cell.cell_type == "code" and not cell.metadata.get("nbgrader", {}).get("grade")
        ]

    @property
    def own_code(self) -> list[str]:
        """What the student wrote: answer cells, own cells and Python files."""
        cells = (cell for cell in self.notebook.cells if cell.cell_type == "code")
        texts = [
            cell.source for cell in cells if not cell.metadata.get("nbgrader", {}).get("locked")
        ]
        return texts + [
            data.decode("latin-1") for name, data in self.files.items() if name.endswith(".py")
        ]

    @property
    def all_code(self) -> list[str]:
        """What the student wrote, also in notebooks that `%run` executes."""
        return self.own_code + [*self.code_of_notebooks.values()]

    @property
    def code_of_notebooks(self) -> dict[str, str]:
        """By name, the code of the notebooks that were handed in with this one."""
        found = {}
        for name, data in self.files.items():
            with suppress(IntakeError):
                cells = cells_of(data) if name.endswith(".ipynb") else []
                found[name] = "\n".join(c["source"] for c in cells if c["type"] == "code")
        return {name: code for name, code in found.items() if code}

    @property
    def submitted_bytes(self) -> int:
        """What enters the box of the student: files, answer cells and own cells.

        The rest is of no use there.
        """
        others = sum(len(data) for name, data in self.files.items() if not name.endswith(".py"))
        return packed_bytes(self.own_code) + others + sum(len(name.encode()) for name in self.files)


def packed_bytes(texts: Iterable[str]) -> int:
    """What code weighs: its bytes when packed, so that words cost little, and weights as much as in
    a file.
    """
    return len(zlib.compress("\n".join(texts).encode(), 9))


def empty(skeleton: Any, note: str) -> Submission:
    """A submission of which nothing could be used: the untouched release, with the reason."""
    return Submission(copy.deepcopy(skeleton), [note], readable=False)


def read(
    folder: Path, notebook_name: str, skeleton: Any, released: Path | None = None
) -> Submission:
    """Read a submission; what cannot be read becomes a note, and files named as in the zip file
    beside the folder `released` stay out.
    """
    if folder.is_symlink() or folder.parent.is_symlink() or not folder.is_dir():
        return empty(skeleton, "The submission is not an ordinary folder.")
    files, problems = files_of([folder], Path(notebook_name).stem)
    try:
        if notebook_name not in files:
            why = folder / UNREADABLE
            raise IntakeError(why.read_text(encoding="utf-8") if why.exists() else problems[0])
        data = files.pop(notebook_name)
        cells, marks = cells_of(data), [cell.metadata.nbgrader for cell in skeleton.cells]
        answers = {mark.grade_id for mark in marks if not mark.locked}
        require_answers(cells, Path(notebook_name).stem)
        submission = rebuild(cells, skeleton)
    except IntakeError as problem:
        return empty(skeleton, f"Nothing could be graded: {problem}.")
    given = _given_out(released) if released else set()  # of another release or line ends, too
    known = {mark.grade_id for mark in marks}
    submission.notes += newer_python(data) + defined_again(submission.code, answers, known)
    code = "\n".join(cell["source"] for cell in submission.code)
    submission.files = {
        name: data
        for name, data in files.items()
        if name not in given and (not name.endswith(".ipynb") or Path(name).name in code)  # %run
    }
    submission.notes += [f"About the files: {problem}." for problem in problems]
    return submission


def _given_out(released: Path) -> set[str]:
    """The names of the files that students were given; others may lie in the folder."""
    try:
        with zipfile.ZipFile(released.with_suffix(".zip")) as archive:
            return {Path(name).name for name in archive.namelist()}
    except (OSError, zipfile.BadZipFile) as problem:
        raise ValueError(
            f"{released}.zip cannot be read ({problem}): `grade release {released.name}` again"
        ) from None


def newer_python(notebook: bytes) -> list[str]:
    """A note where a notebook was saved by a newer Python than this one, or none."""
    saved = re.search(rb'"version": *"3\.(\d{1,3})\.', notebook)
    if not saved or int(saved[1]) <= sys.version_info.minor:
        return []
    words = f"Your notebook was saved by Python 3.{int(saved[1])} and is graded by Python"
    return [f"{words} 3.{sys.version_info.minor}: what is newer than that fails."]


def defined_again(code: list[dict[str, str]], answers: set[str], known: set[str]) -> list[str]:
    """A note for each import of the release, and each function of an answer or what it may read,
    that a later cell replaces; and for an answer above its given cell.
    """
    notes, needed, above = [], set(), {}
    for cell in code:
        defined = {*DEFINED.findall(cell["source"])}
        assigned = {*ASSIGNED.findall(cell["source"])}
        notes += [
            f"{name} {AGAIN} in {cell['name']}, and that one counts."
            for name in sorted((defined | assigned) & needed)
        ]
        if cell["name"] not in known:
            above |= dict.fromkeys(defined, cell["name"])
        elif "NotImplementedError" in cell["source"]:
            notes += [
                f"{name} is defined in {above[name]}, but the cell meant for it stands below, is"
                " not done, and counts: move your answer there."
                for name in sorted(defined & above.keys())
            ]
        if cell["name"] in known:
            lines = ",".join(IMPORTED.findall(cell["source"])).split(",")
            needed |= {line.split(" as ")[-1].strip() for line in lines}
        if cell["name"] in answers:
            inner = "\n".join(re.findall(r"^[ \t].*", cell["source"], re.MULTILINE))
            needed |= defined | (assigned & {*re.findall(r"\w+", inner)})
    return notes


def rebuild(cells: list[dict], skeleton: Any) -> Submission:
    """Put the student's answers and own cells into a copy of the released notebook."""
    known = {cell.metadata.nbgrader.grade_id: cell for cell in skeleton.cells}
    answers: dict[str, dict] = {}
    own_after: dict[str | None, list[dict]] = {}
    notes, last = [PICTURES] if any(cell["pictures"] for cell in cells) else [], None
    for cell in cells:
        name = cell["id"]
        if name in known and name not in answers and _fits(cell, known[name]):
            answers[name] = cell
            last = name
        else:  # a cell that was split or copied keeps its mark, and both parts are executed
            own_after.setdefault(last, []).append(cell)
            notes += (
                [f"A second cell marked {name} was taken for one of your own."]
                if name in answers
                else []
            )
    notebook = copy.deepcopy(skeleton)
    is_unanswered = _texts_of_open_answers(skeleton, answers)
    made, own = [], own_after.get(None, [])
    for cell in notebook.cells:
        marks = cell.metadata.nbgrader
        if marks.grade_id not in answers:
            if marks.locked:
                notes.append(f"The course's cell {marks.grade_id} was missing, and was put back.")
            else:
                words = ""
                if cell.cell_type == "code":  # what was released would undo an answer elsewhere
                    cell.source = ""
                else:
                    words = " Your teacher sees what you wrote in cells of your own."
                notes.append(f"The cell {marks.grade_id} was missing.{words}")
            made.append(cell)
            continue
        answer = answers[marks.grade_id]
        before, own = own, own_after.get(marks.grade_id, [])
        if not marks.locked:
            cell.source = answer["source"]
        elif (given := cell.source.split()) != (found := answer["source"].split()):
            rest = iter(
                found
            )  # a text of another release has no words just between those of this one
            is_open = marks.grade_id in is_unanswered and _holds_own_words(found, given)
            if cell.cell_type == "code" or is_open or all(word in rest for word in given):
                own = [
                    answer,
                    *own,
                ]  # many write imports, or an answer, into a cell that they were given
            else:
                told = "differed in your file, and is shown as it is now"
                notes.append(f"The course's text {marks.grade_id} {told}.")
        made += [*map(_own_cell, before), cell]
    made += map(_own_cell, own)
    for index, cell in enumerate(made):
        cell.id = f"cell-{index}"
    notebook.cells = made
    return Submission(notebook, notes)


def _texts_of_open_answers(skeleton: Any, answers: dict[str, dict]) -> set[str]:
    """The cells above each written answer that is not given in its place: its words may stand
    there, whatever is left of the question.
    """
    found, is_open = set(), False
    for cell in reversed(skeleton.cells):
        marks = cell.metadata.nbgrader
        if cell.cell_type == "markdown" and not marks.locked:
            words = answers.get(marks.grade_id, {"source": ""})["source"].split()
            is_open = words in ([], cell.source.split())
        elif is_open:
            found.add(marks.grade_id)
    return found


def _holds_own_words(found: list[str], given: list[str]) -> bool:
    """Whether somebody wrote there: a text of another release differs in a few words only."""
    own = (Counter(found) - Counter(given)).total()
    return own > min(len(found) // 2, 7)


def _fits(cell: dict, released: Any) -> bool:
    """Whether a cell is of the released one's type; words are words in a cell of code, too."""
    is_written = released.cell_type == "markdown" and not released.metadata.nbgrader.locked
    return is_written or cell["type"] == released.cell_type


def _own(source: str) -> str:
    """What an error calls a cell of the student's own: by its first line."""
    first = next(iter(source.strip().splitlines()), "")
    return f"{OWN} (`{first if len(first) <= 40 else f'{first[:36]} ...'}`)"


def _own_cell(cell: dict) -> Any:
    return (
        new_code_cell(cell["source"])
        if cell["type"] == "code"
        else new_markdown_cell(cell["source"])
    )
