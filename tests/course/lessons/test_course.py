"""Every lesson runs from top to bottom in a fresh kernel, alone and twice, and leaves nothing behind.

What it may write to is build/ and data/.
"""

import shutil

import nbformat
import pytest

from course.publish import runner

OWN = {"build", "data", ".git", ".venv", "__pycache__", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints"}
LIBRARIES = (".", "torchinductor")  # what torch and its libraries put into the temporary folder themselves
# A share of them for continuous integration: some without a network, one with.
CI = ("01_batchnorm_math", "02_graphs_and_passes", "03_folding")
LESSONS = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.slow, *([pytest.mark.ci] if path.stem in CI else [])])
    for path in runner.lessons()
]


def files_in(folder):
    """Every file and when it was written, outside the folders that a run may write to."""
    return {
        path: path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if path.is_file() and not OWN & set(path.relative_to(folder).parts[:-1])
    }


def noise(path):
    """What an executed notebook wrote to its standard error, cell by cell."""
    cells = nbformat.read(path, as_version=4).cells
    return [(cell.id, o.text) for cell in cells for o in cell.get("outputs", []) if o.get("name") == "stderr"]


@pytest.mark.parametrize("path", LESSONS)
def test_runs_twice_without_errors_and_noise_and_leaves_nothing(path, tmp_path, monkeypatch):
    here, temporary, executed = tmp_path / "notebooks", tmp_path / "temporary", tmp_path / "executed.ipynb"
    shutil.copytree(runner.NOTEBOOKS, here, ignore=shutil.ignore_patterns("assignments", "mine.py", "__pycache__"))
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    lesson = here / path.name
    before, names = files_in(here), set(files_in(runner.NOTEBOOKS))
    for _ in range(2):
        outcome = runner.run_lesson(lesson, executed, "quick")
        assert outcome.failure is None, outcome.line()
        assert noise(executed) == []
        assert files_in(here) == before and set(files_in(runner.NOTEBOOKS)) == names
        left = {entry.name for entry in temporary.iterdir()}
        assert not {name for name in left if not name.startswith(LIBRARIES)}, left
