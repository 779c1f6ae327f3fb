"""Which graph nodes have an integer form: one table from a layer type or function to the operation it is.

A node's arguments are gathered by name first, from the module's attributes or from the call, so that `nn.ReLU6`,
`F.relu6(x)` and `torch.clamp(x, 0, 6)` are read by the same few lines.
"""

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from helpers.quantization.plan import Op

__all__ = ["operation"]

Arguments = dict[str, Any]


def operation(node: fx.Node, graph_module: fx.GraphModule) -> Op | None:
    """The operation that a node is, without names; None when it has no integer form."""
    key = type(graph_module.get_submodule(node.target)) if node.op == "call_module" else node.target
    if key not in _TABLE:
        return None
    read, names = _TABLE[key]
    if node.op == "call_module":
        module = graph_module.get_submodule(node.target)
        arguments = {name: getattr(module, name) for name in names}
        if getattr(module, "padding_mode", "zeros") != "zeros":
            return None
    else:
        bound = dict(zip(("input", *names), node.args, strict=False)) | dict(node.kwargs)
        arguments = {name: _constant(bound[name], graph_module) for name in names if name in bound}
    if any(isinstance(value, fx.Node) and name != "other" for name, value in arguments.items()):
        return None  # an argument is computed by the network itself
    return read(node, arguments)


def _constant(argument: Any, graph_module: fx.GraphModule) -> Any:
    """The tensor behind a get_attr node; anything else as it is."""
    if not isinstance(argument, fx.Node) or argument.op != "get_attr":
        return argument
    value: Any = graph_module
    for part in str(argument.target).split("."):
        value = getattr(value, part)
    return value


def _shapes(node: fx.Node) -> tuple[torch.Size, torch.Size]:
    """Shapes of the node's first input and of its output, batch included."""
    return node.all_input_nodes[0].meta["val"].shape, node.meta["val"].shape


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[-1])


def _weighted(kind: str, a: Arguments, attributes: Arguments) -> Op | None:
    weight, bias = a.get("weight"), a.get("bias")
    if not isinstance(weight, torch.Tensor):
        return None
    bias = weight.new_zeros(len(weight)) if bias is None else bias
    return Op("", kind, (), weight.detach().clone(), bias.detach().clone(), attributes=attributes)


def _conv(node: fx.Node, a: Arguments) -> Op | None:
    if isinstance(a.get("padding"), str) or node.meta["val"].ndim != 4:
        return None
    attributes = {name: _pair(a.get(name, start)) for name, start in (("stride", 1), ("padding", 0), ("dilation", 1))}
    return _weighted("conv", a, {**attributes, "groups": a.get("groups", 1)})


def _linear(node: fx.Node, a: Arguments) -> Op | None:
    return _weighted("linear", a, {}) if node.meta["val"].ndim == 2 else None


def _clamp(low: str | float | None, high: str | float | None) -> Callable[[fx.Node, Arguments], Op | None]:
    """A clamp whose bounds are numbers, or the names of the arguments that hold them."""

    def read(node: fx.Node, a: Arguments) -> Op | None:
        bounds = tuple(a.get(bound) if isinstance(bound, str) else bound for bound in (low, high))
        if any(isinstance(bound, torch.Tensor) for bound in bounds):
            return None
        return Op("", "clamp", (), clamp=tuple(None if bound is None else float(bound) for bound in bounds))

    return read


def _add(node: fx.Node, a: Arguments) -> Op | None:
    sources = [value for value in (*node.args, *node.kwargs.values()) if isinstance(value, fx.Node)]
    if len(sources) != 2 or len(node.args) + len(node.kwargs) != 2 or any(s.op == "get_attr" for s in sources):
        return None
    alike = sources[0].meta["val"].shape == sources[1].meta["val"].shape
    return Op("", "add", ()) if alike else None


def _average_pool(node: fx.Node, a: Arguments) -> Op | None:
    kernel = _pair(a["kernel_size"])
    stride = kernel if a.get("stride") is None else _pair(a["stride"])
    plain = _pair(a.get("padding", 0)) == (0, 0) and not a.get("ceil_mode") and a.get("divisor_override") is None
    return Op("", "average_pool", (), attributes={"kernel": kernel, "stride": stride}) if plain else None


def _adaptive_pool(node: fx.Node, a: Arguments) -> Op | None:
    (*_, height, width), (*_, rows, columns) = _shapes(node)
    if height % rows or width % columns:
        return None
    kernel = (height // rows, width // columns)
    return Op("", "average_pool", (), attributes={"kernel": kernel, "stride": kernel})


def _mean(node: fx.Node, a: Arguments) -> Op | None:
    before, _ = _shapes(node)
    dims = a.get("dim")
    if len(before) != 4 or isinstance(dims, int) or dims is None or {d % 4 for d in dims} != {2, 3} or a.get("dtype"):
        return None
    return Op("", "average_pool", (), attributes={"kernel": tuple(before[2:]), "stride": tuple(before[2:])})


def _max_pool(node: fx.Node, a: Arguments) -> Op | None:
    kernel = _pair(a["kernel_size"])
    if a.get("ceil_mode") or a.get("return_indices"):
        return None
    stride = kernel if a.get("stride") is None else _pair(a["stride"])
    rest = {"padding": _pair(a.get("padding", 0)), "dilation": _pair(a.get("dilation", 1))}
    return Op("", "max_pool", (), attributes={"kernel": kernel, "stride": stride, **rest})


def _reshape(node: fx.Node, a: Arguments) -> Op | None:
    before, after = _shapes(node)
    return Op("", "reshape", ()) if before[0] == after[0] else None


_CONV = ("weight", "bias", "stride", "padding", "dilation", "groups")
_AVERAGE = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")
_MAX = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
_RELU, _RELU6 = _clamp(0.0, None), _clamp(0.0, 6.0)

_TABLE: dict[Any, tuple[Callable[[fx.Node, Arguments], Op | None], tuple[str, ...]]] = {
    **dict.fromkeys((nn.Conv2d, F.conv2d, torch.conv2d), (_conv, _CONV)),
    **dict.fromkeys((nn.Linear, F.linear), (_linear, ("weight", "bias"))),
    **dict.fromkeys((nn.ReLU, F.relu, F.relu_, torch.relu, torch.relu_, "relu", "relu_"), (_RELU, ())),
    **dict.fromkeys((nn.ReLU6, F.relu6), (_RELU6, ())),
    **dict.fromkeys((nn.Hardtanh, F.hardtanh, F.hardtanh_), (_clamp("min_val", "max_val"), ("min_val", "max_val"))),
    **dict.fromkeys((torch.clamp, torch.clip, "clamp", "clamp_", "clip"), (_clamp("min", "max"), ("min", "max"))),
    **dict.fromkeys((operator.add, operator.iadd, torch.add, "add", "add_"), (_add, ("other",))),
    **dict.fromkeys((nn.AvgPool2d, F.avg_pool2d), (_average_pool, _AVERAGE[:4] + _AVERAGE[5:])),
    **dict.fromkeys((nn.AdaptiveAvgPool2d, F.adaptive_avg_pool2d), (_adaptive_pool, ())),
    **dict.fromkeys((torch.mean, "mean"), (_mean, ("dim", "keepdim", "dtype"))),
    **dict.fromkeys((nn.MaxPool2d, F.max_pool2d), (_max_pool, _MAX)),
    **dict.fromkeys((nn.Flatten, torch.flatten, "flatten"), (_reshape, ())),
    **dict.fromkeys((torch.reshape, "reshape", "view", "squeeze", torch.squeeze), (_reshape, ())),
}
