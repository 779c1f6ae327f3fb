IDENTITY = (
    "node.op == 'call_module' and isinstance(graph_module.get_submodule(node.target), nn.Identity)"
)
BYPASS = "node.replace_all_uses_with(node.args[0]); graph_module.graph.erase_node(node)"
LOOP = (
    f"for node in list(graph_module.graph.nodes):\n    if {IDENTITY}:\n        {BYPASS}\n"
    "graph_module.recompile()\nreturn graph_module"
)
SKIPPED = (
    "            except Declined as reason:\n"
    "                declined = [(a_pass.name, str(reason))]\n"
    "            except ("
)
KEPT = "changed, declined = result.changed, result.declined\n"

ANSWERS = {
    "nodes_by_op": {
        "right": [
            "from collections import Counter; return Counter(node.op for node in graph.nodes)",
            "c = {}\nfor n in graph.nodes:\n    c[n.op] = c.get(n.op, 0) + 1\nreturn c",
        ],
        "wrong": [
            "return {'call_module': len(graph.nodes)}",
            (
                "from collections import Counter; "
                "return Counter(str(node.target) for node in graph.nodes)"
            ),
            "return len(graph.nodes)",
            "return {node.op: 1 for node in graph.nodes}",
            "c = {}\n"
            "for n in graph.nodes:\n"
            "    c[n.op] = c[n.op] + 1 if n.op in c else 0\n"
            "return c",
            "c = {}\nfor n in list(graph.nodes)[1:]:\n    c[n.op] = c.get(n.op, 0) + 1\nreturn c",
            (
                "c = {'get_attr': 0}\n"
                "for n in graph.nodes:\n"
                "    c[n.op] = c.get(n.op, 0) + 1\n"
                "return c"
            ),
        ],
    },
    "remove_identities": {
        "right": [
            ("\nreturn graph_module", ""),
            (
                "; graph_module.graph.erase_node(node)",
                "",
                "graph_module.recompile()",
                "graph_module.graph.eliminate_dead_code()\ngraph_module.recompile()",
            ),
        ],
        "wrong": [
            "return graph_module",
            "import copy\ngraph_module = copy.deepcopy(graph_module)\n" + LOOP,
            ("node.replace_all_uses_with(node.args[0]); ", ""),
            ("; graph_module.graph.erase_node(node)", ""),
            (IDENTITY, "node.op == 'call_module'"),
            ("graph_module.get_submodule(node.target)", "node.target"),
            (BYPASS, BYPASS + "; break"),
            ("args[0]", "prev"),
            ("nn.Identity", "(nn.Identity, nn.BatchNorm1d)"),
            (IDENTITY, IDENTITY + " and node.args[0].op == 'call_module'"),
            "for node in graph_module.graph.nodes:\n    node.op = 'output'\nreturn graph_module",
            (BYPASS, "graph_module.set_submodule(node.target, nn.ReLU())"),
            ("graph_module.recompile()\n", ""),
        ],
        "base": LOOP,
    },
    "run_passes": {
        "right": [
            ("class PassFailed(RuntimeError)", "class PassFailed(ValueError, RuntimeError)"),
            ("', '.join(before)", "', '.join(dict.fromkeys(before))"),
            (
                "error).__name__}: {error}",
                "error).__name__}",
                " (after ",
                " failed: before it ran (",
            ),
        ],
        "wrong": [
            ("                graph_module.graph = saved\n", ""),
            (SKIPPED, "            except ("),  # nothing to do would end the run
            (SKIPPED, "            except (Declined, "),  # or count as failed
            (SKIPPED, SKIPPED.replace("declined =", "changed =")),  # or as a change
            (SKIPPED, SKIPPED.replace("declined =", "result =")),  # or not be reported
            ("                a_pass.requires(graph_module)\n", ""),
            ("                a_pass.ensures(graph_module)\n", ""),
            ("                graph_module.graph.lint()\n", ""),
            ("                for check in checks:\n                    check(graph_module)\n", ""),
            (
                "                graph_module.recompile()\n                for",
                "                for",
            ),
            ("copy.deepcopy(graph_module.graph)", "graph_module.graph"),
            ("            before.append(a_pass.name)\n", ""),
            ("range(1, rounds + 1)", "range(1, rounds)"),
            ("rows[-len(some_passes) :]", "rows[-1:]"),
            ("            break\n", "            pass\n"),
            ("raise failed from error", "raise"),
            ("raise failed from error", "return rows"),
            (
                "not any(row[4] for row in rows[-len(some_passes) :])",
                "all(row[2] == row[3] for row in rows[-len(some_passes) :])",
            ),  # stops while nodes are only rewritten
            ("                failures.append(failed)\n", "                break\n"),
            (KEPT, KEPT.replace("result.declined", "[]")),
            ("(a_pass.name, str(reason))", "reason"),
            ("(a_pass.name, str(reason))", "(a_pass.name, reason)"),
            ('f"{a_pass.name}{ran}', 'f"a pass{ran}'),
        ],
    },
}

TRIALS = {
    "nodes_by_op": [
        (r"\bop\b", "import collections; return collections.Counter(n.name for n in graph.nodes)"),
        ("count|how often", "return dict.fromkeys((n.op for n in graph.nodes), 1)"),
        (
            "all|input|output|every",
            "return {'call_module': sum(n.op == 'call_module' for n in graph.nodes)}",
        ),
        (
            "first|one short|one too|start",
            "c = {}\n"
            "for n in graph.nodes:\n"
            "    c[n.op] = c[n.op] + 1 if n.op in c else 0\n"
            "return c",
        ),
    ],
    "remove_identities": [
        ("erase", ("            graph_module.graph.erase_node(node)\n", "")),
        ("recompile", ("    graph_module.recompile()\n", "")),
        (
            "reads|args|input",
            ("node.replace_all_uses_with(node.args[0])", "node.replace_all_uses_with(node.prev)"),
        ),
        ("Identity", (" and isinstance(graph_module.get_submodule(node.target), nn.Identity)", "")),
        (
            "every|all|first|several",
            ("erase_node(node)\n", "erase_node(node)\n            break\n"),
        ),
        ("target|name of", ("graph_module.get_submodule(node.target)", "node.target")),
    ],
    "run_passes": [
        ("copy|before", ("copy.deepcopy(graph_module.graph)", "graph_module.graph")),
        ("back|saved|restor", ("                graph_module.graph = saved\n", "")),
        (
            "round|stop|change",
            ("        if not any(row[4] for row", "        if all(row[4] for row"),
        ),
        (
            "check",
            ("                for check in checks:\n                    check(graph_module)\n", ""),
        ),
        ("before|after|earlier", (" (after {', '.join(before)})\"", '"')),
        ("nothing to do|Declined", (SKIPPED, "            except (Declined, ")),
        ("lint|order", ("                graph_module.graph.lint()\n", "")),
    ],
}
