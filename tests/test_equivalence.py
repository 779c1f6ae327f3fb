import copy
import itertools
import re

import pytest
import torch
from torch import nn
from torch.fx.experimental.optimization import fuse

from helpers.equivalence import (
    EquivalenceError,
    ExpectedAnswers,
    _random_like,
    assert_equivalent,
    digest,
    forked_random,
    gap,
    randomize_batchnorm,
    seed_generators,
)
from tests.passes.zoo import Net

X = torch.zeros(2, 3, 8, 8)


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 5, 1), nn.BatchNorm2d(5)
    ).eval()


def test_a_right_fold_passes_and_neither_network_is_touched():
    model = randomize_batchnorm(network())
    folded = fuse(model)
    model.train()
    before = copy.deepcopy(model.state_dict())
    assert_equivalent(model, folded, X)
    assert_equivalent(nn.ELU(inplace=True), nn.ELU(inplace=True), X)
    assert model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


WRONG = {
    "forgets the mean": lambda model: model[1].running_mean.zero_(),
    "forgets the sign": lambda model: model[1].weight.data.abs_(),
    "rounds": lambda model: model.half().float(),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_rewrites_are_caught_once_the_statistics_are_no_longer_fresh(wrong):
    for model in (network(), randomize_batchnorm(network())):
        made = copy.deepcopy(model)
        WRONG[wrong](made)
        if wrong != "rounds" and model[1].weight.min() > 0:
            assert_equivalent(model, made, X)
            continue
        with pytest.raises(
            EquivalenceError,
            match=r"trial 0: it is off by .* most at \(\d, \d, \d, \d\): .* instead",
        ):
            assert_equivalent(model, made, X)


@pytest.mark.parametrize(
    "bad", [nn.Flatten(), nn.Threshold(10, float("nan")), Net(lambda m, x: x.double())]
)
def test_other_shapes_and_types_and_nan_are_caught(bad):
    with pytest.raises(EquivalenceError):
        assert_equivalent(nn.Identity(), bad, X)
    kinds = [torch.tensor([1, float(kind)]) for kind in ("nan", "inf", "-inf")]
    assert all((gap(one, other)[1] == 0) == (one is other) for one in kinds for other in kinds)
    for tensor in (torch.tensor(3.0), torch.tensor([1.0, 2.0])):
        assert gap(tensor, 3.0)[1] == gap(3.0, tensor)[1] == torch.inf
    assert gap(3.0, 3.0)[1] == gap("a", "a")[1] == 0 and gap(3.0, 2.0)[1] == torch.inf


OTHERS = {
    "in call 2, .* channels_last memory, it does not run": (
        lambda m, x: x.reshape(2, -1),
        lambda m, x: x.view(2, -1),
    ),
    "in call 1, .* it is off by": (lambda m, x: x * m.i, lambda m, x: 5 * x * m.i),
}


@pytest.mark.parametrize("message", OTHERS)
def test_a_network_that_runs_in_fewer_formats_and_wrong_complex_numbers_are_noticed(message):
    one, other = (Net(run, i=torch.tensor(1j)) for run in OTHERS[message])
    assert re.match(message, ExpectedAnswers(one, (X + 1,)).difference(other) or "")


def test_a_digest_tells_bytes_apart_wherever_they_lie_in_memory():
    one = torch.tensor(3.5)
    same = [one.expand(1), torch.tensor([[3.5, 1.0]]).T[:1], one.reshape(1)]
    assert len({digest([x]) for x in same}) == 1 and digest([one]) != digest([2 * one])


def test_random_numbers_are_kept_without_starting_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)  # its driver may be too old
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda _: pytest.fail("seeded for later"))
    before = torch.get_rng_state()
    with forked_random():
        seed_generators(3)
        assert torch.initial_seed() == 3
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("draws", [True, False])
def test_a_network_that_draws_on_a_gpu_is_known_as_random(monkeypatch, draws):
    states, seeds = itertools.count(), []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    state = lambda gpu: torch.tensor([next(states) if draws else 0])  # noqa: E731
    monkeypatch.setattr(torch.cuda, "get_rng_state", state)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, gpu: None)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    assert ExpectedAnswers(network(), (X,))._is_random == draws
    assert seeds and set(seeds) >= {0, 1}  # each call has its own, on GPUs, too


def test_networks_that_give_no_number_are_not_called_equal():
    nothing = Net(lambda m, x: x * float("nan"))
    with pytest.raises(EquivalenceError, match="gives no number"):
        assert_equivalent(nothing, nothing, X)
    empty = Net(lambda m, x: x[:0])
    assert_equivalent(empty, empty, X)


def test_randomized_statistics_have_negative_scales_and_positive_variances():
    bare = nn.BatchNorm1d(3, affine=False, track_running_stats=False)
    layer = randomize_batchnorm(nn.Sequential(nn.BatchNorm2d(200), bare))[0]
    assert 0 < int((layer.weight < 0).sum()) < 100
    assert float(layer.running_var.min()) > 0 and float(layer.running_mean.std()) > 0.3


def test_a_network_that_overflows_excuses_no_other_answer():
    overflows = Net(
        lambda m, x: (100 * x).exp() / 1e30 / 1e30
    )  # in float32; in float64 it is small
    answers = ExpectedAnswers(overflows, (torch.linspace(1, 2, 4)[None],))
    assert answers.difference(overflows) is None
    assert answers.difference(Net(lambda m, x: x * 0)) is not None
    half = lambda factor: Net(  # noqa: E731
        lambda m, x: torch.cat([(100 * x).exp() / 1e30 / 1e30, factor * x])
    )
    answers = ExpectedAnswers(half(1.0), (torch.linspace(1, 2, 4)[None],))
    assert answers.difference(half(1.0)) is None
    assert answers.difference(half(1.5)) is not None


def test_random_inputs_like_a_mask_of_infinities_are_numbers():
    mask = torch.tensor([[0.0, -torch.inf], [-torch.inf, 0.0]])
    assert _random_like(mask, 2, 2, torch.Generator()).isfinite().all()
