"""A machine that only trains may lack what notebooks need."""

import subprocess
import sys

import pytest

WITHOUT = """
import sys
for name in ("IPython", "nbformat", "nbclient", "jupyterlab", "ipywidgets", "onnxruntime"):
    sys.modules[name] = None
import course.benchmarks.step, course.commands.finetune, course.commands.sweep
import course.commands.train, course.reference.work
from types import SimpleNamespace
from course.reference import commits
commits.git = lambda *words: ""
sweep = SimpleNamespace(name="reference", results=commits.RESULTS, jobs={})
commits.commit(SimpleNamespace(name="half"), sweep)
"""


@pytest.mark.slow
@pytest.mark.ci
def test_training_and_sweeps_need_no_jupyter():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
