"""Sweeps through the shell's door; what they do is tested in tests/course/reference."""

import subprocess

import pytest

from course import reference
from course.__main__ import main
from tests.course.reference.small import rows_of, small_sweep


def test_a_list_says_what_is_done_and_runs_nothing(tmp_path, capsys, monkeypatch):
    sweep = small_sweep(tmp_path)
    rows_of(sweep, "dense")
    monkeypatch.setattr(reference, "run", lambda *words: pytest.fail("run"))
    assert main(["sweep", sweep.name, "cut", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["done", "to"]
    assert lines[1].endswith(f"python -m course sweep {sweep.name} cut")


def test_the_status_tells_whether_all_was_done(tmp_path, capsys, monkeypatch):
    sweep = small_sweep(tmp_path)
    asked = []
    monkeypatch.setattr(reference, "run", lambda *words: asked.append(words[1:3]) or {"cut": "no room"})
    assert main(["sweep", sweep.name, "tuned", "--jobs", "3"]) == 1
    assert asked == [(["tuned"], 3)]
    assert "not done: cut: no room" in capsys.readouterr().out
    monkeypatch.setattr(reference, "run", lambda *words: {})
    assert main(["sweep", sweep.name]) == 0


def test_a_finished_row_is_committed_with_its_file(tmp_path, monkeypatch):
    sweep = small_sweep(tmp_path)
    rows_of(sweep, "dense")
    for words in (["init", "-q"], ["config", "user.email", "a@b.c"], ["config", "user.name", "a"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(reference, "run", lambda sweep, names, jobs, say, keep: keep(sweep.jobs["dense"]) or {})
    assert main(["sweep", sweep.name, "--commit"]) == 0
    told = subprocess.check_output(["git", "show", "--stat", "--format=%s"], cwd=tmp_path, text=True)
    assert "Network dense" in told and "results.csv" in told and "dense.safetensors" in told
