"""Compute the answers to one item after the other, each in a process of its own."""

import contextlib
import math
import os
import resource
import signal
import sys
import time
import traceback

import driver
import wire
from guard import Guard
from inside.timing import WAITING, OutOfTime, alarm, starved

# What an older Python raises at the sight of newer code.
NEWER = ("SyntaxError", "ImportError", "AttributeError", "TypeError")
MOST_RESULT_BYTES = 32 * 2**20


def problem_of(error, item, notebook):
    """Why there is no answer, in words: an error of its own, or what else is not there."""
    namespace = notebook.namespace
    raised = [words for cell, words in notebook.problems if cell == f"{item['name']}_solution"]
    own = [f for f, _ in traceback.walk_tb(error.__traceback__) if f.f_globals is namespace]
    needed = getattr(error, "name", None)
    if wire.undone(error) and own:
        needed = own[-1].f_code.co_name
    undefined = isinstance(error, KeyError) and error.args == (item["function"],) and not own
    if undefined:
        needed = item["function"]
    if isinstance(error, (NameError, KeyError)) and needed in notebook.missing:
        line = notebook.missing[needed]
        return f"{needed} is not defined, as this exercise forbids what is called in `{line}`"
    if needed in item["others"] and (isinstance(error, NameError) or wire.undone(error)):
        words = f"it calls {needed}, which is not there, so these points are lost with it"
        return f"{words}: tell your teacher, who can give them by hand"
    if wire.undone(error):
        return "not done yet: it still raises NotImplementedError()"
    if undefined:
        if raised and raised[-1] == "NotImplementedError":
            return "its cell raised NotImplementedError: delete the line that raises it"
        if raised:
            version = f" (grading has Python {sys.version_info.major}.{sys.version_info.minor})"
            version *= raised[-1].startswith(NEWER)
            file = " (a file of your own has to be handed in, too)"
            file *= raised[-1].startswith("ModuleNotFoundError")
            return f"its cell raised {raised[-1]}{version}{file}"
        return f"there is no function called {item['function']}"
    return wire.described(error, namespace)


def answer_item(item, inputs, notebook):
    """Compute the answers to all cases of one item. Returns bytes."""
    run = driver.RUNS.get(
        item["exercise"], lambda student, case: wire.call(student[item["function"]], case)
    )
    if item["view"]:  # the second box: inputs are answers, and there is no code of the student
        run = lambda student, case: driver.VIEWS[item["exercise"]](**case)  # noqa: E731
    answers, problem, guard = [], None, Guard(item["forbidden"])
    try:
        alarm(item["seconds"])
        for case in wire.decode(inputs):
            if case or not answers:  # without inputs there is one answer, as at home
                with guard:
                    answer = run(notebook.namespace, case)
                kept = wire.decode(wire.encode(answer))
            answers.append(kept)
    except OutOfTime as error:
        problem = str(error)
    except BaseException as error:
        problem = problem_of(error, item, notebook)
    finally:
        alarm(0)
    return wire.encode(
        {"answers": answers, "problem": guard.found or problem, "refused": bool(guard.found)}
    )


def answer_in_child(item, inputs, notebook, scratch):
    """Answer an item in a process of its own, so that its death or its endless loop costs only
    itself.
    """
    path = scratch / f"answer-{item['name']}"
    child = os.fork()
    if child == 0:
        try:
            # For code that catches `OutOfTime`; it sleeps no longer than below.
            most = math.ceil(item["seconds"]) + 2
            resource.setrlimit(resource.RLIMIT_CPU, (most, most))
            path.write_bytes(answer_item(item, inputs, notebook))
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
