import pytest
import torch
import torch.nn.functional as F

from helpers.graphs.patterns import traced
from helpers.passes.folder import Pass
from helpers.passes.fuser import Fuser
from helpers.passes.passer import Passer
from tests.passes.graphs import graph_of


class FuseSilu(Fuser):
    name = "fuse_silu"

    def build_pattern(self):
        return traced(lambda x: x * torch.sigmoid(x))

    def may_fuse(self, match):
        return "the input has a bad name" if str(match["x"]) == "bad" else None

    def make_op(self, match):
        return match.graph_module.graph.call_function(F.silu, (match["x"],))


def test_a_fuser_changes_declines_and_reports():
    graph_module = graph_of(
        lambda net, x, bad: (x * torch.sigmoid(x), torch.sigmoid(bad) * bad, (s := torch.sigmoid(-x)) * -x, s)
    )
    inputs = torch.randn(2, 4, dtype=torch.float64).unbind()
    expected = graph_module(*inputs)
    report = Passer([FuseSilu()]).run(graph_module)
    assert report.changed == [("fuse_silu", "mul", "sigmoid + mul became silu")]
    assert report.declined == [("fuse_silu", "mul_1", "the input has a bad name")]
    for one, other in zip(graph_module(*inputs), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=0)


def test_an_intermediate_in_use_is_declined():
    graph_module = graph_of(lambda net, x: (x * (s := torch.sigmoid(x)), s))
    report = Passer([FuseSilu()]).run(graph_module)
    assert (report.changed, report.declined) == ([], [("fuse_silu", "mul", "sigmoid is also returned")])


@pytest.mark.parametrize("missing", ["build_pattern", "make_op"])
def test_a_fuser_without_its_parts_says_what_is_missing(missing):
    parts = {"name": "half", "build_pattern": FuseSilu.build_pattern, "make_op": FuseSilu.make_op}
    half = type("Half", (Fuser,), {key: part for key, part in parts.items() if key != missing})()
    assert isinstance(half, Pass)
    with pytest.raises(NotImplementedError, match=missing):
        half.run(graph_of(lambda net, x: x * torch.sigmoid(x)))
