"""Random inputs that several lessons need, and answers that several ask for."""

import torch


def between(rng: torch.Generator, low: int, high: int) -> int:
    """A random whole number from low to high."""
    return torch.randint(low, high + 1, (), generator=rng).item()


def normal(rng: torch.Generator, *shape: int) -> torch.Tensor:
    """Normal numbers in float64."""
    return torch.randn(*shape, generator=rng, dtype=torch.float64)


def statistics(rng: torch.Generator, channels: int) -> dict[str, torch.Tensor | float]:
    """BatchNorm's numbers, with variances so small that eps matters, and at least one negative
    gamma.
    """
    gamma = normal(rng, channels)
    gamma[0] = -gamma[0].abs()
    return {
        "gamma": gamma,
        "beta": normal(rng, channels),
        "mu": normal(rng, channels),
        "variance": torch.rand(channels, generator=rng, dtype=torch.float64) * 0.05 + 1e-3,
        "eps": 1e-3 * between(rng, 1, 9),
    }


def layer_of(answer: object) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights and the bias of an answer, in float64; says in words what came instead."""
    parts = answer if isinstance(answer, list | tuple) else []
    if [isinstance(part, torch.Tensor) for part in parts] != [True, True]:
        raise ValueError("return a tuple of two tensors, the weights and the bias")
    weight, bias = answer
    if bias.shape != weight.shape[:1]:
        raise ValueError(
            f"the bias should have the shape {tuple(weight.shape[:1])}, but has {tuple(bias.shape)}"
        )
    return weight.double(), bias.double()


def two_numbers(answer: list, probe: dict) -> list[float]:
    """Two numbers, whatever type they have."""
    first, second = answer
    return [float(first), float(second)]


def as_numbers(answer: torch.Tensor, probe: dict) -> torch.Tensor:
    """Codes in any type."""
    return answer.double()
