"""Parameters and buffers by name, and what a network looks like without their content."""

from typing import Any

import torch
from torch import nn

from helpers.passes.copying import structural_copy
from helpers.passes.module_tree import modules_by_path


def stored_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Every parameter and then every buffer, by every name that it has; what `named_parameters` says, but sooner."""
    modules = modules_by_path(model).items()
    return {
        f"{path}.{name}" if path else name: tensor
        for kind in ("_parameters", "_buffers")
        for path, module in modules
        for name, tensor in getattr(module, kind).items()
        if tensor is not None
    }


def with_tensors(model: nn.Module, replacements: dict[int, torch.Tensor]) -> nn.Module:
    """A copy with other tensors, by the `id` of those in the model; a parameter's replacement becomes a parameter."""
    memo: dict[int, Any] = dict(replacements)
    for tensor in stored_tensors(model).values():
        if isinstance(tensor, nn.Parameter):
            memo[id(tensor)] = nn.Parameter(replacements[id(tensor)], tensor.requires_grad)
    return structural_copy(model, memo)
