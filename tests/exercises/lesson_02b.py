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

ANSWERS = {
    "place_buffers": {
        "right": [("return offsets", "return torch.tensor(offsets)")],
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
