"""Writing files so that a reader sees the old content or the new, never half of it."""

import os
import time
from contextlib import suppress
from pathlib import Path


def write_atomically(path: Path, content: bytes | str) -> Path:
    """Write under a temporary name in the same folder, then move into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    target = Path(os.path.realpath(path))  # a link stays, and what it leads to is replaced
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        move(part, target)
    except OSError as problem:  # for a full disk the system names no file
        raise OSError(problem.errno, problem.strerror or str(problem), str(path)) from problem
    finally:
        remove(part)
    return path


def remove(path: Path) -> None:
    """Delete a file that is needed no longer, unless another program holds it, as on Windows."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


def move(part: Path, path: Path) -> None:
    """Move a file into place, in several tries on Windows, where a virus scanner may hold it."""
    for seconds in (0.1, 0.5, 2) if os.name == "nt" else ():
        with suppress(PermissionError):
            return os.replace(part, path)
        time.sleep(seconds)
    return os.replace(part, path)
