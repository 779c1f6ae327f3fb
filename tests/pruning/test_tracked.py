"""Numbers that remember where they come from: right answers, and nothing is forgotten."""

import math
import operator

import pytest
import torch

from helpers.pruning.tracked import ARITHMETIC, ONE_SIDED, Real, Tracked, Whole, plain, track


class Notes:
    """Records like the recorder does."""

    def __init__(self):
        self.found = []

    def computed(self, name, inputs, value):
        self.found.append((name, *map(plain, inputs)))
        return track(value, self, name) if type(value) in (int, float) else value

    def decided(self, inputs):
        self.found.append(("decision", *map(plain, inputs)))


@pytest.fixture
def notes():
    return Notes()


@pytest.mark.parametrize("name", ARITHMETIC)
@pytest.mark.parametrize(("size", "other"), [(7, 3), (2.5, 3), (2.5, 0.5)])
def test_arithmetic_from_both_sides(notes, name, size, other):
    function, number = getattr(operator, name), track(size, notes, "size")
    forward, backward = function(number, other), function(other, number)
    assert (plain(forward), plain(backward)) == (function(size, other), function(other, size))
    assert notes.found == [(name, size, other), (name, other, size)]
    assert isinstance(forward, Whole if isinstance(function(size, other), int) else Real)
    assert forward.source == name


@pytest.mark.parametrize("name", ONE_SIDED)
def test_signs(notes, name):
    assert plain(getattr(operator, name)(track(-7, notes, "size"))) == getattr(operator, name)(-7)
    assert notes.found == [(name, -7)]


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons_are_decisions(notes, name):
    for other in (6, 7, 8):
        assert getattr(operator, name)(track(7, notes, "size"), other) is getattr(operator, name)(7, other)
    assert notes.found == [("decision", 7, 6), ("decision", 7, 7), ("decision", 7, 8)]


@pytest.mark.parametrize("name", ["and_", "or_", "xor", "lshift", "rshift"])
def test_bits_are_decisions_from_both_sides(notes, name):
    function, number = getattr(operator, name), track(6, notes, "size")
    assert (function(number, 3), function(3, number)) == (function(6, 3), function(3, 6))
    assert notes.found == [("decision", 6, 3), ("decision", 6, 3)]


@pytest.mark.parametrize("question", [operator.invert, int.bit_length, int.bit_count])
def test_bits_of_one_number_are_a_decision(notes, question):
    number = track(6, notes, "size")
    answer = operator.invert(number) if question is operator.invert else getattr(number, question.__name__)()
    assert answer == question(6)
    assert notes.found == [("decision", 6)]


def test_a_remainder_and_its_quotient_are_decisions(notes):
    assert (divmod(track(7, notes, "size"), 4), divmod(9, track(7, notes, "size"))) == ((1, 3), (1, 2))
    assert notes.found == [("decision", 7, 4), ("decision", 7, 9)]


@pytest.mark.parametrize("question", [bool, int, float, round, math.floor, math.ceil, math.trunc])
@pytest.mark.parametrize("value", [4, 0, 2.5])
def test_plain_answers_are_decisions(notes, question, value):
    answer = question(track(value, notes, "size"))
    assert answer == question(value)
    assert not isinstance(answer, Tracked)
    assert notes.found == [("decision", value)]


def test_what_python_computes_by_itself_is_plain(notes):
    """A float on the left does not ask what it is added to; the trial cut notices that such a number has changed."""
    assert type(0.5 * track(7, notes, "size")) is float


def test_a_tensor_goes_first(notes):
    assert (track(2, notes, "size") * torch.ones(3)).tolist() == [2, 2, 2]
    assert notes.found == []


def test_it_is_a_number_to_everybody_else(notes):
    three = track(3, notes, "size")
    assert [0] * three == [0, 0, 0]
    assert torch.zeros(three).shape == (3,)
    assert {3: "found"}[three] == "found"
