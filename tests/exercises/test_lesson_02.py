from tests.exercises.trying import solution_of, try_answers


def test_nodes_by_op():
    try_answers(
        "nodes_by_op",
        "graph",
        right=[
            "from collections import Counter; return Counter(node.op for node in graph.nodes)",
            "c = {}\nfor n in graph.nodes:\n    c[n.op] = c.get(n.op, 0) + 1\nreturn c",
            solution_of("02", "nodes_by_op"),
        ],
        wrong=[
            "return {'call_module': len(graph.nodes)}",
            "from collections import Counter; return Counter(str(node.target) for node in graph.nodes)",
            "return len(graph.nodes)",
            "return {node.op: 1 for node in graph.nodes}",
            "c = {}\nfor n in list(graph.nodes)[1:]:\n    c[n.op] = c.get(n.op, 0) + 1\nreturn c",
            "c = {'get_attr': 0}\nfor n in graph.nodes:\n    c[n.op] = c.get(n.op, 0) + 1\nreturn c",
        ],
    )


def test_remove_identities():
    loop = "for node in list(gm.graph.nodes):\n    if {}:\n        {}\ngm.recompile()\nreturn gm"
    identity = "node.op == 'call_module' and isinstance(gm.get_submodule(node.target), nn.Identity)"
    bypass = "node.replace_all_uses_with(node.args[0]); gm.graph.erase_node(node)"
    try_answers(
        "remove_identities",
        "gm",
        right=[
            loop.format(identity, bypass),
            loop.format(identity, bypass).removesuffix("\nreturn gm"),
            solution_of("02", "remove_identities"),
        ],
        wrong=[
            "return gm",
            loop.format(identity, "gm.graph.erase_node(node)"),
            loop.format(identity, "node.replace_all_uses_with(node.args[0])"),
            loop.format("node.op == 'call_module'", bypass),
            loop.format(identity, bypass + "; break"),
            loop.format(identity, bypass.replace("args[0]", "prev")),
            loop.format(identity.replace("nn.Identity", "(nn.Identity, nn.BatchNorm1d)"), bypass),
            loop.format(identity + " and node.args[0].op == 'call_module'", bypass),
            "for node in gm.graph.nodes:\n    node.op = 'output'\nreturn gm",
            loop.format(identity, "gm.set_submodule(node.target, nn.ReLU())"),
            loop.format(identity, bypass).replace("gm.recompile()\n", ""),
        ],
    )


def test_run_passes():
    right = solution_of("02", "run_passes")

    def instead(part: str, other: str) -> str:
        assert part in right
        return right.replace(part, other)

    kept = "changed, declined = result.changed, result.declined\n"
    try_answers(
        "run_passes",
        "some_passes, graph_module, checks=(), rounds=1, failures=None",
        right=[
            right,
            instead("class PassFailed(RuntimeError)", "class PassFailed(ValueError, RuntimeError)"),
            instead("error).__name__}: {error}", "error).__name__}").replace(" (after ", " failed: before it ran ("),
        ],
        wrong=[
            instead("                graph_module.graph = saved\n", ""),
            instead("                a_pass.requires(graph_module)\n", ""),
            instead("                a_pass.ensures(graph_module)\n", ""),
            instead("                graph_module.graph.lint()\n", ""),
            instead("                for check in checks:\n                    check(graph_module)\n", ""),
            instead("                graph_module.recompile()\n                for", "                for"),
            instead("copy.deepcopy(graph_module.graph), len", "graph_module.graph, len"),
            instead("            before.append(a_pass.name)\n", ""),
            instead("range(1, rounds + 1)", "range(1, rounds)"),
            instead("rows[-len(some_passes) :]", "rows[-1:]"),
            instead("            break\n", "            pass\n"),
            instead("raise failed from error", "raise"),
            instead("raise failed from error", "return rows"),
            instead("                failures.append(failed)\n", "                break\n"),
            instead(kept, kept.replace("result.declined", "[]")),
            instead('f"{a_pass.name}{after}', 'f"a pass{after}'),
        ],
    )


def test_place_buffers():
    first_fit = (
        "offsets = []\n"
        "for size, first, last in buffers:\n"
        "    taken = sorted((o, o + s) for o, (s, f, l) in zip(offsets, buffers) if {alive})\n"
        "    place = {start}\n"
        "    for begin, end in taken:\n"
        "        if place + size {fits} begin:\n"
        "            break\n"
        "        place = max(place, end)\n"
        "    offsets.append(place)\n"
        "return offsets"
    )
    right = {"alive": "f <= last and first <= l", "start": "0", "fits": "<="}
    try_answers(
        "place_buffers",
        "buffers",
        right=[
            first_fit.format(**right),
            first_fit.format(**right).replace("return offsets", "return torch.tensor(offsets)"),
            solution_of("02", "place_buffers"),
        ],
        wrong=[
            first_fit.format(**right | {"alive": "True"}),
            first_fit.format(**right | {"alive": "f < last and first < l"}),
            first_fit.format(**right | {"alive": "f <= first <= l"}),
            first_fit.format(**right | {"fits": "<"}),
            first_fit.format(**right | {"start": "8"}),
            first_fit.format(**right).replace("max(place, end)", "end"),
            first_fit.format(**right).replace("sorted(", "list("),
            "return [0] * len(buffers)",
        ],
    )
