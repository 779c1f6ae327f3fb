"""`optimize`: from a model to its optimised graph, which is compared with the model."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import fx, nn
from torch.utils._pytree import tree_map_only

from helpers import models
from helpers.equivalence import ExpectedAnswers
from helpers.graphs.errors import CheckFailed, PassError, WrongAnswer
from helpers.graphs.operations import operation
from helpers.graphs.recording import tensors_in
from helpers.graphs.tracing import ROUTES, as_tuple, trace
from helpers.passes.fusion import has_that_order, is_channels_last
from helpers.passes.passer import FOLD, INFERENCE, Check, Passer, Report, look_up

# The level "fold" runs its passes until a round changes nothing; the level "inference" does that,
# too, and then runs its own once.
PIPELINES: dict[str, list[str]] = {
    "fold": [cls.name for cls in FOLD],
    "inference": [cls.name for cls in INFERENCE],
}
# Behind a dtype: these images came in that order, or the filters did.
CHANNELS_LAST = " channels_last"
FILTERS = f"{CHANNELS_LAST} filters"
UNSEEN = (
    "a graph leaves out hooks and a forward that were set on the network, isinstance on inputs, and"
    " counters that are no buffers"
)


def optimize(
    model: nn.Module,
    example_inputs: Any,
    level: str = "fold",
    route: str | None = None,
    verify: bool = True,
) -> tuple[fx.GraphModule, Report]:
    """Fold BatchNorm and constants into the layers before them; the result gives the same answers
    with fewer nodes.

    Args:
        model: in eval mode; it is never changed.
        example_inputs: the positional arguments of one call as a tuple, or a lone tensor. The graph
            is made for the shapes, dtypes and memory formats of tensors, and for the values of
            numbers and flags.
        level: "fold" leaves ordinary modules and functions, ready to save, prune, quantize and
            export. "inference" adds fused kernels on top.
        route: the tracer, "fx" or "export" (whose graph refuses other image sizes than the
            example's). None tries "fx", then "export" if "fx" fails or leaves batch norms, and
            takes the graph with fewer of them. `report.route` says which.
        verify: compare the answers of both networks before the new one is returned, see
            equivalence.py.

    Returns:
        The optimised network, and the report of what each pass did and declined.

    Raises:
        WrongAnswer: the new network answers differently. The error names the first pass to blame.

    Example:
        >>> folded, report = optimize(models.mobilenet_v2().eval(), torch.randn(1, 3, 32, 32))
        >>> report.table()
    """
    look_up("level", level, PIPELINES)
    inputs = as_tuple(example_inputs)
    refusals: list[PassError] = []
    results: list[tuple[fx.GraphModule, Report]] = []
    for name in [route] if route else ROUTES:
        try:
            graph_module, report = _run_passes(model, inputs, level, name)
            if verify:
                _verify(model, inputs, graph_module, level, name)
        except PassError as error:
            if error.pass_name != "tracing":
                raise
            refusals.append(error)
            continue
        results.append((graph_module, report))
        if not _norms(graph_module):
            break
    if not results:
        for other in refusals[1:]:
            refusals[0].add_note(f"and by the other route: {other}")
        raise refusals[0]
    # Of equal ones, min takes the first: "fx".
    graph_module, report = min(results, key=lambda result: _norms(result[0]))
    models.record(
        graph_module,
        source=model,
        step="optimize",
        level=level,
        route=report.route,
        shapes=_described(inputs, level == "inference" and is_channels_last(graph_module)),
    )
    return graph_module, report


def _norms(graph_module: fx.GraphModule) -> int:
    """How many batch norms a graph calls."""
    return sum(operation(node) == "batch_norm" for node in graph_module.graph.nodes)


def _run_passes(
    model: nn.Module, inputs: tuple[Any, ...], level: str, route: str, checks: Iterable[Check] = ()
) -> tuple[fx.GraphModule, Report]:
    """Trace and run the passes; the checks run on the traced graph, and again after each pass."""
    # Not in inference mode: its tensors do not count their changes, and a packed weight
    # (fused_layer.py) is kept until its weight has changed.
    with torch.inference_mode(False):
        graph_module = trace(model, inputs, route)
        for check in checks:
            check(graph_module)
        # Every change removes a node or puts one into its final form, so this many rounds are never
        # needed.
        rounds = 2 + 2 * len(graph_module.graph.nodes)
        report = Passer(PIPELINES["fold"], checks, rounds=rounds).run(graph_module)
        report.route = route
        if level == "inference":
            report.rows += Passer(PIPELINES["inference"], checks).run(graph_module).rows
    return graph_module, report


def _verify(
    model: nn.Module, inputs: tuple[Any, ...], optimized: fx.GraphModule, level: str, route: str
) -> None:
    """Raise `WrongAnswer` unless `optimized` answers like `model`.

    Passes decline what they must not touch. This finds what they overlook: it runs them once more,
    to name the first one after which the answers differ.
    """
    answers = ExpectedAnswers(model, inputs, any_batch=route == "fx")
    reason = answers.difference(optimized)
    if reason is None:
        return

    def same_answers(graph_module: fx.GraphModule) -> None:
        difference = answers.difference(graph_module)
        if difference is not None:
            raise AssertionError(difference)

    blamed = "optimize"
    try:
        _run_passes(model, inputs, level, route, [same_answers])
    except CheckFailed as error:
        blamed = error.pass_name
    except AssertionError:
        blamed, reason = "tracing", f"{reason} ({UNSEEN}: try the other route)"
    raise WrongAnswer(
        blamed,
        f"the network answers differently afterwards: {reason}. verify=False hands it out anyway",
    )


def replay(model: nn.Module, level: str, route: str, shapes: list[list[Any]]) -> fx.GraphModule:
    """Repeat an optimisation that a file records, on a model with any weights: the result has the
    structure that the tensors of the file fit.

    Args:
        shapes: the sizes and dtype of each input: `[[1, 3, 32, 32, "float32"]]`.
    """
    inputs = tuple(_zeros(shape) for shape in shapes)
    if FILTERS in str(shapes):
        for weight in (p for p in model.parameters() if p.dim() == 4):
            weight.data = weight.data.contiguous(memory_format=torch.channels_last)
    try:
        return optimize(model.eval(), inputs, level, route, verify=False)[0]
    except PassError:  # perhaps it was optimised after model.half(), and the fresh one is float32
        used = [x.dtype for x in tensors_in(inputs) if x.is_floating_point()]
        if not used:
            raise
        model._apply(lambda tensor: tensor.to(used[0]) if tensor.is_floating_point() else tensor)
        return optimize(model, inputs, level, route, verify=False)[0]


def _described(inputs: Any, channels_last: bool) -> Any:
    """Inputs as plain JSON: a tensor by its sizes, dtype and order, anything else by itself."""

    def described(x: torch.Tensor) -> list[Any]:
        order = CHANNELS_LAST if has_that_order(x) else FILTERS * channels_last
        return [*x.shape, str(x.dtype).removeprefix("torch.") + order]

    return tree_map_only(torch.Tensor, described, list(inputs))


def _zeros(described: Any) -> Any:
    """An input of zeros, from its description by `_described`."""
    if isinstance(described, dict):
        return {key: _zeros(part) for key, part in described.items()}
    if not isinstance(described, list):
        return described
    *sizes, dtype = described or [None]
    if isinstance(dtype, str) and all(isinstance(size, int) for size in sizes):
        dtype, _, order = dtype.partition(" ")
        zeros = torch.zeros(sizes, dtype=getattr(torch, dtype))
        if order == CHANNELS_LAST.strip():
            return zeros.contiguous(memory_format=torch.channels_last)
        return zeros
    return [_zeros(part) for part in described]
