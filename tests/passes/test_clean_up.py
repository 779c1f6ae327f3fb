"""The passes before the folds: one form for each operation, constants, identities, and what nobody uses."""

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn
from torchvision.ops import StochasticDepth

from helpers.graphs.tracing import trace
from helpers.passes import Passer, optimize
from tests.passes.equivalence import differences
from tests.passes.folding import calls, fold, reasons
from tests.passes.zoo import Net, alone, conv, with_conv, z

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


def test_a_whole_subgraph_collapses():
    model = alone(lambda m, x: x + ((m.w @ m.w.T).softmax(0) * 2).sum(1), w=z(6, 3))()
    graph_module, report = fold("constant_folding", model, torch.randn(2, 6))
    assert len(calls(graph_module)) == 1 and len(report.changed) == 5
    (constant,) = [node for node in graph_module.graph.nodes if node.op == "get_attr"]
    w = model.w.double()
    expected = (torch.exp(w @ w.T) / torch.exp(w @ w.T).sum(0) * 2).sum(1)
    torch.testing.assert_close(getattr(graph_module, constant.target), expected, rtol=1e-12, atol=0)


NOT_CONSTANT = {
    "returned": (lambda m, x: (x, m.w * 2), "the network returns it"),
    "read before a write": (lambda m, x: (x + m.w * 2, m.w.add_(1))[0], "writes into it"),
    "a view that is written": (lambda m, x: ((v := m.w.view(6)).add_(1), x + v)[1], "writes into it"),
    "not a tensor": (lambda m, x: x * m.w.sum().item(), "is a float"),
}


@pytest.mark.parametrize("what", NOT_CONSTANT)
def test_what_is_not_the_same_each_time_stays(what):
    run, reason = NOT_CONSTANT[what]
    _, report = fold("constant_folding", alone(run, w=z(6))(), torch.randn(2, 6))
    assert any(reason in given for given in reasons(report)), report.declined


def test_the_value_is_a_copy_and_not_a_view_of_a_parameter():
    graph_module, _ = fold("constant_folding", alone(lambda m, x: x + m.w.view(6), w=z(6, 1))(), torch.randn(2, 6))
    (name,) = [node.target for node in graph_module.graph.nodes if node.op == "get_attr"]
    before = getattr(graph_module, name).clone()
    with torch.no_grad():
        graph_module.w.fill_(7.0)
    assert name != "w" and torch.equal(getattr(graph_module, name), before)


def draws_inside(w):
    return w * torch.rand(6, dtype=w.dtype)


draws_inside.__module__ = "torch"  # as a function of torch whose name does not tell that it draws


def test_random_numbers_deep_inside_a_function_are_seen():
    graph = fx.Graph()
    x, w = graph.placeholder("x"), graph.get_attr("w")
    graph.output(graph.call_function(torch.add, (x, graph.call_function(draws_inside, (w,)))))
    root = nn.Module()
    root.register_buffer("w", torch.ones(6))
    graph_module = fx.GraphModule(root, graph)
    report = Passer(["constant_folding"]).run(graph_module)
    assert report.changed == [] and "draws random numbers" in reasons(report)[0]


GOES = {
    "Identity": lambda m, x: m.identity(x),
    "Dropout2d": lambda m, x: m.drop(x),
    "stochastic depth": lambda m, x: m.depth(x),
    "x - zeros": lambda m, x: x - m.zeros,
    "x * ones": lambda m, x: x * m.ones,
    "expand": lambda m, x: x.expand(-1, -1, -1, -1),
    "flatten": lambda m, x: x.flatten(-1),
    "pad by nothing": lambda m, x: F.pad(x, (0, 0)),
}
STAYS = {
    "0 - x": lambda m, x: 0 - x,
    "1 / x": lambda m, x: 1 / x,
    "x + 1": lambda m, x: x + 1,
    "x * 0": lambda m, x: x * 0,
    "x * nearly ones": lambda m, x: x * m.nearly,
    "x + zeros that grow the shape": lambda m, x: x + m.zeros[None],
    "x - zeros that grow the batch": lambda m, x: x[:1] - m.zeros.expand(5, 3, 1, 1),
    "view of this shape only": lambda m, x: x.view(-1, 3, 4, 4),
    "view of another shape": lambda m, x: x.view(2, 12, 4),
    "to another dtype": lambda m, x: x.to(torch.float32),
    "to a copy": lambda m, x: x.to(torch.float64, copy=True).add_(1) * x,
    "dropout in training": lambda m, x: F.dropout(x, 0.5, True),
    "pad": lambda m, x: F.pad(x, (0, 1)),
}


def network(run) -> nn.Module:
    def around(m, x):
        return torch.relu(run(m, torch.exp(x)))

    nearly = torch.ones(3, 1, 1).double()
    nearly[2] += 1e-12
    parts = {"identity": nn.Identity, "drop": nn.Dropout2d, "depth": lambda: StochasticDepth(0.5, "row")}
    tensors = {"zeros": torch.zeros(3, 1, 1), "ones": torch.ones(3, 1, 1), "nearly": nearly}
    return alone(around, **parts, **{name: lambda value=value: value for name, value in tensors.items()})()


@pytest.mark.parametrize("what", GOES)
def test_what_returns_its_input_goes(what):
    graph_module, _ = fold("elim_identity", network(GOES[what]), torch.randn(2, 3, 4, 4))
    assert calls(graph_module) == [torch.exp, F.relu]


@pytest.mark.parametrize("what", STAYS)
def test_what_computes_something_stays(what):
    graph_module, _ = fold("elim_identity", network(STAYS[what]), torch.randn(2, 3, 4, 4))
    assert len(calls(graph_module)) > 2


VIEWS = {
    "a class token": lambda m, x: torch.cat([m.ones[None].expand(x.size(0), -1, -1, -1).reshape(-1, 3, 1), x], 2),
    "squeeze of everything": lambda m, x: x.mean(2).unsqueeze(2).exp().squeeze(),
    "squeeze of the batch": lambda m, x: x.exp().squeeze(0),
    "squeeze of the width": lambda m, x: x[..., : x.size(0)].exp().squeeze(-1),
    "a view of this width": lambda m, x: x.repeat(1, 1, x.size(0)).exp().view(-1, 3, 4),
    "expanded to this width": lambda m, x: x[..., : x.size(0)].exp().expand(-1, -1, 2),
    "a gate": lambda m, x: x * m.ones[0] + m.ones.add_(1).sum(),
}


def answer(model, x):
    """Shape and sum, or that it refuses this input."""
    try:
        y = model(x)
    except RuntimeError:
        return None
    return y.shape, pytest.approx(float(y.sum()), rel=1e-5)


@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize("what", VIEWS)
def test_what_does_nothing_for_this_call_only_stays(what, images):
    model = alone(VIEWS[what], ones=lambda: torch.ones(3, 1, 1))().eval()
    optimised, _ = optimize(model, torch.randn(images, 3, 4), verify=False)
    for batch in (1, 2, 3):
        x = torch.randn(batch, 3, 4)
        assert answer(optimised, x) == answer(model, x)


def test_a_module_with_a_hook_stays():
    model = nn.Sequential(nn.Identity(), nn.ReLU())
    model[0].register_forward_hook(lambda module, args, result: result + 1)
    graph_module, _ = fold("elim_identity", model, torch.randn(2))
    assert nn.Identity in calls(graph_module)


def test_a_dropout_module_in_training_stays():
    model = nn.Sequential(nn.Dropout2d(), nn.ReLU()).eval()
    graph_module = trace(model, (torch.randn(2, 3, 4, 4),))
    graph_module.get_submodule("0").train()
    Passer(["elim_identity"]).run(graph_module)
    assert nn.Dropout2d in calls(graph_module)


def test_what_nobody_uses_goes_with_its_tensors():
    model = with_conv(lambda m, x: ((m.conv(x) * m.z).exp(), torch.relu(x))[1], z=z(4, 1, 1))()
    graph_module, _ = fold("dead_code", model, torch.randn(1, 3, 6, 6))
    assert len(calls(graph_module)) == 1
    assert list(graph_module.state_dict()) == [] and list(graph_module.children()) == []


def test_side_effects_stay():
    def run(m, x):
        y = x * 2
        y.fill_(3.0)
        m.count.add_(1)
        y[0] = 1.0
        return y

    graph_module, _ = fold("dead_code", alone(run, count=lambda: torch.zeros(()))(), torch.randn(2, 3))
    assert len(calls(graph_module)) == 4


def test_a_module_with_a_hook_may_do_anything():
    hooked = conv()
    hooked.register_forward_hook(lambda module, args, result: None)
    model = alone(lambda m, x: (m.hooked(x), m.plain(x), x + 1)[2], hooked=lambda: hooked, plain=conv)()
    graph_module, _ = fold("dead_code", model, torch.randn(1, 3, 6, 6))
    assert [name for name, _ in graph_module.named_children()] == ["hooked"]


def test_a_module_goes_and_stays_as_a_whole():
    unused = nn.Sequential(nn.Linear(3, 3))
    network = nn.Module()
    network.block, network.unused = nn.Sequential(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), nn.Tanh()), unused
    graph = fx.Graph()
    x = graph.placeholder("x")
    part, _ = graph.call_module("block.0.0", (x,)), graph.call_module("unused", (x,))
    graph.output(graph.call_module("block", (part,)))
    graph_module = fx.GraphModule(network.eval(), graph)
    Passer(["dead_code"]).run(graph_module)
    paths = [path for path, _ in graph_module.named_modules()]
    assert paths == ["", "block", "block.0", "block.0.0", "block.0.1", "block.1"]
    assert list(unused.children()) != []  # the caller may have it in use elsewhere
