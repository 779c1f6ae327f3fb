# fmt: off
NO_WORSE = "costs[j] <= costs[i] and accuracies[j] >= accuracies[i]"
BETTER = "(costs[j] < costs[i] or accuracies[j] > accuracies[i])"
FRONT = f"""
front = []
for i in range(len(costs)):
    beaten = False
    for j in range(len(costs)):
        if {NO_WORSE} and {BETTER}:
            beaten = True
    if not beaten:
        front.append(i)
return front
"""
LOGS = "exact.log_softmax(1), rounded.log_softmax(1)"
TIMES = '(rows[0]["bytes"] if rows else found["bytes"]) / found["bytes"]'

ANSWERS = {
    "pareto_front": {"right": [
        "c, a = torch.tensor(costs), torch.tensor(accuracies)\nno_worse = (c[:, None] <= c) & (a[:, None] >= a)\n"
        "better = (c[:, None] < c) | (a[:, None] > a)\nreturn (~(no_worse & better).any(0)).nonzero().flatten()",
    ], "wrong": [
        *((f"{NO_WORSE} and {BETTER}", beats) for beats in (
            f"j != i and {NO_WORSE}", "costs[j] < costs[i] and accuracies[j] > accuracies[i]",
            "accuracies[j] > accuracies[i]", "costs[j] <= costs[i] and accuracies[j] > accuracies[i]",
            "costs[j] < costs[i] and accuracies[j] >= accuracies[i]", "costs[j] < costs[i]",
            "costs[j] >= costs[i] and accuracies[j] <= accuracies[i] and i != j",
        )),
        "return list(range(len(costs)))", ("front.append(i)", "front.append(costs[i])"),
    ], "base": FRONT},
    "difference_interval": {"right": [
        ("d.std()", "d.std(correction=0)"), ("double", "float", "m, d.mean() + m", "m.item(), (d.mean() + m).item()"),
    ], "wrong": [
        ("right_b.double() - right_a.double()", "right_a.double() - right_b.double()"), (" / len(d) ** 0.5", ""),
        ("1.96 * ", ""), (" ** 0.5", ""), ("d.mean() - m, d.mean() + m", "d.min(), d.max()"), ("1.96", "2"),
        ("right_b.double() - right_a.double()", "(right_b != right_a).double()"),
        "a, b = right_a.double(), right_b.double(); n = len(a); m = 1.96 * (a.var() / n + b.var() / n) ** 0.5; "
        "d = b.mean() - a.mean(); return d - m, d + m",
    ], "base": "d = right_b.double() - right_a.double(); m = 1.96 * d.std() / len(d) ** 0.5; "
        "return d.mean() - m, d.mean() + m"},
    "spend_bits": {"right": [
        ("total() > budget", "budget < total()"), ("lambda layer: steps[layer][0]", "steps.get"),
    ], "wrong": [
        (" / (size[layer][now] - size[layer][below])", ""), ("max(n for", "min(n for"), ("= min(steps", "= max(steps"),
        ("> budget:", ">= budget:"), ("raise ValueError(", "return bits or ("),
        ("harm[layer][below] - harm[layer][now]", "harm[layer][below]"), "return {layer: 8 for layer in size}",
    ]},
    "divergence": {"right": [
        "p, q = exact.log_softmax(1), rounded.log_softmax(1)\n"
        "return F.kl_div(q, p, log_target=True, reduction='batchmean')",
        (".sum(1).mean().item()", ".sum() / len(exact)"),
    ], "wrong": [
        ("log_p.exp()", "log_q.exp()"), (".sum(1).mean()", ".mean()"), (".sum(1).mean()", ".sum()"),
        (LOGS, "exact.softmax(1).log(), rounded.softmax(1).log()"),
        ("log_softmax(1)", "log_softmax(0)"), ("log_p - log_q", "log_q - log_p"),
        ("(log_p - log_q)", "(-log_q)"), (LOGS, "exact, rounded"),
        "return F.kl_div(rounded.log_softmax(1), exact.softmax(1))",
        "return (exact - rounded).square().mean()",
    ]},
    "pack_bits": {"right": [
        "text = ''.join(format(code, f'0{bits}b')[::-1] for code in codes)\n"
        "return bytes(int(text[i : i + 8][::-1], 2) for i in range(0, len(text), 8))",
        ("sum(code << (place * bits) for", "sum(code * 2 ** (place * bits) for"),
    ], "wrong": [
        ("little", "big"), (" + 7) // 8", ") // 8"), ("place * bits", "place * 8"),
        "return bytes(codes)",
        (" + 7) // 8", " + 8) // 8"), ("enumerate(codes)", "enumerate(codes[::-1])"),
        "return torch.tensor(codes, dtype=torch.uint8)",
        "text = ''.join(format(code, f'0{bits}b') for code in codes)\n"
        "return bytes(int(text[i : i + 8].ljust(8, '0'), 2) for i in range(0, len(text), 8))",
    ]},
    "whole_way": {"right": [
        ("step(current)", "step(deepcopy(current))"), ("str(error)", 'f"{error}"'),
    ], "wrong": [
        ("deepcopy(network)", "network"), ("break", "pass"), (TIMES, f"1 / ({TIMES})"), ("rows[0]", "rows[-1]"),
        ("step(current)", "step(deepcopy(network))"), ('    note("dense")\n', ""), ("str(error)", "error"),
        ("current = step(current)", "step(current)"), ("except Exception as error", "except ValueError as error"),
    ]},
}
