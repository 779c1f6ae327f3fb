"""Shapes of results without computing anything.

PyTorch works shapes out on its "meta" device, where tensors have a shape and no content. For the layers and operations
that networks are full of it does so in Python, an operation at a time; the formulas here take a tenth of that.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

# Layers whose output is as large as their input.
SAME_SHAPE = (
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.ReLU, nn.ReLU6, nn.Hardswish, nn.Hardsigmoid, nn.SiLU),
    *(nn.GELU, nn.Sigmoid, nn.Dropout, nn.Identity, nn.LayerNorm),
)
SPATIAL = {nn.Conv1d: 1, nn.Conv2d: 2, nn.Conv3d: 3}
ELEMENTWISE = (torch.add, torch.mul, torch.Tensor.add, torch.Tensor.mul)
IN_PLACE = (torch.Tensor.add_, torch.Tensor.mul_)


def layer_output(module: nn.Module, forward: Callable, args: tuple, kwargs: dict) -> Any:
    """The result of a layer: by formula where there is one, or else by running it."""
    if type(module) is nn.MultiheadAttention and kwargs == {"need_weights": False} and looks_at_itself(module, args):
        return args[0].detach(), None
    if len(args) == 1 and not kwargs and isinstance(args[0], torch.Tensor):  # Identity takes anything
        (x,), kind = args, type(module)
        if kind in SAME_SHAPE:
            return x.detach()
        if kind is nn.AdaptiveAvgPool2d and type(module.output_size) is int and x.dim() == 4:
            return torch.empty((*x.shape[:2], *[module.output_size] * 2), dtype=x.dtype, device="meta")
        if kind is nn.Linear and x.shape[-1] == module.weight.shape[1]:
            return torch.empty((*x.shape[:-1], module.weight.shape[0]), dtype=x.dtype, device="meta")
        if kind in SPATIAL and fits(module, x) and min(shape := convolved(module, x.shape)) > 0:
            return torch.empty(shape, dtype=x.dtype, device="meta")
    return forward(*args, **kwargs)


def looks_at_itself(attention: nn.MultiheadAttention, args: tuple) -> bool:
    """Whether a batch of sequences of the layer's width is its own query, key and value."""
    if len(args) != 3 or not (args[0] is args[1] is args[2]) or args[0].dim() != 3:
        return False
    return args[0].shape[2] == attention.embed_dim == attention.kdim == attention.vdim


def fits(conv: nn.Module, x: torch.Tensor) -> bool:
    """Whether a convolution takes this batch; whatever is unusual is left to PyTorch, which also says what is wrong."""
    rows, columns = conv.weight.shape[:2]
    rank = SPATIAL[type(conv)] + 2
    usual = x.dim() == rank and type(conv.padding) is tuple
    return usual and x.shape[1] == columns * conv.groups and rows % conv.groups == 0


def convolved(conv: nn.Module, shape: torch.Size) -> tuple[int, ...]:
    """(N, C, ...) of a convolution's output."""
    kernel, geometry = conv.weight.shape[2:], (conv.stride, conv.padding, conv.dilation)
    space = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in zip(shape[2:], kernel, *geometry, strict=True)]
    return shape[0], conv.weight.shape[0], *space


def function_output(function: Any, args: tuple, kwargs: dict) -> Any:
    """The result of an operation: of a sum or product of two tensors of one type by formula, of all others on meta."""
    if len(args) == 2 and not kwargs and all(isinstance(a, torch.Tensor) for a in args):
        first, second = args
        if function in IN_PLACE and first.shape == second.shape and first.dtype == second.dtype:
            return first
        if function in ELEMENTWISE and first.dtype == second.dtype:
            return torch.empty(torch.broadcast_shapes(first.shape, second.shape), dtype=first.dtype, device="meta")
    return function(*args, **kwargs)
