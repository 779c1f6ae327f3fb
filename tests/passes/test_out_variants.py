import pytest
import torch
import torchvision
from torch import nn

from helpers import passes
from helpers.graphs.tracing import trace
from helpers.passes import out_variants
from helpers.passes.out_variants import OutVariants
from helpers.passes.passer import Passer
from tests.passes.graphs import allocated, network

X = torch.randn(2, 6, 5, 5)


def targets(graph_module):
    return [str(node.target) for node in graph_module.graph.nodes if node.op == "call_function"]


def exported(net, x=X):
    return trace(net.eval(), (x,), route="export")


def test_operators_write_into_buffers_and_give_the_same_numbers():
    net = network(lambda net, x: torch.sigmoid(x * x) + torch.mean(x, (2, 3), keepdim=True))
    graph_module = exported(net)
    report = Passer([OutVariants()]).run(graph_module)
    aten = ["mul.out", "sigmoid.out", "mean.out", "add.out"]
    assert targets(graph_module) == [f"aten.{name}" for out in aten for name in ("empty_strided.default", out)]
    assert report.changed[0][2] == "mul.Tensor became empty_strided_default, mul_out"
    assert report.declined == []
    assert torch.equal(graph_module(X), net(X))


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("conv", [nn.Conv2d(6, 4, 3, stride=2), nn.Conv2d(6, 6, 3, padding=1, groups=6, bias=False)])
def test_convolutions_write_into_buffers(conv, dtype, channels_last):
    conv, x = conv.to(dtype), X.to(dtype)
    if channels_last:
        conv, x = conv.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    graph_module = exported(nn.Sequential(conv, nn.ReLU6()), x)
    Passer([OutVariants()]).run(graph_module)
    assert "course.conv2d.out" in targets(graph_module)
    assert "aten.hardtanh.out" in targets(graph_module)
    eps = torch.finfo(dtype).eps
    with torch.no_grad():
        torch.testing.assert_close(graph_module(x), nn.functional.relu6(conv(x)), rtol=40 * eps, atol=40 * eps)


def test_views_and_in_place_operations_stay():
    net = network(lambda net, x: x.flatten(1).mul(2).relu_().view(2, -1, 5).transpose(1, 2))
    graph_module = exported(net)
    Passer([OutVariants()]).run(graph_module)
    kept = [name for name in targets(graph_module) if "out" not in name and "empty" not in name]
    assert kept == ["aten.flatten.using_ints", "aten.relu_.default", "aten.view.default", "aten.transpose.int"]
    assert torch.equal(graph_module(X), net(X))


def test_an_overload_takes_its_own_variant():
    net = network(lambda net, x: (x**2, 2**x, x**x, x.sum(), x.sum(1), x.amax((1, 2)), x > 0.5, x > x.mean()))
    graph_module = exported(net)
    report = Passer([OutVariants()]).run(graph_module)
    assert report.declined == []
    assert all(map(torch.equal, graph_module(X.abs()), net(X.abs())))


def test_relu6_ends_at_6():
    graph_module = exported(network(lambda net, x: nn.functional.relu6(x)))
    Passer([OutVariants()]).run(graph_module)
    x = torch.linspace(-9, 9, 300).view_as(X)
    assert torch.equal(graph_module(x), nn.functional.relu6(x))


def test_what_hands_its_operand_on_needs_no_buffer():
    graph_module = exported(network(lambda net, x: nn.functional.dropout(x, 0.5, False).type_as(x) + 1))
    report = Passer([OutVariants()]).run(graph_module)
    assert targets(graph_module)[-1] == "aten.add.out" and report.declined == []


LAST = {"memory_format": torch.channels_last}


@pytest.mark.parametrize(
    ("x", "out", "can"),
    [
        (X.to(**LAST), X.to(**LAST), True),
        (X, X.to(**LAST), False),
        (X.to(**LAST), X, False),
        (X.to(**LAST).double(), X.to(**LAST).double(), False),
    ],
)
def test_where_onednn_adds_to_the_buffer_nothing_else_is_allocated(x, out, can):
    weight = torch.randn(6, 6, 1, 1, dtype=x.dtype)
    net = network(lambda net, x, out: torch.ops.course.conv2d.out(x, weight, None, 1, 0, 1, 1, out=out))
    assert out_variants._onednn_can_add(x, out) == can
    assert (allocated(net, x, out) == 0) == can
    torch.testing.assert_close(out, nn.functional.conv2d(x, weight))


def test_sizes_that_are_known_at_run_time_are_declined():
    size = torch.export.Dim("batch", min=2, max=64)
    net = network(lambda net, x: torch.cos(x))
    graph_module = torch.export.export(net, (X,), dynamic_shapes=({0: size},)).module(check_guards=False)
    report = Passer([OutVariants()]).run(graph_module)
    assert report.changed == [] and "only known at run time" in report.declined[0][2]


def test_casts_are_copies():
    net = network(lambda net, x: (x.to(torch.float16), x.contiguous(memory_format=torch.channels_last), x.contiguous()))
    graph_module = exported(net)
    Passer([OutVariants()]).run(graph_module)
    copies = targets(graph_module)
    assert copies.count("aten.copy_.default") == 2  # the last one is the input itself
    for one, other in zip(graph_module(X), net(X), strict=True):
        assert (one.dtype, one.stride()) == (other.dtype, other.stride())
        assert torch.equal(one, other)


def test_what_has_no_out_variant_is_declined():
    net = network(lambda net, x: nn.functional.instance_norm(x) + 1)
    graph_module = exported(net)
    report = Passer([OutVariants()]).run(graph_module)
    assert [(node, reason) for _, node, reason in report.declined] == [
        ("instance_norm", "aten.instance_norm.default has no out-variant: it allocates its own result")
    ]
    assert torch.equal(graph_module(X), net(X))


def test_python_functions_have_no_out_variant_and_a_second_run_changes_nothing():
    graph_module = trace(network(lambda net, x: x + 1), (X,))
    assert Passer(["out_variants"]).run(graph_module).changed == []
    graph_module = exported(network(lambda net, x: x + 1))
    assert Passer(["out_variants"]).run(graph_module).changed
    again = Passer(["out_variants"]).run(graph_module)
    assert again.changed == [] and again.declined == []


def test_the_first_blocks_of_mobilenet_after_folding():
    layers = torchvision.models.mobilenet_v2().features[:4]
    net = nn.Sequential(layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10)).eval()
    x = torch.randn(2, 3, 32, 32)
    folded, _ = passes.optimize(net, x)
    graph_module = exported(folded, x)
    report = Passer(["out_variants"]).run(graph_module)
    assert report.declined == []
    with torch.no_grad():
        torch.testing.assert_close(graph_module(x), net(x), rtol=1e-4, atol=1e-6)
