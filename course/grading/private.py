"""Folders in which boxes are made ready, one each, and what graders that were killed left of them."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "grading-"


@contextmanager
def private_folder() -> Iterator[Path]:
    """Make an empty folder that goes when its user does.

    Where that user is killed, the lock on the folder goes, so `clear_leftovers` can tell that nobody needs it.
    """
    with tempfile.TemporaryDirectory(prefix=PREFIX) as private:
        lock = os.open(private, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            folder = Path(private, "job")
            folder.mkdir()
            yield folder
        finally:
            os.close(lock)


def clear_leftovers() -> None:
    """Remove the folders of graders that are no more."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        # One without a job is just being made, and not locked yet.
        if (folder / "job").is_dir() and folder.lstat().st_uid == os.geteuid():
            _remove_if_abandoned(folder)


def _remove_if_abandoned(folder: Path) -> None:
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:  # it has just gone, or is a link
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except OSError:  # somebody works in it
        pass
    finally:
        os.close(lock)
