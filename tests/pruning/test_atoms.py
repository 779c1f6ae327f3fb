"""Atoms: ties resolved against a plain search, pins with their reasons."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.pruning.atoms import Atoms, connected


def by_search(count, edges):
    """The smallest node that can be reached, by walking."""
    neighbours = {n: set() for n in range(count)}
    for a, b in edges:
        neighbours[a].add(b)
        neighbours[b].add(a)
    smallest = []
    for start in range(count):
        seen, todo = {start}, [start]
        while todo:
            for following in neighbours[todo.pop()] - seen:
                seen.add(following)
                todo.append(following)
        smallest.append(min(seen))
    return smallest


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(1, 30).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.tuples(*[st.integers(0, n - 1)] * 2)))))
def test_components_are_those_of_a_plain_search(case):
    count, edges = case
    first, second = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    assert connected(count, first, second).tolist() == by_search(count, edges)


def test_a_long_chain_is_one_component():
    order = np.random.default_rng(0).permutation(5000)
    assert not connected(5000, order[:-1], order[1:]).any()


def test_a_pin_reaches_everything_that_is_tied():
    atoms = Atoms()
    first, second, third = atoms.fresh(2), atoms.fresh(2), atoms.fresh(2)
    atoms.tie(first, second)
    atoms.pin(second[1:], "one")
    atoms.pin(first, "two")
    atoms.pin(None, "nothing to pin")
    masks = atoms.pinned(atoms.roots())
    assert {reason: np.flatnonzero(mask).tolist() for reason, mask in masks.items()} == {"one": [1], "two": [0, 1]}
    assert third.tolist() == [4, 5]
