"""The table of criteria, and the two of them that look at data."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from helpers.pruning.groups import Group
from helpers.pruning.importance import (
    Criterion,
    ImportanceError,
    Setting,
    bn_scale,
    geometric_median,
    l1,
    l2,
    lamp,
    per_unit,
    random,
)

FEWEST_IMAGES = 16


class CalibrationError(ImportanceError):
    """There are too few images to calibrate with."""


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
    with watched(setting.model, called, totals), torch.no_grad():
        for inputs, _ in setting.batches:
            setting.model(inputs)
    for weight in called:
        if weight not in totals:
            raise ImportanceError(f"reconstruction looks at layers, and {weight} goes to a function; use 'taylor'")
    scores = {}
    for group in groups:
        parts = [(m, totals[m.tensor]) for m in wanted[group.name] if m.tensor in totals]
        errors = sum((per_unit(group, m, values) for m, values in parts), start=np.zeros(group.size))
        scores[group.name] = errors / len(setting.batches)
    return scores


@contextmanager
def watched(model: nn.Module, weights: list[str], totals: dict[str, torch.Tensor]) -> Iterator[None]:
    """While the block runs, the layer of each weight adds the errors that its input channels stand for."""

    def hook(name: str):
        def add(module: nn.Module, args: tuple, by_name: dict) -> None:
            x = (*args, *by_name.values())[0]
            totals[name] = totals.get(name, 0) + channel_errors(module, x)

        return add

    layers = {name: model.get_submodule(name.rpartition(".")[0]) for name in weights}
    handles = [layer.register_forward_pre_hook(hook(name), with_kwargs=True) for name, layer in layers.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def channel_errors(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """For each column of the weight the mean squared change of the output (summed over its channels) without it."""
    if isinstance(module, nn.Linear):
        return x.flatten(0, -2).square().mean(0) * module.weight.square().sum(0)
    if type(module) is not nn.Conv2d:
        raise ImportanceError(
            f"reconstruction is written for Conv2d and Linear, not {type(module).__name__}; use 'taylor'"
        )
    weight = module.weight.flatten(2).unflatten(0, (module.groups, -1))  # (G, O, C, k*k)
    padded = F.pad(x, module._reversed_padding_repeated_twice, PADDING.get(module.padding_mode, module.padding_mode))
    patches = F.unfold(padded, module.kernel_size, module.dilation, stride=module.stride)
    patches = patches.unflatten(1, (module.groups, *weight.shape[2:]))  # (N, G, C, k*k, places)
    gram = torch.einsum("ngcip,ngcjp->gcij", patches, patches) / (len(x) * patches.shape[-1])
    return torch.einsum("goci,gcij,gocj->c", weight, gram, weight)


PADDING = {"zeros": "constant"}


def one_by_one(score):
    """Lift a criterion for one group to one for all."""
    return lambda setting, groups: {g.name: score(setting, g) for g in groups}


CRITERIA = {
    "l1": Criterion(one_by_one(l1)),
    "l2": Criterion(one_by_one(l2)),
    "bn_scale": Criterion(one_by_one(bn_scale)),
    "geometric_median": Criterion(one_by_one(geometric_median)),
    "lamp": Criterion(one_by_one(lamp), comparable=True),
    "random": Criterion(one_by_one(random), comparable=True),
    "taylor": Criterion(taylor, comparable=True, needs_batches=True),
    "reconstruction": Criterion(reconstruction, comparable=True, needs_batches=True),
}


def scores(setting: Setting, groups: list[Group], importance: str) -> dict[str, np.ndarray]:
    """Score every unit of the groups.

    Returns:
        Group name -> one number for each unit; the larger, the more it matters.
    """
    if importance not in CRITERIA:
        raise ImportanceError(f"unknown importance {importance!r}; choose one of {', '.join(CRITERIA)}")
    if setting.aggregate not in ("group", "layer"):
        raise ImportanceError(f"unknown aggregate {setting.aggregate!r}; choose 'group' or 'layer'")
    criterion = CRITERIA[importance]
    images = sum(len(inputs) for inputs, _ in setting.batches)
    if criterion.needs_batches and images < FEWEST_IMAGES:
        raise CalibrationError(
            f"importance {importance!r} looks at data and got {images} images; pass batches=[(inputs, labels), ...]"
            f" with {FEWEST_IMAGES} images or more"
        )
    found = criterion.score(setting, groups)
    refuse_nan(found, setting, importance)
    return found


def refuse_nan(found: dict[str, np.ndarray], setting: Setting, importance: str) -> None:
    """Scores have to be finite; where they are not, the images or the weights are to blame."""
    for name, values in found.items():
        if not np.isfinite(values).all():
            bad = [i for i, (inputs, _) in enumerate(setting.batches) if not inputs.isfinite().all()]
            culprit = f"inputs of batches[{bad[0]}]" if bad and CRITERIA[importance].needs_batches else "weights"
            raise ImportanceError(f"group {name}: importance {importance!r} is not finite; check the {culprit} for NaN")
