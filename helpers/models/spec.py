"""How a network's structure is described in plain JSON, and built again from that description.

A specification names a builder, its arguments, and the steps that were taken since: channels
removed, passes run, quantized. Each step is replayed by one known function, on arbitrary weights.
"""

import importlib
import json
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from helpers.models.header import Budget, ModelError

# What a step in a file may call; a name that is not here is refused.
REPLAY = {
    "resize": ("helpers.models.spec", "resize"),
    "bypass": ("helpers.models.spec", "bypass"),
    "optimize": ("helpers.passes", "replay"),
    "quantize": ("helpers.quantization", "replay"),
}
# The attributes that removing channels changes, and nothing else.
SIZES = [
    "in_channels",
    "out_channels",
    "groups",
    "in_features",
    "out_features",
    "num_features",
    "num_parameters",
]


@dataclass(frozen=True)
class Spec:
    """How to build a network's structure again.

    Attributes:
        builder: the builder's name, as files state it.
        arguments: what the builder is called with, in plain JSON values.
        steps: what was done since: tables with the name of the step and its arguments.
        make: the builder itself where the caller gave a function; no file holds it.
        normalization: how the network's images are normalised, if its file says so.
    """

    builder: str
    arguments: dict[str, Any]
    steps: tuple[dict[str, Any], ...] = ()
    make: Callable[..., nn.Module] | None = field(default=None, compare=False, repr=False)
    normalization: list | None = field(default=None, compare=False, repr=False)


def spec_of(model: Any) -> Spec | None:
    """The specification of a network; None if it has none, or calls something else `spec`."""
    spec = vars(model).get("spec")  # not through a wrapper, which hands on what it holds
    return spec if isinstance(spec, Spec) else None


def set_spec(model: nn.Module, spec: Spec) -> None:
    """Note on a network how it is made."""
    if hasattr(model, "spec") and spec_of(model) is None:
        kind = type(model).__name__
        raise ModelError(f"{kind} calls something `spec`, where this would be noted: rename it")
    model.spec = spec


def record(new: nn.Module, source: nn.Module, step: str, **arguments: Any) -> nn.Module:
    """Note on `new` that it was made from `source` by `step`, so that it can be saved and rebuilt.

    Args:
        source: the network it was made from; without a specification, `new` gets none either.
            Images are normalised alike for both.
        arguments: plain JSON values from which the step's replay function finds the same structure.
    """
    if hasattr(source, "input_normalization"):
        new.input_normalization = source.input_normalization
    spec = spec_of(source)
    if spec is not None:
        with suppress(TypeError):  # an argument that no file can hold: then `new` has none either
            entry = json.loads(json.dumps({"step": step} | arguments))
            new.spec = replace(spec, steps=(*spec.steps, entry))
    return new


def resize(model: nn.Module, changes: dict[str, dict[str, int]]) -> nn.Module:
    """Give modules the sizes that pruning left them, with tensors of those sizes; works in place.

    Args:
        changes: module name -> attribute -> value; only the sizes in SIZES may be changed.
    """
    # id of an old tensor -> it, and its successor: layers that share a tensor share that too.
    successors: dict[int, tuple[Any, Any]] = {}
    for name, attributes in changes.items():
        if name not in dict(model.named_modules()):
            raise ModelError(f"the specification resizes {name!r}, which the network does not have")
        module = model.get_submodule(name)
        for attribute, value in attributes.items():
            if attribute not in SIZES or not hasattr(module, attribute):
                kind = type(module).__name__
                raise ModelError(f"{name}: {kind} has no size called {attribute!r}")
            setattr(module, attribute, value)
        _reshape_tensors(module, successors)
    return model


def _reshape_tensors(module: nn.Module, successors: dict[int, tuple[Any, Any]]) -> None:
    """Make a module's own tensors agree with its sizes: take those of a fresh module."""
    arguments = {key: getattr(module, key) for key in module.__constants__ if hasattr(module, key)}
    if isinstance(module, nn.modules.conv._ConvNd | nn.Linear):
        arguments["bias"] = module.bias is not None
    if not getattr(module, "transposed", True):
        del arguments["output_padding"]
    for cls in type(module).__mro__:  # a subclass may take other arguments than PyTorch's own class
        with suppress(TypeError):
            fresh = cls(**arguments)
            break
    tensors = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
    for name, old in tensors:
        tensor = getattr(fresh, name, old)  # what only the subclass has cannot be known
        tensor.data = tensor.data.to(old.dtype)
        setattr(module, name, successors.setdefault(id(old), (old, tensor))[1])


def bypass(model: nn.Module, blocks: list[str]) -> nn.Module:
    """Leave out blocks whose shortcut is plain: their input goes on, and nothing is added.

    Works in place, and notes it in the specification.
    """
    modes = {name: model.get_submodule(name).training for name in blocks}
    for name, training in modes.items():
        model.set_submodule(name, nn.Identity().train(training), strict=True)
    return record(model, model, "bypass", blocks=blocks) if blocks else model


def replay(model: nn.Module, spec: Spec, limit: float) -> nn.Module:
    """Take the steps of a specification, checked by `header`, on a freshly built network.

    Args:
        limit: how many numbers the tensors may have that one `resize` makes.
    """
    for step in spec.steps:
        module, function = REPLAY[step["step"]]
        arguments = {key: value for key, value in step.items() if key != "step"}
        with Budget(limit) if function == resize.__name__ else nullcontext():
            model = getattr(importlib.import_module(module), function)(model, **arguments)
    return model
