CALLS = "not calls or "
START = (
    "C = len(W); b = torch.zeros(C, dtype=W.dtype) if b is None else b; "
    "z = torch.as_tensor(z, dtype=W.dtype); "
)

ANSWERS = {
    "fold_addition": {
        "right": [
            START + "return W, b + z.flatten()",
            START + "return W.clone(), b + z.reshape(-1).expand(C)",
            START + "return W.float(), (b + z.flatten()).float()",
        ],
        "wrong": [
            "return W, b + z",
            "return W, b",
            START + "return W, z.flatten().expand(C)",
            START + "return W, b - z.flatten()",
            (
                "return (W, torch.full((len(W),), z, dtype=W.dtype) if b is None else b + "
                "torch.as_tensor(z).flatten())"
            ),
            START + "return W + z, b",
            START + "return W, b + z.mean()",
            START + "return W * z, b + z.flatten()",
        ],
    },
    "fold_into_linear": {
        "right": [
            ("W * a[:, None], a * (b - mu) + beta", "torch.diag(a) @ W, a * b + beta - a * mu"),
        ],
        "wrong": [
            ("[:, None]", ""),
            ("a * (b - mu)", "a * b"),
            ("a * (b - mu) + beta", "b + beta - a * mu"),
            (" + beta", ""),
            (" * a[:, None]", ""),
            (" + eps", ""),
        ],
        "base": "a = gamma / torch.sqrt(variance + eps); "
        "return W * a[:, None], a * (b - mu) + beta",
    },
    "scale_transposed": {
        "right": [
            "rows, out = W.shape[:2]; return W * a.view(groups, 1, out).expand(groups, rows // "
            "groups, out).reshape(rows, out, 1, 1)",
            (
                "return torch.cat([w * v[None, :, None, None] for w, v in "
                "zip(W.chunk(groups), a.chunk(groups))])"
            ),
        ],
        "wrong": [
            "return W * a[:, None, None, None]",
            "return W * a[None, : W.shape[1], None, None]",
            "return W * a.view(-1, W.shape[1])[0][None, :, None, None]",
            "return W * a.mean()",
            (
                "n = W.shape[1]\n"
                "for g in range(groups): W[g * n :][:n] *= a[g * n :][None, :n, None, None]\n"
                "return W"
            ),
            "return W",
            "return W * a.flip(0)[: W.shape[1]][None, :, None, None]",
        ],
    },
    "careful_fold": {
        "right": [
            ("len(source.users) == 1 and", "len(source.users) == 1 and norm.eps > 0 and"),
            (
                "    graph_module.recompile()\n",
                "    graph_module.recompile()\n    graph_module.graph.lint()\n",
            ),
        ],
        "wrong": [
            (
                "copy.deepcopy(model)",
                "model",
                "graph_module.set_submodule(source.target, folded)",
                "conv.weight, conv.bias = folded.weight, folded.bias",
            ),
            ("len(source.users) == 1 and ", ""),
            ("called.count(source.target) == 1 and ", ""),
            (" and source.target not in read", ""),
            ("            continue\n        graph", "            folded = conv\n        graph"),
            (" or watched", ""),
            (" or norm._forward_hooks", ""),
            ("type(conv) is not nn.Conv2d", "not hasattr(conv, 'groups')"),
            ("fold_conv_bn(conv, norm)", "copy.deepcopy(conv)"),
            ("    graph_module.recompile()\n", ""),
            "from torch import fx; return fx.symbolic_trace(model)",
            "return model",
            ("graph_module.set_submodule(source.target, folded)", "graph_module.conv = folded"),
            (CALLS, ""),
            (
                "graph_module.set_submodule(source.target, folded)",
                "setattr(graph_module, source.target, folded)",
            ),
        ],
    },
}

TRIALS = {
    "fold_addition": [
        ("shape|flat", "return W, z if b is None else b + z"),
        ("None|no bias|without", "return W, b + torch.as_tensor(z).flatten()"),
        (r"\bW\b|weight", "b = torch.zeros(len(W)) if b is None else b\nreturn W + z, b"),
        (
            "keep|old|lost|b ",
            "return W, torch.as_tensor(z, dtype=W.dtype).flatten().expand(len(W))",
        ),
    ],
    "fold_into_linear": [
        (
            "row|axis|first|output",
            "a = gamma / (variance + eps).sqrt(); return W * a, a * (b - mu) + beta",
        ),
        (
            "bias|b ",
            "a = gamma / (variance + eps).sqrt(); return W * a[:, None], b - a * mu + beta",
        ),
        ("eps", "a = gamma / variance.sqrt(); return W * a[:, None], a * (b - mu) + beta"),
    ],
    "scale_transposed": [
        ("axis|first|output", "return W * a[: len(W), None, None, None]"),
        ("group", "return W * a[: W.shape[1]].view(1, -1, 1, 1)"),
    ],
    "careful_fold": [
        ("user|read|twice", ("len(source.users) == 1 and ", "")),
        ("hook", ("if not alone or watched:", "if not alone:")),
        ("call", (" and called.count(source.target) == 1", "")),
        (
            "ransposed|Conv2d|type",
            ("type(conv) is not nn.Conv2d", "not isinstance(conv, nn.modules.conv._ConvNd)"),
        ),
        ("get_attr|weight", (" and source.target not in read", "")),
    ],
}
