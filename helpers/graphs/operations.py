"""What the operations of a graph are, said once: how each is written in canonical form, and what is
known of it.

The same operation has many spellings: `nn.ReLU(inplace=True)`, `F.relu`, `torch.relu_`, `x.relu()`,
`aten.relu`. They agree in their bare name and in the order of their arguments, so a table by name
is enough. The canonical spelling calls one function, with the input first, required arguments by
position, and whatever differs from the default by name. Layers with parameters are an exception:
their canonical spelling is the module (layers.py).
"""

import operator
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import fx, nn

REQUIRED = object()


class Operation(NamedTuple):
    """One operation."""

    function: Any  # what the canonical node calls
    modules: tuple[
        type[nn.Module], ...
    ] = ()  # do the same; their settings are attributes with the arguments' names
    arguments: dict[str, Any] = {}  # after the input, with their defaults, in order  # noqa: RUF012  (never written)


IN_PLACE, ZEROS = {"inplace": False}, {"mode": "constant", "value": None}
OPERATIONS = {
    "relu": Operation(F.relu, (nn.ReLU,), IN_PLACE),
    "relu6": Operation(F.relu6, (nn.ReLU6,), IN_PLACE),
    "hardswish": Operation(F.hardswish, (nn.Hardswish,), IN_PLACE),
    "hardsigmoid": Operation(F.hardsigmoid, (nn.Hardsigmoid,), IN_PLACE),
    "silu": Operation(F.silu, (nn.SiLU,), IN_PLACE),
    "hardtanh": Operation(
        F.hardtanh, (nn.Hardtanh,), {"min_val": -1.0, "max_val": 1.0, **IN_PLACE}
    ),
    "leaky_relu": Operation(F.leaky_relu, (nn.LeakyReLU,), {"negative_slope": 0.01, **IN_PLACE}),
    "gelu": Operation(F.gelu, (nn.GELU,), {"approximate": "none"}),
    "sigmoid": Operation(torch.sigmoid, (nn.Sigmoid,)),
    "tanh": Operation(torch.tanh, (nn.Tanh,)),
    "dropout": Operation(F.dropout, (nn.Dropout,), {"p": 0.5, "training": True, **IN_PLACE}),
    "flatten": Operation(torch.flatten, (nn.Flatten,), {"start_dim": 0, "end_dim": -1}),
    "matmul": Operation(torch.matmul, (), {"other": REQUIRED}),
    "pad": Operation(F.pad, (nn.ZeroPad1d, nn.ZeroPad2d, nn.ZeroPad3d), {"pad": REQUIRED, **ZEROS}),
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
        _module = getattr(nn, f"{_name.title().replace('_', '')}{_d}d")
        OPERATIONS[f"{_name}{_d}d"] = Operation(getattr(F, f"{_name}{_d}d"), (_module,), _arguments)
MODULES = {module: name for name, known in OPERATIONS.items() for module in known.modules}
# Other names of the same thing, of the same argument, and of an argument where it is a module's
# attribute.
SYNONYMS = {"mm": "matmul", "bmm": "matmul"}
ARGUMENT_SYNONYMS = {"train": "training", "mat2": "other", "self": "input"}
ATTRIBUTES = {"pad": "padding"}


def by_name(node: fx.Node, names: Iterable[str]) -> dict[str, Any]:
    """The arguments of a call by name, of which `names` has the order."""
    given = {ARGUMENT_SYNONYMS.get(key, key): value for key, value in node.kwargs.items()}
    return dict(zip(names, node.args, strict=False)) | given


# "rsub" is "sub" with its operands swapped. In-place names end in "_" or begin with "i".
ARITHMETIC = {"add": operator.add, "sub": operator.sub, "rsub": operator.sub, "mul": operator.mul}
ARITHMETIC |= {"div": operator.truediv, "truediv": operator.truediv}
ARITHMETIC_IN_PLACE = {form.format(name): name for name in ARITHMETIC for form in ("{}_", "i{}")}

CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
FOLDABLE = (*CONVS, *TRANSPOSED, *NORMS, nn.Linear)
# The arguments of layers after the input, in order. torch.nn.functional and ATen agree on them.
LAYERS = {
    **{
        f"conv{d}d": ("weight", "bias", "stride", "padding", "dilation", "groups")
        for d in (1, 2, 3)
    },
    **dict.fromkeys(
        [f"conv_transpose{d}d" for d in (1, 2, 3)],
        ("weight", "bias", "stride", "padding", "output_padding", "groups", "dilation"),
    ),
    "convolution": (
        "weight",
        "bias",
        "stride",
        "padding",
        "dilation",
        "transposed",
        "output_padding",
        "groups",
    ),
    "linear": ("weight", "bias"),
    # But for this one, of which ATen has the order (weight, bias, running_mean, running_var, ...,
    # cudnn_enabled).
    "batch_norm": ("running_mean", "running_var", "weight", "bias", "training", "momentum", "eps"),
}

# The result never shares storage with an operand.
_OTHERS = """neg pow abs exp sqrt rsqrt elu softmax addmm cat stack mean sum layer_norm group_norm zeros ones full
    zeros_like ones_like clone rand randn mm bmm"""
FRESH = frozenset((*LAYERS, *ARITHMETIC, *OPERATIONS, *_OTHERS.split())) - {
    "dropout",
    "flatten",
    "pad",
}
FRESH_MODULES = frozenset(
    (*FOLDABLE, nn.LayerNorm, nn.GroupNorm, *(m for m, name in MODULES.items() if name in FRESH))
)

# These return something of their first input's shape and dtype (the sum and the product when both
# inputs agree). Asking torch gives the same answer, but its rules for batch norm and ReLU6 take 20
# times as long as that for a convolution.
KEEPS_SHAPE = frozenset(
    (
        *NORMS,
        nn.ReLU,
        nn.ReLU6,
        nn.Hardswish,
        nn.SiLU,
        nn.Hardsigmoid,
        nn.Identity,
        nn.Dropout,
        torch.relu,
    )
    + (F.relu, F.relu6, F.hardswish, F.silu, operator.add, operator.mul)
)
