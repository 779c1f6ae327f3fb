"""Integer codes of 2 to 8 bits, packed without gaps.

A 3-bit weight kept in an int8 tensor takes 8 bits of the file. Here the codes of a tensor become one stream of
bits, lowest bit first, and the stream is cut into bytes; only the last byte may carry padding (zeros).
Signed codes are stored in two's complement: the lowest `bits` bits of the code.
"""

import math

import numpy as np
import torch

from helpers.quantization.affine import QuantizationError, code_range

__all__ = ["PackingError", "pack", "packed_bytes", "unpack"]


class PackingError(QuantizationError):
    """Codes that do not fit their bits, or bytes that do not fit their shape."""


def packed_bytes(count: int, bits: int) -> int:
    """How many bytes `count` codes of `bits` bits take: ceil(count * bits / 8)."""
    return math.ceil(count * bits / 8)


def pack(codes: torch.Tensor, bits: int, signed: bool = True) -> torch.Tensor:
    """Pack integer codes into bytes.

    Args:
        codes: any shape, any integer type, each within the range of `bits` bits.
        bits: 2 to 8.
        signed: codes run from -2^(bits-1) to 2^(bits-1)-1 instead of from 0 to 2^bits-1.

    Returns:
        uint8 of shape (ceil(codes.numel() * bits / 8),).

    Example:
        >>> pack(torch.tensor([1, -1, 0, -2]), bits=2)
        tensor([141], dtype=torch.uint8)
    """
    low, high = code_range(bits, signed)
    if codes.is_floating_point() or codes.is_complex():
        raise PackingError(f"pack: expected integer codes, got {codes.dtype}; quantize the tensor first")
    if codes.numel() and (codes.min() < low or codes.max() > high):
        raise PackingError(
            f"pack: codes from {codes.min()} to {codes.max()} do not fit {bits} bits ({low} to {high}); "
            "quantize with these bits, or pack with more"
        )
    flat = codes.detach().cpu().reshape(-1, 1).to(torch.int16).numpy().astype(np.uint8)  # two's complement wraps
    stream = np.unpackbits(flat, axis=1, count=bits, bitorder="little")
    return torch.from_numpy(np.packbits(stream, bitorder="little")).to(codes.device)


def unpack(packed: torch.Tensor, bits: int, shape: tuple[int, ...], signed: bool = True) -> torch.Tensor:
    """Undo `pack`.

    Args:
        packed: uint8, as `pack` made it.
        bits: 2 to 8, as given to `pack`.
        shape: the shape of the codes.
        signed: as given to `pack`.

    Returns:
        int8 (signed) or uint8 (unsigned) codes of the given shape.
    """
    low, _ = code_range(bits, signed)
    count = math.prod(shape)
    if packed.dtype != torch.uint8 or packed.numel() != packed_bytes(count, bits):
        raise PackingError(
            f"unpack: {count} codes of {bits} bits take {packed_bytes(count, bits)} bytes of uint8, "
            f"got {packed.numel()} of {packed.dtype}; the file is damaged or the bits or the shape are wrong"
        )
    stream = np.unpackbits(packed.cpu().numpy().reshape(-1), count=count * bits, bitorder="little")
    codes = np.packbits(stream.reshape(count, bits), axis=1, bitorder="little").astype(np.int16).reshape(shape)
    if signed:
        codes = np.where(codes >= -low, codes + 2 * low, codes)  # the upper half of the patterns is negative
    return torch.from_numpy(codes.astype(np.int8 if signed else np.uint8)).to(packed.device)
