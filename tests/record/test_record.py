"""What must not change has not changed: see the docstring of the package on how to run parts and how to renew them."""

import gc
from typing import Any

import pytest

from tests.record import files, measure

FAST = ("squeezenet1_1", "shufflenet_v2_x0_5", "mobilenet_v3_small", "mnasnet0_5", "resnet18", "mobilenet_v2")
QUICK = (measure.OURS, *FAST, "regnet_y_400mf", "googlenet")
ALL = [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in measure.NETWORKS if name not in QUICK)]


def differences(found: dict[str, Any], recorded: dict[str, Any]) -> list[str]:
    """One line for each entry that is not as recorded."""
    lines = [f"{key}: recorded, but there is no such thing any more" for key in recorded.keys() - found.keys()]
    lines += [f"{key}: not recorded" for key in found.keys() - recorded.keys()]
    common = sorted(found.keys() & recorded.keys())
    lines += [f"{key}: is {found[key]}, was {recorded[key]}" for key in common if found[key] != recorded[key]]
    return lines


def assert_same(found: dict[str, Any], recorded: dict[str, Any]) -> None:
    assert not (lines := differences(found, recorded)), "\n".join(lines)


@pytest.mark.parametrize("name", measure.CHECKPOINTS)
def test_logits(name):
    recorded = files.load("logits")
    found = {f"{name} {mode}": (mode, y) for mode, y in measure.logits(name).items()}
    assert not found.keys() - recorded.keys(), "not recorded"
    wrong = {key: files.logits_differ(mode, y, recorded[key]) for key, (mode, y) in found.items()}
    assert not (lines := [f"{key}: {why}" for key, why in wrong.items() if why]), "\n".join(lines)


@pytest.mark.parametrize("name", ALL)
def test_channel_groups(name):
    gc.collect()  # the gigabytes of the network before
    assert_same(measure.summary(measure.groups(name)), files.load("groups")[name])


def zoo(route: str) -> dict[str, Any]:
    return {case: value for case, value in files.load("folds").items() if case.endswith(f"({route})")}


def test_folds_of_the_zoo():
    assert_same(measure.zoo_folds("fx"), zoo("fx"))


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize(("route", "level"), [("fx", "inference"), ("export", "fold"), ("export", "inference")])
def test_folds_of_the_zoo_by_the_other_routes_and_levels(route, level):
    assert_same(measure.zoo_folds(route, level), zoo(route))
