"""Lesson 10. The oracles look at every pair, or at one image after the other."""

import copy
import statistics
from collections.abc import Mapping
from typing import Any

import torch
from exercise_inputs import between, normal, two_numbers
from torch import nn
from torch.distributions import Categorical, kl_divergence

from helpers.checks.compare import Tolerance
from helpers.checks.specification import Case, Item, Mistake


def pareto_cases(rng: torch.Generator) -> list[Case]:
    """Networks in no order; some cost the same, some are equally accurate, two are the same in
    both.
    """
    cases = []
    for label in ("all different", "equal costs and equal accuracies"):
        count = between(rng, 8, 14)
        if label == "all different":
            costs = 10 + torch.randperm(50, generator=rng)[:count]
            accuracies = 10 + torch.randperm(70, generator=rng)[:count]
            costs[:2], accuracies[:2] = (
                torch.tensor([5, 70]),
                torch.tensor([5, 90]),
            )  # the cheapest is not the best
        else:
            costs = torch.randint(1, 5, (count,), generator=rng)
            accuracies = torch.randint(1, 5, (count,), generator=rng)
            costs[:2], accuracies[:2] = 1, 5  # twins on the front
            costs[2], accuracies[2] = 1, 1
            costs[3], accuracies[3] = (
                2,
                5,
            )  # as accurate as the twins, and beaten by their cost alone
        cases.append(
            Case(label, {"costs": costs.tolist(), "accuracies": (accuracies / 100).tolist()})
        )
    return cases


def pareto_oracle(inputs: dict, probe: dict) -> list[int]:
    """Ask for each network whether another is at least as good in both, and better in one."""
    networks = list(zip(inputs["costs"], inputs["accuracies"], strict=True))
    return [
        place
        for place, (cost, accuracy) in enumerate(networks)
        if not any(c <= cost and a >= accuracy and (c, a) != (cost, accuracy) for c, a in networks)
    ]


def in_order(answer: list, probe: dict) -> list[int]:
    """Positions, in any order."""
    return sorted(int(place) for place in answer)


def difference_cases(rng: torch.Generator) -> list[Case]:
    """Two networks that mostly agree, and two that err on their own."""
    cases = []
    for label, agree in (
        ("networks that mostly agree", 0.95),
        ("networks that err on their own", 0.0),
    ):
        count = between(rng, 400, 900)
        first = torch.rand(count, generator=rng) < 0.9
        other = torch.rand(count, generator=rng) < 0.8
        same = torch.rand(count, generator=rng) < agree
        cases.append(Case(label, {"right_a": first, "right_b": torch.where(same, first, other)}))
    return cases


def difference_oracle(inputs: dict, probe: dict) -> list[float]:
    """Mean and spread of the differences, image by image."""
    pairs = zip(inputs["right_a"].tolist(), inputs["right_b"].tolist(), strict=True)
    differences = [float(b) - float(a) for a, b in pairs]
    margin = (
        statistics.NormalDist().inv_cdf(0.975)
        * statistics.pstdev(differences)
        / len(differences) ** 0.5
    )
    return [statistics.fmean(differences) - margin, statistics.fmean(differences) + margin]


def bits_cases(rng: torch.Generator) -> list[Case]:
    """Budgets from one that everything fits into to one that nothing does, and a step that only its
    price decides.
    """
    layers = [f"layer {number}" for number in range(between(rng, 4, 6))]
    choices = (8, 6, 4, 3, 2)
    weights = {layer: 1000 * between(rng, 1, 30) for layer in layers}
    size = {layer: {n: weights[layer] * n // 8 for n in choices} for layer in layers}
    del size[layers[0]][2]  # each layer has its own choices, in an order of its own
    size[layers[-1]] = dict(reversed(size[layers[-1]].items()))
    harm = {}
    for layer in layers:
        growth = torch.rand(len(choices), generator=rng, dtype=torch.float64) + 0.05
        harm[layer] = dict(
            zip(choices, (growth.cumsum(0) * between(rng, 1, 9)).tolist(), strict=True)
        )
    del harm[layers[0]][2]
    most, least = (sum(kind(one.values()) for one in size.values()) for kind in (max, min))
    budgets = {
        "everything fits": most,
        "a tight budget": (most + 3 * least) // 4,
        "a loose budget": (most + least) // 2,
    }
    budgets |= {"the fewest bits": least, "a budget that is too small": least - 1}
    cases = [
        Case(label, {"harm": harm, "size": size, "budget": budget})
        for label, budget in budgets.items()
    ]
    # Thousands of weights, harm at 8 bits, growth with each step: only the right price tells each
    # pair apart.
    kinds = {"harmed already": (24, 5.0, 0.01), "large": (24, 0.2, 0.3), "small": (1, 0.1, 0.1)}
    for other in ("harmed already", "small"):
        pair = {layer: kinds[layer] for layer in ("large", other)}
        size = {
            layer: {n: 125 * weights * n for n in choices}
            for layer, (weights, _, _) in pair.items()
        }
        harm = {
            name: {n: start + step * k for k, n in enumerate(choices)}
            for name, (_, start, step) in pair.items()
        }
        one_step = sum(one[8] for one in size.values()) - between(rng, 1, 200)
        cases.append(
            Case(f"one step, large or {other}", {"harm": harm, "size": size, "budget": one_step})
        )
    return cases


def divergence_cases(rng: torch.Generator) -> list[Case]:
    """Logits that moved a little, equal ones, and some so large that a probability underflows."""
    exact = 2 * normal(rng, between(rng, 5, 9), between(rng, 4, 7))
    moved = exact + 0.5 * normal(rng, *exact.shape)
    far = exact.clone()
    far[:, 0] += 2000 * torch.sign(normal(rng, len(exact)))
    return [
        Case("answers that moved a little", {"exact": exact, "rounded": moved}),
        Case("equal answers", {"exact": exact, "rounded": exact.clone()}),
        Case("large logits", {"exact": far, "rounded": far + (moved - exact)}),
    ]


def divergence_oracle(inputs: dict, probe: dict) -> float:
    """The divergence of two distributions, by torch."""
    p, q = (Categorical(logits=inputs[name]) for name in ("exact", "rounded"))
    return kl_divergence(p, q).mean().item()


def pack_cases(rng: torch.Generator) -> list[Case]:
    """Bits that divide 8 and bits that do not, counts that fill the last byte and that do not."""
    cases = []
    for bits, count in ((8, 5), (4, 7), (3, 16), (6, between(rng, 5, 9)), (2, between(rng, 9, 15))):
        codes = torch.randint(0, 2**bits, (count,), generator=rng).tolist()
        codes[0], codes[-1] = 1, 2**bits - 2  # neither end reads the same backwards
        cases.append(Case(f"{count} codes of {bits} bits", {"codes": codes, "bits": bits}))
    return [*cases, Case("no codes", {"codes": [], "bits": 4})]


def pack_oracle(inputs: dict, probe: dict) -> list[int]:
    """Bit by bit into a list of bytes."""
    bits, codes = inputs["bits"], inputs["codes"]
    made = [0] * -(-len(codes) * bits // 8)
    for place, code in enumerate(codes):
        for bit in range(bits):
            j = place * bits + bit
            made[j // 8] += (code >> bit) % 2 * 2 ** (j % 8)
    return made


def run_pack(student: Mapping[str, Any], inputs: dict) -> list[int]:
    """The bytes as numbers; says in words what came instead."""
    packed = student["pack_bits"](**inputs)
    if not isinstance(packed, bytes | bytearray):
        raise ValueError(f"return bytes, not {type(packed).__name__}")
    return list(packed)


def run_bits(student: dict, inputs: dict) -> dict:
    """The choice, or that it was refused; the tables have to stay as they are."""
    given = copy.deepcopy(inputs)
    try:
        found = dict(student["spend_bits"](**given))
    except ValueError:
        smallest = sum(min(choices.values()) for choices in inputs["size"].values())
        if smallest < inputs["budget"]:
            raise  # the budget can be met, so this is a slip, told with its line
        found = {"a ValueError": True}
    if given != inputs:
        raise RuntimeError("harm or size has changed, and later cells need them: work on copies")
    return found


def bits_oracle(inputs: dict, probe: dict) -> dict:
    """All steps of all layers in a list, walked through again and again."""
    harm, size = inputs["harm"], inputs["size"]
    left = {layer: sorted(choices, reverse=True) for layer, choices in size.items()}
    while sum(size[layer][bits[0]] for layer, bits in left.items()) > inputs["budget"]:
        steps = []
        for layer, bits in left.items():
            if len(bits) > 1:
                worse = harm[layer][bits[1]] - harm[layer][bits[0]]
                steps.append((worse / (size[layer][bits[0]] - size[layer][bits[1]]), layer))
        if not steps:
            return {"a ValueError": True}
        left[min(steps)[1]].pop(0)
    return {layer: bits[0] for layer, bits in left.items()}


def narrower(network: nn.Linear) -> nn.Linear:
    """A new layer with the first half of the rows."""
    small = nn.Linear(network.in_features, network.out_features // 2)
    small.weight.data = network.weight.data[: small.out_features].clone()
    return small


def trained(network: nn.Linear) -> nn.Linear:
    """Changes the layer that it is given, as training does, and returns it."""
    network.weight.data += 1
    return network


def rounded(network: nn.Linear) -> nn.Linear:
    """Changes the layer that it is given, too."""
    network.weight.data.round_()
    return network


def broken(network: nn.Linear) -> nn.Linear:
    """A step that does not work out."""
    raise LookupError("calibration needs at least one image")


def measured(network: nn.Linear) -> dict[str, float]:
    """What a stage costs and what it is worth, for a layer."""
    return {
        "bytes": 4 * network.weight.numel(),
        "sum": float(network.weight.detach().double().sum()),
    }


def way_cases(rng: torch.Generator) -> list[Case]:
    """All steps; one step; no step; and one that fails in the middle."""
    steps = {"cut": narrower, "train": trained, "round": rounded}
    failing = {"train": trained, "quantize": broken, "round": rounded}
    cases = []
    for label, chosen in (
        ("three steps", steps),
        ("one step", {"train": trained}),
        ("none", {}),
        ("an error", failing),
    ):
        network = nn.Linear(between(rng, 3, 7), 2 * between(rng, 2, 4))
        network.weight.data = normal(rng, *network.weight.shape).float()
        cases.append(Case(label, {"network": network, "steps": chosen, "measure": measured}))
    return cases


def way_run(student: Mapping[str, Any], inputs: dict) -> list[dict]:
    """The rows as plain dictionaries; the network that went in must be as it was."""
    before = inputs["network"].weight.detach().clone()
    rows = [dict(row) for row in student["whole_way"](**inputs)]
    if not torch.equal(before, inputs["network"].weight):
        raise ValueError(
            "the network that you were given has changed; let the steps work on a copy"
        )
    return rows


def way_oracle(inputs: dict, probe: dict) -> list[dict]:
    """Go back to the start for every stage, and take as many steps as it needs."""
    rows, names = [], list(inputs["steps"])
    for count in range(len(names) + 1):
        network = copy.deepcopy(inputs["network"])
        try:
            for name in names[:count]:
                network = inputs["steps"][name](network)
        except LookupError as error:
            return [*rows, {"stage": names[count - 1], "error": str(error)}]
        found = inputs["measure"](network)
        smaller = (rows[0]["bytes"] if rows else found["bytes"]) / found["bytes"]
        rows.append({"stage": (["dense"] + names)[count], **found, "times smaller": smaller})
    return rows


ITEMS = (
    Item(
        "pareto_front",
        pareto_cases,
        pareto_oracle,
        view=in_order,
        minutes=8,
        dots=2,
        nudge="For each network and every other one: is the other at least as good in both, and "
        "better in one?",
        hint="A network is beaten if another costs no more, is no less accurate, and is better in "
        "at least one of the two.",
        mistakes=(
            Mistake(
                "In your version two equal networks beat each other. The winner must be better "
                "in at least one of the two.",
                wrong="networks = list(zip(costs, accuracies))\n"
                "places = range(len(networks))\n"
                "\n"
                "def beats(j, i):\n"
                "    return j != i and costs[j] <= costs[i] and accuracies[j] >= accuracies[i]\n"
                "\n"
                "return [i for i in places if not any(beats(j, i) for j in places)]",
            ),
            Mistake(
                "You ask for better in both. A network that is equal in one and better in the "
                "other wins as well.",
                wrong="a[0] < b[0] and a[1] > b[1]",
                right="a[0] <= b[0] and a[1] >= b[1]",
            ),
            Mistake(
                "You look at the accuracies alone. A network may stay because it is cheaper.",
                wrong="a[1] > b[1]",
                right="a[0] <= b[0] and a[1] >= b[1]",
            ),
        ),
    ),
    Item(
        "difference_interval",
        difference_cases,
        difference_oracle,
        view=two_numbers,
        tolerance=Tolerance(relative=2e-3, absolute=2e-4),
        minutes=6,
        dots=2,
        nudge="Make one number per image that says which of the two was right.",
        hint="Take b - a for each image first (1, 0 or -1); "
        "then mean plus and minus 1.96 times spread / sqrt(images).",
        mistakes=(
            Mistake(
                "Your signs are the wrong way round. Subtract a from b: b - a is positive where "
                "only b is right.",
                wrong="right_a.float() - right_b.float()",
                right="right_b.float() - right_a.float()",
            ),
            Mistake(
                "That is how much one image varies. The mean of many varies less: divide by the "
                "square root of their number.",
                wrong="",
                right=" / len(d) ** 0.5",
            ),
            Mistake(
                "You treat the two as if they had seen different images. Take the difference for "
                "each image first, then its spread.",
                wrong="a, b = right_a.float(), right_b.float()\n"
                "margin = 1.96 * ((a.var() + b.var()) / len(a)) ** 0.5\n"
                "difference = b.mean() - a.mean()\n"
                "return (difference - margin).item(), (difference + margin).item()",
            ),
            Mistake(
                "Your margin is one standard error, which holds 68 % of the time. An interval of "
                "95 % is wider.",
                wrong="",
                right="1.96 * ",
            ),
        ),
    ),
    Item(
        "spend_bits",
        bits_cases,
        bits_oracle,
        run=run_bits,
        minutes=14,
        dots=3,
        nudge="Write a function that says what the next step of one layer costs per byte saved.",
        hint="Keep a dictionary layer -> bits. While it is too large: price each layer's next "
        "step, take the cheapest.",
        mistakes=(
            Mistake(
                "You take the step that does the least harm. Compare what each step costs per "
                "byte that it saves.",
                wrong="",
                right=" / (size[layer][now] - size[layer][below])",
            ),
            Mistake(
                "You count harm that has already been done. What matters is the difference that "
                "the next step makes.",
                wrong="harm[layer][below]",
                right="(harm[layer][below] - harm[layer][now])",
            ),
            Mistake(
                "You take a layer to its fewest bits at once. Go down one step at a time, to the "
                "next choice below.",
                wrong="min(n for",
                right="max(n for",
            ),
            Mistake(
                "You go on although the sizes fit. A sum that equals the budget is small enough.",
                wrong="total() >= budget",
                right="total() > budget",
            ),
            Mistake(
                "Nothing can go down any more, and the sizes still don't fit. Raise a ValueError "
                "there.",
                wrong="return bits or (",
                right="raise ValueError(",
            ),
        ),
    ),
    Item(
        "divergence",
        divergence_cases,
        divergence_oracle,
        view=lambda answer, probe: float(answer),
        tolerance=Tolerance(relative=1e-5, absolute=1e-7),
        minutes=6,
        dots=1,
        nudge="Sum over the classes first, then take the mean over the images. Which logits make "
        "p?",
        hint="log_p = exact.log_softmax(1) and log_q likewise; p = log_p.exp(). Sum over dim 1.",
        mistakes=(
            Mistake(
                "You have the two the wrong way round. The logarithms are weighted with the "
                "probabilities of the exact network.",
                wrong="(log_q.exp() * (log_q - log_p))",
                right="(log_p.exp() * (log_p - log_q))",
            ),
            Mistake(
                "You average over the classes as well. Sum over them, then take the mean over the "
                "images.",
                wrong=".mean()",
                right=".sum(1).mean()",
            ),
            Mistake(
                "Where logits are far apart, a probability becomes 0 and its logarithm infinite. "
                "log_softmax does both in one go.",
                wrong="exact.softmax(1).log(), rounded.softmax(1).log()",
                right="exact.log_softmax(1), rounded.log_softmax(1)",
            ),
            Mistake(
                "You sum over the images. Take the mean over them.",
                wrong=".sum()",
                right=".sum(1).mean()",
            ),
        ),
    ),
    Item(
        "pack_bits",
        pack_cases,
        pack_oracle,
        run=run_pack,
        minutes=8,
        dots=2,
        nudge="The stream begins with the lowest bit of the first code. Write it as one large "
        "whole number: by how much is code i shifted?",
        hint="Add up code << (i * bits), then call to_bytes on the sum: len(codes) * bits bits, "
        "rounded up to whole bytes, and 'little'.",
        mistakes=(
            Mistake(
                "Your bytes are in the wrong order. The lowest byte comes first: 'little'.",
                wrong='"big"',
                right='"little"',
            ),
            Mistake(
                "Each code takes a whole byte in yours. With fewer bits, several codes share one.",
                wrong="return bytes(codes)",
            ),
            Mistake(
                "The last codes do not fill a byte, and yours have no room for them. Round the "
                "number of bytes up.",
                wrong="* bits)",
                right="* bits + 7)",
            ),
            Mistake(
                "You begin with the last code. The first one takes the lowest bits.",
                wrong="enumerate(reversed(codes))",
                right="enumerate(codes)",
            ),
            Mistake(
                "Your last byte is missing: it is only partly filled. Round the number of bytes "
                "up.",
                wrong='"little")[: len(codes) * bits // 8]',
                right='"little")',
            ),
            Mistake(
                "You write the highest bit of each code first. The stream begins with the lowest.",
                wrong='stream = "".join(f"{code:0{bits}b}" for code in codes)\n'
                'stream += "0" * (-len(stream) % 8)\n'
                "return bytes(int(stream[i : i + 8], 2) for i in range(0, len(stream), 8))",
            ),
            Mistake(
                "You write the highest bit of each code first, and the last code at the end of a "
                "byte. The stream begins with the lowest bit of the first.",
                wrong="stream = 0\n"
                "for code in codes:\n"
                "    stream = (stream << bits) + code\n"
                'return stream.to_bytes((len(codes) * bits + 7) // 8, "big")',
            ),
        ),
    ),
    Item(
        "whole_way",
        way_cases,
        way_oracle,
        run=way_run,
        tolerance=Tolerance(relative=1e-6, absolute=1e-9),
        minutes=12,
        dots=2,
        nudge="A step may change the network that it is given. What must you do before, and when "
        "must you measure?",
        hint="Begin with a deepcopy and the row 'dense'. Measure what each step returns before the "
        "next one runs. Where the step raises, add the row with its name and str(error), and stop.",
        mistakes=(
            Mistake(
                "A step changed the network that you were given. Begin with a copy.",
                wrong="network",
                right="deepcopy(network)",
            ),
            Mistake(
                "The first row is missing. Measure the dense network before any step.",
                wrong="",
                right='    note("dense")\n',
            ),
            Mistake(
                "You go on after a step has failed. Stop there.",
                wrong="",
                right="            break\n",
            ),
            Mistake(
                "Your ratio is upside down. Divide the size of the dense network by the present "
                "one.",
                wrong='found["bytes"] / (rows[0]["bytes"] if rows else found["bytes"])',
                right='(rows[0]["bytes"] if rows else found["bytes"]) / found["bytes"]',
            ),
            Mistake(
                "You compare with the row before. All sizes are compared with the dense network.",
                wrong='rows[-1]["bytes"]',
                right='rows[0]["bytes"]',
            ),
        ),
    ),
)
