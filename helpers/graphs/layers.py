"""Functional convolutions, batch norms and linear maps become modules, sharing the tensors that
they read.

    F.conv2d(x, w, b, stride=2)                  ->   nn.Conv2d(..., stride=2)(x)
    aten.conv2d.default(x, w, b, [2, 2])         ->   the same

The settings of such a call must be literals, and its tensors constants of the network that no node
writes to. Otherwise the call stays as it is, and the reason is given.
"""

import functools
from typing import Any

import torch
from torch import fx, nn

from helpers.graphs.editing import Editor, with_tensors
from helpers.graphs.effects import has_hooks, nodes_in
from helpers.graphs.errors import Declined
from helpers.graphs.operations import (
    CONVS,
    FOLDABLE,
    LAYERS,
    TRANSPOSED,
    attribute,
    by_name,
    operation,
)

TENSORS = ("weight", "bias", "running_mean", "running_var")


def why_not_ordinary(module: nn.Module) -> str | None:
    """Why a module may compute something other than its class says, or None."""
    if "parametrizations" in module._modules:
        return (
            "its weight is computed anew at each call (parametrised): remove the parametrisation"
            " first"
        )
    if isinstance(module, FOLDABLE) and type(module) not in FOLDABLE:
        return f"{type(module).__name__} is a subclass, which may compute something else"
    if has_hooks(module):
        return "it has hooks, which may see or change its input and output: remove them first"
    # A plain attribute hides the parameter or method of its name.
    replaced = (_methods(type(module)) | {*TENSORS}) & vars(module).keys()
    if replaced:
        return f"its {min(replaced)} was replaced on the instance"
    return None


@functools.cache
def _methods(cls: type) -> frozenset[str]:
    return frozenset(name for name in dir(cls) if callable(getattr(cls, name)))


def output_channels(layer: nn.Module) -> int:
    """The number of channels or features that a layer computes. The weight says so: a layer that
    was cut by hand may still have its old `out_channels`.
    """
    if isinstance(layer, TRANSPOSED):
        return layer.weight.shape[1] * layer.groups
    return layer.weight.shape[0]


def channel_axis(layer: nn.Module, dimensions: int) -> int:
    """The axis of a layer's output along which its channels lie. It is found from the end,
    because images may come without a batch axis.
    """
    return dimensions - 1 - (0 if isinstance(layer, nn.Linear) else len(layer.kernel_size))


def padding_of(layer: nn.Module) -> list[int]:
    """What a convolution adds before and after each axis, from the last axis on, as `F.pad` takes
    it. PyTorch's own list of these numbers is as old as the layer: where zeros are added in plain
    numbers, it doesn't follow a change of `padding`.
    """
    if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        return layer._reversed_padding_repeated_twice
    sides = layer.padding
    if isinstance(sides, int):
        sides = [sides] * len(layer.kernel_size)
    return [side for side in reversed(sides) for _ in range(2)]


def rank(node: fx.Node) -> int | None:
    """The number of dimensions of a node's value; None if it is not known, or is no tensor."""
    value = node.meta.get("val")
    return value.dim() if isinstance(value, torch.Tensor) else None


def convert(node: fx.Node, editor: Editor) -> None:
    """Turn a functional call into a call of a module; calls with the same tensors and settings
    share one module.

    Raises:
        Declined: the call stays as it is.
    """
    name = operation(node)
    arguments = by_name(node, ("input", *_argument_names(node)))
    source = arguments.pop("input")
    stored = {key: arguments.pop(key, None) for key in TENSORS}
    settings = {key: _literal(key, value) for key, value in arguments.items()}
    if settings.pop("training", False):
        raise Declined("it normalises by the statistics of the batch (training=True)")
    tensors = {key: _constant(key, value, editor) for key, value in stored.items()}
    key = (name, rank(node), *map(id, tensors.values()), str(sorted(settings.items())))
    constants = [read for read in node.all_input_nodes if read.op == "get_attr"]
    if key not in editor.layers:
        owner = constants[0].target.rpartition(".")[0]
        if name == "batch_norm":
            module = _norm(rank(node), settings, **tensors)
        else:
            module = new_layer(name, settings, **tensors)
        path = _path_for(node, owner, tensors, editor)
        counter = attribute(editor.graph_module, owner)._buffers.get("num_batches_tracked")
        if path == owner and counter is not None:
            module._buffers["num_batches_tracked"] = counter
        editor.layers[key] = path
        editor.graph_module.set_submodule(path, module.eval())
    editor.retarget(node, "call_module", editor.layers[key], (source,), {})
    editor.erase_unread(constants)


def _argument_names(node: fx.Node) -> tuple[str, ...]:
    """The arguments of a functional layer after the input, in the order of the called function."""
    names = LAYERS[operation(node)]
    is_aten = isinstance(node.target, torch._ops.OpOverload) or node.target is torch.batch_norm
    if operation(node) == "batch_norm" and is_aten:
        rest = [name for name in names if name not in TENSORS]
        return (*TENSORS, *rest, "cudnn_enabled")
    return names


def _constant(name: str, value: Any, editor: Editor) -> torch.Tensor | None:
    if value is None:
        return None
    tensor = editor.tensor(value)
    if tensor is None:
        raise Declined(f"its {name} is computed by the graph")
    if editor.storage.is_written(value):
        raise Declined(f"the graph writes to its {name}")
    if not tensor.is_leaf:
        raise Declined(f"its {name} is not a parameter or buffer")
    return tensor


def _literal(name: str, value: Any) -> Any:
    if nodes_in(value):
        raise Declined(f"its {name} is computed by the graph")
    return tuple(value) if isinstance(value, list) else value


def _path_for(
    node: fx.Node, owner: str, tensors: dict[str, torch.Tensor | None], editor: Editor
) -> str:
    """Where to put a new layer: at `owner`, if that module does nothing but hold these tensors (as
    after torch.export, which keeps no classes); else at a new path.
    """
    module = attribute(editor.graph_module, owner)
    held = {**module._parameters, **module._buffers}
    held.pop("num_batches_tracked", None)
    only_holds = type(module) is nn.Module and not module._modules
    if only_holds and all(tensors.get(name) is held[name] for name in held):
        return owner
    return editor.free_name(node.name)


def new_layer(name: str, settings: dict[str, Any], weight: Any, bias: Any, **_: Any) -> nn.Module:
    """A convolution or linear layer; a tensor that was a buffer before is not trained."""
    tensors = {"weight": weight, "bias": bias}
    if name == "linear":
        if weight.dim() != 2:
            raise Declined(f"its weight has {weight.dim()} dimensions, and nn.Linear takes 2")
        layer = nn.Linear(*weight.shape[::-1], bias=False, device="meta")
        return with_tensors(layer.requires_grad_(False), **tensors)
    transposed = settings.pop("transposed", name.startswith("conv_transpose"))
    if not transposed:
        settings.pop("output_padding", None)
    dimensions, groups = weight.dim() - 2, settings.pop("groups", 1)
    for key, value in settings.items():
        # ATen may write one number for all dimensions as a list.
        if isinstance(value, tuple) and len(value) == 1:
            settings[key] = value * dimensions
    # (Cout, Cin / groups, *kernel), and for transposed convolutions (Cin, Cout / groups, *kernel)
    channels = weight.shape[0], weight.shape[1] * groups
    settings |= {
        "kernel_size": tuple(weight.shape[2:]),
        "groups": groups,
        "bias": False,
        "device": "meta",
    }
    cls = (TRANSPOSED if transposed else CONVS)[dimensions - 1]
    layer = cls(*(channels if transposed else channels[::-1]), **settings)
    return with_tensors(layer.requires_grad_(False), **tensors)


def _norm(
    dimensions: int | None,
    settings: dict[str, Any],
    running_mean: Any,
    running_var: Any,
    **affine: Any,
) -> nn.Module:
    """A batch norm."""
    if dimensions not in (2, 3, 4, 5):
        raise Declined("the rank of its input is not known: trace with example inputs")
    cls = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[dimensions]
    settings.pop("cudnn_enabled", None)
    norm = cls(running_mean.numel(), **settings, affine=False, device="meta")
    norm = with_tensors(norm, **affine)
    norm.affine = norm.weight is not None and norm.bias is not None
    norm._buffers |= {"running_mean": running_mean.detach(), "running_var": running_var.detach()}
    norm._buffers["num_batches_tracked"] = torch.tensor(0)
    return norm
