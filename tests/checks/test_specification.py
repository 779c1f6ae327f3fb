"""How answers are judged: the cases of an item, its verdict, and the difference between two
answers.
"""

import math

import pytest
import torch

from helpers.checks.compare import Tolerance, difference
from helpers.checks.specification import Case, Item, SpecificationError, Verdict, combine, generator
from helpers.checks.trying import first_failure


def _item(**changes):
    def cases(rng):
        return [Case("two numbers", {"x": torch.randn(2, generator=rng, dtype=torch.float64)})]

    settings = {
        "name": "double",
        "cases": cases,
        "hint": "Twice.",
        "oracle": lambda inputs, probe: inputs["x"] * 2,
    }
    return Item(**settings | changes)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda x: x / 0.5, None),
        (lambda x: x.mul_(2), "changes its argument x; work on a copy"),
        (lambda x: x.zero_(), "differs by"),
        (lambda x: x**2, "differs by"),
        (lambda x: None, "is a return missing?"),
        (lambda x: x.nowhere, "AttributeError"),
        (lambda y: y, "keep the exercise's names"),
    ],
)
def test_an_answer_is_right_however_it_is_written_and_a_wrong_one_is_told_why(answer, says):
    failure = first_failure(_item(), answer)
    assert failure is None if says is None else says in failure.message


@pytest.mark.parametrize(
    "item",
    [
        _item(view=lambda answer, probe: float(answer)),
        _item(view=lambda answer, probe: bool(answer)),
        _item(run=lambda student, inputs: list(student["double"](**inputs))),
    ],
)
def test_a_return_that_is_missing_is_named_whatever_looks_at_the_answer(item):
    assert "is a return missing?" in first_failure(item, lambda x: None).message


def test_inputs_that_a_case_names_are_not_said_again():
    for label, times in (("twice 4711", 1), ("a number", 1)):
        case = [Case(label, {"x": 4711})]
        failure = first_failure(_item(cases=lambda rng, case=case: case), lambda x: None)
        assert failure.message.count("4711") == times


def test_a_view_that_fails_is_the_fault_of_the_answer():
    item = _item(view=lambda answer, probe: answer["missing"])
    assert "cannot be used" in first_failure(item, lambda x: {}).message
    for unusual in (lambda x: x.to("meta"), lambda x: x.to_sparse()):
        assert "cannot be used" in first_failure(_item(), unusual).message


def test_the_worst_case_counts_and_a_share_lies_between_0_and_1():
    odd, nan = Verdict(7.0), float("nan")
    for shares, earned in (
        ((7.0,), 1),
        ((-1.0,), 0),
        ((0.25, 1.0), 0.25),
        ((1.0, 0.0, 1.0), 0),
        ((nan,), 0),
    ):
        assert combine(_item(), [Verdict(share) for share in shares]).share == earned
    for verdicts in (
        [odd, Verdict(nan, "odd")],
        [Verdict(nan, "odd"), Verdict(1.0)],
        [odd, Verdict(0.5, "odd")],
    ):
        assert combine(_item(), verdicts).message == "odd. Hint: Twice."
    scored = _item(score=lambda expected, observed, submitted: Verdict(submitted / 10, "so much"))
    assert scored.compare(scored.make_cases(1)[0], 1, 1, 4) == Verdict(0.4, "two numbers: so much")


def test_mistakes_in_a_specification_are_refused():
    with pytest.raises(SpecificationError, match="points"):
        _item(points=0)
    with pytest.raises(SpecificationError, match="no cases"):
        combine(_item(), [])


def test_generators_depend_on_every_word():
    words = (("ab", "c"), ("a", "bc"), ("abc",), ("a",))
    assert len({torch.rand(1, generator=generator(*one)).item() for one in words}) == 4


T, EXACT, USUAL = torch.tensor, Tolerance(relative=0.0, absolute=0.0), Tolerance()
ONE, THOUSANDTH = T([1.0, 0.0], dtype=torch.float64), Tolerance(relative=1e-3, absolute=0.0)
EQUAL = [
    (1, 1.0, USUAL),
    (T([1.0, 2.0]), T([1.0, 2.0 + 1e-9]), USUAL),
    (T([1.0]), T([1.0], dtype=torch.float64), USUAL),
    (T([1]), T([1], dtype=torch.uint8), USUAL),
    (T(3.0), 3.0, USUAL),
    ({"a": [1, None, "x", True]}, {"a": (1, None, "x", True)}, USUAL),
    (T([math.inf, math.nan]), T([math.inf, math.nan]), USUAL),
    (torch.zeros(0), torch.zeros(0), USUAL),
    (T(2**62), T(2**62 + 1), Tolerance(relative=0.0, absolute=1.0)),
    (10**6, 10**6 + 1000, THOUSANDTH),
    *((ONE * scale, (ONE + 0.9e-3) * scale, THOUSANDTH) for scale in (1e-6, 1.0, 1e6)),
]
DIFFERENT = [
    (1.0, 1.1, "differs by 0.1", USUAL),
    (1.0, math.nan, "not finite", USUAL),
    (1.0, True, "True or False", USUAL),
    (True, 1, "a number", USUAL),
    (T([1.0, 2.0]), T([[1.0, 2.0]]), "shape (2,)", USUAL),
    (T([1.0]), T([1]), "int64", USUAL),
    (T([1]), T([1.0]), "float32", USUAL),
    ([T([1])], [T([1], dtype=torch.uint8)], "holds torch.uint8", Tolerance(same_types=True)),
    (T([1]), T([1 + 1j]), "complex64", USUAL),
    (T(1.0), 1, "but is 1", USUAL),
    (T(1), 1.0, "but is 1.0", USUAL),
    (T([1.0, 2.0]), T([1.0, math.inf]), "not finite", USUAL),
    ([1, 2], [1], "length 2", USUAL),
    ([1], {"0": 1}, "a list", USUAL),
    ({"a": 1}, {"b": 1}, "entries", USUAL),
    ({"a": 1, "b": 1}, {"a": 1}, "entries", USUAL),
    ("fold", "keep", "not right", USUAL),
    (None, 0, "None", USUAL),
    ([1], None, "is a return missing?", USUAL),
    ([T([1]), T([2])], [T([1]), None], "but is None", USUAL),
    ({"a": [T([1.0]), 2]}, {"a": [T([1.0]), 3]}, 'part ["a"][1] of the answer differs', USUAL),
    (1, 10**400, "differs by inf", USUAL),
    (1.0, -(10**400), "not finite", USUAL),
    (T([-1]), T([2**64 - 1], dtype=torch.uint64), "differs by 1.84e+19", USUAL),
    (T(2**62), T(2**62 + 2), "differs by 2 ", Tolerance(relative=0.0, absolute=1.0)),
    (T(0.1, dtype=torch.float64), 0.1 + 1e-12, "differs by", EXACT),
    *(
        (ONE * scale, (ONE + 1.1e-3) * scale, "differs by", THOUSANDTH)
        for scale in (1e-6, 1.0, 1e6)
    ),
    (
        ONE,
        ONE + 1.0005e-3,
        "differs by",
        THOUSANDTH,
    ),  # the right answer decides what is allowed, not the given one
]


@pytest.mark.parametrize(("expected", "got", "tolerance"), EQUAL)
def test_equal_answers_have_no_difference(expected, got, tolerance):
    assert difference(expected, got, tolerance) is None


@pytest.mark.parametrize(("expected", "got", "says", "tolerance"), DIFFERENT)
def test_a_difference_is_named(expected, got, says, tolerance):
    words = difference(expected, got, tolerance)[0]
    assert says in words and ("return missing" in words) == (got is None)


@pytest.mark.parametrize(
    ("expected", "got", "values"),
    [
        (1, 2, "expected 1, got 2"),
        ([1, 2], [1, 3], "part [1]: expected 2, got 3"),
        (T([0, 1]), T([0, 2]), "at [1]: expected 1, got 2"),
        ({"a": T([0, 1])}, {"a": T([0, 2])}, 'part ["a"], at [1]: expected 1, got 2'),
    ],
)
def test_the_first_value_that_differs_is_named_with_its_place(expected, got, values):
    assert difference(expected, got, EXACT)[1] == values


def test_a_lost_digit_is_shown_and_the_coarser_numbers_are_named():
    exact = T([1.0, 1 / 3], dtype=torch.float64)
    words, values = difference(exact, exact.float(), EXACT)
    assert words.endswith("; it is in torch.float32, the right one in torch.float64")
    assert values == "at [1]: expected 0.3333333333333333, got 0.3333333432674408"
    assert "torch." not in difference(exact, exact + 1, EXACT)[0]
    assert "is in torch.float32" in difference(1 / 3, exact.float()[1], EXACT)[0]
    assert "is in" not in difference(1 / 3, exact[1] + 1, EXACT)[0]


@pytest.mark.parametrize("large", [2**24 + 1, 2**53 + 1, -(2**63) + 1])
def test_large_integers_are_compared_exactly(large):
    for wrap, other in (
        (int, int),
        (T, T),
        (lambda n: [n], lambda n: [n]),
        (lambda n: T([0, n]),) * 2,
        (T, int),
    ):
        assert difference(wrap(large), other(large), EXACT) is None
        for wrong in (large - 1, large + 1):
            assert "differs by 1" in difference(wrap(large), other(wrong), EXACT)[0]
