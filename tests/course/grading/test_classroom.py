import json
import os
import stat
from datetime import UTC, datetime, timedelta

import pytest

from course.grading.classroom import Classroom, ClassroomError, Rules, checked_name, write

DUE = datetime(2030, 1, 31, 23, 59, tzinfo=UTC)


@pytest.mark.parametrize(
    ("late", "lost"),
    [(-60, 0), (0, 0), (1, 8), (86400, 8), (86401, 16), (5 * 86400, 40), (5 * 86400 + 1, 80), (400 * 86400, 80)],
)
def test_each_day_begun_costs(late, lost):
    rules = Rules("last", 10, 5, {"a1": DUE})
    assert rules.penalty("a1", DUE + timedelta(seconds=late), 80) == lost
    assert rules.penalty("a2", DUE + timedelta(seconds=late), 80) == 0


def test_settings_are_read(tmp_path):
    room = Classroom.open(tmp_path)
    assert room.rules == Rules("last", 10, 5, {})
    room.settings.write_text('resubmission = "first"\nlate_days = 2\n[due]\na1 = 2030-01-31T23:59:00Z\n')
    assert room.rules == Rules("first", 0, 2, {"a1": DUE})


@pytest.mark.parametrize("text", ['resubmission = "best of all"', "late_days = [", "late_days = 'x'", "[due]\na1 = 5"])
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
def test_names_that_are_no_folder_names_are_refused(name):
    with pytest.raises(ClassroomError):
        checked_name(name)


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    write(tmp_path / "x", "old")
    monkeypatch.setattr(os, "replace", lambda *a: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write(tmp_path / "x", "new")
    assert (tmp_path / "x").read_text() == "old" and len(list(tmp_path.iterdir())) == 1


def test_the_log_only_grows(tmp_path):
    room = Classroom.open(tmp_path)
    room.log("one", a=1)
    room.log("two")
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["one", "two"] and lines[0]["a"] == 1
