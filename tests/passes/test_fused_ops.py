import copy
import io

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from helpers.passes.activations import NO_ACTIVATION, Activation
from helpers.passes.fused_ops import conv_act, linear_act, objection
from helpers.passes.how import Geometry, How
from helpers.passes.kernels import Operands

RELU6 = Activation("hardtanh", (0.0, 6.0))
RELU = Activation("relu")


def conv_arguments(kernel, dtype=torch.float32, other=False):
    torch.manual_seed(0)
    x, weight, bias = (
        torch.randn(2, 6, 5, 7, dtype=dtype),
        torch.randn(4, 6, 1, 1, dtype=dtype),
        torch.randn(4, dtype=dtype),
    )
    added = torch.randn(2, 4, 5, 7, dtype=dtype) if other else None
    return (x, weight, bias, added, str(How(Geometry(), NO_ACTIVATION if other else RELU6, kernel)))


def linear_arguments(kernel):
    return (torch.randn(3, 6), torch.randn(4, 6), torch.randn(4), None, str(How(None, RELU6, kernel)))


KERNELS = ["plain", "onednn", "gemm", "cudnn"]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("other", [False, True])
def test_conv_act_is_a_well_formed_operator(kernel, other):
    """PyTorch's own check: schema, fake implementation against the real one, autograd, tracing with symbolic shapes."""
    torch.library.opcheck(conv_act, conv_arguments(kernel, other=other))


@pytest.mark.parametrize("kernel", KERNELS)
def test_linear_act_is_a_well_formed_operator(kernel):
    torch.library.opcheck(linear_act, linear_arguments(kernel))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_a_dtype_without_kernel_takes_the_composition(kernel, dtype):
    arguments = conv_arguments(kernel, dtype)
    expected = F.relu6(F.conv2d(*arguments[:3]))
    assert torch.equal(conv_act(*arguments), expected)
    call = Operands(*arguments[:3], geometry=Geometry())
    assert (objection(call, kernel) is None) == (kernel == "plain")


@pytest.mark.parametrize("kernel", KERNELS)
def test_meta_and_fake_tensors_get_the_right_shape(kernel):
    arguments = [value.to("meta") if isinstance(value, torch.Tensor) else value for value in conv_arguments(kernel)]
    assert conv_act(*arguments).shape == (2, 4, 5, 7)
    with FakeTensorMode() as mode:
        fake = [mode.from_tensor(v) if isinstance(v, torch.Tensor) else v for v in conv_arguments(kernel)]
        result = conv_act(*fake)
    real = conv_act(*conv_arguments(kernel))
    assert (result.shape, result.stride(), result.dtype) == (real.shape, real.stride(), real.dtype)


def test_a_fake_gpu_is_good_for_the_whole_operation():
    with FakeTensorMode():
        x, weight = torch.empty(2, 6, 5, 7, device="cuda"), torch.empty(4, 6, 1, 1, device="cuda")
        result = conv_act(x, weight, None, None, str(How(Geometry(), RELU, "cudnn")))
    assert (result.device.type, result.shape) == ("cuda", (2, 4, 5, 7))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("which", ["x", "weight", "bias"])
def test_gradients_are_those_of_the_composition(kernel, which):
    arguments = list(conv_arguments(kernel))
    position = ("x", "weight", "bias").index(which)
    gradients = []
    for function in (lambda *a: conv_act(*a), lambda x, w, b, *_: F.relu6(F.conv2d(x, w, b))):
        wanted = arguments[position].clone().requires_grad_()
        function(*arguments[:position], wanted, *arguments[position + 1 :]).square().sum().backward()
        gradients.append(wanted.grad)
    torch.testing.assert_close(*gradients)
    assert gradients[0].abs().max() > 0


def test_without_gradients_nothing_is_recorded():
    arguments = list(conv_arguments("onednn"))
    arguments[1].requires_grad_()
    with torch.no_grad():
        assert not conv_act(*arguments).requires_grad


def test_under_autocast_it_computes_what_the_composition_computes():
    arguments = conv_arguments("onednn")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result, expected = conv_act(*arguments), F.relu6(F.conv2d(*arguments[:3]))
    assert result.dtype == torch.bfloat16
    assert torch.equal(result, expected)


@pytest.mark.parametrize("kernel", KERNELS)
def test_an_empty_batch(kernel):
    arguments = conv_arguments(kernel)
    assert conv_act(arguments[0][:0], *arguments[1:]).shape == (0, 4, 5, 7)


@pytest.mark.parametrize("kernel", KERNELS)
def test_an_added_tensor_broadcasts_as_it_would_outside(kernel):
    x, weight, bias, _, *rest = conv_arguments(kernel, other=True)
    for shape in [(4, 1, 1), (1, 4, 5, 7), (3, 1, 4, 5, 7)]:
        other = torch.randn(shape)
        expected = F.conv2d(x, weight, bias) + other
        torch.testing.assert_close(conv_act(x, weight, bias, other, *rest), expected)


@pytest.mark.parametrize("dimensions", [1, 3])
def test_other_dimensions_run_as_a_composition(dimensions):
    x, weight = torch.randn(2, 3, *[5] * dimensions), torch.randn(4, 3, *[3] * dimensions)
    ones = (1,) * dimensions
    result = conv_act(x, weight, None, None, str(How(Geometry(ones, ones, ones), RELU, "onednn")))
    assert torch.equal(result, getattr(F, f"conv{dimensions}d")(x, weight, padding=1).relu())


class Fused(nn.Module):
    def __init__(self, kernel="onednn"):
        super().__init__()
        self.how = str(How(Geometry(), RELU6, kernel))
        self.weight, self.bias = nn.Parameter(torch.randn(4, 6, 1, 1)), nn.Parameter(torch.randn(4))
        self.requires_grad_(False)

    def forward(self, x):
        return conv_act(x, self.weight, self.bias, None, self.how)


def test_it_traces_and_exports_as_one_node():
    net, x = Fused().eval(), torch.randn(2, 6, 5, 7)
    batch = torch.export.Dim("batch", min=2, max=64)
    exported = torch.export.export(net, (x,), dynamic_shapes=({0: batch},))
    for graph in (fx.symbolic_trace(net).graph, exported.graph):
        assert [node.target for node in graph.nodes if node.op == "call_function"] == [conv_act]
    larger = torch.randn(7, 6, 5, 7)
    torch.testing.assert_close(exported.module()(larger), net(larger))
    file = io.BytesIO()
    torch.export.save(exported, file)
    file.seek(0)
    torch.testing.assert_close(torch.export.load(file).module()(larger), net(larger))


def test_the_network_can_be_copied_cast_and_saved_after_it_ran():
    net, x = Fused(), torch.randn(2, 6, 5, 7)
    expected = net(x)
    assert torch.equal(copy.deepcopy(net)(x), expected)
    assert net.state_dict().keys() == {"weight", "bias"}
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    other = Fused()
    other(x)
    other.load_state_dict(torch.load(file))
    assert torch.equal(other(x), expected)
    double = copy.deepcopy(net).double()
    torch.testing.assert_close(double(x.double()).float(), expected)
    assert torch.equal(double.float()(x), expected)


def test_a_new_weight_is_noticed():
    net, x = Fused(), torch.randn(2, 6, 5, 7)
    net(x)
    net.weight.mul_(-1)
    torch.testing.assert_close(net(x), F.relu6(F.conv2d(x, net.weight, net.bias)))


def test_an_unknown_kernel_is_said_and_not_run():
    call = Operands(*conv_arguments("plain")[:3], geometry=Geometry())
    assert objection(call, "magic") == "there is no kernel 'magic'"
    assert torch.equal(conv_act(*conv_arguments("magic")), conv_act(*conv_arguments("plain")))
