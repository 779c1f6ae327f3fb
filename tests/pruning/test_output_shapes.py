"""Formulas for shapes: the same as what PyTorch computes, or left to PyTorch."""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from helpers.pruning.output_shapes import SAME_SHAPE, SPATIAL, function_output, layer_output


def never(*args, **kwargs):
    raise AssertionError("there is a formula for this")


def by_formula(layer, x):
    return layer_output(layer.to("meta"), never, (x.to("meta"),), {})


@pytest.mark.parametrize("kind", sorted(SAME_SHAPE, key=lambda k: k.__name__))
def test_layers_that_are_not_run_do_keep_the_shape(kind):
    arguments = {nn.LayerNorm: (6,), nn.BatchNorm1d: (4,), nn.BatchNorm2d: (4,), nn.BatchNorm3d: (4,)}.get(kind, ())
    shape = {nn.BatchNorm1d: (2, 4, 6), nn.BatchNorm3d: (2, 4, 3, 3, 6)}.get(kind, (2, 4, 3, 6))
    layer, x = kind(*arguments).eval(), torch.randn(shape)
    assert by_formula(layer, x).shape == layer.to_empty(device="cpu")(x).shape
    assert by_formula(layer, x) is not x


@pytest.mark.parametrize("kind", SPATIAL)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.data())
def test_convolutions(kind, data):
    rank, few = SPATIAL[kind], st.integers(1, 3)
    kernel, stride, dilation = (data.draw(st.tuples(*[few] * rank)) for _ in range(3))
    padding = data.draw(st.tuples(*[st.integers(0, 2)] * rank))
    groups, space = data.draw(few), data.draw(st.tuples(*[st.integers(3, 9)] * rank))
    assume(all(n + 2 * p > d * (k - 1) for n, p, d, k in zip(space, padding, dilation, kernel, strict=True)))
    layer = kind(2 * groups, 3 * groups, kernel, stride, padding, dilation, groups)
    x = torch.zeros(2, 2 * groups, *space)
    assert by_formula(layer, x).shape == layer.to_empty(device="cpu")(x).shape


def test_the_weight_says_how_many_channels_there_are():
    layer = nn.Conv2d(3, 8, 3)
    layer.out_channels = 99
    assert by_formula(layer, torch.zeros(1, 3, 5, 5)).shape == (1, 8, 3, 3)


def test_linear():
    assert by_formula(nn.Linear(4, 7), torch.zeros(2, 5, 4)).shape == (2, 5, 7)


def test_pooling_to_a_fixed_size():
    assert by_formula(nn.AdaptiveAvgPool2d(2), torch.zeros(3, 4, 7, 5)).shape == (3, 4, 2, 2)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv2d(4, 8, 3), (1, 5, 9, 9)),
        (nn.Conv2d(4, 8, 3), (4, 9, 9)),
        (nn.Conv2d(4, 8, 3), (4, 4, 9)),
        (nn.Conv2d(4, 8, 5), (1, 4, 9, 4)),
        (nn.Conv2d(4, 8, 3, padding="same"), (1, 4, 9, 9)),
        (nn.Conv2d(4, 6, 3, groups=2), (1, 6, 9, 9)),
        (nn.Linear(4, 8), (1, 5)),
        (nn.AdaptiveAvgPool2d(2), (4, 9, 9)),
        (nn.AdaptiveAvgPool2d((2, None)), (1, 4, 9, 9)),
        (nn.ConvTranspose2d(4, 8, 3), (1, 4, 9, 9)),
    ],
)
def test_what_is_unusual_is_left_to_pytorch(layer, shape):
    asked = []
    layer_output(layer, lambda *args: asked.append(args), (torch.zeros(shape, device="meta"),), {})
    assert len(asked) == 1


def test_a_weight_that_does_not_fit_its_groups_is_left_to_pytorch():
    layer, asked = nn.Conv2d(4, 6, 3, groups=2), []
    layer.weight = nn.Parameter(torch.zeros(5, 2, 3, 3))
    layer_output(layer, lambda *args: asked.append(args), (torch.zeros(1, 4, 9, 9),), {})
    assert len(asked) == 1


@pytest.mark.parametrize("value", [(torch.zeros(2), torch.zeros(3)), None, 4])
def test_identity_of_what_is_no_tensor_is_left_to_pytorch(value):
    layer = nn.Identity()
    assert layer_output(layer, layer.forward, (value,), {}) is value


def test_sums_of_tensors_of_one_kind():
    first, second = torch.zeros(2, 3, device="meta"), torch.zeros(2, 3, device="meta")
    assert function_output(torch.add, (first, second), {}).shape == (2, 3)
    assert function_output(torch.add, (first, torch.zeros(4, 1, 3, device="meta")), {}).shape == (4, 2, 3)
    with pytest.raises(RuntimeError, match="broadcast"):
        function_output(torch.add, (first, torch.zeros(2, 4, device="meta")), {})
    assert function_output(torch.mul, (first, second.to(torch.float64)), {}).dtype is torch.float64
    assert function_output(torch.Tensor.add, (first, 1), {}).shape == (2, 3)


def test_sums_in_place_are_the_tensor_itself():
    first, second = torch.zeros(2, 3, device="meta"), torch.zeros(2, 3, device="meta")
    for function in (torch.Tensor.add_, torch.Tensor.mul_):
        assert function_output(function, (first, second), {}) is first
        assert function_output(function, (first, second[:1]), {}) is first
        with pytest.raises(RuntimeError, match="broadcast"):
            function_output(function, (first[:1], second), {})
    with pytest.raises(RuntimeError, match="in-place ops"):
        function_output(torch.Tensor.add_, (first.long(), second), {})


ALONE = {"need_weights": False}


def test_attention_of_a_sequence_to_itself():
    layer, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.zeros(2, 5, 8)
    output, weights = layer_output(layer, never, (x, x, x), ALONE)
    assert (output.shape, weights) == (layer(x, x, x, **ALONE)[0].shape, None)
    assert output is not x


@pytest.mark.parametrize(
    ("layer", "args", "kwargs"),
    [
        (nn.MultiheadAttention(8, 2), [torch.zeros(2, 5, 8)] * 3, {}),
        (nn.MultiheadAttention(8, 2), [torch.zeros(2, 5, 8)] * 3, ALONE | {"is_causal": False}),
        (nn.MultiheadAttention(8, 2), [torch.zeros(5, 8)] * 3, ALONE),
        (nn.MultiheadAttention(8, 2), [torch.zeros(2, 5, 6)] * 3, ALONE),
        (nn.MultiheadAttention(8, 2, kdim=6), [torch.zeros(2, 5, 8)] * 3, ALONE),
        (nn.MultiheadAttention(8, 2, vdim=6), [torch.zeros(2, 5, 8)] * 3, ALONE),
        (nn.MultiheadAttention(8, 2), [torch.zeros(2, 5, 8) for _ in range(3)], ALONE),
        (nn.MultiheadAttention(8, 2), [], ALONE),
    ],
)
def test_any_other_attention_is_left_to_pytorch(layer, args, kwargs):
    asked = []
    layer_output(layer, lambda *args, **kwargs: asked.append(args), tuple(args), kwargs)
    assert len(asked) == 1
