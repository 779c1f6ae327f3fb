"""What hangs on a network: `named_modules`, `parameters` and `get_submodule`, several times as fast.

torch hands each module up through one generator per level. The passes ask these questions dozens of times per network.
"""

import torch
from torch import nn

KINDS = ("_parameters", "_buffers")


def submodule(root: nn.Module, path: str) -> nn.Module:
    """The module at a dotted path."""
    for name in path.split("."):
        root = root._modules[name]
    return root


def modules_by_path(root: nn.Module, each_once: bool = False) -> dict[str, nn.Module]:
    """Every module by its path, the root under "".

    A module that hangs at two places is there twice, or `each_once`: at the first. Modules that hang in a circle have
    no end of paths, and can be asked for only each once.
    """
    found = {"": root}
    _collect(root, "", found, {root} if each_once else None)
    return found


def _collect(module: nn.Module, prefix: str, found: dict[str, nn.Module], seen: set[nn.Module] | None) -> None:
    for name, child in module._modules.items():
        if child is None or (seen is not None and child in seen):
            continue
        if seen is not None:
            seen.add(child)
        found[path := f"{prefix}{name}"] = child
        _collect(child, f"{path}.", found, seen)


def tensor_tables(root: nn.Module, kinds: tuple[str, ...] = KINDS) -> list[dict[str, torch.Tensor | None]]:
    """The parameters and the buffers of every module, by name; a module that hangs at two places counts once."""
    return [getattr(module, kind) for module in modules_by_path(root, each_once=True).values() for kind in kinds]


def tensors(root: nn.Module, kinds: tuple[str, ...] = KINDS) -> list[torch.Tensor]:
    """Every parameter and buffer, each once."""
    tables = tensor_tables(root, kinds)
    return list({id(tensor): tensor for table in tables for tensor in table.values() if tensor is not None}.values())


def parameters(root: nn.Module) -> list[torch.Tensor]:
    """Every parameter, each once."""
    return tensors(root, ("_parameters",))


def buffers(root: nn.Module) -> list[torch.Tensor]:
    """Every buffer, each once."""
    return tensors(root, ("_buffers",))
