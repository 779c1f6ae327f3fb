import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

from helpers.graphs.annotation import annotate
from helpers.graphs.tracer import Tracer
from tests.passes.graphs import graph_of, network

fx.wrap("looks_into_it")


def looks_into_it(x):
    return x * 2 if x.sum().item() > 0 else x * 3


def shapes(graph_module) -> dict:
    return {node.name: tuple(node.meta["val"].shape) for node in graph_module.graph.nodes if "val" in node.meta}


def test_what_depends_on_numbers_is_called_for_real_on_a_copy():
    def run(net, x):
        net.count += 1
        return looks_into_it(x)[x > 0] * torch.rand(1)

    model = network(run, count=torch.zeros(()))
    graph_module = fx.GraphModule(model, Tracer(1).record(model))
    before, x = torch.get_rng_state(), torch.tensor([1.0, -1.0, 2.0])
    annotate(graph_module, (x,))
    assert shapes(graph_module)["getitem"] == (2,)
    assert all(node.meta["val"].is_meta for node in graph_module.graph.nodes if "val" in node.meta)
    assert graph_module.count == 0 and x.tolist() == [1, -1, 2] and torch.equal(before, torch.get_rng_state())


def hooked() -> nn.Module:
    layer = nn.ReLU()
    layer.register_forward_hook(lambda module, args, result: result.flatten())
    return layer


@pytest.mark.parametrize(
    ("run", "parts", "shape", "dtype"),
    [
        (lambda net, x: net.hooked(x), {"hooked": hooked()}, (6,), torch.float32),
        (lambda net, x: x + x[:1], {}, (2, 3), torch.float32),
        (lambda net, x: x[:1] + x, {}, (2, 3), torch.float32),
        (lambda net, x: x + x.double(), {}, (2, 3), torch.float64),
        (lambda net, x: F.silu(x.double()), {}, (2, 3), torch.float64),
    ],
)
def test_the_short_cut_is_not_taken_where_it_would_be_wrong(run, parts, shape, dtype):
    graph_module = graph_of(run, **parts)
    annotate(graph_module, (torch.randn(2, 3),))
    value = graph_module.graph.output_node().args[0].meta["val"]
    assert (tuple(value.shape), value.dtype) == (shape, dtype)
