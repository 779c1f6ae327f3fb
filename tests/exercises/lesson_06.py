SPREAD = """
marks = {name: {i} for i, (name, _, _) in enumerate(steps)}
images = {name for name, kind, _ in steps if kind == "image"}
for _ in steps:
    for name, kind, inputs in steps:
        for source in inputs if kind not in ("conv", "image") else ():
            marks[name] = marks[source] = marks[name] | marks[source]
found = {}
for name, kind, inputs in steps:
    if kind in ("conv", "depthwise"):
        found.setdefault(min(marks[name]), (set(), set()))[0].add(name)
    if kind == "conv" and inputs[0] not in images:
        found.setdefault(min(marks[inputs[0]]), (set(), set()))[1].add(name)
return found.values()
"""

ANSWERS = {
    "weakest_channels": {
        "right": [
            "return W.flatten(1).norm(p=1, dim=1).topk(count, largest=False).indices.tolist()",
        ],
        "wrong": [
            ("argsort()", "argsort(descending=True)"),
            (".abs()", ""),
            (".sum", ".amax"),
            (".abs()", ".square()"),
            ("(1, 2, 3)", "(0, 2, 3)"),
            ("count", "count + 1"),
            "return list(range(count))",
        ],
        "base": "return W.abs().sum((1, 2, 3)).argsort()[:count]",
    },
    "loss_change": {
        "right": [
            "W.requires_grad_(); loss(W).backward(); return (W * W.grad).flatten(1).sum(1).abs()",
            "s = torch.func.grad(loss)(W); return torch.einsum('oikl,oikl->o', W, s).abs()",
        ],
        "wrong": [
            (".sum((1, 2, 3)).abs()", ".abs().sum((1, 2, 3))"),
            (".abs()", ""),
            ("W * slopes", "slopes"),
            ("W * slopes", "W"),
            ("(1, 2, 3)", "(0, 2, 3)"),
            (".sum((", ".mean(("),
            ("W * slopes", "W * slopes / loss(W)"),
            (
                "return",
                "o = torch.eye(len(W)).bool()[..., None, None, None]\n    "
                "return torch.stack([(loss(W.masked_fill(one, 0)) - loss(W)).abs() for one in o]);",
            ),
            ("W = W.detach().clone().requires_grad_()", "W.requires_grad_(); W.data *= 2"),
        ],
    },
    "cut_block": {
        "right": [
            ("copy.deepcopy(block)", "copy.deepcopy(block).eval()"),
            ("cut_conv(project, columns=keep)", "cut_conv(project, columns=keep.tolist())"),
        ],
        "wrong": [
            ("copy.deepcopy(block)", "block"),
            "small = copy.deepcopy(block)\n"
            "for layer in (*small.conv[0][:2], *small.conv[1][:2]):\n"
            "    for t in (*layer.parameters(), *layer.buffers()):\n"
            "        if t.dim():\n"
            "            t.data = t.data[keep]\n"
            "small.conv[1][0].groups = len(keep)\n"
            "small.conv[2].weight.data = small.conv[2].weight.data[:, keep]\n"
            "return small",
            ("columns=keep)", "columns=torch.arange(len(keep)))"),
            ("small.conv[2] = cut_conv(project, columns=keep)", "pass"),
            ("cut_norm(depthwise_norm, keep)", "nn.BatchNorm2d(len(keep))"),
            ("cut_norm(depthwise_norm, keep)", "depthwise_norm"),
            ("cut_norm(norm, keep)\n", "norm\n"),
            ("cut_norm(depthwise_norm, keep)", "cut_norm(norm, keep)"),
            ("cut_conv(depthwise, rows=keep)", "cut_conv(small.conv[0][0], rows=keep)"),
            ("cut_conv(expand, rows=keep)", "cut_conv(expand, rows=torch.arange(len(keep)))"),
            "return block",
        ],
    },
    "tie_channels": {
        "right": [
            SPREAD,
            ("for source in inputs if", "for source in (inputs + [])[:] if"),
            ("parent[root(source)] = root(name)", "parent[root(name)] = root(source)"),
        ],
        "wrong": [
            ("parent[root(source)] = root(name)", "parent[source] = name"),
            (
                "        while parent[name] != name:\n            name =",
                "        if name:\n            name =",
            ),
            ('"same", "add")', '"same")'),
            ('in ("depthwise", "same", "add")', 'in ("same", "add")'),
            ('in ("depthwise", "same", "add")', 'in ("depthwise", "same", "add", "conv")'),
            ("for source in inputs if", "for source in inputs[:1] if"),
            ('kind in ("conv", "depthwise")', 'kind == "conv"'),
            ('if kind == "conv":', 'if kind in ("conv", "depthwise"):'),
            (" if group[0]]", "]"),
            ("[root(inputs[0])][1]", "[root(name)][1]"),
            SPREAD.replace("not in images", '!= "x"'),
        ],
    },
}

TRIALS = {
    "weakest_channels": [
        ("absolute|sign|magnitude", "return W.sum((1, 2, 3)).argsort()[:count].tolist()"),
        ("small|weak", "return W.abs().sum((1, 2, 3)).argsort(descending=True)[:count].tolist()"),
        ("axis|filter|output", "return W.abs().sum((0, 2, 3)).argsort()[:count].tolist()"),
        ("sum|largest|L1|add", "return W.abs().amax((1, 2, 3)).argsort()[:count].tolist()"),
        ("L1|square|absolute", "return W.flatten(1).norm(dim=1).argsort()[:count].tolist()"),
    ],
    "loss_change": [
        (
            "last|after|before|sum",
            ("(W * slopes).sum((1, 2, 3)).abs()", "(W * slopes).abs().sum((1, 2, 3))"),
        ),
        ("absolute|sign|abs", ("(W * slopes).sum((1, 2, 3)).abs()", "(W * slopes).sum((1, 2, 3))")),
        ("weight|W|multipl", ("(W * slopes)", "slopes")),
        ("mean|sum|add", ("(W * slopes).sum((1, 2, 3))", "(W * slopes).mean((1, 2, 3))")),
    ],
    "cut_block": [
        ("copy|changes|original", ("copy.deepcopy(block)", "block")),
        ("column|input|project", ("columns=keep)", "rows=keep)")),
        ("statistics|BatchNorm|norm", ("cut_norm(norm, keep)\n", "nn.BatchNorm2d(len(keep))\n")),
        (
            "keep|which|first",
            ("cut_conv(expand, rows=keep)", "cut_conv(expand, rows=torch.arange(len(keep)))"),
        ),
        ("BatchNorm.*(second|both)", ("cut_norm(depthwise_norm, keep)", "depthwise_norm")),
        ("BatchNorm.*(first|both)", ("cut_norm(norm, keep)\n", "norm\n")),
    ],
    "tie_channels": [
        ("root", ("parent[root(source)] = root(name)", "parent[source] = name")),
        ("all|every|both|two|each", ("for source in inputs if", "for source in inputs[:1] if")),
        ("depthwise", ('in ("depthwise", "same", "add")', 'in ("same", "add")')),
        ("add", ('in ("depthwise", "same", "add")', 'in ("depthwise", "same")')),
        ("input|reads", ("groups[root(inputs[0])][1]", "groups[root(name)][1]")),
        (
            "readers.*depthwise|depthwise.*reader",
            (
                'if kind == "conv":\n            groups',
                'if kind in ("conv", "depthwise"):\n            groups',
            ),
        ),
        ("without a writer|no writer|image", (" if group[0]]", "]")),
    ],
}
