import os
import stat
from datetime import UTC, datetime, timedelta

import pytest

from course.__main__ import main
from course.grading.classroom import Classroom, ClassroomError, Rules, write

DUE = datetime(2030, 1, 31, 23, 59, tzinfo=UTC)
LATE = {-60: 0, 0: 0, 1: 8, 86400: 8, 86401: 16, 5 * 86400: 40, 5 * 86400 + 1: 80, 400 * 86400: 80}


def test_each_day_begun_costs_after_the_days_that_one_student_was_given():
    rules = Rules("last", 10, 5, {"a1": DUE})
    for seconds, lost in LATE.items():
        arrived = DUE + timedelta(seconds=seconds)
        assert rules.penalty("a1", arrived, 80) == lost and rules.penalty("a2", arrived, 80) == 0
        assert rules.penalty("a1", arrived + timedelta(days=7), 80, extra_days=7) == lost


WRONG_SETTINGS = ['resubmission = "best of all"', "late_days = [", "late_days = 'x'", "late_days = []", "\x00"]
WRONG_SETTINGS += ["due = 5", "[due]\na1 = 5", "[due]\na1 = '2030-01-31'"]


@pytest.mark.parametrize("text", WRONG_SETTINGS)
def test_wrong_settings_are_refused(tmp_path, text):
    room = Classroom.open(tmp_path)
    room.settings.write_text(text)
    with pytest.raises(ClassroomError, match=r"class\.toml"):
        _ = room.rules


def test_the_secret_is_made_once_and_private(tmp_path):
    first, second = Classroom.open(tmp_path / "a"), Classroom.open(tmp_path / "b")
    assert len(first.secret) == 64 and first.secret != second.secret
    assert Classroom.open(tmp_path / "a").secret == first.secret
    assert stat.S_IMODE(os.stat(tmp_path / "a" / "secret").st_mode) == 0o600


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", ".hidden", "x" * 65, "a\n", "ü", "-rf"])
def test_names_that_are_no_folder_names_are_refused(name, tmp_path):
    with pytest.raises(ClassroomError):
        Classroom(tmp_path).submission(name, "a1")


@pytest.mark.parametrize("fails", ["replace", "fsync"])
def test_a_write_that_fails_leaves_the_old_file_and_names_it(tmp_path, monkeypatch, fails):
    write(tmp_path / "x", "old")
    monkeypatch.setattr(os, fails, lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match=f"No space left on device.*{tmp_path}"):
        write(tmp_path / "x", "new")
    assert (tmp_path / "x").read_text() == "old" and len(list(tmp_path.iterdir())) == 1


def test_a_class_is_worked_on_by_one_at_a_time(tmp_path):
    room = Classroom.open(tmp_path)
    with room.locked(), pytest.raises(ClassroomError, match=f"in use by process {os.getpid()}"), room.locked():
        pass
    with room.locked():
        pass


def test_a_mistyped_folder_makes_no_class(tmp_path, capsys):
    words = ["grade", "export", "--folder", str(tmp_path / "typo")]
    assert main(words) == 1 and "add --new" in capsys.readouterr().err
    assert not (tmp_path / "typo").exists()
    assert main([*words, "--new"]) == 0 and (tmp_path / "typo" / "secret").exists()
    assert main(["grade", "demo", "--folder", str(tmp_path / "typo")]) == 1
    assert "real class" in capsys.readouterr().err
