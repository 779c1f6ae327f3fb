"""Marks do not depend on how busy the machine is."""

import os
import subprocess
import sys
import time

import pytest

from course.grading import answers, judge
from course.grading.answers import fill
from course.grading.box import Limits
from course.grading.intake import Submission

pytestmark = [pytest.mark.box, pytest.mark.slow]

OTHERS = 15  # so that a sixteenth of a core is left
SPINNING = "import os; os.sched_setaffinity(0, {CORE})\nwhile True: pass"
WORKING = """
import time

def bn_affine(gamma, beta, mean, var, eps):
    end = time.process_time() + 0.6
    while time.process_time() < end:
        pass
    a = (1 if gamma is None else gamma) / (var + eps).sqrt()
    return a, (0 if beta is None else beta) - a * mean
"""


@pytest.fixture
def a_sixteenth_of_a_core(tmp_path, monkeypatch):
    """Boxes run on one core, which they share with others; what grades them does not."""
    core = min(os.sched_getaffinity(0))
    wrapper = tmp_path / "bwrap"
    wrapper.write_text(
        f'#!/bin/sh\nPATH=$(echo "$PATH" | cut -d: -f2-) exec taskset -c {core} bwrap "$@"\n'
    )
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    words = [sys.executable, "-c", SPINNING.replace("CORE", str(core))]
    others = [subprocess.Popen(words, start_new_session=True) for _ in range(OTHERS)]
    yield
    for other in others:
        other.kill()
        other.wait()


def test_a_sixteenth_of_a_core_gives_the_same_marks(a1, skeleton, sheets, a_sixteenth_of_a_core):
    right = {"bn_affine_solution": f"import torch\n{WORKING}"}
    (sheet,) = [sheet for sheet in sheets if sheet.item.name == "bn_affine"]
    hand_in = Submission(fill(skeleton, answers.solution_cells(a1) | right))
    start = time.monotonic()
    (result,) = judge.grade(a1, [hand_in], [sheet], Limits(wall_seconds=15))
    assert result["items"]["bn_affine"]["points"] == sheet.item.points, result
    assert time.monotonic() - start > 15, "it was not slow enough to try anything"
