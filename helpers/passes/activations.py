"""The activations that a fused kernel can apply, and how each of them is written in a graph.

A canonical graph says ReLU6 as F.relu6(x), F.hardtanh(x, 0, 6) or x.clamp(0, 6). `read` brings all of them to one name
and its numbers: ("hardtanh", (0.0, 6.0)).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import fx

aten = torch.ops.aten


class Activation(NamedTuple):
    """A name from `RULES`, and its numbers: the limits of a hardtanh, the slope of a leaky ReLU."""

    name: str = "none"
    scalars: tuple[float, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{number:g}' for number in self.scalars)})" if self.scalars else self.name


NO_ACTIVATION = Activation()


@dataclass(frozen=True)
class Rule:
    """How one activation is computed: a new tensor, in place, or under this name inside a oneDNN kernel."""

    plain: Callable[..., torch.Tensor]
    in_place: Callable[..., torch.Tensor]
    onednn: str
    algorithm: str | None = None


RULES = {
    "none": Rule(lambda y: y, lambda y: y, "none"),
    "relu": Rule(aten.relu.default, aten.relu_.default, "relu"),
    "hardtanh": Rule(aten.hardtanh.default, aten.hardtanh_.default, "hardtanh"),
    "leaky_relu": Rule(aten.leaky_relu.default, aten.leaky_relu_.default, "leaky_relu"),
    "hardswish": Rule(aten.hardswish.default, aten.hardswish_.default, "hardswish"),
    "silu": Rule(aten.silu.default, aten.silu_.default, "swish"),
    "sigmoid": Rule(aten.sigmoid.default, aten.sigmoid_.default, "sigmoid"),
    "tanh": Rule(aten.tanh.default, aten.tanh_.default, "tanh"),
    "gelu": Rule(aten.gelu.default, aten.gelu_.default, "gelu", "none"),
}


class NotFusable(ValueError):
    """An activation that no fused kernel knows with these arguments."""


def _named(name: str, *scalars: float) -> Callable[..., Activation]:
    return lambda inplace=False: Activation(name, scalars)


def _hardtanh(min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Activation:
    return Activation("hardtanh", (_number(min_val), _number(max_val)))


def _leaky_relu(negative_slope: float = 0.01, inplace: bool = False) -> Activation:
    return Activation("leaky_relu", (_number(negative_slope),))


def _gelu(approximate: str = "none") -> Activation:
    if approximate != "none":
        raise NotFusable(f"gelu with approximate={approximate!r} is not the gelu that the kernels compute")
    return Activation("gelu")


def _clamp(min: Any = None, max: Any = None) -> Activation:
    if max is None and min == 0:
        return Activation("relu")
    if min is None or max is None:
        raise NotFusable("clamp with one limit is no activation that the kernels know, except min=0")
    return Activation("hardtanh", (_number(min), _number(max)))


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise NotFusable(f"{value} is not a number that is known beforehand")
    return float(value)


CLAMPS = (torch.clamp, torch.clip, "clamp", "clamp_", "clip", "clip_", aten.clamp.default, aten.clamp_.default)
# What a node may call, and who reads its arguments (those behind the input).
READERS: dict[Any, Callable[..., Activation]] = {
    F.relu: _named("relu"),
    F.relu6: _named("hardtanh", 0.0, 6.0),
    F.hardtanh: _hardtanh,
    F.leaky_relu: _leaky_relu,
    F.hardswish: _named("hardswish"),
    F.silu: _named("silu"),
    F.gelu: _gelu,
    torch.sigmoid: _named("sigmoid"),
    torch.tanh: _named("tanh"),
    **dict.fromkeys(CLAMPS, _clamp),
}


def read(node: fx.Node) -> Activation:
    """What an activation node computes.

    Args:
        node: a node that calls one of `READERS`.

    Raises:
        NotFusable: the arguments ask for something that the kernels do not compute.
    """
    return READERS[node.target](*node.args[1:], **node.kwargs)
