"""Which modules a pass cannot look into, because they may compute something else than their class says."""

from torch import nn

from helpers.graphs import effects
from helpers.graphs.layers import CONVS, NORMS, TRANSPOSED

FOLDABLE = (*CONVS, *TRANSPOSED, *NORMS, nn.Linear)


def opaque(module: nn.Module) -> str | None:
    """Why a module may compute something else than its class says, or None."""
    if "parametrizations" in module._modules:
        return "its weight is computed anew at each call (parametrised): remove the parametrisation first"
    if isinstance(module, FOLDABLE) and type(module) not in FOLDABLE:
        return f"{type(module).__name__} is a subclass, which may compute something else"
    if effects.has_hooks(module):
        return "it has hooks, which may see or change its input and output: remove them first"
    if "forward" in vars(module):
        return "its forward was replaced on the instance"
    return None
