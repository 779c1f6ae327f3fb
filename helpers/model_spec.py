"""How a network's structure is described in plain JSON, and built again from that description.

A specification names a builder, its arguments, and the steps that were taken since: channels
removed, passes run, quantized. Each step is replayed by one known function, on arbitrary weights.
"""

import importlib
import json
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

from helpers.header import Budget, ModelError

# What a step in a file may call; a name that is not here is refused.
REPLAY = {
    "resize": ("helpers.model_spec", "resize"),
    "bypass": ("helpers.model_spec", "bypass"),
    "optimize": ("helpers.passes", "replay"),
    "quantize": ("helpers.quantization", "replay"),
}
MOST_NUMBERS = 2**28  # 1 GB, as much as VGG asks for, however small it was cut
# The attributes that removing channels changes, and nothing else.
SIZES = (
    "in_channels",
    "out_channels",
    "groups",
    "in_features",
    "out_features",
    "num_features",
    "num_parameters",
)


@dataclass(frozen=True)
class Spec:
    """How to build a network's structure again: a builder's name, its arguments, and what was done
    since.

    `make` is the builder itself where the caller gave a function; no file holds it. `normalization`
    is what one says.
    """

    builder: str
    arguments: dict[str, Any]
    steps: tuple[dict[str, Any], ...] = ()
    make: Callable[..., nn.Module] | None = field(default=None, compare=False, repr=False)
    normalization: list | None = field(default=None, compare=False, repr=False)


def record(new: nn.Module, source: nn.Module, step: str, **arguments: Any) -> nn.Module:
    """Note on `new` that it was made from `source` by `step`, so that it can be saved and rebuilt.

    Args:
        source: the network it was made from; without a specification, `new` gets none either.
            Images are normalised alike for both.
        arguments: plain JSON values from which the step's replay function finds the same structure.
    """
    if hasattr(source, "input_normalization"):
        new.input_normalization = source.input_normalization
    spec = getattr(source, "spec", None)
    if spec is not None:
        entry = json.loads(json.dumps({"step": step} | arguments))
        new.spec = replace(spec, steps=(*spec.steps, entry))
    return new


def resize(model: nn.Module, changes: dict[str, dict[str, int]]) -> nn.Module:
    """Give modules the sizes that pruning left them, with tensors of those sizes; works in place.

    Args:
        changes: module name -> attribute -> value; only the sizes in SIZES may be changed.
    """
    made: dict[int, tuple[Any, Any]] = {}  # id of an old tensor -> it, and its successor
    for name, attributes in changes.items():
        if name not in dict(model.named_modules()):
            raise ModelError(f"the specification resizes {name!r}, which the network does not have")
        module = model.get_submodule(name)
        for attribute, value in attributes.items():
            if attribute not in SIZES or not hasattr(module, attribute):
                raise ModelError(
                    f"{name}: {type(module).__name__} has no size called {attribute!r}"
                )
            setattr(module, attribute, value)
        reshape_tensors(module, made)
    return model


def bypass(model: nn.Module, blocks: list[str]) -> nn.Module:
    """Leave out blocks whose shortcut is plain: what enters goes on, and nothing is added.

    Works in place, notes it.
    """
    for name in blocks:
        model.set_submodule(name, nn.Identity(), strict=True)
    return record(model, model, "bypass", blocks=blocks) if blocks else model


def reshape_tensors(module: nn.Module, made: dict[int, tuple[Any, Any]]) -> None:
    """Make a module's own tensors agree with its sizes by asking PyTorch for a fresh module of
    these sizes.

    Layers that share a tensor share its successor.
    """
    arguments = {key: getattr(module, key) for key in module.__constants__ if hasattr(module, key)}
    if isinstance(module, nn.modules.conv._ConvNd | nn.Linear):
        arguments["bias"] = module.bias is not None
    if not getattr(module, "transposed", True):
        del arguments["output_padding"]
    for cls in type(module).__mro__:  # a subclass may take other arguments than PyTorch's own class
        with suppress(TypeError):
            fresh = cls(**arguments)
            break
    for name, old in [
        *module.named_parameters(recurse=False),
        *module.named_buffers(recurse=False),
    ]:
        tensor = getattr(fresh, name, old)  # what only the subclass has cannot be known
        tensor.data = tensor.data.to(old.dtype)
        setattr(module, name, made.setdefault(id(old), (old, tensor))[1])


def budget_of(path: str | Path) -> Budget:
    """What a network may have had that was cut down, to 2 bits a weight perhaps, to a file of this
    size.
    """
    return Budget(max(MOST_NUMBERS, 16 * Path(path).stat().st_size))


def replay(model: nn.Module, spec: Spec, path: str | Path) -> nn.Module:
    """Take the steps of a specification, which its header's check knows, on a freshly built
    network.
    """
    for step in spec.steps:
        module, function = REPLAY[step["step"]]
        arguments = {key: value for key, value in step.items() if key != "step"}
        with budget_of(path) if function == resize.__name__ else nullcontext():
            model = getattr(importlib.import_module(module), function)(model, **arguments)
    return model
