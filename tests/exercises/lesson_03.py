MATCH = "        if source not in calls:\n            continue\n"
START = (
    "C = len(W); b = torch.zeros(C, dtype=W.dtype) if b is None else b; "
    "d = torch.as_tensor(d, dtype=W.dtype); "
)

ANSWERS = {
    "fold_addition": {
        "right": [
            START + "return W, b + d.flatten()",
            START + "return W.clone(), b + d.reshape(-1).expand(C)",
            START + "return W.float(), (b + d.flatten()).float()",
        ],
        "wrong": [
            "return W, b + d",
            "return W, b",
            START + "return W, d.flatten().expand(C)",
            START + "return W, b - d.flatten()",
            (
                "return (W, torch.full((len(W),), d, dtype=W.dtype) if b is None else b + "
                "torch.as_tensor(d).flatten())"
            ),
            START + "return W + d, b",
            START + "return W, b + d.mean()",
            START + "return W * d, b + d.flatten()",
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
            ("if output_shared or", "if norm.eps <= 0 or output_shared or"),
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
            ("output_shared or ", ""),
            ("layer_shared or ", ""),
            ("weight_read or ", ""),
            (
                'read.target.startswith(f"{source.target}.")',
                'read.target == f"{source.target}.weight"',
            ),
            ("            continue\n        graph", "            folded = conv\n        graph"),
            (" or hooked", ""),
            ("layer._forward_hooks or layer._forward_pre_hooks", "layer._forward_hooks"),
            ("(conv, norm)\n        )", "(conv,)\n        )"),
            ("(conv, norm)\n        )", "(norm,)\n        )"),
            ("type(conv) is not nn.Conv2d", "not hasattr(conv, 'groups')"),
            ("fold_conv_bn(conv, norm)", "copy.deepcopy(conv)"),
            ("    graph_module.recompile()\n", ""),
            ("graph_module.get_submodule(source.target)", "modules[source.target]"),
            "from torch import fx; return fx.symbolic_trace(model)",
            "return model",
            ("graph_module.set_submodule(source.target, folded)", "graph_module.conv = folded"),
            (MATCH, ""),
            (
                "graph_module.set_submodule(source.target, folded)",
                "setattr(graph_module, source.target, folded)",
            ),
        ],
    },
}

TRIALS = {
    "fold_addition": [
        ("shape|flat", "return W, d if b is None else b + d"),
        ("None|no bias|without", "return W, b + torch.as_tensor(d).flatten()"),
        (r"\bW\b|weight", "b = torch.zeros(len(W)) if b is None else b\nreturn W + d, b"),
        (
            "keep|old|lost|b ",
            "return W, torch.as_tensor(d, dtype=W.dtype).flatten().expand(len(W))",
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
        ("user|read|twice", ("output_shared or ", "")),
        ("hook", (" or hooked", "")),
        ("call", ("layer_shared or ", "")),
        (
            "ransposed|Conv2d|type",
            ("type(conv) is not nn.Conv2d", "not isinstance(conv, nn.modules.conv._ConvNd)"),
        ),
        ("get_attr|weight", ("weight_read or ", "")),
    ],
}
