"""The canonical form of each operation, as data.

The same operation has many spellings: `nn.ReLU(inplace=True)`, `F.relu`, `torch.relu_`, `x.relu()`, `aten.relu`.
They agree in their bare name and in the order of their arguments, so a table by name is enough. The canonical spelling
calls one function, with the input first, required arguments by position, and whatever differs from the default by name.
"""

import operator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

REQUIRED = object()


@dataclass(frozen=True)
class Form:
    """How one operation is written.

    Attributes:
        function: what the canonical node calls.
        arguments: the arguments after the input with their defaults, in order.
    """

    function: Any
    arguments: dict[str, Any]


def _pool(function: Any) -> Form:
    defaults = {"stride": None, "padding": 0, "ceil_mode": False, "count_include_pad": True}
    return Form(function, {"kernel_size": REQUIRED, **defaults})


def _max_pool(function: Any) -> Form:
    defaults = {"stride": None, "padding": 0, "dilation": 1, "ceil_mode": False, "return_indices": False}
    return Form(function, {"kernel_size": REQUIRED, **defaults})


IN_PLACE = {"inplace": False}
FORMS = {
    "relu": Form(F.relu, IN_PLACE),
    "relu6": Form(F.relu6, IN_PLACE),
    "hardswish": Form(F.hardswish, IN_PLACE),
    "hardsigmoid": Form(F.hardsigmoid, IN_PLACE),
    "silu": Form(F.silu, IN_PLACE),
    "hardtanh": Form(F.hardtanh, {"min_val": -1.0, "max_val": 1.0, **IN_PLACE}),
    "leaky_relu": Form(F.leaky_relu, {"negative_slope": 0.01, **IN_PLACE}),
    "gelu": Form(F.gelu, {"approximate": "none"}),
    "sigmoid": Form(torch.sigmoid, {}),
    "tanh": Form(torch.tanh, {}),
    "dropout": Form(F.dropout, {"p": 0.5, "training": True, **IN_PLACE}),
    "flatten": Form(torch.flatten, {"start_dim": 0, "end_dim": -1}),
    "matmul": Form(torch.matmul, {"other": REQUIRED}),
    "avg_pool1d": _pool(F.avg_pool1d),
    "avg_pool2d": Form(F.avg_pool2d, {**_pool(None).arguments, "divisor_override": None}),
    "avg_pool3d": Form(F.avg_pool3d, {**_pool(None).arguments, "divisor_override": None}),
    "max_pool1d": _max_pool(F.max_pool1d),
    "max_pool2d": _max_pool(F.max_pool2d),
    "max_pool3d": _max_pool(F.max_pool3d),
    "adaptive_avg_pool1d": Form(F.adaptive_avg_pool1d, {"output_size": REQUIRED}),
    "adaptive_avg_pool2d": Form(F.adaptive_avg_pool2d, {"output_size": REQUIRED}),
    "adaptive_avg_pool3d": Form(F.adaptive_avg_pool3d, {"output_size": REQUIRED}),
    "pad": Form(F.pad, {"pad": REQUIRED, "mode": "constant", "value": None}),
}
# Other names of the same thing, and other names of the same argument.
SYNONYMS = {"mm": "matmul", "bmm": "matmul", "constant_pad_nd": "pad"}
ARGUMENT_SYNONYMS = {"train": "training", "mat2": "other"}

# A module's settings are attributes under the names of the form's arguments, but for these.
ATTRIBUTES = {"pad": "padding"}
MODULES = {
    nn.ReLU: "relu",
    nn.ReLU6: "relu6",
    nn.Hardswish: "hardswish",
    nn.Hardsigmoid: "hardsigmoid",
    nn.SiLU: "silu",
    nn.Hardtanh: "hardtanh",
    nn.LeakyReLU: "leaky_relu",
    nn.GELU: "gelu",
    nn.Sigmoid: "sigmoid",
    nn.Tanh: "tanh",
    nn.Dropout: "dropout",
    nn.Flatten: "flatten",
    nn.AvgPool1d: "avg_pool1d",
    nn.AvgPool2d: "avg_pool2d",
    nn.AvgPool3d: "avg_pool3d",
    nn.MaxPool1d: "max_pool1d",
    nn.MaxPool2d: "max_pool2d",
    nn.MaxPool3d: "max_pool3d",
    nn.AdaptiveAvgPool1d: "adaptive_avg_pool1d",
    nn.AdaptiveAvgPool2d: "adaptive_avg_pool2d",
    nn.AdaptiveAvgPool3d: "adaptive_avg_pool3d",
    nn.ZeroPad1d: "pad",
    nn.ZeroPad2d: "pad",
    nn.ZeroPad3d: "pad",
}

# name -> operator, and whether the operands are swapped. In-place names end in "_" or begin with "i".
ARITHMETIC = {
    "add": (operator.add, False),
    "sub": (operator.sub, False),
    "rsub": (operator.sub, True),
    "mul": (operator.mul, False),
    "div": (operator.truediv, False),
    "truediv": (operator.truediv, False),
}
ARITHMETIC_IN_PLACE = {
    **{f"{name}_": name for name in ("add", "sub", "mul", "div")},
    **{f"i{name}": name for name in ("add", "sub", "mul", "truediv")},
}
