import json
import struct

import pytest
import safetensors.torch
import torch

from course.grading.wire import MOST_BYTES, MOST_PARTS, MOST_TEXT_BYTES, WireError, decode, encode
from helpers.checks.compare import Tolerance, difference


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.bool])
def test_a_tree_survives(dtype):
    tensor = torch.randint(0, 2, (2, 0, 3) if dtype == torch.int8 else (2, 3)).to(dtype)
    tree = {"a": [tensor, tensor.mT, None, True, -1, 0.5, "é"], "b": {}}
    back = decode(encode(tree))
    assert back["a"][0].dtype == dtype
    assert difference(tree, back, Tolerance(0, 0)) is None


@pytest.mark.parametrize("tree", [object(), {"a": {1, 2}}, {1: 2}, {"tensor number": 3}, b"bytes", lambda: None])
def test_what_is_no_data_cannot_be_encoded(tree):
    with pytest.raises(WireError):
        encode(tree)


def _with_tree(text):
    return safetensors.torch.save({"tree": torch.frombuffer(bytearray(text), dtype=torch.uint8)})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x04cos\nsystem\n(S'id'\ntR.",  # a pickle
        struct.pack("<Q", 2**60) + b"{}",  # a header longer than everything
        struct.pack("<Q", 2) + b"{}",
        struct.pack("<Q", 4) + b"null",
        _with_tree(b"[" * 100_000),
        _with_tree(b"{'no': json}"),
        _with_tree(b'{"tensor number": "7"}'),
        _with_tree(b'{"tensor number": ["a"]}'),
        _with_tree(b"9" * 10_000),
        _with_tree(b"\xff\xfe"),
        encode([1, 2])[:-3],
        safetensors.torch.save({"other": torch.zeros(1)}),
    ],
)
def test_hostile_bytes_are_refused(data):
    with pytest.raises(WireError):
        decode(data)


def test_a_header_that_lies_about_sizes_is_refused():
    header = json.dumps({"tree": {"dtype": "F64", "shape": [2**40], "data_offsets": [0, 8]}}).encode()
    with pytest.raises(WireError):
        decode(struct.pack("<Q", len(header)) + header + bytes(8))


def test_too_much_is_refused_before_it_is_parsed():
    with pytest.raises(WireError, match="allowed"):
        decode(bytes(MOST_BYTES + 1))
    with pytest.raises(WireError, match="parts"):
        decode(encode([0] * (MOST_PARTS + 1)))
    with pytest.raises(WireError, match=f"{MOST_TEXT_BYTES} allowed"):
        decode(_with_tree(b"[]," * (MOST_TEXT_BYTES // 3 + 1)))
    with pytest.raises(WireError, match=f"{MOST_TEXT_BYTES} allowed"):  # of names of tensors, before they are made
        decode(struct.pack("<Q", MOST_TEXT_BYTES + 1) + b"{" + b" " * MOST_TEXT_BYTES)


def test_a_tensor_that_stands_in_many_places_is_refused():
    tree = json.dumps([{"tensor number": "0"}] * 2).encode()
    parts = {"0": torch.zeros(3), "tree": torch.frombuffer(bytearray(tree), dtype=torch.uint8)}
    with pytest.raises(WireError):
        decode(safetensors.torch.save(parts))
