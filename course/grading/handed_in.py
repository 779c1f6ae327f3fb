"""The files of one hand-in: a folder, a notebook, a zip file, or several parts of these, read with
care.

Whoever hands in decides what lies there: links, pipes, damaged or endless archives, odd names, many
or large files. What is left out comes back with a reason for the student.
"""

import hashlib
import io
import json
import os
import re
import stat
import unicodedata
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from course.grading import course, roster

MOST_FILES_BYTES = 32 * 2**20
MOST_FILES = 20
MOST_NAME = 100
DEEPEST = 100  # folders in folders
MOST_NOTEBOOK_BYTES = 5 * 2**20  # of its cells; pictures and outputs beside them do no harm
MOST_CELLS = 500
OF_SEVERAL = (  # as an unpacked download does, or one that was not unpacked
    "it holds the hand-ins of several students: move these, unpacked, to where it lies, and collect"
    " again"
)
NEITHER_LINK_NOR_PIPE = sum(
    getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK")
)  # Windows has no such flags
# What systems and Python leave in a folder; compiled modules are no work of the student's, whose
# bytes may count.
NOT_HANDED_IN = re.compile(
    r"(?i)(^|/)(\.[^./]|(__MACOSX|__pycache__)(/|$)|(Thumbs\.db|desktop\.ini)$)|\.pyc$"
)
UNREADABLE = (  # lies in the folder of a submission of which nothing could be read, and says why
    ".unreadable"
)
# In a text: its bytes, or a file. Whoever hands in decides how long it is, so each part of it must
# be looked through once: `finditer` goes on behind what it found, were it but the beginning.
PICTURE = re.compile(r"data:image/|<img\b")
LINKED_PICTURE = re.compile(r"!\[[^\]]*(\][(\[])?")


class IntakeError(ValueError):
    """A submission, or a part of it, that cannot be read. The message is meant for the student."""


@dataclass(frozen=True)
class Part:
    """One file of a hand-in; `read` returns at most so many bytes or raises `IntakeError`."""

    name: PurePosixPath
    read: Callable[[int], bytes]

    @property
    def is_notebook(self) -> bool:
        """Whether it is named like one."""
        return self.name.suffix.lower() == ".ipynb"


JOINERS = "\u061c\u200c\u200d\u200e\u200f"  # and marks of direction


def shown(text: str, most: int = 80) -> str:
    """What a student wrote, in a form that does no harm on a terminal."""
    text = text[:most]
    # Spaces, and what names in Persian or Hebrew are written with.
    harmless = (c.isprintable() or unicodedata.category(c) == "Zs" or c in JOINERS for c in text)
    return text if all(harmless) else ascii(text)


def files_of(paths: list[Path], assignment: str) -> tuple[dict[str, bytes], list[str]]:
    """The files of one hand-in, with its notebook under the assignment's name, and what was left
    out of it.
    """
    try:
        named = [
            Part(PurePosixPath(roster.own_name(path)), partial(read_regular, path))
            for path in paths
        ]
        parts = list(parts_of_folder(paths[0])) if paths[0].is_dir() else named
        zips = [part for part in parts if part.name.suffix.lower() == ".zip"]
        if len(zips) != 1 or any(part.is_notebook for part in parts):
            files, problems = _choose(parts, assignment)
            told = "was not unpacked, because the notebook lies beside it"
            return files, problems + [f"{shown(part.name.name)} {told}" for part in zips]
        with zipfile.ZipFile(io.BytesIO(zips[0].read(MOST_FILES_BYTES))) as archive:
            return _choose(
                [*_parts_of_zip(archive), *(part for part in parts if part is not zips[0])],
                assignment,
            )
    except IntakeError as problem:
        return {}, [str(problem)]
    except Exception as problem:  # a damaged zip file fails in many ways; all of them mean the same
        words = f"{type(problem).__name__}: {problem}"[:200]
        return {}, [
            f"the zip file is damaged and cannot be unpacked ({words}): make it anew and hand it in"
            " again"
        ]


def parts_of_folder(folder: Path) -> Iterator[Part]:
    """Every file in a folder and below; nothing is read yet."""
    for path in files_below(folder):
        # A disk may hold a name that is no UTF-8, which nothing else could be written with.
        name = os.fsencode(path.relative_to(folder)).decode(errors="replace")
        yield Part(PurePosixPath(name), partial(read_regular, path))


def files_below(folder: Path) -> Iterator[Path]:
    """Every file in a folder and below."""
    for place, _, names in os.walk(folder):
        if len(Path(place).relative_to(folder).parts) > DEEPEST:
            raise ValueError(f"its folders lie more than {DEEPEST} deep")
        yield from (Path(place, name) for name in names)


def _parts_of_zip(archive: zipfile.ZipFile) -> Iterator[Part]:
    for info in (info for info in archive.infolist() if not info.is_dir()):
        yield Part(
            PurePosixPath(info.filename.replace("\\", "/")), partial(_unpacked, archive, info)
        )


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo, left: int) -> bytes:
    """Part of an archive; the size that it states may be a lie, so no more than `left` bytes are
    ever unpacked.
    """
    try:
        with archive.open(info) as file:
            data = b"" if info.file_size > left else file.read(left + 1)
    except Exception as problem:  # damaged, encrypted, packed in an unknown way
        remedy = "make the zip file anew, without a password, and hand it in again"
        raise IntakeError(
            f"{shown(info.filename)} cannot be unpacked ({problem}): {remedy}"
        ) from None
    if max(len(data), info.file_size) > left:
        raise IntakeError(f"{shown(info.filename)} is too large when unpacked")
    return data


def _notebook_of(parts: list[Part], assignment: str) -> Part:
    """The one notebook that is graded."""
    if any("_assignsubmission_" in folder for part in parts for folder in part.name.parts[:-1]):
        raise IntakeError(OF_SEVERAL)
    notebooks = [part for part in parts if part.is_notebook]
    named = [
        p
        for p in notebooks
        if re.fullmatch(rf"(copy of )?{assignment}(\W|_|\d|copy)*", p.name.stem.lower())
    ]
    if not notebooks:
        raise IntakeError(f"there is no notebook in it: {assignment}.ipynb is missing")
    if len(notebooks) > 1 and len(named) != 1:
        if all(roster.CANVAS.fullmatch(part.name.name) for part in notebooks):
            raise IntakeError(OF_SEVERAL)
        names = ", ".join(shown(str(part.name)) for part in (named or notebooks)[:4])
        raise IntakeError(f"it holds several notebooks ({names}): hand in only the one that counts")
    return (named or notebooks)[0]


def _choose(parts: list[Part], assignment: str) -> tuple[dict[str, bytes], list[str]]:
    """Read the notebook and its files, until the allowed number or size is used up."""
    parts = sorted(
        (p for p in parts if not NOT_HANDED_IN.search(str(p.name))), key=lambda p: str(p.name)
    )
    notebook = _notebook_of(parts, assignment)
    files, problems, left = {}, [], MOST_FILES_BYTES
    home = notebook.name.parent
    # Where two files have one name, the one beside the notebook is meant.
    others = sorted(
        (p for p in parts if p is not notebook), key=lambda p: not p.name.is_relative_to(home)
    )
    for part in [notebook, *others]:
        below = part.name.is_relative_to(home)
        name = str(part.name.relative_to(home)) if below else part.name.name
        if part is notebook:
            name = f"{assignment}.ipynb"
        if len(files) == MOST_FILES or len(problems) > MOST_FILES:
            rest = f"{shown(str(part.name))} and others were left out"
            remedy = "hand in again with only what the assignment asks for"
            problems.append(
                f"it holds {len(parts):,} files, more than {MOST_FILES}: {rest}; {remedy}"
            )
            break
        try:
            if (
                name in ("", ".")
                or _is_taken(PurePosixPath(name), files)
                or ".." in PurePosixPath(name).parts
                or PurePosixPath(name).is_absolute()
                or len(name.encode("utf-8", "surrogateescape")) > MOST_NAME
            ):
                problem = "is not a usable file name, is too long, or occurs twice: rename it"
                raise IntakeError(f"{shown(str(part.name))} {problem}")
            files[name] = part.read(left)
            left -= len(files[name])
        except IntakeError as problem:
            problems.append(str(problem))
    text = files.get(f"{assignment}.ipynb")
    if text is None:
        return files, problems
    # Such as a1_v2.ipynb beside a1.ipynb, which does not %run it.
    for other in [part for part in parts if part.is_notebook][:MOST_FILES]:
        if other is not notebook and other.name.name.encode("utf-8", "replace") not in text:
            own = shown(notebook.name.name)
            words = f"{own} is graded, and {shown(other.name.name)} is not"
            problems.append(f"{words}: if that one is meant, hand in again without {own}")
    return files, problems


def _is_taken(name: PurePosixPath, files: dict[str, bytes]) -> bool:
    """Whether a file of this name is there, or a folder, or a file where a folder has to be."""
    others = [PurePosixPath(other) for other in files]
    return any(other in (name, *name.parents) or name in other.parents for other in others)


def cells_of(data: bytes) -> list[dict]:
    """The cells of a notebook, each with a text as source, the name in its mark, and whether it
    holds pictures.
    """
    if not data.strip():
        raise IntakeError("the notebook is empty: hand it in again")
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        raise IntakeError(
            "the notebook is not valid JSON: save it in JupyterLab and hand it in again"
        ) from None
    if (
        not isinstance(tree, dict)
        or tree.get("nbformat") != 4
        or not isinstance(tree.get("cells"), list)
    ):
        raise IntakeError(
            "the file is not a notebook of format 4: save it in JupyterLab and hand it in again"
        )
    if len(tree["cells"]) > MOST_CELLS:
        raise IntakeError(
            f"the notebook has more than {MOST_CELLS} cells: delete some and hand it in again"
        )
    cells = [cell for cell in map(_plain_cell, tree["cells"]) if cell]
    if (size := sum(len(cell["source"].encode()) for cell in cells)) > MOST_NOTEBOOK_BYTES:
        raise IntakeError(
            f"its cells hold {size:,} bytes of text; {MOST_NOTEBOOK_BYTES:,} are allowed: shorten"
            " them"
        )
    return cells


def require_answers(cells: list[dict], assignment: str) -> None:
    """Raise an error for another assignment's notebook; one without any marks may hold answers.

    Two assignments may have a mark in common, so it is another one's if that one has more of them.
    """
    marks = {cell["id"] for cell in cells} - {None}
    own = marks & course.answer_cells(assignment)
    theirs = [name for name in course.names() if own < marks & _answer_cells_of_another(name)]
    if theirs or (marks and not own):
        found = f"it is the notebook of {theirs[0]}" if theirs else "it is another notebook"
        raise IntakeError(f"{found}: hand in that of {assignment}")


def _answer_cells_of_another(name: str) -> set[str]:
    """The marks of its answers; none of one that is not finished, which stops no other."""
    try:
        return course.answer_cells(name)
    except (OSError, ValueError, LookupError):
        return set()


def _plain_cell(cell: Any) -> dict | None:
    if not isinstance(cell, dict) or cell.get("cell_type") not in ("code", "markdown", "raw"):
        return None
    source = cell.get("source", "")
    if isinstance(source, list):
        source = "".join(part for part in source if isinstance(part, str))
    if not isinstance(source, str):
        return None
    metadata = cell.get("metadata") if isinstance(cell.get("metadata"), dict) else {}
    marks = metadata.get("nbgrader") if isinstance(metadata.get("nbgrader"), dict) else {}
    grade_id = marks.get("grade_id") if isinstance(marks.get("grade_id"), str) else None
    # JSON may hold half characters that no file can store.
    text = source.encode("utf-8", "replace").decode()
    kind = cell["cell_type"].replace("raw", "markdown")
    named = PICTURE.search(text) or any(found[1] for found in LINKED_PICTURE.finditer(text))
    pictures = kind == "markdown" and bool(cell.get("attachments") or named)
    return {"type": kind, "id": grade_id, "source": text, "pictures": pictures}


def read_regular(path: Path, most: int) -> bytes:
    """Read a regular file of limited size, without following a link or waiting on a pipe."""
    try:
        with open(
            path, "rb", opener=lambda name, flags: os.open(name, flags | NEITHER_LINK_NOR_PIPE)
        ) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise IntakeError(f"{shown(path.name)} is not an ordinary file")
            if status.st_size > most:
                raise IntakeError(
                    f"{shown(path.name)} has {status.st_size:,} bytes; {most:,} are allowed:"
                    " shrink it, or clear the outputs of a notebook"
                )
            return file.read(most)
    except OSError as problem:
        raise IntakeError(
            f"{shown(path.name)} cannot be read ({problem.strerror}); links are not followed"
        ) from None


def fingerprint(folder: Path, files: str = "*") -> str:
    """A digest of everything that was handed in, or of some files, cheap for those that are too
    large to be read. What whoever looked into the folder left there does not count.
    """
    digest = hashlib.sha256()
    for path in sorted(folder.rglob(files)) if not folder.is_symlink() else []:
        name = path.relative_to(folder).as_posix()
        if path.is_dir() or (NOT_HANDED_IN.search(name) and name != UNREADABLE):
            continue
        try:
            data = read_regular(path, MOST_FILES_BYTES)
        except IntakeError as problem:
            data = str(problem).encode()
        digest.update(f"{name} {len(data)} ".encode() + data)
    return digest.hexdigest()
