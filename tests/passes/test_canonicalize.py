import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers.graphs.tracing import trace
from helpers.passes import Passer
from tests.passes.equivalence import differences
from tests.passes.zoo import Net

RELUS = [nn.ReLU(), torch.relu, F.relu, lambda x: x.relu(), lambda x: F.relu(input=x), lambda x: torch.ops.aten.relu(x)]


def canonical(model: nn.Module, *inputs: torch.Tensor, route: str = "fx"):
    graph_module = trace(model.eval(), inputs, route)
    Passer(["canonicalize", "dead_code"]).run(graph_module)
    return [node for node in graph_module.graph.nodes if node.op.startswith("call_")], graph_module


@pytest.mark.parametrize("relu", RELUS[:5])
@pytest.mark.parametrize("route", ["fx", "export"])
def test_all_spellings_of_relu_reach_one_form(relu, route):
    model = nn.Sequential(relu) if isinstance(relu, nn.Module) else Net(lambda m, x: relu(x))
    (node,), _ = canonical(model, torch.randn(2, 3), route=route)
    assert node.target is F.relu and len(node.args) == 1 and not node.kwargs


@pytest.mark.parametrize("route", ["fx", "export"])
def test_layers_of_both_routes_are_modules_of_the_same_name_and_tensors(route):
    model = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2, groups=1), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2))
    nodes, graph_module = canonical(model, torch.randn(1, 3, 5, 5), route=route)
    modules = [graph_module.get_submodule(node.target) for node in nodes if node.op == "call_module"]
    assert [type(module) for module in modules] == [nn.Conv2d, nn.BatchNorm2d, nn.Linear]
    assert repr(modules[0]) == repr(model[0])
    state = graph_module.state_dict()
    assert state.keys() == model.state_dict().keys()
    assert all(torch.equal(state[key], value) for key, value in model.state_dict().items())


@pytest.mark.parametrize("limits", [(-1, 6), (0, 5), (0.5, 6)])
def test_only_the_limits_0_and_6_make_a_relu6(limits):
    (node,), _ = canonical(Net(lambda m, x: F.hardtanh(x, *limits)), torch.randn(2, 3))
    assert node.target is F.hardtanh
    (node,), _ = canonical(Net(lambda m, x: F.hardtanh(x, 0, 6)), torch.randn(2, 3))
    assert node.target is F.relu6


def written(write):
    """A network that writes into a sum; only readers of the result know of it, as long as `write` gives no alias."""
    return Net(lambda m, x: write(x.exp()))


def only_the_result(y):
    kept = y * 2
    y.add_(3)
    return y + kept


def a_view_from_before(y):
    view = y[:1]
    y.add_(3)
    return y, view + 1


def a_smaller_target(y):
    return y.sum(0, keepdim=True).mul_(2.0).sub_(y[:1])


def a_wider_operand(y):
    return y.float().exp().mul_(y[:1])


IN_PLACE = {
    a_wider_operand: False,
    only_the_result: True,
    a_view_from_before: False,
    a_smaller_target: True,
}


@pytest.mark.parametrize("write", IN_PLACE)
def test_arithmetic_in_place_becomes_ordinary_when_nobody_can_tell(write):
    model, x = written(write).double(), torch.randn(2, 3).double()
    nodes, graph_module = canonical(model, x)
    assert any(str(node.target).endswith("_") for node in nodes) != IN_PLACE[write]
    assert differences(model, graph_module, x) == []


def test_sizes_become_numbers_where_the_network_fixes_them():
    def run(m, x):
        y = m.conv(x)
        z = m.fc(x)
        return y.size(1) * 1000 + z.shape[-1] * 100 + z.size(1) * 10 + y.dim() + x.shape[0] * 0.5 + m.w.shape[1]

    model = Net(run, conv=nn.Conv2d(3, 4, 1), fc=nn.Linear(6, 5), w=torch.zeros(2, 7))
    nodes, graph_module = canonical(model, torch.randn(2, 3, 6, 6))
    sizes = [(str(node.args[0]), node.args[1]) for node in nodes if node.target == "size"]
    assert sizes == [("fc", 1), ("x", 0)]
    assert graph_module(torch.zeros(8, 3, 6, 6)) == 4000 + 500 + 30 + 4 + 4 + 7


def test_an_image_without_batch_has_its_channels_first():
    model = Net(lambda m, x: (y := m.conv(x)).size(0) * 100 + y.size(1), conv=nn.Conv2d(3, 4, 1))
    nodes, graph_module = canonical(model, torch.randn(3, 6, 6))
    assert [node.args[1] for node in nodes if node.target == "size"] == [1]
    assert graph_module(torch.zeros(3, 8, 6)) == 408


def test_a_layer_that_may_compute_something_else_fixes_no_size():
    layer = nn.Linear(6, 5)
    layer.register_forward_hook(lambda module, args, result: result[..., :2])
    nodes, graph_module = canonical(Net(lambda m, x: m.fc(x).size(1), fc=layer), torch.randn(2, 6))
    assert graph_module(torch.zeros(2, 6)) == 2 and nodes[-1].target == "size"
