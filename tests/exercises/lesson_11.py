UNPAIRED = "(one['right'].float().var() + dense.float().var()) ** 0.5"
SORTED = "sorted(expected.keys() | found.keys())"
ORDERS = (
    "[*sorted(expected), *sorted(found.keys() - expected.keys())]",
    "[*expected, *(name for name in found if name not in expected)]",
    "[*sorted(found), *sorted(expected.keys() - found.keys())]",
)
AMONG_HOLDING = """
holding = []
for c in candidates:
    d = c["right"].float() - dense.float()
    if d.mean() - 1.96 * d.std() / len(d) ** 0.5 >= -drop:
        holding.append(c["bytes"])
return holding.index(min(holding)) if holding else None
"""

ANSWERS = {
    "measure_images": {
        "right": [
            "x = images.double().movedim(1, 0).flatten(1) / 255\n"
            "return x.mean(1).tolist(), x.std(1, correction=0).tolist()",
        ],
        "wrong": [
            (" / 255", ""),
            ("255", "256"),
            ("x.mean((0, 2, 3)), x.std((0, 2, 3))", "[x.mean()], [x.std()]"),
            ("((0, 2, 3))", "((2, 3)).mean(0)"),
            ("x.std((0, 2, 3))", "x.mean((2, 3)).std(0)"),
            (".std", ".var"),
            ("x.mean((0, 2, 3)), x.std((0, 2, 3))", "x.std((0, 2, 3)), x.mean((0, 2, 3))"),
        ],
        "base": "x = images.float() / 255; return x.mean((0, 2, 3)), x.std((0, 2, 3))",
    },
    "what_does_not_fit": {
        "right": [
            ("(name, ", "[name, ", '"))', '"])'),
            ("expected.keys() | found.keys()", "{*expected, *found}"),
        ],
        "wrong": [
            ("expected.keys() | found.keys()", "expected"),
            ("expected.keys() | found.keys()", "found"),
            ('"missing"', '"x"', '"unexpected"', '"missing"', '"x"', '"unexpected"'),
            ("tuple(expected[name])", "sorted(expected[name])", "tuple(found", "sorted(found"),
            ("return problems", "return problems[:1]"),
            *((SORTED, order) for order in ORDERS),
            ("sorted(expected.keys() | found.keys())", "sorted(expected.keys() & found.keys())"),
        ],
    },
    "smallest_that_holds": {
        "right": [
            ("d.std()", "d.std(correction=0)"),
            ("lambda place: candidates[place]", "lambda at: candidates[at]"),
        ],
        "wrong": [
            (" - 1.96 * d.std() / len(d) ** 0.5", ""),
            ("- 1.96", "+ 1.96"),
            ("1.96 * ", ""),
            ("1.96", "1.645"),
            ("1.96", "2.58"),
            ("d.std()", UNPAIRED),
            ("/ len(d) ** 0.5", ""),
            ("min(holding", "max(holding"),
            (">= -drop", ">= drop"),
            ("=None", "=0"),
            AMONG_HOLDING,
            (" if low(one) >= -drop", ""),
        ],
    },
    "lost_and_won": {
        "right": [
            "found = torch.zeros(classes, 2, dtype=torch.long)\n"
            "for way, place in ((before & ~after, 0), (after & ~before, 1)):\n"
            "    found[:, place].index_add_(0, labels[way], "
            "torch.ones(int(way.sum()), dtype=torch.long))\n"
            "return found.tolist()",
            "side = lambda way: [int((way & (labels == one)).sum()) for one in range(classes)]\n"
            "return list(zip(side(before > after), side(after > before)))",
        ],
        "wrong": [
            ("before & ~after", "after & ~before", "after & ~before", "before & ~after"),
            (", minlength=classes", ""),
            ("before & ~after", "~after"),
            ("after & ~before", "after"),
            ("won.tolist()", "lost.tolist()"),
            ("before & ~after", "before"),
            ("minlength=classes", "minlength=10"),
            ("& ~after", "& after"),
        ],
    },
}

TRIALS = {
    "measure_images": [
        (
            "255",
            "x = images.double(); return x.mean((0, 2, 3)).tolist(), x.std((0, 2, 3)).tolist()",
        ),
        (
            "channel|three|axes|dim",
            "x = images.double() / 255; return [x.mean().item()] * 3, [x.std().item()] * 3",
        ),
        (
            "all images|over images|spread|each image|average",
            "x = images.double() / 255\n"
            "return x.mean((0, 2, 3)).tolist(), x.std((2, 3)).mean(0).tolist()",
        ),
        (
            "standard deviation|variance|root",
            "x = images.double() / 255\n"
            "return x.mean((0, 2, 3)).tolist(), x.var((0, 2, 3)).tolist()",
        ),
        (
            "255",
            "x = images.double() / 256\n"
            "return x.mean((0, 2, 3)).tolist(), x.std((0, 2, 3)).tolist()",
        ),
    ],
    "what_does_not_fit": [
        (
            "found|unexpected|only|both|one of the two",
            ("expected.keys() | found.keys()", "expected.keys()"),
        ),
        (
            "missing.*unexpected|swap|other way",
            ('"missing"', '"?"', '"unexpected"', '"missing"', '"?"', '"unexpected"'),
        ),
        ("shape", ('            problems.append((name, "shape"))', "            pass")),
        (
            "order|sort",
            (
                "in sorted(expected.keys() | found.keys())",
                "in [*expected, *(n for n in found if n not in expected)]",
            ),
        ),
        (
            "both|missing|one of the two",
            ("expected.keys() | found.keys()", "expected.keys() & found.keys()"),
        ),
        *(("sort", (SORTED, order)) for order in ORDERS),
    ],
    "smallest_that_holds": [
        (
            "interval|lower end|1.96|may have|margin",
            ("d.mean() - 1.96 * d.std() / len(d) ** 0.5", "d.mean()"),
        ),
        ("lower|minus|end", ("d.mean() - 1.96", "d.mean() + 1.96")),
        ("root|sqrt|number of images", ("d.std() / len(d) ** 0.5", "d.std()")),
        ("few|small|bytes", ("return min(holding", "return max(holding")),
        ("None", ("default=None", "default=0")),
        ("position.*candidates", AMONG_HOLDING),
        ("sign|minus|negative|-drop", (">= -drop", ">= drop")),
        (
            "pair|each image|same images",
            ("d.std()", "(one['right'].float().var() + dense.float().var()) ** 0.5"),
        ),
    ],
    "lost_and_won": [
        (
            "lost.*won|swap|other way|order|first",
            ("zip(lost.tolist(), won.tolist())", "zip(won.tolist(), lost.tolist())"),
        ),
        (
            "minlength|every class|all classes|classes|none",
            "lost = torch.bincount(labels[before & ~after])\n"
            "won = torch.bincount(labels[after & ~before])\n"
            "return list(zip(lost.tolist(), won.tolist()))",
        ),
        (
            "before|were right|were",
            "lost = torch.bincount(labels[~after], minlength=classes)\n"
            "won = torch.bincount(labels[after & ~before], minlength=classes)\n"
            "return list(zip(lost.tolist(), won.tolist()))",
        ),
        (
            "still|after|no longer|both",
            "lost = torch.bincount(labels[before], minlength=classes)\n"
            "won = torch.bincount(labels[after], minlength=classes)\n"
            "return list(zip(lost.tolist(), won.tolist()))",
        ),
    ],
}
