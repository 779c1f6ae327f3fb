import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.quantization.affine import QuantizationError, code_range
from helpers.quantization.packing import PackingError, pack, packed_bytes, unpack


@settings(max_examples=60, deadline=None)
@given(
    bits=st.integers(2, 8),
    signed=st.booleans(),
    shape=st.lists(st.integers(0, 7), min_size=0, max_size=4),
    seed=st.integers(0, 2**31),
)
def test_packing_is_undone_exactly_and_takes_no_byte_too_many(bits, signed, shape, seed):
    low, high = code_range(bits, signed)
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(low, high + 1, shape, generator=generator, dtype=torch.int16)
    packed = pack(codes, bits, signed)
    assert packed.dtype == torch.uint8
    assert packed.numel() == packed_bytes(codes.numel(), bits) == math.ceil(codes.numel() * bits / 8)
    restored = unpack(packed, bits, tuple(shape), signed)
    assert restored.dtype == (torch.int8 if signed else torch.uint8)
    assert torch.equal(restored.to(torch.int16), codes)


@pytest.mark.parametrize("bits", range(2, 9))
@pytest.mark.parametrize("signed", [True, False])
def test_every_code_survives(bits, signed):
    low, high = code_range(bits, signed)
    codes = torch.arange(low, high + 1)
    assert torch.equal(unpack(pack(codes, bits, signed), bits, codes.shape, signed).long(), codes)


def test_layout_is_lowest_bit_first():
    # by hand: the 3-bit codes 1, 6, 3 are the bits 100 011 110, lowest first, cut into bytes 10001111 0
    assert pack(torch.tensor([1, 6, 3]), bits=3, signed=False).tolist() == [0b11110001, 0]


def test_eight_bits_are_the_codes_themselves():
    codes = torch.tensor([-128, -1, 0, 127], dtype=torch.int8)
    assert torch.equal(pack(codes, bits=8).view(torch.int8), codes)


@pytest.mark.parametrize(
    ("codes", "bits", "signed", "message"),
    [
        (torch.tensor([4]), 3, True, "from 4 to 4 do not fit 3 bits"),
        (torch.tensor([-1]), 3, False, "do not fit"),
        (torch.tensor([200]), 8, True, "do not fit"),
        (torch.tensor([1.0]), 8, True, "integer codes"),
        (torch.tensor([1]), 9, True, "from 2 to 8"),
    ],
)
def test_codes_that_do_not_fit_are_refused(codes, bits, signed, message):
    with pytest.raises(QuantizationError, match=message):
        pack(codes, bits, signed)


def test_damaged_bytes_are_refused():
    packed = pack(torch.zeros(10, dtype=torch.int8), bits=3)
    with pytest.raises(PackingError, match="10 codes of 3 bits take 4 bytes"):
        unpack(packed[:-1], bits=3, shape=(10,))
    with pytest.raises(PackingError, match="int8"):
        unpack(packed.view(torch.int8), bits=3, shape=(10,))
