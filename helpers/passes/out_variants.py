"""Operations write their result into memory that they are given: `add(x, y)` becomes `add.out(x, y, out=buffer)`.

Works on ATen graphs (`tracing.trace(..., route="export")`). Most ATen operators have an out-variant, to be found by its
schema: the same arguments, and `out` in addition. Three kinds need help:

    casts       of type or layout are copies into the buffer
    relu6       is hardtanh(0, 6), which has one
    conv2d      has one by name only (it computes elsewhere and copies). On a CPU in channels_last oneDNN can add a
                convolution to what is in the buffer, so clear it, then add: nothing else is allocated

Views allocate nothing and in-place operations have their buffer already: both stay as they are.

Example:
    >>> graph_module = tracing.trace(folded, example_inputs, route="export")
    >>> Passer(["out_variants"]).run(graph_module)
"""

from typing import Any

import torch

from helpers.passes.registry import register
from helpers.passes.rewriter import Rewriter, Traced

aten = torch.ops.aten
COPIES = (aten.contiguous.default, aten.clone.default, aten.to.dtype, aten._to_copy.default)

# The plug-in operator: a schema, a kernel, and a fake kernel for shapes.
library = torch.library.Library("course", "FRAGMENT")
library.define(
    "conv2d.out(Tensor x, Tensor weight, Tensor? bias, int[2] stride, int[2] padding, int[2] dilation, int groups, *, "
    "Tensor(a!) out) -> Tensor(a!)"
)


def _conv2d_out(x, weight, bias, stride, padding, dilation, groups, *, out):
    """Convolve into `out`."""
    if not _onednn_can_add(x, out):
        return aten.convolution.out(x, weight, bias, stride, padding, dilation, False, [0, 0], groups, out=out)
    out.zero_()
    add_to = torch.ops.mkldnn._convolution_pointwise_.binary
    return add_to(out, x, weight, bias, padding, stride, dilation, groups, "add", 1.0, None, [], None)


def _onednn_can_add(x: torch.Tensor, out: torch.Tensor) -> bool:
    """oneDNN works in place only on float32 in (N, H, W, C) order; elsewhere it would make copies of its own."""
    last = torch.channels_last
    plain = x.device.type == "cpu" and x.dtype == torch.float32 and torch.backends.mkldnn.is_available()
    return plain and x.is_contiguous(memory_format=last) and out.is_contiguous(memory_format=last)


library.impl("conv2d.out", _conv2d_out, "CompositeExplicitAutograd")
library.impl("conv2d.out", lambda *args, out: out, "Meta")


@register
class OutVariants(Rewriter):
    """Gives every ATen operator that allocates its result a buffer to write into."""

    name = "out_variants"

    def call_operator(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Allocate, then compute into it."""
        plain = super().call_operator
        value = self.old.meta.get("val")
        if not isinstance(target, torch._ops.OpOverload) or not isinstance(value, torch.Tensor):
            return plain(target, args, kwargs)
        aliases = any(argument.alias_info is not None for argument in target._schema.arguments)
        if self._is_view() or (aliases and target not in COPIES) or target is aten.empty_strided.default:
            return plain(target, args, kwargs)
        if any(isinstance(size, torch.SymInt) for size in (*value.shape, *value.stride())):
            self.decline(f"its shape {tuple(value.shape)} is only known at run time: trace with fixed sizes")
            return plain(target, args, kwargs)
        variant = self._variant(target, args, kwargs)
        if variant is None:
            self.decline(f"{target} has no out-variant: it allocates its own result")
            return plain(target, args, kwargs)
        return self._into_buffer(*variant)

    def _is_view(self) -> bool:
        """Whether the result shares memory with an operand, which the schema of a composite operator does not tell."""
        values = [source.meta.get("val") for source in self.old.all_input_nodes]
        return _storage(self.old.meta["val"]) in [
            _storage(value) for value in values if isinstance(value, torch.Tensor)
        ]

    def _variant(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, Any] | None:
        """The out-variant, and the operands in its order."""
        if target in COPIES:
            return aten.copy_.default, args[:1], {}
        if target is aten.relu6.default:
            return aten.hardtanh.out, (args[0], 0, 6), {}
        if target is aten.conv2d.default:
            defaults = (None, [1, 1], [0, 0], [1, 1], 1)
            x, weight, *given = args
            settings = [*given, *defaults[len(given) :]]
            return torch.ops.course.conv2d.out, (x, weight, *settings), {}
        wanted = _signature(target)
        for name in target.overloadpacket.overloads():
            overload = getattr(target.overloadpacket, name)
            outs = [argument.name for argument in overload._schema.arguments if argument.is_out]
            if outs == ["out"] and _signature(overload) == wanted:
                return overload, args, kwargs
        return None

    def _into_buffer(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Traced:
        old = self.old.meta["val"]
        like = {"dtype": old.dtype, "device": self._device(args)}
        buffer = self.emit(aten.empty_strided.default, (list(old.shape), list(old.stride())), like)
        if target is aten.copy_.default:
            return self.emit(target, (buffer, *args))
        return self.emit(target, args, {**kwargs, "out": buffer})

    def _device(self, args: tuple[Any, ...]) -> torch.device:
        return next(value.value.device for value in args if isinstance(value, Traced))


def _signature(overload: Any) -> list[tuple[str, str]]:
    """The arguments of an overload but for `out`."""
    return [(argument.name, str(argument.type)) for argument in overload._schema.arguments if not argument.is_out]


def _storage(value: torch.Tensor) -> int:
    return value.untyped_storage()._cdata
