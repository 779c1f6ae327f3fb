"""Every lesson's full branch, on few images and for one epoch: that it works at all, for a real run takes hours."""

import shutil

import nbformat
import pytest
from nbformat.v4 import new_code_cell

from course.publish import runner

SMALL = """
import sys
from dataclasses import replace
from pathlib import Path
from helpers import data, training
from course import lessons

profiles = sys.modules["course.lessons.profile"]

def few(source):
    sample = data.load_cifar10("sample")
    return replace(sample, train_images=sample.train_images[:200], train_labels=sample.train_labels[:200],
                   test_images=sample.test_images[:100], test_labels=sample.test_labels[:100])

def one_epoch(config, check=training.Config.__post_init__):
    object.__setattr__(config, "epochs", 1)
    check(config)

profiles.load_cifar10 = few
profiles.STATES = Path("states").resolve()
profiles.PROFILES["full"] = replace(profiles.PROFILES["full"], repeats=3)
training.Config.__post_init__ = one_epoch
"""
NOTEBOOKS = [*runner.lessons(), runner.NOTEBOOKS / runner.TALK]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_the_full_branch_works_on_a_small_scale(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    shutil.copytree(runner.NOTEBOOKS, tmp_path, ignore=shutil.ignore_patterns("assignments"), dirs_exist_ok=True)
    notebook.cells.insert(0, new_code_cell(SMALL, id="small"))
    nbformat.write(notebook, tmp_path / path.name)
    outcome = runner.run_lesson(tmp_path / path.name, tmp_path / "executed.ipynb", "full")
    assert outcome.failure is None, outcome.line()
