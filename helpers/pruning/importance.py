"""How much a channel matters: scores for the units of a group. The lowest go first.

A unit usually holds a filter in more than one layer (an expansion and the depthwise convolution after it, or every
layer that adds to a residual trunk). `aggregate="group"` sums over all of these; `"layer"` looks at the first alone.

    l1, l2             norm of the filter
    bn_scale           size of the BatchNorm scale gamma
    geometric_median   distance to all other filters: a filter in their midst is replaceable
    random             the control
    taylor             change of the loss, to first order, if the filter were zero
    reconstruction     change of the next layer's output without the channel
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from helpers.pruning.groups import ChannelGroups, Group, Member
from helpers.pruning.reader import stored_tensors

Batches = Sequence[tuple[torch.Tensor, torch.Tensor]]
FEWEST_IMAGES = 16


class ImportanceError(ValueError):
    """A criterion is unknown, or cannot be applied here; says where and what to use instead."""


class CalibrationError(ImportanceError):
    """There are too few images to calibrate with."""


@dataclass(frozen=True)
class Setting:
    """All that a criterion may look at."""

    model: nn.Module
    groups: ChannelGroups
    aggregate: str = "group"
    batches: Batches = ()  # of (normalised inputs, labels)
    seed: int = 0

    @cached_property
    def tensors(self) -> dict[str, torch.Tensor]:
        """The parameters by name."""
        return stored_tensors(self.model)

    @cached_property
    def rows(self) -> set[tuple[str, int]]:
        """The axis of each weight along which its filters lie."""
        return {(layer.weight, layer.out_dim) for layer in self.groups.layers}

    def weight(self, member: Member) -> torch.Tensor:
        """The tensor of a member with its channel axis first and the rest flattened: (C, everything else)."""
        tensor = self.tensors[member.tensor].detach().cpu().movedim(member.dim, 0)
        return tensor.reshape(len(tensor), -1)

    def producers(self, group: Group) -> list[Member]:
        """The weights that have one filter for each channel of the group, in the order in which they run."""
        found = [m for m in group.members if (m.tensor, m.dim) in self.rows]
        return found if self.aggregate == "group" else found[:1]


def per_unit(group: Group, member: Member, per_index: torch.Tensor) -> np.ndarray:
    """Sum a value of every index of an axis over the units of the group."""
    values = per_index.detach().double().cpu().numpy()[member.positions]
    return np.bincount(member.units, weights=values, minlength=group.size)


def l1(setting: Setting, group: Group) -> np.ndarray:
    """Sum of absolute weights of the unit's filters."""
    return sum(per_unit(group, m, setting.weight(m).abs().sum(1)) for m in setting.producers(group))


def l2(setting: Setting, group: Group) -> np.ndarray:
    """Euclidean norm of the unit's filters, taken as one long vector."""
    squares = ((m, setting.weight(m).square().sum(1, dtype=torch.float64)) for m in setting.producers(group))
    return np.sqrt(sum(per_unit(group, member, values) for member, values in squares))


def bn_scale(setting: Setting, group: Group) -> np.ndarray:
    """Sum of |gamma| over the BatchNorms of the unit."""
    scales = {f"{path}.weight" for path, attribute in setting.groups.sizes if attribute == "num_features"}
    found = [m for m in group.members if m.tensor in scales]
    if not found:
        raise ImportanceError(f"group {group.name} has no BatchNorm scale; use importance='l1' for this network")
    found = found if setting.aggregate == "group" else found[:1]
    return sum(per_unit(group, m, setting.weight(m).abs().squeeze(1)) for m in found)


def geometric_median(setting: Setting, group: Group) -> np.ndarray:
    """Sum of the distances from a filter to all other filters of the group in the same layer."""
    total = np.zeros(group.size)
    for member in setting.producers(group):
        filters = setting.weight(member).double()[torch.from_numpy(member.positions)]
        distances = torch.cdist(filters, filters, compute_mode="donot_use_mm_for_euclid_dist").sum(1)
        total += np.bincount(member.units, weights=distances.numpy(), minlength=group.size)
    return total


def random(setting: Setting, group: Group) -> np.ndarray:
    """A number from the seed; every group has its own."""
    if setting.seed < 0:
        raise ImportanceError(f"seed is {setting.seed!r}; importance='random' needs a whole number of 0 or more")
    place = [g.name for g in setting.groups].index(group.name)
    return np.random.default_rng([setting.seed, place]).random(group.size)


UNUSED = {"allow_unused": True, "materialize_grads": True}  # a layer that only training calls changes no loss


@torch.enable_grad()
def taylor(setting: Setting, groups: list[Group]) -> dict[str, np.ndarray]:
    """Mean over the batches of |sum of w * dL/dw| over the unit's filters.

    L(w = 0) - L(w) is -w * dL/dw to first order, so this estimates how much the loss changes without the unit.
    """
    twin = copy.deepcopy(setting.model).requires_grad_(True)
    tensors = dict(twin.named_parameters())
    names = sorted({m.tensor for g in groups for m in setting.producers(g)})
    totals = {g.name: np.zeros(g.size) for g in groups}
    for inputs, labels in setting.batches:
        gradients = torch.autograd.grad(F.cross_entropy(twin(inputs), labels), [tensors[n] for n in names], **UNUSED)
        change = {n: tensors[n].detach() * gradient for n, gradient in zip(names, gradients, strict=True)}
        for group in groups:
            parts = [(m, change[m.tensor].movedim(m.dim, 0).flatten(1).sum(1)) for m in setting.producers(group)]
            totals[group.name] += np.abs(sum(per_unit(group, m, values) for m, values in parts))
    return {name: total / len(setting.batches) for name, total in totals.items()}


def reconstruction(setting: Setting, groups: list[Group]) -> dict[str, np.ndarray]:
    """Mean squared change of the following layers' outputs when one channel of their input is left out.

    For a convolution with patches x_c (k*k values of channel c) and weights w_oc the change is
    sum_o (w_oc . x_c)^2 = sum_o w_oc^T (x_c x_c^T) w_oc, so the mean of x_c x_c^T over all places is all we need.
    Indices that belong to one unit (of a flattened map, or of tied channels) are left out one at a time and added up.
    """
    readers = {(layer.weight, layer.in_dim): layer for layer in setting.groups.layers}
    wanted = {g.name: [m for m in g.members if (m.tensor, m.dim) in readers] for g in groups}
    called = sorted({m.tensor for members in wanted.values() for m in members if readers[m.tensor, m.dim].places})
    totals: dict[str, torch.Tensor] = {}
    layers = {name: setting.model.get_submodule(name.rpartition(".")[0]) for name in called}

    def add(name: str, module: nn.Module, args: tuple, by_name: dict) -> None:
        totals[name] = totals.get(name, 0) + channel_errors(module, (*args, *by_name.values())[0])

    handles = [m.register_forward_pre_hook(partial(add, name), with_kwargs=True) for name, m in layers.items()]
    try:
        with torch.no_grad():
            for inputs, _ in setting.batches:
                setting.model(inputs)
    finally:
        for handle in handles:
            handle.remove()
    for weight in called:
        if weight not in totals:
            raise ImportanceError(f"reconstruction looks at layers, and {weight} goes to a function; use 'taylor'")
    scores = {}
    for group in groups:
        parts = [(m, totals[m.tensor]) for m in wanted[group.name] if m.tensor in totals]
        errors = sum((per_unit(group, m, values) for m, values in parts), start=np.zeros(group.size))
        scores[group.name] = errors / len(setting.batches)
    return scores


def channel_errors(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """For each column of the weight the mean squared change of the output (summed over its channels) without it."""
    if isinstance(module, nn.Linear):
        return x.flatten(0, -2).square().mean(0) * module.weight.square().sum(0)
    if type(module) is not nn.Conv2d:
        raise ImportanceError(
            f"reconstruction is written for Conv2d and Linear, not {type(module).__name__}; use 'taylor'"
        )
    weight = module.weight.flatten(2).unflatten(0, (module.groups, -1))  # (G, O, C, k*k)
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    padded = F.pad(x, module._reversed_padding_repeated_twice, mode)
    patches = F.unfold(padded, module.kernel_size, module.dilation, stride=module.stride)
    patches = patches.unflatten(1, (module.groups, *weight.shape[2:]))  # (N, G, C, k*k, places)
    gram = torch.einsum("ngcip,ngcjp->gcij", patches, patches) / (len(x) * patches.shape[-1])
    return torch.einsum("goci,gcij,gocj->c", weight, gram, weight)


OF_WEIGHTS = {"l1": l1, "l2": l2, "bn_scale": bn_scale, "geometric_median": geometric_median, "random": random}
OF_IMAGES = {"taylor": taylor, "reconstruction": reconstruction}
CRITERIA = (*OF_WEIGHTS, *OF_IMAGES)
COMPARABLE = ("random", *OF_IMAGES)  # these scores mean the same in every group


def scores(setting: Setting, groups: list[Group], importance: str) -> dict[str, np.ndarray]:
    """Score every unit of the groups.

    Returns:
        Group name -> one number for each unit; the larger, the more it matters.
    """
    if importance not in CRITERIA:
        raise ImportanceError(f"unknown importance {importance!r}; choose one of {', '.join(CRITERIA)}")
    if setting.aggregate not in ("group", "layer"):
        raise ImportanceError(f"unknown aggregate {setting.aggregate!r}; choose 'group' or 'layer'")
    images = sum(len(inputs) for inputs, _ in setting.batches)
    if importance in OF_IMAGES and images < FEWEST_IMAGES:
        raise CalibrationError(
            f"importance {importance!r} looks at data and got {images} images; pass batches=[(inputs, labels), ...]"
            f" with {FEWEST_IMAGES} images or more"
        )
    if importance in OF_IMAGES:
        found = OF_IMAGES[importance](setting, groups)
    else:
        found = {group.name: OF_WEIGHTS[importance](setting, group) for group in groups}
    for name, values in found.items():
        if not np.isfinite(values).all():
            bad = [i for i, (inputs, _) in enumerate(setting.batches) if not inputs.isfinite().all()]
            culprit = f"inputs of batches[{bad[0]}]" if bad and importance in OF_IMAGES else "weights"
            raise ImportanceError(f"group {name}: importance {importance!r} is not finite; check the {culprit} for NaN")
    return found
