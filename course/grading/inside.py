"""The program that runs in the box: it executes a student's cells, then each item on its inputs.

Everything here is at the mercy of the student's code, and none of it is trusted: it only computes.
It knows no expected value, no seed and no name. It imports nothing of the grader but `wire`, copied
next to it.

    python inside.py JOB_FOLDER        results leave by standard output, prints by standard error

A result is one frame: name length, data length (4 bytes each), name, data.
"""

import ast
import contextlib
import ctypes
import errno
import gc
import json
import linecache
import math
import os
import platform
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time
import traceback
import types
from codeop import Compile
from pathlib import Path

MOST_RESULT_BYTES = 32 * 2**20
CELLS_SECONDS = 60  # of work for all cells; after that each gets a second
WAITING = (
    4  # how much longer than its own work an answer may take where others keep the machine busy
)


_compile = Compile()  # as in IPython: what a cell imports from __future__ holds for those after it
_compile.flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


FILE_COMMANDS = ("mkdir", "cp", "mv", "rm", "touch", "unzip")


class OutOfTime(BaseException):
    """A cell or an item used up its time."""


# System calls with which a boxed process could get round its limits. A new user namespace would
# bring back the right to mount memory disks of any size; memfd, System V's memory and queues and
# full sockets are counted by no limit; a session of its own gets a share of the processors of its
# own; ptrace and io_uring have no honest use in an assignment. The filter is a small program for
# the kernel (classic BPF, see linux/seccomp.h), the numbers are the kernel's.
MACHINES = {
    "x86_64": 0xC000003E,
    "aarch64": 0xC00000B7,
}  # with AUDIT_ARCH; below, one number for each of these
CLONE, CLONE3, MMAP = (56, 220), (435, 435), (9, 222)
FORBIDDEN = {
    "ptrace": (101, 117),
    "pivot_root": (155, 41),
    "mount": (165, 40),
    "umount2": (166, 39),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "unshare": (272, 97),
    "perf_event_open": (298, 241),
    "setns": (308, 268),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "memfd_create": (319, 279),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "setsid": (112, 157),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "pidfd_getfd": (438, 438),
}

# With these an answer could have another program, in which nothing is taken away, compute for it.
EXECUTING = {"execve": (59, 221), "execveat": (322, 281)}

CLONE_NEWUSER = 0x10000000
SHARED_ANONYMOUS = 0x01 | 0x20  # such memory stays when no process counts it any more
LOAD, AND, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL, ERROR = 0x7FFF0000, 0x80000000, 0x00050000
NUMBER, ARCHITECTURE, FIRST_ARGUMENT, FOURTH_ARGUMENT = (
    0,
    4,
    16,
    40,
)  # offsets in struct seccomp_data
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2


def call_filter(machine, calls=FORBIDDEN):
    """The filter as bytes: one (code, jump if true, jump if false, value) per instruction."""
    architecture, which = MACHINES[machine], list(MACHINES).index(machine)
    clone, clone3, mmap, *forbidden = (
        numbers[which] for numbers in (CLONE, CLONE3, MMAP, *calls.values())
    )
    deny = (RETURN, 0, 0, ERROR | errno.EPERM)
    steps = [
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER),
    ]
    steps += [(AT_LEAST, 0, 1, 0x40000000), deny]  # x86's second numbering of the same calls
    for number in forbidden:
        steps += [(EQUAL, 0, 1, number), deny]
    # clone3 hides its flags in memory, so it is declared missing; the C library then uses clone.
    steps += [(EQUAL, 0, 1, clone3), (RETURN, 0, 0, ERROR | errno.ENOSYS)]
    steps += [(EQUAL, 0, 4, mmap), (LOAD, 0, 0, FOURTH_ARGUMENT), (AND, 0, 0, SHARED_ANONYMOUS)]
    steps += [(EQUAL, 0, 1, SHARED_ANONYMOUS), deny, (LOAD, 0, 0, NUMBER)]
    steps += [
        (EQUAL, 0, 3, clone),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        (ANY_BIT, 0, 1, CLONE_NEWUSER),
        deny,
    ]
    steps += [(RETURN, 0, 0, ALLOW)]
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def forbid_calls(calls=FORBIDDEN):
    """Put this process and all its children under the filter, for good."""
    machine = platform.machine()
    if machine not in MACHINES:
        raise OSError(f"no list of system calls for {machine!r}; add one to inside.py")
    code = call_filter(machine, calls)
    instructions = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(instructions))
    libc = ctypes.CDLL(None, use_errno=True)
    for option, value in ((PR_SET_NO_NEW_PRIVS, 1), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER)):
        pointer = ctypes.c_char_p(header) if option == PR_SET_SECCOMP else ctypes.c_ulong(0)
        if libc.prctl(option, ctypes.c_ulong(value), pointer, ctypes.c_ulong(0), ctypes.c_ulong(0)):
            raise OSError(ctypes.get_errno(), "the kernel refuses the system call filter")


def give_up_rights(job):
    """Become nobody, then take limits that cannot be raised again."""
    if (
        job["become"] is not None
    ):  # the grader is root: its own box cannot map users, so drop them here
        os.setgroups([])
        os.setresgid(*[job["become"]] * 3)
        os.setresuid(*[job["become"]] * 3)
    for name, value in job["limits"].items():
        resource.setrlimit(getattr(resource, name), (value, value))
    if job["filter_calls"]:
        forbid_calls()


def starved(pid="self"):
    """Seconds in which a process was ready and waited for a processor that others kept busy."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="utf-8").split()[1]) / 1e9
    except (OSError, IndexError):  # it has ended, or this is no Linux
        return 0.0


def alarm(seconds):
    """Raise `OutOfTime` in this process after so many seconds of its own work; it may wait longer.
    0 cancels.
    """
    known = starved()

    def ring(signum, frame):
        nonlocal known
        if signum == signal.SIGALRM and (late := starved() - known) > 0.1:  # not its own fault
            known += late
            return signal.setitimer(signal.ITIMER_REAL, late)
        raise OutOfTime(f"took longer than {seconds:g} s")

    for timer, number, factor in (("PROF", signal.SIGPROF, 1), ("REAL", signal.SIGALRM, WAITING)):
        signal.signal(number, ring)
        signal.setitimer(getattr(signal, f"ITIMER_{timer}"), factor * seconds)


class Shell:
    """Stands for IPython: executes what measures or captures code, and what it runs or writes.

    All else, such as !pip, does nothing.
    """

    def __init__(self, namespace):
        self.namespace = namespace

    def __getattr__(self, name):
        return self

    def __call__(self, *words, **more):
        """Take the place of any method of IPython's shell."""

    def __bool__(self):  # libraries that ask whether they run in IPython hear no
        return False

    def run_line_magic(self, name, line, *more):
        """Execute what %time measures and the file that %run names: they may define names."""
        if name == "time":
            run_cell(line, "<after %time>", self.namespace)
        elif name == "run":
            self._run_file(next(word for word in line.split() if not word.startswith("-")))
        elif name == "cd":
            os.chdir(Path(line.strip().strip("'\"")).expanduser())
        else:
            self.system(f"{name} {line}")

    def _run_file(self, name):
        """Execute a Python file, or all cells of a notebook."""
        path = Path(name.strip("'\""))
        if path.suffix != ".ipynb":
            sources = [path.with_suffix(".py").read_text(encoding="utf-8")]
        else:
            cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
            sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        for source in sources:
            run_cell(source, f"<%run {name}>", self.namespace)

    def system(self, line):
        """Do what a shell does with files."""
        if line.split()[:1] and line.split()[0] in FILE_COMMANDS:
            subprocess.run(line, shell=True, timeout=10, check=False)

    def run_cell_magic(self, name, line, body):
        """Execute what stands below a magic that measures or captures; skip other languages."""
        if name in ("time", "timeit", "capture", "prun"):
            run_cell(body, f"<below %%{name}>", self.namespace)
        elif name in ("writefile", "file"):
            with open(
                line.split()[-1], "a" if "-a" in line.split() else "w", encoding="utf-8"
            ) as file:
                file.write(body)


def run_cells(cells, seconds):
    """Execute the cells as a notebook does, also after one fails.

    Returns the namespace, and what went wrong where.
    """
    import IPython

    # A module of its own: a student's `from time import time` must not reach the names of this
    # file.
    sys.modules["__main__"] = module = types.ModuleType("__main__")
    namespace, problems = vars(module), []
    shell = Shell(namespace)
    namespace |= {"get_ipython": lambda: shell, "display": print}
    IPython.get_ipython = namespace["get_ipython"]
    waiting, number = [*cells], 0
    while waiting:
        cell, number = waiting.pop(0), number + 1
        try:
            # Long computations of the student's own must not use up what the answers need.
            alarm(max(1, min(seconds, CELLS_SECONDS - time.process_time())))
            run_cell(cell["source"], f"<{cell['name']}, cell {number}>", namespace)
        except BaseException as problem:
            if isinstance(problem, NameError) and number <= len(cells):
                waiting.append(cell)  # a notebook remembers what a cell further down defines
            else:
                problems.append([cell["name"], f"{type(problem).__name__}: {problem}"[:300]])
        finally:
            alarm(0)
    return namespace, problems


def run_cell(source, file, namespace):
    """Execute one cell, whose notebook extras such as %magic and !shell lines become calls of the
    shell above.
    """
    from IPython.core.inputtransformer2 import TransformerManager

    source = TransformerManager().transform_cell(source)
    linecache.cache[file] = (
        len(source),
        None,
        source.splitlines(True),
        file,
    )  # for words about a line
    waiting = eval(_compile(source, file, "exec"), namespace)
    while waiting is not None:  # a cell that awaits is a coroutine
        try:
            waiting.send(None)
        except StopIteration:
            break


def problem_of(error, item, namespace, problems):
    """Why there is no answer, in words: an error of its own, or what else is not there."""
    import wire

    raised = [words for cell, words in problems if cell == f"{item['name']}_solution"]
    own = [f for f, _ in traceback.walk_tb(error.__traceback__) if f.f_globals is namespace]
    needed = getattr(error, "name", None)
    if isinstance(error, NotImplementedError) and own:
        needed = own[-1].f_code.co_name
    if needed in item["others"] and isinstance(error, (NameError, NotImplementedError)):
        words = f"it calls {needed}, which is not there, so these points are lost with it"
        return f"{words}: tell your teacher, who can give them by hand"
    if isinstance(error, NotImplementedError):
        return "not done yet"
    if isinstance(error, KeyError) and error.args == (item["function"],) and not own:
        if raised:
            version = f"{sys.version_info.major}.{sys.version_info.minor}"
            return f"its cell raised {raised[-1]} (grading has Python {version})"
        return f"there is no function called {item['function']}"
    return wire.described(error, namespace)


def answer_item(item, namespace, folder, problems=()):
    """Compute the answers to all cases of one item. Returns bytes."""
    import driver
    import wire
    from guard import Guard, take_away

    inputs = wire.decode((folder / "inputs" / item["name"]).read_bytes())
    run = driver.RUNS.get(
        item["exercise"], lambda student, case: wire.call(student[item["function"]], case)
    )
    if item[
        "view"
    ]:  # the second box: inputs are answers to look at, and there is no code of the student
        run = lambda student, case: driver.VIEWS[item["exercise"]](**case)  # noqa: E731
    answers, problem, guard = [], None, Guard(item["forbidden"])
    if item["alone"]:
        forbid_calls(EXECUTING)
    take_away(item["forbidden"])
    try:
        alarm(item["seconds"])
        for case in inputs:
            with guard:
                answer = run(namespace, case)
            answers.append(wire.decode(wire.encode(answer)))
    except OutOfTime as error:
        problem = str(error)
    except BaseException as error:
        problem = problem_of(error, item, namespace, problems)
    finally:
        alarm(0)
    return wire.encode(
        {"answers": answers, "problem": guard.found or problem, "refused": bool(guard.found)}
    )


def answer_in_child(item, namespace, folder, scratch, problems):
    """Answer an item in a process of its own, so that its death or its endless loop costs only
    itself.
    """
    path = scratch / f"answer-{item['name']}"
    if item["alone"]:  # whatever a cell has started could compute for the answer
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
    child = os.fork()
    if child == 0:
        try:
            most = (
                math.ceil(item["seconds"]) + 2
            )  # for code that catches `OutOfTime`; it sleeps no longer than below
            resource.setrlimit(resource.RLIMIT_CPU, (most, most))
            path.write_bytes(answer_item(item, namespace, folder, problems))
        finally:
            os._exit(0)
    deadline = time.monotonic() + WAITING * item["seconds"] + 2
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() - starved(child) > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.005)
    fits = path.is_file() and path.stat().st_size <= MOST_RESULT_BYTES
    data = path.read_bytes() if fits else b""
    with contextlib.suppress(OSError):  # the disk is small, and others follow
        path.unlink()
    return data


def send(channel, name, data):
    """Write one frame."""
    label = name.encode()
    with os.fdopen(os.dup(channel), "wb") as pipe:
        pipe.write(struct.pack("<II", len(label), len(data)) + label + data)


def main():
    """Run one submission."""
    folder = Path(sys.argv[1])
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    sys.path[:0] = [str(folder / "lib"), str(folder)]
    give_up_rights(job)
    channel = os.dup(1)
    os.dup2(2, 1)  # the student's prints join standard error; results keep a channel of their own
    sys.stdout.reconfigure(line_buffering=True)
    os.chdir(scratch := Path(job["scratch"]))
    sys.path += [str(scratch), ""]  # last, so that a bundle handed in whole hides nothing
    for file in (folder / "files").iterdir():  # what was handed in besides the notebook
        (shutil.copytree if file.is_dir() else shutil.copyfile)(file, scratch / file.name)
    # what is imported here stays: to look through it for garbage takes a sixth of the time
    gc.disable()
    import driver  # noqa: F401  now, before a cell can change what they keep
    import guard  # noqa: F401
    import torch

    gc.freeze()
    gc.enable()
    namespace, problems = run_cells(job["cells"], job["cell_seconds"])
    torch.set_num_threads(
        1
    )  # as OMP_NUM_THREADS says before: forking is safe while torch has started no threads
    send(channel, "cells", json.dumps(problems).encode())
    for item in job["items"]:
        data = answer_in_child(item, namespace, folder, scratch, problems)
        send(channel, item["name"], data)
    send(channel, "finished", b"")
    os._exit(0)  # threads and exit hooks of the student are not waited for


if __name__ == "__main__":
    main()
