"""Where a quantized network loses precision: signal to noise ratio, edge by edge.

Two numbers per operation, both in decibels (6 dB are one bit):

    sqnr        the quantized network's value against the float network's: all errors so far
    own_sqnr    the same operation with exact inputs: only what its own weights and its own output codes cost
"""

import pandas as pd
import torch

from helpers.quantization.affine import sqnr
from helpers.quantization.calibration import batches, check_images
from helpers.quantization.model import QuantizedModel
from helpers.quantization.plan import Plan
from helpers.quantization.steps import Step

__all__ = ["layer_errors"]


@torch.no_grad()
def layer_errors(plan: Plan, model: QuantizedModel, images: torch.Tensor) -> pd.DataFrame:
    """Compare a quantized network with its float plan, operation by operation.

    Args:
        plan: what the model was made from (`quantizer.make_plan`).
        model: the quantized network; it is run in the mode it is in.
        images: uint8, or float already normalised; one batch is enough.

    Returns:
        One row per operation, in order: name, kind, bits, sqnr, own_sqnr.

    Example:
        table = layer_errors(plan, q, cifar.train_images[:64])
        table.sort_values("own_sqnr").head()      # the layers that cost most
    """
    check_images(images, plan.input_shape)
    exact: dict[str, torch.Tensor] = {}
    rounded: dict[str, torch.Tensor] = {}
    batch = next(batches(images))
    plan.run(batch, exact.__setitem__)
    model.run(batch, lambda name, value: rounded.__setitem__(name, value.clone()))
    edges = model.settle()
    rows = []
    for step in model.steps.values():
        name = step.op.name
        value = rounded[name] if edges[name] is None else edges[name].decode(rounded[name])
        own = _alone(step, [exact[source] for source in step.op.inputs])
        bits = getattr(step, "bits", None)
        rows.append((name, step.op.kind, bits, sqnr(exact[name], value), sqnr(exact[name], own)))
    return pd.DataFrame(rows, columns=["name", "kind", "bits", "sqnr", "own_sqnr"])


def _alone(step: Step, inputs: list[torch.Tensor]) -> torch.Tensor:
    """The step's float form on exact inputs, its output encoded and decoded."""
    y = step.float_op().run(*inputs)
    return (step.encode(y).to(torch.int32) - step.out_zero_point) * step.out_scale if step.coded else y
