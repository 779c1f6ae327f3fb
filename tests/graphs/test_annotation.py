import operator

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

from helpers.graphs import annotation
from helpers.graphs.annotation import annotate
from helpers.graphs.tracer import Tracer
from helpers.graphs.tracing import trace
from helpers.passes.errors import GraphMismatch
from tests.passes.graphs import graph_of, network

fx.wrap("looks_into_it")


def looks_into_it(x):
    return x * 2 if x.sum().item() > 0 else x * 3


def shapes(graph_module) -> dict:
    return {node.name: tuple(node.meta["val"].shape) for node in graph_module.graph.nodes if "val" in node.meta}


def randomly_shaped(seed: int):
    generator = torch.Generator().manual_seed(seed)
    n, c, h, w = torch.randint(3, 7, (4,), generator=generator).tolist()
    return torch.randn(n, c, h, w), nn.Sequential(nn.Conv2d(c, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.Flatten(1, 2))


@pytest.mark.parametrize("seed", range(4))
def test_notes_what_really_comes_out(seed):
    x, model = randomly_shaped(seed)
    graph_module = fx.symbolic_trace(model.eval())
    annotate(graph_module, (x,))
    values = {"x": x}
    for name, layer in model.named_children():
        x = values[f"_{name}"] = layer(x)
    noted = {node.name: node.meta["val"] for node in graph_module.graph.nodes if "val" in node.meta}
    assert {name: (v.shape, v.dtype) for name, v in noted.items()} == {
        name if name != "x" else "input_1": (v.shape, v.dtype) for name, v in values.items()
    }
    assert all(parameter.device.type == "cpu" for parameter in graph_module.parameters())


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


@pytest.mark.parametrize(
    "look", [lambda x: x, lambda x: looks_into_it(x)], ids=["on the meta device", "by a real call"]
)
def test_nothing_is_written_into_the_network(look):
    def run(net, x):
        net.count += 1
        return look(x) * net.count

    model = network(run, count=torch.zeros(()))
    graph_module, x = fx.GraphModule(model, Tracer(1).record(model)), torch.ones(2)
    annotate(graph_module, (x,))
    assert graph_module.count == 0 and type(graph_module.count) is torch.Tensor and x.tolist() == [1, 1]


def test_the_short_cut_gives_the_same_as_asking_torch(monkeypatch):
    x, model = randomly_shaped(0)
    quick = shapes(trace(model.eval(), (x,)))
    monkeypatch.setattr(annotation, "KEEPS_SHAPE", frozenset())
    assert shapes(trace(model, (x,))) == quick


def test_counting_up_a_number_writes_into_nothing():
    def run(net, x):
        size = x.shape[0]
        size += 1
        return x.new_zeros(size)

    graph_module = fx.GraphModule(nn.Module(), Tracer(1).record(network(run)))
    annotate(graph_module, (torch.ones(2),))
    assert operator.add in {node.target for node in graph_module.graph.nodes}
    assert shapes(graph_module)["new_zeros"] == (3,)


def test_several_devices_are_told_apart():
    graph_module = graph_of(lambda net, x: x @ net.far, far=torch.ones(3, 3, device="meta"))
    with pytest.raises(GraphMismatch, match=r"node 'far'.*without data"):
        annotate(graph_module, (torch.ones(3, 3),))


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


def test_a_value_that_is_reshaped_in_place_has_no_shape():
    def run(net, x):
        y = torch.relu(x)
        kept = torch.relu(y)
        y.unsqueeze_(0)
        return kept, y * 1

    graph_module = graph_of(run)
    annotate(graph_module, (torch.randn(2, 3),))
    assert shapes(graph_module) == {"x": (2, 3), "relu_1": (2, 3), "mul": (1, 2, 3)}
