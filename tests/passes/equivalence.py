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
    if case.dtype == torch.float64:
        model = model.double() if not _has_complex(model) else _widen(model)
    training = [module for module in model.modules() if module.training] if not model.training else []
    model.eval()
    for module in training:
        module.train()
    return model if case.dtype != torch.bfloat16 else model.bfloat16()


def _has_complex(model: nn.Module) -> bool:
    return any(tensor.is_complex() for tensor in model.state_dict().values())


def _widen(model: nn.Module) -> nn.Module:
    return model._apply(lambda t: t.to(torch.complex128) if t.is_complex() else t.double())


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
        expected = flat(before(one))
        torch.manual_seed(5)
        try:
            results = flat(after(other))
        except RuntimeError as error:
            return [f"does not run: {error}"]
        found += [
            why
            for a, b in zip([*expected, one], [*results, other], strict=True)
            if (why := difference(a, b)) is not None
        ]
    return found


def difference(expected: torch.Tensor, result: torch.Tensor) -> str | None:
    if expected.dtype != result.dtype:
        return f"dtype {result.dtype} instead of {expected.dtype}"
    if expected.shape != result.shape:
        return f"shape {tuple(result.shape)} instead of {tuple(expected.shape)}"
    if expected.numel() == 0 or torch.equal(expected, result):
        return None
    tolerance = (TOLERANCE | ROUGH).get(expected.dtype, 0)
    if not torch.equal(expected.isfinite(), result.isfinite()):
        return "other numbers are finite"
    finite = expected.isfinite()
    scale = expected[finite].abs().max().item() if finite.any() else 1.0
    error = (expected[finite] - result[finite]).abs().max().item() if finite.any() else 0.0
    return f"differs by {error:.1e} of {scale:.1e}" if error > tolerance * max(scale, 1e-30) else None
