"""Runs passes, and reports what each did: once in order, or round after round until nothing
changes.

All checks run after each pass that changed something.
"""

import copy
import difflib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import fx

from helpers.graphs.errors import CheckFailed, GraphMismatch, PassError
from helpers.graphs.rewriting import Outcome
from helpers.passes.base import Pass
from helpers.passes.canonicalize import Canonicalize
from helpers.passes.constant_folding import ConstantFolding
from helpers.passes.conv_add_folding import ConvAddFolding, ConvMulFolding, LinearFolding
from helpers.passes.conv_bn_folding import ConvBnFolding
from helpers.passes.elim_identity import DeadCode, ElimIdentity
from helpers.passes.fusion import Contiguity, Fusion

# In this order, round after round, until nothing changes. Beside each, why it has its turn there:
FOLD = (
    Canonicalize,  # the patterns of all others are written in its forms
    ConstantFolding,  # makes constants that the others can remove or fold
    ElimIdentity,  # brings layer and norm together, and removes `+ 0` before it becomes a bias
    LinearFolding,  # makes layers for the next three
    ConvBnFolding,  # this one and the next two fold what directly follows a layer
    ConvAddFolding,
    ConvMulFolding,
    DeadCode,  # removes what the others have left and nothing reads
)
# Once, after FOLD, because nothing can be folded into a fused layer.
INFERENCE = (
    Fusion,
    Contiguity,  # looks for fused layers, which leave their results in another order in memory
)
PASSES = {cls.name: cls for cls in FOLD + INFERENCE}
# Looks at the graph after a pass, and raises an error if it is not satisfied.
Check = Callable[[fx.GraphModule], None]


def size_of(graph_module: fx.GraphModule) -> tuple[int, int]:
    """How many nodes a graph has, inputs and output included, and how many parameters; shared ones
    count once.
    """
    return len(graph_module.graph.nodes), sum(map(torch.Tensor.numel, graph_module.parameters()))


class Row(NamedTuple):
    """One run of one pass; `before` and `after` are sizes of the graph, see `size_of`."""

    name: str
    round: int
    before: tuple[int, int]
    after: tuple[int, int]
    result: Outcome
    milliseconds: float


@dataclass
class Report:
    """The rows of one run, in order, and the route by which the network became a graph."""

    rows: list[Row] = field(default_factory=list)
    route: str = ""

    @property
    def changed(self) -> list[tuple[str, str, str]]:
        """Every change as (pass, node, what)."""
        return [(row.name, *change) for row in self.rows for change in row.result.changed]

    @property
    def declined(self) -> list[tuple[str, str, str]]:
        """What was declined in the last run of each pass, as (pass, node, reason)."""
        last = {row.name: row.result.declined for row in self.rows}
        declined = [(name, *entry) for name, entries in last.items() for entry in entries]
        return list(dict.fromkeys(declined))

    def table(self) -> Any:
        """A table of pandas with one line per pass and round."""
        import pandas as pd  # slow to load, and only tables need it

        lines = [
            {
                "pass": row.name,
                "round": row.round,
                "nodes_before": row.before[0],
                "nodes_after": row.after[0],
                "params_before": row.before[1],
                "params_after": row.after[1],
                "changed": len(row.result.changed),
                "declined": len(row.result.declined),
                "ms": round(row.milliseconds, 2),
            }
            for row in self.rows
        ]
        return pd.DataFrame(lines)


class Passer:
    """A list of passes, and the checks that hold after each of them.

    Args:
        passes: names or `Pass` objects, in the order in which they run.
        checks: called with the graph after each pass that changed something. The graph can be
            executed then.
        rounds: 1 runs the list once. More run it until a round changes nothing; a graph that still
            changes in the last round is an error.

    Example:
        >>> report = Passer(["canonicalize", "conv_bn_folding"]).run(graph_module)
        >>> report.table()
    """

    def __init__(
        self, passes: Iterable[str | Pass], checks: Iterable[Check] = (), *, rounds: int = 1
    ):
        if rounds < 1:
            raise ValueError(f"rounds is {rounds}: a Passer runs its passes at least once")
        self.passes = [
            look_up("pass", item, PASSES)() if isinstance(item, str) else item for item in passes
        ]
        self.checks = list(checks)
        self.rounds = rounds

    def run(self, graph_module: fx.GraphModule) -> Report:
        """Run all passes on the graph, in place.

        Raises:
            PassError: a pass or a check failed, or the graph was malformed to begin with. It names
                the pass and those that ran before it. The graph is as it was.
        """
        report = Report()
        restore = _snapshot(graph_module)
        try:
            self._run(graph_module, report)
        except BaseException:  # Ctrl-C, too
            restore()
            raise
        graph_module.recompile()
        return report

    def _run(self, graph_module: fx.GraphModule, report: Report) -> None:
        size = size_of(graph_module)
        unchanged = 0
        for number in range(1, self.rounds + 1):
            for a_pass in self.passes:
                start = time.perf_counter()
                try:
                    result = self._run_one(a_pass, graph_module)
                except Exception as error:
                    raise _named(error, a_pass.name, report)  # noqa: B904  (it has its cause)
                milliseconds = 1e3 * (time.perf_counter() - start)
                before = size
                size = size_of(graph_module)
                unchanged = 0 if result.changed else unchanged + 1
                report.rows.append(Row(a_pass.name, number, before, size, result, milliseconds))
                if unchanged == len(self.passes):  # all passes have seen the graph as it is now
                    return
        if self.rounds > 1 and self.passes:
            last = [row.name for row in report.rows[-len(self.passes) :] if row.result.changed]
            raise PassError(
                "passer",
                f"the graph still changes in round {self.rounds}: allow more rounds, or find passes"
                f" that undo each other among {', '.join(last)}",
            )

    def _run_one(self, a_pass: Pass, graph_module: fx.GraphModule) -> Outcome:
        a_pass.requires(graph_module)
        result = a_pass.run(graph_module)
        if not isinstance(result, Outcome):
            returned = type(result).__name__
            raise PassError(a_pass.name, f"run() returned {returned}: it must return an Outcome")
        a_pass.ensures(graph_module)
        if result.changed:
            _lint(a_pass.name, graph_module)
            self._check(a_pass.name, graph_module)
        return result

    def _check(self, pass_name: str, graph_module: fx.GraphModule) -> None:
        if self.checks:
            graph_module.recompile()
        for check in self.checks:
            try:
                check(graph_module)
            except Exception as error:
                name = getattr(check, "__name__", type(check).__name__)
                reason = f"the check {name} is not satisfied afterwards: {error}"
                raise CheckFailed(pass_name, reason) from error


def _named(error: Exception, name: str, report: Report) -> PassError:
    """The error as a `PassError` that names the pass, and those that ran before it."""
    named = error
    if not isinstance(error, PassError):
        named = PassError(name, f"{type(error).__name__}: {error}")
        named.__cause__ = error
    named.pass_name = name
    named.ran_before = tuple(dict.fromkeys(row.name for row in report.rows))
    return named


def look_up(kind: str, name: str, table: Mapping[str, Any]) -> Any:
    """The entry of a table under a name; an error names those with a similar spelling, or all.

    Args:
        kind: what the table holds, for the error: "pass", "level".
    """
    if name not in table:
        near = difflib.get_close_matches(str(name), table, n=3, cutoff=0.5)
        choice = f"there are {', '.join(sorted(table))}"
        if near:
            choice = f"did you mean {' or '.join(near)}?"
        raise ValueError(f"there is no {kind} {name!r}: {choice}")
    return table[name]


def _snapshot(graph_module: fx.GraphModule) -> Callable[[], None]:
    """Remember a graph and what its modules hold; returns the function that puts all of it back.

    Passes write new tensors instead of changing old ones, so it is enough to remember which object
    was where. What comes back is a copy of the graph: nodes that the caller still holds are no
    longer part of it.
    """
    _lint("passer", graph_module)
    graph = copy.deepcopy(graph_module.graph)
    tables = []
    for module in graph_module.modules():
        for table in (
            module._modules,
            module._parameters,
            module._buffers,
            module._non_persistent_buffers_set,
        ):
            tables.append((table, table.copy()))

    def restore() -> None:
        for table, contents in tables:
            table.clear()
            table.update(contents)
        graph_module.graph = graph

    return restore


def _lint(pass_name: str, graph_module: fx.GraphModule) -> None:
    """Check that a graph is well formed: inputs come before users, and every target exists."""
    try:
        graph_module.graph.lint()
    except RuntimeError as error:
        raise GraphMismatch(
            pass_name, f"the graph is malformed: {error}. Erase or reconnect that node"
        ) from error
