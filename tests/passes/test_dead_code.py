import torch
from torch import fx, nn

from helpers.passes import Passer
from tests.passes.folding import calls, fold
from tests.passes.zoo import alone, conv, with_conv, z


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
