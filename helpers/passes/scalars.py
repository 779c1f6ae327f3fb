"""Scalars become tensors where the operator's schema asks for a tensor.

`aten.add.Tensor(x, 2)` is allowed in Python, but the schema says `Tensor other`, and an engine that reads the graph
literally needs a tensor there. The new tensor has no dimensions, so it takes no part in broadcasting. Its dtype is
chosen so that the result keeps its own. Where every operand is without dimensions that cannot be had, since the dtype
of the scalar would count as much as theirs: declined.
"""

from typing import Any

import torch

from helpers.passes.registry import register
from helpers.passes.rewriter import Rewriter, Traced


@register
class ScalarsToTensors(Rewriter):
    """Replaces numbers that stand where the schema of an ATen operator has a tensor.

    Example:
        >>> Passer(["scalars_to_tensors"]).run(tracing.trace(model, example_inputs, route="export"))
    """

    name = "scalars_to_tensors"

    def call_operator(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Exchange the scalars of one call."""
        if not isinstance(target, torch._ops.OpOverload):
            return super().call_operator(target, args, kwargs)
        result = self.old.meta["val"].dtype if isinstance(self.old.meta.get("val"), torch.Tensor) else None
        parameters = target._schema.arguments
        wanted = {parameter.name for parameter in parameters if str(parameter.type) == "Tensor"}
        if result is None or not any(_is_number(value) for value in (*args, *kwargs.values())):
            return super().call_operator(target, args, kwargs)
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Traced)]
        if all(tensor.value.dim() == 0 and tensor.dtype != torch.float64 for tensor in tensors):
            self.decline("has only operands without dimensions: the dtype of a tensor would change the result's")
            return super().call_operator(target, args, kwargs)
        args = tuple(
            self._tensor(value, result) if parameter.name in wanted and _is_number(value) else value
            for value, parameter in zip(args, parameters, strict=False)
        )
        kwargs = {
            key: self._tensor(value, result) if key in wanted and _is_number(value) else value
            for key, value in kwargs.items()
        }
        return super().call_operator(target, args, kwargs)

    def _tensor(self, value: complex, result: torch.dtype) -> Traced:
        """The tensor for one number."""
        exact = {torch.float64: torch.float64, torch.complex128: torch.float64}.get(result, torch.float32)
        dtypes = {bool: torch.bool, int: torch.int64, float: exact}
        return self.constant(torch.tensor(value, dtype=dtypes.get(type(value))), "scalar")


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, complex))
