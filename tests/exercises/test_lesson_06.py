from tests.exercises.trying import solution_of, try_answers


def test_weakest_channels():
    try_answers(
        "weakest_channels",
        "W, count",
        right=[
            "return W.abs().sum((1, 2, 3)).argsort()[:count]",
            "return W.flatten(1).norm(p=1, dim=1).topk(count, largest=False).indices.tolist()",
            solution_of("06", "weakest_channels"),
        ],
        wrong=[
            "return W.abs().sum((1, 2, 3)).argsort(descending=True)[:count]",
            "return W.sum((1, 2, 3)).argsort()[:count]",
            "return W.abs().amax((1, 2, 3)).argsort()[:count]",
            "return W.abs().sum((0, 2, 3)).argsort()[:count]",
            "return W.abs().sum((1, 2, 3)).argsort()[: count + 1]",
            "return list(range(count))",
        ],
    )


def test_prune_block():
    arguments = "W1, gamma, beta, mu, variance, W2, W3, keep"
    norm = "'gamma': gamma[keep], 'beta': beta[keep], 'mu': mu[keep], 'variance': variance[keep], "
    try_answers(
        "prune_block",
        arguments,
        right=[
            "return {'W1': W1[keep], " + norm + "'W2': W2[keep], 'W3': W3[:, keep]}",
            "return {'W1': W1.index_select(0, keep), "
            + norm
            + "'W2': W2[keep].clone(), 'W3': W3.index_select(1, keep)}",
            solution_of("06", "prune_block"),
        ],
        wrong=[
            "return {'W1': W1[keep], " + norm + "'W2': W2[keep], 'W3': W3[:, : len(keep)]}",
            "return {'W1': W1[keep], " + norm + "'W2': W2[: len(keep)], 'W3': W3[:, keep]}",
            "return {'W1': W1[: len(keep)], " + norm + "'W2': W2[keep], 'W3': W3[:, keep]}",
            "n = len(keep); return {'W1': W1[keep], 'gamma': gamma[:n], 'beta': beta[:n], 'mu': mu[:n], "
            "'variance': variance[:n], 'W2': W2[keep], 'W3': W3[:, keep]}",
            "return {'W1': W1[keep], " + norm + "'W2': W2[keep], 'W3': W3}",
            "return {'W1': W1, 'gamma': gamma, 'beta': beta, 'mu': mu, 'variance': variance, 'W2': W2, 'W3': W3}",
            "m = torch.zeros(len(W1)).double(); m[keep] = 1; return {'W1': W1, 'gamma': gamma, 'beta': beta, 'mu': mu, "
            "'variance': variance, 'W2': W2, 'W3': W3 * m[:, None, None]}",
        ],
    )


def test_cut_block():
    right = solution_of("06", "cut_block")

    def instead(part: str, other: str) -> str:
        assert part in right
        return right.replace(part, other)

    try_answers(
        "cut_block",
        "block, keep",
        right=[
            right,
            instead("copy.deepcopy(block)", "copy.deepcopy(block).eval()"),
            instead("cut_conv(project, columns=keep)", "cut_conv(project, columns=keep.tolist())"),
        ],
        wrong=[
            instead("copy.deepcopy(block)", "block"),
            instead("columns=keep)", "columns=torch.arange(len(keep)))"),
            instead("small.conv[2] = cut_conv(project, columns=keep)", "pass"),
            instead("cut_norm(depthwise_norm, keep)", "nn.BatchNorm2d(len(keep))"),
            instead("cut_norm(depthwise_norm, keep)", "cut_norm(norm, keep)"),
            instead("cut_conv(depthwise, rows=keep)", "cut_conv(small.conv[0][0], rows=keep)"),
            instead("cut_conv(expand, rows=keep)", "cut_conv(expand, rows=torch.arange(len(keep)))"),
            "return block",
        ],
    )


def test_tie_channels():
    right = solution_of("06", "tie_channels")

    def instead(part: str, other: str) -> str:
        assert part in right
        return right.replace(part, other)

    spread = """
marks = {name: {i} for i, (name, _, _) in enumerate(steps)}
for _ in steps:
    for name, kind, inputs in steps:
        for source in inputs if kind not in ("conv", "image") else ():
            marks[name] = marks[source] = marks[name] | marks[source]
found = {}
for name, kind, inputs in steps:
    if kind in ("conv", "depthwise"):
        found.setdefault(min(marks[name]), (set(), set()))[0].add(name)
    if kind == "conv" and inputs[0] != "x":
        found.setdefault(min(marks[inputs[0]]), (set(), set()))[1].add(name)
return found.values()
"""
    try_answers(
        "tie_channels",
        "steps",
        right=[right, spread, instead("parent[root(source)] = root(name)", "parent[root(name)] = root(source)")],
        wrong=[
            instead("parent[root(source)] = root(name)", "parent[source] = name"),
            instead("        while parent[name] != name:\n            name =", "        if name:\n            name ="),
            instead('"same", "add")', '"same")'),
            instead('in ("depthwise", "same", "add")', 'in ("same", "add")'),
            instead('in ("depthwise", "same", "add")', 'in ("depthwise", "same", "add", "conv")'),
            instead("for source in inputs if", "for source in inputs[:1] if"),
            instead('kind in ("conv", "depthwise")', 'kind == "conv"'),
            instead('if kind == "conv":', 'if kind in ("conv", "depthwise"):'),
            instead(" if group[0]]", "]"),
            instead("[root(inputs[0])][1]", "[root(name)][1]"),
        ],
    )
