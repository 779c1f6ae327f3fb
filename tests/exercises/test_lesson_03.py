from tests.exercises.trying import solution_of, try_answers


def test_fold_addition():
    start = (
        "C = W.shape[0]; b = torch.zeros(C, dtype=W.dtype) if b is None else b; z = torch.as_tensor(z, dtype=W.dtype); "
    )
    try_answers(
        "fold_addition",
        "W, b, z",
        right=[
            start + "return W, b + z.flatten()",
            start + "return W.clone(), b + z.reshape(-1).expand(C)",
            start + "return W.float(), (b + z.flatten()).float()",
            solution_of("03", "fold_addition"),
        ],
        wrong=[
            "return W, b + z",
            "return W, b",
            start + "return W, z.flatten().expand(C)",
            start + "return W, b - z.flatten()",
            "return (W, torch.full((len(W),), z, dtype=W.dtype) if b is None else b + torch.as_tensor(z).flatten())",
            start + "return W + z, b",
            start + "return W, b + z.mean()",
            start + "return W * z, b + z.flatten()",
        ],
    )


def test_fold_into_linear():
    start = "a = gamma / torch.sqrt(variance + eps); "
    try_answers(
        "fold_into_linear",
        "W, b, gamma, beta, mu, variance, eps",
        right=[
            start + "return W * a[:, None], a * (b - mu) + beta",
            start + "return torch.diag(a) @ W, a * b + beta - a * mu",
            solution_of("03", "fold_into_linear"),
        ],
        wrong=[
            start + "return W * a, a * (b - mu) + beta",
            start + "return W * a[:, None], a * b + beta",
            start + "return W * a[:, None], b + beta - a * mu",
            start + "return W * a[:, None], a * (b - mu)",
            start + "return W, a * (b - mu) + beta",
            "a = gamma / torch.sqrt(variance); return W * a[:, None], a * (b - mu) + beta",
        ],
    )


def test_scale_transposed():
    try_answers(
        "scale_transposed",
        "W, a, groups",
        right=[
            "rows, out = W.shape[:2]; "
            "return W * a.view(groups, 1, out).expand(groups, rows // groups, out).reshape(rows, out, 1, 1)",
            "return torch.cat([w * v[None, :, None, None] for w, v in zip(W.chunk(groups), a.chunk(groups))])",
            solution_of("03", "scale_transposed"),
        ],
        wrong=[
            "return W * a[:, None, None, None]",
            "return W * a[None, : W.shape[1], None, None]",
            "return W * a.view(-1, W.shape[1])[0][None, :, None, None]",
            "return W * a.mean()",
            "n = W.shape[1]\nfor g in range(groups): W[g * n :][:n] *= a[g * n :][None, :n, None, None]\nreturn W",
            "return W",
            "return W * a.flip(0)[: W.shape[1]][None, :, None, None]",
        ],
    )


def test_careful_fold():
    solution = solution_of("03", "careful_fold")

    def without(part: str, instead: str = "") -> str:
        assert part in solution
        return solution.replace(part, instead)

    try_answers(
        "careful_fold",
        "model",
        right=[
            solution,
            without("len(source.users) == 1 and", "len(source.users) == 1 and norm.eps > 0 and"),
            without("    graph_module.recompile()\n", "    graph_module.recompile()\n    graph_module.graph.lint()\n"),
        ],
        wrong=[
            without("copy.deepcopy(model)", "model").replace("new = copy.deepcopy(conv)", "new = conv"),
            without("len(source.users) == 1 and "),
            without("called.count(source.target) == 1 and "),
            without(" and source.target not in read"),
            without("not norm.training and "),
            without(" or watched"),
            without(" or norm._forward_hooks"),
            without("if norm.weight is not None:", "if False:"),
            without("conv.weight * a[:, None, None, None]", "conv.weight * a"),
            without("    graph_module.recompile()\n"),
            "from torch import fx; return fx.symbolic_trace(model)",
            "return model",
        ],
    )
