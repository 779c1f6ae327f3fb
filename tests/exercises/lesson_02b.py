FIRST_FIT = """
offsets = []
for size, first, last in buffers:
    taken = sorted((o, o + s) for o, (s, f, l) in zip(offsets, buffers) if f <= last and first <= l)
    place = 0
    for begin, end in taken:
        if place + size <= begin:
            break
        place = max(place, end)
    offsets.append(place)
return offsets
"""

BY_CASES = """
found = {}
for node in graph_module.graph.nodes:
    if node.op != 'call_function':
        continue
    sides = list(node.args)
    for at, side in enumerate(sides):
        other = sides[1 - at] if len(sides) == 2 else None
        if not isinstance(side, (int, float)) or not isinstance(other, fx.Node):
            continue
        sum_or_product = node.target in (operator.add, operator.mul)
        if at == 0 and not sum_or_product:
            continue
        neutral = 0 if node.target in (operator.add, operator.sub) else 1
        if side == neutral and other.meta['val'].dtype == node.meta['val'].dtype:
            found[node] = other
return found
"""

ANSWERS = {
    "identities": {
        "right": [("(operator.add, operator.mul)", "{operator.add, operator.mul}")],
        "wrong": [
            ("side == neutral", "side == 1"),
            ("side == neutral", "side == 0"),
            ("side == neutral", "side in (0, 1)"),
            (" and other.meta['val'].dtype == node.meta['val'].dtype", ""),
            (
                "other.meta['val'].dtype == node.meta['val'].dtype",
                "node.meta['val'].dtype == torch.float32",
            ),
            ("if at == 0 and not sum_or_product", "if at == 0"),
            ("        if at == 0 and not sum_or_product:\n            continue\n", ""),
            ("(operator.add, operator.mul)", "(operator.add, operator.sub, operator.mul)"),
            ("(operator.add, operator.mul)", "(operator.mul,)"),
            ("(int, float)", "int"),
            ("(operator.add, operator.sub)", "(operator.add,)"),
            ("found[node] = other", "found[other] = node"),
            ("found[node] = other", "found[node.name] = other.name"),
            ("found[node] = other", "found[node] = other.name"),
            ("found[node] = other", "found[node] = found.get(other, other)"),
            ("return found", "return list(found)"),
            "return {}",
        ],
        "base": BY_CASES,
    },
    "place_buffers": {
        "right": [
            ("return offsets", "return torch.tensor(offsets)"),
            ("return offsets", "{b + (o,) for b, o in zip(buffers, offsets)}; return offsets"),
        ],
        "wrong": [
            ("f <= last and first <= l", "True"),
            ("f <= last and first <= l", "f < last and first < l"),
            ("f <= last and first <= l", "f <= first <= l"),
            ("size <= begin", "size < begin"),
            ("place = 0", "place = 8"),
            ("max(place, end)", "end"),
            ("sorted(", "list("),
            ("        if place + size <= begin:\n            break\n", ""),
            "return [0] * len(buffers)",
            "placed = []\n"
            "for size, first, last in buffers:\n"
            "    busy = [(o, o + s) for o, (s, f, l) in zip(placed, buffers) if f <= last and "
            "first <= l]\n"
            "    free = (p for p in [0, *(end for _, end in busy)] if "
            "all(p + size <= b or e <= p for b, e in busy))\n"
            "    placed.append(next(free))\n"
            "return placed",
            # best fit: the smallest gap that is large enough
            "placed = []\n"
            "for size, first, last in buffers:\n"
            "    busy = sorted((o, o + s) for o, (s, f, l) in zip(placed, buffers) if f <= last "
            "and first <= l)\n"
            "    end, gaps = 0, []\n"
            "    for b, e in busy:\n"
            "        gaps += [(b - end, end)] * (b - end >= size)\n"
            "        end = max(end, e)\n"
            "    placed.append(min(gaps)[1] if gaps else end)\n"
            "return placed",
        ],
        "base": FIRST_FIT,
    },
}

TRIALS = {
    "identities": [
        ("type|float", ('if node.meta["val"].dtype == kept.meta["val"].dtype:', "if True:")),
        ("0 - x|left|change", ("if swaps and not", "if not")),
        ("right|1 \\* x|left", ("kept, number = number, kept", "pass")),
        ("0|sum|difference", ("number == NEUTRAL[node.target]", "number == 1")),
        ("skip|own operand", ("found[node] = kept", "found[node] = found.get(kept, kept)")),
        ("number|operand|args", "return {}"),
    ],
    "place_buffers": [
        ("alive|same time|overlap", ("if begin <= last and first <= end", "if True")),
        (
            "gap|between|first|low",
            "offsets, end = [], 0\n"
            "for size, *_ in buffers:\n"
            "    offsets.append(end)\n"
            "    end += size\n"
            "return offsets",
        ),
        (
            "last|same step|end|both",
            ("begin <= last and first <= end", "begin < last and first < end"),
        ),
        ("sort|order", ("taken = sorted(\n", "taken = list(\n")),
        ("max|farthest|nested|back", ("max(place, end)", "end")),
        (
            "gap|between|room",
            "offsets = []\n"
            "for i, (size, first, last) in enumerate(buffers):\n"
            "    ends = [o + s for o, (s, f, l) in zip(offsets, buffers) if f <= last and "
            "first <= l]\n"
            "    offsets.append(max(ends, default=0))\n"
            "return offsets",
        ),
    ],
}
