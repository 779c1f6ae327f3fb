import pytest
import torch

from helpers.checks.specification import Case, Item, SpecificationError, Verdict, combine, generator
from helpers.checks.trying import first_failure


def _item(**changes):
    def cases(rng):
        return [Case("two numbers", {"x": torch.randn(2, generator=rng, dtype=torch.float64)})]

    settings = {"name": "double", "cases": cases, "hint": "Twice.", "oracle": lambda inputs, probe: inputs["x"] * 2}
    return Item(**settings | changes)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda x: x / 0.5, None),
        (lambda x: x.mul_(2), None),  # its inputs are its own
        (lambda x: x.zero_(), "differs by"),
        (lambda x: x**2, "differs by"),
        (lambda x: None, "is a return missing?"),
        (lambda x: x.nowhere, "AttributeError"),
        (lambda y: y, "keep the exercise's names"),
    ],
)
def test_an_answer_is_right_however_it_is_written_and_a_wrong_one_is_told_why(answer, says):
    failure = first_failure(_item(), answer)
    assert failure is None if says is None else says in failure


def test_every_seed_has_its_own_inputs_always_the_same_and_edge_cases_are_hidden():
    item = _item(edges=lambda rng: [Case("an empty tensor", {"x": torch.zeros(0)})])
    first, again, other = (item.make_cases(seed)[0].inputs["x"] for seed in ("a", "a", "b"))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert [len(item.make_cases(1, hidden=hidden)) for hidden in (False, True)] == [1, 2]


def test_a_view_that_fails_is_the_fault_of_the_answer():
    assert "cannot be used" in first_failure(_item(view=lambda answer, probe: answer["missing"]), lambda x: {})


def test_the_worst_case_counts_and_a_share_lies_between_0_and_1():
    odd, nan = Verdict(7.0), float("nan")
    for shares, earned in (((7.0,), 1), ((-1.0,), 0), ((0.25, 1.0), 0.25), ((1.0, 0.0, 1.0), 0), ((nan,), 0)):
        assert combine(_item(), [Verdict(share) for share in shares]).share == earned
    for verdicts in ([odd, Verdict(nan, "odd")], [Verdict(nan, "odd"), Verdict(1.0)], [odd, Verdict(0.5, "odd")]):
        assert combine(_item(), verdicts).message == "odd. Twice."
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
