"""No mark is lost to a name, a comment, a test or a file; what calls the forbidden function earns
nothing.
"""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from contextlib import suppress

import nbformat
import numpy
import pytest
import safetensors.torch
import torch
import torch.nn.utils.prune

from course.__main__ import main
from course.grading import answers, course
from course.grading import guard as guarding
from course.grading.answers import fill
from course.grading.guard import Forbidden, Guard
from course.grading.intake import packed_bytes
from tests.course.grading import trying

EXERCISES = {name: course.load(name) for name in ("a1", "a4", "a5")}
FOLD = answers.solution_cells(EXERCISES["a1"])["fold_conv_solution"]
TORCHS_FOLD = """
def fold_conv(weight, bias, a, b):
    zero = torch.zeros_like(b)
    return FUSE(weight, bias, zero, torch.ones_like(b), 0.0, a, b)
"""

MISTAKEN = {
    "a helper called fake_quantize": (
        "a4",
        {
            "own": "def fake_quantize(x, s, z, low, high):\n"
            "    return quantize_per_tensor(x, s, z).clamp(low, high).long()\n"
            "def quantize_per_tensor(x, s, z):\n"
            "    return torch.round(x / s) + z",
            "quantize_solution": "quantize = lambda x, scale, zero_point, low, high: "
            "fake_quantize(x, scale, zero_point, low, high)",
        },
    ),
    "numpy and einsum": (
        "a1",
        {
            "own": "import numpy as np",
            "fold_conv_solution": "def fold_conv(weight, bias, a, b):\n"
            "    w, fusion = weight.detach().numpy(), a.detach().numpy()\n"
            "    fusion = np.einsum('o...,o->o...', w, fusion)\n"
            "    return torch.tensor(fusion), b + (0 if bias is None else a * bias)",
        },
    ),
    "a layer of torch inside an answer that does not forbid it": (
        "a1",
        {
            "update_statistics_solution": "def update_statistics(x, running_mean, running_var, "
            "momentum):\n"
            "    bn = nn.BatchNorm2d(x.shape[1], momentum=momentum, dtype=x.dtype)\n"
            "    bn.running_mean, bn.running_var = running_mean.clone(), running_var.clone()\n"
            "    bn(x)\n"
            "    return bn.running_mean, bn.running_var"
        },
    ),
}


def lost_items(name, changes):
    """What is lost of an assignment, graded as in the box but in this process: for code of our own
    alone.
    """
    exercise = EXERCISES[name]
    sources = answers.solution_cells(exercise)
    student = answers.execute({"own": ""} | sources | changes)
    items = map(trying.guarded, exercise.assignment.items)
    verdicts = {item.name: trying.check(item, student, "tests", hidden=True) for item in items}
    return {
        name: verdict.message
        for name, verdict in verdicts.items()
        if verdict.share < 1 and name != "network"
    }


@pytest.mark.parametrize("label", MISTAKEN)
def test_a_right_answer_gets_all_points_whatever_it_calls_things(label):
    assert lost_items(*MISTAKEN[label]) == {}


def _fold(call, above=""):
    return {"fold_conv_solution": above + TORCHS_FOLD.replace("FUSE", call)}


CALLS = {
    "imported": _fold(
        "fuse_conv_bn_weights", "from torch.nn.utils.fusion import fuse_conv_bn_weights\n"
    ),
    "under another name": _fold("f.fuse_conv_bn_weights", "import torch.nn.utils.fusion as f\n"),
    "through getattr": _fold("getattr(torch.nn.utils.fusion, 'fuse_' + 'conv_bn_weights')"),
    "kept by a cell of one's own": {
        "own": "from torch.nn.utils.fusion import fuse_conv_bn_weights as ours"
    }
    | _fold("ours"),
    "kept before everything, in a list": {
        "own": "import torch.nn.utils.fusion as f\nX = [f.fuse_conv_bn_weights]"
    }
    | _fold("X[0]"),
    "with odd spaces": _fold("torch . nn . utils . fusion . fuse_conv_bn_weights"),
    "by eval of a text": _fold("eval('torch.nn.utils.fusion.fuse_conv_bn_weights')"),
    "through partial": _fold(
        "partial(torch.nn.utils.fusion.fuse_conv_bn_weights)", "from functools import partial\n"
    ),
    "by a helper": {
        "own": "def helper(*a):\n    return torch.nn.utils.fusion.fuse_conv_bn_weights(*a)"
    }
    | _fold("helper"),
    "in a thread": _fold(
        "f",
        "from concurrent.futures import ThreadPoolExecutor\ndef f(*a):\n"
        "    import torch.nn.utils.fusion as f\n    with ThreadPoolExecutor() as pool:\n"
        "        return pool.submit(f.fuse_conv_bn_weights, *a).result()\n",
    ),
    "twice, the first time for nothing": _fold(
        "f",
        "def f(*a):\n"
        "    for _ in range(2):\n"
        "        try:\n"
        "            return torch.nn.utils.fusion.fuse_conv_bn_weights(*a)\n"
        "        except BaseException: pass\n",
    ),
}


@pytest.mark.parametrize("label", CALLS)
def test_a_call_by_any_name_earns_nothing_in_this_exercise_and_those_that_use_it(label):
    lost = lost_items("a1", CALLS[label])
    assert set(lost) == {"fold_conv", "fold_model"}
    assert re.search("(line .*|a thread) calls .*fuse_conv_bn_weights", lost["fold_conv"])


FORBIDDEN_CALLS = [
    (
        "a1",
        "bn_affine",
        "nn.utils.fusion.fuse_conv_bn_weights(x, None, *[torch.ones(2)] * 2, 0.0, None, None)",
    ),
    ("a1", "bn_train", "torch.nn.functional.batch_norm(x, None, None, training=True)"),
    ("a1", "bn_train", "nn.BatchNorm2d(3)(x)"),
    ("a1", "bn_train", "torch.batch_norm(x, None, None, None, None, True, 0.1, 1e-5, False)"),
    (
        "a1",
        "bn_train",
        "torch.ops.aten.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)",
    ),
    (
        "a1",
        "bn_train",
        (
            "torch.vmap(lambda x: torch.nn.functional.batch_norm(x, None, None,"
            " training=True))(x[None])"
        ),
    ),
    ("a4", "quantize", "torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)"),
    (
        "a4",
        "quantize",
        "list(map(torch.fake_quantize_per_tensor_affine, [x], [0.1], [0], [0], [255]))",
    ),
    ("a4", "quantize", "torch.ao.quantization.MinMaxObserver()(x)"),
    ("a5", "pack_bits", "numpy.packbits(x.flatten() > 0)"),
    ("a5", "distillation_loss", "nn.KLDivLoss()(x, x)"),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "item", "call"), FORBIDDEN_CALLS)
def test_the_function_itself_is_out_of_reach_while_its_exercise_is_answered(name, item, call):
    names = {"torch": torch, "nn": torch.nn, "numpy": numpy, "x": torch.rand(2, 3, 4, 4)}
    exec(call, names)
    guard = Guard(trying.item_of(EXERCISES[name].assignment, item).forbidden)
    with pytest.raises(Exception, match="write yourself"), guard:
        exec(call, names)
    assert guard.found
    exec(call, names)


def test_a_library_goes_by_its_file_whatever_it_is_imported_as():
    spec = importlib.util.spec_from_file_location("own", torch.nn.utils.prune.__file__)
    own = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(own)
    with suppress(Forbidden), Guard(["torch.nn.utils.prune.*"]) as guard:
        own._compute_norm(torch.ones(2, 2), 1, 0)
    assert "calls torch.nn.utils.prune._compute_norm" in guard.found


def test_a_library_of_windows_has_the_same_names(monkeypatch):
    libraries = (r"C:\p\Lib", *[r"C:\p\Lib\site-packages"] * 2)
    monkeypatch.setattr(guarding, "LIBRARIES", libraries)
    guarding.library_module.cache_clear()
    for file, name in (
        (r"C:\p\Lib\site-packages\torch\nn\utils\fusion.py", "torch.nn.utils.fusion"),
        (r"C:\p\Lib\site-packages\torch\fx\__init__.py", "torch.fx"),
        (r"C:\Users\anna\int8\work\a1.py", ""),
    ):
        assert guarding.library_module(file) == name
    guarding.library_module.cache_clear()


def test_a_long_line_is_cut_where_one_sees_it(tmp_path):
    path = tmp_path / "answer.py"
    path.write_text("torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)" + " + (0)" * 9)
    names = {"torch": torch, "x": torch.rand(2)}
    cut = pytest.raises(Exception, match=r"line 1 \(torch\.quan.*\.\.\.\) calls torch")
    with cut, Guard(["torch.quantize*"]):
        exec(compile(path.read_text(), path, "exec"), names)


COPIED = """
import inspect, torch.nn.utils.fusion
def fold_conv(conv, norm):
    copied = {}
    source = inspect.getsource(torch.nn.utils.fusion)
    exec(source.replace("from __future__ import annotations", ""), copied)
    return copied["fuse_conv_bn_eval"](conv, norm)
"""
RENAMED = """
import inspect, torch.nn.utils.fusion
source = inspect.getsource(torch.nn.utils.fusion.fuse_conv_bn_eval).replace("fused_conv", "mine")
exec("from __future__ import annotations\\n" + source.replace("Fusion only for eval!", "No."))
def fold_conv(conv, norm):
    return fuse_conv_bn_eval(conv, norm)
"""
LOOKS_AROUND = """
import sys
def fold_conv(conv, norm):
    loaded = [module for module in [*sys.modules.values()] if hasattr(module, "of_my_own")]
    return conv if not loaded else norm
"""
COPY = "is in a copy of torch"


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of modules of torch that are asked
@pytest.mark.parametrize(("code", "found"), [(COPIED, COPY), (RENAMED, COPY), (LOOKS_AROUND, "")])
def test_a_copy_is_seen_and_to_look_through_modules_is_no_call(code, found):
    names = {}
    exec(code, names)
    conv, norm = torch.nn.Conv2d(3, 3, 1).eval(), torch.nn.BatchNorm2d(3).eval()
    item = trying.item_of(EXERCISES["a1"].assignment, "fold_conv")
    with suppress(Forbidden), Guard(item.forbidden) as guard:
        names["fold_conv"](conv, norm)
    assert found in guard.found and bool(found) == bool(guard.found)


TESTS_OF_ONES_OWN = """import numpy, torch
from torch import nn
from torch.nn.functional import *
from torch.nn.utils.fusion import fuse_conv_bn_eval
def reference(x):
    nn.KLDivLoss(reduction="sum")(x, x), numpy.packbits(x.flatten() > 0)
    folded = fuse_conv_bn_eval(nn.Conv2d(3, 3, 1).eval(), nn.BatchNorm2d(3).eval())
    return folded(nn.BatchNorm2d(3)(x))
images = reference(torch.randn(2, 3, 4, 4))
quantized = torch.fake_quantize_per_tensor_affine(images, 0.1, 0, 0, 255)
send = wire = alarm = main = 3  # names that the grader uses, too"""
ODD_CELL = """import asyncio
async def something(): await asyncio.sleep(0.01)
await something()
%time fusions = 1
assert fusions; quantized = 0
!pip list
from IPython import get_ipython
get_ipython().run_line_magic("matplotlib", "inline")
import matplotlib.pyplot as plt, warnings; plt.plot([1]); plt.show(); display("x")
warnings.simplefilter("error")
import torch; torch.set_num_threads(4); torch.randn(999, 999) @ torch.randn(999, 999)
exit()"""
ENDLESS = "import torch\nwhile True: torch.randn(9, 9)  # as a training does, for long"


def _styles(exercise, bundle):
    """Thirteen ways to write and hand in what is right: the student, cells, files, and how cells
    are copied.
    """
    cells = answers.solution_cells(exercise)
    functions = {f"{item.name}_solution": item.function for item in exercise.assignment.items}
    whole = "\n\n".join([cells["setup"], *(cells[name] for name in functions)])
    imports = {name: f"from tools import {function}" for name, function in functions.items()}
    given = {path.name: path.read_bytes() for path in bundle.iterdir() if path.suffix != ".ipynb"}

    def each(form, prefix="", margin=""):
        """Every solution in a frame of other code, where its function is called `prefix` and its
        name.
        """
        made = {}
        for name, f in functions.items():
            source = (
                cells[name].replace(f"def {f}(", f"def {prefix}{f}(").replace("\n", f"\n{margin}")
            )
            made[name] = form.replace("SOURCE", source).replace("NAME", f)
        return made

    for index in (0, 1):
        yield f"answers{index}", answers.variant(exercise, True, index), {}, None
    called = "SOURCE\n\n\nNAME = lambda *a, **k: fuse_conv_bn_NAME(*a, **k)"
    yield "called", each(called, "fuse_conv_bn_"), {}, None
    wrapped = (
        "SOURCE\n@wraps(quantize_NAME)\ndef NAME(*a: Unknown, **k):\n    return"
        " partial(quantize_NAME, *a)(**k)"
    )
    edited = {
        "setup": f"from __future__ import annotations\nfrom functools import *\n{cells['setup']}"
    }
    yield "wrapped", each(wrapped, "quantize_") | edited, {}, None
    nested = "def make_batch_norm():\n    SOURCE\n    return NAME\nNAME = make_batch_norm()"
    yield "nested", each(nested, margin="    "), {}, None
    yield "tests", each("# no batch_norm, no kl_div\nSOURCE") | {"own": TESTS_OF_ONES_OWN}, {}, None
    timed = each("%%time\n%matplotlib inline\nSOURCE").items()
    windows = {name: source.replace("\n", "\r\n") for name, source in timed}
    yield "windows line ends", windows, given | {"Notes.pdf": b"x"}, None
    yield "files", imports, {"tools.py": whole.encode()}, None
    yield (
        "run",
        dict.fromkeys(functions, "%run -i 'my tools'"),
        {"my tools.py": whole.encode()},
        None,
    )
    yield "written files", imports | {"own": f"%%writefile tools.py\n{whole}"}, {}, None
    yield "odd cells", {"own": ODD_CELL}, {}, None
    # Split cells keep their marks; a cell that is pasted has none.
    yield "split", {}, {}, lambda cell: [cell | {"source": "import math"}, cell]
    own = ENDLESS if exercise.folder.name == "a5" else ""
    yield (
        "pasted",
        {"own": own},
        {},
        lambda cell: [cell | {"metadata": {}}] * (6 if cell["source"] == ENDLESS else 1),
    )


@pytest.mark.box
@pytest.mark.slow
@pytest.mark.parametrize("name", course.names())
def test_right_answers_of_every_style_get_all_points_through_the_command_line(name, tmp_path):
    exercise, command = course.load(name), ["--folder", str(tmp_path), name]
    assert main(["grade", "release", "--new", *command]) == 0
    bundle = tmp_path / "released" / name
    skeleton = nbformat.read(bundle / exercise.notebook.name, as_version=4)
    for student, sources, files, copies in _styles(exercise, bundle):
        notebook = json.loads(
            nbformat.writes(fill(skeleton, answers.solution_cells(exercise) | sources))
        )
        if copies:
            cells = (cell | {"source": "".join(cell["source"])} for cell in notebook["cells"])
            notebook["cells"] = [new for cell in cells for new in copies(cell)]
        folder = tmp_path / "incoming" / name / student
        folder.mkdir(parents=True)
        (folder / exercise.notebook.name).write_text(json.dumps(notebook, indent=1), newline="\r\n")
        for file, data in (trying.handed_in(exercise) | files).items():
            (folder / file).write_bytes(data)
    assert main(["grade", "collect", *command]) == main(["grade", "run", *command]) == 0
    results = [json.loads(path.read_text()) for path in (tmp_path / "results" / name).iterdir()]
    lost = {(result["student"], item): (row["points"], row["message"], result["notes"])
            for result in results for item, row in result["items"].items()
            # Every byte of a network's code counts, so there style has its price, which is told.
            if row["points"] < row["of"] * (0.6 if item == "network" else 1)}  # fmt: skip
    assert len(results) == 13 and lost == {}


@pytest.mark.slow
@pytest.mark.ci
def test_check_says_it_at_once_with_the_line_and_helps_in_steps(room):
    bundle = room.folder / "released" / "a1"
    text = (
        "import torch\nfrom instant import"
        f" check\n{CALLS['imported']['fold_conv_solution']}check('fold_conv')\n"
    )
    text += (
        "def fold_conv(weight, bias, a, b):\n    return weight, b\n" + "check('fold_conv')\n" * 4
    )
    text += "from instant import _items\n_items['fold_conv']['seconds'] = 0\ncheck('fold_conv')\n"
    text += "def fold_conv(weight, bias, a, b):\n    weight + 1\n" + "check('fold_conv')\n" * 2
    text += "def bn_affine(gamma, beta, mean, var, eps):\n    a = (gamma / (var + eps)).float()\n"
    text += "    return a, a\n" + "check('bn_affine')\n" * 2
    text += "def fold_conv(kernel, bias, a, b):\n    return 1\n" + "check('fold_conv')\n"
    text += "def fold_conv(weight, bias, a, b):\n    raise NotImplementedError()\n"
    text += "def fold_model(model):\n    return fold_conv(1, 2, 3, 4)\ncheck('fold_model')\n"
    (bundle / "script.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=bundle, capture_output=True, text=True, check=True
    )
    *before, last = done.stdout.strip().splitlines()
    assert last == "fold_model: it calls fold_conv, which is not done yet"
    said = re.split(r"\n(?=fold_conv|bn_affine)", "\n".join(before))
    refused, first, second, third, fourth, slow, *formal = said
    assert "not allowed: line 7 (return fuse_conv_bn_weights(weight, bias" in refused, done.stdout
    assert (
        "After the next wrong answer you get a hint" in first
        and "Hint" not in first
        and "Hint: Which entries" in second
    )
    assert "Hint: Output channels" in third and "expected" not in third and "expected" in fourth
    assert "grading ends it after 0 s" in slow and "grading ends" not in fourth
    assert len(formal) == 5 and not any("int:" in one for one in formal)  # hints are on content
    assert "is a return missing?" in formal[0] and "it is in torch.float32" in formal[3]
    assert "keep the exercise's names" in formal[4]


def said_by(bundle, text):
    """The lines that a script beside a released notebook prints."""
    (bundle / "script.py").write_text(text)
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=bundle, capture_output=True, text=True, check=True)
    return done.stdout.strip().splitlines()


@pytest.mark.slow
@pytest.mark.ci
def test_check_names_an_output_that_was_removed(released, tmp_path):
    bundle = tmp_path / "a2"
    shutil.copytree(released("a2").folder / "released" / "a2", bundle)
    text = "from instant import check\ndef remove_dead(graph_module):\n"
    text += "    graph_module.graph.erase_node([*graph_module.graph.nodes][-1])\n    return 1\n"
    (line,) = said_by(bundle, text + "check('remove_dead')\n")
    assert "the graph has no output any more" in line


@pytest.mark.slow
@pytest.mark.ci
def test_check_of_a_network_names_another_file_and_calls_a_share_no_mistake(released, tmp_path):
    exercise, bundle = EXERCISES["a5"], tmp_path / "a5"
    shutil.copytree(released("a5").folder / "released" / "a5", bundle)
    own = [cell for cell in nbformat.read(bundle / "a5.ipynb", 4).cells if cell.cell_type == "code"]
    (whole,) = trying.handed_in(exercise).values()
    larger = safetensors.torch.load(whole) | {"unused": torch.zeros(8_000, dtype=torch.uint8)}
    (bundle / "mine.safetensors").write_bytes(safetensors.torch.save(larger))
    text = "\n\n".join(answers.solution_cells(exercise).values())
    text += "\ncheck('network')\nimport os\nos.rename('mine.safetensors', 'network.safetensors')\n"
    text += "check('network')\ndef restore(tensors):\n    return tensors\ncheck('network')\n"
    text += "def front(accuracies, sizes):\n    return []\n" + "check('front')\n" * 2
    missing, share, unlisted, short, again, hint = said_by(bundle, text)
    assert "restore returns no list of layers, but a dict" in unlisted
    assert "should be of length" in short and "should be of length" in again and "Hint: " in hint
    assert "network.safetensors is not beside the notebook; there is mine.safetensors" in missing
    assert share.startswith("network: it works on the visible inputs. ")
    assert 20 < int(re.search(r"earn (\d+)\.\d% of", share).group(1)) < 100
    cells = [cell["source"] for cell in own if not cell["metadata"]["nbgrader"]["locked"]]
    assert f"({packed_bytes(cells):,} of these bytes are code in a5.ipynb" in share


@pytest.mark.slow
@pytest.mark.ci
def test_check_counts_the_time_of_all_inputs_of_grading(room):
    script = """
import time
from instant import check
def fold_conv(weight, bias, a, b):
    return weight, b
for spent in (1.1, 19):
    clock = iter((0, spent))
    time.process_time = lambda: next(clock)
    check("fold_conv")
"""
    soon, *_, late = said_by(room.folder / "released" / "a1", script)
    assert "grading ends" not in soon and "grading ends it after 20 s" in late
