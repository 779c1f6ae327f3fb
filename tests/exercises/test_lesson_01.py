import torch

from tests.exercises.trying import solution_of, try_answers


def test_output_size():
    try_answers(
        "output_size",
        "size, kernel, stride, padding",
        right=[
            "return (size + 2 * padding - kernel) // stride + 1",
            "return len(range(0, size + 2 * padding - kernel + 1, stride))",
            solution_of("01", "output_size"),
        ],
        wrong=[
            "return (size + 2 * padding - kernel) // stride",
            "return (size + padding - kernel) // stride + 1",
            "return (size - kernel) // stride + 1",
            "return -(-(size + 2 * padding - kernel) // stride) + 1",
            "return (size + 2 * padding - kernel) / stride + 1",
            "return size // stride",
            "print((size + 2 * padding - kernel) // stride + 1)",
        ],
    )


def test_scale_and_shift():
    try_answers(
        "scale_and_shift",
        "gamma, beta, mu, variance, eps",
        right=[
            "a = gamma / (variance + eps) ** 0.5; return a, beta - a * mu",
            "a = gamma * torch.rsqrt(variance + eps); return [a, torch.addcmul(beta, a, mu, value=-1)]",
            solution_of("01", "scale_and_shift"),
        ],
        wrong=[
            "a = gamma / (variance.sqrt() + eps); return a, beta - a * mu",
            "a = gamma / variance.sqrt(); return a, beta - a * mu",
            "a = gamma / (variance + eps); return a, beta - a * mu",
            "a = gamma.abs() / (variance + eps) ** 0.5; return a, beta - a * mu",
            "a = gamma / (variance + eps) ** 0.5; return a, beta - mu",
            "a = gamma / (variance + eps) ** 0.5; return a, beta + a * mu",
            "a = gamma / (variance + eps) ** 0.5; return beta - a * mu, a",
            "a = gamma / (variance + eps) ** 0.5; return a",
            "return torch.ones_like(mu), torch.zeros_like(mu)",
        ],
    )


def test_fold_into_convolution():
    start = "a = gamma / torch.sqrt(variance + eps); b = torch.zeros_like(mu) if b is None else b; "
    try_answers(
        "fold_into_convolution",
        "W, b, gamma, beta, mu, variance, eps",
        right=[
            start + "return W * a[:, None, None, None], a * b + beta - a * mu",
            start + "return torch.einsum('oihw,o->oihw', W, a), beta + a * (b - mu)",
            solution_of("01", "fold_into_convolution"),
        ],
        wrong=[
            start + "return W * a[None, :, None, None], a * b + beta - a * mu",
            start + "return W * a[:, None, None, None], b + beta - a * mu",
            start + "return W * a[:, None, None, None], beta - a * mu",
            start + "return W * a[:, None, None, None], a * (b + beta - mu)",
            start + "return W, a * b + beta - a * mu",
            start + "return W * a, a * b + beta - a * mu",
            "a = gamma / torch.sqrt(variance + eps); return W * a[:, None, None, None], a * b + beta - a * mu",
        ],
    )


def test_the_learner_cannot_change_the_inputs():
    body = "W.zero_(); mu.zero_(); beta.zero_(); return W, beta"
    try_answers("fold_into_convolution", "W, b, gamma, beta, mu, variance, eps", right=[], wrong=[body])
    assert torch.is_grad_enabled()
