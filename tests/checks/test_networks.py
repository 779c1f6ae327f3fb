"""A network that a learner has trained is kept for later lessons, and for nobody else's runs."""

import shutil

import pytest
import torch

from course.publish.runner import NOTEBOOKS
from helpers import checks, models
from helpers.checks.alone import Spare


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A folder of notebooks, and where it keeps a learner's network."""
    for name in ("COURSE_MINE", "COURSE_HEADLESS"):  # a learner's own network is left alone
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Spare, "start", lambda self: None)  # no answer is tried here
    (tmp_path / "exercises").mkdir()
    for name in ("lesson_01.py", "exercise_inputs.py"):
        shutil.copy(NOTEBOOKS / "exercises" / name, tmp_path / "exercises")
    checks.use(tmp_path / "exercises" / "lesson_01.py")
    return tmp_path / "mine" / "tiny-trained.safetensors"


def same(one, other):
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_a_kept_network_comes_back_in_eval_mode(kept, capsys):
    own = models.tiny().train()
    checks.keep_network(own, "tiny-trained")
    back = checks.your_network("tiny-trained")
    assert same(own, back) and not back.training
    told = capsys.readouterr().out
    assert f"kept for later lessons in {kept}" in told
    assert f"your own, from {kept}" in told


def test_who_has_trained_none_gets_the_shipped_one_and_is_told(kept, capsys):
    assert same(checks.your_network("tiny-trained"), models.pretrained("tiny"))
    assert "the course's tiny.safetensors" in capsys.readouterr().out
    assert not kept.parent.exists()


def test_the_first_name_that_was_kept_is_taken_and_named(kept, capsys):
    trained, recovered = models.tiny(), models.tiny()
    checks.keep_network(trained, "tiny-trained")
    assert same(checks.your_network("tiny-recovered", "tiny-trained"), trained)
    assert "tiny-trained: your own" in capsys.readouterr().out
    checks.keep_network(recovered, "tiny-recovered")
    assert same(checks.your_network("tiny-recovered", "tiny-trained"), recovered)
    assert "tiny-recovered: your own" in capsys.readouterr().out


def test_a_run_without_a_learner_neither_writes_nor_reads(kept, capsys, monkeypatch):
    checks.keep_network(models.tiny(), "tiny-trained")
    written = kept.read_bytes()
    monkeypatch.setenv("COURSE_HEADLESS", "1")
    checks.keep_network(models.tiny(), "tiny-trained")
    assert kept.read_bytes() == written
    assert same(checks.your_network("tiny-trained"), models.pretrained("tiny"))
    assert "not kept" in capsys.readouterr().out


def test_git_ignores_a_learners_networks():
    assert "notebooks/mine/" in (NOTEBOOKS.parent / ".gitignore").read_text().splitlines()
