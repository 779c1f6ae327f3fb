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


def with_tree(text, **parts):
    return safetensors.torch.save(parts | {"tree": torch.frombuffer(bytearray(text), dtype=torch.uint8)})


LIE = json.dumps({"tree": {"dtype": "F64", "shape": [2**40], "data_offsets": [0, 8]}}).encode()
HOSTILE = [
    b"",
    b"\x80\x04cos\nsystem\n(S'id'\ntR.",  # a pickle
    struct.pack("<Q", 2**60) + b"{}",  # a header longer than everything
    struct.pack("<Q", 2) + b"{}",
    struct.pack("<Q", 4) + b"null",
    with_tree(b"[" * 100_000),
    with_tree(b"{'no': json}"),
    with_tree(b'{"tensor number": "7"}'),
    with_tree(b'{"tensor number": ["a"]}'),
    with_tree(b"9" * 10_000),
    with_tree(b"\xff\xfe"),
    encode([1, 2])[:-3],
    safetensors.torch.save({"other": torch.zeros(1)}),
    struct.pack("<Q", len(LIE)) + LIE + bytes(8),  # a header that lies about sizes
    with_tree(json.dumps([{"tensor number": "0"}] * 2).encode(), **{"0": torch.zeros(3)}),  # one tensor in two places
]


@pytest.mark.parametrize("data", HOSTILE)
def test_hostile_bytes_are_refused(data):
    with pytest.raises(WireError):
        decode(data)


def test_too_much_is_refused_before_it_is_parsed():
    names = struct.pack("<Q", MOST_TEXT_BYTES + 1) + b"{" + b" " * MOST_TEXT_BYTES  # of tensors, before they are made
    for data, says in (
        (bytes(MOST_BYTES + 1), "allowed"),
        (encode([0] * (MOST_PARTS + 1)), "parts"),
        (with_tree(b"[]," * (MOST_TEXT_BYTES // 3 + 1)), f"{MOST_TEXT_BYTES} allowed"),
        (names, f"{MOST_TEXT_BYTES} allowed"),
    ):
        with pytest.raises(WireError, match=says):
            decode(data)
