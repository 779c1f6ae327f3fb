"""What grading needs of a machine: what is missing and the remedy, processes that end, folders that
go.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

DISKS = ("tmp", "dev/shm")  # where student code can write


class BoxError(RuntimeError):
    """The box cannot be built on this machine."""


@cache
def obstacle() -> str | None:
    """Return why the box cannot work here, with the remedy, or None when it works."""
    if not sys.platform.startswith("linux"):
        return (
            f"the box needs Linux (this is {sys.platform}); grade in a Linux machine, or WSL2, or a"
            " container"
        )
    if shutil.which("bwrap") is None:
        return (
            "bubblewrap is not installed; install it with your package manager (Debian: apt install"
            " bubblewrap)"
        )
    trial = ["bwrap", "--unshare-all", "--ro-bind", "/", "/"]
    trial += ["--size", "1000000", "--tmpfs", "/tmp"]  # what older ones do not know
    if os.geteuid() != 0:
        trial += ["--unshare-user", "--disable-userns"]
    done = subprocess.run(
        [*trial, "--", "/bin/true"],
        capture_output=True,
        text=True,
        timeout=20,
        env={"PATH": os.environ.get("PATH", "")},
    )
    if "Unknown option" in done.stderr:
        return (
            f"bubblewrap is too old ({done.stderr.strip()}); 0.8 or newer is needed, as in Debian"
            " 12 and Ubuntu 24.04"
        )
    if done.returncode:
        remedy = (
            "Ubuntu: the AppArmor profile in notebooks/assignments/teaching/set_up.md;"
            " Docker: --security-opt seccomp=unconfined"
        )
        why = f"bubblewrap is not allowed to create namespaces here ({done.stderr.strip()})"
        return f"{why}; allow unprivileged user namespaces ({remedy}), or grade on another machine"
    return None


def require(boxed: bool) -> None:
    """Raise `BoxError` where grading does not work, be it in the box or even without it."""
    if sys.platform == "win32":
        raise BoxError(
            "collecting and grading need Linux, or macOS with --unsafe; on Windows, use WSL2"
        )
    if boxed and (reason := obstacle()):
        raise BoxError(f"{reason}. Or accept the risk with --unsafe, which stamps every result")


def require_root() -> None:
    """Raise `BoxError` where student code could not be given to another user, and would end all
    processes of this one.
    """
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        raise BoxError("without bubblewrap the grader must be root in a container of its own")


def pythons() -> list[str]:
    """Folders that a box shows besides /usr, because Python is in them."""
    return sorted({sys.base_prefix, sys.prefix})


def require_unseen(folder: Path) -> None:
    """Raise `BoxError` if student code could read a folder, because it lies where the box needs
    Python from.
    """
    for shown in ("/usr", *pythons()):
        if folder.resolve().is_relative_to(Path(shown).resolve()):
            raise BoxError(
                f"{folder} lies below {shown}, which every box shows to the student code in it:"
                " move it"
            )


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    children = []
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            children += _told(thread / "children").split()
    except OSError:  # it has just ended
        return [pid]
    return [pid] + [member for child in children for member in family(int(child))]


def _told(path: Path) -> str:
    """What the kernel tells of a process, which may call itself by any bytes."""
    return path.read_text(encoding="latin-1")


@dataclass(frozen=True)
class Usage:
    """What a box uses: bytes of memory, seconds of all processors, files, and for how many seconds
    each of its processes waited for a processor; and whether a signal stopped one.
    """

    memory: int = 0
    cpu_seconds: float = 0.0
    waited_seconds: dict[int, float] = field(default_factory=dict)
    files: int = 0
    stopped: bool = False


def usage(pid: int) -> Usage:
    """Measure a process and all its descendants; what has ended counts in its parent."""
    memory, ticks, files, waited, stopped = 0, 0, 0, {}, False
    for member in family(pid):
        place = Path(f"/proc/{member}")
        try:
            lines = _told(place / "status").split(
                "\n"
            )  # a name may hold what `splitlines` takes for an end
            told = _told(place / "stat").rpartition(")")[2].split()
            ticks += sum(map(int, told[11:15]))
            stopped |= told[0] == "T"
            waited[member] = int(_told(place / "schedstat").split()[1]) / 1e9
            files = max(files, *(_files_on(place / "root", disk) for disk in DISKS))
        except (OSError, IndexError):  # it has just ended
            continue
        # Page tables are memory, too, and those of a sparse mapping are all there is of it.
        sizes = (
            line.split()[1]
            for line in lines
            if line.startswith(("RssAnon:", "RssShmem:", "VmPTE:"))
        )
        memory += 1024 * sum(map(int, sizes))
    return Usage(memory, ticks / os.sysconf("SC_CLK_TCK"), waited, files, stopped)


def _files_on(root: Path, disk: str) -> int:
    """How many files are on a memory disk of a box: empty ones cost memory and fill no disk."""
    inside, state = root / disk, os.statvfs(root / disk)
    no_box = inside.stat().st_dev == Path("/", disk).stat().st_dev  # or not yet
    return 0 if no_box else state.f_files - state.f_ffree


def end(process: subprocess.Popen) -> None:
    """Kill the box and wait until all of it, and the memory it held, is gone: the next box should
    not have to share.
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
    with suppress(OSError):
        return _told(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()[0] not in "ZX"
    return False


PREFIX = "grading-"


@contextmanager
def private_folder() -> Iterator[Path]:
    """An empty folder that goes with its user; where that one is killed the lock goes, so
    `clear_leftovers` sees it.
    """
    import fcntl  # which only Unix has, while a release is made anywhere

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
    import fcntl

    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        # One without a job is just being made, and not locked yet.
        if not (folder / "job").is_dir() or folder.lstat().st_uid != os.geteuid():
            continue
        with suppress(OSError):  # it has just gone, is a link, or somebody works in it
            lock = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
