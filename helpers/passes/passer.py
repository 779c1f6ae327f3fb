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

from torch import fx

from helpers.graphs.errors import CheckFailed, GraphMismatch, PassError
from helpers.passes.canonicalize import Canonicalize
from helpers.passes.constant_folding import ConstantFolding
from helpers.passes.conv_add_folding import (
    ConvAddFolding,
    ConvMulFolding,
    LinearFolding,
    PadFolding,
)
from helpers.passes.conv_bn_folding import ConvBnFolding
from helpers.passes.elim_identity import DeadCode, ElimIdentity
from helpers.passes.folder import Pass, PassResult
from helpers.passes.fusion import Contiguity, Fusion

FOLD = (
    Canonicalize,
    ConstantFolding,
    ElimIdentity,
    PadFolding,
    LinearFolding,
    ConvBnFolding,
    ConvAddFolding,
)
FOLD += (ConvMulFolding, DeadCode)
INFERENCE = (Fusion, Contiguity)
PASSES = {cls.name: cls for cls in FOLD + INFERENCE}
# Looks at the graph after a pass, and raises a ValueError, RuntimeError or AssertionError if it is
# not satisfied.
Check = Callable[[fx.GraphModule], None]


def size_of(graph_module: fx.GraphModule) -> tuple[int, int]:
    """Nodes of a graph, inputs and output included, and its parameters; shared ones count once."""
    return len(graph_module.graph.nodes), sum(p.numel() for p in graph_module.parameters())


class Row(NamedTuple):
    """One run of one pass."""

    name: str
    round: int
    before: tuple[int, int]
    after: tuple[int, int]
    result: PassResult
    milliseconds: float


@dataclass
class Report:
    """All rows of one run, in order."""

    rows: list[Row] = field(default_factory=list)

    @property
    def changed(self) -> list[tuple[str, str, str]]:
        """Every change as (pass, node, what)."""
        return [(row.name, *change) for row in self.rows for change in row.result.changed]

    @property
    def declined(self) -> list[tuple[str, str, str]]:
        """What was declined in the end as (pass, node, reason): what a pass declined at first, a
        later one may do.
        """
        last = {row.name: row for row in self.rows}
        return list(
            dict.fromkeys(
                (row.name, *declined) for row in last.values() for declined in row.result.declined
            )
        )

    def table(self) -> Any:
        """A table of pandas with one line per pass and round."""
        import pandas as pd  # slow to load, and only tables need it

        sizes = ["nodes_before", "nodes_after", "params_before", "params_after"]
        lines = [
            (row.name, row.round, row.before[0], row.after[0], row.before[1], row.after[1])
            + (len(row.result.changed), len(row.result.declined), round(row.milliseconds, 2))
            for row in self.rows
        ]
        return pd.DataFrame(lines, columns=["pass", "round", *sizes, "changed", "declined", "ms"])


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
            known("pass", item, PASSES)() if isinstance(item, str) else item for item in passes
        ]
        self.checks, self.rounds = list(checks), rounds

    def run(self, graph_module: fx.GraphModule) -> Report:
        """Run all passes on the graph, in place.

        Raises:
            PassError: a pass or a check failed, or the graph was malformed to begin with. The graph
                is as it was.
        """
        report, restore = Report(), _snapshot(graph_module)
        try:
            self._run(graph_module, report)
        except BaseException:  # Ctrl-C, too
            restore()
            raise
        graph_module.recompile()
        return report

    def _run(self, graph_module: fx.GraphModule, report: Report) -> None:
        size, settled = size_of(graph_module), 0
        for number in range(1, self.rounds + 1):
            for a_pass in self.passes:
                start = time.perf_counter()
                result = self._run_one(a_pass, graph_module)
                milliseconds = 1e3 * (time.perf_counter() - start)
                after = size_of(graph_module) if result.changed else size
                report.rows.append(Row(a_pass.name, number, size, after, result, milliseconds))
                size = after
                settled = 0 if result.changed else settled + 1
                if settled == len(
                    self.passes
                ):  # each pass has looked at the graph since it last changed
                    return
        if self.rounds > 1 and self.passes:
            restless = ", ".join(
                row.name for row in report.rows if row.round == self.rounds and row.result.changed
            )
            advice = f"allow more rounds, or find passes that undo each other among {restless}"
            raise PassError("passer", f"the graph still changes in round {self.rounds}: {advice}")

    def _run_one(self, a_pass: Pass, graph_module: fx.GraphModule) -> PassResult:
        a_pass.requires(graph_module)
        result = a_pass.run(graph_module)
        if not isinstance(result, PassResult):
            raise PassError(
                a_pass.name, f"run() returned {type(result).__name__}: it must return a PassResult"
            )
        a_pass.ensures(graph_module)
        if not result.changed:
            return result
        _lint(a_pass.name, graph_module)
        if self.checks:
            graph_module.recompile()
        for check in self.checks:
            name = getattr(check, "__name__", type(check).__name__)
            try:
                check(graph_module)
            except (ValueError, RuntimeError, AssertionError) as error:
                raise CheckFailed(
                    a_pass.name, f"the check {name} is not satisfied afterwards: {error}"
                ) from error
        return result


def known(kind: str, name: str, table: Mapping[str, Any]) -> Any:
    """What a table has under a name; an error lists the near matches of a misspelt one, or all
    there is.
    """
    if name not in table:
        near = difflib.get_close_matches(name, table, n=3, cutoff=0.5)
        choice = (
            f"did you mean {' or '.join(near)}?"
            if near
            else f"there are {', '.join(sorted(table))}"
        )
        raise ValueError(f"there is no {kind} {name!r}: {choice}")
    return table[name]


def _snapshot(graph_module: fx.GraphModule) -> Callable[[], None]:
    """What puts a graph back, and what each module of its tree holds, when a pass has failed.

    Passes write new tensors instead of changing old ones, so it is enough to remember which object
    stood where. The graph is a copy: nodes that the caller still holds are no longer part of it.
    """
    _lint("passer", graph_module)
    graph, tables = copy.deepcopy(graph_module.graph), []
    for module in graph_module.modules():
        tables += [
            (one, dict(one)) for one in (module._modules, module._parameters, module._buffers)
        ]

    def restore() -> None:
        for table, contents in tables:
            table.clear()
            table.update(contents)
        graph_module.graph = graph

    return restore


def _lint(pass_name: str, graph_module: fx.GraphModule) -> None:
    """A well-formed graph: inputs before users, nothing dangling, every target exists."""
    try:
        graph_module.graph.lint()
    except RuntimeError as error:
        raise GraphMismatch(
            pass_name, f"the graph is malformed: {error}. Erase or reconnect that node"
        ) from error
