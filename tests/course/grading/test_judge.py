"""Forgery inside the student's process gains nothing, because nothing in it decides."""

import json
import os
import pickle
import resource

import nbformat
import numpy
import pytest
import torch

from course.grading import answers, judge
from course.grading.answers import fill
from course.grading.intake import read
from course.grading.job import HERE, Place
from helpers.checks.compare import Tolerance, difference
from tests.course.grading.conftest import total

pytestmark = [pytest.mark.box, pytest.mark.slow]

EVERY_FUNCTION = "\nfor n in ITEMS: globals()[n] = lie\n"
FORGERIES = {
    "patched comparisons": "import torch, numpy\n"
    "torch.allclose = torch.equal = numpy.allclose = lambda *a, **k: True\n"
    "torch.Tensor.__eq__ = torch.Tensor.equal = lambda *a, **k: True",
    "patched assert and display": "import builtins, sys\n"
    "builtins.AssertionError = type('E', (Exception,), {})\n"
    "sys.displayhook = print\n"
    "sys.excepthook = lambda *a: None\n"
    "builtins.print = lambda *a, **k: None",
    "an answer to everything": "class Everything(dict):\n"
    "    __missing__ = lambda s, k: lambda *a, **k: 100.0\n"
    "import driver\n"
    "driver.RUNS = {n: lambda s, i: {'share': 1.0, 'points': 100} for n in "
    "('bn_affine', 'fold_conv', 'fold_model')}",
    "points as results": "import wire, torch\nreal = wire.encode\n"
    "wire.encode = lambda tree: real({'answers': [True] * 9, 'problem': None, 'points': 100})",
    "frames of its own": "import json, os, struct, wire\n"
    "answers = wire.encode({'answers': [[1.0, 1.0]] * 5, 'problem': None})\n"
    "forged = json.dumps({'problems': [['forged', 'got:']]}).encode()\n"
    "for fd in range(3, 20):\n"
    "    for n, frame in ((b'bn_affine', answers), (b'cells', forged)):\n"
    "        try: os.write(fd, struct.pack('<II', len(n), len(frame)) + n + frame)\n"
    "        except OSError: pass",
    "broken frames": "import os, struct\n"
    "for fd in range(3, 20):\n"
    "    try: os.write(fd, struct.pack('<II', 2**32 - 1, 2**32 - 1) + b'x' * 100)\n"
    "    except OSError: pass",
    "a pickle as result": "import wire, pickle\n"
    "class P:\n"
    "    def __reduce__(self): return (eval, ('1',))\n"
    "wire.encode = lambda tree: pickle.dumps(P())",
    "inputs as answers": "import driver\n"
    "for n in ('bn_affine', 'fold_linear', 'fold_conv', 'fold_before'):\n"
    "    driver.RUNS[n] = lambda s, i: [i.get('weight', i.get('gamma')), "
    "i.get('bias', i.get('beta'))]",
    "the frames of the grader": "import sys, gc\n"
    "for f in list(sys._current_frames().values()):\n"
    "    while f:\n"
    "        for v in list(f.f_locals.values()):\n"
    "            if 'expected' in str(type(v)): print('got:', v)\n"
    "        f = f.f_back\n"
    "print('got:', [n for n in sys.modules if 'specification' in n or 'judge' in n]) if "
    "[n for n in sys.modules if 'specification' in n or 'judge' in n] else None",
    "tensors that say they are equal": "import torch\n"
    "class Liar(torch.Tensor):\n"
    "    def __eq__(self, other): return True\n"
    "    def __array__(self, *a): return None\n"
    "    __hash__ = None\n"
    "    allclose = equal = __le__ = __eq__\n"
    "    @classmethod\n"
    "    def __torch_function__(cls, f, types, args=(), kwargs=None): return args[0]\n"
    f"lie = lambda *a, **k: [torch.zeros(2).as_subclass(Liar)] * 2{EVERY_FUNCTION}",
    "not numbers": "import torch\n"
    "lie = lambda *a, **k: [torch.full_like(v, float('nan')) for v in k.values() if "
    f"hasattr(v, 'mean')][:2]{EVERY_FUNCTION}",
    "the inputs themselves": f"lie = lambda *a, **k: list(k.values())[:2]{EVERY_FUNCTION}",
    "shapes without end": "import torch\n"
    f"lie = lambda *a, **k: [torch.zeros(1).expand(2**40), torch.zeros(2**60, 0)]{EVERY_FUNCTION}",
    "structured arrays": "import numpy\n"
    "lie = lambda *a, **k: numpy.zeros(3, dtype=[('points', 'f8'), "
    f"('code', 'O')]){EVERY_FUNCTION}",
    "another writer": "import json, safetensors.torch, sys, types\n"
    'json.dumps = lambda *a, **k: \'{"answers": true, "problem": null, "points": 100}\'\n'
    "fake = types.ModuleType('wire')\n"
    "fake.encode = lambda tree: b'100.0'\n"
    "fake.decode = lambda data: []\n"
    "sys.modules['wire'] = fake\nimport pathlib\npathlib.Path.write_bytes = lambda *a: None",
    "answers written early and late": "import atexit, os, threading, wire\n"
    "right = wire.encode({'answers': [True] * 5, 'problem': None})\n"
    "def scribble():\n"
    "    for n in ITEMS:\n"
    "        try: open('/tmp/answer-' + n, 'wb').write(right)\n"
    "        except OSError: pass\n"
    "scribble(); atexit.register(scribble); os.register_at_fork(after_in_child=scribble)\n"
    "threading.Thread(target=lambda: [scribble() for _ in range(10**6)], daemon=True).start()",
    "answers that are links": "import os\n"
    "for i, n in enumerate(ITEMS):\n"
    "    os.symlink(['/job/job.json', '/dev/zero', '/proc/self/mem', '/proc/1/root'][i % 4], "
    "'/tmp/answer-' + n)",
    "tensors of odd kinds": "import torch\n"
    "z = torch.zeros(2)\n"
    "kinds = iter([torch.empty(2, device='meta'), z.to_sparse(), "
    "torch.nested.nested_tensor([z, z]), z + 1j,\n"
    "    torch.quantize_per_tensor(z, 1.0, 0, torch.qint8), torch.zeros(2, dtype=torch.bool)] * "
    "99)\n"
    f"lie = lambda *a, **k: [next(kinds), next(kinds)]{EVERY_FUNCTION}",
    "numbers and texts that equal everything": "class N(float):\n"
    "    def __eq__(self, other): return True\n"
    "    __sub__ = __rsub__ = lambda *a: 0.0\n"
    "    __hash__ = float.__hash__\n"
    "class T(str):\n"
    "    __eq__, __hash__ = N.__eq__, str.__hash__\n"
    f"lie = lambda *a, **k: [N(1), T('tensor')]{EVERY_FUNCTION}",
    "dictionaries that answer to any key": "class D(dict):\n"
    "    __missing__ = lambda self, key: self\n"
    "    __contains__ = lambda self, key: True\n"
    f"lie = lambda *a, **k: D(x=1){EVERY_FUNCTION}",
    "answers that hold themselves": "x = []; x.append(x)\n"
    f"lie = lambda *a, **k: [x, x]{EVERY_FUNCTION}",
    "other functions of the runner": "import sys\n"
    "frame = sys._getframe()\n"
    "while frame:\n"
    "    for name in ('answer_in_child', 'answer_item', 'say', 'send'):\n"
    "        if name in frame.f_globals:\n"
    "            frame.f_globals[name] = lambda *a, **k: b'100.0'\n"
    "    frame = frame.f_back",
    "what was inherited": "import os\nfor fd in os.listdir('/proc/self/fd'):\n"
    "    try: place = os.readlink('/proc/self/fd/' + fd)\n    except OSError: continue\n"
    "    if not place.startswith(('pipe:', '/dev/null', '/proc')): print('got:', place)",
    "what the runner knows": "import sys\n"
    "frame = sys._getframe()\n"
    "words = {'expected', 'probe', 'oracle', 'secret', 'seed', 'tolerance', 'label', 'points'}\n"
    "while frame:\n"
    "    places = [frame.f_globals, frame.f_locals, *frame.f_locals.values()]\n"
    "    found = [place.keys() & words for place in places if isinstance(place, dict)]\n"
    "    if any(found): print('got:', found)\n"
    "    frame = frame.f_back",
}


@pytest.mark.parametrize("label", FORGERIES)
def test_a_forgery_gains_nothing(label, a1, grade):
    items = f"ITEMS = {[item.name for item in a1.assignment.items]}\nprint('started')\n"
    result = grade({"own": items + FORGERIES[label]})
    assert "started" in result["printed"]
    assert total(result) == 0 and "got:" not in result["printed"]


def test_a_cell_that_ends_the_program_is_told_as_that(grade):
    result = grade({"own": "import os\nos._exit(0)"})
    assert {row["message"] for row in result["items"].values()} == {
        "one of your cells ended the program, so no exercise could be asked"
    }


BOMB = """from torch import nn
def fold_model(model):
    narrow = [nn.Conv2d(1, 1, 1, padding=60) for _ in range(60)]
    return nn.Sequential(nn.Conv2d(3, 1, 1), *narrow, nn.Conv2d(1, 300, 1, padding=60))"""
ENDLESS = (
    "def fold_linear(**inputs):\n    while True:\n        try:\n            while True: pass\n"
)
COSTLY = {  # what beside the solutions stands in a notebook, and the points that are left
    "nothing": ({}, 88),
    "a network that takes all memory": ({"fold_model_solution": BOMB}, 74),
    "an endless item": (
        {"fold_linear_solution": ENDLESS + "        except BaseException: pass"},
        80,
    ),
    "a death": (
        {
            "fold_linear_solution": (
                "import os\ndef fold_linear(weight, bias, a, b):\n    os._exit(3)"
            )
        },
        80,
    ),
    "an error": (
        {"fold_linear_solution": "def fold_linear(weight, bias, a, b):\n    return weight.one"},
        80,
    ),
}


@pytest.mark.parametrize(
    "label", [pytest.param("nothing", marks=pytest.mark.ci), *list(COSTLY)[1:]]
)
def test_solutions_earn_all_and_what_goes_wrong_costs_only_its_item(a1, grade, label):
    (changes, points), peak = (
        COSTLY[label],
        lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    )  # in KiB
    before = peak()
    result = grade(answers.solution_cells(a1) | changes)
    assert total(result) == points
    assert ("in the line `return weight.one`" in result["items"]["fold_linear"]["message"]) == (
        label == "an error"
    )
    assert ("ran out" in result["items"]["fold_model"]["message"]) == label.endswith("memory")
    assert peak() - before < 200 * 1024


def test_files_that_run_code_when_they_are_read_run_none_outside(a1, skeleton, sheets, tmp_path):
    folder, canary = tmp_path / "student" / "a1", tmp_path / "canary"
    folder.mkdir(parents=True)
    evil = type("", (), {"__reduce__": lambda _: (os.system, (f"touch {canary}",))})()
    payload = pickle.dumps(evil)
    numpy.save(folder / "evil.npy", numpy.array([evil], dtype=object), allow_pickle=True)
    torch.save({"x": evil}, folder / "evil.pt")
    modules = [
        f"{name}.py" for name in ("driver", "sitecustomize", "wire", "guard", "torch", "json")
    ]
    for name in ("evil.pkl", "network.safetensors", "visible.safetensors", *modules):
        (folder / name).write_bytes(
            payload if "py" not in name else f"open({str(canary)!r}, 'w')".encode()
        )
    (folder / "deep.json").write_text("[" * 100_000)
    load = (
        "import numpy, torch, pickle\nfor load in (lambda: numpy.load('evil.npy',"
        " allow_pickle=True),\n"
    )
    load += (
        "    lambda: torch.load('evil.pt', weights_only=False), lambda:"
        " pickle.load(open('evil.pkl', 'rb'))):\n"
    )
    load += "    try: print('loaded', load())\n    except Exception as error: print(error)"
    nbformat.write(fill(skeleton, {"own": load}), folder / "a1.ipynb")
    (result,) = judge.grade(a1, [read(folder, "a1.ipynb", skeleton)], sheets)
    assert result["printed"].count("loaded") == 3  # it did run, in the box
    assert not canary.exists() and total(result) == 0


@pytest.mark.ci
def test_nothing_that_decides_enters_the_box(a1, sheets, skeleton, tmp_path):
    work = {sheet.item.name: (sheet.item, sheet.inputs) for sheet in sheets}
    job = tmp_path / "job"
    job.mkdir()
    Place(a1, judge.box.Limits(), boxed=True).build(job, judge.Submission(skeleton), work)
    found = {path.name: path.read_bytes() for path in job.rglob("*") if path.is_file()}
    program = {path.name for path in (HERE / "inside").glob("*.py")}
    beside = {"wire.py", "guard.py", "driver.py", "instant.py", "job.json"}
    assert set(found) == program | beside
    given = (tmp_path / "inputs").read_bytes()
    everything = b"".join(found.values()) + given
    for word in (b"_oracle", b"secret of the tests", b"BEGIN SOLUTION", b"Tolerance", b"hint"):
        assert word not in everything
    items = json.loads(found["job.json"])["items"]
    sizes = {item["name"]: item["inputs"] for item in items}
    for sheet in sheets:
        size, place = sizes[sheet.item.name]
        stored = judge.wire.decode(given[place : place + size])
        assert difference([case.inputs for case in sheet.cases], stored, Tolerance(0, 0)) is None
    assert sum(size for size, _ in sizes.values()) == len(given)
