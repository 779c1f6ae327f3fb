"""A deep copy of a model, with a short cut for the ordinary modules that most models are made of.

`copy.deepcopy` asks every value of every module how it wants to be copied, which takes longer than tracing the model.
An ordinary module holds tensors, other modules, numbers and names, so its tables can be copied directly.
"""

import copy
import functools
from collections import Counter, OrderedDict
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import nn

from helpers.graphs.module_tree import buffers, tensor_tables

# Copied deeply or not, these are the same object.
ATOMS = frozenset({bool, int, float, str, type(None), torch.dtype, torch.Size, type, FunctionType, BuiltinFunctionType})
TABLES = frozenset({dict, OrderedDict, list, set})
STATE = frozenset({"_parameters", "_buffers", "_modules"})
PROTOCOL = ("__deepcopy__", "__reduce_ex__", "__reduce__", "__getstate__", "__setstate__", "__slots__")


def independent_copy(model: nn.Module) -> nn.Module:
    """The same as `copy.deepcopy(model)`, in less time.

    Tensors and modules that the model holds twice are one object in the copy, too.
    """
    made = structural_copy(model)
    own_tensors(made, model)
    return made


def structural_copy(model: nn.Module, instead: dict[int, Any] | None = None) -> nn.Module:
    """A copy with modules of its own, most of whose tensors are still the model's.

    For whoever replaces most of them: nothing may write into a tensor until `own_tensors` has been called.

    Args:
        model: left as it is.
        instead: tensors that take the place of the model's, by the `id` of the latter. It grows.
    """
    return _copy_module(model, {} if instead is None else instead)


def own_tensors(made: nn.Module, model: nn.Module) -> None:
    """Copy every tensor that `made` still shares with `model`."""
    theirs = {id(tensor) for table in tensor_tables(model) for tensor in table.values() if tensor is not None}
    owners = Counter(map(_storage, buffers(model)))
    memo: dict[int, Any] = {}
    for table in tensor_tables(made):
        for name, tensor in table.items():
            if id(tensor) in theirs:
                quick = _is_ordinary_tensor(tensor) and owners[_storage(tensor)] < 2
                table[name] = _clone(tensor, memo) if quick else copy.deepcopy(tensor, memo)


def _clone(tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    if id(tensor) not in memo:
        memo[id(tensor)] = tensor.clone()
    return memo[id(tensor)]


def _copy_module(module: nn.Module, memo: dict[int, Any]) -> nn.Module:
    if id(module) in memo:
        return memo[id(module)]
    if not _is_copied_by_attributes(type(module)):
        return copy.deepcopy(module, memo)
    new = memo[id(module)] = object.__new__(type(module))
    state = vars(new)
    for name, value in vars(module).items():
        kind = type(value)
        if kind in TABLES and not value:  # two of three: tables of hooks that nobody has set
            value = kind()
        elif kind not in ATOMS:
            value = _copied_attribute(name, value, memo)
        state[name] = value
    for kind in ("_parameters", "_buffers"):
        state[kind].update({name: memo.setdefault(id(tensor), tensor) for name, tensor in state[kind].items()})
    for name, child in state["_modules"].items():
        state["_modules"][name] = child if child is None else _copy_module(child, memo)
    return new


def _is_ordinary_tensor(tensor: Any) -> bool:
    """A buffer of numbers that fill the memory they lie in, with nothing attached."""
    if type(tensor) is not torch.Tensor or tensor.requires_grad or vars(tensor) or not _has_storage(tensor):
        return False
    return tensor.untyped_storage().nbytes() == tensor.nbytes


def _has_storage(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and tensor.device.type in ("cpu", "cuda")


def _storage(tensor: torch.Tensor) -> int | None:
    """Which memory a tensor lies in, if it has any."""
    return tensor.untyped_storage()._cdata if _has_storage(tensor) else None


def _copied_attribute(name: str, value: Any, memo: dict[int, Any]) -> Any:
    """An attribute of an ordinary module: a table of its own, or what `copy.deepcopy` makes of the rarer kinds."""
    if type(value) in TABLES and (name in STATE or _holds_atoms(value)):
        return value.copy()
    return value if _is_atom(value) else copy.deepcopy(value, memo)


@functools.cache
def _is_copied_by_attributes(kind: type) -> bool:
    """Whether nobody but Python and torch's own layers (which read old files) has a say in how a class is copied."""
    owners = [base for base in kind.__mro__ if any(name in vars(base) for name in PROTOCOL)]
    return all(owner is object or owner.__module__.startswith("torch.nn.modules.") for owner in owners)


def _holds_atoms(table: Any) -> bool:
    """Whether a shallow copy of it is a deep one."""
    return all(map(_is_atom, table.values() if isinstance(table, dict) else table))


def _is_atom(value: Any) -> bool:
    return type(value) in ATOMS or (type(value) is tuple and all(map(_is_atom, value)))
