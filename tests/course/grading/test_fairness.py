"""No mark is lost to a name, a comment, a test or a file; what calls the forbidden function earns nothing."""

import re
import subprocess
import sys

import nbformat
import pytest

from course.grading import answers, course, judge, release
from course.grading.answers import fill
from course.grading.classroom import Classroom
from course.grading.guard import Guard
from course.grading.intake import read
from helpers.checks.specification import check

EXERCISES = {name: course.load(name) for name in ("a1", "a4", "a5")}
FOLD = answers.solution_cells(EXERCISES["a1"])["fold_conv_solution"]
TORCHS_FOLD = """
def fold_conv(weight, bias, a, b):
    zero = torch.zeros_like(b)
    return FUSE(weight, bias, zero, torch.ones_like(b), 0.0, a, b)
"""


MISTAKEN = {
    "a variable called quantized": ("a4", {"own": "quantized = 1", "quantize_solution":
        "def quantize(x, scale, zero_point, low, high):\n    quantized = torch.round(x / scale) + zero_point\n"
        "    weight_quantized = quantized.clamp(low, high)\n    return weight_quantized.long()"}),
    "a helper called fake_quantize": ("a4", {"own":
        "def fake_quantize(x, s, z, low, high):\n    return quantize_per_tensor(x, s, z).clamp(low, high).long()\n"
        "def quantize_per_tensor(x, s, z):\n    return torch.round(x / s) + z",
        "quantize_solution": "quantize = lambda x, scale, zero_point, low, high: "
        "fake_quantize(x, scale, zero_point, low, high)"}),
    "a helper called fuse_conv_bn": ("a1", {"fold_conv_solution": FOLD.replace("fold_conv", "fuse_conv_bn"),
        "own": "fusions = []\ndef fold_conv(*inputs, **more):\n    fusions.append(len(inputs))\n"
        "    return fuse_conv_bn(*inputs, **more)"}),
    "a helper called kl_div": ("a5", {"distillation_loss_solution": answers.solution_cells(EXERCISES["a5"])[
        "distillation_loss_solution"].replace("def distillation_loss", "def kl_div") +
        "\n\ndef distillation_loss(*a, **k):\n    return kl_div(*a, **k)"}),
    "tests against torch's norm in a cell of one's own": ("a1", {"own":
        "from torch import nn\nimport torch\nbn = nn.BatchNorm2d(3)\nexpected = bn(torch.randn(2, 3, 4, 4))\n"
        "def compare(x, gamma, beta, eps):\n    return torch.nn.functional.batch_norm(x, None, None, training=True)"}),
    "imports repeated in two cells": ("a4", {"own": "import numpy as np\nimport torch.ao.quantization as tq",
        "quantize_solution": "import numpy as np\nimport torch.ao.quantization\n"
        "def quantize(x, scale, zero_point, low, high):\n"
        "    import torch.ao.nn.quantized\n    levels = np.rint((x / scale).numpy()) + zero_point\n"
        "    return torch.from_numpy(np.clip(levels, low, high)).long()"}),
    "comments and texts that name what is forbidden": ("a1", {"own": "# fold_conv without fuse_conv_bn_eval",
        "fold_conv_solution": FOLD + "\n    # torch.nn.utils.fusion does this\nNOTE = 'batch_norm fusion'"}),
    "an import that is never called": ("a1", {"fold_conv_solution":
        "from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_conv_bn_weights\n" + FOLD}),
    "a class with methods": ("a1", {"fold_conv_solution":
        "class BatchNorm2d:\n    def __init__(self, a, b): self.a, self.b = a, b\n"
        "    def batch_norm(self, w, c):\n        s = [-1] + [1] * (w.ndim - 1)\n"
        "        return w * self.a.view(s), self.b if c is None else torch.addcmul(self.b, self.a, c)\n"
        "fold_conv = lambda weight, bias, a, b: BatchNorm2d(a, b).batch_norm(weight, bias)"}),
    "numpy and einsum": ("a1", {"own": "import numpy as np", "fold_conv_solution":
        "def fold_conv(weight, bias, a, b):\n    w, fusion = weight.detach().numpy(), a.detach().numpy()\n"
        "    fusion = np.einsum('o...,o->o...', w, fusion)\n"
        "    return torch.tensor(fusion), b + (0 if bias is None else a * bias)"}),
    "a star import and a decorator": ("a1", {"own": "from torch.nn.functional import *\nfrom functools import wraps\n"
        "def timed(f):\n    @wraps(f)\n    def inner(*a, **k): return f(*a, **k)\n    return inner",
        "fold_conv_solution": "@timed\n@torch.no_grad()\n" + FOLD}),
    "magics, plots and prints": ("a1", {"own": "%matplotlib inline\n!pip list\n%timeit 1\nimport matplotlib.pyplot as "
        "plt\nplt.plot([1]); plt.show()\nfrom IPython.display import display\ndisplay('x')"}),
    "asserts and a try": ("a1", {"fold_conv_solution": FOLD.replace("shape =", "try:\n        assert False\n"
        "    except AssertionError:\n        pass\n    shape =")}),
    "elementwise loops": ("a1", {"bn_train_solution":
        "def bn_train(x, gamma, beta, eps):\n    out = torch.empty_like(x)\n    for c in range(x.shape[1]):\n"
        "        values = [float(v) for v in x[:, c].flatten()]\n        batch_norm = sum(values) / len(values)\n"
        "        var = sum((v - batch_norm) ** 2 for v in values) / len(values)\n"
        "        out[:, c] = (x[:, c] - batch_norm) / (var + eps) ** 0.5 * gamma[c] + beta[c]\n    return out"}),
    "another cell that calls it": ("a1", {"own":
        "import torch\nfrom torch import nn\nfrom torch.nn.utils import fusion\n"
        "def reference():\n    return fusion.fuse_conv_bn_eval(nn.Conv2d(3, 3, 1).eval(), nn.BatchNorm2d(3).eval())\n"
        "reference()"}),
    "a layer of torch inside an answer that does not forbid it": ("a1", {"update_statistics_solution":
        "def update_statistics(x, running_mean, running_var, momentum):\n"
        "    bn = nn.BatchNorm2d(x.shape[1], momentum=momentum, dtype=x.dtype)\n"
        "    bn.running_mean, bn.running_var = running_mean.clone(), running_var.clone()\n"
        "    bn(x)\n    return bn.running_mean, bn.running_var"}),
    "names that the grader uses, too": ("a1", {"own": "from time import time\nstart = time()\njson = send = 3\n"
        "class Path: pass\ndef alarm(seconds): return main + sys\n"}),
    "int() and math instead of torch": ("a4", {"requantize_solution":
        "def requantize(sums, mantissa, shift, zero_point, low, high):\n    quantized = [\n"
        "        min(max(((int(s) * int(mantissa) + (1 << (shift - 1))) >> shift) + zero_point, low), high)\n"
        "        for s in sums.flatten().tolist()]\n"
        "    return torch.tensor(quantized, dtype=torch.int64).reshape(sums.shape)"}),
}  # fmt: skip


ASSIGNMENTS = [(name, label) for name in EXERCISES for label in MISTAKEN if MISTAKEN[label][0] == name]


def _judge_here(name, changes):
    """Lost items, graded as in the box but in this process: for code of our own alone."""
    exercise = EXERCISES[name]
    sources = answers.solution_cells(exercise)
    own = re.sub("^[%!]", "#", changes.get("own", ""), flags=re.MULTILINE)
    student = answers.execute({"own": ""} | sources | changes | {"own": own})
    verdicts = {i.name: check(answers.guarded(i), student, "tests", hidden=True) for i in exercise.assignment.items}
    return {name: verdict.message for name, verdict in verdicts.items() if verdict.share < 1 and name != "network"}


@pytest.mark.parametrize(("name", "label"), ASSIGNMENTS)
def test_a_right_answer_gets_all_points_whatever_it_calls_things(name, label):
    assert _judge_here(name, MISTAKEN[label][1]) == {}


def _fold(call, above=""):
    return {"fold_conv_solution": above + TORCHS_FOLD.replace("FUSE", call)}


CALLS = {
    "imported": _fold("fuse_conv_bn_weights", "from torch.nn.utils.fusion import fuse_conv_bn_weights\n"),
    "under another name": _fold("f.fuse_conv_bn_weights", "import torch.nn.utils.fusion as f\n"),
    "through getattr": _fold("getattr(torch.nn.utils.fusion, 'fuse_' + 'conv_bn_weights')"),
    "kept by a cell of one's own": {"own": "from torch.nn.utils.fusion import fuse_conv_bn_weights as ours"} | _fold(
        "ours"),
    "kept before everything, in a list": {"own": "import torch.nn.utils.fusion as f\nX = [f.fuse_conv_bn_weights]"}
    | _fold("X[0]"),
    "with odd spaces": _fold("torch . nn . utils . fusion . fuse_conv_bn_weights"),
    "by eval of a text": _fold("eval('torch.nn.utils.fusion.fuse_conv_bn_weights')"),
    "through partial": _fold("partial(torch.nn.utils.fusion.fuse_conv_bn_weights)", "from functools import partial\n"),
    "by a helper": {"own": "def helper(*a):\n    return torch.nn.utils.fusion.fuse_conv_bn_weights(*a)"}
    | _fold("helper"),
    "in a thread": _fold("f", "from concurrent.futures import ThreadPoolExecutor\ndef f(*a):\n"
        "    import torch.nn.utils.fusion as f\n    with ThreadPoolExecutor() as pool:\n"
        "        return pool.submit(f.fuse_conv_bn_weights, *a).result()\n"),
    "twice, the first time for nothing": _fold("f", "def f(*a):\n    for _ in range(2):\n        try:\n"
        "            return torch.nn.utils.fusion.fuse_conv_bn_weights(*a)\n        except BaseException: pass\n"),
}  # fmt: skip


@pytest.mark.parametrize("label", CALLS)
def test_a_call_by_any_name_earns_nothing_in_this_exercise_and_those_that_use_it(label):
    lost = _judge_here("a1", CALLS[label])
    assert set(lost) == {"fold_conv", "fold_model"}
    assert re.search("(line .*|a thread) calls .*fuse_conv_bn_weights", lost["fold_conv"])


FORBIDDEN_CALLS = [
    ("a1", "bn_train", "torch.nn.functional.batch_norm(x, None, None, training=True)"),
    ("a1", "bn_train", "nn.BatchNorm2d(3)(x)"),
    ("a1", "bn_train", "torch.batch_norm(x, None, None, None, None, True, 0.1, 1e-5, False)"),
    ("a1", "bn_train", "torch.ops.aten.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)"),
    ("a1", "bn_train", "torch.vmap(lambda x: torch.nn.functional.batch_norm(x, None, None, training=True))(x[None])"),
    ("a4", "quantize", "torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)"),
    ("a4", "quantize", "list(map(torch.fake_quantize_per_tensor_affine, [x], [0.1], [0], [0], [255]))"),
    ("a4", "quantize", "torch.ao.quantization.MinMaxObserver()(x)"),
    ("a5", "pack_bits", "numpy.packbits(x.flatten() > 0)"),
    ("a5", "distillation_loss", "nn.KLDivLoss()(x, x)"),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "item", "call"), FORBIDDEN_CALLS)
def test_the_function_itself_is_out_of_reach_while_its_exercise_is_answered(name, item, call):
    import numpy
    import torch

    names = {"torch": torch, "nn": torch.nn, "numpy": numpy, "x": torch.rand(2, 3, 4, 4)}
    exec(call, names)
    guard = Guard(EXERCISES[name].assignment.item(item).forbidden)
    with pytest.raises(Exception, match="write yourself"), guard:
        exec(call, names)
    assert guard.found
    exec(call, names)


@pytest.fixture(scope="module")
def hand_in(tmp_path_factory):
    """Grade the released notebook of an assignment with some cells replaced and files beside it."""
    made = {}

    def grade(name, changes, files=None, edit=lambda text: text, beside=False):
        exercise = EXERCISES[name]
        if name not in made:
            folder = release.release(Classroom.open(tmp_path_factory.mktemp("class")), exercise)
            skeleton = nbformat.read(folder / exercise.notebook.name, as_version=4)
            items = [s for s in judge.prepare(exercise, "tests") if s.item.name != "network"]
            made[name] = skeleton, items, folder
        skeleton, sheets, bundle = made[name]
        folder = tmp_path_factory.mktemp("student")
        sources = answers.solution_cells(exercise) | changes
        text = nbformat.writes(fill(skeleton, sources))
        (folder / exercise.notebook.name).write_text(edit(text), newline="")
        whole = {path.name: path.read_bytes() for path in bundle.iterdir() if path.suffix != ".ipynb"} if beside else {}
        for file, content in (whole | (files or {})).items():
            (folder / file).write_bytes(content)
        result = judge.grade(exercise, read(folder, exercise.notebook.name, skeleton), sheets)
        return {n: row for n, row in result["items"].items() if row["points"] != row["of"]}, result

    return grade


@pytest.mark.box
@pytest.mark.slow
@pytest.mark.ci
def test_a_hand_in_of_odd_style_gets_all_points(hand_in):
    """Magics, Windows line ends, the whole bundle beside the notebook, and names of all kinds, in one."""
    labels = [label for label in MISTAKEN if MISTAKEN[label][0] == "a1" and "fuse_conv_bn" not in label]
    changes = {"own": "\n".join(MISTAKEN[label][1].get("own", "") for label in labels)}
    for label in labels:
        changes |= {cell: source for cell, source in MISTAKEN[label][1].items() if cell != "own"}
    windows = {name: source.replace("\n", "\r\n") for name, source in changes.items()}
    windows["bn_affine_solution"] = (
        "%%time\n%matplotlib inline\n"
        + "from tools import scale\n"
        + (
            "def bn_affine(gamma, beta, mean, var, eps):\n    display('x')\n    a = scale(gamma, var, eps)\n"
            "    return a, (0 if beta is None else beta) - mean * a"
        )
    )
    tools = b"def scale(g, v, e):\n    return (1 if g is None else g) / (v + e) ** 0.5"
    lost, result = hand_in("a1", windows, {"tools.py": tools}, lambda text: text.replace("\n", "\r\n"), True)
    assert lost == {}, (lost, result["notes"])


@pytest.mark.box
@pytest.mark.slow
def test_the_whole_bundle_of_another_assignment_costs_nothing(hand_in):
    lost, result = hand_in("a5", {}, beside=True)
    assert lost == {}, (lost, result["notes"])


@pytest.mark.box
@pytest.mark.slow
@pytest.mark.parametrize("file", ["tools.py", "weights.safetensors", None])
def test_a_call_is_found_in_the_box_in_files_too_and_said(file, hand_in):
    if file:
        code = "import torch\n" + CALLS["imported"]["fold_conv_solution"]
        changes, files = {"fold_conv_solution": f"exec(open({file!r}).read())"}, {file: code.encode()}
    else:
        changes, files = CALLS["twice, the first time for nothing"], None
    lost, _ = hand_in("a1", changes, files)
    assert set(lost) == {"fold_conv", "fold_model"} and all(row["points"] == 0 for row in lost.values())
    row = lost["fold_conv"]
    assert row["refused"] and row["message"].startswith("Not allowed: line ") and "fuse_conv" in row["message"]


@pytest.mark.slow
@pytest.mark.ci
def test_check_says_it_at_once_with_the_line_and_helps_in_steps(tmp_path):
    bundle = release.release(Classroom.open(tmp_path / "class"), EXERCISES["a1"])
    text = f"import torch\nfrom instant import check\n{CALLS['imported']['fold_conv_solution']}check('fold_conv')\n"
    text += "def fold_conv(weight, bias, a, b):\n    return weight, b\n" + "check('fold_conv')\n" * 3
    (bundle / "script.py").write_text(text)
    done = subprocess.run([sys.executable, "script.py"], cwd=bundle, capture_output=True, text=True, check=True)
    refused, first, second, third = re.split(r"\n(?=fold_conv)", done.stdout.strip())
    assert "not allowed: line 7 (return fuse_conv_bn_weights(weight, bias" in refused, done.stdout
    assert "the next try gets a hint" in first and "Output channels" not in first
    assert "Hint: Output channels" in second and "expected" not in second and "expected" in third
