"""Entropy-coded files: the same network in fewer bytes, for storing and sending.

Weights are not spread evenly over their codes: small ones are common. A coder spends few bits on common codes (see
`rans.py`); how few is a fact about a file that was written, so this writes one, and `decompress` gives back the
original file byte for byte.

    magic · length of the header · length of the rest · header · rest · streams

Each stream is one tensor of integer weights, where its rANS code is smaller than its packed form. The header (JSON,
compressed with lzma) says where each stream belongs and how often which code occurs. The rest (compressed with lzma)
is all of the original file that is not in a stream.
"""

import json
import lzma
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from course.reference import rans
from course.reference.rans import CodingError
from helpers.files import write_atomically
from helpers.quantization.affine import code_range
from helpers.quantization.weights import pack, unpack

__all__ = ["compress", "decompress"]

MAGIC = b"RANS"
LENGTHS = struct.Struct("<4sII")


def compress(source: str | Path, target: str | Path) -> int:
    """Write a saved quantized network entropy-coded.

    Args:
        source: a file that `models.save` wrote.
        target: the file to write.

    Returns:
        The size of the written file in bytes.

    Example:
        >>> compress("int8.safetensors", "int8.rans")
        1946211
    """
    original = Path(source).read_bytes()
    streams, rest, coded = [], [], []
    position = 0
    for start, stop, count, bits in _integer_weights(original):
        codes = unpack(torch.frombuffer(bytearray(original[start:stop]), dtype=torch.uint8), bits, (count,))
        symbols = codes.numpy().astype(np.int64) - code_range(bits, signed=True)[0]
        frequencies = rans.normalize_counts(np.bincount(symbols, minlength=2**bits))
        stream = rans.encode(symbols, frequencies)
        if len(stream) + 2 * np.count_nonzero(frequencies) >= stop - start:
            continue  # too few codes to pay for their frequencies
        rest.append(original[position:start])
        entry = {"before": start - position, "count": count, "bits": bits, "length": len(stream)}
        streams.append(entry | {"frequencies": frequencies.tolist()})
        coded.append(stream)
        position = stop
    rest.append(original[position:])
    header = lzma.compress(json.dumps({"streams": streams, "sum": zlib.crc32(original)}).encode(), preset=9)
    packed_rest = lzma.compress(b"".join(rest), preset=9)
    content = b"".join([LENGTHS.pack(MAGIC, len(header), len(packed_rest)), header, packed_rest, *coded])
    write_atomically(Path(target), content)
    return len(content)


def decompress(source: str | Path, target: str | Path) -> Path:
    """Undo `compress`: write the original file again.

    Raises:
        CodingError: the file is damaged, or is something else.
    """
    content = Path(source).read_bytes()
    try:
        original = _decompress(content)
    except (CodingError, lzma.LZMAError, struct.error, ValueError, KeyError, TypeError, IndexError) as error:
        raise CodingError(f"{source} is damaged or was not written by `compress` ({error})") from error
    return write_atomically(Path(target), original)


def _decompress(content: bytes) -> bytes:
    magic, header_length, rest_length = LENGTHS.unpack_from(content)
    if magic != MAGIC:
        raise CodingError("it does not begin with the right letters")
    position = LENGTHS.size + header_length
    header = json.loads(lzma.decompress(content[LENGTHS.size : position]))
    rest = lzma.decompress(content[position : position + rest_length])
    position, used, parts = position + rest_length, 0, []
    for stream in header["streams"]:
        parts.append(rest[used : used + stream["before"]])
        coded, bits = content[position : position + stream["length"]], stream["bits"]
        symbols = rans.decode(coded, np.array(stream["frequencies"]), stream["count"])
        codes = torch.from_numpy(symbols + code_range(bits, signed=True)[0])
        parts.append(pack(codes, bits).numpy().tobytes())
        used, position = used + stream["before"], position + stream["length"]
    original = b"".join([*parts, rest[used:]])
    if position != len(content) or zlib.crc32(original) != header["sum"]:
        raise CodingError("its checksum does not fit")
    return original


def _integer_weights(original: bytes) -> list[tuple[int, int, int, int]]:
    """Where the integer weights of a safetensors file lie: first and last byte, how many codes, how many bits each."""
    try:
        (length,) = struct.unpack_from("<Q", original)
        header: dict[str, Any] = json.loads(original[8 : 8 + length])
        steps = json.loads(header["__metadata__"]["spec"])["steps"]
        recipe = next(step["recipe"] for step in steps if step["step"] == "quantize")
    except (struct.error, ValueError, KeyError, TypeError, StopIteration) as error:
        raise CodingError("this is not a file of a quantized network; save one with models.save") from error
    found = []
    for name, entry in header.items():
        layer = name.removeprefix("steps.").removesuffix(".weight").replace("/", ".")
        if name.startswith("steps.") and name.endswith(".weight"):
            bits = recipe["layer_bits"].get(layer, recipe["weight_bits"])
            start, stop = entry["data_offsets"]
            count = (stop - start) * 8 // bits
            found.append((8 + length + start, 8 + length + stop, count, bits))
    return sorted(found)
