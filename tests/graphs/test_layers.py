import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers.graphs.layers import opaque
from helpers.graphs.tracing import trace
from helpers.passes import Passer
from tests.passes.graphs import calls, fold, reasons
from tests.passes.zoo import Net

W = {"w1": (4, 3, 3), "w2": (4, 3, 3, 2), "w3": (4, 3, 2, 2, 2), "t2": (3, 2, 3, 2), "g2": (4, 1, 3, 3)}
W |= {"fc": (4, 6), "b": (4,), "mean": (3,), "scale": (3,)}
CALLS = {
    "conv1d": (lambda m, x: F.conv1d(x, m.w1, m.b, 2, 1), 3, nn.Conv1d),
    "conv2d, oblong": (lambda m, x: F.conv2d(x, m.w2, None, (1, 2), (2, 0), (1, 2)), 4, nn.Conv2d),
    "conv2d, same": (lambda m, x: F.conv2d(x, m.w2, m.b, padding="same"), 4, nn.Conv2d),
    "conv2d, grouped": (lambda m, x: F.conv2d(x[:, :2], m.g2, m.b, groups=2), 4, nn.Conv2d),
    "conv3d, by keyword": (lambda m, x: F.conv3d(weight=m.w3, input=x, stride=2), 5, nn.Conv3d),
    "transposed": (lambda m, x: F.conv_transpose2d(x, m.t2, None, 2, 1, (1, 0), 1, 2), 4, nn.ConvTranspose2d),
    "transposed, grouped": (lambda m, x: F.conv_transpose2d(x, m.t2, m.b[:2]), 4, None),
    "linear": (lambda m, x: F.linear(x, m.fc, m.b), 3, nn.Linear),
    "torch.convolution": (
        lambda m, x: torch.convolution(x, m.w2, m.b, [1, 1], [0, 1], [1, 1], False, [0, 0], 1),
        4,
        nn.Conv2d,
    ),
    "F.batch_norm": (lambda m, x: F.batch_norm(x, m.mean, m.scale, m.scale, m.mean, eps=0.1), 4, nn.BatchNorm2d),
    "F.batch_norm, no affine": (lambda m, x: F.batch_norm(x, m.mean, m.scale), 5, nn.BatchNorm3d),
    "torch.batch_norm": (
        lambda m, x: torch.batch_norm(x, m.scale, m.mean, m.mean, m.scale, False, 0.1, 0.2, False),
        3,
        nn.BatchNorm1d,
    ),
}


def network(run) -> nn.Module:
    torch.manual_seed(0)
    return Net(run, **{name: torch.rand(shape) + 0.1 for name, shape in W.items()})


def image(dimensions: int) -> torch.Tensor:
    return torch.randn(2, 3, *(6, 6, 5)[: dimensions - 2])


@pytest.mark.parametrize("route", ["fx", "export"])
@pytest.mark.parametrize("what", CALLS)
def test_functional_calls_become_modules_with_the_same_answers(what, route):
    run, dimensions, layer = CALLS[what]
    graph_module, _ = fold("canonicalize", network(run), image(dimensions), route)
    assert layer is None or calls(graph_module)[-1] is layer


REFUSED = {
    "weight computed": (lambda m, x: F.conv2d(x, m.w2 * x.mean()), "weight is computed by the graph"),
    "stride computed": (lambda m, x: F.conv2d(x, m.w2, stride=x.shape[0]), "stride is computed by the graph"),
    "weight written": (lambda m, x: (F.conv2d(x, m.w2), m.w2.mul_(2))[0], "writes to its weight"),
    "training": (lambda m, x: F.batch_norm(x, m.mean, m.scale, training=True), "statistics of the batch"),
    "no statistics": (lambda m, x: F.batch_norm(x, None, None, training=True), "statistics of the batch"),
    "linear with a vector": (lambda m, x: F.linear(x, m.b[:0].new_ones(6)), "weight is computed"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_call_that_is_no_layer_stays_with_the_reason(what):
    run, reason = REFUSED[what]
    report = Passer(["canonicalize"]).run(trace(network(run).eval(), (image(4),)))
    assert any(reason in given for given in reasons(report)), report.declined


def test_equal_calls_share_a_module_and_other_settings_do_not():
    model = network(lambda m, x: F.conv2d(x, m.w2) + F.conv2d(x, m.w2) + F.conv2d(x, m.w2, stride=1, dilation=1)[:1])
    graph_module, _ = fold("canonicalize", model, image(4))
    targets = [node.target for node in graph_module.graph.nodes if node.op == "call_module"]
    assert len(targets) == 3 and targets[0] == targets[1]


HOOKS = ("forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook")


@pytest.mark.parametrize("kind", HOOKS)
def test_a_module_with_a_hook_may_compute_something_else(kind):
    layer = nn.ReLU()
    getattr(layer, f"register_{kind}")(lambda *args: None)
    assert "it has hooks" in opaque(layer) and opaque(nn.Sequential(layer)) is None  # only what is called itself counts
