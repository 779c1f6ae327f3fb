import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course.reference import rans


def coded(symbols, alphabet):
    frequencies = rans.normalize_counts(np.bincount(symbols, minlength=alphabet))
    return rans.encode(symbols, frequencies), frequencies


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(1, 3000),
    alphabet=st.integers(1, 256),
    spread=st.floats(0.01, 100),
    seed=st.integers(0, 2**31),
)
def test_decoding_gives_the_symbols_back(count, alphabet, spread, seed):
    drawn = np.random.default_rng(seed).laplace(alphabet / 2, spread, count)
    symbols = np.clip(drawn, 0, alphabet - 1).astype(np.int64)
    stream, frequencies = coded(symbols, alphabet)
    assert np.array_equal(rans.decode(stream, frequencies, count), symbols)


@pytest.mark.parametrize("spread", [0.3, 3.0, 30.0])
def test_size_comes_within_one_percent_of_the_entropy(spread):
    drawn = np.random.default_rng(0).normal(128, spread, 200_000)
    symbols = np.clip(np.round(drawn), 0, 255).astype(np.int64)
    share = np.bincount(symbols, minlength=256) / len(symbols)
    entropy = -(share[share > 0] * np.log2(share[share > 0])).sum() * len(symbols) / 8
    stream, _ = coded(symbols, 256)
    assert entropy <= len(stream) + 1 <= 1.01 * entropy + 300
