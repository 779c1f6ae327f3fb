"""The benchmark of other packages' networks, with a package of three: what it says of each."""

import os
import signal

import pandas as pd
import pytest
import torch
from torch import nn

from course.benchmarks import common, wild, wild_steps
from course.benchmarks.wild_networks import PACKAGES, by_size, in_turn, lively
from course.benchmarks.wild_norms import foldable_norms
from course.benchmarks.wild_reference import decibels, reference
from helpers import passes, quantization
from helpers.quantization.integer import AveragePool, Layer
from tests.passes.zoo import Net, conv, norm


def right():
    return nn.Sequential(conv(), norm(4), nn.ReLU(), conv(4, 5), norm(5), nn.Flatten())


def refusing():
    """Decides by the content of an image, which no graph does."""
    return Net(lambda m, x: m.conv(x) if x.sum() > 0 else m.conv(-x), conv=conv())


def end_the_process(x):
    os.kill(os.getpid(), signal.SIGKILL)
    return x


class Crash(nn.Module):
    """Runs without data, and takes its process with it when the answers are compared."""

    def __init__(self):
        super().__init__()
        self.conv = conv()

    def forward(self, x):
        return end_the_process(self.conv(x))


class Three:
    def names(self):
        return ["right", "refusing", "crashing"]

    def built(self, name):
        made = {"right": right, "refusing": refusing, "crashing": Crash}[name]()
        return made, (torch.randn(2, 3, 6, 6),)


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """Runs the benchmark, and reads the table that it leaves."""
    monkeypatch.setattr(common, "FOLDER", tmp_path)
    monkeypatch.setitem(PACKAGES, "three", Three())

    def run(*options):
        wild.main(["--package", "three", *options])
        return pd.read_csv(tmp_path / "wild.csv").set_index(["network", "step"])

    return run


def test_each_network_gets_its_word(rows, capsys):
    table = rows("--steps", "optimize", "prune")
    steps = ["optimize", "optimize fx", "optimize export", "prune"]
    assert [*table.loc["right"].index] == steps and {*table.loc["right"].result} == {"right"}
    assert {*table.loc["refusing"].result[:3]} == {"refused"}
    assert table.loc["refusing", "optimize"].reason.startswith("tracing: Net cannot be traced")
    assert {*table.loc["crashing"].result} == {"crashed"}
    folds = table.loc["right"].iloc[:3]
    assert {*folds.foldable} == {2} and {*folds.folded} == {2}
    assert "folded %" in capsys.readouterr().out


def test_a_table_goes_on_and_chosen_rows_are_made_again(rows, monkeypatch):
    first = rows("--only", "right", "--steps", "prune")
    monkeypatch.setitem(wild.STEPS, "prune", lambda model, inputs: 1 / 0)
    assert rows("--only", "right", "--steps", "prune").equals(first)
    (again,) = rows("--only", "right", "--steps", "prune", "--again", "right").itertuples()
    assert again.result == "crashed" and again.reason.startswith("ZeroDivisionError")


def test_a_step_after_a_full_memory_starts_anew(rows, monkeypatch):
    def full(model, inputs):
        model.full = True
        raise ImportError("library.so: failed to map segment from shared object")

    def next_step(model, inputs):
        return {"left": int(hasattr(model, "full"))}

    monkeypatch.setitem(wild.STEPS, "prune", full)
    monkeypatch.setitem(wild.STEPS, "quantize", next_step)
    table = rows("--only", "right", "--steps", "prune", "quantize").loc["right"]
    assert [*table.result] == ["too large", "right"] and table.left["quantize"] == 0


WRONG = {
    "another answer": lambda model, *_, **__: (lambda x: model(x) * 1.001, None),
    "another batch": lambda model, *_, **__: (lambda x: model(x) * (1 + (len(x) > 2)), None),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_answer_is_found(what, monkeypatch):
    monkeypatch.setattr(passes, "optimize", WRONG[what])
    found = wild.outcome("optimize", right().eval(), (torch.randn(2, 3, 6, 6),))
    assert found["result"] == "wrong"


def test_what_takes_too_long_is_stopped(monkeypatch):
    def endless(model, inputs):
        while True:
            pass

    monkeypatch.setattr(wild, "SECONDS", 0.2)
    monkeypatch.setitem(wild.STEPS, "prune", endless)
    before = signal.signal(signal.SIGPROF, wild.out_of_time)
    try:
        assert wild.outcome("prune", nn.ReLU(), ())["result"] == "too slow"
    finally:
        signal.signal(signal.SIGPROF, before)


def test_norms_count_if_nobody_else_reads_the_layer():
    parts = {"conv": conv(), "one": norm(4), "two": norm(4)}
    alone = Net(lambda m, x: m.two(m.one(m.conv(x)).relu()), **parts).eval()
    shared = Net(lambda m, x: m.one(y := m.conv(x)) + y, **parts).eval()
    x = (torch.randn(2, 3, 6, 6),)
    assert foldable_norms(alone, x) == 1 and foldable_norms(shared, x) == 0


def test_nothing_is_hidden_by_a_constant():
    layer = nn.LayerNorm(4)
    layer.bias.requires_grad_(False)
    assert all(parameter.std() > 0 for parameter in lively(layer).parameters())


def test_small_networks_come_first():
    assert sorted(["net_base", "net50", "net_tiny", "net18"], key=by_size) == [
        "net_tiny",
        "net18",
        "net50",
        "net_base",
    ]
    assert in_turn([["a_base", "a_tiny"], ["b_small"]]) == ["a_tiny", "b_small", "a_base"]


def test_every_step_is_shown():
    assert [*wild.SHOWN] == [*wild_steps.STEPS, *wild.NEEDED]


def test_a_package_that_is_not_installed_is_an_empty_row():
    row = {"network": "a", "foldable": 2, "folded": 2}
    rows = [row | {"step": "prune", "result": result} for result in ("right", "too slow")]
    table = wild.summary(pd.DataFrame(rows))
    assert table.loc["prune", "right %"] == 100 and table.loc["prune", "too slow"] == 1
    assert table.loc["torchao PT2E", "right"] == 0 and pd.isna(table.loc["torchao PT2E", "right %"])


IMAGES = (torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0)),)


def words():
    return nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 2)).eval()


def test_a_network_of_words_is_left_out():
    found = wild.outcome("quantize", words(), (torch.ones(2, 5, dtype=torch.long),))
    assert found["result"] == "not for images" and found["reason"].startswith("calibration images")


def test_the_first_tensor_of_a_structure_is_quantized():
    model = Net(lambda m, x: {"out": (m.net(x), x), "other": x}, net=right()).eval()
    made = wild_steps.one_answer(model, IMAGES)
    assert torch.equal(made(*IMAGES), model.net(*IMAGES))
    assert wild.outcome("quantize", model, IMAGES)["result"] == "right"


def test_a_network_that_rounding_ruins_is_not_wrong():
    """One channel, a thousand times larger than the others, takes all codes; nobody reads it."""
    model = nn.Sequential(conv(), nn.ReLU(), conv(4, 5), nn.Flatten()).eval()
    model[0].weight.data[0] *= 1000
    model[2].weight.data[:, 0] = 0
    found = wild.outcome("quantize", model, IMAGES)
    assert found["result"] == "right" and max(found["decibels"], found["reference"]) < 10


def fewer_bits(*arguments, quantize=quantization.quantize):
    return quantize(*arguments, quantization.Recipe(weight_bits=3))


def test_an_error_above_that_of_rounding_is_wrong(monkeypatch):
    monkeypatch.setattr(quantization, "quantize", fewer_bits)
    found = wild.outcome("quantize", right().eval(), IMAGES)
    assert found["result"] == "wrong" and "PyTorch's rounding reaches" in found["reason"]


SPOILED = {
    "two codes": lambda codes: codes.flatten()[0].add_(2),
    "many codes": lambda codes: codes.flatten()[:20].add_(1),
}


@pytest.mark.parametrize("what", SPOILED)
def test_a_mode_with_other_codes_is_wrong(what, monkeypatch):
    def integer(step, *codes, exact=Layer.integer):
        made = exact(step, *codes)
        if made.dtype == torch.uint8:
            made.clamp_(max=253)
            SPOILED[what](made)
        return made

    monkeypatch.setattr(Layer, "integer", integer)
    found = wild.outcome("quantize", right().eval(), IMAGES)
    assert found["result"] == "wrong" and "of the codes differ" in found["reason"]


def test_a_mean_halfway_between_two_codes_may_go_either_way(monkeypatch):
    """Behind a pool whose unit is that of its input every fourth mean is one; NASNet has such."""
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), nn.AvgPool2d(2), conv(4, 5)).eval()
    in_twos = nn.functional.interpolate(torch.randn(4, 3, 10, 10), scale_factor=2)
    made = quantization.quantize(model, in_twos)
    x = torch.randn(4, 3, 20, 20)
    wild_steps.check_codes(made, "integer", x)
    with monkeypatch.context() as spoiled:  # means that are no such ties
        right = AveragePool.integer
        spoiled.setattr(AveragePool, "integer", lambda step, codes: right(step, codes) + 1)
        with pytest.raises(wild_steps.Wrong, match="of the codes differ"):
            wild_steps.check_codes(made, "integer", x)
    monkeypatch.setattr(wild_steps, "HALFWAY", 0)
    with pytest.raises(wild_steps.Wrong, match="of the codes differ"):
        wild_steps.check_codes(made, "integer", x)


def rounded(values, like):
    """Eight bits for the range of other values."""
    low = min(like.min().item(), 0)
    scale = (max(like.max().item(), 0) - low) / 255
    first = -round(-low / scale)
    return scale * (values / scale).round().clamp(first, first + 255)


@torch.no_grad()
def test_the_reference_is_a_rounded_network():
    layer = nn.Conv2d(3, 4, 3, bias=False)
    exact = layer(*IMAGES)
    scales = layer.weight.abs().amax((1, 2, 3), keepdim=True) / 127
    weight = scales * (layer.weight / scales).round()
    by_hand = torch.nn.functional.conv2d(rounded(*IMAGES, *IMAGES), weight)
    expected = decibels(exact, rounded(by_hand, exact))
    assert reference(layer, *IMAGES, IMAGES) == pytest.approx(expected, abs=0.01)


@torch.no_grad()
def test_the_reference_rounds_behind_a_batch_norm():
    """As a folded network does: before the norm, its large constant would cost nothing."""
    layer = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)).eval()
    layer[1].bias.fill_(100)
    exact = layer(*IMAGES)
    scales = layer[0].weight.abs().amax((1, 2, 3), keepdim=True) / 127
    weight = scales * (layer[0].weight / scales).round()
    by_hand = layer[1](torch.nn.functional.conv2d(rounded(*IMAGES, *IMAGES), weight))
    expected = decibels(exact, rounded(by_hand, exact))
    assert reference(layer, *IMAGES, IMAGES) == pytest.approx(expected, abs=0.01)


def test_folding_by_torch_has_its_row():
    found = wild.outcome("torch fuse", right().eval(), IMAGES)
    assert found["result"] == "right" and found["folded"] == 2
