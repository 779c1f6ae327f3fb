"""The errors of the pass system: those of graphs, and two that only running passes can bring."""

from helpers.graphs.errors import GraphMismatch, PassError, UnsupportedCase, source_line

__all__ = ["CheckFailed", "GraphMismatch", "NotSettled", "PassError", "UnsupportedCase", "source_line"]


class CheckFailed(PassError):
    """A check that runs after each pass was not satisfied."""


class NotSettled(PassError):
    """The passes kept changing the graph up to the bound on the number of rounds."""
