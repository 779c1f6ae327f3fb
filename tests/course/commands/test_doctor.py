import resource
import shutil
import subprocess
import sys

from course.__main__ import main
from course.commands import doctor


def test_this_machine_is_fine_and_told_in_seconds():
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = subprocess.run([sys.executable, "-m", "course", "doctor"], capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Processor time, of which others on the same core make up to half as much again; alone it is 4 s.
    assert after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime < 8
    assert result.returncode == 0
    for topic in ("Python", "torchvision", "threads", "GPU", "disk", "memory", "CIFAR-10", "bubblewrap", "Chromium"):
        assert topic in result.stdout


def test_a_missing_thing_is_told_with_its_remedy(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "installed", lambda name: name != "tqdm")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 2**20})())
    assert main(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("[fix] packages: tqdm missing: ") and "pip install" in line for line in lines)
    assert any(line.startswith("[fix] 0 GiB of disk free: ") for line in lines)


def test_pairs_from_two_places_are_found(monkeypatch):
    monkeypatch.setattr(doctor, "torchvision_version", lambda: "0.1+elsewhere")
    finding = next(iter(doctor.torch_pair()))
    assert not finding.good
    assert "TORCH_INDEX" in finding.remedy


def test_operators_that_do_not_load_are_found(monkeypatch, tmp_path):
    (tmp_path / "_C.so").write_bytes(b"not a library")
    (tmp_path / "version.py").write_text("__version__ = '0.1'")
    monkeypatch.setattr(doctor, "torchvision_folder", lambda: tmp_path)
    finding = next(iter(doctor.torch_pair()))
    assert not finding.good
    assert "torchvision 0.1 do not fit (" in finding.what
