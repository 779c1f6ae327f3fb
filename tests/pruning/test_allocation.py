"""Which units go: against brute force over every order, with ties."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.pruning.allocation import cut_of, rank_units


@dataclass
class Units:
    name: str
    size: int


VALUES = st.lists(st.integers(0, 3).map(float), min_size=1, max_size=7)
SCORES = st.lists(VALUES, min_size=1, max_size=4).map(
    lambda v: {f"g{i}": np.array(s) for i, s in enumerate(v)}
)


def plan(scores, importance="taylor", allocation="global", ratio=0.5, round_to=1):
    groups = [Units(name, len(values)) for name, values in scores.items()]
    ranking, first_n = rank_units(groups, scores, importance, allocation, ratio, round_to)
    removed = cut_of(ranking[:first_n], groups, round_to)
    return {name: units.tolist() for name, units in removed.items()}


@settings(max_examples=100, deadline=None, derandomize=True)
@given(SCORES, st.floats(0, 0.99))
def test_global_ranking_takes_one_at_a_time(scores, ratio):
    """The reference removes the lowest unit of all again and again, as long as its group may still
    lose one.
    """
    left = {name: list(enumerate(values)) for name, values in scores.items()}
    for _ in range(int(sum(map(len, scores.values())) * ratio + 1e-9)):
        ranked = [
            (value, list(left).index(name), unit) for name in left for unit, value in left[name]
        ]
        ranked = [
            (value, group, unit) for value, group, unit in ranked if len(left[f"g{group}"]) > 1
        ]
        if not ranked:
            break
        value, group, unit = min(ranked)
        left[f"g{group}"].remove((unit, value))
    found = plan(scores, ratio=ratio)
    assert {
        name: sorted({*range(len(scores[name]))} - {u for u, _ in rest})
        for name, rest in left.items()
    } == found


@pytest.mark.parametrize(("importance", "counts"), [("l1", [1, 1]), ("taylor", [0, 2])])
def test_scores_of_different_scale_are_divided_by_their_mean(importance, counts):
    scores = {"large": np.array([100.0, 300, 200]), "small": np.array([1.0, 5, 3])}
    assert [len(units) for units in plan(scores, importance, ratio=0.34).values()] == counts


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(1, 100), st.floats(0, 0.999), st.integers(1, 16), st.booleans())
def test_a_share_leaves_a_multiple_or_everything(size, ratio, round_to, by_name):
    scores = {"g": np.arange(size), "h": np.arange(7)}
    found = plan(
        scores, "l1", {"g": ratio} if by_name else "uniform", 0.0 if by_name else ratio, round_to
    )
    wanted = max(size - int(size * ratio + 1e-9), 1)
    left = min(k for k in range(1, size + 1) if k >= wanted and (k == size or k % round_to == 0))
    assert found["g"] == [*range(size - left)]
    assert not by_name or not found["h"]
