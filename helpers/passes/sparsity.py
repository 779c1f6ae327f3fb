"""2:4 sparsity: of every four weights in a row, two are zero. GPUs since 2020 multiply such matrices at twice the rate.

    prune    keep the two largest of four, by absolute value; the network changes, so fine-tune it afterwards
    pack     store two values and two positions (2 bits each) instead of four values
    run      on a GPU, hand the packed weight to the sparse tensor cores

Packed, four float16 weights (8 bytes) take 4 bytes of values and half a byte of positions: 56 %.
"""

from dataclasses import dataclass

import torch
from torch import fx, nn

from helpers.graphs.editing import Editor, with_tensors
from helpers.graphs.layers import opaque
from helpers.passes.folder import Pass, PassResult
from helpers.passes.registry import register

LAYERS = (nn.Conv2d, nn.Linear)
# What the sparse kernels of cuSPARSELt take: multiples of so many rows and columns.
ROWS, COLUMNS = 32, 64


class NotTwoOfFour(ValueError):
    """A tensor that cannot be packed: its shape or its zeros are wrong."""


def keep_two_of_four(weight: torch.Tensor) -> torch.Tensor:
    """A copy in which of each four neighbours of a row the two smallest are zero.

    Args:
        weight: (out, ...); the rows are what is left after the first axis, and their length is a multiple of 4.

    Example:
        >>> keep_two_of_four(torch.tensor([[1.0, -4.0, 2.0, 3.0]]))
        tensor([[ 0., -4.,  0.,  3.]])
    """
    fours = _fours(weight)
    places = fours.abs().topk(2, dim=-1).indices
    mask = torch.zeros_like(fours, dtype=torch.bool).scatter_(-1, places, True)
    return (fours * mask).view_as(weight)


def _fours(weight: torch.Tensor) -> torch.Tensor:
    if weight.dim() < 2 or weight[0].numel() % 4:
        raise NotTwoOfFour(f"a weight of shape {tuple(weight.shape)} has rows that are no multiple of 4 long")
    return weight.reshape(weight.shape[0], -1, 4)


@dataclass(frozen=True)
class Packed:
    """A 2:4 sparse tensor: two values for each four, and one byte with the positions of two pairs.

    Attributes:
        values: (out, fours, 2), in the order in which they stand.
        positions: uint8; two positions of 2 bits each for a four, two fours to a byte.
        shape: of the dense tensor.
    """

    values: torch.Tensor
    positions: torch.Tensor
    shape: torch.Size

    @property
    def bytes(self) -> int:
        """What values and positions take."""
        return self.values.nbytes + self.positions.nbytes


def pack(weight: torch.Tensor) -> Packed:
    """Pack a 2:4 sparse tensor; nothing is lost.

    Raises:
        NotTwoOfFour: a four holds more than two numbers that are not zero; the message counts them.
    """
    fours = _fours(weight)
    crowded = int(((fours != 0).sum(-1) > 2).sum())
    if crowded:
        raise NotTwoOfFour(f"{crowded} groups of four hold more than two numbers: run keep_two_of_four first")
    # Numbers before zeros, each kind in its order: a stable sort by "is it zero".
    places = (fours == 0).to(torch.uint8).argsort(dim=-1, stable=True)[..., :2].sort(-1).values
    nibbles = (places[..., 0] | places[..., 1] << 2).flatten()
    pairs = torch.nn.functional.pad(nibbles, (0, nibbles.numel() % 2)).view(-1, 2)
    return Packed(fours.gather(-1, places), (pairs[:, 0] | pairs[:, 1] << 4).to(torch.uint8), weight.shape)


def unpack(packed: Packed) -> torch.Tensor:
    """The dense tensor again."""
    pairs = packed.positions.long()
    nibbles = torch.stack([pairs & 15, pairs >> 4], 1).flatten()[: packed.values.shape[0] * packed.values.shape[1]]
    places = torch.stack([nibbles & 3, nibbles >> 2], -1).view_as(packed.values)
    fours = packed.values.new_zeros(*packed.values.shape[:2], 4)
    return fours.scatter_(-1, places, packed.values).view(packed.shape)


@register
class Sparsify(Pass):
    """Prunes the weights of convolutions and linear layers to two of four.

    Example:
        >>> Passer(["sparsify_2_4"]).run(graph_module)   # then fine-tune
    """

    name = "sparsify_2_4"
    kind = "statement"

    def run(self, graph_module: fx.GraphModule) -> PassResult:
        """Every layer gets a new weight; those whose rows do not divide are declined."""
        result, editor = PassResult(), Editor(graph_module)
        for node in graph_module.graph.find_nodes(op="call_module"):
            layer = editor.module(node)
            if not isinstance(layer, LAYERS):
                continue
            reason = opaque(layer) or _row_objection(layer.weight)
            if reason is not None:
                result.decline(node, reason)
                continue
            sparse = keep_two_of_four(layer.weight.detach())
            if not torch.equal(sparse, layer.weight):
                editor.swap_module(node, with_tensors(layer, weight=sparse))
                result.change(node, f"keeps {int((sparse != 0).sum())} of {sparse.numel()} weights")
        return result


def _row_objection(weight: torch.Tensor) -> str | None:
    length = weight[0].numel()
    return f"its rows hold {length} weights, which four does not divide" if length % 4 else None


@register
class SparseKernels(Pass):
    """Hands 2:4 sparse float16 linear layers to the sparse tensor cores of a GPU; skipped elsewhere with a note."""

    name = "sparse_kernels"
    kind = "statement"
    targets = ("cuda",)
    kernels = ("aten::_cslt_sparse_mm",)

    def run(self, graph_module: fx.GraphModule) -> PassResult:
        """Exchange the weights of the layers that the kernels take."""
        result, editor = PassResult(), Editor(graph_module)
        for node in graph_module.graph.find_nodes(op="call_module"):
            layer = editor.module(node)
            if type(layer) is not nn.Linear or type(layer.weight.data) is not torch.Tensor:
                continue
            reason = opaque(layer) or _kernel_objection(layer.weight.detach())
            if reason is not None:
                result.decline(node, reason)
                continue
            packed = torch.sparse.to_sparse_semi_structured(layer.weight.detach())
            editor.swap_module(node, with_tensors(layer, weight=nn.Parameter(packed, requires_grad=False)))
            result.change(node, "runs on the sparse tensor cores")
        return result


def _kernel_objection(weight: torch.Tensor) -> str | None:
    if not weight.is_cuda or weight.dtype not in (torch.float16, torch.bfloat16):
        return f"its weight is {weight.dtype} on {weight.device.type}: the kernels take float16 and bfloat16 on cuda"
    if weight.shape[0] % ROWS or weight.shape[1] % COLUMNS:
        return f"its shape {tuple(weight.shape)} is no multiple of ({ROWS}, {COLUMNS})"
    crowded = int(((_fours(weight) != 0).sum(-1) > 2).sum())
    return f"{crowded} groups of four hold more than two weights: run sparsify_2_4 first" if crowded else None
