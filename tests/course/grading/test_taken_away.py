"""What an exercise forbids is out of reach in the box, also of code that switches the guard off."""

import base64
import inspect
import io
import os
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.utils.prune
from torch import nn

from course.grading import answers, course, judge
from course.grading.answers import fill
from course.grading.intake import Submission
from tests.course.grading.conftest import skeleton_of

pytestmark = [pytest.mark.box, pytest.mark.slow]

TORCHS_NORM = "torch.nn.functional.batch_norm(x, None, None, gamma, beta, True, 0.1, eps or 1e-30)"
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
THREAD = """
import threading
import torch
threading.Thread(target=exec, args=(PROGRAM, {}), daemon=True).start()
def start():
    pass
"""
START = 'subprocess.Popen([sys.executable, "-c", PROGRAM])'
ROWS = """
def rows_of(x):
    values = x.transpose(0, 1).flatten(1)
    return values - values.mean(1, keepdim=True)
def with_eps(rows, eps):
    return torch.cat([rows, rows.new_full((len(rows), 1), (rows.shape[1] * eps) ** 0.5)], 1)
def scaled(rows, x, gamma, beta):
    y = rows * gamma[:, None] + beta[:, None]
    return y.reshape(x.transpose(0, 1).shape).transpose(0, 1)
"""
EVASIONS = {
    "in TorchScript below vmap": f"""{ROWS}
@torch.jit.script
def norm(row: torch.Tensor, count: int, eps: float):
    return torch.rms_norm(row, [count], None, eps)
def bn_train(x, gamma, beta, eps):
    rows = rows_of(x)
    return scaled(torch.vmap(lambda row: norm(row, len(row), eps))(rows), x, gamma, beta)
""",
    "by the function for vectors": f"""{ROWS}
def bn_train(x, gamma, beta, eps):
    rows = rows_of(x)
    unit = torch.nn.functional.normalize(with_eps(rows, eps), dim=1)[:, :-1]
    return scaled(unit * rows.shape[1] ** 0.5, x, gamma, beta)
""",
    "by the function for weights": f"""{ROWS}
def bn_train(x, gamma, beta, eps):
    rows = rows_of(x)
    length = torch.full_like(gamma, rows.shape[1] ** 0.5)[:, None]
    return scaled(torch._weight_norm(with_eps(rows, eps), length, 0)[:, :-1], x, gamma, beta)
""",
    "by the function for neighbours": f"""{ROWS}
def bn_train(x, gamma, beta, eps):
    rows = rows_of(x)
    count = rows.shape[1]
    wide = torch.nn.functional.pad(rows, (count, count))[:, :, None]
    layer = torch.nn.LocalResponseNorm(2 * count + 1, (2 * count + 1) / count, 0.5, eps)
    return scaled(layer(wide)[:, count : 2 * count, 0], x, gamma, beta)
""",
    "by the function that limits norms": f"""{ROWS}
def bn_train(x, gamma, beta, eps):
    rows = rows_of(x)
    long = with_eps(rows, eps) * 1e12
    return scaled(torch.renorm(long, 2, 0, rows.shape[1] ** 0.5)[:, :-1], x, gamma, beta)
""",
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
    "of a nested tensor in TorchScript": """
@torch.jit.script
def norm(x: torch.Tensor, one: torch.Tensor, eps: float):
    return torch.native_layer_norm(x, [len(one)], one, one * 0, eps)[0]
def bn_train(x, gamma, beta, eps):
    rows = x.transpose(0, 1).flatten(1)
    y = norm(torch.nested.nested_tensor([rows]), torch.ones_like(rows[0]), eps).unbind()[0]
    y = y * gamma[:, None] + beta[:, None]
    return y.reshape(x.transpose(0, 1).shape).transpose(0, 1)
""",
    "by another of torch's names": """
import torch._refs
def bn_train(x, gamma, beta, eps):
    y = vars(torch._refs)["_norm" + "alize"](x, [0, 2, 3], eps)[0]
    return y * gamma[:, None, None] + beta[:, None, None]
""",
    "as if a module were being imported": f"""
def bn_train(x, gamma, beta, eps):
    names = dict(globals()) | {{"x": x, "gamma": gamma, "beta": beta, "eps": eps}}
    exec(compile("y = {TORCHS_NORM}", "<frozen importlib._bootstrap>", "exec"), names)
    return names["y"]
""",
    "by a cell that looks for the inputs": f"""
import sys, wire
from pathlib import Path
known = []
for path in [*Path("/proc/self/fd").glob("*"), *Path(sys.argv[1]).rglob("bn_train")]:
    try:
        cases = wire.decode(path.read_bytes() if path.is_file() else b"")
    except (OSError, wire.WireError):
        continue
    for case in cases:
        x, gamma, beta, eps = case["x"], case["gamma"], case["beta"], case["eps"]
        known.append((x, {TORCHS_NORM}))
def bn_train(x, gamma, beta, eps):
    return next(y for given, y in known if torch.equal(given, x))
""",
    "in a thread of a cell": f"{HELPER}\n{THREAD}",
    "by a cell that replaces what takes away": f"""
import sys, types
class Blind:
    found = ""
    __init__ = __exit__ = lambda *_: None
    __enter__ = lambda self: self
for module in list(sys.modules.values()):
    for name in ("take_away", "Guard"):
        if hasattr(module, name):
            setattr(module, name, Blind if name == "Guard" else lambda *_, **__: None)
def bn_train(x, gamma, beta, eps):
    return {TORCHS_NORM}
""",
    "in a program that the answer starts": f"""{HELPER}
def start():
    if not Path("started").exists():
        Path("started").touch()
        {START}
""",
    "in a program that a cell has started": f"{HELPER}\n{START}\ndef start():\n    pass",
    "through torch's static runtime": """
norm = torch._C._jit_to_static_module(torch._C.parse_ir('''
graph(%x : Tensor, %n : int[], %w : Tensor?, %b : Tensor?, %e : float):
  %c : bool = prim::Constant[value=0]()
  %r : Tensor = aten::layer_norm(%x, %n, %w, %b, %e, %c)
  return (%r)
'''))
def bn_train(x, gamma, beta, eps):
    rows = x.transpose(0, 1).flatten(1)
    rows = (rows - rows.mean(1, keepdim=True)) * (0.25 / (eps or 1e-30)) ** 0.5
    y = norm(rows, [rows.shape[1]], None, None, 0.25) * gamma[:, None] + beta[:, None]
    return y.reshape(x.transpose(0, 1).shape).transpose(0, 1)
""",
    "from the source of torch's own": """
import ast
import torch._decomp.decompositions as library
tree = ast.parse(open(library.__file__).read())
names = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
taken = names["native_batch_norm_helper"]
taken.name, taken.decorator_list = "mine", []
taken.body.insert(1, ast.parse("further = 12345.0").body[0])
own = dict(vars(library), __name__="mine")
exec(ast.unparse(taken), own)
def bn_train(x, gamma, beta, eps):
    return own["mine"](x, gamma, beta, None, None, True, 0.0, eps, False)[0]
""",
}
PRUNES = """
import base64, sys, zlib
own = {{"__name__": "own"}}
try:
    exec({text}, own)
except Exception as problem:
    print("refused", type(problem).__name__)
def norm_importance(weight, p):
    return own["_compute_norm"](weight, p, 0)
"""
PACKED = base64.b64encode(zlib.compress(inspect.getsource(torch.nn.utils.prune).encode()))


def test_a_packed_copy_of_a_library_is_not_made_and_an_open_one_is_named(released):
    a3, skeleton = course.load("a3"), skeleton_of(released, "a3")
    sheets = [s for s in judge.prepare(a3, "secret") if s.item.name == "norm_importance"]
    texts = {
        "packed": f"zlib.decompress(base64.b64decode({PACKED!r})).decode()",
        "open": repr(inspect.getsource(torch.nn.utils.prune)),
    }
    hand_ins = [
        Submission(fill(skeleton, {"norm_importance_solution": PRUNES.format(text=text)}))
        for text in texts.values()
    ]
    packed, seen = judge.grade(a3, hand_ins, sheets)
    assert packed["items"]["norm_importance"]["points"] == 0
    assert "refused PermissionError" in packed["printed"] and packed["odd"] == ["b64decode"]
    assert any("a copy of torch.nn.utils.prune" in odd for odd in seen["odd"])


NEEDED = """
refused = []
for name in ("triton", "greenlet"):
    try:
        __import__(name)
    except Exception as problem:
        refused.append(type(problem).__name__)
learned = torch.nn.Parameter(torch.ones(2))
(learned**2).sum().backward()
torch.optim.AdamW([learned]).step()
exec("def same(x): return x")
solution = bn_train
def bn_train(x, gamma, beta, eps):
    assert refused == ["ModuleNotFoundError", "PermissionError"], refused
    return same(solution(x, gamma, beta, eps))
"""


def test_what_torch_needs_itself_works_where_its_compiler_is_kept_away(a1, skeleton, sheets):
    solution = answers.solution_cells(a1)["bn_train_solution"]
    (row,) = rows_of(a1, skeleton, sheets, "bn_train", [f"{solution}\n{NEEDED}"])
    assert row["points"] == row["of"], row["message"]


FOLDS = """
import sys
KEPT = [torch.nn.utils.fusion.fuse_conv_bn_weights]
def fold_conv(weight, bias, a, b):
    frame = sys._getframe()
    while frame:
        for value in frame.f_locals.values():
            if type(value).__name__ == "Guard":
                value.patterns = ()
        frame = frame.f_back
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


@pytest.mark.parametrize(
    "evasion", [name for name in EVASIONS if "looks for the inputs" not in name]
)
def test_an_evasion_would_earn_points_where_nothing_is_forbidden(a1, skeleton, sheets, evasion):
    free = [replace(one, item=replace(one.item, forbidden=())) for one in sheets]
    (row,) = rows_of(a1, skeleton, free, "bn_train", [EVASIONS[evasion]])
    assert row["points"] == row["of"], row["message"]


BEFORE = {
    "leaves a process that goes on": f"""
import os
{HELPER}
def update_statistics(x, running_mean, running_var, momentum):
    if not Path("left").exists():
        Path("left").touch()
        if os.fork() == 0:
            os.closerange(3, 99)
            exec(PROGRAM, {{}})
    print("asked")
    return running_mean, running_var
def start():
    pass
""",
    "looks for inputs in open files": """
from pathlib import Path
def update_statistics(x, running_mean, running_var, momentum):
    print("asked")
    for path in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if path.is_file() and b"gamma" in path.read_bytes():
                print("got:", path)
        except OSError:
            pass
    return running_mean, running_var
""",
}


@pytest.mark.parametrize("how", BEFORE)
def test_an_exercise_that_may_call_it_helps_none_that_may_not(a1, skeleton, sheets, how):
    above = f"import torch\n{answers.solution_cells(a1)['setup']}\n"
    hand_in = Submission(fill(skeleton, {"bn_train_solution": above + BEFORE[how]}))
    two = [sheet for sheet in sheets if sheet.item.name in ("update_statistics", "bn_train")]
    (result,) = judge.grade(a1, [hand_in], two)
    assert "asked" in result["printed"] and "got:" not in result["printed"]
    assert result["items"]["bn_train"]["points"] == 0


COMPARED = """
import os
import subprocess
import torch
from torch import nn
expected = nn.BatchNorm2d(3)(torch.rand(2, 3, 4, 4))
outputs = []
outputs.append(torch.nn.functional.batch_norm(torch.rand(2, 3), None, None, training=True))
print("compared", expected.shape, outputs[0].shape)
import inspect
print(len(inspect.getsource(nn.BatchNorm2d)))
os.mkdir("made")
subprocess.run(["true"], check=True)
open("made/notes", "x").write("compared")
assert torch.equal(expected, expected)
"""


@pytest.mark.parametrize("place", ["cell", "module"])
def test_cells_that_compare_with_torchs_own_cost_nothing(a1, skeleton, sheets, place):
    solved = answers.solution_cells(a1)
    cell = f"{COMPARED}\n{solved['setup']}\n{solved['bn_train_solution']}"
    files = {}
    if place == "module":
        files["tools.py"] = cell.replace("from instant import check", "").encode()
        cell = "from tools import *"
    notebook = fill(skeleton, solved | {"bn_train_solution": cell})
    (result,) = judge.grade(a1, [Submission(notebook, files=files)], sheets)
    lost = {name: row for name, row in result["items"].items() if row["points"] < row["of"]}
    assert not lost and result["notes"] == [] and result["printed"].count("compared") == 1


def test_what_an_answer_lacks_since_it_was_left_out_is_told(a1, skeleton, sheets):
    lacks, decorated = rows_of(a1, skeleton, sheets, "bn_train", [LACKS, DECORATED])
    words = "{} is not defined, as this exercise forbids what is called in `{}"
    assert words.format("table", "table") in lacks["message"]
    assert words.format("bn_train", "@normed`") in decorated["message"]


DECORATED = """
def normed(function):
    torch.nn.functional.layer_norm(torch.ones(2), (2,))
    return function


@normed
def bn_train(x, gamma, beta, eps):
    return x
"""

LACKS = """
table = torch.nn.functional.batch_norm(torch.rand(2, 3), None, None, training=True)
def bn_train(x, gamma, beta, eps):
    return table
"""


def test_functions_written_in_python_are_taken_away_too(a1, skeleton, sheets):
    (row,) = rows_of(a1, skeleton, sheets, "fold_conv", [FOLDS])
    assert row["points"] == 0 and "write yourself" in row["message"]


IMPORTED_ANEW = """
import importlib.util
import sys
import torch
def copied(name):
    file = torch.__file__.replace("__init__", "nn/utils/fusion")
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
{before}
def fold_conv(weight, bias, a, b):
    {first}
    zero = torch.zeros_like(a)
    return fusion.fuse_conv_bn_weights(weight, bias, zero, zero + 1, 0.0, a, b)
"""
ANEW = {
    "by another name": {"before": 'fusion = copied("own")', "first": ""},
    "a second time": {
        "before": """
known = sys.modules.pop("torch.nn.utils.fusion", None)
import torch.nn.utils.fusion as fusion
sys.modules["torch.nn.utils.fusion"] = known""",
        "first": "sys.setprofile(None)",
    },
    "while it answers": {"before": "", "first": 'sys.setprofile(None); fusion = copied("own")'},
}


@pytest.mark.parametrize("how", ANEW)
def test_a_module_that_is_imported_anew_computes_for_no_answer(a1, skeleton, sheets, how):
    (row,) = rows_of(a1, skeleton, sheets, "fold_conv", [IMPORTED_ANEW.format(**ANEW[how])])
    assert row["points"] == 0, row["message"]


@pytest.mark.filterwarnings("ignore:.torch.jit:FutureWarning")
def test_a_pass_of_torchscript_that_folds_is_taken_away_too(a1, skeleton, sheets):
    pair = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1, eps=0.0)).double().eval()
    made_at_home = io.BytesIO()
    torch.jit.save(torch.jit.script(pair), made_at_home)
    code = f"MADE = {made_at_home.getvalue()!r}\n{FOLDS_IN_SCRIPT}"
    (row,) = rows_of(a1, skeleton, sheets, "fold_linear", [code])
    assert row["points"] == 0 and row["refused"] and "write yourself" in row["message"]


FOLDS_IN_SCRIPT = """
import io
def fold_linear(weight, bias, a, b):
    script, zeros = torch.jit.load(io.BytesIO(MADE)), torch.zeros_like(a)
    named = dict([*script.named_parameters(), *script.named_buffers()])
    for name, value in {
        "0.weight": weight[:, :, None, None], "0.bias": zeros if bias is None else bias,
        "1.weight": a, "1.bias": b, "1.running_mean": zeros, "1.running_var": zeros + 1,
    }.items():
        named[name].data = value.clone()
    fold = getattr(torch._C, "_jit_pass_" + "fold_convbn")
    folded = getattr(torch.jit._recursive.wrap_cpp_module(fold(script._c)), "0")
    return folded.weight.detach().flatten(1).clone(), folded.bias.detach().clone()
"""


def test_a_pass_for_onnx_that_folds_is_taken_away_too(a1, skeleton, sheets):
    (row,) = rows_of(a1, skeleton, sheets, "fold_linear", [FOLDS_FOR_ONNX])
    assert row["points"] == 0 and "write yourself" in row["message"]


FOLDS_FOR_ONNX = """
GRAPH = '''graph(%x : Double(1, 3, 9, 9), %w : Tensor, %c : Tensor, %a : Tensor, %b : Tensor,
      %m : Tensor, %v : Tensor):
  %y : Tensor = onnx::Conv(%x, %w, %c)
  %z : Tensor = onnx::BatchNormalization[epsilon=0.](%y, %a, %b, %m, %v)
  return (%z)'''
def fold_linear(weight, bias, a, b):
    zero = torch.zeros_like(a)
    values = {"w": weight[:, :, None, None].clone(), "c": zero if bias is None else bias.clone()}
    values |= {"a": a.clone(), "b": b.clone(), "m": zero, "v": torch.ones_like(a)}
    graph = torch._C.parse_ir(GRAPH)
    for given in list(graph.inputs())[1:]:
        given.setType(torch._C.TensorType.create_from_tensor(values[given.debugName()]))
    found = torch._C._jit_pass_onnx_eval_peephole(graph, dict(values))
    new, shift = [found[name] for name in found if name not in values][:2]
    return new[:, :, 0, 0], shift
"""


def test_a_class_of_the_students_hides_no_change_of_the_given_model(a1, skeleton, sheets):
    solved = answers.solution_cells(a1)
    names = ("bn_affine", "fold_conv", "fold_model")
    code = "\n".join(solved[f"{name}_solution"] for name in names)
    code = code.replace("return nn.Sequential(*layers)", MENDS_LATE)
    (row,) = rows_of(a1, skeleton, sheets, "fold_model", [code])
    assert row["points"] == 0 and "given model" in row["message"]


MENDS_LATE = """
    given = list(model._modules.items())
    model._modules.clear()
    class Result(nn.Sequential):
        def __iter__(self):
            yield from list(super().__iter__())
            model._modules.update(given)
    return Result(*layers)
"""


def test_what_an_answer_did_to_its_input_is_hidden_by_no_change_of_the_driver(a1, skeleton, sheets):
    solved = answers.solution_cells(a1)
    code = "\n".join(
        solved[f"{name}_solution"] for name in ("bn_affine", "fold_conv", "fold_model")
    )
    assert code.count("return nn.Sequential(*layers)") == 1
    code = code.replace(
        "return nn.Seq", "[p.data.zero_() for p in model.parameters()]; return nn.Seq"
    )
    (row,) = rows_of(a1, skeleton, sheets, "fold_model", [HIDES + code])
    assert row["points"] == 0 and "given model" in row["message"]


HIDES = """
import copy, driver
real, made, first = driver.describe, driver.build, []
def build(*given, **more):
    model = made(*given, **more)
    first.append((model, real(copy.deepcopy(model))))
    return model
def describe(model):
    return next((said for one, said in first if one is model), None) or real(model)
vars(driver).update(build=build, describe=describe)
"""


@pytest.mark.parametrize("name", ["pack_bits", "unpack_bits"])
def test_what_numpys_function_wraps_is_taken_away_too(packing, name):
    exercise, skeleton, sheets = packing
    (row,) = rows_of(exercise, skeleton, sheets, name, [WRAPPED])
    assert row["points"] == 0 and "__wrapped__" in row["message"]


WRAPPED = """
import numpy as np
def pack_bits(codes, bits):
    stream = (codes[:, None] >> torch.arange(bits) & 1).to(torch.uint8).flatten().numpy()
    return torch.from_numpy(np.packbits.__wrapped__(stream, None, "little"))
def unpack_bits(packed, bits, count):
    stream = np.unpackbits.__wrapped__(packed.numpy(), None, count * bits, "little")
    values = torch.from_numpy(stream).long().reshape(count, bits)
    return (values << torch.arange(bits)).sum(1)
"""


@pytest.mark.parametrize("inner", ["_multiarray_umath.packbits", "listed"])
def test_the_function_in_c_behind_numpys_is_taken_away_too(packing, inner):
    exercise, skeleton, sheets = packing
    code = PACKS.replace("_multiarray_umath.packbits", inner)
    (row,) = rows_of(exercise, skeleton, sheets, "pack_bits", [code])
    assert row["points"] == 0
    if inner != "listed":
        assert row["refused"] and "packbits" in row["message"]


PACKS = """
def pack_bits(codes, bits):
    from numpy._core import _multiarray_umath, overrides
    named = {one.__name__: one for one in overrides.ARRAY_FUNCTIONS}
    listed = getattr(named.get("packbits"), "_implementation", None)
    stream = (codes[:, None] >> torch.arange(bits) & 1).to(torch.uint8).flatten().numpy()
    return torch.from_numpy(_multiarray_umath.packbits(stream, None, "little"))
"""


@pytest.fixture(scope="module")
def packing(released):
    exercise = course.load("a5")
    items = exercise.assignment.items[:2]
    alone = replace(exercise, assignment=replace(exercise.assignment, items=items))
    return exercise, skeleton_of(released, "a5"), judge.prepare(alone, "secret")


@pytest.mark.parametrize("item", ["update_statistics", "bn_train", "fold_conv"])
def test_right_answers_lose_nothing_by_it(a1, skeleton, sheets, item):
    right = next(a.code for a in answers.read(a1) if a.item == item and a.right)
    (row,) = rows_of(a1, skeleton, sheets, item, [right])
    assert row["points"] == row["of"], row["message"]


REACH = """
import ctypes, gc, inspect, os, pathlib, sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec
import numpy, torch
from guard import functions_of
from inside.reach import keep_out_of_reach

def load(name, file):
    ExtensionFileLoader(name, file).create_module(ModuleSpec(name, None, origin=file))

keep_out_of_reach(("torch.nn.functional.batch_norm",), set())
attempts = {
    "objects": gc.get_objects,
    "referrers": lambda: gc.get_referrers(torch),
    "symbols": lambda: ctypes.pythonapi.PyRun_SimpleString,
    "source": lambda: open(torch.__file__),
    "by a path": lambda: os.open(pathlib.Path(torch.__file__), os.O_RDONLY),
    "by inspect": lambda: inspect.getsourcelines(torch.nn.functional.fold)[0][0] + 1,
    "by import": lambda: torch.__loader__.get_data(torch.__file__),
    "own machine code": lambda: load("own", sys.argv[1]),
    "machine code again": lambda: load(
        "_multiarray_umath", numpy._core._multiarray_umath.__file__
    ),
    "a library of one's own": lambda: ctypes.CDLL(sys.argv[1]),
    "cffi": lambda: __import__("_cffi_backend"),
    "another library": lambda: __import__("importlib").import_module("onnx"),
}
for name, attempt in attempts.items():
    try:
        attempt()
    except OSError as problem:  # an invalid file is another error than a refused one
        if isinstance(problem, PermissionError) or "source code" in str(problem):
            print(name, "refused")
print(len(attempts))
sys.addaudithook(lambda *event: print("a hook of one's own sees all"))  # nothing comes of it
import torch.utils.mobile_optimizer  # modules can still be imported
import torchvision  # which has torch read code
import torch._dynamo
torch.func.jacrev(torch.sin)(torch.ones(1))
torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])
print(len(functions_of(("torch.*batch_norm*",))) > 0, open(sys.argv[1]).read())
"""


def test_objects_symbols_and_sources_are_out_of_reach_for_good(tmp_path):
    own = tmp_path / "own.py"
    own.write_text("my own")
    folder = Path(judge.__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", REACH, own], cwd=folder, capture_output=True, text=True, check=True
    )
    *refused, attempts, rest = done.stdout.splitlines()
    assert len(refused) == int(attempts) == 12, refused
    assert rest == "True my own"


LAZY = """
import sys, torch
from guard import Guard
with Guard(sys.argv[1:]) as guard:
    torch.func.jacrev(torch.sin)(torch.ones(1))  # for the first time, so it imports
    try:
        exec("import torch.nn.utils.fusion as f; f.fuse_linear_bn_weights(*[None] * 7)")
    except Exception as problem:
        print(type(problem).__name__, guard.found)
"""


def test_what_torch_imports_for_itself_is_no_call_of_the_students(a1, tmp_path):
    script = tmp_path / "lazy.py"
    script.write_text(LAZY)
    command = [sys.executable, script, "torch._inductor.*", *a1.assignment.items[3].forbidden]
    env = os.environ | {"PYTHONPATH": str(Path(judge.__file__).parent)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Forbidden line 7"), done.stdout


PAST = """
import sys, torch
from operator import attrgetter
from guard import PAST_KERNELS, take_away
olds = [attrgetter(f"_C.{name}")(torch) for name in PAST_KERNELS]
take_away(("torch.*batch_norm*",))
modules = [module for name, module in sys.modules.items() if name.startswith("torch")]
values = [value for module in modules for value in vars(module).values()]
print(sum(value is old for value in values for old in olds))
library = torch._C._dispatch_library("IMPL", "aten", "CPU", "", 0)
library.impl("relu", "CPU", lambda x: "replaced", False)
library.reset()  # which would bring back what was replaced
try:
    torch.relu(torch.ones(1))
except Exception:
    print("still replaced")
"""


def test_no_way_past_the_kernels_is_named_anywhere_and_none_comes_back():
    folder, command = Path(judge.__file__).parent, [sys.executable, "-c", PAST]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["0", "still replaced"]
