"""A lesson may be run again and again: it leaves nothing behind but what stands in build/ and data/."""

import shutil

import pytest

from helpers.lessons import runner

OWN = {"build", "data", ".git", ".venv", "__pycache__", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints"}
LIBRARIES = (".", "torchinductor")  # what torch and its libraries put into the temporary folder themselves
LESSONS = [pytest.param(path, id=path.stem, marks=pytest.mark.slow) for path in runner.lessons()]


def files_in(folder):
    """Every file and when it was written, outside the folders that a run may write to."""
    return {
        path: path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if path.is_file() and not OWN & set(path.relative_to(folder).parts[:-1])
    }


@pytest.mark.parametrize("path", LESSONS)
def test_twice_in_a_row_and_nothing_is_left(path, tmp_path, monkeypatch):
    here, temporary = tmp_path / "notebooks", tmp_path / "temporary"
    here.mkdir()
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    lesson = shutil.copy(path, here)
    before = files_in(runner.NOTEBOOKS) | files_in(here)
    for _ in range(2):
        outcome = runner.run_lesson(here / path.name, tmp_path / "executed.ipynb", "quick")
        assert outcome.failure is None, outcome.line()
        assert files_in(runner.NOTEBOOKS) | files_in(here) == before
        left = {entry.name for entry in temporary.iterdir()}
        assert not {name for name in left if not name.startswith(LIBRARIES)}, left
    assert (here / path.name).samefile(lesson)
