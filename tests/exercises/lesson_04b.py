IN_PYTHON = """
rows, places = weight.reshape(-1, 4).tolist(), []
for row in rows:
    small = sorted(range(4), key=lambda place: abs(row[place]))[:2]
    places.append([place for place in range(4) if place not in small])
    for place in small:
        row[place] = 0.0
return torch.tensor(rows).reshape(weight.shape), torch.tensor(places)
"""
LARGE = "fours = weight.reshape(-1, 4); mask = fours.abs() >= fours.abs().sort(1).values[:, 2:3]\n"
BY_PAIRS = """
graph = graph_module.graph
def axes_of(node):
    return [axis % len(node.args[1]) for axis in node.args[1]]
changed = True
while changed:
    permutes = [node for node in graph.nodes if node.target is torch.permute]
    pairs = [node for node in permutes if node.args[0].target is torch.permute]
    for node in pairs[:1]:
        inner = axes_of(node.args[0])
        node.args = (node.args[0].args[0], tuple(inner[axis] for axis in axes_of(node)))
    changed = bool(pairs)
for node in list(graph.nodes):
    if node.target is torch.permute and axes_of(node) == list(range(len(node.args[1]))):
        node.replace_all_uses_with(node.args[0])
for node in reversed(list(graph.nodes)):
    if node.op == "call_function" and not node.users:
        graph.erase_node(node)
graph_module.recompile()
"""
NEW_NODES = """
graph = graph_module.graph
for node in list(graph.nodes):
    root, axes = node, list(range(len(node.args[1]))) if node.target is torch.permute else []
    while root.target is torch.permute:
        axes = [root.args[1][axis] % len(axes) for axis in axes]
        root = root.args[0]
    if axes == sorted(axes):
        node.replace_all_uses_with(root) if root is not node else None
    else:
        with graph.inserting_before(node):
            node.replace_all_uses_with(graph.call_function(torch.permute, (root, tuple(axes))))
graph.eliminate_dead_code()
graph_module.recompile()
"""

ANSWERS = {
    "keep_two_of_four": {
        "right": [
            IN_PYTHON,
            "fours = weight.reshape(-1, 4); order = fours.abs().argsort(1); "
            "kept = order[:, 2:].sort(1)[0]\n"
            "return fours.scatter(1, order[:, :2], 0.0).view_as(weight), kept",
        ],
        "wrong": [
            (".abs()", ""),
            (".sort(1).values", ""),
            f"{LARGE}return (fours * mask).reshape(weight.shape), "
            "mask.nonzero()[:, 1].reshape(-1, 2)",
            "fours = weight.reshape(-1, 4)\n"
            "small = fours.abs().argsort(1, stable=True)[:, :2]\n"
            "large = fours.abs().argsort(1, descending=True, stable=True)[:, :2]\n"
            "return fours.scatter(1, small, 0.0).view_as(weight), large.sort(1).values",
            f"{LARGE}kept = fours.abs().topk(2, dim=1).indices.sort(1).values\n"
            "return (fours * mask).reshape(weight.shape), kept",
            (".topk(2, dim=1)", ".topk(2, dim=1, largest=False)"),
            ("reshape(-1, 4)", "reshape(4, -1).T"),
            (".topk(2, dim=1)", ".topk(3, dim=1)"),
            ("fours.gather", "fours.abs().gather"),
            ("return torch.zeros_like(fours)", "return fours"),
            "fours = weight.reshape(-1, 4); kept = fours.abs().topk(2, "
            "dim=1).indices.sort(1).values\n"
            "return weight * (weight.abs() > 1.5), kept",
            "kept = weight.abs().topk(weight.shape[1] // 2, dim=1).indices.sort(1).values\n"
            "return torch.zeros_like(weight).scatter(1, kept, weight.gather(1, kept)), "
            "(kept % 4).reshape(-1, 2)",
        ],
    },
    "merge_permutes": {
        "right": [BY_PAIRS, NEW_NODES],
        "wrong": [
            ("inner[axis] for axis in axes", "axes[axis] for axis in inner"),
            ("    graph_module.recompile()\n", ""),
            ("    graph.eliminate_dead_code()\n", ""),
            ("axis % len(axes) for axis", "axis for axis"),
            ("axis % len(axes) for axis", "axis % 4 for axis"),
            ("axes == sorted(axes)", "axes == [0, 1, 2, 3]"),
            ("            node.replace_all_uses_with(source)", "            pass"),
            (
                "node.replace_all_uses_with(source)",
                "node.replace_all_uses_with(node.args[0].args[0])",
            ),
            (
                "source.target is torch.permute:",
                "source.target is torch.permute and len(source.users) < 2:",
            ),
            (
                "            source, axes = source.args[0], [",
                "            source, axes = source, [",
            ),
            ("    for node in graph.nodes:", "    for node in reversed(graph.nodes):"),
            "pass",
            "graph = graph_module.graph\n"
            "for node in graph.nodes:\n"
            "    if node.target is torch.permute and node.args[0].target is torch.permute:\n"
            "        node.replace_all_uses_with(node.args[0].args[0])\n"
            "graph.eliminate_dead_code(); graph_module.recompile()",
        ],
    },
}

TRIALS = {
    "keep_two_of_four": [
        ("magnitude|absolute|sign|negative", ("fours.abs().topk", "fours.topk")),
        ("sort|order", (".indices.sort(1).values", ".indices")),
        (
            "four",
            "kept = weight.abs().topk(2, dim=1).indices.sort(1).values\n"
            "return torch.zeros_like(weight).scatter(1, kept, weight.gather(1, kept)), kept",
        ),
        ("large|small", (".topk(2, dim=1)", ".topk(2, dim=1, largest=False)")),
    ],
    "merge_permutes": [
        (
            "order|inner|outer|other way",
            ("[inner[axis] for axis in axes]", "[axes[axis] for axis in inner]"),
        ),
        ("recompile|code", ("    graph_module.recompile()\n", "")),
        ("dead|remov|erase|unused", ("    graph.eliminate_dead_code()\n", "")),
        (
            "negative|below 0|from the end|-1",
            ("axes = [axis % len(axes) for axis in axes]", "axes = list(axes)"),
        ),
        (
            "identity|nothing|order|cancel",
            (
                (
                    "        if axes == sorted(axes):\n"
                    "            node.replace_all_uses_with(source)\n"
                ),
                "",
            ),
        ),
    ],
}
