import copy

import pytest
import torch
from torch import nn

from helpers.training.strided_depthwise import unstrided_depthwise


@pytest.fixture(autouse=True)
def avx512(monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")


@pytest.mark.parametrize(("kernel", "stride", "size"), [(3, 2, 16), (3, 2, 15), (5, 2, 9), (3, (2, 1), 8), (3, 3, 10)])
def test_same_outputs_and_gradients(kernel, stride, size):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(6, 6, kernel, stride, padding=kernel // 2, groups=6)).double()
    other, strides = copy.deepcopy(model), []
    x = torch.randn(2, 6, size, size, dtype=torch.float64)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    with unstrided_depthwise(other):
        other[0].register_forward_pre_hook(lambda module, _: strides.append(module.stride))
        outputs = model(inputs[0]), other(inputs[1])
        for output in outputs:
            output.square().sum().backward()
    assert strides == [(1, 1)]
    torch.testing.assert_close(*outputs)
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad)
    torch.testing.assert_close(model[0].weight.grad, other[0].weight.grad)


def test_afterwards_everything_is_as_before():
    model = nn.Sequential(nn.Conv2d(4, 4, 3, stride=2, groups=4), nn.Conv2d(4, 8, 3, stride=2))
    with pytest.raises(RuntimeError), unstrided_depthwise(model):
        model(torch.randn(1, 5, 8, 8))
    assert [m.stride for m in model] == [(2, 2), (2, 2)]
    assert not model[0]._forward_hooks
    assert not model[0]._forward_pre_hooks


def test_gradients_keep_the_memory_format():
    layer, formats = nn.Conv2d(6, 6, 3, 2, padding=1, groups=6), []

    def watch_gradient(_, inputs, output):
        output.register_hook(lambda g: formats.append(g.is_contiguous(memory_format=torch.channels_last)))

    layer.register_forward_hook(watch_gradient)  # Runs first, and so sees the unstrided output.
    x = torch.randn(2, 6, 8, 8).contiguous(memory_format=torch.channels_last)
    with unstrided_depthwise(nn.Sequential(layer)):
        layer(x).sum().backward()
    assert formats == [True]
