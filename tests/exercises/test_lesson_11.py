# fmt: off
from tests.exercises.trying import assert_judged


def test_measure_images():
    body = "x = images.float() / 255; return x.mean((0, 2, 3)), x.std((0, 2, 3))"
    assert_judged("measure_images", base=body, right=[
        "x = images.double().movedim(1, 0).flatten(1) / 255\n"
        "return x.mean(1).tolist(), x.std(1, correction=0).tolist()",
    ], wrong=[
        (" / 255", ""), ("255", "256"), ("x.mean((0, 2, 3)), x.std((0, 2, 3))", "[x.mean()], [x.std()]"),
        ("((0, 2, 3))", "((2, 3)).mean(0)"), ("x.std((0, 2, 3))", "x.mean((2, 3)).std(0)"), (".std", ".var"),
        ("x.mean((0, 2, 3)), x.std((0, 2, 3))", "x.std((0, 2, 3)), x.mean((0, 2, 3))"),
    ])


def test_what_does_not_fit():
    assert_judged("what_does_not_fit", right=[
        ("(name, ", "[name, ", '"))', '"])'), ("expected.keys() | found.keys()", "{*expected, *found}"),
    ], wrong=[
        ("expected.keys() | found.keys()", "expected"), ("expected.keys() | found.keys()", "found"),
        ('"missing"', '"x"', '"unexpected"', '"missing"', '"x"', '"unexpected"'),
        ("tuple(expected[name])", "sorted(expected[name])", "tuple(found", "sorted(found"),
        ("return problems", "return problems[:1]"),
        ("sorted(expected.keys() | found.keys())", "sorted(expected.keys() & found.keys())"),
    ])


def test_smallest_that_holds():
    unpaired = "(one['right'].float().var() + dense.float().var()) ** 0.5"
    assert_judged("smallest_that_holds", right=[
        ("d.std()", "d.std(correction=0)"), ("lambda place: candidates[place]", "lambda at: candidates[at]"),
    ], wrong=[
        (" - 1.96 * d.std() / len(d) ** 0.5", ""), ("- 1.96", "+ 1.96"), ("d.std()", unpaired),
        ("/ len(d) ** 0.5", ""), ("min(holding", "max(holding"), (">= -drop", ">= drop"), ("=None", "=0"),
        (" if low(one) >= -drop", ""),
    ])
