"""Forgery inside the student's process gains nothing, because nothing in it decides."""

import os
import pickle

import nbformat
import numpy
import pytest
import torch

from helpers.grading import answers, course, judge, release
from helpers.grading.classroom import Classroom
from helpers.grading.demo import fill
from helpers.grading.intake import read
from helpers.grading.job import Place
from tests.grading.conftest import total

pytestmark = [pytest.mark.box, pytest.mark.slow]

FORGERIES = {
    "patched comparisons": "import torch, numpy\ntorch.allclose = torch.equal = numpy.allclose = lambda *a, **k: True\n"
    "torch.Tensor.__eq__ = torch.Tensor.equal = lambda *a, **k: True",
    "patched assert and display": "import builtins, sys\nbuiltins.AssertionError = type('E', (Exception,), {})\n"
    "sys.displayhook = print\nsys.excepthook = lambda *a: None\nbuiltins.print = lambda *a, **k: None",
    "an answer to everything": "class Everything(dict):\n    __missing__ = lambda s, k: lambda *a, **k: 100.0\n"
    "import driver\ndriver.RUNS = {n: lambda s, i: {'share': 1.0, 'points': 100} for n in "
    "('bn_affine', 'fold_conv', 'fold_model')}",
    "points as results": "import wire, torch\nreal = wire.encode\n"
    "wire.encode = lambda tree: real({'answers': [True] * 9, 'problem': None, 'points': 100})",
    "frames of its own": "import os, struct, wire\n"
    "frame = wire.encode({'answers': [[1.0, 1.0]] * 5, 'problem': None})\n"
    "for fd in range(3, 20):\n    for n in (b'bn_affine', b'finished', b'cells'):\n"
    "        try: os.write(fd, struct.pack('<II', len(n), len(frame)) + n + frame)\n        except OSError: pass",
    "broken frames": "import os, struct\nfor fd in range(3, 20):\n"
    "    try: os.write(fd, struct.pack('<II', 2**32 - 1, 2**32 - 1) + b'x' * 100)\n    except OSError: pass",
    "a pickle as result": "import wire, pickle\nclass P:\n    def __reduce__(self): return (eval, ('1',))\n"
    "wire.encode = lambda tree: pickle.dumps(P())",
    "inputs as answers": "import driver\nfor n in ('bn_affine', 'fold_linear', 'fold_conv', 'fold_before'):\n"
    "    driver.RUNS[n] = lambda s, i: [i.get('weight', i.get('gamma')), i.get('bias', i.get('beta'))]",
    "the frames of the grader": "import sys, gc\nfor f in list(sys._current_frames().values()):\n    while f:\n"
    "        for v in list(f.f_locals.values()):\n            if 'expected' in str(type(v)): print('got:', v)\n"
    "        f = f.f_back\n"
    "print('got:', [n for n in sys.modules if 'specification' in n or 'judge' in n]) if "
    "[n for n in sys.modules if 'specification' in n or 'judge' in n] else None",
}


@pytest.mark.parametrize("label", FORGERIES)
def test_a_forgery_gains_nothing(label, grade):
    result = grade({"own": FORGERIES[label]})
    assert total(result) == 0 and "got:" not in result["printed"]


@pytest.mark.ci
def test_solutions_earn_all_and_survive_a_death_elsewhere(a1, grade):
    solved = answers.solution_cells(a1)
    assert total(grade(solved)) == 88
    dying = solved | {"fold_linear_solution": "import os\ndef fold_linear(weight, bias, a, b):\n    os._exit(3)"}
    result = grade(dying)
    assert total(result) == 80 and "No answer" in result["items"]["fold_linear"]["message"]


@pytest.mark.ci
@pytest.mark.parametrize("name", course.names())
def test_every_assignment_is_graded_in_its_box(name, tmp_path):
    exercise = course.load(name)
    bundle = release.release(Classroom.open(tmp_path / "class"), exercise)
    skeleton = nbformat.read(bundle / exercise.notebook.name, as_version=4)
    sheets = judge.prepare(exercise, "secret of the tests")
    by_machine = exercise.assignment.points - exercise.assignment.manual_points
    for sources, earned in ((answers.solution_cells(exercise), by_machine), ({}, 0)):
        nbformat.write(fill(skeleton, sources), tmp_path / exercise.notebook.name)
        for name, data in exercise.handed_in.items():
            (tmp_path / name).write_bytes(data)
        result = judge.grade(exercise, read(tmp_path, exercise.notebook.name, skeleton), sheets)
        assert total(result) == earned, result["items"]


class _Payload:
    """Runs a shell command in whoever unpickles it."""

    def __init__(self, canary):
        self.canary = canary

    def __reduce__(self):
        return os.system, (f"touch {self.canary}",)


def test_files_that_run_code_when_they_are_read_run_none_outside(a1, skeleton, sheets, tmp_path):
    folder, canary = tmp_path / "student" / "a1", tmp_path / "canary"
    folder.mkdir(parents=True)
    payload = pickle.dumps(_Payload(canary))
    numpy.save(folder / "evil.npy", numpy.array([_Payload(canary)], dtype=object), allow_pickle=True)
    torch.save({"x": _Payload(canary)}, folder / "evil.pt")
    for name in ("evil.pkl", "network.safetensors", "visible.safetensors", "driver.py", "sitecustomize.py"):
        (folder / name).write_bytes(payload if "py" not in name else f"open({str(canary)!r}, 'w')".encode())
    (folder / "deep.json").write_text("[" * 100_000)
    load = "import numpy, torch, pickle\nfor load in (lambda: numpy.load('evil.npy', allow_pickle=True),\n"
    load += "    lambda: torch.load('evil.pt', weights_only=False), lambda: pickle.load(open('evil.pkl', 'rb'))):\n"
    load += "    try: print('loaded', load())\n    except Exception as error: print(error)"
    nbformat.write(fill(skeleton, {"own": load}), folder / "a1.ipynb")
    result = judge.grade(a1, read(folder, "a1.ipynb", skeleton), sheets)
    assert result["printed"].count("loaded") == 3  # it did run, in the box
    assert not canary.exists() and total(result) == 0


def test_an_endless_item_costs_only_itself(a1, grade):
    endless = "def fold_linear(**inputs):\n    while True:\n        try:\n            while True: pass\n"
    endless += "        except BaseException: pass"
    result = grade(answers.solution_cells(a1) | {"fold_linear_solution": endless})
    assert total(result) == 80


def test_a_forbidden_name_costs_only_the_items_that_forbid_and_use_it(a1, grade):
    sources = answers.solution_cells(a1)
    sources["fold_conv_solution"] += "\n    torch.nn.utils.fusion"
    result = grade(sources)
    assert total(result) == 64
    for item in ("fold_conv", "fold_model"):  # the second one uses the first
        assert result["items"][item]["points"] == 0 and "fusion" in result["items"][item]["message"]


@pytest.mark.ci
def test_nothing_that_decides_enters_the_box(a1, sheets, skeleton, tmp_path):
    submission = judge.Submission(skeleton)
    job = tmp_path / "job"
    job.mkdir()
    place = Place(a1, judge.box.Limits(), boxed=True)
    place.build(job, submission, [(sheet.item, sheet.inputs) for sheet in sheets])
    names = {path.name for path in job.rglob("*") if path.is_file()}
    items = {item.name for item in a1.assignment.items}
    assert names == {"inside.py", "seccomp.py", "wire.py", "driver.py", "instant.py", "job.json"} | items
    everything = b"".join(path.read_bytes() for path in job.rglob("*") if path.is_file())
    for word in (b"_oracle", b"secret of the tests", b"BEGIN SOLUTION", b"Tolerance", b"hint"):
        assert word not in everything
    for sheet in sheets:
        stored = judge.wire.decode((job / "inputs" / sheet.item.name).read_bytes())
        assert all("x" not in given or sheet.item.name != "fold_model" for given in stored)


def test_without_the_box_the_result_is_stamped(a1, grade):
    result = grade(answers.solution_cells(a1), boxed=False)
    assert total(result) == 88 and result["boxed"] is False
