"""What grading needs of a machine, what a killed grader left, and the folder of a class."""

import importlib
import itertools
import os
import stat
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock, patch

import pytest
import torch

from course.__main__ import main
from course.grading import box, course, judge, machine, runner
from course.grading.box import Limits
from course.grading.classroom import Classroom, ClassroomError, write, write_private
from course.grading.collect import collect
from course.grading.intake import Submission
from course.grading.job import Place
from course.grading.machine import BoxError


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """A temporary folder of one's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_goes_with_its_use_and_stays_during_it(temporary):
    with machine.private_folder() as folder:
        (folder / "input").write_text("x")
        machine.clear_leftovers()
        assert (folder / "input").exists()
    assert os.listdir(temporary) == []


KILLED = (
    "import os; from course.grading.machine import private_folder\nwith private_folder() as f: {}"
)


@pytest.mark.parametrize(
    "death", ["os.kill(os.getpid(), 9)", "open(f / 'x', 'w').write('1'); os._exit(1)"]
)
def test_what_a_killed_grader_left_is_removed_and_what_is_no_leftover_stays(
    temporary, tmp_path_factory, death
):
    other = tmp_path_factory.mktemp("other")
    (other / "job").mkdir()
    (temporary / "grading-link").symlink_to(other)
    (temporary / "grading-being-made").mkdir()
    (temporary / "grading-file").write_text("x")
    (temporary / "somebody" / "job").mkdir(parents=True)
    environment = os.environ | {"TMPDIR": str(temporary)}
    subprocess.run([sys.executable, "-c", KILLED.format(death)], env=environment, check=False)
    assert len(os.listdir(temporary)) == 5
    machine.clear_leftovers()
    assert len(os.listdir(temporary)) == 4 and (other / "job").is_dir()


@pytest.mark.parametrize(
    ("platform", "found", "says"), [("darwin", True, "Linux"), ("linux", False, "not installed")]
)
def test_the_obstacle_is_named_with_its_remedy(monkeypatch, tmp_path, platform, found, says):
    monkeypatch.setattr(machine.sys, "platform", platform)
    monkeypatch.setattr(machine.shutil, "which", lambda name: "/usr/bin/bwrap" if found else None)
    monkeypatch.setattr(
        machine, "obstacle", machine.obstacle.__wrapped__
    )  # not what was found out before
    with pytest.raises(BoxError, match=f"{says}.*--unsafe"):
        machine.require(boxed=True)
    machine.require(boxed=False)
    monkeypatch.setattr(machine.sys, "platform", "win32")
    for refused in (
        lambda: machine.require(boxed=False),
        lambda: collect(Classroom(tmp_path), "a1"),
    ):
        with pytest.raises(BoxError, match="WSL2"):
            refused()


def test_what_lies_where_every_box_can_see_is_refused(monkeypatch, tmp_path, a1, skeleton):
    machine.require_unseen(tmp_path)
    monkeypatch.setattr(machine.sys, "base_prefix", str(tmp_path))
    for refused in (
        lambda: machine.require_unseen(tmp_path / "class"),
        lambda: machine.require_unseen(Path("/usr/src/course")),
        lambda: runner.run(Classroom(tmp_path), a1),
    ):
        with pytest.raises(BoxError, match="move it"):
            refused()
    monkeypatch.setattr(machine.sys, "base_prefix", str(a1.folder.parent))
    with pytest.raises(BoxError, match="move it"):
        Place(a1, Limits(), boxed=True).run(Submission(skeleton), {})


def test_a_project_below_tmp_is_still_there_in_the_box(monkeypatch, tmp_path):
    monkeypatch.setattr(box.sys, "prefix", "/tmp/project/.venv")
    mounts = list(itertools.pairwise(box.command(tmp_path, Limits())))
    assert mounts.index(("--ro-bind", "/tmp/project/.venv")) > mounts.index(("--tmpfs", "/tmp"))


DUE = datetime(2030, 1, 31, 23, 59, tzinfo=UTC)
LATE = {-60: 0, 0: 0, 1: 8, 86400: 8, 86401: 16, 5 * 86400: 40, 5 * 86400 + 1: 80, 400 * 86400: 80}


def test_each_day_begun_costs_after_the_days_that_one_student_was_given(tmp_path):
    room = Classroom.open(tmp_path)
    room.settings.write_text(
        "\ufeff[due]\na1 = 2030-01-31T23:59:00Z", encoding="utf-8"
    )  # all else as in a new class
    rules = room.rules
    for seconds, lost in LATE.items():
        arrived = DUE + timedelta(seconds=seconds)
        assert rules.penalty("a1", arrived, 80) == lost and rules.penalty("a2", arrived, 80) == 0
        assert rules.penalty("a1", arrived + timedelta(days=7), 80, 7) == lost
        days = max(0, seconds / 86400)  # that the system shows; the list's extra days come off
        assert rules.penalty("a1", DUE, 80, 0, days) == lost
        assert rules.penalty("a1", DUE, 80, 7, days + 7) == lost
        assert rules.penalty("a1", DUE, 80, 7, 5) == 0
        assert rules.penalty("a1", DUE, 80, 1.4, 4.4) == 24  # 3 days, whatever floats make of it


WRONG_SETTINGS = [
    "late_days = [",
    "late_days = 'x'",
    "late_days = []",
    "\x00",
    "due = 5",
    "[due]\na1 = 5",
]
WRONG_SETTINGS = dict.fromkeys(
    [*WRONG_SETTINGS, "[due]\na1 = '2030-01-31'", 'resubmission = "best of all"'], ""
)
WRONG_SETTINGS["late_day = 5"] = (
    "no setting called late_day; there are resubmission, late_percent_per_day, late_days,"
)
WRONG_SETTINGS["[due]\nA1 = 2030-01-31\nlate_days = 5"] = (
    "no assignment called A1, late_days; there are a1, a2,"
)


WRONG_SETTINGS["late_percent_per_day = -10"] = "late_days must be 0 or more"
WRONG_SETTINGS["[due]\na1 = 2030-01-31T23:59:00"] = "is no deadline; write 2030-01-31T23:59:00Z"
WRONG_SETTINGS["late_days = -1"] = "late_days must be 0 or more"
WRONG_SETTINGS["late_days = nan"] = "late_days must be 0 or more"


@pytest.mark.parametrize("text", WRONG_SETTINGS)
def test_wrong_settings_are_refused(tmp_path, text):
    room = Classroom.open(tmp_path)
    room.settings.write_text(text)
    with pytest.raises(
        ClassroomError, match=rf"class\.toml cannot be used.*{WRONG_SETTINGS[text]}"
    ):
        _ = room.rules


def test_the_secret_is_made_once_and_private(tmp_path):
    first, second = Classroom.open(tmp_path / "a"), Classroom.open(tmp_path / "b")
    assert len(first.secret) == 64 and first.secret != second.secret
    assert Classroom.open(tmp_path / "a").secret == first.secret
    assert stat.S_IMODE(os.stat(tmp_path / "a" / "secret").st_mode) == 0o600
    assert stat.S_IMODE(os.stat(tmp_path / "a").st_mode) == 0o700


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", ".hidden", "x" * 65, "a\n", "ü", "-rf"])
def test_names_that_are_no_folder_names_are_refused(name, tmp_path):
    with pytest.raises(ClassroomError):
        Classroom(tmp_path).submission(name, "a1")


@pytest.mark.parametrize("fails", ["replace", "fsync"])
def test_a_write_that_fails_leaves_the_old_file_and_names_it(tmp_path, monkeypatch, fails):
    write(tmp_path / "x", "old")
    monkeypatch.setattr(
        os, fails, lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(OSError, match=f"No space left on device.*{tmp_path}"):
        write(tmp_path / "x", "new")
    assert (tmp_path / "x").read_text() == "old" and len(list(tmp_path.iterdir())) == 1


def test_a_class_is_worked_on_by_one_at_a_time_who_removes_what_a_killed_one_began(
    tmp_path, monkeypatch
):
    room = Classroom.open(tmp_path)
    with (
        room.locked(),
        pytest.raises(ClassroomError, match=f"in use by process {os.getpid()}"),
        room.locked(),
    ):
        pass
    for path in (room.submission("ada", "a1") / "model.1.part", tmp_path / "hand-ins.zip.part"):
        write(path, "somebody's own")
    with monkeypatch.context() as killed, pytest.raises(OSError, match="killed"):
        killed.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("killed")))
        killed.setattr(Path, "unlink", lambda *_, **__: None)
        write(room.result_path("a1", "ada"), "half")
    assert len(list(tmp_path.rglob("*.part"))) == 3
    with room.locked():
        assert {path.name for path in tmp_path.rglob("*.part")} == {
            "model.1.part",
            "hand-ins.zip.part",
        }


def test_a_mistyped_folder_makes_no_class(tmp_path, capsys):
    words = ["grade", "export", "--folder", str(tmp_path / "typo")]
    assert main(words) == 1 and "`grade release --new` makes one" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*words, "--new"])
    assert not (tmp_path / "typo").exists()
    collecting = ["grade", "collect", "a1", "--new", *words[2:]]
    assert main(collecting) == 1 and (tmp_path / "typo" / "secret").exists()
    capsys.readouterr()
    lost = tmp_path / "lost"
    write(lost / "gradebook.db", "")
    assert main(["grade", "release", "a1", "--new", "--folder", str(lost)]) == 1
    assert "secret is missing: restore it" in capsys.readouterr().err
    assert not (lost / "secret").exists()
    for odd in (["run", "--workers", "0"], ["similarity", "--threshold", "60"]):
        with pytest.raises(SystemExit):
            main(["grade", *odd, *words[2:]])
        assert f"argument {odd[1]}" in capsys.readouterr().err
    assert main(["grade", "demo", "--folder", str(tmp_path / "typo")]) == 1
    assert "real class" in capsys.readouterr().err


def test_all_assignments_are_those_that_are_ready_and_a_source_is_of_one(room, capsys):
    write(room.folder / "released" / "a2" / "a2.ipynb", "")
    write(room.folder / "incoming" / "a2" / "ada.ipynb", "")
    write(room.folder / "class_list.csv", "student,late_days_a2\nada,1\n")
    folder = ["--folder", str(room.folder)]
    for name, a2 in (
        ("collect", "a2: 1 collected, 1 in all, 1 late"),
        ("stats", "a2 was left out: no submission"),
    ):
        assert main(["grade", name, *folder]) == 0 and main(["grade", name, "a1", *folder]) == 1
        said = capsys.readouterr().out
        assert said.startswith("a1 was left out: ") and a2 in said
    assert (
        main(["grade", "collect", *folder, "--source", str(room.folder / "incoming" / "a2")]) == 1
    )
    assert "name it, such as `grade collect a1 --source" in capsys.readouterr().err
    assert (
        main(["grade", "export", "a2", *folder]) == 0
        and "up-to-date mark: 1. `grade run a2`" in capsys.readouterr().out
    )
    assert main(["grade", "export", *folder, "--for", "moodle", "--pseudonyms"]) == 1
    assert "moodle needs the students' names: leave --pseudonyms" in capsys.readouterr().err


def test_collecting_says_whose_days_late_are_missing(room, capsys):
    write(room.folder / "released" / "a2" / "a2.ipynb", "")
    write(room.folder / "incoming" / "a2" / "love_LATE_13_73_a2.ipynb", "")
    for days, said in (("", True), ("2", False)):
        listed = f"student,id,late_days_a2\nada,13,{days}\n"
        write(room.folder / "class_list.csv", listed)
        assert main(["grade", "collect", "a2", "--folder", str(room.folder)]) == 0
        words = "ada: Canvas says late, but late_days_a2 in class_list.csv is empty"
        assert (words in capsys.readouterr().out) == said
    write(room.folder / "class_list.csv", "student,id\nada,13\n")
    for due, said in (("", False), ("[due]\na2 = 2020-01-31T23:59:00Z\n", True)):
        room.settings.write_text(due)
        assert main(["grade", "collect", "a2", "--folder", str(room.folder)]) == 0
        assert ("late_days_a2 in class_list.csv is not there" in capsys.readouterr().out) == said


def test_an_answers_file_is_gone_once_it_is_read_as_the_disk_is_small(a1, tmp_path, monkeypatch):
    job = tmp_path / "job"
    job.mkdir()
    Place(a1, Limits(), boxed=True).build(job, judge.NOBODY, {})
    monkeypatch.syspath_prepend(job / "lib")  # as in the box
    scratch = job / "scratch"
    with patch.dict(sys.modules):
        answering = importlib.import_module("inside.answering")
        monkeypatch.setattr(answering, "answer_item", lambda *_: b"answer")
        item = {"name": "fold", "seconds": 5}
        assert answering.answer_in_child(item, b"", None, scratch) == b"answer"
    assert list(scratch.iterdir()) == []


def test_an_exercise_without_inputs_is_answered_once_as_at_home(a1, tmp_path, monkeypatch):
    job = tmp_path / "job"
    job.mkdir()
    Place(a1, Limits(), boxed=True).build(job, judge.NOBODY, {})
    monkeypatch.syspath_prepend(job / "lib")  # as in the box
    calls = iter([7.0])
    notebook = SimpleNamespace(namespace={"restore": lambda: next(calls)})
    item = {"exercise": "any", "function": "restore", "view": False, "forbidden": ()}
    with patch.dict(sys.modules):
        answering = importlib.import_module("inside.answering")
        twice = judge.wire.encode([{}, {}])
        found = answering.answer_item(item | {"seconds": 5}, twice, notebook)
    assert judge.wire.decode(found)["answers"] == [7.0, 7.0]


def test_a_bubblewrap_that_is_too_old_is_named_with_the_version_that_is_needed(
    tmp_path, monkeypatch
):
    bwrap = tmp_path / "bwrap"
    bwrap.write_text(
        '#!/bin/sh\ncase "$*" in *--size*) echo "bwrap: Unknown option --size" >&2; exit 1; esac\n'
    )
    bwrap.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    machine.obstacle.cache_clear()
    try:
        assert "too old (bwrap: Unknown option --size); 0.8 or newer" in machine.obstacle()
    finally:
        machine.obstacle.cache_clear()


def test_a_private_file_is_private_in_a_folder_that_others_may_read(tmp_path):
    tmp_path.chmod(0o755)
    write_private(tmp_path / "autograders" / "a1.zip", b"with the secret")
    assert stat.S_IMODE((tmp_path / "autograders" / "a1.zip").stat().st_mode) == 0o600
    before = os.umask(0o022)
    try:
        write(tmp_path / "page.html", "")
    finally:
        os.umask(before)
    assert (tmp_path / "page.html").stat().st_mode & 0o044


@pytest.mark.parametrize("name", ["what?", "a%20b", "a[1]"])
def test_a_folder_in_which_no_gradebook_can_lie_is_refused(tmp_path, name):
    with pytest.raises(ClassroomError, match="choose another --folder"):
        Classroom.open(tmp_path / name)
    assert not [*tmp_path.iterdir()]


def test_a_demonstration_that_was_stopped_can_be_made_again(tmp_path, monkeypatch):
    words = ["grade", "demo", "--folder", str(tmp_path / "demo")]
    stop = Mock(side_effect=ClassroomError("stopped"))
    monkeypatch.setattr("course.commands.grade._do", stop)
    assert main(words) == main(words) == 1 and stop.call_count == 2


def test_the_size_of_a_network_is_known_in_another_folder_too(tmp_path, monkeypatch):
    driver = course.load("a5").load_driver()
    (tmp_path / "a5").mkdir()
    (tmp_path / "a5" / driver.FILE).write_bytes(b"tensors")
    monkeypatch.setattr(driver, "FOLDER", tmp_path / "a5")
    monkeypatch.chdir(tmp_path)
    same = torch.ones(4)
    _, _, measured = driver.score_network(same, same)
    assert measured["bytes"] == len(b"tensors") + len(driver.FILE) + driver.saved_code_bytes()


def test_a_grader_that_was_stopped_counts_no_time_against_those_in_flight(monkeypatch):
    """As by Ctrl-Z: its own clock goes on, and that of who is graded does not matter."""
    began = time.monotonic()

    def leaping():
        now = time.monotonic()
        return now + 1000 * (now - began > 0.5)

    monkeypatch.setattr(box, "time", SimpleNamespace(monotonic=leaping))
    sleeping = [sys.executable, "-c", "import time; time.sleep(1)"]
    pipe = subprocess.PIPE
    with subprocess.Popen(sleeping, stdout=pipe, stderr=pipe, start_new_session=True) as process:
        *_, reason = box._drain(process, Limits(wall_seconds=60))
    assert reason == ""
