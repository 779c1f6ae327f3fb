"""Before the first step: may these images and weights be quantized? In `make_plan`, before it
equalizes: is the plan still the network that it was made from?
"""

import contextlib
import copy
import dataclasses
import math

import torch
from torch import Tensor, fx, nn

from helpers.dataset import DataError, input_of
from helpers.equivalence import gap
from helpers.metrics import device_of
from helpers.quantization.affine import QuantizationError
from helpers.quantization.plan import Plan

TOLERANCE = 1e-3  # of the largest value: float32 sums in another order stay far below


def calibration_input(model: nn.Module, images: Tensor) -> Tensor:
    """Calibration images as the network takes them; wrong images and weights are refused."""
    kind = images.dtype if isinstance(images, Tensor) else type(images).__name__
    if kind not in (torch.uint8, torch.float32):
        raise QuantizationError(
            f"calibration images: expected one uint8 or float32 tensor, got {kind}; for another"
            " precision, call .float() on the images and the network; if it takes several inputs,"
            " quantize the parts that take one; if it takes words, those after the embedding"
        )
    if {images.device, device_of(model)} != {torch.device("cpu")}:
        raise QuantizationError(
            "quantizing is done on the CPU: call .cpu() on the network and the calibration images"
        )
    if not images.numel():
        raise QuantizationError(
            f"calibration images: there are none in a tensor of shape {tuple(images.shape)}"
        )
    if not torch.isfinite(images).all():
        bad = int((~torch.isfinite(images)).flatten(1).any(1).sum())
        raise QuantizationError(
            f"calibration images: {bad} of {len(images)} hold NaN or infinity; leave them out"
        )
    for name, tensor in model.named_parameters():
        if tensor.is_floating_point() and tensor.dtype != torch.float32:
            raise QuantizationError(
                f"{name} is {tensor.dtype}, not float32; call .float() on the network"
            )
        if not tensor.isfinite().all():
            raise QuantizationError(f"{name} holds NaN or infinity; check the checkpoint")
    try:
        return input_of(model, images)
    except DataError as error:
        raise QuantizationError(
            f"calibration images: {error}. The network says how it takes them:"
            " model.input_normalization = Normalization(mean, deviation)"
        ) from error


@torch.no_grad()
def verify_plan(plan: Plan, model: nn.Module, graph: fx.Interpreter, images: Tensor) -> None:
    """Raise where a plan in float is not the network.

    Args:
        graph: the interpreter that ran the network; its `values` show where the two begin to
            differ.
    """
    # Only the modules of float operations keep state. Weights are not copied.
    ops = [dataclasses.replace(op, module=copy.deepcopy(op.module)) for op in plan.ops]
    if _same_answers(dataclasses.replace(plan, ops=ops), copy.deepcopy(model), images):
        return
    found: dict[str, Tensor] = {}
    with contextlib.suppress(Exception):
        plan.run(images, found.__setitem__)
        graph.run(images.clone())
    expected = {node.name: value for node, value in graph.values.items()}
    different = [
        op.name
        for op in plan.ops
        if op.name not in found or not agree(found[op.name], expected[op.node])
    ]
    place = "folding, a second call or a batch of one changes them"
    if different:
        place = f"they differ from {different[0]!r} on"
    raise QuantizationError(
        f"plan: on the calibration images its answers are not the network's: {place}. It may"
        " have hooks, draw random numbers, keep state, write into parts of tensors, or ask for the"
        " number of images, or whether an input is a tensor; if only the last, quantize what"
        " passes.optimize(..., route='export') makes of it"
    )


def _same_answers(plan, model, images):
    """Whether two calls agree, the second with one image, and leave no other state behind."""
    buffers = [tensor for op in plan.ops if op.module is not None for tensor in op.module.buffers()]
    before = [tensor.clone() for tensor in buffers]
    for some in (images, images[:1]):
        try:
            expected = model(some.clone())
        except Exception as error:
            if some is not images:
                break  # a network may refuse a single image
            raise QuantizationError(
                f"plan: the network does not take {len(images)} images at once: {error}"
            ) from error
        try:
            found = plan.run(some)
        except Exception:
            return False
        if not (
            agree(found, expected)
            or agree(found, expected, 10 * _rounding(copy.deepcopy(model), some, expected))
        ):
            return False
    pairs = zip(buffers, before, strict=True)
    return all(now.is_sparse or torch.equal(now, then) for now, then in pairs)


def _rounding(model, images, answer):
    """How far an answer is from what the network gives in float64; 0 if it answers differently in
    each call, does not run in float64, or overflows in float32.
    """
    with contextlib.suppress(Exception):
        if torch.equal(model(images.clone()), answer):
            error = gap(answer.double(), model.double()(images.double()))[1]
            return error if math.isfinite(error) else 0.0
    return 0.0


def agree(found: Tensor, expected: Tensor, tolerance: float = TOLERANCE) -> bool:
    """Whether two results are the same but for the order of sums."""
    return gap(expected, found)[1] <= tolerance and not found.isnan().any()
