"""Answers to exercises as a learner would write them."""

from typing import NamedTuple


class Answers(NamedTuple):
    """Answers to an exercise, right ones (besides the course's own) and wrong ones.

    Each is a whole cell, the body of the function, or a tuple of what is replaced by what in `base`, in pairs.
    `base` is one more right answer, unless it is the course's own.
    """

    right: list
    wrong: list
    base: str = ""
