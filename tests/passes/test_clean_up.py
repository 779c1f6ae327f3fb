"""The passes before the folds: one form for each operation, constants, identities, and what nobody
uses.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn
from torchvision.ops import StochasticDepth

from helpers.graphs.effects import draws
from helpers.graphs.tracing import trace
from helpers.passes import Passer
from tests.passes.graphs import call_nodes, calls, differences, fold, reasons
from tests.passes.zoo import Net, alone, conv, hooked, with_conv, z


def canonical(model: nn.Module, *inputs: torch.Tensor, route: str = "fx"):
    graph_module = trace(model.eval(), inputs, route)
    Passer(["canonicalize", "dead_code"]).run(graph_module)
    return call_nodes(graph_module), graph_module


@pytest.mark.parametrize(
    "relu", [nn.ReLU(), torch.relu, F.relu, lambda x: x.relu(), lambda x: F.relu(input=x)]
)
@pytest.mark.parametrize("route", ["fx", "export"])
def test_all_spellings_of_relu_reach_one_form(relu, route):
    model = nn.Sequential(relu) if isinstance(relu, nn.Module) else Net(lambda m, x: relu(x))
    (node,), _ = canonical(model, torch.randn(2, 3), route=route)
    assert node.target is F.relu and len(node.args) == 1 and not node.kwargs


def test_a_module_of_our_own_is_called_as_it_was():
    graph = fx.Graph()
    x, y = map(graph.placeholder, "xy")
    graph.output(graph.call_module("own", kwargs={"input": x, "mask": y}))
    graph_module = fx.GraphModule({"own": Net(lambda m, mask, input: input - mask)}, graph)
    Passer(["canonicalize"]).run(graph_module)
    assert graph_module(5, 3) == 2


FORMS = {
    nn.Hardtanh(-1, 6): (2, 3),
    nn.Hardtanh(0, 5): (2, 3),
    nn.LeakyReLU(0.3): (2, 3),
    nn.GELU(approximate="tanh"): (2, 3),
    nn.Flatten(): (2, 3, 4),
    nn.ZeroPad2d((1, 2, 0, 1)): (1, 2, 5, 5),
    nn.AvgPool2d(2, padding=1, count_include_pad=False): (1, 2, 5, 5),
    nn.AvgPool1d(3, 1): (1, 2, 5),
    nn.MaxPool2d(3, 2, ceil_mode=True): (1, 2, 6, 6),
    nn.AdaptiveAvgPool2d((1, 2)): (1, 2, 5, 6),
}


@pytest.mark.parametrize("module", FORMS, ids=str)
@pytest.mark.parametrize("route", ["fx", "export"])
def test_a_module_becomes_a_function_with_its_settings(module, route):
    x = torch.randn(FORMS[module])
    nodes, graph_module = canonical(nn.Sequential(module), x, route=route)
    assert all(
        node.op == "call_function" and not isinstance(node.target, torch._ops.OpOverload)
        for node in nodes
    )
    assert torch.equal(graph_module(x), module(x))


def only_the_result(y):
    kept = y * 2
    y.add_(3)
    return y + kept


def a_view_from_before(y):
    view = y[:1]
    y.add_(3)
    return y, view + 1


IN_PLACE = {
    only_the_result: True,
    a_view_from_before: False,
    lambda y: y.sum(0, keepdim=True).mul_(2.0).sub_(y[:1]): True,
    lambda y: y.float().exp().mul_(y[:1]): False,  # the product would be wider
}


@pytest.mark.parametrize("write", IN_PLACE)
def test_arithmetic_in_place_becomes_ordinary_when_nobody_can_tell(write):
    model, x = Net(lambda m, x: write(x.exp())).double(), torch.randn(2, 3).double()
    nodes, graph_module = canonical(model, x)
    assert any(str(node.target).endswith("_") for node in nodes) != IN_PLACE[write]
    assert differences(model, graph_module, x) == []


def many_sizes(m, x):
    y, z = m.conv(x), m.fc(x)
    return (
        y.size(1) * 1000
        + z.shape[-1] * 100
        + z.size(1) * 10
        + y.dim()
        + x.shape[0] * 0.5
        + m.w.shape[1]
    )


# forward, shape of the example, sizes that stay, another shape and its answer
SIZES = {
    "layers and parameters": (many_sizes, (2, 3, 6, 6), [("fc", 1), ("x", 0)], (8, 3, 6, 6), 4545),
    "no batch": (
        lambda m, x: (y := m.conv(x)).size(0) * 100 + y.size(1),
        (3, 6, 6),
        [("conv", 1)],
        (3, 8, 6),
        408,
    ),
    "dimensions": (lambda m, x: m.conv(x).dim() + m.w.ndim * 10, (2, 3, 6, 6), [], (3, 6, 6), 23),
    "a hook": (lambda m, x: m.hooked(x).size(1), (2, 6), [("hooked", 1)], (2, 6), 2),
}


@pytest.mark.parametrize("what", SIZES)
def test_sizes_become_numbers_where_the_network_fixes_them(what):
    run, example, stay, shape, answer = SIZES[what]
    parts = {"conv": nn.Conv2d(3, 4, 1), "fc": nn.Linear(6, 5), "w": torch.zeros(2, 7)}
    parts["hooked"] = hooked(nn.Linear(6, 5), lambda result: result[..., :2])
    nodes, graph_module = canonical(Net(run, **parts), torch.randn(example))
    assert [(str(node.args[0]), node.args[1]) for node in nodes if node.target == "size"] == stay
    assert graph_module(torch.zeros(shape)) == answer


NOT_CONSTANT = {
    "the network returns it": lambda m, x: (x, m.w * 2),
    "returns it, and the caller": lambda m, x: (x, (m.w * 2)[None]),
    "writes into it": lambda m, x: (x + m.w * 2, m.w.add_(1))[0],
    "writes into": lambda m, x: ((v := m.w.view(6)).add_(1), x + v)[1],
    "would be larger": lambda m, x: x @ m.w.expand(7, 6).T,
    "is a float": lambda m, x: x * m.w.sum().item(),
}


@pytest.mark.parametrize("reason", NOT_CONSTANT)
def test_what_is_not_the_same_each_time_stays(reason):
    _, report = fold("constant_folding", alone(NOT_CONSTANT[reason], w=z(6))(), torch.randn(2, 6))
    assert any(reason in given for given in reasons(report)), report.declined
    assert bool(report.changed) == (reason == "is a float")


def test_the_value_is_a_copy_and_not_a_view_of_a_parameter():
    graph_module, _ = fold(
        "constant_folding", alone(lambda m, x: x + m.w.view(6), w=z(6, 1))(), torch.randn(2, 6)
    )
    (name,) = [node.target for node in graph_module.graph.nodes if node.op == "get_attr"]
    before = getattr(graph_module, name).clone()
    with torch.no_grad():
        graph_module.w.fill_(7.0)
    assert name != "w" and torch.equal(getattr(graph_module, name), before)


def draws_inside(w):
    return w * torch.rand(6, dtype=w.dtype)


draws_inside.__module__ = "torch"  # as a function of torch whose name does not tell that it draws


@pytest.mark.parametrize("drawn", ["rand_like", "dropout2d", "fractional_max_pool2d", "rrelu"])
def test_what_draws_random_numbers_is_known(drawn):
    assert draws(drawn) and not draws("relu")


def test_random_numbers_deep_inside_a_function_are_seen():
    graph = fx.Graph()
    x, w = graph.placeholder("x"), graph.get_attr("w")
    graph.output(graph.call_function(torch.matmul, (x, graph.call_function(draws_inside, (w,)))))
    report = Passer(["constant_folding"]).run(fx.GraphModule({"w": torch.ones(6)}, graph))
    assert report.changed == [] and "draws random numbers" in reasons(report)[0]


GOES = {
    "Identity": lambda m, x: m.identity(x),
    "Dropout2d": lambda m, x: m.drop(x),
    "stochastic depth": lambda m, x: m.depth(x),
    "dropout of channels, as a function": lambda m, x: F.dropout2d(x, 0.5, m.training),
    "alpha dropout, as a function": lambda m, x: F.alpha_dropout(x, 0.5, False),
    "pad by nothing": lambda m, x: F.pad(x, (0, 0)),
}
STAYS = {
    "0 - x": lambda m, x: 0 - x,
    "1 / x": lambda m, x: 1 / x,
    "x + 1": lambda m, x: x + 1,
    "x * 0": lambda m, x: x * 0,
    "x * nearly ones": lambda m, x: x * m.nearly,
    "x + zeros that grow the shape": lambda m, x: x[0] + m.zeros[None],
    "x - zeros that grow the batch": lambda m, x: x[:1] - m.zeros.expand(5, 3, 1, 1),
    "dropout in training": lambda m, x: F.dropout(x, 0.5, True),
    "pad": lambda m, x: F.pad(x, (0, 1)),
    "a hook": lambda m, x: m.hooked(x),
    "a gate that is one now": lambda m, x: x * m.gate + m.gate.add_(1),
    "a parameter that is one now": lambda m, x: x * m.scale,
    "a buffer of zeros, which a file of such a network need not hold": lambda m, x: x - m.zeros,
    "a buffer of ones": lambda m, x: x * m.ones,
}


@pytest.mark.parametrize("what", [*GOES, *STAYS])
def test_what_returns_its_input_goes_and_what_computes_something_stays(what):
    def around(m, x):
        return torch.relu((GOES | STAYS)[what](m, torch.exp(x)))

    parts = {
        "identity": nn.Identity(),
        "drop": nn.Dropout2d(),
        "depth": StochasticDepth(0.5, "row"),
    }
    parts["scale"] = nn.Parameter(torch.ones(()))
    parts["hooked"], nearly = (
        hooked(nn.Identity(), lambda result: result + 1),
        torch.ones(3, 1, 1).double(),
    )
    nearly[2] += 1e-12
    tensors = {
        "zeros": torch.zeros(3, 1, 1),
        "ones": torch.ones(3, 1, 1),
        "nearly": nearly,
        "gate": torch.ones(()),
    }
    graph_module, _ = fold(
        "elim_identity", Net(around, **parts, **tensors), torch.randn(2, 3, 4, 4)
    )
    assert (calls(graph_module) == [torch.exp, F.relu]) == (what in GOES)


def test_a_dropout_module_in_training_stays_and_an_identity_goes():
    graph_module = trace(
        nn.Sequential(nn.Dropout2d(), nn.Identity()).eval(), (torch.randn(2, 3, 4, 4),)
    )
    Passer(["elim_identity"]).run(graph_module.train())
    assert calls(graph_module) == [nn.Dropout2d]


def effects(m, x):
    y = x * 2
    y.fill_(3.0)
    m.count.add_(1)
    y[0] = 1.0
    return y


LIBRARY = torch.library.Library("mylib", "DEF")
for schema, function in {
    "note(Tensor x) -> ()": lambda x: None,
    "relu(Tensor x) -> Tensor": torch.abs,
}.items():
    LIBRARY.impl(LIBRARY.define(schema), function, "CompositeExplicitAutograd")

# network, operations that stay, modules and tensors that stay
DEAD = {
    "another library": (
        lambda m, x: (torch.ops.mylib.note(x), torch.ops.mylib.relu(x))[1],
        2,
        set(),
    ),
    "nobody uses it": (lambda m, x: ((m.conv(x) * m.z).exp(), torch.relu(x))[1], 1, set()),
    "side effects": (effects, 4, {"count"}),
    "a hook": (lambda m, x: (m.hooked(x), m.conv(x), x + 1)[2], 2, {"hooked"}),
}


@pytest.mark.parametrize("what", DEAD)
def test_what_nobody_uses_goes_with_its_tensors_and_effects_stay(what):
    run, stay, held = DEAD[what]
    model = with_conv(
        run,
        z=z(4, 1, 1),
        hooked=lambda: hooked(conv(), lambda _: None),
        count=lambda: torch.zeros(()),
    )()
    graph_module, _ = fold("dead_code", model, torch.randn(1, 3, 6, 6))
    assert len(calls(graph_module)) == stay
    assert {name.split(".")[0] for name in graph_module.state_dict()} == held
    assert {name for name, _ in graph_module.named_children()} == held - {"count"}


def test_a_module_goes_and_stays_as_a_whole():
    unused = nn.Sequential(nn.Linear(3, 3))
    network = nn.Module()
    network.block, network.unused = (
        nn.Sequential(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), nn.Tanh()),
        unused,
    )
    graph = fx.Graph()
    x = graph.placeholder("x")
    part, _ = graph.call_module("block.0.0", (x,)), graph.call_module("unused", (x,))
    graph.output(graph.call_module("block", (part,)))
    graph_module = fx.GraphModule(network.eval(), graph)
    Passer(["dead_code"]).run(graph_module)
    paths = [path for path, _ in graph_module.named_modules()]
    assert paths == ["", "block", "block.0", "block.0.0", "block.0.1", "block.1"]
    assert list(unused.children()) != []  # the caller may have it in use elsewhere
