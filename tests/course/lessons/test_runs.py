"""Every lesson runs in a fresh kernel, alone and twice, and leaves nothing beside the notebooks or
in the temporary folder.
"""

import shutil

import nbformat
import pytest
from nbformat.v4 import new_code_cell

from course.publish import runner

OWN = {
    "build",
    "data",
    ".git",
    ".venv",
    "__pycache__",
    ".pytest_cache",
    ".ruff_cache",
    ".ipynb_checkpoints",
}
LIBRARIES = (
    ".",
    "torchinductor",
)  # what torch and its libraries put into the temporary folder themselves
# A share of them for continuous integration: some without a network, one with.
CI = ("01_batchnorm_math", "02_graphs_and_passes", "03_folding")
LESSONS = [
    pytest.param(p, id=p.stem, marks=pytest.mark.ci if p.stem in CI else ())
    for p in runner.lessons()
]
SMALL = """
import sys
from dataclasses import replace
from pathlib import Path
from helpers import data, training
from course import lessons

profiles = sys.modules["course.lessons.profile"]

def few(source):
    sample = data.load_cifar10("sample")
    return replace(
        sample,
        train_images=sample.train_images[:200], train_labels=sample.train_labels[:200],
        test_images=sample.test_images[:100], test_labels=sample.test_labels[:100],
    )

def one_epoch(config, check=training.Config.__post_init__):
    object.__setattr__(config, "epochs", 1)
    check(config)

profiles.load_cifar10 = few
profiles.STATES = Path("states").resolve()
profiles.PROFILES["full"] = replace(profiles.PROFILES["full"], repeats=3)
training.Config.__post_init__ = one_epoch
"""


def files_in(folder):
    """Every file and when it was written, outside the folders that a run may write to."""
    found = {
        path: path.relative_to(folder).parts[:-1] for path in folder.rglob("*") if path.is_file()
    }
    return {
        path: path.stat().st_mtime_ns for path, folders in found.items() if not OWN & set(folders)
    }


@pytest.fixture
def here(tmp_path):
    """A copy of the lessons and of what they need."""
    ignored = shutil.ignore_patterns("assignments", "mine.py", "__pycache__")
    return shutil.copytree(runner.NOTEBOOKS, tmp_path / "notebooks", ignore=ignored)


@pytest.mark.slow
@pytest.mark.parametrize("path", LESSONS)
def test_runs_twice_without_errors_and_noise_and_leaves_nothing(path, here, tmp_path, monkeypatch):
    temporary, executed = tmp_path / "temporary", tmp_path / "executed.ipynb"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    before, names = files_in(here), set(files_in(runner.NOTEBOOKS))
    for _ in range(2):
        outcome = runner.run_lesson(here / path.name, executed, "quick")
        assert outcome.failure is None, outcome.line()
        cells = nbformat.read(executed, as_version=4).cells
        outputs = [(cell.id, output) for cell in cells for output in cell.get("outputs", [])]
        assert [
            (cell, output.text) for cell, output in outputs if output.get("name") == "stderr"
        ] == []
        assert files_in(here) == before and set(files_in(runner.NOTEBOOKS)) == names
        assert [
            entry.name for entry in temporary.iterdir() if not entry.name.startswith(LIBRARIES)
        ] == []


@pytest.mark.slow
@pytest.mark.parametrize("path", runner.lessons(talk=True), ids=lambda path: path.stem)
def test_the_full_branch_works_on_a_small_scale(path, here, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.insert(0, new_code_cell(SMALL, id="small"))
    nbformat.write(notebook, here / path.name)
    outcome = runner.run_lesson(here / path.name, tmp_path / "executed.ipynb", "full")
    assert outcome.failure is None, outcome.line()
