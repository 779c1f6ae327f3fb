"""rANS: an entropy coder that spends about -log2(p) bits on a symbol of probability p.

The coder's whole memory is one integer x per lane. With frequencies f(s) that sum to M = 2^PRECISION and
C(s) = f(0) + ... + f(s-1):

    encode s:   x' = (x // f(s)) * M + C(s) + x mod f(s)        (x grows by the factor M / f(s) = 1 / p)
    decode:     s is the symbol with C(s) <= x' mod M < C(s+1);   x = f(s) * (x' // M) + x' mod M - C(s)

x stays in [2^16, 2^32): before it would overflow its low 16 bits go to the output, and the decoder fetches
16 bits whenever x falls below 2^16. It decodes in the opposite order, so the encoder walks backwards.
LANES independent coders take turns, symbol i belonging to lane i mod LANES, so that NumPy handles one symbol of
every lane at once; the price is 4 bytes of final state a lane.

After J. Duda, "Asymmetric numeral systems", arXiv:1311.2540.
"""

import numpy as np

from helpers.quantization.affine import QuantizationError

__all__ = ["PRECISION", "CodingError", "decode", "encode", "normalize_counts"]

PRECISION = 14
LANES = 64
LOWEST = np.uint64(1 << 16)
WORD = np.uint64(16)
WORD_MASK = np.uint64(0xFFFF)


class CodingError(QuantizationError):
    """Coded bytes that were cut short or changed."""


def normalize_counts(counts: np.ndarray) -> np.ndarray:
    """Scale counts to frequencies that sum to 2^PRECISION; a symbol that occurs keeps at least 1.

    Args:
        counts: how often each symbol occurs, at least one of them above zero.
    """
    total = 1 << PRECISION
    frequencies = np.where(counts > 0, np.maximum(counts * total // counts.sum(), 1), 0).astype(np.int64)
    while (surplus := frequencies.sum() - total) > 0:  # rare symbols were rounded up: the common ones pay
        frequencies[frequencies.argmax()] -= min(surplus, frequencies.max() // 2)
    frequencies[frequencies.argmax()] -= surplus
    return frequencies


def encode(symbols: np.ndarray, frequencies: np.ndarray) -> bytes:
    """Code symbols into bytes.

    Args:
        symbols: integers, each with a frequency above zero.
        frequencies: from `normalize_counts`.
    """
    starts = np.cumsum(frequencies) - frequencies
    rows = np.full(-(-len(symbols) // LANES) * LANES, frequencies.argmax())
    rows[: len(symbols)] = symbols  # the last row is filled up with the cheapest symbol
    state = np.full(LANES, LOWEST)
    words = []
    for row in rows.reshape(-1, LANES)[::-1]:
        frequency, start = frequencies[row].astype(np.uint64), starts[row].astype(np.uint64)
        full = state >= frequency << np.uint64(32 - PRECISION)
        words.append((state[full] & WORD_MASK).astype("<u2"))
        state[full] >>= WORD
        state = (state // frequency << np.uint64(PRECISION)) + state % frequency + start
    return state.astype("<u4").tobytes() + b"".join(word.tobytes() for word in reversed(words))


def decode(coded: bytes, frequencies: np.ndarray, count: int) -> np.ndarray:
    """Undo `encode`.

    Args:
        coded: the bytes that `encode` returned.
        frequencies: those that `encode` was given.
        count: how many symbols there are.

    Returns:
        The symbols, int64 (count,).
    """
    damaged = CodingError(f"rANS: {len(coded)} bytes do not decode to {count} symbols; the file is damaged")
    if len(coded) < 4 * LANES or len(coded) % 2:
        raise damaged
    starts = np.cumsum(frequencies) - frequencies
    symbol_at = np.repeat(np.arange(len(frequencies)), frequencies)
    state = np.frombuffer(coded, "<u4", LANES).astype(np.uint64)
    words = np.frombuffer(coded, "<u2", offset=4 * LANES).astype(np.uint64)
    rows, position = np.empty((-(-count // LANES), LANES), np.int64), 0
    for row in rows:
        slot = (state & np.uint64((1 << PRECISION) - 1)).astype(np.int64)
        row[:] = symbol_at[slot]
        state = frequencies[row].astype(np.uint64) * (state >> np.uint64(PRECISION))
        state += (slot - starts[row]).astype(np.uint64)
        hungry = np.flatnonzero(state < LOWEST)
        if position + len(hungry) > len(words):
            raise damaged
        state[hungry] = (state[hungry] << WORD) | words[position : position + len(hungry)]
        position += len(hungry)
    if position != len(words) or (state != LOWEST).any():  # the encoder began with LOWEST in every lane
        raise damaged
    return rows.reshape(-1)[:count]
