FRESH = """
new = nn.Conv2d(conv.in_channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding,
                conv.dilation, conv.groups, padding_mode=conv.padding_mode, dtype=conv.weight.dtype)
"""

ANSWERS = {
    "output_size": {
        "right": [
            "return len(range(0, size + 2 * padding - kernel + 1, stride))",
            ("return ", "return np.int64(", "+ 1", "+ 1)"),
            (
                "(size + 2 * padding - kernel) // stride + 1",
                "torch.tensor((size + 2 * padding - kernel) // stride + 1)",
            ),
        ],
        "wrong": [
            (" + 1", ""),
            (") // stride + 1", " + 1) // stride"),
            ("2 * padding", "padding"),
            (" + 2 * padding", ""),
            ("//", "/"),
            ("return ", "print(", "1", "1)"),
            ("return (", "return -(-(", "stride", "stride)"),
            ("return (", "return round((", "// stride", "/ stride)"),
            "return size // stride",
            ("return ", "import numpy as np; return np.floor(", "//", "/", "+ 1", ") + 1"),
        ],
        "base": "return (size + 2 * padding - kernel) // stride + 1",
    },
    "convolve": {
        "right": [
            (", dtype=x.dtype", ""),
            "x = F.pad(x, (padding,) * 4).unfold(0, len(W), stride).unfold(1, len(W), stride)\n"
            "return torch.einsum('ijuv,uv->ij', x, W) + b",
        ],
        "wrong": [
            ("(padding, padding, padding, padding)", "(padding, padding)"),
            ("top, left = i * stride,", "top, left = i,"),
            ("b + ", ""),
            ("b + (W * x", "(b + W * x"),
            ("W * x", "W.flip(0, 1) * x"),
            ("K, stride, padding)", "K, stride, padding) - 1"),
            ("y[i, j]", "y[j % rows, i % columns]"),
            ("W * x", "W + x"),
            ("return y", "return y[None]"),
            (
                "return F.conv2d(x[None, None], W[None, None], stride=stride, padding=padding)[0, "
                "0] + b"
            ),
            (
                "return torch.conv2d(x[None, None], W[None, None], "
                "torch.tensor([b], dtype=x.dtype), stride, padding)[0, 0]"
            ),
        ],
    },
    "update_statistics": {
        "right": [
            "f = y.transpose(0, 1).flatten(1); "
            "return mu.lerp(f.mean(1), momentum), variance.lerp(f.var(1), momentum)",
        ],
        "wrong": [
            ("y.var((0, 2, 3))", "y.var((0, 2, 3), unbiased=False)"),
            ("old = 1 - momentum", "old, momentum = momentum, 1 - momentum"),
            ("old = 1 - momentum", "momentum = 0.1; old = 1 - momentum"),
            ("y.var", "y.std"),
            ("old * variance", "variance"),
            ("y.mean((0, 2, 3))", "y.mean()"),
            "return y.mean((0, 2, 3)), y.var((0, 2, 3))",
        ],
        "base": "m, v = y.mean((0, 2, 3)), y.var((0, 2, 3)); old = 1 - momentum\n"
        "return old * mu + momentum * m, old * variance + momentum * v",
    },
    "scale_and_shift": {
        "right": [
            "a = gamma * torch.rsqrt(variance + eps); "
            "return [a, torch.addcmul(beta, a, mu, value=-1)]",
        ],
        "wrong": [
            ("(variance + eps) ** 0.5", "(variance.sqrt() + eps)"),
            ("(variance + eps) ** 0.5", "variance.sqrt()"),
            (" ** 0.5", ""),
            ("gamma", "gamma.abs()"),
            ("a * mu", "mu"),
            ("beta - a", "beta + a"),
            ("a, beta - a * mu", "beta - a * mu, a"),
            (", beta - a * mu", ""),
            "return torch.ones_like(mu), torch.zeros_like(mu)",
        ],
        "base": "a = gamma / (variance + eps) ** 0.5; return a, beta - a * mu",
    },
    "fold_into_convolution": {
        "right": [
            (
                "W * a[:, None, None, None], a * b + beta - a * mu",
                "torch.einsum('oihw,o->oihw', W, a), beta + a * (b - mu)",
            ),
            ("W * a[:, None, None, None]", "W.mul(a.reshape(-1, 1, 1, 1))"),
        ],
        "wrong": [
            (
                "W * a[:, None, None, None], a * b + beta - a * mu",
                "(W * a[:, None, None, None]).float(), (a * b + beta - a * mu).float()",
            ),
            ("a[:, None,", "a[None, :,"),
            ("a * b + beta", "b + beta"),
            ("a * b + beta", "beta"),
            ("W * a[", "W, a["),
            ("a * b + beta - a * mu", "a * (b + beta - mu)"),
            (" * a[:, None, None, None]", ""),
            ("[:, None, None, None]", ""),
            ("; return", "; b = b + torch.zeros(W.shape[1]); return"),
            (", a * b + beta - a * mu", ""),
            (" b = torch.zeros_like(mu) if b is None else b; ", ""),
            "W.zero_(); mu.zero_(); beta.zero_(); return W, beta",
        ],
        "base": "a = gamma / torch.sqrt(variance + eps); "
        "b = torch.zeros_like(mu) if b is None else b; "
        "return W * a[:, None, None, None], a * b + beta - a * mu",
    },
    "fold_conv_bn": {
        "right": [
            ("new = copy.deepcopy(conv)", FRESH.replace("\n", " ").strip()),
            ("if bn.weight is None", "if not bn.affine"),
        ],
        "wrong": [
            ("copy.deepcopy(conv)", "conv"),
            ("bn.training or ", ""),
            ("if bn.num_features != conv.out_channels", "if 0"),
            ("ValueError", "KeyError"),
            ("torch.ones_like(mu) if bn.weight is None else bn.weight", "bn.weight"),
            ("torch.zeros_like(mu) if bn.bias is None else bn.bias", "bn.bias"),
            ("conv.bias, gamma", "None, gamma"),
            ("raise ValueError(", "return ("),
            ("bn.eps)", "0.0)"),
            ("new = copy.deepcopy(conv)", "new = nn.Conv2d(4, 4, 3, dtype=torch.float64)"),
            ("copy.deepcopy(conv)", "copy.deepcopy(conv); new.padding_mode = 'zeros'"),
            ("return new", "return nn.Sequential(conv, bn)"),
            ("return new", "return new.float()"),
            ("nn.Parameter(b.detach())", "nn.Parameter(b.detach().float())"),
        ],
    },
}

TRIALS = {
    "output_size": [
        ("both|two sides|twice", "return (size + padding - kernel) // stride + 1"),
        ("first|one more|off by one|start", "return (size + 2 * padding - kernel) // stride"),
        ("whole|round", "return (size + 2 * padding - kernel) / stride + 1"),
        ("down|up", "return math.ceil((size + 2 * padding - kernel) / stride) + 1"),
        (
            "divide|in full",
            "padded = size + 2 * padding; return (padded - kernel + 1) // stride",
        ),
    ],
    "convolve": [
        ("flip|mirror|upside", ("W * x[", "W.flip(0, 1) * x[")),
        ("stride|step", ("top, left = i * stride, j * stride", "top, left = i, j")),
        (r"\bb\b|bias", ("b + (W", "(W")),
        (
            "once|every|each",
            (
                "b + (W * x[top : top + K, left : left + K]).sum()",
                "(W * x[top : top + K, left : left + K] + b).sum()",
            ),
        ),
    ],
    "update_statistics": [
        (
            "n - 1|unbiased|biased|n-1",
            "m = y.mean((0, 2, 3)); v = y.var((0, 2, 3), unbiased=False)\n"
            "return mu + momentum * (m - mu), variance + momentum * (v - variance)",
        ),
        (
            "momentum|old",
            "return (momentum * mu + (1 - momentum) * y.mean((0, 2, 3)),\n"
            "        momentum * variance + (1 - momentum) * y.var((0, 2, 3)))",
        ),
        (
            "variance|square|standard deviation|spread",
            "return ((1 - momentum) * mu + momentum * y.mean((0, 2, 3)),\n"
            "        (1 - momentum) * variance + momentum * y.std((0, 2, 3)))",
        ),
    ],
    "scale_and_shift": [
        ("eps", "a = gamma / variance.sqrt(); return a, beta - mu * a"),
        ("root|sqrt", "a = gamma / (variance + eps); return a, beta - mu * a"),
        ("sign|subtract|minus", "a = gamma / (variance + eps).sqrt(); return a, beta + mu * a"),
        ("eps", "a = gamma / (variance.sqrt() + eps); return a, beta - mu * a"),
        ("mean|mu|multipl", "a = gamma / (variance + eps).sqrt(); return a, beta - mu"),
    ],
    "fold_into_convolution": [
        (
            "axis|first|output channel",
            "a = gamma * (variance + eps).rsqrt(); b = 0 if b is None else b\n"
            "return W * a.view(1, -1, 1, 1), a * (b - mu) + beta",
        ),
        (
            "bias|b ",
            "a = gamma * (variance + eps).rsqrt(); b = 0 if b is None else b\n"
            "return W * a.view(-1, 1, 1, 1), b - a * mu + beta",
        ),
        (
            "bias|b ",
            "a = gamma * (variance + eps).rsqrt()\nreturn W * a.view(-1, 1, 1, 1), beta - a * mu",
        ),
        ("None|no bias|without", ("if b is None:\n        b = torch.zeros_like(mu)", "pass")),
    ],
    "fold_conv_bn": [
        ("copy|changes|left as", ("copy.deepcopy(conv)", "conv")),
        ("train", ("bn.training or bn.running_mean is None", "bn.running_mean is None")),
        (
            "stride|padding|groups|settings",
            (
                "copy.deepcopy(conv)",
                "nn.Conv2d(conv.in_channels, conv.out_channels, conv.kernel_size)",
            ),
        ),
        ("eps", ("bn.eps)", "1e-5)")),
        (
            "None|affine",
            (
                "torch.ones_like(mu) if bn.weight is None else bn.weight",
                "bn.weight",
                "torch.zeros_like(mu) if bn.bias is None else bn.bias",
                "bn.bias",
            ),
        ),
        (
            "None|affine",
            (
                "torch.ones_like(mu) if bn.weight is None else bn.weight",
                "bn.weight.detach()",
                "torch.zeros_like(mu) if bn.bias is None else bn.bias",
                "bn.bias.detach()",
            ),
        ),
    ],
}
