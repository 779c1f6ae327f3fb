"""Type and layout conversion: parts of a network run in bfloat16, or in channels_last, with casts only at the borders.

1. wrap      every operation that can run in the other form gets a cast in front of each operand and one behind it
2. cancel    a cast back, followed by a cast forth, is nothing: the value was in the other form already
3. share     one value that is cast several times is cast once

Only "back, then forth" cancels. Forth and back again is not nothing: float32 -> bfloat16 -> float32 drops 16 bits.

Which operations are converted is the partitioner's choice: groups of supported ones that hold a convolution or a matrix
product, since a cast costs as much as an addition and only the heavy operations earn it back.
"""

import operator
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.fx.passes.operator_support import chain, create_op_support

from helpers.graphs.editing import Editor, with_tensors
from helpers.graphs.partition import from_ops, propose
from helpers.graphs.replacing import inherit
from helpers.passes.folder import Pass, PassResult
from helpers.passes.registry import register

CONVS = (nn.Conv2d, nn.ConvTranspose2d)
ACTIVATIONS = (F.relu, F.relu6, F.hardswish, F.silu, F.hardtanh, nn.ReLU, nn.ReLU6, nn.Hardswish, nn.SiLU, nn.Dropout)
SUMS = (operator.add, torch.add, operator.mul, torch.mul)
POOLS = (F.avg_pool2d, F.max_pool2d, F.adaptive_avg_pool2d, nn.AvgPool2d, nn.MaxPool2d, nn.AdaptiveAvgPool2d)


class Conversion(Pass, ABC):
    """Runs parts of a network in another form. A subclass says which form and where.

    Attributes:
        heavy: operations that are worth a cast.
        light: operations that come along when they are next to a heavy one.
    """

    heavy: ClassVar[tuple[Any, ...]]
    light: ClassVar[tuple[Any, ...]]

    @abstractmethod
    def fits(self, value: Any) -> bool:
        """Whether a value could be in the other form, and is in the ordinary one."""

    def gains(self, value: Any) -> bool:
        """Whether the other form of a fitting value differs from the ordinary one."""
        return True

    @abstractmethod
    def forth(self, value: Any) -> Any:
        """Cast to the other form; works on tensors and, to write it into a graph, on proxies."""

    @abstractmethod
    def back(self, value: Any) -> Any:
        """Cast to the ordinary form, likewise."""

    def run(self, graph_module: fx.GraphModule) -> PassResult:
        """Wrap, cancel, share."""
        result = PassResult()
        editor = Editor(graph_module)
        chosen = self._choose(graph_module)
        origins: dict[fx.Node, fx.Node] = {}  # cast back -> the converted node whose result it casts
        casts: dict[fx.Node, fx.Node] = {}  # ordinary value -> its cast forth
        for node in chosen:
            self._convert_operands(node, origins, casts)
            self._convert_module(node, editor)
            node.meta["val"] = self.forth(node.meta["val"])
            origins[self._cast(self.back, node)] = node
            result.change(node, f"runs in {self.name.removeprefix('to_')}")
        needless = [cast for cast in origins if not cast.users]
        for cast in needless:
            graph_module.graph.erase_node(cast)
        if chosen:
            result.change("graph", f"{len(casts)} casts forth, {len(origins) - len(needless)} back")
        return result

    def _choose(self, graph_module: fx.GraphModule) -> list[fx.Node]:
        """The nodes to convert, in graph order."""
        known = create_op_support(lambda modules, node: self._fits_around(node))
        support = chain(from_ops([*self.heavy, *self.light]), known)
        modules = dict(graph_module.named_modules(remove_duplicate=False))
        heavy = from_ops(self.heavy)
        groups = [
            group
            for group in propose(graph_module, support, allow_single_node=True)
            if any(heavy.is_node_supported(modules, node) and self.gains(node.args[0].meta["val"]) for node in group)
        ]
        return sorted(node for group in groups for node in group)

    def _fits_around(self, node: fx.Node) -> bool:
        """Whether the result and all operands of a node could be in the other form."""
        values = [source.meta.get("val") for source in (node, *node.all_input_nodes)]
        return all(self.fits(value) for value in values)

    def _convert_operands(self, node: fx.Node, origins: dict[fx.Node, fx.Node], casts: dict[fx.Node, fx.Node]) -> None:
        for source in node.all_input_nodes:
            if source in origins:
                node.replace_input_with(source, origins[source])
                continue
            if source not in casts:
                casts[source] = self._cast(self.forth, source)
            node.replace_input_with(source, casts[source])

    def _convert_module(self, node: fx.Node, editor: Editor) -> None:
        module = editor.module(node)
        if module is not None and any(True for _ in module.parameters()):
            tensors = {name: self._parameter(tensor) for name, tensor in module.named_parameters()}
            editor.swap_module(node, with_tensors(module, **tensors))

    def _parameter(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.forth(tensor.detach())

    def _cast(self, function: Any, source: fx.Node) -> fx.Node:
        """Write a cast right behind a node; for a cast back, every user gets the cast instead."""
        graph = source.graph
        users = list(source.users)
        with graph.inserting_after(source):
            cast = function(fx.Proxy(source)).node
        inherit([cast], source)
        cast.meta["val"] = function(source.meta["val"])
        if function == self.back:
            for user in users:
                user.replace_input_with(source, cast)
        return cast


class DtypeConversion(Conversion):
    """Runs parts of a float32 network in a shorter floating-point type."""

    dtype: ClassVar[torch.dtype]
    heavy = (*CONVS, nn.Conv1d, nn.Conv3d, nn.Linear, torch.matmul)
    light = (*ACTIVATIONS, *SUMS, *POOLS, torch.flatten, nn.Flatten)

    def fits(self, value: Any) -> bool:
        """Ordinary means a float32 tensor."""
        return isinstance(value, torch.Tensor) and value.dtype == torch.float32

    def forth(self, value: Any) -> Any:
        """To the short type."""
        return value.to(self.dtype)

    def back(self, value: Any) -> Any:
        """To float32, which is exact."""
        return value.to(torch.float32)


@register
class ToBfloat16(DtypeConversion):
    """Runs convolutions, matrix products and their neighbours in bfloat16.

    Example:
        >>> Passer(["to_bfloat16"]).run(passes.optimize(model, example_inputs)[0])
    """

    name = "to_bfloat16"
    dtype = torch.bfloat16


@register
class ToFloat16(DtypeConversion):
    """The same in float16. Bound to CUDA: few CPUs compute in it, and every GPU since 2016 does."""

    name = "to_float16"
    targets = ("cuda",)
    dtype = torch.float16


@register
class ToChannelsLast(Conversion):
    """Keeps images as (N, H, W, C) in memory around 2-d convolutions; shapes and values stay the same.

    Example:
        >>> Passer(["to_channels_last"]).run(passes.optimize(model, example_inputs)[0])
    """

    name = "to_channels_last"
    heavy = CONVS
    light = (*ACTIVATIONS, *SUMS, *POOLS, nn.BatchNorm2d)

    def fits(self, value: Any) -> bool:
        """Ordinary means four dimensions in the default order."""
        return isinstance(value, torch.Tensor) and value.dim() == 4 and value.is_contiguous()

    def gains(self, value: Any) -> bool:
        """With one pixel or one channel both orders are the same."""
        return not value.is_contiguous(memory_format=torch.channels_last)

    def forth(self, value: Any) -> Any:
        """To (N, H, W, C) in memory."""
        return value.contiguous(memory_format=torch.channels_last)

    def back(self, value: Any) -> Any:
        """To (N, C, H, W) in memory."""
        return value.contiguous(memory_format=torch.contiguous_format)

    def _parameter(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.forth(tensor.detach()) if tensor.dim() == 4 else tensor
