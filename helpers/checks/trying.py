"""One try at an exercise: on which input it fails, and why, in terms of the learner's own lines."""

import inspect
import linecache
import secrets
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from helpers.checks.compare import Tolerance, difference
from helpers.checks.specification import Case, Item, copy_tree


class OutOfTime(BaseException):
    """An answer took too long. No `except Exception` in an answer can swallow it."""


def first_failure(item: Item, function: Callable) -> str | None:
    """What the first case shows that the answer gets wrong; None when it is right on all of them.

    Args:
        item: the exercise; its inputs are new ones each time.
        function: the answer. It gets copies of the inputs, so that nothing it does reaches the next
            try.

    Raises:
        NotImplementedError: there is no answer yet.
    """
    cases = item.make_cases(secrets.randbits(62), hidden=True)
    return next(filter(None, (failure_on(item, function, case) for case in cases)), None)


def failure_on(item: Item, function: Callable, case: Case) -> str | None:
    """What is wrong on one case, or None."""
    if item.run is None:
        takes, names = inspect.signature(function), ", ".join(case.inputs)
        try:
            takes.bind(**case.inputs)
        except TypeError:
            return (
                f"It is called with the arguments {names}, but yours takes {takes}: keep the"
                " exercise's names."
            )
    expected, given = item.oracle(case.inputs, case.probe), copy_tree(case.inputs)
    try:
        with time_limit(item.seconds):
            answer = copy_tree(item.answer({item.function: function}, given))
    except OutOfTime:
        return (
            f"{case.label}: no answer after {item.seconds:g} seconds, so it was stopped. Does a"
            " loop never end?"
        )
    except (
        Exception,
        SystemExit,
    ) as problem:  # `sys.exit()` would end the notebook's cell without a word
        if (
            isinstance(problem, NotImplementedError) and not problem.args
        ):  # with words it is one of torch
            raise
        return f"{case.label}: {type(problem).__name__}: {problem}{place(problem, function)}"
    try:
        observed = item.view(answer, case.probe) if item.view else answer
    except Exception as problem:
        return f"{case.label}: the answer cannot be used ({type(problem).__name__}: {problem})"[
            :300
        ]
    verdict = item.compare(case, expected, observed)
    values = f"\n    {verdict.values}" if verdict.values else ""
    if verdict.share != 1.0:
        return verdict.message + values
    changed = (
        name for name in given if difference(case.inputs[name], given[name], Tolerance(0, 0))
    )
    name = None if item.run else next(changed, None)
    return (
        f"{case.label}: right, but it changes its argument {name}; work on a copy" if name else None
    )


def place(problem: BaseException, function: Callable) -> str:
    """The line of the learner's own cell in which an error arose."""
    own = getattr(getattr(inspect.unwrap(function), "__code__", None), "co_filename", None)
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(problem.__traceback__)
        if frame.filename == own
    ]
    text = linecache.getline(own, lines[-1]).strip() if lines else ""
    return f"\n    in line {lines[-1]} of your cell: {text}" if text else ""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `OutOfTime` after so many seconds, where the system can (not on Windows, and in the
    main thread only).
    """
    if (
        not hasattr(signal, "setitimer")
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return

    def ring(*signal_and_frame: object) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
