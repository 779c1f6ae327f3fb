"""The whole way from a model to its optimised graph, and the lists of passes that lead there."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx, nn

from helpers import models
from helpers.graphs.copying import own_tensors
from helpers.graphs.tracing import UnknownChoice, trace
from helpers.passes.passer import Passer
from helpers.passes.registry import did_you_mean
from helpers.passes.report import Report

# "fold" runs round after round until it changes nothing; "inference" runs once after it.
PIPELINES: dict[str, list[str]] = {
    "fold": [
        "canonicalize",
        "constant_folding",
        "elim_identity",
        "pad_folding",
        "conv_bn_folding",
        "conv_add_folding",
        "conv_mul_folding",
        "linear_folding",
        "dead_code",
    ],
    "inference": ["residual_fusion", "conv_act_fusion", "kernel_selection", "contiguity", "direct_access"],
}


def optimize(
    model: nn.Module, example_inputs: Any, level: str = "fold", route: str = "fx"
) -> tuple[fx.GraphModule, Report]:
    """Fold BatchNorm and constants into the layers before them; the result gives the same answers with fewer nodes.

    Args:
        model: in eval mode; it is never changed.
        example_inputs: the positional arguments of one call as a tuple, or a lone tensor. Only shapes and dtypes count.
        level: "fold" leaves ordinary modules and functions, ready to save, prune, quantize and export. "inference" adds
            fused kernels on top.
        route: the tracer, "fx" or "export".

    Returns:
        The optimised network, and the report of what each pass did and declined.

    Example:
        >>> folded, report = optimize(models.mobilenet_v2().eval(), torch.randn(1, 3, 32, 32))
        >>> report.table()
    """
    if level not in PIPELINES:
        raise UnknownChoice(f"there is no level {level!r}{did_you_mean(level, PIPELINES)}")
    inputs = as_tuple(example_inputs)
    # Kernels are prepared for a weight until it changes, and a tensor of inference mode does not count its changes.
    with _collector_paused(), torch.inference_mode(False):
        graph_module = trace(model, inputs, route, draft=True)
        # Every change takes at least one node away or puts it into its final form, so this bound is never the limit.
        rounds = 2 + 2 * len(graph_module.graph.nodes)
        report = Passer(PIPELINES["fold"], rounds=rounds, undo=False).run(graph_module)
        own_tensors(graph_module, model)
        if level == "inference":
            report.rows += Passer(PIPELINES["inference"], undo=False).run(graph_module).rows
    shapes = [_described(value) for value in inputs]
    models.record(graph_module, source=model, step="optimize", level=level, route=route, shapes=shapes)
    return graph_module, report


def replay(model: nn.Module, level: str, route: str, shapes: list[list[Any]]) -> fx.GraphModule:
    """Repeat an optimisation on a model with arbitrary weights, for the structure that the saved tensors fit.

    Args:
        model: the network before the optimisation.
        level, route: as given to `optimize`.
        shapes: for each input its sizes and dtype, as recorded: `[[1, 3, 32, 32, "float32"]]`.
    """
    inputs = tuple(_zeros(shape) for shape in shapes)
    return optimize(model.eval(), inputs, level, route)[0]


@contextmanager
def _collector_paused() -> Iterator[None]:
    """A graph is many small objects and no garbage; without this the collector looks through all of them repeatedly."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def as_tuple(example_inputs: Any) -> tuple[Any, ...]:
    """The arguments of one call: a lone tensor stands for itself."""
    return tuple(example_inputs) if isinstance(example_inputs, (tuple, list)) else (example_inputs,)


def _described(value: Any) -> Any:
    """An input as plain JSON: a tensor by its sizes and dtype, anything else by itself."""
    if isinstance(value, torch.Tensor):
        return [*value.shape, str(value.dtype).removeprefix("torch.")]
    if isinstance(value, (list, tuple)):
        return {"parts": [_described(part) for part in value]}
    if isinstance(value, dict):
        return {"entries": {key: _described(part) for key, part in value.items()}}
    return value


def _zeros(shape: Any) -> Any:
    """An input that `_described` describes so."""
    if isinstance(shape, list):
        return torch.zeros(shape[:-1], dtype=getattr(torch, shape[-1]))
    if isinstance(shape, dict):
        parts = shape.get("parts")
        entries = shape.get("entries", {}).items()
        return {key: _zeros(part) for key, part in entries} if parts is None else [_zeros(part) for part in parts]
    return shape
