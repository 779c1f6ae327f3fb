"""What must not change has not changed; the docstring of the package says how to run parts and how
to renew them.
"""

import json
from pathlib import Path

import pytest
import torch

from tests.marks import IN_CI
from tests.record import measure

FOLDER = Path(__file__).parent
QUICK = (
    measure.OURS,
    "squeezenet1_1",
    "shufflenet_v2_x0_5",
    "mobilenet_v3_small",
    "mnasnet0_5",
    "resnet18",
    "regnet_y_400mf",
    "mobilenet_v2",
    "googlenet",
)
WAYS = (("fx", "fold"), ("fx", "inference"), ("export", "fold"), ("export", "inference"))
FOLDS = [pytest.param(*each, marks=IN_CI) for each in WAYS]
GROUPS = [
    name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
    for name in measure.NETWORKS
]


def load(part: str) -> dict:
    return json.loads((FOLDER / f"{part}.json").read_text())


def assert_same(found: dict, recorded: dict) -> None:
    names = sorted(found.keys() | recorded.keys())
    wrong = [
        f"{n}: is {found.get(n)}, was {recorded.get(n)}"
        for n in names
        if found.get(n) != recorded.get(n)
    ]
    assert not wrong, "\n".join(wrong)


def difference(mode: str, new: dict, old: dict) -> str | None:
    """How logits differ from the record, or None.

    Where no processor like this one made it, int8 codes may flip.
    """
    now, before = torch.tensor(new["logits"]), torch.tensor(old["logits"])
    worst = (now - before).abs().max().item()
    share = 0.1 if mode.endswith(("simulated", "kernel", "quantized")) else 1e-3
    ((here, bits),) = new["sha256"].items()
    right = (
        old["sha256"][here] == bits
        if here in old["sha256"]
        else worst <= 0.011 + share * before.std().item()
    )
    return (
        None
        if right
        else (
            f"{mode}: other bits on {here} than recorded {[*old['sha256']]}, up to {worst:.2f}"
            " apart"
        )
    )


@pytest.mark.filterwarnings("ignore::UserWarning")  # a processor without int8 kernels says so
@pytest.mark.parametrize("name", measure.CHECKPOINTS)
def test_logits(name):
    recorded = load("logits")
    wrong = [
        difference(mode, entry, recorded[mode]) for mode, entry in measure.logits(name).items()
    ]
    assert not any(wrong), "\n".join(filter(None, wrong))


@pytest.mark.parametrize("name", GROUPS)
def test_groups(name):
    assert_same(measure.groups(name), {name: load("groups")[name]})


@pytest.mark.parametrize(("route", "level"), FOLDS)
def test_folds(route, level):
    recorded = {case: entry for case, entry in load("folds").items() if case.endswith(f"({route})")}
    assert_same(measure.folds(route, level), recorded)


@pytest.mark.slow
@pytest.mark.parametrize("name", measure.NETWORKS)
def test_networks(name):
    assert_same(measure.networks(name), {name: load("networks")[name]})


@pytest.mark.slow
def test_marks(tmp_path):
    assert_same(measure.marks(tmp_path), load("marks"))
