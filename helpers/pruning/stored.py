"""Parameters and buffers by name, and what a network looks like without their content."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from helpers.graphs.copying import structural_copy
from helpers.graphs.module_tree import modules_by_path


def stored_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Every parameter and then every buffer, by every name that it has; what `named_parameters` says, but sooner."""
    parameters: dict[str, torch.Tensor | None] = {}
    buffers: dict[str, torch.Tensor | None] = {}
    for path, module in modules_by_path(model).items():
        if not (module._parameters or module._buffers):
            continue
        prefix = f"{path}." if path else ""
        for name, tensor in module._parameters.items():
            parameters[prefix + name] = tensor
        for name, tensor in module._buffers.items():
            buffers[prefix + name] = tensor
    return {name: tensor for name, tensor in (parameters | buffers).items() if tensor is not None}


def with_tensors(model: nn.Module, replacement: Callable[[str, torch.Tensor], torch.Tensor]) -> nn.Module:
    """A copy with other tensors, each asked for once; a parameter's replacement becomes a parameter."""
    memo: dict[int, Any] = {}
    for name, tensor in stored_tensors(model).items():
        if id(tensor) not in memo:
            new = replacement(name, tensor)
            memo[id(tensor)] = nn.Parameter(new, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else new
    return structural_copy(model, memo)
