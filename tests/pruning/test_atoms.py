"""Atoms: ties resolved against a plain search, pins with their reasons."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.pruning.atoms import Atoms, ascending, connected, distinct


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
    pinned = atoms.pinned(atoms.roots())
    assert [list(pinned.reasons(np.array([root]))) for root in (0, 1, 4)] == [["two"], ["one", "two"], []]
    assert list(pinned.reasons(np.array([0, 1]))) == ["one", "two"]
    assert np.flatnonzero(pinned.anyhow).tolist() == [0, 1]
    assert third.tolist() == [4, 5]


def test_without_ties_every_atom_is_its_own():
    atoms = Atoms()
    atoms.fresh(3)
    assert atoms.roots().tolist() == [0, 1, 2]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 4)).map(np.array) | st.integers(0, 9).map(np.arange) | st.just(np.array([3, 3, 3])))
def test_the_short_cuts_say_what_numpy_says(values):
    values = values.astype(np.int64)
    assert ascending(values).tolist() == np.unique(values).tolist()
    found, places = distinct(values)
    assert found.tolist() == np.unique(values).tolist()
    assert found[places].tolist() == values.tolist()


def test_axes_in_step_hold_the_same_atoms_equally_often():
    atoms = Atoms()
    row, table, other = atoms.fresh(3), atoms.fresh(6), atoms.fresh(3)
    assert not atoms.in_step(row, table)
    atoms.tie(row, table[:3])
    assert not atoms.in_step(row, table)
    atoms.tie(row, table[3:])
    assert atoms.in_step(row, table)
    assert not atoms.in_step(row, other)
    assert not atoms.in_step(row, np.concatenate([table, row[:1]]))
