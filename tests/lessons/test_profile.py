import pytest

from helpers import lessons
from helpers.lessons.profile import ProfileError
from helpers.lessons.results import RESULTS


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
