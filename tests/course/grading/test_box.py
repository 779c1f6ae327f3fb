"""Hostile cells, each against the box: nothing is read, written, reached, left behind or gained."""

import os
import socket
import tempfile
import time
from pathlib import Path

import pytest

from course.grading import box
from course.grading.box import Limits
from course.grading.classroom import write
from tests.course.grading.conftest import total

pytestmark = [pytest.mark.box, pytest.mark.slow]

CANARY = f"canary-{os.getpid()}"  # an abstract address is one for all tests that run beside these

# What each cell prints after "got:" is what it got hold of; nothing may ever follow.
SNOOPS = {
    "a shell that looks around": (
        "import subprocess; out = subprocess.run(['sh', '-c', 'cat CLASS/secret SOURCE 2>/dev/null;"
        " find / -xdev -name specification.py -o -xdev -name gradebook.db 2>/dev/null'],"
        " capture_output=True, text=True).stdout\nif out: print('got:', out)"
    ),
    "the class folder": "print('got:', open('CLASS/secret').read())",
    "another student's work": "print('got:', open('CLASS/submitted/ben/a1/a1.ipynb').read())",
    "another student's result": "print('got:', open('CLASS/results/a1/ben.json').read())",
    "the solutions": "print('got:', open('SOURCE').read())",
    "the gradebook": (
        "import sqlite3; print('got:', sqlite3.connect('file:CLASS/gradebook.db?mode=rw',"
        " uri=True))"
    ),
    "the library": "import helpers; print('got:', helpers)",
    "the grader": (
        "import sys; sys.path.append('REPO'); from course.grading import judge; print('got:',"
        " judge)"
    ),
    "the network": (
        "import socket; socket.create_connection(('127.0.0.1', PORT), 3); print('got:', 1)"
    ),
    "an abstract socket": (
        "import socket; s = socket.socket(socket.AF_UNIX); s.connect('\\0CANARY'); print('got:', 1)"
    ),
    "the environment": "import os\nif 'CANARY' in str(os.environ): print('got:', 1)",
    "other processes": (
        "import os\npids = [p for p in os.listdir('/proc') if p.isdigit() and p != '1']\nif"
        " 'pytest' in ''.join(open(f'/proc/{p}/cmdline').read() for p in pids): print('got:', pids)"
    ),
    "memory of the parent": "import os\nfd = os.open('/proc/1/mem', os.O_RDWR); print('got:', fd)",
    "the system's passwords": (
        "for f in ('/etc/shadow', '/etc/passwd'):\n    try: print('got:', open(f).read())\n"
        "    except OSError: pass"
    ),
    "other users' files": (
        "import os\nfor f in ('HOME', '/home', '/var', '/mnt', '/opt'):\n    if os.path.exists(f)"
        " and [n for n in os.listdir(f) if n not in ('.pyenv', '.local')]: print('got:', f)"
    ),
    "devices": "import os\nopen('/dev/mem'); print('got:', 1)",
    "mounting": (
        "import ctypes\nif ctypes.CDLL(None).mount(b'none', b'/tmp', b'tmpfs', 0, None) == 0:"
        " print('got:', 1)"
    ),
    "a user namespace": (
        "import ctypes\nif ctypes.CDLL(None).unshare(0x10000000) == 0: print('got:', 1)"
    ),
    "becoming root again": "import os\nos.setuid(0); print('got:', os.getuid())",
    "raising its limits": (
        "import resource\nresource.setrlimit(resource.RLIMIT_NPROC, (9999, 9999)); print('got:', 1)"
    ),
    "anonymous memory files": "import os\nos.memfd_create('x'); print('got:', 1)",
    "killing everything": (
        "import os, signal\nfor pid in (1, -1, os.getppid()):\n    try: os.kill(pid, 0) if pid !="
        " -1 else None; os.kill(1, signal.SIGKILL)\n    except OSError: pass"
    ),
    "the kernel": (
        "import os\nfor path in ('kcore', 'kmsg', 'sysrq-trigger', 'sys/kernel/core_pattern',"
        " '1/mem'):\n    for how in (os.O_RDONLY, os.O_WRONLY):\n        try: fd = os.open('/proc/'"
        " + path, how)\n        except OSError: continue\n        if how or 'sys/' not in path:"
        " print('got:', path, os.read(fd, 9))"
    ),
    "devices of its own making": (
        "import os, stat\nos.mknod('/tmp/disk', stat.S_IFBLK | 0o600, os.makedev(254, 0))\n"
        "print('got:', open('/tmp/disk', 'rb').read(512))"
    ),
    "programs that run as root": (
        "import subprocess, os\nfor name in ('su', 'sudo', 'mount', 'newgrp'):\n    try: out ="
        " subprocess.run([name, '-c', 'id -u'], capture_output=True, text=True,"
        " input='').stdout.strip()\n    except OSError: continue\n    if out == '0': print('got:',"
        " name)"
    ),
    "roots of other processes": (
        "import os\nfor pid in filter(str.isdigit, os.listdir('/proc')):\n"
        "    for place in ('root', 'cwd'):\n        path = f'/proc/{pid}/{place}CLASS/secret'\n"
        "        if os.path.exists(path): print('got:', path)"
    ),
    "writing to the system": (
        "for folder in ('/usr/lib', '/job', '', '/dev', 'PREFIX'):\n"
        "    path = folder + '/CANARY'\n"
        "    try: open(path, 'w').write('x'); print('got:', path)\n    except OSError: pass"
    ),
    "descriptors of other processes": (
        "import ctypes, os\ncall = ctypes.CDLL(None).syscall\nfor pid in (1, os.getppid()):\n   "
        " for fd in range(9):\n        taken = call(438, call(434, pid, 0), fd, 0)\n        if"
        " taken >= 0: print('got:', os.readlink(f'/proc/self/fd/{taken}'))"
    ),
    "the clock and the name of the machine": (
        "import socket, time\nfor change in (\n    lambda: time.clock_settime(time.CLOCK_REALTIME,"
        " 0), lambda: socket.sethostname('mine')):\n    try: change(); print('got:', 1)\n    except"
        " OSError: pass"
    ),
    "protection from the kernel": (
        "for what, value in (('oom_score_adj', '-1000'), ('uid_map', '0 0 1')):\n    try:"
        " open(f'/proc/self/{what}', 'w').write(value); print('got:', what)\n    except OSError:"
        " pass"
    ),
    "limits of other processes": (
        "import resource\nresource.prlimit(1, resource.RLIMIT_CPU, (1, 1)); print('got:', 1)"
    ),
    "a memory disk without a limit": (
        "import os\nfor line in open('/proc/self/mounts'):\n    kind, place = line.split()[2],"
        " line.split()[1]\n    if kind == 'tmpfs' and os.access(place, os.W_OK):\n        disk ="
        " os.statvfs(place)\n        if disk.f_blocks * disk.f_frsize > 2**28: print('got:', place)"
    ),
}


@pytest.fixture
def surroundings(room, a1, monkeypatch, request):
    """Things that a snoop would like to have, at known places, and listeners that it must not
    reach.
    """
    monkeypatch.setenv("CANARY_VARIABLE", CANARY)
    for path in (room.submission("ben", "a1") / "a1.ipynb", room.result_path("a1", "ben")):
        write(path, CANARY)
    # What keeps a snoop away is the box, and not that these files belong to somebody else.
    for path in (room.folder, *room.folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    closed = [folder for folder in room.folder.parents if not folder.stat().st_mode & 1]
    for folder in closed:
        folder.chmod(0o711)
    request.addfinalizer(lambda: [folder.chmod(0o700) for folder in closed])
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        abstract.bind(f"\0{CANARY}")
        abstract.listen()
        yield {
            "CLASS": str(room.folder),
            "SOURCE": str(a1.notebook),
            "REPO": str(a1.folder.parents[2]),
            "PORT": str(server.getsockname()[1]),
            "HOME": str(Path.home()),
            "PREFIX": os.path.realpath(os.sys.prefix),
            "CANARY": CANARY,
        }


@pytest.mark.parametrize("label", SNOOPS)
def test_a_snoop_gets_nothing(label, surroundings, grade):
    cell = SNOOPS[label]
    for name, value in surroundings.items():
        cell = cell.replace(name, value)
    result = grade({"own": f"print('started')\n{cell}"}, Limits(wall_seconds=60))
    assert "started" in result["printed"] and "got:" not in result["printed"]
    messages = {row["message"] for row in result["items"].values()}
    assert messages == {"not done yet: it still raises NotImplementedError()"}


FLOODS = {
    "memory": "x = [bytearray(2**28) for _ in range(100)]",
    "memory of many processes": (
        "import os, time\nfor _ in range(60):\n    if os.fork() == 0:\n"
        "        x = bytearray(2**28); time.sleep(60)\ntime.sleep(60)"
    ),
    "shared memory": (
        "import mmap\nx = [mmap.mmap(-1, 2**28) for _ in range(40)]\n"
        "for m in x:\n    m.write(b'1' * 2**28)"
    ),
    "shared memory that is let go": (
        "import mmap\nx = [mmap.mmap(-1, 2**28) for _ in range(40)]\nfor m in x:\n    m.write(b'1'"
        " * 2**28); m.madvise(mmap.MADV_DONTNEED)\nprint('got:', len(x))"
    ),
    "shared memory of a device": (
        "import mmap\nf = open('/dev/zero', 'r+b')\nx = [mmap.mmap(f.fileno(), 2**28) for _ in"
        " '12345678']\nfor m in x:\n    m.write(b'1' * 2**28);"
        " m.madvise(mmap.MADV_DONTNEED)\nprint('got:', len(x))"
    ),
    "full sockets": (
        "import socket\npairs = [socket.socketpair() for _ in range(100)]\nprint('got:',"
        " len(pairs))"
    ),
    "page tables": (
        "import mmap\nx = mmap.mmap(-1, 2**42, flags=mmap.MAP_PRIVATE | 0x4000,"
        " prot=mmap.PROT_READ)\nfor place in range(0, len(x), 2**21): x[place]\nprint('got:',"
        " len(x))"
    ),
    "empty files": (
        "import os\nfor i in range(10**6): os.close(os.open(f'/tmp/{i}',"
        " os.O_CREAT))\nprint('got:', i)"
    ),
    "empty folders": (
        "import os\nfor i in range(10**6): os.mkdir(f'/dev/shm/{i}')\nprint('got:', i)"
    ),
    "busy processes": (
        "import os, time\nfor _ in range(5):\n    if os.fork() == 0:\n        while True: pass\n"
        "time.sleep(60)\nprint('got:', 1)"
    ),
    "sessions": "import os\nos.setsid()\nprint('got:', 1)",
    "disk": (
        "import os\nfor i in range(100):\n    for folder in ('/tmp', '/dev/shm'):\n"
        "        open(f'{folder}/{i}', 'wb').write(bytes(2**26))"
    ),
    "output": "import os\nwhile True:\n    os.write(2, b'x' * 65536)",
    "results": (
        "import os\nfor fd in range(3, 60):\n    try:\n        while True: os.write(fd, b'x' *"
        " 65536)\n    except OSError: pass"
    ),
    "forks": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "a loop that cannot be interrupted": (
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass"
    ),
    "a sleeping child": (
        "import subprocess\nsubprocess.Popen(['sleep', '3141592'], start_new_session=True)"
    ),
    "timers that are switched off": (
        "import signal\nfor s in (signal.SIGPROF, signal.SIGALRM, signal.SIGXCPU):\n   "
        " signal.signal(s, signal.SIG_IGN)\n    signal.pthread_sigmask(signal.SIG_BLOCK,"
        " [s])\nwhile True: pass"
    ),
    "threads": (
        "import threading, time\nfor _ in range(10**4):\n"
        "    threading.Thread(target=time.sleep, args=(99,), daemon=True).start()\nprint('got:', 1)"
    ),
    "message queues": (
        "import ctypes\nlibc = ctypes.CDLL(None)\nqueues = [libc.msgget(0, 0o600) for _ in"
        " range(9999)]\nfor q in queues:\n    while libc.msgsnd(q, b'1' * 8192, 8000, 0o4000) == 0:"
        " print('got:', q)"
    ),
    "words without end": (
        "class E(Exception):\n    def __str__(self):\n        while True:\n            try:\n"
        "                while True: pass\n            except BaseException: pass\nraise E"
    ),
    "orphans that somebody adopts": (
        "import ctypes, os, signal, time\nctypes.CDLL(None).prctl(36, 1)\nfor number in"
        " set(range(1, 32)) - {9, 19}: signal.signal(number, signal.SIG_IGN)\nfor _ in range(5):\n "
        "   if os.fork() == 0:\n        if os.fork() == 0: time.sleep(3141592)\n        os._exit(0)"
    ),
    "watches": (
        "import ctypes\nlibc = ctypes.CDLL(None)\nfor _ in range(10**5):\n    if (fd :="
        " libc.inotify_init()) < 0: break\n    libc.inotify_add_watch(fd, b'/tmp', 4095)"
    ),
    "full pipes": (
        "import fcntl, os\nheld = 0\nfor _ in range(120):\n    r, w = os.pipe()\n    try:\n"
        "        size = fcntl.fcntl(w, 1031, 2**20)\n    except OSError: size = 4096\n"
        "    held += os.write(w, bytes(size))\nif held > 2**27: print('got:', held)"
    ),
    "closed pipes": "import os\nos.closerange(0, 100)\nwhile True: pass",
    "its own death": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "a crash": "import ctypes\nctypes.string_at(0)",
    "names that are no text or lie": (
        "import ctypes, os, time\nname = ctypes.CDLL(None).prctl\nname(15,"
        " b'\\xff')\ntime.sleep(1)\nname(15, b'\\x1cVmPTE: -999999')\nos.fork()\nx = b'1' *"
        " 2**30\ntime.sleep(3)\nprint('got:', 1)"
    ),
    "stopping itself": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "a sleep that nothing interrupts": (
        "import signal, time\nfor s in (signal.SIGPROF, signal.SIGALRM):\n"
        "    signal.signal(s, signal.SIG_IGN)\nwhile True: time.sleep(60)"
    ),
}
# Of floods that only one of the limits can end.
REASONS = {
    "a sleep that nothing interrupts": "it took longer than",
    "output": "it printed more than allowed",
    "memory of many processes": "it used more memory than allowed",
}


@pytest.mark.parametrize("label", FLOODS)
def test_a_flood_ends_in_time_and_leaves_nothing(label, grade, tmp_path, monkeypatch):
    monkeypatch.setattr(
        tempfile, "tempdir", str(tmp_path)
    )  # so that the box's processes can be told from others
    start = time.monotonic()
    limits = Limits(wall_seconds=20, total_cpu_seconds=20, total_bytes=1536 * box.MIB)
    result = grade({"own": f"print('started')\n{FLOODS[label]}"}, limits)
    assert "started" in result["printed"] and "got:" not in result["printed"]
    assert time.monotonic() - start < 60 * max(
        1, os.getloadavg()[0]
    )  # others may keep the machine busy
    assert total(result) == 0 and len(result["printed"]) <= 4000
    assert REASONS.get(label, "") in " ".join(result["notes"])
    assert processes_of(tmp_path) == []
    assert os.listdir(tmp_path) == []
    assert not [name for name in os.listdir("/dev/shm") if name.isdigit()]


def test_who_stops_its_own_processes_does_not_hold_the_others(grade):
    start = time.monotonic()
    result = grade({"own": FLOODS["stopping itself"]}, Limits(wall_seconds=600))
    assert "it suspended its own processes" in result["notes"][0]
    assert time.monotonic() - start < 60 * max(1, os.getloadavg()[0])


def test_the_work_of_children_counts_after_they_have_ended(grade):
    busy = (
        "import os, time\nwhile True:\n    if os.fork() == 0:\n        while time.process_time() <"
        " 0.5: pass\n"
    )
    result = grade(
        {"own": busy + "        os._exit(0)\n    os.wait()"},
        Limits(wall_seconds=60, total_cpu_seconds=3),  # 5 s for the three runs of the cells
    )
    assert "it computed for more than 5 s" in result["notes"][0]


def test_nothing_is_left_for_the_next_submission(grade):
    folders = ("/tmp", "/dev/shm", "/job", "/var/tmp", "/run")
    note = (
        f"import os\nfor folder in {folders}:\n    try: open(folder + '/note',"
        " 'w').write('answers')\n"
    )
    note += "    except OSError: pass\nprint('left', os.path.exists('/tmp/note'))"
    assert "left True" in grade({"own": note})["printed"]
    look = (
        f"import os\nfor folder in {folders}:\n    if os.path.exists(folder + '/note'):"
        " print('got:', folder)"
    )
    assert "got:" not in grade({"own": f"print('started')\n{look}"})["printed"]


def test_a_box_that_still_runs_would_be_seen(grade, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen = []
    end = box.machine.end
    monkeypatch.setattr(
        box.machine, "end", lambda process: (seen.extend(processes_of(tmp_path)), end(process))
    )
    grade({"own": FLOODS["stopping itself"]}, Limits(wall_seconds=5))
    assert any("bwrap" in name for name in seen) and any("python" in name for name in seen)
    assert processes_of(tmp_path) == []


def processes_of(folder):
    """Command lines of the processes that were started on a job in a folder or have it mounted."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            line = (path / "cmdline").read_text()
            if (
                str(folder) in line
                or str(Path(*folder.parts[-3:])) in (path / "mountinfo").read_text()
            ):
                found.append(line)
        except OSError:  # it has ended, or is not ours
            continue
    return found


def test_the_limits_are_what_holds(grade):
    """The same honest work passes with the usual limits and fails with tighter ones: the limits are
    not decoration.
    """
    cell = {"own": "x = bytearray(1000 * 2**20); print('done')"}
    assert "done" in grade(cell)["printed"]
    result = grade(cell, Limits(process_bytes=1400 * box.MIB))
    assert "done" not in result["printed"] and "MemoryError" in " ".join(result["notes"])


@pytest.mark.ci
def test_more_results_than_allowed_are_this_hand_ins_own_fault(grade):
    result = grade({}, Limits(result_bytes=100))
    assert "it sent more results than allowed" in " ".join(result["notes"])
