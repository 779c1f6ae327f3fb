"""Do two networks compute the same function? Asked with random inputs, against a float64 reference."""

import copy
from collections.abc import Callable

import torch
from torch import nn


class EquivalenceError(AssertionError):
    """Two networks differ; names the worst element."""


def assert_equivalent(
    before: nn.Module,
    after: nn.Module | Callable[[nn.Module], nn.Module],
    example_input: torch.Tensor,
    trials: int = 3,
    tolerance: float = 1e-10,
    seed: int = 0,
) -> None:
    """Raise unless `after` gives the output of `before`, for random inputs.

    In the networks' own type `after` may be no further from the float64 reference than 1e-5 or four times what `before`
    itself is off by. When `after` is a function, it is also run on a float64 copy, where both must agree to
    `tolerance`, relative to the largest output; and BatchNorm statistics are randomised first, because fresh ones
    (mean 0, variance 1) hide most mistakes.

    Args:
        before: the reference network.
        after: the rewritten network, or a function that makes it from a copy of `before`.
        example_input: its shape and type are used, its values are not.
        trials: how many random inputs to try.
        tolerance: for float64.
        seed: of the inputs and the statistics.

    Example:
        >>> layer = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).eval()
        >>> assert_equivalent(layer, copy.deepcopy(layer), torch.zeros(1, 3, 8, 8))
    """
    before, after64 = copy.deepcopy(before).eval(), None
    if isinstance(after, nn.Module):
        after = copy.deepcopy(after).eval()
    else:
        randomize_batchnorm(before, seed)
        after64 = after(copy.deepcopy(before).double()).eval()
        after = after(copy.deepcopy(before)).eval()
    before64, generator = copy.deepcopy(before).double(), torch.Generator().manual_seed(seed)
    for trial in range(trials):
        x = torch.randn(example_input.shape, generator=generator, dtype=torch.float64).to(example_input.dtype)
        with torch.no_grad():
            reference = before64(x.double())
            if after64 is not None:
                compare("float64", after64(x.double()), reference, tolerance, trial)
            own_error = relative_error(before(x), reference)
            compare(str(x.dtype), after(x), reference, max(1e-5, 4 * own_error), trial)


def relative_error(found: torch.Tensor, reference: torch.Tensor) -> float:
    """Largest difference, relative to the largest element of the reference."""
    return float((found.double() - reference).abs().max() / reference.abs().max().clamp(min=1e-30))


def compare(what: str, found: torch.Tensor, reference: torch.Tensor, allowed: float, trial: int) -> None:
    """Raise with the worst element when `found` is further from `reference` than allowed."""
    if found.shape != reference.shape:
        raise EquivalenceError(f"{what}: shape {tuple(found.shape)}, expected {tuple(reference.shape)}")
    error = relative_error(found, reference)
    if error <= allowed:  # A NaN is not.
        return
    difference = (found.double() - reference).abs().nan_to_num(nan=float("inf"))
    worst = tuple(int(i) for i in torch.unravel_index(difference.argmax(), difference.shape))
    raise EquivalenceError(
        f"{what}, trial {trial}: relative error {error:.3g} is above {allowed:.3g}; worst at {worst}:"
        f" {float(found[worst]):.9g}, expected {float(reference[worst]):.9g}"
    )


@torch.no_grad()
def randomize_batchnorm(model: nn.Module, seed: int = 0) -> nn.Module:
    """Give every BatchNorm of `model` random statistics, scales (some negative) and shifts; works in place."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            for name, low, high in (
                ("running_mean", -1, 1),
                ("running_var", 0.2, 2),
                ("weight", 0.5, 1.5),
                ("bias", -1, 1),
            ):
                tensor = getattr(module, name)
                if tensor is not None:
                    tensor.copy_(torch.empty_like(tensor, device="cpu").uniform_(low, high, generator=generator))
            if module.weight is not None:
                flip = torch.rand(module.weight.shape, generator=generator) < 0.2
                module.weight[flip.to(module.weight.device)] *= -1
    return model
