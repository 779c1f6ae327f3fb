from tests.exercises.trying import solution_of, try_answers


def test_measure_images():
    whole = "x = images.float() / 255; return x.mean((0, 2, 3)), x.std((0, 2, 3))"
    try_answers(
        "measure_images",
        "images",
        right=[
            whole,
            "x = images.double().movedim(1, 0).flatten(1) / 255\n"
            "return x.mean(1).tolist(), x.std(1, correction=0).tolist()",
            solution_of("11", "measure_images"),
        ],
        wrong=[
            whole.replace(" / 255", ""),
            "x = images.float() / 255; return [x.mean()], [x.std()]",
            "x = images.float() / 255; return x.mean((2, 3)).mean(0), x.std((2, 3)).mean(0)",
            "x = images.float() / 255; return x.mean((0, 2, 3)), x.mean((2, 3)).std(0)",
            "x = images.float() / 255; return x.mean((0, 2, 3)), x.var((0, 2, 3))",
            "x = images.float() / 255; return x.std((0, 2, 3)), x.mean((0, 2, 3))",
        ],
    )


FITS = """
def what_does_not_fit(expected, found):
    problems = []
    for name in sorted(expected.keys() | found.keys()):
        if name not in found:
            problems.append((name, "missing"))
        elif name not in expected:
            problems.append((name, "unexpected"))
        elif tuple(expected[name]) != tuple(found[name]):
            problems.append((name, "shape"))
    return problems
"""


def test_what_does_not_fit():
    try_answers(
        "what_does_not_fit",
        "expected, found",
        right=[FITS, FITS.replace("(name, ", "[name, ").replace('"))', '"])'), solution_of("11", "what_does_not_fit")],
        wrong=[
            FITS.replace("expected.keys() | found.keys()", "expected"),
            FITS.replace("expected.keys() | found.keys()", "found"),
            FITS.replace('"missing"', '"x"').replace('"unexpected"', '"missing"').replace('"x"', '"unexpected"'),
            FITS.replace("tuple(expected[name])", "sorted(expected[name])").replace("tuple(found", "sorted(found"),
            FITS.replace("return problems", "return problems[:1]"),
            FITS.replace("sorted(expected.keys() | found.keys())", "sorted(expected.keys() & found.keys())"),
        ],
    )


HOLDS = """
def smallest_that_holds(dense, candidates, drop):
    best = None
    for place, one in enumerate(candidates):
        d = one["right"].float() - dense.float()
        low = d.mean() - 1.96 * d.std() / len(d) ** 0.5
        if low >= -drop and (best is None or one["bytes"] < candidates[best]["bytes"]):
            best = place
    return best
"""


def test_smallest_that_holds():
    unpaired = "(one['right'].float().var() + dense.float().var()) ** 0.5"
    try_answers(
        "smallest_that_holds",
        "dense, candidates, drop",
        right=[HOLDS, HOLDS.replace("d.std()", "d.std(correction=0)"), solution_of("11", "smallest_that_holds")],
        wrong=[
            HOLDS.replace(" - 1.96 * d.std() / len(d) ** 0.5", ""),
            HOLDS.replace("- 1.96", "+ 1.96"),
            HOLDS.replace("d.std()", unpaired),
            HOLDS.replace("/ len(d) ** 0.5", ""),
            HOLDS.replace("<", ">"),
            HOLDS.replace(">= -drop", ">= drop"),
            HOLDS.replace("return best", "return best or 0"),
            HOLDS.replace("low >= -drop and ", ""),
        ],
    )
