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
        model: changed in place, but only when all batches have gone through.
        batches: normalised inputs; a few hundred images are enough.

    Returns:
        The same model.
    """
    norms = [m for m in model.modules() if isinstance(m, BatchNorm) and m.track_running_stats]
    batches = list(batches)
    if sum(map(len, batches)) < FEWEST_IMAGES or min(map(len, batches)) < 2:
        raise RecoveryError(
            f"BatchNorm statistics need {FEWEST_IMAGES} images or more, in batches of at least 2; got batches of"
            f" {[len(b) for b in batches[:5]]}"
        )
    before = [(m, m.training, m.momentum, {n: b.clone() for n, b in m.named_buffers()}) for m in norms]
    try:
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # a plain average instead of a moving one
            norm.train()
        with torch.no_grad():
            for inputs in batches:
                model(inputs)
    except Exception:
        for norm, *_, buffers in before:
            norm.load_state_dict(buffers, strict=False)
        raise
    finally:
        for norm, training, momentum, _ in before:
            norm.train(training)
            norm.momentum = momentum
    return model
