"""The errors of the pass system: those of graphs, and those that only running passes can bring."""

from helpers.graphs.errors import GraphMismatch, PassError, UnsupportedCase

__all__ = ["CheckFailed", "GraphMismatch", "NotSettled", "PassError", "UnsupportedCase", "WrongAnswer"]


class CheckFailed(PassError):
    """A check that runs after each pass was not satisfied."""


class NotSettled(PassError):
    """The passes kept changing the graph up to the bound on the number of rounds."""


class WrongAnswer(PassError):
    """The optimised network answers otherwise than the one it was made of; `pass_name` is the first pass to blame."""
