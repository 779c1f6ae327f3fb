"""Recovery without gradients: BatchNorm statistics that fit the pruned network."""

from collections.abc import Iterable

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm

FEWEST_IMAGES = 16


class RecoveryError(ValueError):
    """The statistics cannot be estimated from what was given."""


def reestimate_batchnorm(model: nn.Module, batches: Iterable[torch.Tensor]) -> nn.Module:
    """Measure every BatchNorm's mean and variance again; weights stay, and so do the modes of all modules.

    The running statistics become the plain average over the batches. Each network runs with the statistics of the batch
    in it, as in training, so that a layer sees inputs that the layers before it have already normalised.

    Args:
        model: changed in place, but only when all batches have gone through; a BatchNorm that is not called keeps its
            statistics.
        batches: normalised inputs; a few hundred images are enough.

    Returns:
        The same model.
    """
    norms = {n: m for n, m in model.named_modules() if isinstance(m, BatchNorm) and m.track_running_stats}
    batches = list(batches)
    if sum(map(len, batches)) < FEWEST_IMAGES or min(map(len, batches)) < 2:
        raise RecoveryError(
            f"BatchNorm statistics need {FEWEST_IMAGES} images or more, in batches of at least 2; got batches of"
            f" {[len(b) for b in batches[:5]]}"
        )
    before = [(m, m.training, m.momentum, {n: b.clone() for n, b in m.named_buffers()}) for m in norms.values()]
    done = False
    try:
        measure(model, norms, batches)
        done = True
    finally:  # Also after Ctrl-C, which is no Exception.
        for norm, training, momentum, buffers in before:
            norm.train(training)
            norm.momentum = momentum
            if not done or not norm.num_batches_tracked:  # A layer that was never called has measured nothing.
                norm.load_state_dict(buffers, strict=False)
    return model


def measure(model: nn.Module, norms: dict[str, BatchNorm], batches: list[torch.Tensor]) -> None:
    """Run the batches through the network, in which the BatchNorms alone train; refuse statistics with NaN."""
    for norm in norms.values():
        norm.reset_running_stats()
        norm.momentum = None  # a plain average instead of a moving one
        norm.train()
    with torch.no_grad():
        for inputs in batches:
            model(inputs)
    for name, norm in norms.items():
        if not (norm.running_mean.isfinite().all() and norm.running_var.isfinite().all()):
            raise RecoveryError(
                f"the BatchNorm {name!r} measured numbers that are not finite; check batches and weights for NaN"
            )
