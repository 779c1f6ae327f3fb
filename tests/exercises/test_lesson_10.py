from tests.exercises.trying import solution_of, try_answers


def test_pareto_front():
    template = """
front = []
for i in range(len(costs)):
    beaten = False
    for j in range(len(costs)):
        if {beats}:
            beaten = True
    if not beaten:
        front.append(i)
return front
"""
    no_worse = "costs[j] <= costs[i] and accuracies[j] >= accuracies[i]"
    better = "(costs[j] < costs[i] or accuracies[j] > accuracies[i])"
    try_answers(
        "pareto_front",
        "costs, accuracies",
        right=[
            template.format(beats=f"{no_worse} and {better}"),
            "c, a = torch.tensor(costs), torch.tensor(accuracies)\n"
            "no_worse = (c[:, None] <= c) & (a[:, None] >= a)\nbetter = (c[:, None] < c) | (a[:, None] > a)\n"
            "return (~(no_worse & better).any(0)).nonzero().flatten()",
            solution_of("10", "pareto_front"),
        ],
        wrong=[
            template.format(beats=f"j != i and {no_worse}"),
            template.format(beats="costs[j] < costs[i] and accuracies[j] > accuracies[i]"),
            template.format(beats="accuracies[j] > accuracies[i]"),
            template.format(beats="costs[j] <= costs[i] and accuracies[j] > accuracies[i]"),
            template.format(beats="costs[j] < costs[i] and accuracies[j] >= accuracies[i]"),
            template.format(beats="costs[j] < costs[i]"),
            template.format(beats="costs[j] >= costs[i] and accuracies[j] <= accuracies[i] and i != j"),
            "return list(range(len(costs)))",
            template.format(beats=f"{no_worse} and {better}").replace("front.append(i)", "front.append(costs[i])"),
        ],
    )


def test_difference_interval():
    try_answers(
        "difference_interval",
        "right_a, right_b",
        right=[
            "d = right_b.double() - right_a.double(); m = 1.96 * d.std(correction=0) / len(d) ** 0.5; "
            "return d.mean() - m, d.mean() + m",
            "d = right_b.float() - right_a.float(); m = 1.96 * d.std() / len(d) ** 0.5; "
            "return (d.mean() - m).item(), (d.mean() + m).item()",
            solution_of("10", "difference_interval"),
        ],
        wrong=[
            "d = right_a.double() - right_b.double(); m = 1.96 * d.std() / len(d) ** 0.5; "
            "return d.mean() - m, d.mean() + m",
            "a, b = right_a.double(), right_b.double(); n = len(a); "
            "m = 1.96 * (a.var() / n + b.var() / n) ** 0.5; d = b.mean() - a.mean(); return d - m, d + m",
            "d = right_b.double() - right_a.double(); m = 1.96 * d.std(); return d.mean() - m, d.mean() + m",
            "d = right_b.double() - right_a.double(); m = d.std() / len(d) ** 0.5; return d.mean() - m, d.mean() + m",
            "d = right_b.double() - right_a.double(); m = 1.96 * d.std() / len(d); return d.mean() - m, d.mean() + m",
            "d = right_b.double() - right_a.double(); return d.min(), d.max()",
            "d = right_b.double() - right_a.double(); m = 2 * d.std() / len(d) ** 0.5; "
            "return d.mean() - m, d.mean() + m",
            "d = (right_b != right_a).double(); m = 1.96 * d.std() / len(d) ** 0.5; return d.mean() - m, d.mean() + m",
        ],
    )


SPEND = """
def spend_bits(harm, size, budget):
    bits = {layer: max(size[layer]) for layer in size}
    while sum(size[layer][n] for layer, n in bits.items()) > budget:
        best = None
        for layer, n in bits.items():
            lower = [m for m in size[layer] if m < n]
            if lower:
                m = max(lower)
                price = (harm[layer][m] - harm[layer][n]) / (size[layer][n] - size[layer][m])
                if best is None or price < best[0]:
                    best = price, layer, m
        if best is None:
            raise ValueError("too small")
        bits[best[1]] = best[2]
    return bits
"""


def test_spend_bits():
    try_answers(
        "spend_bits",
        "harm, size, budget",
        right=[SPEND, SPEND.replace("best[0]:", "best[0] + 0.0:"), solution_of("10", "spend_bits")],
        wrong=[
            SPEND.replace(" / (size[layer][n] - size[layer][m])", ""),
            SPEND.replace("m = max(lower)", "m = min(lower)"),
            SPEND.replace("price < best[0]", "price > best[0]"),
            SPEND.replace("> budget:", ">= budget:"),
            SPEND.replace('raise ValueError("too small")', "return bits"),
            SPEND.replace("harm[layer][m] - harm[layer][n]", "harm[layer][m]"),
            "return {layer: 8 for layer in size}",
        ],
    )


def test_whole_way():
    body = """
from copy import deepcopy

rows, current = [], deepcopy(network)
for stage in ["dense", *steps]:
    if stage != "dense":
        try:
            current = steps[stage](deepcopy(current))
        except Exception as error:
            rows.append({"stage": stage, "error": str(error)})
            break
    found = measure(current)
    first = rows[0] if rows else found
    rows.append({"stage": stage, **found, "times smaller": first["bytes"] / found["bytes"]})
return rows"""
    try_answers(
        "whole_way",
        "network, steps, measure",
        right=[
            body,
            body.replace("deepcopy(current)", "current"),  # the caller's network is a copy already
            solution_of("10", "whole_way"),
        ],
        wrong=[
            body.replace("deepcopy(network)", "network").replace("deepcopy(current)", "current"),
            body.replace("break", "pass"),
            body.replace('first["bytes"] / found["bytes"]', 'found["bytes"] / first["bytes"]'),
            body.replace("rows[0]", "rows[-1]"),
            body.replace("steps[stage](deepcopy(current))", "steps[stage](deepcopy(network))"),
            body.replace('["dense", *steps]', "steps"),
            body.replace("str(error)", "error"),
            body.replace("current = steps[stage](deepcopy(current))", "steps[stage](current)"),
            body.replace("except Exception as error", "except ValueError as error"),
        ],
    )
