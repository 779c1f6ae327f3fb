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
            loop.format(identity + " and node.args[0].op == 'call_module'", bypass),
            "for node in gm.graph.nodes:\n    node.op = 'output'\nreturn gm",
            loop.format(identity, "gm.set_submodule(node.target, nn.ReLU())"),
        ],
    )
