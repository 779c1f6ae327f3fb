"""What stayed in float, written by PyTorch's own exporter: all such operations in one go."""

import warnings
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.graphs.operations import bare_name
from helpers.quantization.affine import QuantizationError
from helpers.quantization.integer import Step

OPSET = 18


def _repeated(x: Tensor, repeats: Any, dim: int | None = None, **_: Any) -> Tensor:
    """`repeat_interleave` in other operations: the exporter writes a wrong shape where the number
    of repeats depends on the number of images.
    """
    if dim is None or isinstance(repeats, Tensor):
        return x.repeat_interleave(repeats, dim)
    dim = dim % x.ndim
    sizes = [-1] * (x.ndim + 1)
    sizes[dim + 1] = repeats
    return x.unsqueeze(dim + 1).expand(sizes).flatten(dim, dim + 1)


def _attention(q: Tensor, k: Tensor, v: Tensor, *more: Any, **settings: Any) -> Tensor:
    """The exporter takes at most four dimensions; without a mask, more can be laid flat."""
    if q.ndim > 4 and not more and settings.get("attn_mask") is None:
        flat = (x.flatten(0, -4) for x in (q, k, v))
        return F.scaled_dot_product_attention(*flat, **settings).reshape(*q.shape[:-1], v.shape[-1])
    return F.scaled_dot_product_attention(q, k, v, *more, **settings)


REWRITTEN = {"repeat_interleave": _repeated, "scaled_dot_product_attention": _attention}


class Floats(nn.Module):
    """Operations side by side, for one export; each takes its own inputs, in order."""

    def __init__(self, steps: list[Step]) -> None:
        super().__init__()
        self.operations = nn.ModuleList(step.module for step in steps)
        for node in [node for step in steps for node in step.module.graph.nodes]:
            # Not an input or a module that happens to have such a name.
            calls = node.op in ("call_function", "call_method")
            if calls and bare_name(node.target) in REWRITTEN:
                node.op = "call_function"
                node.target = REWRITTEN[bare_name(node.target)]
        for operation in self.operations:
            operation.recompile()
        self.n_inputs = [len(step.op.inputs) for step in steps]

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The results in order, of the inputs in order; an operation may write into its own."""
        remaining = (x.clone() for x in inputs)
        pairs = zip(self.operations, self.n_inputs, strict=True)
        return tuple(operation(*islice(remaining, count)) for operation, count in pairs)


def export_floats(
    steps: list[Step], shapes: dict[str, tuple[int, ...]], opset: int
) -> torch.onnx.ONNXProgram:
    """What PyTorch's exporter makes of operations in float.

    Raises:
        QuantizationError: the exporter does not know one; it is named.
    """
    names = [step.op.name for step in steps]
    inputs = {input_name(step, i): edge for step in steps for i, edge in enumerate(step.op.inputs)}
    examples = tuple(torch.zeros(2, *shapes[edge]) for edge in inputs.values())
    free = (({0: torch.export.Dim.AUTO},) * len(examples),)  # the number of images
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # the exporter's notes to itself
            program = torch.export.export(Floats(steps).eval(), examples, dynamic_shapes=free)
            return torch.onnx.export(
                program,
                input_names=[*inputs],
                output_names=[f"result of {name}" for name in names],
                opset_version=opset,
                dynamo=True,
                verbose=False,
            )
    except Exception as error:  # whatever it does not know
        if len(steps) > 1:
            for step in steps:
                export_floats([step], shapes, opset)
        while error.__cause__:
            error = error.__cause__
        reason = " ".join(str(error).split())[:200]
        raise QuantizationError(
            f"{', '.join(names)}: it stayed in float, and has no ONNX form: {reason}"
        ) from error


def input_name(step: Step, position: int) -> str:
    """What an input of an operation is called in the file."""
    return f"{step.op.name}.input{position}"
