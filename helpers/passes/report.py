"""What a run of the pass system did, pass by pass."""

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import fx

from helpers.passes.folder import PassResult

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Statistics:
    """The size of a graph: nodes by op ("call_module", "get_attr", ...), and parameters (shared ones count once)."""

    ops: Counter
    parameters: int

    @property
    def nodes(self) -> int:
        """All nodes, inputs and output included."""
        return self.ops.total()

    @classmethod
    def of(cls, graph_module: fx.GraphModule) -> "Statistics":
        """Count a graph."""
        ops = Counter(node.op for node in graph_module.graph.nodes)
        return cls(ops, sum(parameter.numel() for parameter in graph_module.parameters()))


@dataclass(frozen=True)
class Row:
    """One run of one pass."""

    name: str
    round: int
    before: Statistics
    after: Statistics
    result: PassResult
    milliseconds: float


@dataclass
class Report:
    """All rows of one run, in order."""

    rows: list[Row] = field(default_factory=list)

    @property
    def changed(self) -> list[tuple[str, str, str]]:
        """Every change as (pass, node, what)."""
        return [(row.name, change.node, change.what) for row in self.rows for change in row.result.changed]

    @property
    def declined(self) -> list[tuple[str, str, str]]:
        """Everything that was declined as (pass, node, reason), each once however many rounds there were."""
        rows = [(row.name, decline.node, decline.reason) for row in self.rows for decline in row.result.declined]
        return list(dict.fromkeys(rows))

    def table(self) -> "pandas.DataFrame":
        """One line per pass and round, ready to be shown."""
        import pandas as pd  # slow to load, and only tables need it

        sizes = ["nodes_before", "nodes_after", "params_before", "params_after"]
        lines = [
            (row.name, row.round, row.before.nodes, row.after.nodes, row.before.parameters, row.after.parameters)
            + (len(row.result.changed), len(row.result.declined), round(row.milliseconds, 2))
            for row in self.rows
        ]
        return pd.DataFrame(lines, columns=["pass", "round", *sizes, "changed", "declined", "ms"])
