import re

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from helpers.passes import fused_ops
from helpers.passes.activations import NO_ACTIVATION, Activation
from helpers.passes.how import Geometry
from helpers.passes.kernels import CONV_KERNELS, LINEAR_KERNELS, Operands

CONVOLUTIONS = {  # input channels, output channels, kernel, stride, padding, dilation, groups
    "dense": (5, 7, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    "strided": (3, 8, (3, 3), (2, 2), (1, 1), (1, 1), 1),
    "depthwise": (16, 16, (3, 3), (1, 1), (1, 1), (1, 1), 16),
    "depthwise strided": (12, 12, (5, 5), (2, 2), (2, 2), (1, 1), 12),
    "grouped": (8, 12, (3, 3), (1, 1), (0, 0), (1, 1), 4),
    "pointwise": (6, 10, (1, 1), (1, 1), (0, 0), (1, 1), 1),
    "uneven": (4, 6, (3, 5), (1, 2), (2, 0), (2, 1), 2),
}
ACTIVATIONS = [
    Activation("none"),
    Activation("relu"),
    Activation("hardtanh", (0.0, 6.0)),
    Activation("hardtanh", (-1.5, 0.5)),
    Activation("leaky_relu", (0.2,)),
    Activation("hardswish"),
    Activation("silu"),
    Activation("sigmoid"),
    Activation("tanh"),
    Activation("gelu"),
]


def conv_operands(shape, activation=NO_ACTIVATION, batch=3, bias=True, residual=False):
    inside, outside, kernel, *geometry = shape
    geometry = Geometry(*geometry)
    x = 3 * torch.randn(batch, inside, 11, 9)
    weight = torch.randn(outside, inside // geometry.groups, *kernel)
    call = Operands(x, weight, torch.randn(outside) if bias else None, None, geometry, activation)
    return call._replace(other=torch.randn(call.output_shape())) if residual else call


def run(kernel, call):
    """Bind the kernel, and run it twice: the second time nothing may have been used up."""
    bound = kernel.bind(call)
    first = bound(call.x, call.bias, call.other)
    assert torch.equal(bound(call.x, call.bias, call.other), first)
    return first


def assert_right(result, call):
    """As exact as a float32 result can be, judged by the float64 composition and the float32 one's own error."""
    double = call._replace(**{name: getattr(call, name).double() for name in ("x", "weight")})
    double = double._replace(**{n: v.double() for n in ("bias", "other") if (v := getattr(call, n)) is not None})
    exact = fused_ops.plain(double)
    scale = exact.abs().max()
    error = (result - exact).abs().max() / scale
    own = (fused_ops.plain(call) - exact).abs().max() / scale
    assert result.shape == exact.shape
    assert error <= max(1e-5, 4 * own)


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
@pytest.mark.parametrize("shape", CONVOLUTIONS.values(), ids=CONVOLUTIONS)
def test_onednn_computes_the_composition(shape, activation):
    call = conv_operands(shape, activation)
    assert CONV_KERNELS["onednn"].objection(call) is None
    assert_right(run(CONV_KERNELS["onednn"], call), call)


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
@pytest.mark.parametrize("residual", [False, True])
def test_a_1x1_convolution_is_a_matrix_product(activation, residual):
    call = conv_operands(CONVOLUTIONS["pointwise"], activation, residual=residual)
    for name in ("gemm", "onednn_product"):
        if name == "onednn_product" and residual and activation != NO_ACTIVATION:
            assert "adds without an activation" in CONV_KERNELS[name].objection(call)
            continue
        assert CONV_KERNELS[name].objection(call) is None
        assert_right(run(CONV_KERNELS[name], call), call)


@pytest.mark.parametrize("shape", CONVOLUTIONS.values(), ids=CONVOLUTIONS)
@pytest.mark.parametrize("activation", ["none", "relu"])
@pytest.mark.parametrize("batch", [1, 4])
def test_onednn_adds_a_residual(shape, activation, batch):
    call = conv_operands(shape, Activation(activation), batch, residual=True)
    before = call.other.clone(), call.x.clone()
    assert CONV_KERNELS["onednn"].objection(call) is None
    assert_right(run(CONV_KERNELS["onednn"], call), call)
    assert torch.equal(call.other, before[0])
    assert torch.equal(call.x, before[1])


@pytest.mark.parametrize("name", ["onednn", "onednn_product", "gemm"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("channels_last", [False, True])
def test_without_bias_and_in_either_memory_layout(name, bias, channels_last):
    call = conv_operands(CONVOLUTIONS["pointwise"], Activation("relu"), bias=bias)
    if channels_last:
        call = call._replace(x=call.x.to(memory_format=torch.channels_last))
    result = run(CONV_KERNELS[name], call)
    assert_right(result, call)
    assert result.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("name", LINEAR_KERNELS)
@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
@pytest.mark.parametrize("rows", [(4,), (2, 5)])
def test_linear_layers(name, activation, rows):
    call = Operands(torch.randn(*rows, 6), torch.randn(9, 6), torch.randn(9), None, None, activation)
    assert LINEAR_KERNELS[name].objection(call) is None
    assert_right(run(LINEAR_KERNELS[name], call), call)


@pytest.mark.parametrize("name", LINEAR_KERNELS)
def test_linear_layers_with_a_residual(name):
    call = Operands(torch.randn(4, 6), torch.randn(9, 6), torch.randn(9), torch.randn(4, 9))
    assert LINEAR_KERNELS[name].objection(call) is None
    assert_right(run(LINEAR_KERNELS[name], call), call)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda call: call._replace(x=call.x.double(), weight=call.weight.double()), "float32, not torch.float64"),
        (lambda call: call._replace(weight=call.weight.half()), "float32, not torch.float16"),
        (lambda call: call._replace(x=call.x[0]), "not 3 dimensions"),
        (lambda call: call._replace(weight=call.weight.to("meta")), "for cpu, not meta"),
        (lambda call: call._replace(other=torch.randn(1, 10, 1, 1)), r"\(1, 10, 1, 1\)"),
        (lambda call: call._replace(other=torch.randn(5, 10, 11, 9)), r"\(5, 10, 11, 9\)"),
        (lambda call: call._replace(other=torch.randn(3, 10, 11, 9).double()), "torch.float64"),
    ],
)
@pytest.mark.parametrize("name", ["onednn", "onednn_product", "gemm"])
def test_what_a_kernel_cannot_do_it_says(name, change, reason):
    call = change(conv_operands(CONVOLUTIONS["pointwise"]))
    assert re.search(reason, CONV_KERNELS[name].objection(call))


def test_a_matrix_product_wants_a_1x1_convolution():
    for name, shape in CONVOLUTIONS.items():
        for product in ("gemm", "onednn_product"):
            assert (CONV_KERNELS[product].objection(conv_operands(shape)) is None) == (name == "pointwise")
    strided = (6, 10, (1, 1), (2, 2), (0, 0), (1, 1), 1)
    assert "stride 1" in CONV_KERNELS["gemm"].objection(conv_operands(strided))


def test_onednn_adds_with_relu_or_nothing():
    call = conv_operands(CONVOLUTIONS["dense"], Activation("silu"), residual=True)
    assert "relu or nothing, not silu" in CONV_KERNELS["onednn"].objection(call)


def test_a_build_without_onednn_is_noticed(monkeypatch):
    call = conv_operands(CONVOLUTIONS["dense"])
    assert CONV_KERNELS["onednn"].objection(call) is None
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert "no oneDNN" in CONV_KERNELS["onednn"].objection(call)


def test_a_weight_from_inference_mode_is_not_packed():
    with torch.inference_mode():
        call = conv_operands(CONVOLUTIONS["dense"])
    assert "inference mode" in CONV_KERNELS["onednn"].objection(call)


def test_onednn_hides_a_nan_behind_relu():
    """Not wanted, but true, and said in the documentation: the day this fails, the sentence there can go."""
    call = conv_operands(CONVOLUTIONS["dense"], Activation("relu"))
    call.x[:] = float("nan")
    assert fused_ops.plain(call).isnan().all()
    assert not run(CONV_KERNELS["onednn"], call).isnan().any()


def cuda_operands(**changes):
    """Tensors that claim to be on a GPU, and hold no data."""
    with FakeTensorMode():
        x, weight, bias = (torch.empty(s, device="cuda") for s in ((2, 4, 8, 8), (6, 4, 3, 3), (6,)))
        geometry = Geometry((1, 1), (1, 1), (1, 1), 1)
        return Operands(x, weight, bias, None, geometry, Activation("relu"))._replace(**changes)


def test_cudnn_takes_relu_and_no_relu6():
    """On fake tensors: whether the kernel is chosen. What it computes needs a GPU, and is not tested here."""
    objection = CONV_KERNELS["cudnn"].objection
    assert objection(cuda_operands()) is None
    assert "ends in relu, not hardtanh(0, 6)" in objection(cuda_operands(activation=Activation("hardtanh", (0.0, 6.0))))
    assert "cuda, not cpu" in objection(conv_operands(CONVOLUTIONS["dense"], Activation("relu")))
    with FakeTensorMode():
        fitting, wrong = (torch.empty(2, 6, n, n, device="cuda") for n in (8, 1))
    assert objection(cuda_operands(other=fitting)) is None
    assert "(2, 6, 1, 1)" in objection(cuda_operands(other=wrong))
