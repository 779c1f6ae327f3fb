import torch

from tests.exercises.trying import solution_of, try_answers


def test_output_size():
    try_answers(
        "output_size",
        "size, kernel, stride, padding",
        right=[
            "return (size + 2 * padding - kernel) // stride + 1",
            "return len(range(0, size + 2 * padding - kernel + 1, stride))",
            "return np.int64((size + 2 * padding - kernel) // stride + 1)",
            "return torch.tensor((size + 2 * padding - kernel) // stride + 1)",
            solution_of("01", "output_size"),
        ],
        wrong=[
            "return (size + 2 * padding - kernel) // stride",
            "return (size + padding - kernel) // stride + 1",
            "return (size - kernel) // stride + 1",
            "return -(-(size + 2 * padding - kernel) // stride) + 1",
            "return (size + 2 * padding - kernel) / stride + 1",
            "return size // stride",
            "return round((size + 2 * padding - kernel) / stride) + 1",
            "print((size + 2 * padding - kernel) // stride + 1)",
        ],
    )


CONVOLVE = """
def convolve(x, W, b=0.0, stride=1, padding=0):
    K = len(W)
    x = F.pad(x, (padding,) * 4)
    rows, columns = [(size - K) // stride + 1 for size in x.shape]
    y = torch.zeros(rows, columns, dtype=x.dtype)
    for i in range(rows):
        for j in range(columns):
            y[i, j] = b + (W * x[i * stride : i * stride + K, j * stride : j * stride + K]).sum()
    return y
"""


def test_convolve():
    try_answers(
        "convolve",
        "x, W, b=0.0, stride=1, padding=0",
        right=[
            CONVOLVE,
            CONVOLVE.replace(", dtype=x.dtype", ""),
            "x = F.pad(x, (padding,) * 4).unfold(0, len(W), stride).unfold(1, len(W), stride)\n"
            "return torch.einsum('ijuv,uv->ij', x, W) + b",
            solution_of("01", "convolve"),
        ],
        wrong=[
            CONVOLVE.replace("(padding,) * 4", "(padding,) * 2"),
            CONVOLVE.replace("i * stride : i * stride + K", "i : i + K"),
            CONVOLVE.replace("b + ", ""),
            CONVOLVE.replace("(W * x", "b + (W.flip(0, 1) * x").replace("= b + b", "= b"),
            CONVOLVE.replace("// stride + 1", "// stride"),
            CONVOLVE.replace("y[i, j]", "y[j % rows, i % columns]"),
            CONVOLVE.replace("W * x", "W + x"),
            CONVOLVE.replace("return y", "return y[None]"),
        ],
    )


def test_update_statistics():
    right = "m, v = y.mean((0, 2, 3)), y.var((0, 2, 3)); old = 1 - momentum\n"
    right += "return old * mu + momentum * m, old * variance + momentum * v"
    try_answers(
        "update_statistics",
        "mu, variance, y, momentum",
        right=[
            right,
            "f = y.transpose(0, 1).flatten(1); return mu.lerp(f.mean(1), momentum), variance.lerp(f.var(1), momentum)",
            solution_of("01", "update_statistics"),
        ],
        wrong=[
            right.replace("y.var((0, 2, 3))", "y.var((0, 2, 3), unbiased=False)"),
            right.replace("old = 1 - momentum", "old, momentum = momentum, 1 - momentum"),
            right.replace("y.var", "y.std"),
            right.replace("old * variance", "variance"),
            right.replace("y.mean((0, 2, 3))", "y.mean()"),
            "return y.mean((0, 2, 3)), y.var((0, 2, 3))",
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
            start + "return (W * a[:, None, None, None]).float(), (a * b + beta - a * mu).float()",
            solution_of("01", "fold_into_convolution"),
        ],
        wrong=[
            start + "return W * a[None, :, None, None], a * b + beta - a * mu",
            start + "return W * a[:, None, None, None], b + beta - a * mu",
            start + "return W * a[:, None, None, None], beta - a * mu",
            start + "return W * a[:, None, None, None], a * (b + beta - mu)",
            start + "return W, a * b + beta - a * mu",
            start + "return W * a, a * b + beta - a * mu",
            start + "b = b + torch.zeros(W.shape[1]); return W * a[:, None, None, None], a * b + beta - a * mu",
            start + "return W * a[:, None, None, None]",
            "a = gamma / torch.sqrt(variance + eps); return W * a[:, None, None, None], a * b + beta - a * mu",
        ],
    )


FOLD = """
import copy

def fold_conv_bn(conv, bn):
    if bn.training or bn.running_mean is None or bn.num_features != conv.out_channels:
        raise ValueError("cannot be folded")
    gamma = bn.weight if bn.affine else torch.ones_like(bn.running_var)
    beta = bn.bias if bn.affine else torch.zeros_like(bn.running_var)
    a = gamma / (bn.running_var + bn.eps).sqrt()
    bias = 0 if conv.bias is None else conv.bias
    new = copy.deepcopy(conv)
    new.weight = nn.Parameter(conv.weight.detach() * a.detach()[:, None, None, None])
    new.bias = nn.Parameter((a * (bias - bn.running_mean) + beta).detach())
    return new
"""
FRESH = """
new = nn.Conv2d(conv.in_channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding, conv.dilation,
                conv.groups, padding_mode=conv.padding_mode, dtype=conv.weight.dtype)
"""


def test_fold_conv_bn():
    try_answers(
        "fold_conv_bn",
        "conv, bn",
        right=[
            FOLD,
            FOLD.replace("new = copy.deepcopy(conv)", FRESH.replace("\n", " ").strip()),
            solution_of("01", "fold_conv_bn"),
        ],
        wrong=[
            FOLD.replace("copy.deepcopy(conv)", "conv"),
            FOLD.replace("bn.training or ", ""),
            FOLD.replace("or bn.num_features != conv.out_channels", ""),
            FOLD.replace("ValueError", "KeyError"),
            FOLD.replace("bn.weight if bn.affine else torch.ones_like(bn.running_var)", "bn.weight"),
            FOLD.replace("(bias - bn", "(0 - bn"),
            FOLD.replace('raise ValueError("cannot be folded")', "return None"),
            FOLD.replace(" + bn.eps", ""),
            FOLD.replace("a.detach()[:, None, None, None]", "a.detach()"),
            FOLD.replace("new = copy.deepcopy(conv)", "new = nn.Conv2d(4, 4, 3, dtype=torch.float64)"),
            FOLD.replace("copy.deepcopy(conv)", "copy.deepcopy(conv); new.padding_mode = 'zeros'"),
            FOLD.replace("return new", "return nn.Sequential(conv, bn)"),
        ],
    )


def test_the_learner_cannot_change_the_inputs():
    body = "W.zero_(); mu.zero_(); beta.zero_(); return W, beta"
    try_answers("fold_into_convolution", "W, b, gamma, beta, mu, variance, eps", right=[], wrong=[body])
    assert torch.is_grad_enabled()
