CLOSURE = """
reach = {{start: {{end for s, end in edges if s == start}} for start, _ in edges}}
for _ in edges:
    for start in reach:
        for middle in list(reach[start]):
            reach[start] |= reach.get(middle, set())
group = set(group)
outside = {{node for edge in edges for node in edge}} - group
return any({test} for node in outside)
"""
LEFT = "any(node in reach.get(g, ()) for g in group)"
BACK = "reach.get(node, set()) & group"
DIRECT = (
    "set(group) & {{e for s, e in edges if s == n}} and set(group) & {{s for s, e in edges if e == "
    "n}}"
)
TRY_ALL = """
import operator
from itertools import permutations

def match(pattern, node, bound, commutative=(operator.add, operator.mul)):
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
SORTER = """
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
ALONE = """
groups = []
for node in supported:
    for group in groups:
        reads = any(end == node and start in group for start, end in edges)
        if reads and not waits_for_itself(edges, [*group, node]):
            group.append(node)
            break
    else:
        groups.append([node])
return groups
"""

ANSWERS = {
    "waits_for_itself": {
        "right": [
            CLOSURE.format(test=f"{LEFT} and bool({BACK})"),
            "group = set(group)\n"
            "reach = {e for s, e in edges if s in group} - group\n"
            "for _ in edges:\n"
            "    reach |= {e for s, e in edges if s in reach - group}\n"
            "return bool(reach & group)",
            "edges, group = set(edges), set(group)\n"
            "reach = {e for s, e in edges if s in group} - group\n"
            "while more := {e for s, e in edges if s in reach - group} - reach:\n"
            "    reach |= more\n"
            "return any((s, e) in edges for s in reach - group for e in group)",
        ],
        "wrong": [
            CLOSURE.format(test=LEFT),
            CLOSURE.format(test=f"bool({BACK})"),
            f"return any({DIRECT.format()} for n in {{n for e in edges for n in e}} - set(group))",
            f"return any({DIRECT.format()} for n in {{n for e in edges for n in e}})",
            "out = {e for s, e in edges if s in group and e not in group}\n"
            "out |= {e for s, e in edges if s in out and e not in group}\n"
            "return any(s in out and e in group for s, e in edges)",
            "return True",
            "return False",
            "return len(edges) >= len({n for e in edges for n in e})",
        ],
    },
    "match": {
        "right": [
            TRY_ALL,
            ("[operands, operands[::-1]]", "[operands[::-1], operands]"),
        ],
        "wrong": [
            ("[operands, operands[::-1]]", "[operands]"),
            (" if target in commutative else [operands]", ""),
            ("if target in commutative", "if target in (operator.add, operator.mul)"),
            ("bound.get(pattern, node) is node", "True"),
            TRY_ALL.replace(" if bound.get(pattern, node) is node else []", ""),
            TRY_ALL.replace(
                "[bound | {pattern: node}] if bound.get(pattern, node) is node else []",
                "[{pattern: node} | bound]",
            ),
            (" is target and", " is not None and"),
            (" and len(node.args) == len(operands)", ""),
            ("{**bound, pattern: node}", "{pattern: node}"),
            (
                "in match(patterns[0], nodes[0], bound, commutative)",
                "in [*match(patterns[0], nodes[0], bound)][:1]",
            ),
            (
                "            yield from match_all(order",
                "            return (yield from match_all(order",
                "node.args, bound, commutative)\n",
                "node.args, bound, commutative))\n",
            ),
            (
                "    for one in match(",
                "    for one in [bound] and match(",
                "nodes[1:], one,",
                "nodes[1:], bound,",
            ),
            "def match(pattern, node, bound, commutative=()):\n    return []",
        ],
    },
    "partition": {
        "right": [SORTER, ("groups.append([node])", "groups += [[node]]")],
        "wrong": [
            ALONE,
            (" and not closes_a_cycle(trial)", ""),
            ("read & set(group) and ", ""),
            ("                break\n", ""),
            (
                "enumerate(groups):\n            trial",
                "list(enumerate(groups))[-1:]:\n            trial",
            ),
            (
                "    for node in supported:",
                "    for node in dict.fromkeys(n for edge in edges for n in edge):",
            ),
            ("            groups.append([node])\n", "            pass\n"),
            ("if not first:", "if len(first) < 2:"),
            ('("group", number)', "number"),
            "return [[node] for node in supported]",
            "return [list(supported)]",
        ],
    },
}

TRIALS = {
    "waits_for_itself": [
        (
            "leave|outside|back|come",
            "group = set(group)\n"
            "return any(start not in group and end in group for start, end in edges)",
        ),
        (
            "far|several|longer|path|more than one",
            "group = set(group)\n"
            "out = {end for start, end in edges if start in group} - group\n"
            "return any(start in out and end in group for start, end in edges)",
        ),
        ("outside|leave|inside", ("if start in group and end not in group", "if start in group")),
    ],
    "match": [
        (
            "order|commut|swap|either",
            ("[operands, operands[::-1]] if target in commutative else [operands]", "[operands]"),
        ),
        ("commut|order", (" if target in commutative else [operands]", "")),
        ("same|bound|already|twice", ("if bound.get(pattern, node) is node:", "if True:")),
        (
            "same|bound|already|twice",
            TRY_ALL.replace(" if bound.get(pattern, node) is node else []", ""),
        ),
        (
            "same|bound|already|twice",
            (
                "if bound.get(pattern, node) is node:\n            yield {**bound, pattern: node}",
                "yield bound if pattern in bound else {**bound, pattern: node}",
            ),
        ),
        ("number of|how many|length|count", (" and len(node.args) == len(operands)", "")),
        (
            "all|every|first solution|one",
            (
                "        yield from match_all(patterns[1:], nodes[1:], one, commutative)",
                "        yield from match_all(patterns[1:], nodes[1:], one, commutative)\n"
                "        return",
            ),
        ),
    ],
    "partition": [
        ("cycle|wait|come back", (" and not closes_a_cycle(trial)", "")),
        ("reads|edge|connected|neighbour", ("read & set(group) and ", "")),
        (
            "all groups|other groups|together|every group|each other",
            (
                "trial = groups[:number] + [[*group, node]] + groups[number + 1 :]",
                "trial = [[*group, node]]",
            ),
        ),
        (
            "one group|only|twice|first",
            (
                "                group.append(node)\n"
                "                break\n"
                "        else:\n"
                "            groups.append([node])",
                "                group.append(node)\n"
                "        groups.append([node]) if not any(node in g for g in groups) else None",
            ),
        ),
    ],
}
