"""Random inputs that several lessons need."""

import torch


def between(rng: torch.Generator, low: int, high: int) -> int:
    """A random whole number from low to high."""
    return torch.randint(low, high + 1, (), generator=rng).item()


def normal(rng: torch.Generator, *shape: int) -> torch.Tensor:
    """Normal numbers in float64."""
    return torch.randn(*shape, generator=rng, dtype=torch.float64)


def statistics(rng: torch.Generator, channels: int) -> dict[str, torch.Tensor | float]:
    """BatchNorm's numbers, with variances so small that eps matters, and at least one negative gamma."""
    gamma = normal(rng, channels)
    gamma[0] = -gamma[0].abs()
    return {
        "gamma": gamma,
        "beta": normal(rng, channels),
        "mu": normal(rng, channels),
        "variance": torch.rand(channels, generator=rng, dtype=torch.float64) * 0.05 + 1e-3,
        "eps": 1e-3 * between(rng, 1, 9),
    }
