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
    "pareto_front": {
        "right": [
            "c, a = torch.tensor(costs), torch.tensor(accuracies)\n"
            "no_worse = (c[:, None] <= c) & (a[:, None] >= a)\n"
            "better = (c[:, None] < c) | (a[:, None] > a)\n"
            "return (~(no_worse & better).any(0)).nonzero().flatten()",
        ],
        "wrong": [
            *(
                (f"{NO_WORSE} and {BETTER}", beats)
                for beats in (
                    f"j != i and {NO_WORSE}",
                    "costs[j] < costs[i] and accuracies[j] > accuracies[i]",
                    "accuracies[j] > accuracies[i]",
                    "costs[j] <= costs[i] and accuracies[j] > accuracies[i]",
                    "costs[j] < costs[i] and accuracies[j] >= accuracies[i]",
                    "costs[j] < costs[i]",
                    "costs[j] >= costs[i] and accuracies[j] <= accuracies[i] and i != j",
                )
            ),
            "return list(range(len(costs)))",
            ("front.append(i)", "front.append(costs[i])"),
        ],
        "base": FRONT,
    },
    "difference_interval": {
        "right": [
            ("d.std()", "d.std(correction=0)"),
            ("double", "float", "m, d.mean() + m", "m.item(), (d.mean() + m).item()"),
        ],
        "wrong": [
            ("right_b.double() - right_a.double()", "right_a.double() - right_b.double()"),
            (" / len(d) ** 0.5", ""),
            ("1.96 * ", ""),
            (" ** 0.5", ""),
            ("d.mean() - m, d.mean() + m", "d.min(), d.max()"),
            ("1.96", "2"),
            ("right_b.double() - right_a.double()", "(right_b != right_a).double()"),
            "a, b = right_a.double(), right_b.double(); n = len(a); "
            "m = 1.96 * (a.var() / n + b.var() / n) ** 0.5; d = b.mean() - a.mean(); "
            "return d - m, d + m",
        ],
        "base": "d = right_b.double() - right_a.double(); m = 1.96 * d.std() / len(d) ** 0.5; "
        "return d.mean() - m, d.mean() + m",
    },
    "spend_bits": {
        "right": [
            ("total() > budget", "budget < total()"),
            ("lambda layer: steps[layer][0]", "steps.get"),
            (
                *("choices in size.items()", "choices in harm.items()"),
                *("n for n in size[layer] if", "n for n in harm[layer] if"),
            ),
        ],
        "wrong": [
            (" / (size[layer][now] - size[layer][below])", ""),
            ("max(n for", "min(n for"),
            ("= min(steps", "= max(steps"),
            ("> budget:", ">= budget:"),
            ("raise ValueError(", "return bits or ("),
            ("harm[layer][below] - harm[layer][now]", "harm[layer][below]"),
            (
                "bits[cheapest] = steps[cheapest][1]",
                "size[cheapest].pop(bits[cheapest]); bits[cheapest] = steps[cheapest][1]",
            ),
            ("n for n in size[layer] if", "n for n in size[next(iter(size))] if"),
            ("max(choices)", "next(iter(choices))"),
            "return {layer: 8 for layer in size}",
        ],
    },
    "divergence": {
        "right": [
            "p, q = exact.log_softmax(1), rounded.log_softmax(1)\n"
            "return F.kl_div(q, p, log_target=True, reduction='batchmean')",
            (".sum(1).mean().item()", ".sum() / len(exact)"),
        ],
        "wrong": [
            ("log_p.exp()", "log_q.exp()"),
            (".sum(1).mean()", ".mean()"),
            (".sum(1).mean()", ".sum()"),
            (LOGS, "exact.softmax(1).log(), rounded.softmax(1).log()"),
            ("log_softmax(1)", "log_softmax(0)"),
            ("log_p - log_q", "log_q - log_p"),
            ("(log_p - log_q)", "(-log_q)"),
            (LOGS, "exact, rounded"),
            "return F.kl_div(rounded.log_softmax(1), exact.softmax(1))",
            "return (exact - rounded).square().mean()",
        ],
    },
    "pack_bits": {
        "right": [
            "text = ''.join(format(code, f'0{bits}b')[::-1] for code in codes)\n"
            "return bytes(int(text[i : i + 8][::-1], 2) for i in range(0, len(text), 8))",
            ("sum(code << (place * bits) for", "sum(code * 2 ** (place * bits) for"),
        ],
        "wrong": [
            ("little", "big"),
            (" + 7) // 8", ") // 8"),
            ('"little")', '"little")[: len(codes) * bits // 8]'),
            ("place * bits", "place * 8"),
            "return bytes(codes)",
            (" + 7) // 8", " + 8) // 8"),
            ("enumerate(codes)", "enumerate(codes[::-1])"),
            "return torch.tensor(codes, dtype=torch.uint8)",
            "text = ''.join(format(code, f'0{bits}b') for code in codes)\n"
            "return bytes(int(text[i : i + 8].ljust(8, '0'), 2) for i in range(0, len(text), 8))",
        ],
    },
    "whole_way": {
        "right": [
            ("step(current)", "step(deepcopy(current))"),
            ("str(error)", 'f"{error}"'),
        ],
        "wrong": [
            ("deepcopy(network)", "network"),
            ("break", "pass"),
            (TIMES, f"1 / ({TIMES})"),
            ("rows[0]", "rows[-1]"),
            ("step(current)", "step(deepcopy(network))"),
            ('    note("dense")\n', ""),
            ("str(error)", "error"),
            ("current = step(current)", "step(current)"),
            ("except Exception as error", "except ValueError as error"),
            ("except Exception as error", "except RuntimeError as error"),
        ],
    },
}

TRIALS = {
    "pareto_front": [
        (
            "equal|same|tie|as good",
            (
                "a != b",
                "True",
                "not any(beats(other, one) for other in networks)",
                "not any(beats(other, one) for j, other in enumerate(networks) if j != i)",
            ),
        ),
        (
            "both|one of|either|equal|tie",
            "n = range(len(costs))\n"
            "return [i for i in n if not any(\n"
            "    costs[j] < costs[i] and accuracies[j] > accuracies[i] for j in n)]",
        ),
        (
            "cost|cheap",
            "n = range(len(costs))\n"
            "return [i for i in n if not any(accuracies[j] > accuracies[i] for j in n)]",
        ),
        (
            "other way|worst|more|swap|beaten",
            "n = range(len(costs))\n"
            "return [i for i in n if not any(costs[j] >= costs[i] and accuracies[j] <= "
            "accuracies[i]\n"
            "    and (costs[j], accuracies[j]) != (costs[i], accuracies[i]) for j in n)]",
        ),
        ("place|index|number|position", ("return [i for i", "return [one for i")),
    ],
    "difference_interval": [
        (
            "b - a|order|sign|minus",
            "d = right_a.double() - right_b.double(); m = 1.96 * d.std() / len(d) ** 0.5\n"
            "return (d.mean() - m).item(), (d.mean() + m).item()",
        ),
        (
            "root|sqrt|number of images|images",
            "d = right_b.double() - right_a.double(); m = 1.96 * d.std()\n"
            "return (d.mean() - m).item(), (d.mean() + m).item()",
        ),
        (
            "same images|pair|each image|per image",
            "a, b = right_a.double(), right_b.double()\n"
            "m = 1.96 * (a.var() / len(a) + b.var() / len(b)).sqrt(); d = b.mean() - a.mean()\n"
            "return (d - m).item(), (d + m).item()",
        ),
        (
            "root|sqrt",
            "d = right_b.double() - right_a.double(); m = 1.96 * d.std() / len(d)\n"
            "return (d.mean() - m).item(), (d.mean() + m).item()",
        ),
        (
            "1.96|95",
            "d = right_b.double() - right_a.double(); m = d.std() / len(d) ** 0.5\n"
            "return (d.mean() - m).item(), (d.mean() + m).item()",
        ),
        (
            "1.96|95",
            "d = right_b.double() - right_a.double(); m = 2 * d.std() / len(d) ** 0.5\n"
            "return (d.mean() - m).item(), (d.mean() + m).item()",
        ),
    ],
    "spend_bits": [
        (
            "per byte|saved|divide|each byte",
            (
                "(harm[layer][below] - harm[layer][now]) / (size[layer][now] - size[layer][below])",
                "(harm[layer][below] - harm[layer][now])",
            ),
        ),
        (
            "more harm|difference|increase|extra|already",
            ("(harm[layer][below] - harm[layer][now])", "harm[layer][below]"),
        ),
        ("next|one step|lowest|at a time", ("below = max(n", "below = min(n")),
        ("cheap|least", ("cheapest = min(", "cheapest = max(")),
        (
            "error|raise|ValueError",
            ("raise ValueError(", "return bits\n            raise ValueError("),
        ),
        ("exactly|budget|enough|equal", ("while total() > budget:", "while total() >= budget:")),
    ],
    "divergence": [
        (
            "exact|swap|direction|other way",
            ("(log_p.exp() * (log_p - log_q))", "(log_q.exp() * (log_q - log_p))"),
        ),
        ("sum|class", (".sum(1).mean()", ".mean()")),
        ("mean|average|image", (".sum(1).mean()", ".sum()")),
        (
            "axis|dim|class",
            (
                "exact.log_softmax(1), rounded.log_softmax(1)",
                "exact.log_softmax(0), rounded.log_softmax(0)",
            ),
        ),
        (
            "log_softmax|overflow|large|infin|nan",
            "p, q = exact.softmax(1), rounded.softmax(1)\n"
            "return (p * (p / q).log()).sum(1).mean().item()",
        ),
    ],
    "pack_bits": [
        ("little|big|order", ('"little"', '"big"')),
        (
            "highest bit|lowest",
            "text = ''.join(format(code, f'0{bits}b') for code in codes)\n"
            "return bytes(int(text[i : i + 8].ljust(8, '0'), 2) for i in range(0, len(text), 8))",
        ),
        (
            "highest bit|lowest",
            "text = ''.join(format(code, f'0{bits}b') for code in codes) or '0'\n"
            "return int(text, 2).to_bytes((len(codes) * bits + 7) // 8, 'big')",
        ),
        (
            r"\bup\b|last byte|rest|left over",
            "stream = sum(code << (i * bits) for i, code in enumerate(codes))\n"
            "n = len(codes) * bits // 8\n"
            "return (stream & ((1 << (8 * n)) - 1)).to_bytes(n, 'little')",
        ),
        ("bits|share|byte each|whole byte", "return bytes(codes)"),
        (
            "first|order|lowest",
            "stream = sum(code << (i * bits) for i, code in enumerate(reversed(codes)))\n"
            "return stream.to_bytes(-(-len(codes) * bits // 8), 'little')",
        ),
        ("extra|one byte too|too many|already|up", ("+ 7) // 8", "+ 8) // 8")),
    ],
    "whole_way": [
        ("copy", ("deepcopy(network)", "network")),
        ("dense", ('    note("dense")\n', "")),
        ("stop|break|after", ("            break\n", "")),
        (
            "smaller|divide|upside|other way|first row",
            (
                '(rows[0]["bytes"] if rows else found["bytes"]) / found["bytes"]',
                'found["bytes"] / (rows[0]["bytes"] if rows else found["bytes"])',
            ),
        ),
        ("returns?|result|assign", ("current = step(current)", "step(current)")),
        ("dense|first|before it", ('rows[0]["bytes"]', 'rows[-1]["bytes"]')),
    ],
}
