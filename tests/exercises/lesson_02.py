# fmt: off
from tests.exercises.trying import Answers

LOOP = "for node in list(graph_module.graph.nodes):\n    if {}:\n        {}\n"
LOOP += "graph_module.recompile()\nreturn graph_module"
IDENTITY = "node.op == 'call_module' and isinstance(graph_module.get_submodule(node.target), nn.Identity)"
BYPASS = "node.replace_all_uses_with(node.args[0]); graph_module.graph.erase_node(node)"
KEPT = "changed, declined = result.changed, result.declined\n"
FIRST_FIT = (
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
FIT = {"alive": "f <= last and first <= l", "start": "0", "fits": "<="}

ANSWERS = {
    "nodes_by_op": Answers(right=[
        "from collections import Counter; return Counter(node.op for node in graph.nodes)",
        "c = {}\nfor n in graph.nodes:\n    c[n.op] = c.get(n.op, 0) + 1\nreturn c",
    ], wrong=[
        "return {'call_module': len(graph.nodes)}",
        "from collections import Counter; return Counter(str(node.target) for node in graph.nodes)",
        "return len(graph.nodes)", "return {node.op: 1 for node in graph.nodes}",
        "c = {}\nfor n in list(graph.nodes)[1:]:\n    c[n.op] = c.get(n.op, 0) + 1\nreturn c",
        "c = {'get_attr': 0}\nfor n in graph.nodes:\n    c[n.op] = c.get(n.op, 0) + 1\nreturn c",
    ]),
    "remove_identities": Answers(right=[
        LOOP.format(IDENTITY, BYPASS), LOOP.format(IDENTITY, BYPASS).removesuffix("\nreturn graph_module"),
    ], wrong=[
        "return graph_module", LOOP.format(IDENTITY, "graph_module.graph.erase_node(node)"),
        LOOP.format(IDENTITY, "node.replace_all_uses_with(node.args[0])"),
        LOOP.format("node.op == 'call_module'", BYPASS), LOOP.format(IDENTITY, BYPASS + "; break"),
        LOOP.format(IDENTITY, BYPASS.replace("args[0]", "prev")),
        LOOP.format(IDENTITY.replace("nn.Identity", "(nn.Identity, nn.BatchNorm1d)"), BYPASS),
        LOOP.format(IDENTITY + " and node.args[0].op == 'call_module'", BYPASS),
        "for node in graph_module.graph.nodes:\n    node.op = 'output'\nreturn graph_module",
        LOOP.format(IDENTITY, "graph_module.set_submodule(node.target, nn.ReLU())"),
        LOOP.format(IDENTITY, BYPASS).replace("graph_module.recompile()\n", ""),
    ]),
    "run_passes": Answers(right=[
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
        (KEPT, KEPT.replace("result.declined", "[]")), ('f"{a_pass.name}{after}', 'f"a pass{after}'),
    ]),
    "place_buffers": Answers(right=[
        FIRST_FIT.format(**FIT),
        FIRST_FIT.format(**FIT).replace("return offsets", "return torch.tensor(offsets)"),
    ], wrong=[
        FIRST_FIT.format(**FIT | {"alive": "True"}),
        FIRST_FIT.format(**FIT | {"alive": "f < last and first < l"}),
        FIRST_FIT.format(**FIT | {"alive": "f <= first <= l"}), FIRST_FIT.format(**FIT | {"fits": "<"}),
        FIRST_FIT.format(**FIT | {"start": "8"}), FIRST_FIT.format(**FIT).replace("max(place, end)", "end"),
        FIRST_FIT.format(**FIT).replace("sorted(", "list("), "return [0] * len(buffers)",
        "placed = []\n"
        "for size, first, last in buffers:\n"
        "    busy = [(o, o + s) for o, (s, f, l) in zip(placed, buffers) if f <= last and first <= l]\n"
        "    free = (p for p in [0, *(end for _, end in busy)] if all(p + size <= b or e <= p for b, e in busy))\n"
        "    placed.append(next(free))\n"
        "return placed",
    ]),
}
