import copy
import io
import re

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from helpers import metrics, models
from helpers.passes import optimize
from helpers.passes.fused_layer import Activation, FusedLayer, read_activation


def node_of(function):
    """The one call in a traced function."""
    return next(node for node in fx.symbolic_trace(lambda x: function(x)).graph.nodes if node.op.startswith("call"))


SPELLINGS = [
    F.relu,
    F.relu6,
    lambda x: F.hardtanh(x, -2, 3),
    lambda x: F.hardtanh(x, 0, 6, True),
    F.hardtanh,
    lambda x: F.leaky_relu(x, 0.2),
    F.hardswish,
    F.silu,
    F.gelu,
    torch.sigmoid,
    torch.tanh,
    lambda x: torch.clamp(x, 0, 6),
    lambda x: x.clamp(min=-1.5, max=0.5),
    lambda x: x.clip(min=0),
    lambda x: torch.ops.aten.clamp.default(x, 0, 2.5),
]
EVERY_ACTIVATION = [None, *dict.fromkeys(read_activation(node_of(function)) for function in SPELLINGS)]


CONVOLUTIONS = {
    "dense": nn.Conv2d(5, 7, 3, padding=1),
    "strided": nn.Conv2d(3, 8, 3, 2, 1),
    "depthwise": nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False),
    "depthwise strided": nn.Conv2d(12, 12, 5, 2, 2, groups=12),
    "grouped": nn.Conv2d(8, 12, 3, groups=4),
    "pointwise": nn.Conv2d(6, 10, 1),
    "pointwise, no bias": nn.Conv2d(6, 10, 1, bias=False),
    "uneven": nn.Conv2d(4, 6, (3, 5), (1, 2), (2, 0), (2, 1), 2),
}
RELU, RELU6 = Activation(F.relu), Activation(F.hardtanh, (0.0, 6.0))


def images_for(layer, batch=3):
    return 3 * torch.randn(batch, layer.in_channels, 11, 9)


@torch.no_grad()
def assert_right(fused, *inputs):
    """On a kernel, and as exact as float32 can be, judged by float64 and by the composition's own error."""
    assert fused.objection(*inputs) is None
    before = [value.clone() for value in inputs]
    result = fused(*inputs)
    assert torch.equal(fused(*inputs), result)  # nothing was used up
    assert all(torch.equal(one, other) for one, other in zip(inputs, before, strict=True))
    exact = copy.deepcopy(fused).double().composition(*(value.double() for value in inputs))
    scale = exact.abs().max()
    error, own = (result - exact).abs().max() / scale, (fused.composition(*inputs) - exact).abs().max() / scale
    assert result.shape == exact.shape and error <= max(1e-5, 4 * own)


@pytest.mark.parametrize("activation", EVERY_ACTIVATION, ids=str)
@pytest.mark.parametrize("layer", CONVOLUTIONS)
def test_a_kernel_computes_the_composition(layer, activation):
    assert_right(FusedLayer(CONVOLUTIONS[layer], activation), images_for(CONVOLUTIONS[layer]))


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("activation", [None, RELU], ids=str)
@pytest.mark.parametrize("layer", CONVOLUTIONS)
def test_a_kernel_adds_a_residual(layer, activation, batch):
    x = images_for(CONVOLUTIONS[layer], batch)
    other = torch.randn_like(CONVOLUTIONS[layer](x).detach())
    assert_right(FusedLayer(CONVOLUTIONS[layer], activation), x, other)


@pytest.mark.parametrize("layer", CONVOLUTIONS)
@torch.no_grad()
def test_images_in_either_memory_layout(layer):
    fused, x = FusedLayer(CONVOLUTIONS[layer], RELU), images_for(CONVOLUTIONS[layer])
    expected = fused(x)
    result = fused(x.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)
    assert result.is_contiguous(memory_format=torch.channels_last)


def pointwise(activation=RELU6):
    return FusedLayer(nn.Conv2d(6, 4, 1), activation)


X = torch.randn(2, 6, 5, 7)
OBJECTIONS = [
    (lambda: pointwise().double(), (X.double(),), "float32, not torch.float64"),
    (lambda: pointwise().half(), (X,), "float32, not torch.float16"),
    (pointwise, (X[0],), "4 dimensions.*not 3"),
    (lambda: pointwise().to("meta"), (X.to("meta"),), "for cpu, not meta"),
    (pointwise, (X, torch.randn(1, 4, 1, 1)), r"\(1, 4, 1, 1\)"),
    (pointwise, (X, torch.randn(2, 4, 5, 7).double()), "torch.float64"),
]


@pytest.mark.parametrize(("build", "inputs", "reason"), OBJECTIONS)
@torch.no_grad()
def test_where_no_kernel_can_run_the_composition_does(build, inputs, reason):
    fused = build()
    assert re.search(reason, fused.objection(*inputs))
    if fused.weight.dtype == inputs[0].dtype:
        result = fused(*inputs)
        assert result.device.type == "meta" or torch.equal(result, fused.composition(*inputs))


@torch.no_grad()
def test_an_added_tensor_broadcasts_as_it_would_outside():
    fused = pointwise(None)
    for shape in [(4, 1, 1), (1, 4, 5, 7), (3, 1, 4, 5, 7)]:
        other = torch.randn(shape)
        torch.testing.assert_close(fused(X, other), fused.composition(X, other))


@torch.no_grad()
def test_empty_batches_and_an_absent_onednn(monkeypatch):
    assert pointwise()(X[:0]).shape == (0, 4, 5, 7)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    fused = pointwise()
    assert "no oneDNN" in fused.objection(X) and torch.equal(fused(X), fused.composition(X))


@pytest.mark.parametrize("wanted", ["x", "weight", "bias"])
def test_gradients_are_those_of_the_composition(wanted):
    fused, x = pointwise().requires_grad_(False), X.clone()
    tensor = x if wanted == "x" else getattr(fused, wanted)
    tensor.requires_grad_()
    gradients = []
    for run in (fused, fused.composition):
        tensor.grad = None
        run(x).square().sum().backward()
        gradients.append(tensor.grad)
    assert gradients[0].abs().max() > 0 and torch.equal(*gradients)
    with torch.no_grad():
        assert not fused(x).requires_grad


def test_under_autocast_it_computes_what_the_composition_computes():
    fused = pointwise()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        result, expected = fused(X), F.relu6(F.conv2d(X, fused.weight, fused.bias))
    assert result.dtype == torch.bfloat16 and torch.equal(result, expected)


def test_tracers_see_the_composition():
    fused, batch = pointwise().eval(), torch.export.Dim("batch", min=2, max=64)
    with FakeTensorMode(), torch.no_grad():
        assert FusedLayer(nn.Conv2d(6, 4, 1))(torch.empty(2, 6, 5, 7)).shape == (2, 4, 5, 7)
    exported = torch.export.export(fused, (X,), dynamic_shapes=({0: batch},))
    file, larger = io.BytesIO(), torch.randn(7, 6, 5, 7)
    torch.export.save(exported, file)
    file.seek(0)
    for network_again in (exported.module(), torch.export.load(file).module(), fx.symbolic_trace(nn.Sequential(fused))):
        torch.testing.assert_close(network_again(larger), fused(larger))


def test_the_network_can_be_copied_cast_and_saved_after_it_ran():
    fused = pointwise().requires_grad_(False)
    expected = fused(X)
    assert torch.equal(copy.deepcopy(fused)(X), expected)
    assert fused.state_dict().keys() == {"weight", "bias"}
    file = io.BytesIO()
    torch.save(fused, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(X), expected)
    other = pointwise().requires_grad_(False)
    other(X)
    other.load_state_dict(fused.state_dict())
    assert torch.equal(other(X), expected)
    double = copy.deepcopy(fused).double()
    torch.testing.assert_close(double(X.double()).float(), expected)
    assert torch.equal(double.float()(X), expected)


def in_place(weight):
    weight.mul_(-1)


def other_data(weight):
    weight.data = -weight.data


@pytest.mark.parametrize("change", [in_place, other_data])
def test_a_new_weight_is_noticed(change):
    fused = pointwise().requires_grad_(False)
    fused(X)
    change(fused.weight)
    torch.testing.assert_close(fused(X), fused.composition(X))


def test_a_change_through_data_needs_a_copy():
    """PyTorch does not count it. The day the first assertion fails, the docstring of fused_layer.py can say so."""
    net = nn.Sequential(pointwise()).requires_grad_(False)
    before = net(X)
    net[0].weight.data.mul_(-1)
    assert torch.equal(net(X), before)
    torch.testing.assert_close(copy.deepcopy(net)(X), net[0].composition(X))


@torch.no_grad()
def test_shapes_take_turns():
    fused = pointwise()
    for batch in (1, 3, 1, 2, 3):
        torch.testing.assert_close(fused(X[:1].repeat(batch, 1, 1, 1))[-1:], fused.composition(X[:1]))


class Kernels(TorchDispatchMode):
    """Counts the calls of fused kernels."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.calls += function.name().startswith("mkldnn::_convolution_pointwise")
        return function(*args, **(kwargs or {}))


def fused_layers(graph_module):
    return [module for module in graph_module.modules() if isinstance(module, FusedLayer)]


@pytest.mark.parametrize(("route", "batch"), [("fx", 1), ("fx", 3), ("export", 2)])
@torch.inference_mode()
def test_mobilenet_runs_on_kernels_throughout(route, batch):
    with torch.inference_mode(False):
        model, x = metrics.randomize_batchnorm(models.mobilenet_v2()).eval(), torch.randn(batch, 3, 32, 32)
    graph_module, _ = optimize(model, x, level="inference", route=route)
    exact = copy.deepcopy(model).double()(x.double())
    own = (model(x) - exact).abs().max()
    assert (graph_module(x) - exact).abs().max() <= max(1e-5 * exact.abs().max(), 4 * own)
    with Kernels() as kernels:
        graph_module(x)
    assert kernels.calls == 52
    many = torch.randn(5, 3, 32, 32)  # another batch than it was optimised for
    torch.testing.assert_close(graph_module(many), model(many), rtol=1e-4, atol=1e-4)


def test_a_saved_network_comes_back_fused(tmp_path):
    model, x = metrics.randomize_batchnorm(models.mobilenet_v2()).eval(), torch.randn(2, 3, 32, 32)
    graph_module, _ = optimize(model, x, level="inference")
    with torch.inference_mode():
        expected = graph_module(x)
        models.save(graph_module, tmp_path / "fused.safetensors")
        loaded = models.load(tmp_path / "fused.safetensors")
        assert len(fused_layers(loaded)) == 52 and torch.equal(loaded(x), expected)
    for twin in (copy.deepcopy(graph_module), torch.export.export(graph_module, (x,)).module()):
        torch.testing.assert_close(twin(x), graph_module(x), rtol=1e-4, atol=1e-4)
