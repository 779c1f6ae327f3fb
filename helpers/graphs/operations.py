"""The vocabulary of operations, in one place: the name of each, how its canonical form is written,
and what is known of it.

The same operation has many spellings: `nn.ReLU(inplace=True)`, `F.relu`, `torch.relu_`, `x.relu()`,
`aten.relu`. `operation(node)` is "relu" for all of them, and every table goes by these names.

The canonical spelling calls one function, with the input first, required arguments by position, and
whatever differs from the default by name. Layers with parameters are an exception: their canonical
spelling is the module (layers.py).

Five names of what a node calls, for a call of an `nn.ReLU()` at the path "act" and for `x.add_(y)`:

    operation(node)         "relu"          "add"       its name in all tables
    operation_name(called)  "relu"          "add"       the same, from what `callee` gives
    callee(node)            nn.ReLU         "add_"      a class, a function or a method's name
    bare_name(called)                       "add_"      as spelt where it is defined
    target_name(target)     "act"           "add_"      to be read by people
"""

import functools
import operator
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import fx, nn

_OPERATORS = [
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "and",
    "or",
    "xor",
    "lshift",
    "rshift",
]
# `x += y` writes into x if it is a tensor (iadd), and into nothing if it is a number (add).
AUGMENTED = {getattr(operator, f"i{name}"): getattr(operator, f"__{name}__") for name in _OPERATORS}
WRITING = {*AUGMENTED, operator.setitem, operator.delitem}

CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
FOLDABLE = (*CONVS, *TRANSPOSED, *NORMS, nn.Linear)

_OVERLOADS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
# The name of a class in lower case -> the name of its function: leakyrelu -> leaky_relu.
_FUNCTIONS = {name.replace("_", ""): name for name in dir(torch) + dir(F) if name[-1] != "_"}
_FUNCTIONS |= {norm.__name__.lower(): "batch_norm" for norm in NORMS}
_AUGMENTED_NAMES = {f"i{name}": name for name in _OPERATORS}


def operation(node: fx.Node) -> str:
    """The one name of what a node does: "add" for `x + y`, `x += y`, `torch.add`, `x.add_`; "size"
    for `x.size()` and "shape" for `x.shape`; "placeholder", "get_attr" and "output" for what calls
    nothing.

    A class or function that is not torch's has its module in its name.
    """
    called = callee(node)
    if called is None:
        return node.op
    return node.args[1] if called is getattr else operation_name(called)


def callee(node: fx.Node) -> Any:
    """What a node calls: a function, the name of a method or the class of a module; None if it
    calls nothing.
    """
    if node.op == "call_module":
        return type(called_module(node))
    return node.target if node.op in ("call_function", "call_method") else None


def called_module(node: fx.Node) -> nn.Module | None:
    """The module that a node calls; None if it calls none."""
    return attribute(node.graph.owning_module, node.target) if node.op == "call_module" else None


@functools.cache
def operation_name(called: Any) -> str:
    """The name of an operation, from what is called: a class, a function or a method's name."""
    if isinstance(called, type):
        name = called.__name__.lower()
        of_torch = called.__module__.startswith("torch.nn")
        return _FUNCTIONS.get(name, name) if of_torch else f"{called.__module__}.{called.__name__}"
    name = bare_name(called)
    name = name[2:-2] if name.startswith("__") else name.rstrip("_")
    if isinstance(called, str) or is_torch_function(called):
        return _AUGMENTED_NAMES.get(name, name)
    return f"{called.__module__}.{name}"


@functools.cache
def bare_name(called: Any) -> str:
    """What a function or method is called where it is defined: "add_" for `x.add_(y)` and for
    `aten.add_.Tensor`. An operator outside of aten only gets the name of its library, since no
    table lists one.
    """
    if isinstance(called, _OVERLOADS):
        return str(called).removeprefix("aten.").split(".")[0]
    name = target_name(called)
    return name.rstrip("_") if hasattr(operator, name) else name  # operator.and_ writes nothing


@functools.cache
def is_in_place(called: Any) -> bool:
    """Whether a function or method writes into its first argument, by its name: `add_`, `iadd`."""
    name = bare_name(called)
    # What a graph does to a tensor that forward makes, such as `zeros[0] = y`, is a call by name.
    writes = called in WRITING or called in {f"__{one.__name__}__" for one in WRITING}
    return writes or (name.endswith("_") and not name.endswith("__"))


@functools.cache
def is_torch_function(function: Any) -> bool:
    """Whether a function is torch's or an operator of Python."""
    if isinstance(function, torch._ops.HigherOrderOperator):
        return False  # it runs a subgraph, which may do anything
    if isinstance(function, _OVERLOADS):
        return str(function).startswith(("aten.", "prims."))
    origin = (getattr(function, "__module__", None) or "").split(".")[0]
    return origin in ("torch", "_operator", "math") or function is getattr


def perform(called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function or module; for a string, the method of that name of the first argument."""
    if isinstance(called, str):
        return getattr(args[0], called)(*args[1:], **kwargs)
    return called(*args, **kwargs)


def target_name(target: Any) -> str:
    """A target in one word, to be read: "relu" for `F.relu`, "conv1" for the module `conv1`."""
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))


def attribute(root: nn.Module, path: str) -> Any:
    """The module or tensor at a dotted path; the network itself at the empty path."""
    return operator.attrgetter(path)(root) if path else root


REQUIRED = object()  # in place of a default


class Operation(NamedTuple):
    """The canonical form of an operation.

    Attributes:
        function: what the node calls.
        arguments: those after the input, in order, with their defaults. A module has attributes of
            the same names, or of those in ATTRIBUTES.
    """

    function: Any
    arguments: dict[str, Any] = {}  # noqa: RUF012  (never written)


_INPLACE = {"inplace": False}
OPERATIONS = {
    "relu": Operation(F.relu, _INPLACE),
    "relu6": Operation(F.relu6, _INPLACE),
    "hardswish": Operation(F.hardswish, _INPLACE),
    "hardsigmoid": Operation(F.hardsigmoid, _INPLACE),
    "silu": Operation(F.silu, _INPLACE),
    "hardtanh": Operation(F.hardtanh, {"min_val": -1.0, "max_val": 1.0, **_INPLACE}),
    "leaky_relu": Operation(F.leaky_relu, {"negative_slope": 0.01, **_INPLACE}),
    "gelu": Operation(F.gelu, {"approximate": "none"}),
    "sigmoid": Operation(torch.sigmoid),
    "tanh": Operation(torch.tanh),
    "dropout": Operation(F.dropout, {"p": 0.5, "training": True, **_INPLACE}),
    "flatten": Operation(torch.flatten, {"start_dim": 0, "end_dim": -1}),
    "matmul": Operation(torch.matmul, {"other": REQUIRED}),
    "pad": Operation(F.pad, {"pad": REQUIRED, "mode": "constant", "value": None}),
}
_WINDOW = {"kernel_size": REQUIRED, "stride": None, "padding": 0}
_AVERAGE = {**_WINDOW, "ceil_mode": False, "count_include_pad": True}
for _d in (1, 2, 3):
    _pools = {
        "avg_pool": _AVERAGE if _d == 1 else {**_AVERAGE, "divisor_override": None},
        "max_pool": {**_WINDOW, "dilation": 1, "ceil_mode": False, "return_indices": False},
        "adaptive_avg_pool": {"output_size": REQUIRED},
    }
    for _name, _arguments in _pools.items():
        OPERATIONS[f"{_name}{_d}d"] = Operation(getattr(F, f"{_name}{_d}d"), _arguments)
# Other names of operations, of arguments, and of arguments that are attributes of a module.
SYNONYMS = {"mm": "matmul", "bmm": "matmul", **{f"zeropad{d}d": "pad" for d in (1, 2, 3)}}
ARGUMENT_SYNONYMS = {"train": "training", "mat2": "other", "self": "input"}
ATTRIBUTES = {"pad": "padding"}


def by_name(node: fx.Node, names: Iterable[str]) -> dict[str, Any]:
    """The arguments of a call by name; `names` are those of the positional ones, in order."""
    keywords = {ARGUMENT_SYNONYMS.get(key, key): value for key, value in node.kwargs.items()}
    return dict(zip(names, node.args, strict=False)) | keywords


# "rsub" is "sub" with its operands swapped.
ARITHMETIC = {"add": operator.add, "sub": operator.sub, "rsub": operator.sub, "mul": operator.mul}
ARITHMETIC |= {"div": operator.truediv, "truediv": operator.truediv}

# The arguments of layers after the input, in order. torch.nn.functional and ATen have the same
# order, except for batch_norm: ATen's begins with weight, bias, running_mean, running_var, and ends
# with cudnn_enabled.
_CONV = ("weight", "bias", "stride", "padding", "dilation")
_TRANSPOSED = ("weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")
LAYERS = {
    **{f"conv{d}d": (*_CONV, "groups") for d in (1, 2, 3)},
    **{f"conv_transpose{d}d": _TRANSPOSED for d in (1, 2, 3)},
    "convolution": (*_CONV, "transposed", "output_padding", "groups"),
    "linear": ("weight", "bias"),
    "batch_norm": ("running_mean", "running_var", "weight", "bias", "training", "momentum", "eps"),
}

_MORE_FRESH = """neg pow abs exp sqrt rsqrt elu softmax addmm cat stack mean sum layer_norm
    group_norm zeros ones full zeros_like ones_like clone rand randn mm bmm"""
_MAY_SHARE = {"dropout", "flatten", "pad"}
# Operations whose result never shares storage with an operand.
FRESH = frozenset((*LAYERS, *ARITHMETIC, *OPERATIONS, *_MORE_FRESH.split())) - _MAY_SHARE
# Operations whose result has the shape and dtype of the operands, if these are floats and agree.
# torch would say the same, but takes 20 times as long for relu6 as for a convolution.
KEEPS_SHAPE = frozenset(
    [
        "batch_norm",
        "layer_norm",
        "relu",
        "relu6",
        "hardswish",
        "silu",
        "hardsigmoid",
        "gelu",
        "sigmoid",
        "identity",
        "dropout",
        "add",
        "mul",
    ]
)
