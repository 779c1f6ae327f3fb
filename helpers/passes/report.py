"""What a run of the pass system did, pass by pass."""

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import fx

from helpers.passes.folder import Change, Decline

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
    kind: str
    round: int
    before: Statistics
    after: Statistics
    changed: list[Change]
    declined: list[Decline]
    milliseconds: float
    note: str = ""


@dataclass
class Report:
    """All rows of one run, in order.

    Attributes:
        rows: one `Row` per pass and round.
        failures: errors that were collected instead of raised.
    """

    rows: list[Row] = field(default_factory=list)
    failures: list[RuntimeError] = field(default_factory=list)

    @property
    def changed(self) -> list[tuple[str, str, str]]:
        """Every change as (pass, node, what)."""
        return [(row.name, change.node, change.what) for row in self.rows for change in row.changed]

    @property
    def declined(self) -> list[tuple[str, str, str]]:
        """Everything that was declined as (pass, node, reason), each once however many rounds there were."""
        rows = [(row.name, decline.node, decline.reason) for row in self.rows for decline in row.declined]
        return list(dict.fromkeys(rows))

    @property
    def milliseconds(self) -> float:
        """The time that all passes and checks took."""
        return sum(row.milliseconds for row in self.rows)

    def table(self) -> "pandas.DataFrame":
        """One line per pass and round, ready to be shown.

        Returns:
            Columns pass, round, nodes_before, nodes_after, params_before, params_after, changed, declined, ms, note.
        """
        import pandas as pd  # slow to load, and only tables need it

        lines = [
            {
                "pass": row.name,
                "round": row.round,
                "nodes_before": row.before.nodes,
                "nodes_after": row.after.nodes,
                "params_before": row.before.parameters,
                "params_after": row.after.parameters,
                "changed": len(row.changed),
                "declined": len(row.declined),
                "ms": round(row.milliseconds, 2),
                "note": row.note,
            }
            for row in self.rows
        ]
        return pd.DataFrame(lines)
