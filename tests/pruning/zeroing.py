"""The exactness reference: the same network with the channels zeroed instead of cut."""

import copy

import numpy as np
import torch

from helpers.pruning.discovery import channel_groups
from helpers.pruning.surgery import cut


def zeroed(model, groups, plan):
    """A copy whose parameters are zero wherever a planned unit sits."""
    twin = copy.deepcopy(model)
    parameters = dict(twin.named_parameters())
    with torch.no_grad():
        for name, units in plan.items():
            for member in groups[name].members:
                if member.tensor in parameters:
                    positions = member.positions[np.isin(member.units, units)]
                    parameters[member.tensor].index_fill_(member.dim, torch.from_numpy(positions), 0.0)
    return twin


def random_plan(groups, rng):
    """Any number of units of any group, all but one at most."""
    return {g.name: rng.permutation(g.size)[: rng.integers(0, g.size)] for g in groups.prunable()}


def cut_and_zeroed(model, example, seed=0):
    """What the network answers to random inputs without a random share of its channels, and with zeros there."""
    groups, x = channel_groups(model, example), torch.randn(example.shape)
    plan = random_plan(groups, np.random.default_rng(seed))
    return cut(model, groups, plan)[0](x), zeroed(model, groups, plan)(x)
