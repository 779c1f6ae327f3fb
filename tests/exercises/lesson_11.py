# fmt: off
UNPAIRED = "(one['right'].float().var() + dense.float().var()) ** 0.5"

ANSWERS = {
    "measure_images": {"right": [
        "x = images.double().movedim(1, 0).flatten(1) / 255\n"
        "return x.mean(1).tolist(), x.std(1, correction=0).tolist()",
    ], "wrong": [
        (" / 255", ""), ("255", "256"), ("x.mean((0, 2, 3)), x.std((0, 2, 3))", "[x.mean()], [x.std()]"),
        ("((0, 2, 3))", "((2, 3)).mean(0)"), ("x.std((0, 2, 3))", "x.mean((2, 3)).std(0)"), (".std", ".var"),
        ("x.mean((0, 2, 3)), x.std((0, 2, 3))", "x.std((0, 2, 3)), x.mean((0, 2, 3))"),
    ], "base": "x = images.float() / 255; return x.mean((0, 2, 3)), x.std((0, 2, 3))"},
    "what_does_not_fit": {"right": [
        ("(name, ", "[name, ", '"))', '"])'), ("expected.keys() | found.keys()", "{*expected, *found}"),
    ], "wrong": [
        ("expected.keys() | found.keys()", "expected"), ("expected.keys() | found.keys()", "found"),
        ('"missing"', '"x"', '"unexpected"', '"missing"', '"x"', '"unexpected"'),
        ("tuple(expected[name])", "sorted(expected[name])", "tuple(found", "sorted(found"),
        ("return problems", "return problems[:1]"),
        ("sorted(expected.keys() | found.keys())", "sorted(expected.keys() & found.keys())"),
    ]},
    "smallest_that_holds": {"right": [
        ("d.std()", "d.std(correction=0)"), ("lambda place: candidates[place]", "lambda at: candidates[at]"),
    ], "wrong": [
        (" - 1.96 * d.std() / len(d) ** 0.5", ""), ("- 1.96", "+ 1.96"), ("d.std()", UNPAIRED),
        ("/ len(d) ** 0.5", ""), ("min(holding", "max(holding"), (">= -drop", ">= drop"), ("=None", "=0"),
        (" if low(one) >= -drop", ""),
    ]},
    "lost_and_won": {"right": [
        "found = torch.zeros(classes, 2, dtype=torch.long)\n"
        "for way, place in ((before & ~after, 0), (after & ~before, 1)):\n"
        "    found[:, place].index_add_(0, labels[way], torch.ones(int(way.sum()), dtype=torch.long))\n"
        "return found.tolist()",
        "side = lambda way: [int((way & (labels == one)).sum()) for one in range(classes)]\n"
        "return list(zip(side(before > after), side(after > before)))",
    ], "wrong": [
        ("before & ~after", "after & ~before", "after & ~before", "before & ~after"), (", minlength=classes", ""),
        ("before & ~after", "~after"), ("after & ~before", "after"), ("won.tolist()", "lost.tolist()"),
        ("before & ~after", "before"), ("minlength=classes", "minlength=10"), ("& ~after", "& after"),
    ]},
}
