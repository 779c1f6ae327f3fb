"""Whether two networks give the same answers, and do the same to their inputs and buffers."""

import copy

import torch
from torch import nn

TOLERANCE = {torch.float64: 1e-10, torch.complex128: 1e-10, torch.float32: 1e-5, torch.complex64: 1e-5}
ROUGH = {torch.float16: 2e-2, torch.bfloat16: 8e-2}


def example(case, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if not case.dtype.is_floating_point:
        return torch.randint(-9, 9, case.shape, generator=generator, dtype=case.dtype)
    return torch.randn(case.shape, generator=generator, dtype=torch.float64).to(case.dtype)


def build(case, seed: int = 0) -> nn.Module:
    """The case's network in eval mode; a training submodule stays one."""
    torch.manual_seed(seed)
    model = case.build()
    wider = {torch.float32: torch.float64, torch.complex64: torch.complex128}
    if case.dtype == torch.float64:
        model._apply(lambda t: t.to(wider.get(t.dtype, t.dtype)))
    training = [module for module in model.modules() if module.training] if not model.training else []
    model.eval()
    for module in training:
        module.train()
    return model if case.dtype != torch.bfloat16 else model.bfloat16()


def flat(value) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else [leaf for item in value for leaf in flat(item)]


@torch.no_grad()
def differences(before: nn.Module, after: nn.Module, x: torch.Tensor, calls: int = 2) -> list[str]:
    """What tells the two apart in some calls: results, and what became of the inputs. Empty when nothing does."""
    before, after = copy.deepcopy(before), copy.deepcopy(after)
    found = []
    for _ in range(calls):
        one, other = x.clone(), x.clone()
        torch.manual_seed(5)
        expected = [*flat(before(one)), one]
        torch.manual_seed(5)
        try:
            results = [*flat(after(other)), other]
        except RuntimeError as error:
            return [f"does not run: {error}"]
        found += [difference(a, b) for a, b in zip(expected, results, strict=True)]
    return [why for why in found if why is not None]


def difference(expected: torch.Tensor, result: torch.Tensor) -> str | None:
    for what in ("dtype", "shape"):
        if getattr(expected, what) != getattr(result, what):
            return f"{what} {getattr(result, what)} instead of {getattr(expected, what)}"
    if expected.numel() == 0 or torch.equal(expected, result):
        return None
    finite = expected.isfinite()
    if not torch.equal(finite, result.isfinite()):
        return "other numbers are finite"
    scale = expected[finite].abs().max().item() if finite.any() else 1.0
    error = (expected[finite] - result[finite]).abs().max().item() if finite.any() else 0.0
    tolerance = (TOLERANCE | ROUGH).get(expected.dtype, 0)
    return f"differs by {error:.1e} of {scale:.1e}" if error > tolerance * max(scale, 1e-30) else None
