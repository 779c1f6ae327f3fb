import os
import subprocess
import sys
import tempfile

import pytest

from course.grading.machine import clear_leftovers, private_folder


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_goes_with_its_use_and_stays_during_it(own_folder):
    with private_folder() as folder:
        (folder / "input").write_text("x")
        clear_leftovers()
        assert (folder / "input").exists()
    assert os.listdir(own_folder) == []


KILLED = "import os; from course.grading.machine import private_folder\nwith private_folder() as f: {}"


@pytest.mark.parametrize("death", ["os.kill(os.getpid(), 9)", "open(f / 'x', 'w').write('1'); os._exit(1)"])
def test_what_a_killed_grader_left_is_removed(own_folder, death):
    environment = os.environ | {"TMPDIR": str(own_folder)}
    subprocess.run([sys.executable, "-c", KILLED.format(death)], env=environment, check=False)
    assert len(os.listdir(own_folder)) == 1
    clear_leftovers()
    assert os.listdir(own_folder) == []


def test_what_is_no_leftover_stays(own_folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    (other / "job").mkdir()
    (own_folder / "grading-link").symlink_to(other)
    (own_folder / "grading-being-made").mkdir()
    (own_folder / "grading-file").write_text("x")
    (own_folder / "somebody" / "job").mkdir(parents=True)
    clear_leftovers()
    assert len(os.listdir(own_folder)) == 4 and (other / "job").is_dir()
