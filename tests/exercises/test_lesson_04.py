import textwrap

from tests.exercises.trying import solution_of, try_answers


def test_intensity():
    try_answers(
        "intensity",
        "c_in, c_out, side, kernel, groups",
        right=[
            "w = c_out * c_in // groups * kernel**2; p = side**2; return 2 * w * p / (4 * (c_in * p + w + c_out * p))",
            "W = torch.zeros(c_out, c_in // groups, kernel, kernel); x = torch.zeros(c_in, side, side); "
            "y = torch.zeros(c_out, side, side); "
            "return 2 * y.numel() * W[0].numel() / (x.nbytes + y.nbytes + W.nbytes)",
            solution_of("04", "intensity"),
        ],
        wrong=[
            "w = c_out * c_in // groups * kernel**2; p = side**2; return w * p / (4 * (c_in * p + w + c_out * p))",
            "w = c_out * c_in * kernel**2; p = side**2; return 2 * w * p / (4 * (c_in * p + w + c_out * p))",
            "w = c_out * c_in // groups * kernel**2; p = side**2; return 2 * w * p / (c_in * p + w + c_out * p)",
            "w = c_out * c_in // groups * kernel**2; p = side**2; return 2 * w * p / (4 * (c_in * p + c_out * p))",
            "w = c_out * c_in // groups * kernel**2; p = side**2; return 2 * w * p / (4 * (w + c_out * p))",
            "w = c_out * c_in // groups * kernel; p = side**2; return 2 * w * p / (4 * (c_in * p + w + c_out * p))",
        ],
    )


BODY = """
modules, found = dict(graph_module.named_modules()), []
for node in graph_module.graph.nodes:
    if {test}:
        found.append(node.name)
return found
"""
RELU = 'node.op == "call_module" and type(modules[node.target]) is nn.ReLU'
CONV = 'node.args[0].op == "call_module" and type(modules[node.args[0].target]) is nn.Conv2d'


def test_fusable():
    def body(*tests):
        return BODY.format(test=" and ".join((RELU, *tests)))

    try_answers(
        "fusable",
        "graph_module",
        right=[
            body(CONV, "len(node.args[0].users) == 1"),
            body(CONV, "list(node.args[0].users) == [node]").replace("node.name", "node"),
            solution_of("04", "fusable"),
        ],
        wrong=[
            body(CONV),
            body("len(node.args[0].users) == 1"),
            body(CONV, "len(node.users) == 1"),
            body(CONV, "len(node.args[0].users) == 1", "len(node.users) == 1"),
            body(CONV, "len(node.args[0].users) == 1").replace("node.name", "node.args[0].name"),
            body(CONV, "len(node.args[0].users) <= 2"),
            "return []",
            "m, nodes = dict(graph_module.named_modules()), list(graph_module.graph.nodes)\n"
            "return [b.name for a, b in zip(nodes, nodes[1:]) if a.op == b.op == 'call_module'\n"
            "        and type(m[a.target]) is nn.Conv2d and type(m[b.target]) is nn.ReLU]",
        ],
    )


def test_waits_for_itself():
    closure = """
reach = {{start: {{end for s, end in edges if s == start}} for start, _ in edges}}
for _ in edges:
    for start in reach:
        for middle in list(reach[start]):
            reach[start] |= reach.get(middle, set())
group = set(group)
outside = {{node for edge in edges for node in edge}} - group
return any({test} for node in outside)
"""
    left = "any(node in reach.get(g, ()) for g in group)"
    back = "reach.get(node, set()) & group"
    direct = "set(group) & {{e for s, e in edges if s == n}} and set(group) & {{s for s, e in edges if e == n}}"
    try_answers(
        "waits_for_itself",
        "edges, group",
        right=[
            closure.format(test=f"{left} and bool({back})"),
            solution_of("04", "waits_for_itself"),
        ],
        wrong=[
            closure.format(test=left),
            closure.format(test=f"bool({back})"),
            f"return any({direct.format()} for n in {{n for e in edges for n in e}} - set(group))",
            f"return any({direct.format()} for n in {{n for e in edges for n in e}})",
            "out = {e for s, e in edges if s in group and e not in group}\n"
            "out |= {e for s, e in edges if s in out and e not in group}\n"
            "return any(s in out and e in group for s, e in edges)",
            "return True",
            "return False",
            "return len(edges) >= len({n for e in edges for n in e})",
        ],
    )


def test_match():
    right = solution_of("04", "match")

    def instead(part: str, other: str) -> str:
        assert part in right
        return right.replace(part, other)

    try_all = """
from itertools import permutations
if isinstance(pattern, str):
    return [bound | {pattern: node}] if bound.get(pattern, node) is node else []
if node.target is not pattern[0] or len(node.args) != len(pattern) - 1:
    return []
found = []
for args in permutations(node.args) if pattern[0] in commutative else [node.args]:
    some = [bound]
    for part, arg in zip(pattern[1:], args):
        some = [new for old in some for new in match(part, arg, old, commutative)]
    found += some
return found
"""
    try_answers(
        "match",
        "pattern, node, bound",
        right=[
            right,
            f"import operator\n\n\ndef match(pattern, node, bound, commutative=(operator.add, operator.mul)):"
            f"{textwrap.indent(try_all, '    ')}",
            instead("[operands, operands[::-1]]", "[operands[::-1], operands]"),
        ],
        wrong=[
            instead("[operands, operands[::-1]]", "[operands]"),
            instead(" if target in commutative else [operands]", ""),
            instead("bound.get(pattern, node) is node", "True"),
            instead(" is target and", " is not None and"),
            instead(" and len(node.args) == len(operands)", ""),
            instead("{**bound, pattern: node}", "{pattern: node}"),
            instead(
                "in match(patterns[0], nodes[0], bound, commutative)", "in [*match(patterns[0], nodes[0], bound)][:1]"
            ),
            instead("            yield from match_all(order", "            return (yield from match_all(order").replace(
                "node.args, bound, commutative)\n", "node.args, bound, commutative))\n"
            ),
            instead("    for one in match(", "    for one in [bound] and match(").replace(
                "nodes[1:], one,", "nodes[1:], bound,"
            ),
            "return []",
        ],
    )


def test_partition():
    right = solution_of("04", "partition")

    def instead(part: str, other: str) -> str:
        assert part in right
        return right.replace(part, other)

    sorter = """
from graphlib import CycleError, TopologicalSorter
home, groups = {}, []
for node in supported:
    for group in groups:
        if not any(end == node and start in group for start, end in edges):
            continue
        trial = home | {node: id(group)}
        reads = {}
        for start, end in edges:
            if trial.get(start, start) != trial.get(end, end):
                reads.setdefault(trial.get(end, end), set()).add(trial.get(start, start))
        try:
            TopologicalSorter(reads).prepare()
        except CycleError:
            continue
        group.append(node)
        home = trial
        break
    else:
        groups.append([node])
        home[node] = id(groups[-1])
return groups
"""
    alone = """
groups = []
for node in supported:
    for group in groups:
        if any(end == node and start in group for start, end in edges) and not waits_for_itself(edges, [*group, node]):
            group.append(node)
            break
    else:
        groups.append([node])
return groups
"""
    try_answers(
        "partition",
        "edges, supported",
        right=[right, sorter, instead("groups.append([node])", "groups += [[node]]")],
        wrong=[
            alone,
            instead(" and not closes_a_cycle(trial)", ""),
            instead("read & set(group) and ", ""),
            instead("                break\n", ""),
            instead("enumerate(groups):\n            trial", "list(enumerate(groups))[-1:]:\n            trial"),
            instead("    for node in supported:", "    for node in dict.fromkeys(n for edge in edges for n in edge):"),
            instead("            groups.append([node])\n", "            pass\n"),
            instead("if not first:", "if len(first) < 2:"),
            "return [[node] for node in supported]",
            "return [list(supported)]",
        ],
    )
