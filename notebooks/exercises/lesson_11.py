"""Lesson 11. The oracles go through numbers, names and images one by one."""

import statistics

import torch
from exercise_inputs import between

from helpers.checks.compare import Tolerance
from helpers.checks.specification import Case, Item, Mistake


def images_cases(rng: torch.Generator) -> list[Case]:
    """Colours of different brightness, one channel alone, and bright beside dark images."""
    cases = []
    for label, channels in (
        ("three channels", 3),
        ("one channel", 1),
        ("bright and dark images", 2),
    ):
        count, height, width = between(rng, 5, 8), between(rng, 12, 15), between(rng, 17, 20)
        noise = torch.randint(0, 60, (count, channels, height, width), generator=rng)
        level = 40 * torch.arange(channels)[:, None, None] + 20
        if label == "bright and dark images":
            level = level + 100 * (torch.arange(count) % 2)[:, None, None, None]
        cases.append(Case(label, {"images": (noise + level).to(torch.uint8)}))
    return cases


def images_oracle(inputs: dict, probe: dict) -> list[list[float]]:
    """All numbers of a channel in one list."""
    channels = [
        [number / 255 for number in part.flatten().tolist()] for part in inputs["images"].unbind(1)
    ]
    return [
        [statistics.fmean(numbers) for numbers in channels],
        [statistics.pstdev(numbers) for numbers in channels],
    ]


def two_lists(answer: tuple, probe: dict) -> list[list[float]]:
    """Means and deviations, whatever they come in."""
    means, deviations = answer
    return [[float(number) for number in numbers] for numbers in (means, deviations)]


def fitting_cases(rng: torch.Generator) -> list[Case]:
    """A file that fits, one of another head, one that lacks and has too much, and one with a turned
    weight.
    """
    width, classes = between(rng, 8, 16), between(rng, 3, 7)  # never equal: the turn must show
    expected = {
        "conv.weight": (width, 3, 3, 3),
        "norm.bias": (width,),
        "fc.weight": (classes, width),
    }
    expected |= {"fc.bias": (classes,)}
    head = expected | {"fc.weight": (1000, width), "fc.bias": (1000,)}
    other = {name: shape for name, shape in expected.items() if name != "norm.bias"} | {
        "module.bias": (width,),
        "stem.bias": (width,),  # names on both sides of the missing one: all must be sorted
    }
    turned = expected | {"fc.weight": (width, classes)}
    files = {
        "the right file": dict(expected),
        "another head": head,
        "another network": other,
        "a turn": turned,
    }
    return [
        Case(label, {"expected": dict(expected), "found": found}) for label, found in files.items()
    ]


def fitting_oracle(inputs: dict, probe: dict) -> list[list[str]]:
    """Take every name of both, in order."""
    problems = []
    for name in sorted([*inputs["expected"], *inputs["found"]]):
        shapes = [
            tuple(inputs[side][name]) if name in inputs[side] else None
            for side in ("expected", "found")
        ]
        if shapes[0] != shapes[1]:
            problem = (
                "missing" if shapes[1] is None else "unexpected" if shapes[0] is None else "shape"
            )
            problems.append([name, problem])
    return [one for at, one in enumerate(problems) if one not in problems[:at]]


def pairs(answer: list, probe: dict) -> list[list[str]]:
    """Pairs of words."""
    return [[str(word) for word in pair] for pair in answer]


def counts(answer: list, probe: dict) -> list[list[int]]:
    """Pairs of whole numbers."""
    return [[int(number) for number in pair] for pair in answer]


def holding_cases(rng: torch.Generator) -> list[Case]:
    """Networks that err with the dense one, err on their own, or err more; once there is none that
    will do. The right one never stands where it would without those that do not hold.
    """
    # (bytes, images that get lost, images that are won): the first two hold, the second not by
    # 2.58 standard errors; the third may as well lose 2 points, but not 5, and by 1.645 not even 2
    networks = ((900, 0, 0), (600, 15, 5), (400, 60, 60), (200, 90, 5))
    cases = []
    for label, order, drop in (
        ("four networks", (2, 1, 0, 3), 0.02),
        ("four networks in another order", (3, 0, 2, 1), 0.02),
        ("none is good enough", (3, 2), 0.02),
        ("a drop of 5 points", (3, 1, 2, 0), 0.05),
    ):
        count = between(rng, 950, 1050)
        dense = torch.ones(count, dtype=torch.bool)
        dense[torch.randperm(count, generator=rng)[:100]] = False
        candidates = []
        for size, lost, won in (networks[at] for at in order):
            right = dense.clone()
            for value, number in ((True, lost), (False, won)):
                places = (dense == value).nonzero().flatten()
                right[places[torch.randperm(len(places), generator=rng)[:number]]] = not value
            candidates.append({"bytes": size * between(rng, 1000, 1100), "right": right})
        cases.append(Case(label, {"dense": dense, "candidates": candidates, "drop": drop}))
    return cases


def holding_oracle(inputs: dict, probe: dict) -> int | None:
    """Mean and spread of the differences, image by image, for one network after the other."""
    best = None
    for place, candidate in enumerate(inputs["candidates"]):
        pairs = zip(candidate["right"].tolist(), inputs["dense"].tolist(), strict=True)
        differences = [int(a) - int(b) for a, b in pairs]
        low = (
            statistics.fmean(differences)
            - 1.96 * statistics.pstdev(differences) / len(differences) ** 0.5
        )
        if low >= -inputs["drop"] and (
            best is None or candidate["bytes"] < inputs["candidates"][best]["bytes"]
        ):
            best = place
    return best


def classes_cases(rng: torch.Generator) -> list[Case]:
    """One class that loses, one that wins, one where as many change sides, one without images."""
    cases = []
    for label, shares in (
        ("three classes with images, one without", [(0.4, 0.1), (0.1, 0.4), (0.3, 0.3)]),
        ("one class with images, one without", [(0.2, 0.5)]),
    ):
        labels = torch.randint(0, len(shares), (between(rng, 60, 90),), generator=rng)
        lost, won = (torch.tensor(side)[labels] for side in zip(*shares, strict=True))
        drawn = torch.rand(len(labels), generator=rng)
        same = torch.rand(len(labels), generator=rng) < 0.5
        before = torch.where(drawn < lost + won, drawn < lost, same)
        inputs = {
            "before": before,
            "after": torch.where(drawn < lost + won, drawn >= lost, same),
            "labels": labels,
        }
        cases.append(
            Case(label, inputs | {"classes": len(shares) + 1})
        )  # of the last one there is no image
    return cases


def classes_oracle(inputs: dict, probe: dict) -> list[list[int]]:
    """Image by image."""
    found = [[0, 0] for _ in range(inputs["classes"])]
    for was, now, label in zip(
        *(inputs[name].tolist() for name in ("before", "after", "labels")), strict=True
    ):
        found[label][0] += was and not now
        found[label][1] += now and not was
    return found


ITEMS = (
    Item(
        "measure_images",
        images_cases,
        images_oracle,
        view=two_lists,
        tolerance=Tolerance(relative=1e-3, absolute=1e-6),
        minutes=5,
        dots=1,
        nudge="One number per channel: which three dimensions do you average over?",
        hint="Divide by 255, then take mean and standard deviation over images, rows and columns: "
        "dim=(0, 2, 3).",
        mistakes=(
            Mistake(
                "Your pixels run from 0 to 255. Divide them by 255 first.",
                wrong="",
                right=" / 255",
            ),
            Mistake(
                "You measure all channels together. Each channel has its own mean and standard "
                "deviation.",
                wrong="x = images.double() / 255\n"
                "channels = x.shape[1]\n"
                "return [x.mean().item()] * channels, [x.std().item()] * channels",
            ),
            Mistake(
                "You average the spread inside each image. Over all images together it is "
                "larger, since some are brighter.",
                wrong="x.std((2, 3)).mean(0)",
                right="x.std((0, 2, 3))",
            ),
            Mistake(
                "Your second list holds variances. It should hold standard deviations.",
                wrong="x.var(",
                right="x.std(",
            ),
        ),
    ),
    Item(
        "what_does_not_fit",
        fitting_cases,
        fitting_oracle,
        view=pairs,
        minutes=8,
        dots=2,
        nudge="A name can be in one of the two alone, or in both; then compare the shapes. Sort "
        "the whole list.",
        hint="Go through sorted(expected.keys() | found.keys()). Is a name expected, found, or "
        "both?",
        mistakes=(
            Mistake(
                "You go through the expected names. A name that was found without being expected "
                "does not fit, either.",
                wrong="expected.keys()",
                right="expected.keys() | found.keys()",
            ),
            Mistake(
                'You have "missing" and "unexpected" the wrong way round. A name is missing when '
                "it is expected and was not found.",
                wrong="if name not in expected:\n"
                '            problems.append((name, "missing"))\n'
                "        elif name not in found:",
                right="if name not in found:\n"
                '            problems.append((name, "missing"))\n'
                "        elif name not in expected:",
            ),
            Mistake(
                "A name that is in both may still have another shape. Compare them.",
                wrong="            pass",
                right='            problems.append((name, "shape"))',
            ),
            *(
                Mistake(
                    "Your pairs are right, but not in the order of their names. Sort the whole "
                    "list.",
                    wrong=order,
                    right="sorted(expected.keys() | found.keys())",
                )
                for order in (
                    "[*expected, *(name for name in found if name not in expected)]",
                    "[*sorted(expected), *sorted(found.keys() - expected.keys())]",
                    "[*sorted(found), *sorted(expected.keys() - found.keys())]",
                )
            ),
        ),
    ),
    Item(
        "smallest_that_holds",
        holding_cases,
        holding_oracle,
        minutes=12,
        dots=3,
        nudge="Do not ask how much it lost on these images, but how much it may have lost: the "
        "lower end of lesson 10.",
        hint="For each: d = right - dense; keep it if mean - 1.96 * std / sqrt(n) >= -drop. Then "
        "the fewest bytes.",
        mistakes=(
            Mistake(
                "You let a network through that may have lost more than drop. What decides is the "
                "lower end of the interval, not the measured loss.",
                wrong="",
                right=" - 1.96 * d.std() / len(d) ** 0.5",
            ),
            Mistake(
                "You pass over a smaller network that holds as well. Is your margin divided by "
                "the square root of the number of images, and do you take the fewest bytes?",
                wrong="",
                right=" / len(d) ** 0.5",
            ),
            Mistake(
                "You give the position among those that hold. What is that one's position in "
                "candidates?",
                wrong="    candidates = [one for one in candidates if low(one) >= -drop]\n"
                "    holding = range(len(candidates))",
                right="    holding = [place for place, one in enumerate(candidates) "
                "if low(one) >= -drop]",
            ),
        ),
    ),
    Item(
        "lost_and_won",
        classes_cases,
        classes_oracle,
        view=counts,
        minutes=8,
        dots=2,
        nudge="Which images are lost? Those where `before` is True and `after` is not. Then count "
        "their labels.",
        hint="torch.bincount(labels[before & ~after], minlength=classes) has what is lost; "
        "won is the other way round.",
        mistakes=(
            Mistake(
                "You have lost and won the wrong way round. Lost is what was right before and is "
                "wrong after.",
                wrong="won.tolist(), lost.tolist()",
                right="lost.tolist(), won.tolist()",
            ),
            Mistake(
                "Some classes have no row in yours. Count for every class, also where nothing "
                "was lost or won.",
                wrong="lost = torch.bincount(labels[before & ~after])\n"
                "won = torch.bincount(labels[after & ~before])\n"
                "return list(zip(lost.tolist(), won.tolist()))",
            ),
            Mistake(
                "You count every image that is wrong after. Only one that was right before can "
                "be lost.",
                wrong="~after",
                right="before & ~after",
            ),
            Mistake(
                "You count what is right before and what is right after. An image that is right "
                "both times is neither lost nor won.",
                wrong="lost = torch.bincount(labels[before], minlength=classes)\n"
                "won = torch.bincount(labels[after], minlength=classes)\n"
                "return list(zip(lost.tolist(), won.tolist()))",
            ),
        ),
    ),
)
