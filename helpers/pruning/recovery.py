"""Recovery without gradients: what BatchNorm's statistics have to say.

`reestimate_batchnorm` measures them again, so that they fit the pruned network.
`remove_dead_channels` takes out the channels that never change, since training has switched them
off: they cost bytes, and ruin scales for a whole tensor. A BatchNorm with a variance of about 0
answers beta unless its mean lags behind, which random images show. What is constant further on a
run finds, with NaN for "varies". A comparison loses NaN: what is behind one is taken to vary.
"""

import copy
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import fx, nn
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm

from helpers.allocator import kept_memory
from helpers.dataset import input_of
from helpers.graphs.layers import channel_axis
from helpers.graphs.recording import stored_tensors
from helpers.metrics import faster_format
from helpers.passes.optimizer import as_tuple
from helpers.pruning.discovery import channel_groups
from helpers.pruning.groups import ChannelGroups, PruneError
from helpers.pruning.importance import FEWEST_IMAGES
from helpers.pruning.pruner import without
from helpers.pruning.reader import called_module


@torch.no_grad()
@kept_memory()
def reestimate_batchnorm(model: nn.Module, batches: Iterable[torch.Tensor]) -> nn.Module:
    """Measure every BatchNorm's mean and variance again, in the model that it returns; weights and
    modes stay.

    The running statistics become the plain average over the batches. While they are measured, each
    BatchNorm normalises with the statistics of the batch, as in training, so that layers see what
    those before them have normalised.

    Args:
        model: changed in place, but only when all batches have gone through; a BatchNorm that is
            not called keeps its statistics.
        batches: normalised inputs, or pairs of these and labels; a few hundred images are enough.
    """
    batches = [
        input_of(model, batch[0] if isinstance(batch, (tuple, list)) else batch)
        for batch in batches
    ]
    sizes, twin = [*map(len, batches)], copy.deepcopy(model)
    if sum(sizes) < FEWEST_IMAGES or min(sizes) < 2:
        wanted = f"{FEWEST_IMAGES} images or more, in batches of at least 2"
        raise PruneError(f"BatchNorm statistics need {wanted}; got batches of {sizes[:5]}")
    form = faster_format(batches[0], twin)
    norms = {
        n: m for n, m in twin.named_modules() if isinstance(m, BatchNorm) and m.track_running_stats
    }
    for norm in norms.values():
        norm.train().reset_running_stats()
        norm.momentum = None  # a plain average instead of a moving one
    for inputs in batches:
        twin(inputs.contiguous(memory_format=form))
    called = {name: norm for name, norm in norms.items() if norm.num_batches_tracked}
    if bad := [
        name
        for name, norm in called.items()
        if not (norm.running_mean + norm.running_var).isfinite().all()
    ]:
        raise PruneError(
            f"the BatchNorm {bad[0]!r} measured numbers that are not finite: NaN in batches or"
            " weights?"
        )
    for name, norm in called.items():
        model.get_submodule(name).load_state_dict(norm.state_dict())
    return model


def remove_dead_channels(
    model: nn.Module, example_inputs: Any
) -> tuple[nn.Module, dict[str, list[int]]]:
    """Remove channels that are constant, and give what they added to the BatchNorm or bias behind
    their reader.

    A channel stays where the result would differ: a constant other than 0 in front of a zero-padded
        border, a reader
    with neither a BatchNorm nor a bias to take it, the last of its group; and all, if forward would
    decide otherwise.

    Args:
        model, example_inputs: in eval mode, and left alone; a tensor or a tuple of them, as forward
            takes them.

    Returns:
        The small network, and the numbers of the removed units of each group.
    """
    if not all(x.is_floating_point() for x in as_tuple(example_inputs)):
        raise PruneError(
            "remove_dead_channels tries other numbers, and example_inputs holds integers: keep"
            " them all"
        )
    groups, twin, plan = channel_groups(model, example_inputs), copy.deepcopy(model), {}
    constant = constants(copy.deepcopy(model), groups, example_inputs)
    takers = {read: taker(twin, *groups.labelling.columns[read].values()) for read in constant}
    for group in groups.prunable():
        readers = [
            (m, read)
            for m in group.members
            if (read := (m.tensor, m.dim)) in groups.labelling.columns
        ]
        dead = np.full(group.size, bool(readers) and all(read in constant for _, read in readers))
        for member, read in readers if dead.all() else ():
            values = constant[read][member.positions]
            stays = values.isnan() if takers[read] else values != 0  # NaN is not 0 either
            dead[member.units[stays.cpu().numpy()]] = False
        dead[0] &= not dead.all()
        for member, read in readers if dead.any() else ():
            if takers[read]:
                gone, (tensor, sign) = (
                    torch.from_numpy(member.positions[dead[member.units]]),
                    takers[read],
                )
                weight = twin.get_parameter(member.tensor).detach()[:, gone]
                added = (
                    weight.reshape(*weight.shape[:2], -1).sum(2).double()
                    @ constant[read][gone].double()
                )
                tensor.data.add_(sign * added.to(tensor.dtype))
        if dead.any():
            plan[group.name] = np.flatnonzero(dead)
    with suppress(PruneError):  # as where a forward asks whether a width is even
        return without(twin, groups, plan, example_inputs), {
            name: units.tolist() for name, units in plan.items()
        }
    return copy.deepcopy(model), {}


@torch.no_grad()
@torch.random.fork_rng()
def constants(
    model: nn.Module, groups: ChannelGroups, example_inputs: Any
) -> dict[tuple[str, int], torch.Tensor]:
    """For each weight that ungrouped layers read the constant of each input channel, NaN for one
    that varies.
    """
    found: dict[tuple[str, int], torch.Tensor] = {}
    torch.manual_seed(
        0
    )  # or a channel that hardly any number reaches would be dead or not as chance has it

    def look(read: tuple[str, int], layer: nn.Module, args: tuple, kwargs: dict) -> None:
        x = args[0] if args else kwargs["input"]
        x = x.movedim(axis := channel_axis(layer, x.dim()), 0).reshape(x.shape[axis], -1)
        values = torch.where(x.amin(1) == x.amax(1), x[:, 0], torch.nan)
        found[read] = torch.where(found.get(read, values) == values, values, torch.nan)

    prepare(model, groups.nodes)
    for read, nodes in groups.labelling.columns.items():
        sure = all(n.op == "call_module" and not n.meta.get("behind", True) for n in nodes.values())
        layers = {model.get_submodule(n.target) for n in nodes.values() if sure}
        for layer in layers if all(getattr(layer, "groups", 1) == 1 for layer in layers) else ():
            layer.register_forward_pre_hook(partial(look, read), with_kwargs=True)
    for factor in (torch.nan, 100.0):  # the second for NaN that a kernel may have lost
        model(*(torch.randn_like(x) * factor for x in as_tuple(example_inputs)))
    with suppress(
        Exception
    ):  # with larger images, if it takes them: a mean over a padded map may be another number
        model(
            *(
                torch.randn([*x.shape[:2], *(2 * s for s in x.shape[2:])]).to(x)
                for x in as_tuple(example_inputs)
            )
        )
    return found


def prepare(model: nn.Module, nodes: list[fx.Node]) -> None:
    """Note on nodes whether NaN may be lost before them; BatchNorms answer beta, and behind such a
    place NaN.
    """
    lost: set[fx.Node] = set()

    def answer(varies: bool, norm: nn.Module, args: tuple, output: torch.Tensor) -> None:
        dead = (norm.running_var < 1e-5 * norm.eps) | (
            norm.weight == 0
        )  # about 0 beside eps; or gamma is 0
        given, beta = output[:, dead], norm.bias[dead].view(-1, *[1] * (output.dim() - 2))
        output[varies] = torch.nan
        output[:, dead] = torch.where(
            (given - beta).abs() > 1e-5, given, beta
        )  # more than rounding; NaN is not

    for i, node in enumerate(nodes):
        norm, dtype = called_module(node), getattr(node.meta.get("val"), "dtype", torch.float32)
        node.meta["behind"] = behind = not lost.isdisjoint(node.all_input_nodes)
        loses = node.meta.get("unknown") or (node.all_input_nodes and not dtype.is_floating_point)
        if (
            not loses
            and isinstance(norm, BatchNorm)
            and norm.affine
            and norm.running_var is not None
        ):
            model.get_submodule(node.target).register_forward_hook(partial(answer, behind))
        elif loses or behind:
            lost.update(nodes[: i + 1])  # it may write into any of these


def taker(model: nn.Module, call: fx.Node, *others: fx.Node) -> tuple[torch.Tensor, int] | None:
    """Where a constant goes that a layer no longer adds up, and its sign: BatchNorm's mean, the
    bias, or nowhere.
    """
    layer = model.get_submodule(call.target)
    if (
        others
        or isinstance(layer, nn.modules.conv._ConvTransposeNd)
        or any(getattr(layer, "padding", ()))
    ):
        return None
    norm = next((model.get_submodule(n.target) for n in call.users if n.op == "call_module"), None)
    alone = (
        len(call.users) == 1 and isinstance(norm, BatchNorm) and not isinstance(layer, nn.Linear)
    )  # whose axis?
    tensor, sign = (norm.running_mean, -1) if layer.bias is None and alone else (layer.bias, 1)
    names = [name for name, own in stored_tensors(model).items() if own is tensor]
    readers = [
        n for n in call.graph.nodes if any(f"{name}.".startswith(f"{n.target}.") for name in names)
    ]
    return (tensor, sign) if len(readers) == 1 else None
