"""The errors of reading and changing graphs. Each names the pass, the node (and its line in the
model, if the graph was exported) and the reason.
"""

import os
import re

from torch import fx

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def source_line(node: fx.Node) -> str | None:
    """Where in the user's code a node came from, as "file:line": the last frame outside torch."""
    frames = _FRAME.findall(node.stack_trace or "")
    own = [frame for frame in frames if f"{os.sep}torch{os.sep}" not in frame[0]] or frames
    return ":".join(own[-1]) if own else None


class Declined(Exception):
    """This place is left as it is; the message is the reason, which the report shows."""


class PassError(RuntimeError):
    """Something went wrong in a pass, a check or the tracer (`pass_name`); `reason` says what, and
    what to do.
    """

    def __init__(self, pass_name: str, reason: str, node: fx.Node | None = None):
        super().__init__(reason)
        self.pass_name, self.reason = pass_name, reason
        self.ran_before: tuple[str, ...] = ()  # the passes before it, which the Passer knows
        self.place = ""
        if node is not None:
            line = source_line(node)
            self.place = f" at node {node.name!r}" + (f" ({line})" if line else "")

    def __str__(self) -> str:
        before = f" (after {', '.join(self.ran_before)})" if self.ran_before else ""
        return f"{self.pass_name}{self.place}{before}: {self.reason}"


class UnsupportedCase(PassError):
    """The graph or the model contains something that this pass (or tracer) cannot handle."""


class GraphMismatch(PassError):
    """The graph is malformed, or does not fit the inputs that came with it."""


class CheckFailed(PassError):
    """A check that runs after each pass was not satisfied."""


class WrongAnswer(PassError):
    """The optimised network gives other answers than the one it was made from; `pass_name` is the
    first pass to blame.
    """
