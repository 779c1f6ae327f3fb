from collections import Counter

from torch import fx, nn

from helpers.passes.folder import Change, Decline
from helpers.passes.report import Report, Row, Statistics

BEFORE, AFTER = Statistics(Counter(call_module=3, output=1), 10), Statistics(Counter(call_module=2, output=1), 8)


def row(name: str, number: int = 1, changed: int = 0, milliseconds: float = 1.5) -> Row:
    changes = [Change(f"n{i}", "gone") for i in range(changed)]
    return Row(name, "program", number, BEFORE, AFTER, changes, [Decline("y", "because")], milliseconds, "a note")


def test_statistics_count_shared_parameters_once():
    shared = nn.Linear(3, 2)
    graph_module = fx.symbolic_trace(nn.Sequential(shared, nn.Linear(2, 3), shared))
    statistics = Statistics.of(graph_module)
    assert statistics.parameters == 8 + 9 and statistics.nodes == 5
    assert statistics.ops == {"placeholder": 1, "call_module": 3, "output": 1}


def test_changes_in_order_and_each_refusal_once():
    report = Report([row("a", changed=2), row("b"), row("a", 2, changed=1)])
    assert report.changed == [("a", "n0", "gone"), ("a", "n1", "gone"), ("a", "n0", "gone")]
    assert report.declined == [("a", "y", "because"), ("b", "y", "because")]
    assert report.milliseconds == 4.5


def test_the_table():
    (line,) = Report([row("a", changed=2)]).table().to_dict("records")
    expected = {"pass": "a", "round": 1, "nodes_before": 4, "nodes_after": 3, "params_before": 10, "params_after": 8}
    assert line == expected | {"changed": 2, "declined": 1, "ms": 1.5, "note": "a note"}
    assert Report().table().empty and Report().changed == []
