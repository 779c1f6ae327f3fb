import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from helpers.provenance import command, cpu_name, provenance


@pytest.fixture
def started_as(monkeypatch):
    def pretend(module: str | None, *argv: str) -> None:
        main = ModuleType("__main__")
        main.__spec__ = ModuleSpec(module, None) if module else None
        monkeypatch.setitem(sys.modules, "__main__", main)
        monkeypatch.setattr(sys, "argv", list(argv))

    return pretend


def test_a_row_names_what_one_needs_to_repeat_it(started_as):
    started_as("course.__main__", "/somewhere/course/__main__.py", "train", "--output", "/home/me/x y.safetensors")
    row = provenance(seed=3)
    assert row["command"] == "python -m course train --output 'x y.safetensors'"
    assert command(whole=True) == "python -m course train --output '/home/me/x y.safetensors'"
    assert row["seed"] == 3
    assert all(row[key] for key in ("date", "torch", "torchvision", "python", "device", "threads"))


def test_modules_are_named_as_one_runs_them(started_as):
    started_as("course.benchmarks.training", "/somewhere/course/benchmarks/training.py", "--rounds", "3")
    assert command() == "python -m course.benchmarks.training --rounds 3"


def test_scripts_are_named_without_their_folder(started_as):
    started_as(None, "/somewhere/measure.py", "--rounds", "3")
    assert command() == "measure.py --rounds 3"
    assert cpu_name()
