# fmt: off
from tests.exercises.trying import assert_judged


def test_nodes_by_op():
    assert_judged("nodes_by_op", right=[
        "from collections import Counter; return Counter(node.op for node in graph.nodes)",
        "c = {}\nfor n in graph.nodes:\n    c[n.op] = c.get(n.op, 0) + 1\nreturn c",
    ], wrong=[
        "return {'call_module': len(graph.nodes)}",
        "from collections import Counter; return Counter(str(node.target) for node in graph.nodes)",
        "return len(graph.nodes)", "return {node.op: 1 for node in graph.nodes}",
        "c = {}\nfor n in list(graph.nodes)[1:]:\n    c[n.op] = c.get(n.op, 0) + 1\nreturn c",
        "c = {'get_attr': 0}\nfor n in graph.nodes:\n    c[n.op] = c.get(n.op, 0) + 1\nreturn c",
    ])


def test_remove_identities():
    loop = "for node in list(graph_module.graph.nodes):\n    if {}:\n        {}\n"
    loop += "graph_module.recompile()\nreturn graph_module"
    identity = "node.op == 'call_module' and isinstance(graph_module.get_submodule(node.target), nn.Identity)"
    bypass = "node.replace_all_uses_with(node.args[0]); graph_module.graph.erase_node(node)"
    assert_judged("remove_identities", right=[
        loop.format(identity, bypass), loop.format(identity, bypass).removesuffix("\nreturn graph_module"),
    ], wrong=[
        "return graph_module", loop.format(identity, "graph_module.graph.erase_node(node)"),
        loop.format(identity, "node.replace_all_uses_with(node.args[0])"),
        loop.format("node.op == 'call_module'", bypass), loop.format(identity, bypass + "; break"),
        loop.format(identity, bypass.replace("args[0]", "prev")),
        loop.format(identity.replace("nn.Identity", "(nn.Identity, nn.BatchNorm1d)"), bypass),
        loop.format(identity + " and node.args[0].op == 'call_module'", bypass),
        "for node in graph_module.graph.nodes:\n    node.op = 'output'\nreturn graph_module",
        loop.format(identity, "graph_module.set_submodule(node.target, nn.ReLU())"),
        loop.format(identity, bypass).replace("graph_module.recompile()\n", ""),
    ])


def test_run_passes():
    kept = "changed, declined = result.changed, result.declined\n"
    assert_judged("run_passes", right=[
        ("class PassFailed(RuntimeError)", "class PassFailed(ValueError, RuntimeError)"),
        ("error).__name__}: {error}", "error).__name__}", " (after ", " failed: before it ran ("),
    ], wrong=[
        ("                graph_module.graph = saved\n", ""), ("                a_pass.requires(graph_module)\n", ""),
        ("                a_pass.ensures(graph_module)\n", ""), ("                graph_module.graph.lint()\n", ""),
        ("                for check in checks:\n                    check(graph_module)\n", ""),
        ("                graph_module.recompile()\n                for", "                for"),
        ("copy.deepcopy(graph_module.graph), len", "graph_module.graph, len"),
        ("            before.append(a_pass.name)\n", ""), ("range(1, rounds + 1)", "range(1, rounds)"),
        ("rows[-len(some_passes) :]", "rows[-1:]"), ("            break\n", "            pass\n"),
        ("raise failed from error", "raise"), ("raise failed from error", "return rows"),
        ("                failures.append(failed)\n", "                break\n"),
        (kept, kept.replace("result.declined", "[]")), ('f"{a_pass.name}{after}', 'f"a pass{after}'),
    ])


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
    assert_judged("place_buffers", right=[
        first_fit.format(**right),
        first_fit.format(**right).replace("return offsets", "return torch.tensor(offsets)"),
    ], wrong=[
        first_fit.format(**right | {"alive": "True"}),
        first_fit.format(**right | {"alive": "f < last and first < l"}),
        first_fit.format(**right | {"alive": "f <= first <= l"}), first_fit.format(**right | {"fits": "<"}),
        first_fit.format(**right | {"start": "8"}), first_fit.format(**right).replace("max(place, end)", "end"),
        first_fit.format(**right).replace("sorted(", "list("), "return [0] * len(buffers)",
        "placed = []\n"
        "for size, first, last in buffers:\n"
        "    busy = [(o, o + s) for o, (s, f, l) in zip(placed, buffers) if f <= last and first <= l]\n"
        "    free = (p for p in [0, *(end for _, end in busy)] if all(p + size <= b or e <= p for b, e in busy))\n"
        "    placed.append(next(free))\n"
        "return placed",
    ])
