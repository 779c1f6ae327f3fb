"""What an exercise forbids is out of reach in the box, also of code that switches the guard off."""

import pytest

from course.grading import answers, judge
from course.grading.answers import fill
from course.grading.intake import Submission

pytestmark = [pytest.mark.box, pytest.mark.slow]

TORCHS_NORM = "torch.nn.functional.batch_norm(x, None, None, gamma, beta, True, 0.1, eps)"
BLINDED = f"""
def bn_train(x, gamma, beta, eps):
    for guard in guards():
        guard.patterns = ()
    return {TORCHS_NORM}
"""
HELPER = f"""
import subprocess, sys, textwrap, time
from pathlib import Path

PROGRAM = '''
import time, torch
from pathlib import Path
while True:
    while not Path("asked.pt").exists():
        time.sleep(0.01)
    x, gamma, beta, eps = torch.load("asked.pt")
    Path("asked.pt").unlink()
    torch.save({TORCHS_NORM}, "answered")
    Path("answered").rename("answered.pt")
'''

def bn_train(x, gamma, beta, eps):
    start()
    Path("answered.pt").unlink(missing_ok=True)
    torch.save((x, gamma, beta, eps), "asked")
    Path("asked").rename("asked.pt")
    while not Path("answered.pt").exists():
        time.sleep(0.01)
    return torch.load("answered.pt")
"""
START = 'subprocess.Popen([sys.executable, "-c", PROGRAM])'
EVASIONS = {
    "through frames": f"""
import sys
def guards():
    frame = sys._getframe()
    while frame:
        yield from [v for v in frame.f_locals.values() if type(v).__name__ == "Guard"]
        frame = frame.f_back
{BLINDED}""",
    "through the garbage collector": f"""
import gc
def guards():
    return [o for o in gc.get_objects() if type(o).__name__ == "Guard"]
{BLINDED}""",
    "through TorchScript": """
norm = torch.jit.CompilationUnit('''
def norm(x, gamma, beta, eps: float):
    return torch.batch_norm(x, gamma, beta, None, None, True, 0.1, eps, False)
''').norm
def bn_train(x, gamma, beta, eps):
    return norm(x, gamma, beta, eps)
""",
    "as if a module were being imported": f"""
def bn_train(x, gamma, beta, eps):
    names = dict(globals()) | {{"x": x, "gamma": gamma, "beta": beta, "eps": eps}}
    exec(compile("y = {TORCHS_NORM}", "<frozen importlib._bootstrap>", "exec"), names)
    return names["y"]
""",
    "in a program that the answer starts": f"{HELPER}\ndef start():\n    {START}",
    "in a program that a cell has started": f"{HELPER}\n{START}\ndef start():\n    pass",
}
FOLDS = """
import gc
KEPT = [torch.nn.utils.fusion.fuse_conv_bn_weights]
def fold_conv(weight, bias, a, b):
    for guard in [o for o in gc.get_objects() if type(o).__name__ == "Guard"]:
        guard.patterns = ()
    return KEPT[0](weight, bias, 0 * b, torch.ones_like(b), 0.0, a, b)
"""


def rows_of(a1, skeleton, sheets, item, codes):
    """The results of an item for several answers to it."""
    (sheet,) = [sheet for sheet in sheets if sheet.item.name == item]
    above = f"import torch\n{answers.solution_cells(a1)['setup']}\n"
    hand_ins = [Submission(fill(skeleton, {f"{item}_solution": above + code})) for code in codes]
    return [result["items"][item] for result in judge.grade(a1, hand_ins, [sheet])]


@pytest.mark.parametrize("evasion", EVASIONS)
def test_torchs_own_norm_computes_for_no_answer(a1, skeleton, sheets, evasion):
    (row,) = rows_of(a1, skeleton, sheets, "bn_train", [EVASIONS[evasion]])
    assert row["points"] == 0 and "No answer: the function" not in row["message"], row["message"]


def test_functions_written_in_python_are_taken_away_too(a1, skeleton, sheets):
    (row,) = rows_of(a1, skeleton, sheets, "fold_conv", [FOLDS])
    assert row["points"] == 0 and "write yourself" in row["message"]


@pytest.mark.parametrize("item", ["update_statistics", "bn_train", "fold_conv"])
def test_right_answers_lose_nothing_by_it(a1, skeleton, sheets, item):
    right = next(a.code for a in answers.read(a1) if a.item == item and a.right)
    (row,) = rows_of(a1, skeleton, sheets, item, [right])
    assert row["points"] == row["of"], row["message"]
