# fmt: off
from tests.exercises.trying import assert_judged


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
    assert_judged("pareto_front", right=[
        template.format(beats=f"{no_worse} and {better}"),
        "c, a = torch.tensor(costs), torch.tensor(accuracies)\nno_worse = (c[:, None] <= c) & (a[:, None] >= a)\n"
        "better = (c[:, None] < c) | (a[:, None] > a)\nreturn (~(no_worse & better).any(0)).nonzero().flatten()",
    ], wrong=[
        template.format(beats=f"j != i and {no_worse}"),
        template.format(beats="costs[j] < costs[i] and accuracies[j] > accuracies[i]"),
        template.format(beats="accuracies[j] > accuracies[i]"),
        template.format(beats="costs[j] <= costs[i] and accuracies[j] > accuracies[i]"),
        template.format(beats="costs[j] < costs[i] and accuracies[j] >= accuracies[i]"),
        template.format(beats="costs[j] < costs[i]"),
        template.format(beats="costs[j] >= costs[i] and accuracies[j] <= accuracies[i] and i != j"),
        "return list(range(len(costs)))",
        template.format(beats=f"{no_worse} and {better}").replace("front.append(i)", "front.append(costs[i])"),
    ])


def test_difference_interval():
    body = "d = right_b.double() - right_a.double(); m = 1.96 * d.std() / len(d) ** 0.5; "
    body += "return d.mean() - m, d.mean() + m"
    assert_judged("difference_interval", base=body, right=[
        ("d.std()", "d.std(correction=0)"), ("double", "float", "m, d.mean() + m", "m.item(), (d.mean() + m).item()"),
    ], wrong=[
        ("right_b.double() - right_a.double()", "right_a.double() - right_b.double()"), (" / len(d) ** 0.5", ""),
        ("1.96 * ", ""), (" ** 0.5", ""), ("d.mean() - m, d.mean() + m", "d.min(), d.max()"), ("1.96", "2"),
        ("right_b.double() - right_a.double()", "(right_b != right_a).double()"),
        "a, b = right_a.double(), right_b.double(); n = len(a); m = 1.96 * (a.var() / n + b.var() / n) ** 0.5; "
        "d = b.mean() - a.mean(); return d - m, d + m",
    ])


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
    assert_judged("spend_bits", base=SPEND, right=[("best[0]:", "best[0] + 0.0:")], wrong=[
        (" / (size[layer][n] - size[layer][m])", ""), ("m = max(lower)", "m = min(lower)"),
        ("price < best[0]", "price > best[0]"), ("> budget:", ">= budget:"),
        ('raise ValueError("too small")', "return bits"), ("harm[layer][m] - harm[layer][n]", "harm[layer][m]"),
        "return {layer: 8 for layer in size}",
    ])


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
    assert_judged("whole_way", base=body, right=[("deepcopy(current)", "current")], wrong=[
        ("deepcopy(network)", "network", "deepcopy(current)", "current"), ("break", "pass"),
        ('first["bytes"] / found["bytes"]', 'found["bytes"] / first["bytes"]'), ("rows[0]", "rows[-1]"),
        ("steps[stage](deepcopy(current))", "steps[stage](deepcopy(network))"), ('["dense", *steps]', "steps"),
        ("str(error)", "error"), ("current = steps[stage](deepcopy(current))", "steps[stage](current)"),
        ("except Exception as error", "except ValueError as error"),
    ])
