import sys

from helpers.provenance import command, cpu_name, provenance


def test_a_row_names_what_one_needs_to_repeat_it(monkeypatch):
    monkeypatch.setattr(
        sys, "argv", ["/somewhere/helpers/__main__.py", "train", "--output", "/home/me/x y.safetensors"]
    )
    row = provenance(seed=3)
    assert row["command"] == "python -m helpers train --output 'x y.safetensors'"
    assert row["seed"] == 3
    assert all(row[key] for key in ("date", "torch", "torchvision", "python", "device", "threads"))


def test_scripts_are_named_without_their_folder(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/somewhere/benchmarks/training.py", "--rounds", "3"])
    assert command() == "training.py --rounds 3"
    assert cpu_name()
