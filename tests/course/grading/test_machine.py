"""What grading needs of a machine is named with its remedy, and what a killed grader left is removed."""

import itertools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from course.grading import box, machine, runner
from course.grading.box import Limits
from course.grading.classroom import Classroom
from course.grading.intake import Submission
from course.grading.job import Place

BoxError = machine.BoxError


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


KILLED = "import os; from course.grading.machine import private_folder\nwith private_folder() as f: {}"


@pytest.mark.parametrize("death", ["os.kill(os.getpid(), 9)", "open(f / 'x', 'w').write('1'); os._exit(1)"])
def test_what_a_killed_grader_left_is_removed_and_what_is_no_leftover_stays(temporary, tmp_path_factory, death):
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


@pytest.mark.parametrize(("platform", "found", "says"), [("darwin", True, "Linux"), ("linux", False, "not installed")])
def test_the_obstacle_is_named_with_its_remedy(monkeypatch, platform, found, says):
    monkeypatch.setattr(machine.sys, "platform", platform)
    monkeypatch.setattr(machine.shutil, "which", lambda name: "/usr/bin/bwrap" if found else None)
    monkeypatch.setattr(machine, "obstacle", machine.obstacle.__wrapped__)  # not what was found out before
    with pytest.raises(BoxError, match=f"{says}.*--unsafe"):
        machine.require_box()


def test_windows_is_refused_even_without_the_box(monkeypatch):
    machine.require_unix()
    monkeypatch.setattr(machine.sys, "platform", "win32")
    with pytest.raises(BoxError, match="WSL2"):
        machine.require_unix()


@pytest.mark.box
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
        Place(a1, Limits(), boxed=True).run(Submission(skeleton), [])


def test_a_project_below_tmp_is_still_there_in_the_box(monkeypatch, tmp_path):
    monkeypatch.setattr(box.sys, "prefix", "/tmp/project/.venv")
    mounts = list(itertools.pairwise(box.command(tmp_path, Limits())))
    assert mounts.index(("--ro-bind", "/tmp/project/.venv")) > mounts.index(("--tmpfs", "/tmp"))
