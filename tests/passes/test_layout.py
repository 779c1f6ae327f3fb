import pytest
import torch
from torch import fx, nn

from helpers import passes
from helpers.graphs.tracing import trace
from helpers.passes.passer import Passer
from helpers.passes.type_inference import describe
from tests.passes.graphs import network


class Net(nn.Module):
    """A residual block that ends in a linear layer; `sin` is supported in no other form and cuts it in two."""

    def __init__(self, cut=False):
        super().__init__()
        self.stem, self.one, self.two = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 1)
        self.head, self.cut = nn.Linear(8, 4), cut

    def forward(self, x):
        x = torch.relu(self.stem(x))
        y = torch.sin(self.one(x)) if self.cut else self.one(x)
        x = x + self.two(y)
        return self.head(torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1))


X = torch.randn(2, 3, 8, 8)


def converted(net, name, x=X):
    graph_module = passes.optimize(net.eval(), x)[0]
    report = Passer([name]).run(graph_module)
    return graph_module, report


def casts(graph_module):
    """The casts, as what they cast."""
    nodes = graph_module.graph.nodes
    return [str(node.args[0]) for node in nodes if node.target in ("to", "contiguous")]


def dtypes(graph_module):
    found = {}

    class Watch(fx.Interpreter):
        def run_node(self, node):
            value = super().run_node(node)
            found[node.name] = describe(value)
            return value

    Watch(graph_module).run(X)
    return found


@pytest.mark.parametrize(("name", "last"), [("to_bfloat16", "head"), ("to_channels_last", "adaptive_avg_pool2d")])
def test_casts_stand_only_at_the_borders(name, last):
    graph_module, report = converted(Net(), name)
    assert casts(graph_module) == ["x", last]
    assert report.changed[-1][2] == "1 casts forth, 1 back"
    graph_module, report = converted(Net(cut=True), name)
    assert casts(graph_module) == ["x", "one", "sin", last]
    assert report.changed[-1][2] == "2 casts forth, 2 back"


def test_bfloat16_gives_what_a_bfloat16_network_gives_bit_for_bit():
    net = Net()
    graph_module, _ = converted(net, "to_bfloat16")
    y = graph_module(X)
    assert y.dtype == torch.float32
    folded = passes.optimize(net.eval(), X)[0].to(torch.bfloat16)
    assert torch.equal(y, folded(X.to(torch.bfloat16)).float())
    assert not torch.equal(y, net(X))


def test_the_values_really_are_in_the_other_form():
    shapes = dtypes(converted(Net(), "to_bfloat16")[0])
    assert {shapes[name] for name in ("stem", "relu", "one", "two", "add")} == {"bfloat16 2x8x8x8"}
    assert (shapes["head"], shapes["output"]) == ("bfloat16 2x4", "float32 2x4")
    shapes = dtypes(converted(Net(), "to_channels_last")[0])
    assert {shapes[name] for name in ("stem", "relu", "one", "two", "add")} == {"float32 2x8x8x8 channels_last"}
    assert shapes["output"] == "float32 2x4"


def test_one_value_is_cast_once():
    net = network(lambda net, x: net.one(x) + net.two(x), one=nn.Conv2d(3, 4, 1), two=nn.Conv2d(3, 4, 1))
    graph_module, report = converted(net, "to_bfloat16")
    assert casts(graph_module) == ["x", "add"]
    assert report.changed[-1][2] == "1 casts forth, 1 back"


def test_operands_of_another_kind_keep_their_operation():
    net = network(lambda net, x: net.conv(x) * (x[:, :1] > 0), conv=nn.Conv2d(3, 4, 1))
    graph_module, _ = converted(net, "to_bfloat16")
    assert casts(graph_module) == ["x", "conv"]
    net = network(lambda net, x: net.conv(x.transpose(2, 3)), conv=nn.Conv2d(3, 4, 1))
    assert converted(net, "to_channels_last")[1].changed == []  # a third order of axes, which is nobody's business


def test_where_both_orders_are_the_same_there_is_nothing_to_gain():
    net = network(lambda net, x: net.conv(x), conv=nn.Conv2d(3, 4, 1))
    assert converted(net, "to_channels_last", torch.randn(2, 3, 1, 1))[1].changed == []


def test_weights_are_in_the_other_form_and_casts_know_where_they_come_from():
    graph_module, _ = converted(Net(), "to_channels_last")
    assert graph_module.stem.weight.is_contiguous(memory_format=torch.channels_last)
    graph_module, _ = converted(Net(), "to_bfloat16")
    (back,) = graph_module.graph.find_nodes(op="call_module", target="head")[0].users
    assert back.target == "to" and list(back.meta["nn_module_stack"]) == ["head"]


def test_channels_last_changes_no_answer():
    net = Net().double()
    graph_module, _ = converted(net, "to_channels_last", X.double())
    torch.testing.assert_close(graph_module(X.double()), net(X.double()), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["to_bfloat16", "to_channels_last"])
def test_annotations_agree_and_a_second_run_changes_nothing(name):
    graph_module, _ = converted(Net(cut=True), name)
    renewed = {node for _, node, _ in Passer(["type_inference"]).run(graph_module).changed}
    assert renewed <= {"output"}  # the tracer leaves that one open
    assert Passer([name]).run(graph_module).changed == []


def test_the_callers_weights_and_other_calls_of_a_module_stay():
    net = network(
        lambda net, x: (net.conv(x), torch.sin(net.conv(x.double().float())), net.conv.weight.sum()),
        conv=nn.Conv2d(3, 3, 1),
    )
    graph_module = trace(net, (X,))
    shared = graph_module.conv
    Passer(["to_bfloat16"]).run(graph_module)
    assert shared.weight.dtype == net.conv.weight.dtype == torch.float32
    expected = network(lambda net, x: net.conv(x), conv=net.conv)
    for one, other in zip(graph_module(X)[:2], (net(X)[0], net(X)[1]), strict=True):
        torch.testing.assert_close(one, other, rtol=0.05, atol=0.05)
    assert torch.equal(graph_module(X)[2], expected.conv.weight.sum())


def test_a_group_without_a_heavy_operation_is_not_worth_its_casts():
    graph_module = trace(network(lambda net, x: torch.sin(nn.functional.relu(x) + x)), (X,))
    assert Passer(["to_bfloat16"]).run(graph_module).changed == []


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_are_left_alone(dtype):
    graph_module = trace(Net().to(dtype).eval(), (X.to(dtype),))
    assert Passer(["to_bfloat16"]).run(graph_module).changed == []


def test_a_pass_that_is_bound_to_a_gpu_is_skipped_on_a_cpu_with_a_note():
    graph_module, report = converted(Net(), "to_float16")
    assert report.rows[0].note == "skipped: bound to cuda, and this is cpu"
    assert casts(graph_module) == []
    report = Passer(["to_float16"], target="cuda").run(graph_module)
    assert report.changed[-1][2] == "1 casts forth, 1 back"
    assert graph_module.head.weight.dtype == torch.float16


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_it_runs():
    net = Net().cuda()
    graph_module, report = converted(net, "to_float16", X.cuda())
    assert report.rows[0].note == ""
    torch.testing.assert_close(graph_module(X.cuda()), net(X.cuda()), rtol=0.02, atol=0.02)
