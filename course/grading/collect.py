"""Bring in what the learning-management system delivered: one folder, notebook or zip file per student.

incoming/a1/<student>/a1.ipynb        incoming/a1/<student>.ipynb        incoming/a1/<student>.zip

Whatever lies there, the rest is still collected, and it can always be done again. collected/a1.csv says what became of
each hand-in: under which name its student is known, what was left out of it and what to do about that.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import shutil
import stat
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import Any

from course.grading import course, machine, roster
from course.grading.classroom import Classroom, NotReadyError, write, write_table

MOST_FILES_BYTES = 32 * 2**20
MOST_FILES = 20
MOST_NAME = 100
MOST_NOTEBOOK_BYTES = 5 * 2**20  # of its cells; pictures and outputs beside them do no harm
MOST_CELLS = 500
NEITHER_LINK_NOR_PIPE = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK"))  # Windows has no such flags
UNREADABLE = ".unreadable"  # lies in the folder of a submission of which nothing could be read, and says why
# What systems and Python leave in a folder; compiled modules are no work of the student's, whose bytes may count.
NOT_HANDED_IN = re.compile(r"(?i)(^|/)(\.[^./]|(__MACOSX|__pycache__)(/|$)|(Thumbs\.db|desktop\.ini)$)|\.pyc$")


class IntakeError(ValueError):
    """A submission, or a part of it, that cannot be read. The message is meant for the student."""


@dataclass
class HandIn:
    """One entry of the incoming folder, or several that belong together, and what became of them."""

    paths: list[Path]
    entry: str
    student: str = ""
    arrived: datetime | None = None
    became: str = "left out"
    remark: str = ""
    damage: str = ""  # why nothing of its notebook can be graded


@dataclass(frozen=True)
class Part:
    """One file of a hand-in; `read` returns at most so many bytes or raises `IntakeError`."""

    name: PurePosixPath
    read: Callable[[int], bytes]

    @property
    def is_notebook(self) -> bool:
        """Whether it is named like one."""
        return self.name.suffix.lower() == ".ipynb"


def collect(room: Classroom, assignment: str, source: Path | None = None) -> list[HandIn]:
    """Copy submissions into the class, by its rule of resubmission. Returns every entry, with what became of it."""
    machine.require(boxed=False)
    source = source or room.folder / "incoming" / assignment
    if not source.is_dir():
        raise NotReadyError(f"{source} is not a folder; put one folder, notebook or zip file per student there")
    first = room.rules.resubmission == "first"
    entries = [path for path in source.iterdir() if not path.name.startswith((".", "__MACOSX"))]
    named, parts = roster.students(entries, roster.read(room)), {}
    age, lost = {path: path.lstat().st_mtime for path in entries}, {}
    for path in sorted(entries, key=lambda path: (age[path], path.name)):  # of two files of one name the newer counts
        group, name = parts.setdefault(named[path][0] if roster.is_part(path) else path, {}), roster.own_name(path)
        if name in group and age[path] - age[group[name]] < 60:  # of one download, so it is no second hand-in
            lost[named[path][0]] = f"{group[name].name} was left out for {path.name}: rename one, and collect again"
        group[name] = path
    hand_ins = sorted(sorted(group.values()) for group in parts.values())
    found = [_look_at(assignment, paths, *named[paths[0]]) for paths in hand_ins]
    for hand_in in (one for one in found if one.student in lost):
        hand_in.remark = "; ".join(filter(None, [hand_in.remark, lost[hand_in.student]]))
    for student in dict.fromkeys(hand_in.student for hand_in in found if hand_in.student):
        several = [hand_in for hand_in in found if hand_in.student == student]
        several.sort(key=lambda hand_in: hand_in.arrived, reverse=not first)
        several.sort(key=lambda hand_in: bool(hand_in.damage))  # such a one counts where there is no other
        for counts in several:
            _take(room, assignment, counts, first)
            if counts.became in ("collected", "unchanged"):
                break
        for other in several:
            if other is not counts and not other.remark:
                words = [other.damage, f"{counts.entry} is by the same student and counts"]
                other.remark = "; ".join(filter(None, words))
    dates = [f"{one.arrived:%Y-%m-%d %H:%M:%S}" if one.student else "" for one in found]
    rows = [[one.entry, one.student, date, one.became, one.remark] for one, date in zip(found, dates, strict=True)]
    header = ["entry", "student", "arrived (UTC)", "became", "remark"]
    write_table(room.folder / "collected" / f"{assignment}.csv", header, rows, "utf-8-sig")
    return found


def _look_at(assignment: str, paths: list[Path], student: str, remark: str) -> HandIn:
    """When a hand-in came, and whether it can be graded; without its student where it is none."""
    hand_in, path = HandIn(paths, ", ".join(shown(path.name) for path in paths), remark=remark), paths[0]
    try:
        is_folder = stat.S_ISDIR(path.lstat().st_mode)
        usable = is_folder or roster.is_part(path) or path.suffix.lower() in (".ipynb", ".zip")
        if path.is_symlink() or not usable:
            hand_in.remark = "only folders, notebooks and zip files named like a student are collected, no links"
            return hand_in
        # Whoever looks into a folder changes its own date, and may leave a checkpoint there.
        inside = [path / part.name for part in _parts_of_folder(path) if not NOT_HANDED_IN.search(str(part.name))]
        times = [part.lstat().st_mtime for part in inside or paths]
        hand_in.arrived, hand_in.student = datetime.fromtimestamp(max(times), UTC), student
        hand_in.damage = _damage(paths, assignment)
    except (OSError, ValueError, OverflowError, RecursionError) as problem:
        hand_in.remark = f"it cannot be read ({problem}); correct its permissions or its date"
    return hand_in


def _take(room: Classroom, assignment: str, hand_in: HandIn, first: bool) -> None:
    """Copy a hand-in, unless what is there already counts."""
    target, match = room.submission(hand_in.student, assignment), roster.CANVAS.fullmatch(hand_in.paths[0].name)
    if match:
        write(target.parent / f"{roster.NUMBER}{match['number']}", "")  # by which the class list finds the student
    usable, in_time = any(target.glob("*.ipynb")), bool(match and not match["late"])
    files, problems = files_of(hand_in.paths, assignment)
    readable, sound_before = f"{assignment}.ipynb" in files, usable and not _damage([target], assignment)
    if usable:
        hand_in.became, (before, was_in_time) = "unchanged", _noted(target)
        if _holds(target, files):  # the first of its dates counts
            _note(target, min(before, hand_in.arrived), in_time or was_in_time)
            return
        if (first or hand_in.arrived <= before) and (sound_before or hand_in.damage):
            return
        hand_in.became = "left out"
    hand_in.remark = "; ".join(filter(None, [*problems, hand_in.damage * readable, hand_in.remark]))
    if usable and (not readable or (hand_in.damage and sound_before)):
        hand_in.remark += "; the hand-in before it still counts"
        return
    hand_in.became = "collected" if readable else "unreadable"
    files |= {} if readable else {UNREADABLE: "; ".join(problems).encode("utf-8", "replace")}  # for the student's page
    _replace(target, files, hand_in.arrived)
    _note(target, hand_in.arrived, in_time)
    room.log("collected", assignment=assignment, student=hand_in.student, arrived=hand_in.arrived.isoformat(),
             files=sorted(files))  # fmt: skip


def _holds(target: Path, files: dict[str, bytes]) -> bool:
    """Whether just these files lie there; what whoever looked into it left does not count."""
    there = {path.name: path for path in target.iterdir() if not NOT_HANDED_IN.search(path.name)}
    return there.keys() == files.keys() and all(p.is_file() and p.read_bytes() == files[n] for n, p in there.items())


def _replace(target: Path, files: dict[str, bytes], arrived: datetime) -> None:
    """Put a folder with these files, as old as the hand-in, in the place of the one that is there."""
    new = target.parent / f".{target.name}.new"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    for name, data in files.items():
        write(new / name, data)
    os.utime(new, (arrived.timestamp(), arrived.timestamp()))  # for `_noted`, should this be killed before it is noted
    (target.parent / f".{target.name}.arrived").unlink(missing_ok=True)  # it speaks of what goes now
    shutil.rmtree(target, ignore_errors=True)
    new.rename(target)


def _note(submission: Path, arrived: datetime, in_time: bool) -> None:
    """Note the date of a hand-in, and whether Canvas, whose files have the date of the download, calls it in time."""
    write(submission.parent / f".{submission.name}.arrived", f"{arrived.isoformat()}{' in-time' * in_time}")


def _noted(submission: Path) -> tuple[datetime, bool]:
    """What `_note` noted, else the time of the folder itself."""
    try:
        date, *rest = (submission.parent / f".{submission.name}.arrived").read_text(encoding="utf-8").split()
        return datetime.fromisoformat(date), bool(rest)
    except (OSError, ValueError):
        return datetime.fromtimestamp(submission.lstat().st_mtime, UTC), False


def arrival(room: Classroom, assignment: str, student: str) -> datetime:
    """When a submission came in, in UTC; what came in time is no later than the deadline, as it stands now."""
    arrived, in_time = _noted(room.submission(student, assignment))
    return (min(arrived, room.rules.due.get(assignment, arrived)) if in_time else arrived).astimezone(UTC)


def remarks(room: Classroom, assignment: str) -> list[str]:
    """What the last `collect` had to say about hand-ins that it could not take as they were."""
    path = room.folder / "collected" / f"{assignment}.csv"
    rows = csv.DictReader(path.read_text(encoding="utf-8-sig").splitlines()) if path.exists() else ()
    return [f"{row['entry']} was {row['became']}: {row['remark']}" for row in rows if row["remark"]]


def shown(text: str, most: int = 80) -> str:
    """What a student wrote, in a form that does no harm on a terminal."""
    return text[:most] if text.isprintable() else ascii(text[:most])


def files_of(paths: list[Path], assignment: str) -> tuple[dict[str, bytes], list[str]]:
    """The files of one hand-in, with its notebook under the assignment's name, and what was left out of it."""
    try:
        named = [Part(PurePosixPath(roster.own_name(path)), partial(read_regular, path)) for path in paths]
        parts = list(_parts_of_folder(paths[0])) if paths[0].is_dir() else named
        zips = [part for part in parts if part.name.suffix.lower() == ".zip"]
        if len(zips) != 1 or any(part.is_notebook for part in parts):
            return _choose(parts, assignment)
        with zipfile.ZipFile(io.BytesIO(zips[0].read(MOST_FILES_BYTES))) as archive:
            return _choose([*_parts_of_zip(archive), *(part for part in parts if part is not zips[0])], assignment)
    except IntakeError as problem:
        return {}, [str(problem)]
    except Exception as problem:  # a damaged zip file fails in many ways; all of them mean the same
        words = f"{type(problem).__name__}: {problem}"[:200]
        return {}, [f"the zip file is damaged and cannot be unpacked ({words}): make it anew and hand it in again"]


def _parts_of_folder(folder: Path) -> Iterator[Part]:
    for path in (Path(place, name) for place, _, names in os.walk(folder) for name in names):
        yield Part(PurePosixPath(path.relative_to(folder)), partial(read_regular, path))


def _parts_of_zip(archive: zipfile.ZipFile) -> Iterator[Part]:
    for info in (info for info in archive.infolist() if not info.is_dir()):
        yield Part(PurePosixPath(info.filename.replace("\\", "/")), partial(_unpacked, archive, info))


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo, left: int) -> bytes:
    """Part of an archive; the size that it states may be a lie, so no more than `left` bytes are ever unpacked."""
    try:
        with archive.open(info) as file:
            data = b"" if info.file_size > left else file.read(left + 1)
    except Exception as problem:  # damaged, encrypted, packed in an unknown way
        remedy = "make the zip file anew, without a password, and hand it in again"
        raise IntakeError(f"{shown(info.filename)} cannot be unpacked ({problem}): {remedy}") from None
    if max(len(data), info.file_size) > left:
        raise IntakeError(f"{shown(info.filename)} is too large when unpacked")
    return data


def _choose(parts: list[Part], assignment: str) -> tuple[dict[str, bytes], list[str]]:
    """Read the notebook and the files that go with it, until the allowed number or size is used up."""
    parts = sorted((p for p in parts if not NOT_HANDED_IN.search(str(p.name))), key=lambda p: str(p.name))
    notebooks = [part for part in parts if part.is_notebook]
    named = [p for p in notebooks if re.fullmatch(rf"(copy of )?{assignment}(\W|_|\d|copy)*", p.name.stem.lower())]
    if not notebooks:
        raise IntakeError(f"there is no notebook in it: {assignment}.ipynb is missing")
    if len(notebooks) > 1 and len(named) != 1:
        names = ", ".join(shown(str(part.name)) for part in (named or notebooks)[:4])
        raise IntakeError(f"which of its notebooks counts: {names}? Delete the others and collect again")
    notebook = (named or notebooks)[0]
    files, problems, left = {}, [], MOST_FILES_BYTES
    # Where two files have one name, the one beside the notebook is meant.
    others = sorted((p for p in parts if not p.is_notebook), key=lambda part: part.name.parent != notebook.name.parent)
    for part in [notebook, *others]:
        name = f"{assignment}.ipynb" if part is notebook else part.name.name
        if len(files) == MOST_FILES or len(problems) > MOST_FILES:
            rest = f"{shown(str(part.name))} and others were left out"
            remedy = "hand in again with only what the assignment asks for"
            problems.append(f"it holds {len(parts):,} files, more than {MOST_FILES}: {rest}; {remedy}")
            break
        try:
            if name in ("", "..", *files) or len(name.encode("utf-8", "surrogateescape")) > MOST_NAME:
                problem = "is not a usable file name, is too long, or occurs twice: rename it"
                raise IntakeError(f"{shown(str(part.name))} {problem}")
            files[name] = part.read(left)
            left -= len(files[name])
        except IntakeError as problem:
            problems.append(str(problem))
    return files, problems


def cells_of(data: bytes) -> list[dict]:
    """The cells of a notebook, each with a text as source, the name in its mark, and whether it holds pictures."""
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        raise IntakeError("the notebook is not valid JSON: save it in JupyterLab and hand it in again") from None
    if not isinstance(tree, dict) or tree.get("nbformat") != 4 or not isinstance(tree.get("cells"), list):
        raise IntakeError("the file is not a notebook of format 4: save it in JupyterLab and hand it in again")
    if len(tree["cells"]) > MOST_CELLS:
        raise IntakeError(f"the notebook has more than {MOST_CELLS} cells: delete some and hand it in again")
    cells = [cell for cell in map(_plain_cell, tree["cells"]) if cell]
    if (size := sum(len(cell["source"].encode()) for cell in cells)) > MOST_NOTEBOOK_BYTES:
        raise IntakeError(f"its cells hold {size:,} bytes of text; {MOST_NOTEBOOK_BYTES:,} are allowed: shorten them")
    return cells


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
    pictures = kind == "markdown" and (bool(cell.get("attachments")) or "data:image/" in text)
    return {"type": kind, "id": grade_id, "source": text, "pictures": pictures}


# The marks of the cells for answers, which no two assignments share.
_answers = cache(lambda assignment: {f"{item.name}_solution" for item in course.load(assignment).assignment.items})


def _damage(paths: list[Path], assignment: str) -> str:
    """Why nothing could be graded of a hand-in, or nothing. A notebook without any marks may hold the answers."""
    if (notebook := files_of(paths, assignment)[0].get(f"{assignment}.ipynb")) is None:
        return "no notebook in it can be read"
    try:
        marks = {cell["id"] for cell in cells_of(notebook)} - {None}
    except IntakeError as problem:
        return str(problem)
    foreign = marks and not marks & _answers(assignment)
    return f"its cells are none of {assignment}: hand in that notebook" if foreign else ""


def read_regular(path: Path, most: int) -> bytes:
    """Read a regular file of limited size, without following a link or waiting on a pipe."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | NEITHER_LINK_NOR_PIPE)) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise IntakeError(f"{shown(path.name)} is not an ordinary file")
            if status.st_size > most:
                raise IntakeError(f"{shown(path.name)} has {status.st_size:,} bytes; {most:,} are allowed: shrink it")
            return file.read(most)
    except OSError as problem:
        raise IntakeError(f"{shown(path.name)} cannot be read ({problem.strerror}); links are not followed") from None


def fingerprint(folder: Path, files: str = "*") -> str:
    """A digest of everything in a folder, or of some files, cheap for those that are too large to be read."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob(files)) if not folder.is_symlink() else []:
        status = path.lstat()
        digest.update(f"{path.relative_to(folder)!s} {status.st_mode} {status.st_size}".encode())
        try:
            digest.update(read_regular(path, MOST_FILES_BYTES))
        except IntakeError as problem:
            digest.update(str(problem).encode())
    return digest.hexdigest()
