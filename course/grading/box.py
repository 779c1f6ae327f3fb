"""Run a student's code where it can do no harm: bubblewrap on Linux.

The box has no network, sees no file but Python and its own job, writes only to small memory disks,
runs as nobody, and dies with everything it started when it ends or oversteps. Results leave through
a pipe, of which the reader takes a limited number of bytes, so nothing that the box writes ever
lies on the grader's disk.
"""

import os
import selectors
import struct
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from course.grading import machine

MIB = 2**20
ASLEEP_SECONDS = 5
STOPPED_SECONDS = 5  # after which a process that a signal stopped ends the box
INPUTS = "inputs"  # the file beside the job that becomes the box's standard input


@dataclass(frozen=True)
class Limits:
    """What one submission may use.

    Memory and processor time are counted per process and for the whole box.
    """

    wall_seconds: float = 240.0  # not counting the time that the box waited for a processor
    cpu_seconds: int = 90
    total_cpu_seconds: float = 180.0
    process_bytes: int = 2048 * MIB
    total_bytes: int = 4096 * MIB
    processes: int = 32
    file_bytes: int = 64 * MIB
    disk_bytes: int = 128 * MIB
    files: int = 10_000
    open_files: int = 256
    printed_bytes: int = 64 * MIB
    result_bytes: int = 64 * MIB

    def times(self, number: float) -> "Limits":
        """Limits for a box that serves so many hand-ins in turn."""
        each = ("wall_seconds", "total_cpu_seconds", "printed_bytes", "result_bytes")
        return replace(self, **{name: number * getattr(self, name) for name in each})

    def as_rlimits(self, boxed: bool) -> dict[str, int]:
        """The limits that the kernel enforces for each process."""
        limits = {
            "RLIMIT_CPU": self.cpu_seconds,
            "RLIMIT_DATA": self.process_bytes,
            "RLIMIT_CORE": 0,
        }
        limits |= {"RLIMIT_FSIZE": self.file_bytes, "RLIMIT_NOFILE": self.open_files}
        # Outside the box this limit counts all of the user's own programs too, so it would stop
        # honest work.
        return limits | ({"RLIMIT_NPROC": self.processes} if boxed else {})


@dataclass
class BoxResult:
    """What came out: frames by name (the first of each name counts), the head of the prints, and
    how it ended.
    """

    frames: dict[str, bytes] = field(default_factory=dict)
    printed: str = ""
    reason: str = ""  # empty when the box ended by itself


def command(job: Path, limits: Limits) -> list[str]:
    """Return the bubblewrap command line that runs `job/lib/inside` in the box."""
    words = [
        "bwrap",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-cgroup-try",
    ]
    words += ["--die-with-parent", "--new-session", "--clearenv"]
    if os.geteuid() == 0:
        # Mapped users of root still count as root for the process limit. So root builds the box
        # with real rights and the program inside becomes an unused user id before it reads anything
        # of the student.
        words += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        words += ["--unshare-user", "--uid", "65534", "--gid", "65534", "--disable-userns"]
    words += ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "lib", "lib64"):
        words += ["--symlink", f"usr/{name}", f"/{name}"] if Path("/", name).is_symlink() else []
    words += ["--perms", "0755", "--dir", "/etc"]
    for file in ("/etc/ld.so.cache", "/etc/fonts"):  # the latter for plots
        words += ["--ro-bind-try", file, file]
    disk = ["--size", str(limits.disk_bytes), "--perms", "1777", "--tmpfs"]
    words += ["--proc", "/proc", "--dev", "/dev", "--ro-bind", "/dev/null", "/dev/zero"]
    words += [*disk, "/dev/shm", *disk, "/tmp", "--ro-bind", str(job), "/job"]
    for folder in machine.pythons():  # after /tmp, for the project may lie in there
        if not Path(folder).is_relative_to("/usr"):
            # bubblewrap would make the folders above it readable by their owner alone.
            above = [str(parent) for parent in reversed(Path(folder).parents)][1:]
            words += [word for parent in above for word in ("--perms", "0755", "--dir", parent)]
            words += ["--ro-bind", folder, folder]
    # Where the grader is no root, the box's first process has the student's user id: its memory
    # must stay out of reach.
    hidden = ["/proc/1"]
    installed = [Path(sysconfig.get_path("purelib"), name) for name in ("helpers", "course")]
    hidden += [
        str(folder) for folder in installed if folder.is_dir()
    ]  # the library is an answer key
    for folder in (
        hidden
    ):  # read-only, or an ordinary user's students could fill these with as much as they like
        words += ["--tmpfs", folder, "--remount-ro", folder]
    words += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]
    for name, value in _environment("/tmp").items():
        words += ["--setenv", name, value]
    return [*words, "--", sys.executable, "-IB", "/job/lib/inside/__main__.py", "/job"]


def _environment(home: str) -> dict[str, str]:
    settings = {"PATH": "/usr/bin", "LANG": "C.UTF-8", "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}
    return settings | dict.fromkeys(("HOME", "TMPDIR", "IPYTHONDIR"), home)


def run(job: Path, limits: Limits, boxed: bool = True, container: bool = False) -> BoxResult:
    """Run a job folder, all of which can be read, and return what it sent.

    Unboxed, only the kernel's limits hold; in a throw-away container the job becomes another user.
    """
    if boxed and not container:
        machine.require(boxed)
        words = command(job, limits)
        environment = {"PATH": os.environ.get("PATH", "/usr/bin")}
    else:
        program = str(job / "lib" / "inside" / "__main__.py")
        words = [sys.executable, "-IB", program, str(job)]
        environment = _environment(str(job / "scratch"))
    with open(job.with_name(INPUTS), "rb") as inputs:
        process = subprocess.Popen(
            words,
            stdin=inputs,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=job,
            start_new_session=True,
        )
    try:
        results, printed, reason = _drain(process, limits)
    finally:
        machine.end(process)
    return BoxResult(_frames(results), printed.decode("utf-8", "replace"), reason)


def _drain(process: subprocess.Popen, limits: Limits) -> tuple[bytes, bytes, str]:
    """Read both pipes until they close or a limit is overstepped."""
    results, printed, seen = bytearray(), bytearray(), 0
    waited: dict[int, float] = {}  # of those that have ended, too
    start, next_look, asleep = time.monotonic(), 0.0, 0.0
    ran = last = start  # when all of its processes did
    with selectors.DefaultSelector() as pipes:
        pipes.register(process.stdout, selectors.EVENT_READ)
        pipes.register(process.stderr, selectors.EVENT_READ)
        while pipes.get_map():
            for key, _ in pipes.select(timeout=0.1):
                chunk = os.read(key.fd, 65536)
                if not chunk:
                    pipes.unregister(key.fileobj)
                elif key.fileobj is process.stdout:
                    results += chunk
                else:
                    seen += len(chunk)
                    printed += chunk[: max(0, 20_000 - len(printed))]
            now = time.monotonic()
            # A round takes a tenth of a second: this process itself was stopped, as by Ctrl-Z.
            asleep += max(0.0, now - last - ASLEEP_SECONDS)
            last = now
            if len(results) > limits.result_bytes:
                head = bytes(results[: int(limits.result_bytes)])  # what came whole counts
                return head, bytes(printed), "it sent more results than allowed"
            if seen > limits.printed_bytes:
                return bytes(results), bytes(printed), "it printed more than allowed"
            if now > next_look:
                next_look = now + 0.2
                used = machine.usage(process.pid)
                waited |= used.waited_seconds
                ran = ran if used.stopped else now
                if now - ran > STOPPED_SECONDS:
                    return bytes(results), bytes(printed), "it suspended its own processes"
                took = now - start - asleep - sum(waited.values())
                if problem := _overstepped(used, took, limits):
                    return bytes(results), bytes(printed), problem
    return bytes(results), bytes(printed), ""


def _overstepped(used: machine.Usage, seconds: float, limits: Limits) -> str:
    """Which limit of the whole box was overstepped, in words."""
    if used.memory > limits.total_bytes:
        return "it used more memory than allowed"
    if used.files > limits.files:
        return f"it made more than {limits.files:,} files"
    if used.cpu_seconds > limits.total_cpu_seconds:
        return f"it computed for more than {limits.total_cpu_seconds:.0f} s"
    late = seconds > limits.wall_seconds
    return f"it took longer than {limits.wall_seconds:.0f} s" if late else ""


def _frames(data: bytes) -> dict[str, bytes]:
    """Split results into frames; a torn or odd end is dropped."""
    frames: dict[str, bytes] = {}
    position = 0
    while position + 8 <= len(data):
        label, length = struct.unpack_from("<II", data, position)
        end = position + 8 + label + length
        if label > 100 or end > len(data):
            break
        name = data[position + 8 : position + 8 + label].decode("utf-8", "replace")
        frames.setdefault(name, data[position + 8 + label : end])
        position = end
    return frames
