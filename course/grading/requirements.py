"""What grading needs of a machine: each check names what is missing and what to do about it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path


class BoxError(RuntimeError):
    """The box cannot be built on this machine."""


@cache
def obstacle() -> str | None:
    """Return why the box cannot work here, with the remedy, or None when it works."""
    if not sys.platform.startswith("linux"):
        return f"the box needs Linux (this is {sys.platform}); grade in a Linux machine, or WSL2, or a container"
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed; install it with your package manager (Debian: apt install bubblewrap)"
    trial = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--", "/bin/true"]
    done = subprocess.run(trial, capture_output=True, text=True, timeout=20, env={"PATH": os.environ.get("PATH", "")})
    if done.returncode:
        return (
            f"bubblewrap may not make its namespaces here ({done.stderr.strip()}); allow unprivileged user namespaces "
            "(Ubuntu 24.04: an AppArmor profile for bwrap; Docker: --security-opt seccomp=unconfined) or move"
        )
    return None


def require_box() -> None:
    """Raise `BoxError` where the box cannot work."""
    if reason := obstacle():
        raise BoxError(f"{reason}. Or accept the risk with --unsafe, which stamps every result")


def require_unix() -> None:
    """Raise `BoxError` where grading does not even work without the box."""
    if sys.platform == "win32":
        raise BoxError("grading needs Linux, or macOS with --unsafe; on Windows, use WSL2")


def pythons() -> list[str]:
    """Folders that a box shows besides /usr, because Python is in them."""
    return sorted({sys.base_prefix, sys.prefix})


def require_unseen(folder: Path) -> None:
    """Raise `BoxError` if student code could read a folder, because it lies where the box needs Python from."""
    for shown in ("/usr", *pythons()):
        if folder.resolve().is_relative_to(Path(shown).resolve()):
            raise BoxError(f"{folder} lies below {shown}, which every box shows to the student code in it: move it")
