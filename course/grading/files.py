"""Read files that somebody handed in: ordinary ones of limited size, and nothing else."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

MOST_FILES_BYTES = 32 * 2**20
MOST_FILES = 20


class IntakeError(ValueError):
    """A submission, or a part of it, that cannot be read. The message is meant for the student."""


def read_regular(path: Path, most: int) -> bytes:
    """Read a regular file of limited size, without following a link or waiting on a pipe."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as problem:
        raise IntakeError(f"{path.name} cannot be read ({problem.strerror}); links are not followed") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size > most:
        os.close(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise IntakeError(f"{path.name} is not an ordinary file")
        raise IntakeError(f"{path.name} has {status.st_size:,} bytes; {most:,} are allowed")
    with os.fdopen(descriptor, "rb") as file:
        return file.read(most)


def fingerprint(folder: Path) -> str:
    """A digest of everything in a submission folder, cheap for files that are too large to be read."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else []:
        status = path.lstat()
        digest.update(f"{path.name!r} {status.st_mode} {status.st_size}".encode())
        try:
            digest.update(read_regular(path, MOST_FILES_BYTES))
        except IntakeError as problem:
            digest.update(str(problem).encode())
    return digest.hexdigest()
