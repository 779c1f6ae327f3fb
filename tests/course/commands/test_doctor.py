import shutil

import pytest

from course.__main__ import main
from course.commands import doctor


def test_this_machine_is_fine(capsys):
    assert main(["doctor"]) == 0
    told = capsys.readouterr().out
    for topic in ("Python", "torchvision", "threads", "GPU", "disk", "memory", "CIFAR-10", "bubblewrap", "Chromium"):
        assert topic in told


def test_a_missing_thing_is_told_with_its_remedy(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "installed", lambda name: name != "tqdm")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 2**20})())
    assert main(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("[fix] packages: tqdm missing: ") and "pip install" in line for line in lines)
    assert any(line.startswith("[fix] 0 GiB of disk free: ") for line in lines)


@pytest.mark.parametrize(
    ("library", "says"), [(None, "they are of two builds"), (b"not a library", "Could not load this library")]
)
def test_a_pair_from_two_places_or_without_operators_is_found(monkeypatch, tmp_path, library, says):
    if library:
        (tmp_path / "_C.so").write_bytes(library)
    else:
        monkeypatch.setattr(doctor, "operators_problem", lambda *_: "")
    (tmp_path / "version.py").write_text("__version__ = '0.1+elsewhere'")
    monkeypatch.setattr(doctor, "torchvision_folder", lambda: tmp_path)
    finding = next(doctor.torch_pair())
    assert not finding.good and "torchvision 0.1+elsewhere do not fit (" in finding.what and says in finding.what
    assert "TORCH_INDEX" in finding.remedy
