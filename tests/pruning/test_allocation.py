"""Which units go: against brute force over every order, with ties."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.pruning.allocation import (
    AllocationError,
    Limits,
    by_ratios,
    choose,
    global_ranking,
)


@dataclass
class Units:
    name: str
    size: int


VALUES = st.lists(st.integers(0, 3).map(float), min_size=1, max_size=7)
SCORES = st.lists(VALUES, min_size=1, max_size=4).map(lambda v: {f"g{i}": np.array(s) for i, s in enumerate(v)})


def units(scores):
    return [Units(name, len(values)) for name, values in scores.items()]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(SCORES, st.floats(0, 0.99), st.integers(1, 3))
def test_global_ranking_takes_one_at_a_time(scores, ratio, min_width):
    """The reference removes the lowest unit of all again and again, as long as its group may still lose one."""
    wanted = int(sum(map(len, scores.values())) * ratio + 1e-9)
    left = {name: list(enumerate(values)) for name, values in scores.items()}
    for _ in range(wanted):
        open_groups = [name for name in left if len(left[name]) > min(min_width, len(scores[name]))]
        if not open_groups:
            break
        name, unit = min(
            ((n, u) for n in open_groups for u in left[n]), key=lambda p: (p[1][1], list(scores).index(p[0]), p[1][0])
        )
        left[name].remove(unit)
    counts = global_ranking(units(scores), scores, "taylor", ratio, Limits(min_width))
    assert counts == {name: len(values) - len(left[name]) for name, values in scores.items()}
    plan = choose(scores, counts)
    assert {n: sorted(set(range(len(s))) - set(plan[n].tolist())) for n, s in scores.items()} == {
        n: [i for i, _ in rest] for n, rest in left.items()
    }


def test_scores_of_different_scale_are_divided_by_their_mean():
    scores = {"large": np.array([100.0, 300, 200]), "small": np.array([1.0, 5, 3])}
    assert global_ranking(units(scores), scores, "l1", 0.34, Limits()) == {"large": 1, "small": 1}
    assert global_ranking(units(scores), scores, "taylor", 0.34, Limits()) == {"large": 0, "small": 2}


def test_global_ranking_leaves_round_widths():
    scores = {"low": np.arange(10.0), "high": np.arange(10.0) + 20}
    assert global_ranking(units(scores), scores, "taylor", 0.25, Limits(round_to=4)) == {"low": 2, "high": 0}


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(1, 100), st.floats(0, 0.999), st.integers(1, 20), st.integers(1, 16))
def test_limits(size, ratio, min_width, round_to):
    left = size - by_ratios([Units("g", size)], {"g": ratio}, Limits(min_width, round_to))["g"]
    wanted = size - int(size * ratio + 1e-9)
    allowed = [k for k in range(1, size + 1) if k == size or (k % round_to == 0 and k >= min_width)]
    assert left == min(k for k in allowed if k >= min(size, max(wanted, min_width)))


@pytest.mark.parametrize("value", [0, -1, 1.5, None, True])
def test_impossible_limits_are_refused(value):
    with pytest.raises(AllocationError, match="min_width is"):
        Limits(min_width=value)
    with pytest.raises(AllocationError, match="round_to is"):
        Limits(round_to=value)
