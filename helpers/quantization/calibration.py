"""Calibration: run training images through the float plan and choose scale and zero point for every edge."""

from collections.abc import Iterator

import torch

from helpers import data
from helpers.quantization.affine import Affine, QuantizationError, choose
from helpers.quantization.observers import OBSERVERS
from helpers.quantization.plan import INPUT, Op, Plan
from helpers.quantization.recipe import Recipe

__all__ = ["CalibrationError", "batches", "calibrate", "check_images", "ends_in_sums", "quantized_edges"]

BATCH = 64


class CalibrationError(QuantizationError):
    """Images that a network cannot be calibrated with."""


def calibrate(plan: Plan, images: torch.Tensor, recipe: Recipe) -> dict[str, Affine]:
    """Choose how every edge that carries codes is quantized.

    Args:
        plan: the float network.
        images: training images, uint8, or float already normalised; (N, C, H, W).
        recipe: `observer` and `activation_bits` matter here.

    Returns:
        One unsigned per-tensor `Affine` per edge. Reshaping and max pooling keep the parameters of their input.
    """
    check_images(images, plan.input_shape)
    edges = quantized_edges(plan)
    watched = [edge for edge in edges if edge == INPUT or plan[edge].kind not in ("reshape", "max_pool")]
    observers = {edge: OBSERVERS[recipe.observer](recipe.activation_bits) for edge in watched}

    def watch(edge: str, value: torch.Tensor) -> None:
        if edge in observers:
            try:
                observers[edge].observe(value)
            except QuantizationError as error:
                raise CalibrationError(f"edge {edge!r}: {error}") from error

    for batch in batches(images):
        plan.run(batch, watch)
    result: dict[str, Affine] = {}
    for edge in edges:  # in the order of the plan, so that an input's parameters are known before its reader's
        if edge in observers:
            low, high = (torch.tensor(bound) for bound in observers[edge].range())
            scale, zero_point = choose(low, high, recipe.activation_bits, signed=False)
            result[edge] = Affine(scale, zero_point, recipe.activation_bits, signed=False)
        else:
            result[edge] = result[plan[edge].inputs[0]]
    return result


def batches(images: torch.Tensor) -> Iterator[torch.Tensor]:
    """Normalised float batches of images that may still be uint8."""
    for part in images.split(BATCH):
        yield data.normalize(part) if part.dtype == torch.uint8 else part


def check_images(images: torch.Tensor, shape: tuple[int, ...]) -> None:
    """Refuse images of the wrong type or shape, none at all, or with NaN or infinity in them."""
    if not isinstance(images, torch.Tensor) or images.dtype not in (torch.uint8, torch.float32):
        kind = images.dtype if isinstance(images, torch.Tensor) else type(images).__name__
        raise CalibrationError(f"calibration images: expected a uint8 or float32 tensor, got {kind}")
    if images.ndim != len(shape) + 1 or tuple(images.shape[1:]) != tuple(shape) or not len(images):
        raise CalibrationError(
            f"calibration images: expected shape (N, {', '.join(map(str, shape))}), N >= 1, got {tuple(images.shape)}"
        )
    if not torch.isfinite(images).all():
        bad = int((~torch.isfinite(images)).flatten(1).any(1).sum())
        raise CalibrationError(f"calibration images: {bad} of {len(images)} hold NaN or infinity; leave them out")


def quantized_edges(plan: Plan) -> list[str]:
    """The edges that carry codes, in the order of the plan.

    All but these: the sums of the last layer, and what passes between two operations that stay in float.
    """

    def read_as_codes(edge: str) -> bool:
        return any(user.kind != "float" for user in plan.users(edge))

    edges = [INPUT] if read_as_codes(INPUT) else []
    for op in plan.ops:
        keeps = op.kind in ("reshape", "max_pool")
        if op.kind == "float":
            quantized = read_as_codes(op.name)
        else:
            quantized = not ends_in_sums(plan, op) and (not keeps or op.inputs[0] in edges)
        edges += [op.name] * quantized
    return edges


def ends_in_sums(plan: Plan, op: Op) -> bool:
    """Whether this is the last layer, whose int32 sums become the network's float output without rounding."""
    return op is plan.ops[-1] and op.kind in ("conv", "linear") and op.clamp is None and op.residual is None
