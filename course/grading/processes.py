"""Look after a family of processes: how much memory it holds, and that all of it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    children = []
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            children += (thread / "children").read_text().split()
    except OSError:  # it has just ended
        return [pid]
    return [pid] + [member for child in children for member in family(int(child))]


def memory(pid: int) -> int:
    """Memory that a process and all its descendants hold for themselves, in bytes."""
    total = 0
    for member in family(pid):
        try:
            lines = Path(f"/proc/{member}/status").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("RssAnon:", "RssShmem:")))
    return total


def end(process: subprocess.Popen) -> None:
    """Kill the box and wait until all of it is gone.

    The processes of a box share a process namespace, and the kernel ends all of them with its first one. That
    takes a moment when they hold much memory, and the next box should not have to share it with them.
    """
    members = family(process.pid) if process.poll() is None else []
    for member in members:
        with suppress(ProcessLookupError):
            os.kill(member, signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 10
    while any(map(_lives, members)) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.stdout.close()
    process.stderr.close()


def _lives(pid: int) -> bool:
    """Whether a process is still there, other than as a name on its parent's list."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
