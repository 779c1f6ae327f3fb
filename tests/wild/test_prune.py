"""Networks nobody has seen before, pruned: exactly what zeros in place of the channels give, or a reason."""

from collections import Counter

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves

from helpers import pruning
from helpers.pruning.surgery import cut
from tests.pruning.zeroing import random_plan, zeroed
from tests.wild.networks import draw
from tests.wild.test_optimize import SEEDS


@pytest.mark.parametrize("seed", SEEDS)
def test_cutting_is_exactly_zeroing(seed):
    network = draw(seed)
    model, inputs = network.model.double(), tuple(x.double() for x in network.inputs)
    groups = pruning.channel_groups(model, inputs)
    plan = random_plan(groups, np.random.default_rng(seed))
    small, _ = cut(model, groups, plan)
    with torch.no_grad():
        found, expected = (tree_leaves(m(*(x.clone() for x in inputs))) for m in (small, zeroed(model, groups, plan)))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_most_networks_have_something_to_cut():
    reasons = Counter()
    for seed in SEEDS:
        network = draw(seed)
        groups = list(pruning.channel_groups(network.model, network.inputs))
        if all(group.reason for group in groups):
            reasons[f"{network}: {'; '.join(str(group.reason) for group in groups)}"[:150]] += 1
    assert len(reasons) <= 0.25 * len(SEEDS), reasons
