"""Bring in what the learning-management system delivered: one folder, notebook or zip file per student.

incoming/<student>/a1.ipynb        incoming/<student>.ipynb        incoming/<student>.zip
"""

from __future__ import annotations

import os
import shutil
import zipfile
from datetime import UTC, datetime
from pathlib import Path

from course.grading.classroom import NAME, Classroom, write
from course.grading.files import MOST_FILES, MOST_FILES_BYTES, IntakeError, read_regular


def collect(room: Classroom, assignment: str, source: Path | None = None) -> list[str]:
    """Copy submissions into the class folder, by the resubmission rule of the class.

    Args:
        room: the class.
        assignment: its name.
        source: the folder to collect from; by default `incoming/<assignment>` of the class folder.

    Returns:
        One sentence for each thing that was left out.
    """
    source = source or room.folder / "incoming" / assignment
    if not source.is_dir():
        raise FileNotFoundError(f"{source} is not a folder; put one folder, notebook or zip file per student there")
    complaints, rule = [], room.rules.resubmission
    for entry in sorted(source.iterdir()):
        student = entry.name if entry.is_dir() else entry.stem
        if not NAME.fullmatch(student) or entry.is_symlink():
            complaints.append(f"{entry.name!r} was left out: its name is no student's name, or it is a link")
            continue
        arrived = datetime.fromtimestamp(_newest(entry), UTC)
        target = room.submission(student, assignment)
        if target.exists() and (rule == "first" or arrived <= _noted(target)):
            continue
        files, problems = _files_of(entry, assignment)
        complaints += [f"{student}: {problem}" for problem in problems]
        if target.exists():
            shutil.rmtree(target)
        target.mkdir(parents=True)
        for name, data in files.items():
            (target / name).write_bytes(data)
        write(target.parent / f".{assignment}.arrived", arrived.isoformat())
        room.log("collected", assignment=assignment, student=student, arrived=arrived.isoformat(), files=sorted(files))
    return complaints


def _newest(entry: Path) -> float:
    paths = [entry] if not entry.is_dir() else [entry, *entry.iterdir()]
    return max(path.lstat().st_mtime for path in paths)


def _noted(target: Path) -> datetime:
    return datetime.fromisoformat((target.parent / f".{target.name}.arrived").read_text())


def _files_of(entry: Path, assignment: str) -> tuple[dict[str, bytes], list[str]]:
    """The files of one hand-in, and what was left out of it."""
    if entry.is_dir():
        return _gather(
            (path.name, lambda left, path=path: read_regular(path, left)) for path in sorted(entry.iterdir())
        )
    try:
        data = read_regular(entry, MOST_FILES_BYTES)
    except IntakeError as problem:
        return {}, [str(problem)]
    if entry.suffix != ".zip":
        return {f"{assignment}.ipynb": data}, []
    try:
        with zipfile.ZipFile(entry) as archive:
            parts = [info for info in archive.infolist() if not info.is_dir()]
            return _gather((os.path.basename(info.filename), _unpacker(archive, info)) for info in parts)
    except (zipfile.BadZipFile, OSError, ValueError) as problem:
        return {}, [f"{entry.name} cannot be unpacked ({problem})"]


def _unpacker(archive: zipfile.ZipFile, info: zipfile.ZipInfo):
    def unpack(left: int) -> bytes:
        # The size that a zip file states may be a lie, so no more than `left` bytes are ever unpacked.
        try:
            with archive.open(info) as file:
                data = file.read(left + 1)
        except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError, EOFError) as problem:
            raise IntakeError(f"{info.filename[:60]!r} cannot be unpacked ({problem})") from None
        if len(data) > left:
            raise IntakeError(f"{info.filename[:60]!r} is too large when unpacked")
        return data

    return unpack


def _gather(parts) -> tuple[dict[str, bytes], list[str]]:
    """Read files until the allowed number or size is used up."""
    files, problems, left = {}, [], MOST_FILES_BYTES
    for name, read in parts:
        if name.startswith("."):
            continue
        if len(files) == MOST_FILES:
            problems.append(f"more than {MOST_FILES} files were handed in; the others were left out")
            break
        try:
            files[name] = read(left)
            left -= len(files[name])
        except IntakeError as problem:
            problems.append(str(problem))
    return files, problems
