"""The exactness reference: the same network with the channels zeroed instead of cut."""

import copy

import numpy as np
import torch


def zeroed(model, groups, plan):
    """A copy whose parameters are zero wherever a planned unit sits."""
    twin = copy.deepcopy(model)
    parameters = dict(twin.named_parameters())
    with torch.no_grad():
        for name, units in plan.items():
            for member in groups[name].members:
                if member.tensor in parameters:
                    indices = member.indices[np.isin(member.numbers, units)]
                    parameters[member.tensor].index_fill_(
                        member.dim, torch.from_numpy(indices), 0.0
                    )
    return twin


def random_plan(groups, rng):
    """Any number of units of any group, all but one at most."""
    return {g.name: rng.permutation(g.size)[: rng.integers(0, g.size)] for g in groups.prunable()}
