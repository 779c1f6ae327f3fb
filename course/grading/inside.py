"""The program that runs in the box: it executes a student's cells, then each item on its inputs.

Everything here is at the mercy of the student's code, and none of it is trusted: it only computes. It knows
no expected value, no seed and no name. It imports nothing of the grader but `wire`, copied next to it.

    python inside.py JOB_FOLDER        results leave by standard output, prints by standard error

A result is one frame: name length, data length (4 bytes each), name, data.
"""

import json
import linecache
import math
import os
import resource
import signal
import struct
import sys
import time
from pathlib import Path

MOST_RESULT_BYTES = 32 * 2**20
WAITING = 4  # how much longer than its own work an answer may take where others keep the machine busy


class OutOfTime(BaseException):
    """A cell or an item used up its time."""


def give_up_rights(job):
    """Become nobody, then take limits that cannot be raised again."""
    if job["become"] is not None:  # the grader is root: its own box cannot map users, so drop them here
        os.setgroups([])
        os.setresgid(*[job["become"]] * 3)
        os.setresuid(*[job["become"]] * 3)
    for name, value in job["limits"].items():
        resource.setrlimit(getattr(resource, name), (value, value))
    if job["filter_calls"]:
        import seccomp  # beside this file

        seccomp.install()


def alarm(seconds):
    """Raise `OutOfTime` in this process after so many seconds of its own work, whatever others do; 0 cancels."""

    def ring(signum, frame):
        raise OutOfTime(f"took longer than {seconds:g} s")

    signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)


def run_cells(cells, seconds):
    """Execute the cells in order, as a notebook does: a failing cell does not stop the next.

    Returns the namespace and, for each failing cell, what went wrong.
    """
    from IPython.core.inputtransformer2 import TransformerManager

    import __main__

    namespace, problems = vars(__main__), []
    namespace["get_ipython"] = lambda: None
    for number, cell in enumerate(cells):
        try:
            alarm(seconds)
            # Notebook extras such as %magic and !shell lines become harmless calls that fail on None.
            source = TransformerManager().transform_cell(cell["source"])
            file = f"<{cell['name']}, cell {number}>"
            linecache.cache[file] = len(source), None, source.splitlines(True), file  # for words about a line
            exec(compile(source, file, "exec"), namespace)
        except BaseException as problem:
            problems.append([cell["name"], f"{type(problem).__name__}: {problem}"[:300]])
        finally:
            alarm(0)
    return namespace, problems


def answer_item(item, namespace, folder):
    """Compute the answers to all cases of one item. Returns bytes."""
    import driver
    import wire
    from guard import Guard

    inputs = wire.decode((folder / "inputs" / item["name"]).read_bytes())
    run = driver.RUNS.get(item["name"], lambda student, case: student[item["function"]](**case))
    if item["view"]:  # the second box: inputs are answers to look at, and there is no code of the student
        run = lambda student, case: driver.VIEWS[item["name"]](**case)  # noqa: E731
    answers, problem, guard = [], None, Guard(item["forbidden"])
    try:
        alarm(item["seconds"])
        for case in inputs:
            with guard:
                answer = run(namespace, case)
            answers.append(wire.decode(wire.encode(answer)))
    except KeyError as error:
        missing = error.args and error.args[0] == item["function"] and item["function"] not in namespace
        problem = f"there is no function called {item['function']}" if missing else f"KeyError: {error}"
    except NotImplementedError:
        problem = "not done yet"
    except OutOfTime as error:
        problem = str(error)
    except BaseException as error:
        problem = f"{type(error).__name__}: {error}"[:300]
    finally:
        alarm(0)
    return wire.encode({"answers": answers, "problem": guard.found or problem, "refused": bool(guard.found)})


def answer_in_child(item, namespace, folder, scratch):
    """Answer an item in a process of its own, so that its death or its endless loop costs only itself."""
    path = scratch / f"answer-{item['name']}"
    child = os.fork()
    if child == 0:
        try:
            most = math.ceil(item["seconds"]) + 2  # for code that catches `OutOfTime`; it sleeps no longer than below
            resource.setrlimit(resource.RLIMIT_CPU, (most, most))
            path.write_bytes(answer_item(item, namespace, folder))
        finally:
            os._exit(0)
    deadline = time.monotonic() + WAITING * item["seconds"]
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.005)
    if not path.is_file() or path.stat().st_size > MOST_RESULT_BYTES:
        return b""
    return path.read_bytes()


def send(channel, name, data):
    """Write one frame."""
    label = name.encode()
    with os.fdopen(os.dup(channel), "wb") as pipe:
        pipe.write(struct.pack("<II", len(label), len(data)) + label + data)


def main():
    """Run one submission."""
    folder = Path(sys.argv[1])
    job = json.loads((folder / "job.json").read_text())
    sys.path[:0] = [str(folder / "lib"), str(folder)]
    give_up_rights(job)
    channel = os.dup(1)
    os.dup2(2, 1)  # the student's prints join standard error; results keep a channel of their own
    sys.stdout.reconfigure(line_buffering=True)
    scratch = Path(job["scratch"])
    os.chdir(scratch)
    for file in (folder / "files").iterdir():  # what was handed in besides the notebook
        os.symlink(file, scratch / file.name)
    import torch

    torch.set_num_threads(1)  # forking is safe only while torch has started no threads
    namespace, problems = run_cells(job["cells"], job["cell_seconds"])
    send(channel, "cells", json.dumps(problems).encode())
    for item in job["items"]:
        send(channel, item["name"], answer_in_child(item, namespace, folder, scratch))
    send(channel, "finished", b"")
    os._exit(0)  # threads and exit hooks of the student are not waited for


if __name__ == "__main__":
    main()
