"""Which units go: against brute force over every order, with ties."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.pruning.allocation import (
    AllocationError,
    Limits,
    by_ratios,
    checked_ratio,
    choose,
    global_ranking,
    share,
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
@given(VALUES, st.data())
def test_the_lowest_go_and_the_lower_number_among_equals(values, data):
    count = data.draw(st.integers(0, len(values)))
    # Of all ways to pick `count` units the best has the smallest sorted scores, and among those the smallest numbers.
    best = min(itertools.combinations(range(len(values)), count), key=lambda c: (sorted(values[i] for i in c), c))
    assert choose({"g": np.array(values)}, {"g": count})["g"].tolist() == list(best)


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


def test_many_equal_scores_go_in_their_order():
    scores = {name: np.zeros(100) for name in ("first", "second")}
    assert global_ranking(units(scores), scores, "l1", 0.4, Limits()) == {"first": 80, "second": 0}
    assert choose(scores, {"first": 3, "second": 0})["first"].tolist() == [0, 1, 2]


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


def test_shares_are_whole_units():
    assert [share(10, r) for r in (0, 0.1, 0.29, 0.3, 0.7, 0.99)] == [0, 1, 2, 3, 7, 9]


@pytest.mark.parametrize("ratio", [1, 1.0, 1.5, -0.1, float("nan"), float("inf"), "0.5", None, True, False])
def test_impossible_ratios_are_refused(ratio):
    with pytest.raises(AllocationError, match="expected 0 <= ratio < 1"):
        checked_ratio(ratio)


@pytest.mark.parametrize("value", [0, -1, 1.5, None, True])
def test_impossible_limits_are_refused(value):
    with pytest.raises(AllocationError, match="min_width is"):
        Limits(min_width=value)
    with pytest.raises(AllocationError, match="round_to is"):
        Limits(round_to=value)


def test_a_ratio_for_each_group():
    groups = [Units("a", 10), Units("b", 8)]
    assert by_ratios(groups, {"b": 0.5}, Limits()) == {"a": 0, "b": 4}
    with pytest.raises(AllocationError, match="names 'c'"):
        by_ratios(groups, {"c": 0.5}, Limits())
    with pytest.raises(AllocationError, match=r"allocation\['a'\] is 1"):
        by_ratios(groups, {"a": 1}, Limits())
