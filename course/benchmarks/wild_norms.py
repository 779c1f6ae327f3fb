"""How many batch norms stand right behind a layer whose result nobody else reads.

Counted by running the network and watching PyTorch's operations, not by the passes that are being
measured.
"""

from collections import Counter
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

LAYERS = ("aten.convolution.", "aten.addmm.", "aten.mm.")
NORMS = ("aten.native_batch_norm.", "aten._native_batch_norm_legit_no_training.")


class _Norms(TorchDispatchMode):
    """Notes which operation made each tensor, and how many read it."""

    def __init__(self) -> None:
        super().__init__()
        self.made_by: dict[int, str] = {}
        self.readers: Counter[int] = Counter()
        self.behind: list[int] = []
        self.alive: list[torch.Tensor] = []  # so that no other tensor gets its place in memory

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple = (), kwargs: Any = None
    ) -> Any:
        """Look at one operation."""
        result = function(*args, **(kwargs or {}))
        read = tensors((args, kwargs))
        self.readers.update({place(tensor) for tensor in read})
        if str(function).startswith(NORMS) and self.made_by.get(place(read[0])):
            self.behind.append(place(read[0]))
        layer = str(function).startswith(LAYERS)
        for tensor in tensors(result):
            self.made_by[place(tensor)] = str(function) if layer else ""
            self.alive.append(tensor)
        return result


def tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def place(tensor: torch.Tensor) -> int:
    """The same for a tensor and its views."""
    return tensor.untyped_storage()._cdata


@torch.no_grad()
def foldable_norms(model: nn.Module, inputs: tuple) -> int:
    """The number of calls of batch norms that could be part of the layer before them."""
    with _Norms() as norms:
        model(*inputs)
    return sum(norms.readers[made] == 1 for made in norms.behind)
