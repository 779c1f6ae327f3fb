"""A copy of a network with other tensors in it."""

import copy
from typing import Any

from torch import nn


def twin(module: nn.Module, memo: dict[int, Any]) -> nn.Module:
    """What copy.deepcopy(module, memo) gives, several times sooner.

    Most of a network is empty dictionaries (a dozen for hooks in every module), which deepcopy takes apart at length.

    Args:
        module: left as it is.
        memo: what to put in the place of which object, by id: here the new parameters and buffers. It grows.
    """
    if id(module) in memo:
        return memo[id(module)]
    if hasattr(type(module), "__deepcopy__"):  # it knows better (graph modules, parametrisations)
        return copy.deepcopy(module, memo)
    copied = memo[id(module)] = type(module).__new__(type(module))
    for name, value in vars(module).items():
        if name == "_modules":
            value = type(value)((k, child if child is None else twin(child, memo)) for k, child in value.items())
        elif isinstance(value, dict) and not value:
            value = type(value)()
        elif not isinstance(value, int | float | str | None):
            value = copy.deepcopy(value, memo)
        copied.__dict__[name] = value
    return copied
