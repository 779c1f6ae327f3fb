"""Iterative pruning: cut a little, recover, repeat."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from tqdm.auto import tqdm

from helpers.pruning.allocation import AllocationError, checked_ratio, share
from helpers.pruning.discovery import channel_groups
from helpers.pruning.pruner import in_scope, prune


def prune_in_steps(
    model: nn.Module,
    example_inputs: torch.Tensor | tuple,
    ratio: float,
    steps: int,
    recover: Callable[[nn.Module], Any],
    scope: str = "hidden",
    **options: Any,
) -> nn.Module:
    """Reach `ratio` in equal steps, with a recovery after each; every group ends as wide as in one shot.

    Args:
        model: in eval mode; left as it is.
        example_inputs: as for `prune`.
        ratio: the share of each group that has gone in the end.
        steps: how many cuts.
        recover: called with the network after each cut; trains it in place.
        scope: "hidden" or "all".
        options: passed to `prune` (importance, batches, ...).
    """
    checked_ratio(ratio)
    if not isinstance(steps, int) or steps < 1:
        raise AllocationError(f"steps is {steps!r}; expected a whole number of 1 or more")
    first = {g.name: g.size for g in in_scope(channel_groups(model, example_inputs), scope)}
    small = model
    for step in tqdm(range(1, steps + 1), desc="prune and recover", leave=False):
        # A group that is down to one unit is no longer prunable; when all are, what is left is to recover.
        now = {g.name: g.size for g in channel_groups(small, example_inputs).prunable(scope)}
        left = {name: size - share(size, ratio * step / steps) for name, size in first.items()}
        ratios = {name: 1 - left[name] / size for name, size in now.items()}
        if ratios:
            small = prune(small, example_inputs, allocation=ratios, scope=scope, **options)
        recover(small)
        small.eval()
    return small
