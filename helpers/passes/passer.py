"""Runs passes: once in order, or round after round until nothing changes. All checks run after each pass."""

import itertools
import time
from collections.abc import Callable, Iterable

import torch
from torch import fx

from helpers.passes import registry
from helpers.passes.errors import CheckFailed, GraphMismatch, NotSettled, PassError
from helpers.passes.folder import Pass, PassResult
from helpers.passes.report import Report, Row, Statistics

# Looks at the graph after a pass, and raises a ValueError, RuntimeError or AssertionError if it is not satisfied.
Check = Callable[[fx.GraphModule], None]


class Passer:
    """A list of passes, and the checks that hold after each of them.

    Args:
        passes: names or `Pass` objects, in the order in which they run.
        checks: called with the graph after each pass that changed something. The graph can be executed then.
        rounds: 1 runs the list once. More run it until a round changes nothing; a graph that still changes in the last
            round is an error.
        collect_failures: a pass that fails is undone, noted in `report.failures`, and the next one goes on. By default
            the first failure undoes everything and is raised.
        undo: put the graph back when something fails. A caller who throws the graph away then can save the time.
        target: the device type that target-bound passes are chosen by; by default that of the first parameter.

    Example:
        >>> report = Passer(["canonicalize", "conv_bn_folding"]).run(graph_module)
        >>> report.table()
    """

    def __init__(
        self,
        passes: Iterable[str | Pass],
        checks: Iterable[Check] = (),
        *,
        rounds: int = 1,
        collect_failures: bool = False,
        undo: bool = True,
        target: str | None = None,
    ):
        if rounds < 1:
            raise ValueError(f"rounds is {rounds}: a Passer runs its passes at least once")
        self.passes = registry.resolve(passes)
        self.checks = list(checks)
        self.rounds, self.collect_failures, self.target = rounds, collect_failures, target
        self.undo = undo

    def add_check(self, check: Check) -> None:
        """Add a check to those that already run after each pass."""
        self.checks.append(check)

    def run(self, graph_module: fx.GraphModule) -> Report:
        """Run all passes on the graph, in place.

        Raises:
            PassError: a pass or a check failed, or the graph was malformed to begin with. The graph is as it was.
        """
        target = self.target or _device_type(graph_module)
        _lint("passer", graph_module)
        report, before = Report(), Snapshot(graph_module) if self.undo else None
        try:
            for number in range(1, self.rounds + 1):
                self._round(graph_module, number, target, report)
                if self._is_settled(report):
                    break
            else:
                if self.rounds > 1:
                    raise _not_settled(report, self.rounds)
        except Exception:
            if before is not None:
                before.restore()
            raise
        graph_module.recompile()
        return report

    def _is_settled(self, report: Report) -> bool:
        """Whether each pass has looked at the graph since it last changed, and found nothing to do."""
        latest = report.rows[-len(self.passes) :] if self.passes else []
        return not any(row.changed and row.kind != "debug" for row in latest)

    def _round(self, graph_module: fx.GraphModule, number: int, target: str, report: Report) -> None:
        """Run every pass once, or as many as it takes to know that nothing changes any more."""
        statistics = report.rows[-1].after if report.rows else Statistics.of(graph_module)
        for a_pass in self.passes:
            if number > 1 and self._is_settled(report):
                return
            if not registry.applies(a_pass, target):
                note = f"skipped: bound to {', '.join(a_pass.targets)}, and this is {target}"
                report.rows.append(Row(a_pass.name, a_pass.kind, number, statistics, statistics, [], [], 0.0, note))
                continue
            start = time.perf_counter()
            result, note = self._attempt(a_pass, graph_module, report)
            milliseconds = 1e3 * (time.perf_counter() - start)
            after = Statistics.of(graph_module) if result.changed else statistics
            what = (result.changed, result.declined, milliseconds, note)
            report.rows.append(Row(a_pass.name, a_pass.kind, number, statistics, after, *what))
            statistics = after

    def _attempt(self, a_pass: Pass, graph_module: fx.GraphModule, report: Report) -> tuple[PassResult, str]:
        """Run one pass and the checks; a collected failure undoes the pass and becomes a note."""
        if not self.collect_failures:
            return self._run_one(a_pass, graph_module), ""
        before = Snapshot(graph_module)
        try:
            return self._run_one(a_pass, graph_module), ""
        except Exception as error:
            before.restore()
            report.failures.append(error)
            return PassResult(), f"failed and undone: {error}"

    def _run_one(self, a_pass: Pass, graph_module: fx.GraphModule) -> PassResult:
        a_pass.requires(graph_module)
        result = a_pass.run(graph_module)
        if not isinstance(result, PassResult):
            raise PassError(a_pass.name, f"run() returned {type(result).__name__}: it must return a PassResult")
        a_pass.ensures(graph_module)
        if result.changed and a_pass.kind != "debug":
            _lint(a_pass.name, graph_module)
            self._check(a_pass, graph_module)
        return result

    def _check(self, a_pass: Pass, graph_module: fx.GraphModule) -> None:
        if self.checks:
            graph_module.recompile()
        for check in self.checks:
            name = getattr(check, "__name__", type(check).__name__)
            try:
                check(graph_module)
            except (ValueError, RuntimeError, AssertionError) as error:
                raise CheckFailed(a_pass.name, f"the check {name} is not satisfied afterwards: {error}") from error


class Snapshot:
    """Remembers the nodes of a graph and what each module of the tree holds, to go back to when a pass fails.

    Passes write new tensors instead of changing old ones, so it is enough to remember which object stood where.

    Example:
        >>> before = Snapshot(graph_module)
        >>> graph_module.graph.erase_node(node)
        >>> before.restore()
    """

    def __init__(self, graph_module: fx.GraphModule):
        self._graph_module = graph_module
        self._codegen = graph_module.graph._codegen
        self._copies: dict[fx.Node, fx.Node] = {}
        self._graph = fx.Graph()
        result = self._graph.graph_copy(graph_module.graph, self._copies, return_output_node=True)
        if result is not None:
            value, output = result
            self._copies[output] = self._graph.output(value, output.type)
            self._copies[output].meta = dict(output.meta)
        self._tables = [
            (table, dict(table))
            for module in graph_module.modules()
            for table in (module._modules, module._parameters, module._buffers)
        ]

    def restore(self) -> None:
        """Put everything back. The graph is a copy: nodes that the caller still holds are no longer part of it."""
        for table, contents in self._tables:
            table.clear()
            table.update(contents)
        self._graph.set_codegen(self._codegen)
        self._graph_module.graph = self._graph
        self._graph_module.recompile()


def _lint(pass_name: str, graph_module: fx.GraphModule) -> None:
    """A well-formed graph: inputs before users, nothing dangling, every target exists."""
    try:
        graph_module.graph.lint()
    except RuntimeError as error:
        raise GraphMismatch(pass_name, f"the graph is malformed: {error}. Erase or reconnect that node") from error


def _device_type(graph_module: fx.GraphModule) -> str:
    tensors = itertools.chain(graph_module.parameters(), graph_module.buffers())
    return next((tensor.device.type for tensor in tensors), torch.get_default_device().type)


def _not_settled(report: Report, number: int) -> NotSettled:
    restless = ", ".join(row.name for row in report.rows if row.round == number and row.changed)
    advice = f"allow more rounds, or find passes that undo each other among {restless}"
    return NotSettled("passer", f"the graph still changes in round {number}: {advice}")
