"""One try at an exercise: on which input it fails, and why, in terms of the learner's own lines."""

import _thread
import functools
import inspect
import linecache
import re
import secrets
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from helpers.checks.compare import Tolerance, difference
from helpers.checks.specification import Case, Item, Tree, copy_tree

SHOWN_NUMBERS = 12  # of a tensor
SHOWN_CHARACTERS = 80  # of one input
# Windows has no alarm; there this signal is the one that nothing else uses.
ALARM = getattr(signal, "SIGALRM", None) or signal.SIGBREAK
NOTHING_RETURNED = "Your function returned None: is a return missing?"
DECIMAL = re.compile(r"(?<![\w.])\d+\.\d+(e-?\d+)?(?![\w.])")  # unless part of a name


class OutOfTime(BaseException):
    """An answer took too long. No `except Exception` in an answer can swallow it."""


@dataclass(frozen=True)
class Failure:
    """What is wrong with an answer: in words, on which case, and what it answered there; and its
    own hint where the exercise's would not fit.
    """

    message: str
    case: Case | None = None
    observed: Tree = None
    hint: str = ""


def first_failure(item: Item, function: Callable) -> Failure | None:
    """What is wrong on the first case that fails; None when the answer is right on all of them.

    Args:
        item: the exercise; its inputs are new ones each time.
        function: the answer. It gets copies of the inputs, so that nothing it does reaches the next
            try.

    Raises:
        NotImplementedError: there is no answer yet.
    """
    cases = item.make_cases(secrets.randbits(62), hidden=True)
    return next(filter(None, (failure_on(item, function, case) for case in cases)), None)


def failure_on(item: Item, function: Callable, case: Case) -> Failure | None:
    """What is wrong on one case, or None."""
    if item.run is None:
        takes = inspect.signature(function)
        try:
            takes.bind(**case.inputs)
        except TypeError:
            names = ", ".join(case.inputs)
            return Failure(
                f"It is called with the arguments {names}, but yours takes {takes}: keep the"
                " exercise's names."
            )
    said = all(str(value) in case.label for value in case.inputs.values())
    where = case.label + ("" if said else in_words(case.inputs))
    expected = item.oracle(case.inputs, case.probe)
    given = copy_tree(case.inputs)
    returned: list[Any] = []  # what the function gave back last

    @functools.wraps(function)
    def watched(*args: Any, **kwargs: Any) -> Any:
        returned[:] = [function(*args, **kwargs)]
        return returned[0]

    try:
        with time_limit(item.seconds):
            answer = copy_tree(item.answer({item.function: watched}, given))
    except OutOfTime:
        return Failure(f"{where}: stopped after {item.seconds:g} seconds. Does a loop never end?")
    except (Exception, SystemExit) as problem:  # `sys.exit()` would end the cell without a word
        if isinstance(problem, NotImplementedError) and not problem.args:  # torch's have a text
            raise
        raised = f"{type(problem).__name__}: {problem}"
        message = f"{where}: {raised}{place(problem, function)}"
        if returned and returned[0] is None and "NoneType" in raised:
            message += f". {NOTHING_RETURNED}"
        return Failure(message, case, {"raised": raised})
    if answer is None and expected is not None:
        return Failure(f"{where}: the answer is None. {NOTHING_RETURNED}")
    try:
        observed = item.view(answer, case.probe) if item.view else answer
        verdict = item.compare(case, expected, observed)
    except Exception as problem:
        unusable = f"{where}: the answer cannot be used ({type(problem).__name__}: {problem})"
        return Failure(unusable[:400])
    if verdict.share != 1.0:
        message = verdict.message.replace(case.label, where, 1)
        if verdict.values:
            message += f"\n    {verdict.values}"
        return Failure(message, case, observed)
    if item.run is None:
        for name, value in given.items():
            if difference(case.inputs[name], value, Tolerance(0, 0)):
                return Failure(
                    f"{case.label}: right, but it changes its argument {name}; work on a copy",
                    hint="Begin with a copy, x.clone(): x[i] = 0 and x.mul_(2) change x itself.",
                )
    return None


def in_words(inputs: dict[str, Tree]) -> str:
    """The inputs in brackets, dots for a long one; nothing where all would fill the screen."""
    parts = []
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor):
            value = value.tolist() if value.numel() <= SHOWN_NUMBERS else None
        text = re.sub(DECIMAL, lambda number: f"{float(number[0]):.4g}", repr(value))
        if value is None or len(text) > SHOWN_CHARACTERS:
            text = "..."
        parts.append(f"{name}={text}")
    text = ", ".join(parts)
    return f" ({text})" if parts and len(text) <= 2 * SHOWN_CHARACTERS else ""


def same_mistake(item: Item, function: Callable, mistaken: Callable) -> bool:
    """Whether a known mistake is right and wrong on the same cases as the learner, with the same
    answers.
    """
    wrong = False
    for case in item.make_cases(secrets.randbits(62), hidden=True):
        failures = [failure_on(item, one, case) for one in (function, mistaken)]
        if failures == [None, None]:
            continue
        if None in failures or None in (failures[0].case, failures[1].case):
            return False
        if difference(failures[1].observed, failures[0].observed, item.tolerance):
            return False
        wrong = True
    return wrong


def place(problem: BaseException, function: Callable) -> str:
    """The line of the learner's own cell in which an error arose."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    own = getattr(code, "co_filename", None)
    frames = traceback.extract_tb(problem.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == own]
    text = linecache.getline(own, lines[-1]).strip() if lines else ""
    return f"\n    in line {lines[-1]} of your cell: {text}" if text else ""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `OutOfTime` after so many seconds, in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*signal_and_frame: object) -> None:
        raise OutOfTime

    before = signal.signal(ALARM, ring)
    stop = _alarm_clock(seconds)
    try:
        yield
    finally:
        stop()
        signal.signal(ALARM, before)


def _alarm_clock(seconds: float) -> Callable[[], object]:
    """Set a clock that rings `ALARM`; the function that stops it."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)
        return functools.partial(signal.setitimer, signal.ITIMER_REAL, 0)
    timer = threading.Timer(seconds, _thread.interrupt_main, [ALARM])
    timer.daemon = True
    timer.start()
    return timer.cancel
