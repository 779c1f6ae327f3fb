"""Recovery without gradients.

`reestimate_batchnorm` measures BatchNorm's statistics again, so that they fit the pruned network.
`remove_dead_channels` takes out channels that training has switched off: they cost bytes, and ruin
int8 scales.

Example: channel 12 of the first layer of the shipped network, for any image:

    features.0.0         Conv2d       filter 12 is 0                                      0
    features.0.1         BatchNorm2d  mean 0, variance 0, gamma 0.33, beta -1.33      -1.33
    features.0.2         ReLU6                                                            0
    features.1.conv.0.0  Conv2d       depthwise: channel 12 reads channel 12 alone        0
    features.1.conv.0.1  BatchNorm2d  mean 0, variance 0, gamma 0.77, beta -0.55      -0.55
    features.1.conv.0.2  ReLU6                                                            0
    features.1.conv.1    Conv2d       32 -> 16: adds 0 times column 12 of its weight

So channel 12 can go from all of them. Had ReLU6 given 2, then 2 times column 12 would have to be
taken off the mean of the next BatchNorm. constants.py finds the last column of this table.
"""

import copy
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import fx, nn
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm

from helpers.allocator import kept_memory
from helpers.dataset import input_of
from helpers.graphs.recording import stored_tensors
from helpers.metrics import use_faster_format
from helpers.pruning.constants import constant_inputs
from helpers.pruning.discovery import channel_groups
from helpers.pruning.groups import Member, PruneError
from helpers.pruning.importance import FEWEST_IMAGES
from helpers.pruning.pruner import remove_channels

Receiver = tuple[torch.Tensor, int]  # a bias, or with the sign -1 the mean that BatchNorm subtracts


@torch.no_grad()
@kept_memory()
def reestimate_batchnorm(model: nn.Module, batches: Iterable[torch.Tensor]) -> nn.Module:
    """Measure every BatchNorm's mean and variance again. Weights and modes stay.

    The running statistics become the plain average over the batches, without dropout. While they
    are measured, each BatchNorm normalises with the statistics of the batch, as in training: with
    the old ones, the next layers would get other inputs than they will afterwards.

    Args:
        model: changed in place, and returned; not changed if a batch fails. A BatchNorm that is not
            called keeps its statistics.
        batches: normalised inputs, or pairs of these and labels; a few hundred images are enough.
    """
    batches = [
        input_of(model, batch[0] if isinstance(batch, (tuple, list)) else batch)
        for batch in batches
    ]
    sizes = [*map(len, batches)]
    twin = copy.deepcopy(model).eval()  # dropout would change what is measured
    if sum(sizes) < FEWEST_IMAGES or min(sizes) < 2:
        wanted = f"{FEWEST_IMAGES} images or more, in batches of at least 2"
        raise PruneError(f"BatchNorm statistics need {wanted}; got batches of {sizes[:5]}")
    memory_format = use_faster_format(batches[0], twin)
    norms = {}
    for name, module in twin.named_modules():
        if isinstance(module, BatchNorm) and module.track_running_stats:
            module.train().reset_running_stats()
            module.momentum = None  # a plain average instead of a moving one
            norms[name] = module
    for inputs in batches:
        twin(inputs.contiguous(memory_format=memory_format))
    called = {name: norm for name, norm in norms.items() if norm.num_batches_tracked}
    for name, norm in called.items():
        if not (norm.running_mean + norm.running_var).isfinite().all():
            raise PruneError(
                f"the BatchNorm {name!r} measured numbers that are not finite: NaN in batches or"
                " weights?"
            )
    for name, norm in called.items():
        model.get_submodule(name).load_state_dict(norm.state_dict())
    return model


def remove_dead_channels(
    model: nn.Module, example_inputs: Any
) -> tuple[nn.Module, dict[str, list[int]]]:
    """Remove channels that are constant; what they added goes to the bias or BatchNorm after them.

    A channel stays where the answers would differ: if it is a constant other than 0 in front of a
    zero-padded border, or of a layer with neither bias nor BatchNorm; if it is the last of its
    group; if forward would decide otherwise. All stay, with a warning that says why, if the network
    fails on random images, or takes whole numbers.

    Args:
        model: in eval mode, and left alone.
        example_inputs: a tensor or a tuple of them, as forward takes them.

    Returns:
        The small network, and the numbers of the removed units of each group.
    """
    groups = channel_groups(model, example_inputs)
    constants = constant_inputs(copy.deepcopy(model), groups, example_inputs)
    calls = groups.labelling.input_axes
    twin = copy.deepcopy(model)
    removed = {}
    for group in groups.prunable():
        members = [member for member in group.members if member.axis in calls]
        if not members or not all(member.axis in constants for member in members):
            continue
        dead = np.ones(group.size, dtype=bool)
        receivers = [bias_receiver(twin, [*calls[member.axis].values()]) for member in members]
        for member, receiver in zip(members, receivers, strict=True):
            read = constants[member.axis][member.indices]
            needed = read != 0  # NaN is not 0 either
            if receiver is not None:
                needed = read.isnan()
            dead[member.numbers[needed.cpu().numpy()]] = False
        if dead.all():
            dead[0] = False
        for member, receiver in zip(members, receivers, strict=True):
            if receiver is not None:
                take_over(twin, member, constants[member.axis], receiver, dead)
        if dead.any():
            removed[group.name] = np.flatnonzero(dead)
    try:
        small = remove_channels(twin, groups, removed, example_inputs)
    except PruneError:  # as where a forward asks whether a width is even
        return copy.deepcopy(model), {}
    return small, {name: units.tolist() for name, units in removed.items()}


def take_over(
    model: nn.Module, member: Member, constants: torch.Tensor, receiver: Receiver, dead: np.ndarray
) -> None:
    """Let a receiver add what a layer adds for the dead units that it reads."""
    gone = member.indices[dead[member.numbers]]
    filters = model.get_parameter(member.tensor).detach()[:, gone].cpu()
    tensor, sign = receiver
    added = torch.einsum("oi...,i->o", filters.double(), constants[gone].cpu().double())
    tensor.data += sign * added.to(tensor)


def bias_receiver(model: nn.Module, calls: list[fx.Node]) -> Receiver | None:
    """What can take the constant that a layer no longer adds: its bias, or the BatchNorm after it.

    None for a layer that is called twice, is transposed, pads, or shares the bias or BatchNorm with
    another.
    """
    layer = model.get_submodule(calls[0].target)
    transposed = isinstance(layer, nn.modules.conv._ConvTransposeNd)
    if len(calls) > 1 or transposed or any(getattr(layer, "padding", ())):
        return None
    receiver = (layer.bias, 1)
    # The channels of a linear layer need not be those that a BatchNorm after it counts.
    if layer.bias is None and len(calls[0].users) == 1 and not isinstance(layer, nn.Linear):
        (user,) = calls[0].users
        norm = model.get_submodule(user.target) if user.op == "call_module" else None
        if isinstance(norm, BatchNorm):
            receiver = (norm.running_mean, -1)
    stored = stored_tensors(model).items()
    names = [f"{name}." for name, tensor in stored if tensor is receiver[0]]
    nodes = calls[0].graph.nodes
    readers = [n for n in nodes if any(name.startswith(f"{n.target}.") for name in names)]
    return receiver if len(readers) == 1 else None
