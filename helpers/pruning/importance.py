"""How much a channel matters: scores for the units of a group. The lowest go first.

A unit usually holds a filter in more than one layer (an expansion and the depthwise convolution
after it, or every layer whose output is added to the same sum); its score adds up all of these.

    l1, l2             norm of the filters
    bn_scale           size of the BatchNorm scales gamma
    geometric_median   distance to all other filters: a filter in their midst is replaceable
    random             the control
    taylor             change of the loss, to first order, if the filters were zero
"""

import copy
from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from helpers.allocator import kept_memory
from helpers.dataset import input_of
from helpers.graphs.recording import stored_tensors
from helpers.pruning.groups import ChannelGroups, Group, Member, PruneError

Batches = Sequence[tuple[torch.Tensor, torch.Tensor]]  # of (normalised inputs, labels)
Scores = dict[str, np.ndarray]  # group -> one number for each unit; the larger, the more it matters
FEWEST_IMAGES = 16


# The scores of filters, of which each row is one; bn_scale is given the scales of BatchNorms.
OF_WEIGHTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "l1": lambda filters: filters.abs().sum(1),
    # `scores` takes the root, after the sum over all layers.
    "l2": lambda filters: filters.square().sum(1, dtype=torch.float64),
    "bn_scale": lambda scales: scales.abs().sum(1),
    # cdist uses matrix products, by which equal filters are not quite 0 apart: rounded to float32,
    # their scores are equal as well.
    "geometric_median": lambda filters: (
        torch.cdist(filters.double(), filters.double()).sum(1).float()
    ),
}
OF_IMAGES = ("taylor",)
CRITERIA = (*OF_WEIGHTS, "random", *OF_IMAGES)
COMPARABLE = ("random", *OF_IMAGES)  # these scores mean the same in every group


def producers(groups: ChannelGroups, group: Group, importance: str) -> list[Member]:
    """The weights that have one filter for each channel of the group, in the order in which they
    run; for "bn_scale" the scales of its BatchNorms.
    """
    axes = groups.labelling.output_axes
    if importance == "bn_scale":
        modules = groups.labelling.model.named_modules()
        norms = [path for path, m in modules if isinstance(m, nn.modules.batchnorm._NormBase)]
        axes = {(f"{path}.weight", 0) for path in norms}
    if found := [member for member in group.members if member.axis in axes]:
        return found
    raise PruneError(
        f"group {group.name} has no BatchNorm scale; use importance='l1' for this network"
    )


def rated(
    groups: ChannelGroups, chosen: list[Group], importance: str, tensors: dict, rate: Callable
) -> Scores:
    """For each unit the sum of the scores of its filters."""
    totals = {group.name: np.zeros(group.size) for group in chosen}
    for group in chosen:
        for member in producers(groups, group, importance):
            # On the CPU: not every device has float64.
            tensor = tensors[member.tensor].detach().cpu().movedim(member.dim, 0)
            values = rate(tensor.reshape(len(tensor), -1)[member.indices]).double().numpy()
            totals[group.name] += np.bincount(member.numbers, weights=values, minlength=group.size)
    return totals


@torch.enable_grad()
@kept_memory()
def taylor(
    model: nn.Module, groups: ChannelGroups, chosen: list[Group], batches: Batches
) -> Scores:
    """Mean over the batches of |sum of w * dL/dw| over the unit's filters.

    L(w = 0) - L(w) is -w * dL/dw to first order, so this estimates how much the loss changes
    without the unit.
    """
    if (images := sum(len(inputs) for inputs, _ in batches)) < FEWEST_IMAGES:
        needs = f"it needs batches=[(inputs, labels), ...] with {FEWEST_IMAGES} or more"
        raise PruneError(f"importance 'taylor' looks at data and got {images} images; {needs}")
    twin = copy.deepcopy(model).requires_grad_(True)
    filters = [member.tensor for g in chosen for member in producers(groups, g, "taylor")]
    tensors = {name: twin.get_parameter(name) for name in filters}
    totals = {group.name: np.zeros(group.size) for group in chosen}
    for inputs, labels in batches:
        loss = F.cross_entropy(twin(input_of(model, inputs)), labels)
        gradients = torch.autograd.grad(
            loss,
            list(tensors.values()),
            allow_unused=True,  # a layer that only training calls changes no loss
            materialize_grads=True,
        )
        named = zip(tensors.items(), gradients, strict=True)
        change = {name: tensor.detach() * gradient for (name, tensor), gradient in named}
        sums = rated(groups, chosen, "taylor", change, lambda filters: filters.sum(1))
        for name, values in sums.items():
            totals[name] += np.abs(values) / len(batches)
    return totals


def scores(
    model: nn.Module,
    groups: ChannelGroups,
    chosen: list[Group],
    importance: str,
    batches: Batches,
    seed: int,
) -> Scores:
    """Score every unit of the chosen groups."""
    batches = list(batches)
    if importance not in CRITERIA:
        raise PruneError(f"unknown importance {importance!r}; choose one of {', '.join(CRITERIA)}")
    if importance == "random":
        if seed < 0:
            raise PruneError(
                f"seed is {seed!r}; importance='random' needs a whole number of 0 or more"
            )
        order = [*groups.by_name]
        return {
            g.name: np.random.default_rng([seed, order.index(g.name)]).random(g.size)
            for g in chosen
        }
    if importance == "taylor":
        found = taylor(model, groups, chosen, batches)
    else:
        found = rated(groups, chosen, importance, stored_tensors(model), OF_WEIGHTS[importance])
    for name, values in found.items():
        if not np.isfinite(values).all():
            broken = [i for i, (x, _) in enumerate(batches) if not x.isfinite().all()]
            what = f"inputs of batches[{broken[0]}]" if broken else "weights"
            raise PruneError(
                f"group {name}: importance {importance!r} is not finite; check the {what} for NaN"
            )
    if importance == "l2":
        return {name: np.sqrt(values) for name, values in found.items()}
    return found
