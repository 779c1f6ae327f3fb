import torch
from torch import nn

from tests.passes.test_canonicalize import canonical
from tests.passes.zoo import Net


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
