import pytest
import torch

from helpers.checks.specification import Case, Item, SpecificationError, Verdict, check, combine, copy_tree, generator


def _item(**changes):
    def cases(rng):
        return [Case("two numbers", {"x": torch.randn(2, generator=rng, dtype=torch.float64)})]

    settings = {
        "name": "double", "function": "double", "points": 4, "cases": cases, "hint": "Twice.",
        "oracle": lambda inputs, probe: inputs["x"] + inputs["x"],
    }  # fmt: skip
    return Item(**settings | changes)


def test_right_answers_written_differently_earn_all():
    for function in (lambda x: 2 * x, lambda x: x / 0.5):
        assert check(_item(), {"double": function}) == Verdict(1.0)


@pytest.mark.parametrize("seed", range(5))
def test_a_wrong_answer_earns_nothing_and_is_told_why(seed):
    verdict = check(_item(), {"double": lambda x: x**2}, seed)
    assert verdict.share == 0 and verdict.message.startswith("two numbers: ") and verdict.message.endswith("Twice.")


def test_every_seed_has_its_own_inputs_and_always_the_same():
    item = _item()
    first, again, other = (item.make_cases(seed)[0].inputs["x"] for seed in ("a", "a", "b"))
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_edge_cases_are_hidden():
    item = _item(edges=lambda rng: [Case("an empty tensor", {"x": torch.zeros(0)})])
    assert [len(item.make_cases(1, hidden=hidden)) for hidden in (False, True)] == [1, 2]


def test_an_answer_that_changes_its_inputs_cannot_move_the_oracle():
    assert check(_item(), {"double": lambda x: x.zero_()}).share == 0
    assert check(_item(), {"double": lambda x: x.mul_(2)}).share == 1


@pytest.mark.parametrize(
    ("student", "says"),
    [
        ({}, "no function called double"),
        ({"double": lambda y: y}, "TypeError"),
        ({"double": lambda x: (_ for _ in ()).throw(NotImplementedError)}, None),
        ({"double": 5}, "TypeError"),
        ({"double": lambda x: None}, "None"),
    ],
)
def test_a_broken_answer_is_explained(student, says):
    verdict = check(_item(), student)
    assert verdict.share == 0 and (says is None or says in verdict.message)


def test_a_stub_is_not_done_yet():
    def double(x):
        raise NotImplementedError

    assert check(_item(), {"double": double}).message == "not done yet"


def test_a_view_that_fails_is_the_fault_of_the_answer():
    item = _item(view=lambda answer, probe: answer["missing"])
    assert "cannot be used" in check(item, {"double": lambda x: {}}).message


def test_a_score_of_its_own_is_clamped():
    for share, earned in ((7.0, 1.0), (-1.0, 0.0), (0.25, 0.25)):
        item = _item(score=lambda expected, observed, submitted, share=share: Verdict(share, "so much"))
        assert check(item, {"double": lambda x: x}).share == earned


def test_the_worst_case_counts():
    verdict = combine(_item(), [Verdict(1.0), Verdict(0.0, "bad"), Verdict(1.0)])
    assert verdict.share == 0 and "bad" in verdict.message


def test_a_score_that_is_no_number_earns_nothing():
    odd = Verdict(float("nan"), "odd")
    for verdicts in ([odd], [Verdict(1.0), odd], [odd, Verdict(1.0)]):
        verdict = combine(_item(), verdicts)
        assert verdict.share == 0 and "odd" in verdict.message


def test_mistakes_in_a_specification_are_refused():
    with pytest.raises(SpecificationError, match="points"):
        _item(points=0)
    with pytest.raises(SpecificationError, match="no cases"):
        check(_item(cases=lambda rng: []), {"double": lambda x: x})


def test_generators_depend_on_every_word():
    draws = {
        torch.rand(1, generator=generator(*words)).item() for words in (("ab", "c"), ("a", "bc"), ("abc",), ("a",))
    }
    assert len(draws) == 4


def test_copies_share_nothing():
    tensor = torch.zeros(2, requires_grad=True)
    copied = copy_tree({"a": (tensor, 1)})
    copied["a"][0].add_(1)
    assert tensor.sum() == 0 and not copied["a"][0].requires_grad
