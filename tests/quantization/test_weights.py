import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.quantization.affine import code_range
from helpers.quantization.plan import PlanOp, Recipe
from helpers.quantization.weights import PAIR_LIMIT, encode_layer, pack, pair_sums, unpack


def layer(weight, name="layer"):
    return PlanOp(
        name, "conv" if weight.ndim == 4 else "linear", ("x",), weight, torch.zeros(len(weight))
    )


@pytest.mark.parametrize("shape", [(8, 6, 3, 3), (8, 5, 1, 1), (8, 1, 3, 3), (8, 30), (8, 31)])
def test_pairs_fit_sixteen_bits_and_no_more_is_given_away_than_needed(shape):
    largest = (
        pair_sums(encode_layer(layer(torch.randn(shape)), Recipe()).codes.int()).flatten(1).amax(1)
    )
    assert PAIR_LIMIT - 2 <= largest.min() <= largest.max() <= PAIR_LIMIT


def test_a_layer_whose_scales_would_double_keeps_them():
    weight = torch.rand(8, 30) + 0.5  # all large and of one sign: the worst case
    assert (encode_layer(layer(weight), Recipe()).codes.amax(1) == 127).all()
    weight = torch.tensor(
        [[1.0, 1.0], *[[1.0, -1.0]] * 9]
    )  # one row alone would double the one scale of all
    assert encode_layer(layer(weight), Recipe(per_channel=False)).codes.amax() == 127


def test_less_squared_error_at_low_bits():
    op = layer(torch.randn(16, 64))
    plain, less = (
        encode_layer(op, Recipe(3, weight_observer=rule)).decode() for rule in ("minmax", "mse")
    )
    assert (less - op.weight).square().sum() < 0.9 * (plain - op.weight).square().sum()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    bits=st.integers(2, 8),
    shape=st.lists(st.integers(0, 7), min_size=0, max_size=4),
    seed=st.integers(0, 2**31),
)
def test_packing_is_undone_exactly_and_takes_no_byte_too_many(bits, shape, seed):
    low, high = code_range(bits, signed=True)
    codes = torch.randint(
        low - 1, high + 1, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.int8
    )
    packed = pack(codes, bits)
    assert packed.dtype == torch.uint8 and packed.numel() == math.ceil(codes.numel() * bits / 8)
    restored = unpack(packed, bits, tuple(shape))
    assert restored.dtype == torch.int8 and torch.equal(restored, codes)


def test_layout_is_lowest_bit_first():
    # by hand: the 3-bit codes 1, -2, 3 are the bits 100 011 110, lowest first, cut into bytes
    # 10001111 0
    assert pack(torch.tensor([1, -2, 3]), bits=3).tolist() == [0b11110001, 0]
