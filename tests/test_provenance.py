import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
import torch

from helpers.provenance import command, cpu_name, joined, provenance

# what a row says, and how the process was started: as which module, and with which words
STARTED = {
    "python -m course train --output 'x y.st'": (
        "course.__main__",
        "train",
        "--output",
        "/home/a=b/x y.st",
    ),
    "python -m course.benchmarks.training --rounds 3": (
        "course.benchmarks.training",
        "--rounds",
        "3",
    ),
    "python -m course train '--output=x y.st'": (
        "course.__main__",
        "train",
        "--output=/home/a=b/x y.st",
    ),
    "measure.py --rounds 3": (None, "--rounds", "3"),
}


@pytest.mark.parametrize("told", STARTED)
def test_a_row_names_what_one_needs_to_repeat_it(told, monkeypatch):
    module, *words = STARTED[told]
    main = ModuleType("__main__")
    main.__spec__ = ModuleSpec(module, None) if module else None
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(sys, "argv", ["/somewhere/measure.py", *words])
    row = provenance(seed=3)
    assert (row["command"], row["seed"]) == (told, 3)
    assert command(whole=True) == told.replace("x y.st", "/home/a=b/x y.st")
    assert row["device"] == cpu_name()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "GPU")
    assert provenance()["device"] == cpu_name()  # nothing was computed on the GPU
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 512)
    assert provenance()["device"] == "GPU"
    assert all(row[key] for key in ("date", "torch", "torchvision", "python", "device", "threads"))


def test_a_command_is_quoted_for_the_shells_of_its_system(monkeypatch):
    words = ["python", r"C:\Anna Maria\small.safetensors", r"build\half.safetensors"]
    assert joined(["cd", "/a b"]) == "cd '/a b'"
    monkeypatch.setattr("os.name", "nt")
    assert joined(words) == r'python "C:\Anna Maria\small.safetensors" build\half.safetensors'
