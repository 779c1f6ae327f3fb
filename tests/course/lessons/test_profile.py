import sys

import pytest
from torch import nn

from course import lessons
from course.lessons.profile import PROFILES, ProfileError
from course.lessons.results import RESULTS


def test_quick_unless_asked(monkeypatch):
    monkeypatch.delenv("PROFILE", raising=False)
    assert lessons.profile().name == "quick"
    monkeypatch.setenv("PROFILE", "full")
    assert lessons.profile().images == 10_000
    monkeypatch.setenv("PROFILE", "fast")
    with pytest.raises(ProfileError, match=r"'fast'.*quick or full"):
        lessons.profile()


def test_missing_reference_results_are_said_and_no_error(capsys):
    assert lessons.reference("nothing_of_this_name") is None
    assert "only your run" in capsys.readouterr().out


def test_reference_results_are_read():
    for path in RESULTS.glob("*.csv"):
        assert len(lessons.reference(path.stem)) > 0


def test_reference_results_are_those_of_the_network_measured_last(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["course.lessons.results"], "RESULTS", tmp_path)
    (tmp_path / "some.csv").write_text("sha256,accuracy\na,1\nb,2\na,3\nb,4\n")
    assert lessons.reference("some").accuracy.tolist() == [2, 4]


def test_a_long_training_goes_on_only_from_its_own_state(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["course.lessons.profile"], "STATES", tmp_path)
    network, full = nn.Linear(2, 2), PROFILES["full"]
    first = full.state("07-rate", network, "one epoch")
    assert first.parent == tmp_path and first.name.startswith("07-rate-")
    assert full.state("07-rate", network, "one epoch") == first
    assert full.state("07-rate", network, "two epochs") != first
    assert full.state("07-rate", nn.Linear(2, 2), "one epoch") != first
    assert PROFILES["quick"].state("07-rate", network, "one epoch") is None
