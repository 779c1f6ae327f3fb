"""Lesson 08.

The oracles try every code, or use torch's own quantizer or the length of a written file.
"""

import torch
from exercise_inputs import as_numbers, between, normal, two_numbers
from safetensors.torch import save
from torch import nn

from helpers.checks.compare import Tolerance
from helpers.checks.specification import Case, Item, Mistake, Verdict

CLOSE = Tolerance(relative=1e-6, absolute=1e-7)


def choose_cases(rng: torch.Generator) -> list[Case]:
    """Ranges on both sides of zero, and on one side only, which must be widened to take zero in."""
    cases = []
    for label, low, high in (
        ("both sides", -3, 4),
        ("only positive", 1, 5),
        ("only negative", -6, -2),
    ):
        values = low + (high - low) * torch.rand(between(rng, 20, 60), generator=rng)
        cases.append(
            Case(
                f"values on {label}, 8 bits" if low < 0 < high else label, {"x": values, "bits": 8}
            )
        )
    cases.append(Case("4 bits", {"x": normal(rng, 40).float(), "bits": 4}))
    for label, mark in (("zero a little below a mark", 5.7), ("zero a little above a mark", 5.3)):
        ends = torch.tensor([-mark, 15 - mark]) * (0.5 + torch.rand((), generator=rng))
        cases.append(Case(label, {"x": ends, "bits": 4}))
    return cases


def choose_oracle(inputs: dict, probe: dict) -> list:
    """Lay out the marks: the distance of two is the scale, the one nearest to 0 the zero point."""
    ends = [float(min(0, inputs["x"].min())), float(max(0, inputs["x"].max()))]
    marks = torch.linspace(*ends, 2 ** inputs["bits"], dtype=torch.float64)
    return [float(marks[1] - marks[0]), float(marks.abs().argmin())]


def quantize_cases(rng: torch.Generator) -> list[Case]:
    """Values inside the range and far outside it, on both sides, and halves that show how one
    rounds.
    """
    cases = []
    for bits, zero_point in ((8, 2 * between(rng, 2, 6)), (5, 2 * between(rng, 1, 5) + 1)):
        scale = 0.25 * between(rng, 1, 3)  # never 1
        values = 300 * scale * normal(rng, 60).float()
        values[:10] = scale * (torch.arange(10) + 0.5)
        cases.append(
            Case(
                f"{bits} bits",
                {"x": values, "scale": scale, "zero_point": zero_point, "bits": bits},
            )
        )
    return cases


def quantize_oracle(inputs: dict, probe: dict) -> torch.Tensor:
    """Try every code and take the nearest; of two equally near ones the even distance from the zero
    point.
    """
    codes = torch.arange(2 ** inputs["bits"], dtype=torch.float64)
    values = (codes - inputs["zero_point"]) * inputs["scale"]
    away = (inputs["x"].double()[:, None] - values).abs()
    away += 1e-12 * ((codes - inputs["zero_point"]) % 2)  # the tie goes to the even one
    return codes[away.argmin(1)]


def per_channel_cases(rng: torch.Generator) -> list[Case]:
    """Filters whose sizes differ a hundredfold, and as many input as output channels."""
    channels = between(rng, 4, 7)
    sizes = torch.logspace(-2, 0, channels)[:, None, None, None]
    W = sizes * normal(rng, channels, channels, 3, 3).float()
    W[0] = -W[0].abs()  # here the largest weight is not the one that is largest in size
    steps = W / (W.abs().amax((1, 2, 3), keepdim=True) / 127)
    W *= (
        1 - 0.2 * (steps - steps.round()) / steps
    )  # no weight half way between two codes, where both are right
    silenced = W.clone()
    silenced[between(rng, 1, channels - 1)] = 0
    return [
        Case("filters of very different size", {"W": W}),
        Case("a silenced filter", {"W": silenced}),
    ]


def per_channel_oracle(inputs: dict, probe: dict) -> torch.Tensor:
    """torch's own per-channel quantizer, back and forth."""
    scale = torch.stack([filters.abs().max() / 127 for filters in inputs["W"]])
    scale[scale == 0] = 1.0  # of a filter of zeros any scale will do
    zeros = torch.zeros(len(scale), dtype=torch.int32)
    return torch.fake_quantize_per_channel_affine(inputs["W"], scale, zeros, 0, -127, 127)


def back_oracle(inputs: dict, probe: dict) -> torch.Tensor:
    """The value of the nearest code."""
    return (quantize_oracle(inputs, probe) - inputs["zero_point"]) * inputs["scale"]


def dead_cases(rng: torch.Generator) -> list[Case]:
    """Channels whose variance is 0, next to nothing, and only small."""
    channels = between(rng, 6, 9)
    variance = 0.5 + torch.rand(channels, generator=rng).double()
    variance[torch.randperm(channels, generator=rng)[:4]] = torch.tensor(
        [0, 1e-40, 9e-9, 1.1e-8]
    ).double()
    layer = {
        "weight": normal(rng, channels, 4, 3, 3),
        "mean": 2 * normal(rng, channels),
        "variance": variance,
    }
    return [Case("three dead channels and one that hardly varies", layer)]


def dead_oracle(inputs: dict, probe: dict) -> list[torch.Tensor]:
    """Channel by channel; the sum of a filter of zeros is 0, so its mean is 0, too."""
    found = zip(inputs["weight"], inputs["mean"], inputs["variance"] >= 1e-8, strict=True)
    weights, means = zip(
        *((W, mean) if alive else (0 * W, 0 * mean) for W, mean, alive in found), strict=True
    )
    return [torch.stack(weights), torch.stack(means)]


def size_cases(rng: torch.Generator) -> list[Case]:
    """Layers with zeros among their weights, a BatchNorm's buffers, and codes of one byte."""
    wide = between(rng, 3, 9)
    sparse, codes = nn.Linear(wide, 4), nn.Linear(2, wide, bias=False)
    sparse.weight.data[:3] = 0
    codes.register_buffer("codes", torch.zeros(wide, between(rng, 5, 20), dtype=torch.int8))
    return [
        Case("three quarters of the weights are 0", {"model": sparse}),
        Case("a BatchNorm", {"model": nn.Sequential(nn.Conv2d(3, wide, 3), nn.BatchNorm2d(wide))}),
        Case("int8 codes in a buffer", {"model": nn.Sequential(codes, nn.ReLU())}),
    ]


def size_oracle(inputs: dict, probe: dict) -> int:
    """What a written file holds behind its header, whose length stands in its first eight bytes."""
    written = save(inputs["model"].state_dict())
    return len(written) - 8 - int.from_bytes(written[:8], "little")


def least_cases(rng: torch.Generator) -> list[Case]:
    """A long tail without 0, where most of the range has to go; both signs; values that lie evenly;
    codes.
    """
    tail = [
        torch.cat([normal(rng, 300).abs() + 0.2, 8 + 4 * torch.rand(2, generator=rng).double()])
        for _ in range(2)
    ]
    both = [3 * normal(rng, 400) - 0.4 for _ in range(3)]
    even = [torch.linspace(0, 1, 16 * between(rng, 20, 30), dtype=torch.float64)]
    share = (0.62, 0.66, 0.88)[
        between(rng, 0, 2)
    ]  # one of the 36, at which all values but one are codes of 4 bits
    codes = [torch.arange(16).double().repeat(300), torch.tensor([15 / share]).double()]
    cases = (
        ("a long tail", tail, 4),
        ("both signs", both, 3),
        ("evenly spread", even, 4),
        ("codes", codes, 4),
    )
    return [
        Case(f"{label}, {bits} bits", {"batches": b, "bits": bits}, {"batches": b, "bits": bits})
        for label, b, bits in cases
    ]


def squared_error(low: float, high: float, probe: dict) -> float:
    """What rounding to this range costs, with torch's own fake quantization, summed."""
    values, steps = torch.cat(probe["batches"]), 2 ** probe["bits"] - 1
    scale = (high - low) / steps
    zero_point = min(steps, max(0, round(-low / scale)))
    back = torch.fake_quantize_per_tensor_affine(values.float(), scale, zero_point, 0, steps)
    return float((back - values).square().sum())


def least_oracle(inputs: dict, probe: dict) -> list[float]:
    """The least error of the 36 shares, and the range that has it."""
    values = torch.cat(inputs["batches"])
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    tried = [(low * share, high * share) for share in torch.linspace(0.3, 1, 36).tolist()]
    best = min(tried, key=lambda ends: squared_error(*ends, probe))
    return [squared_error(*best, probe), *best]


def least_view(answer: list, probe: dict) -> list[float]:
    """The error of a range, and the range."""
    low, high = (float(end) for end in answer)
    return [squared_error(low, high, probe), low, high]


def least_score(expected: list, observed: list, submitted: int) -> Verdict:
    """Right is the best of the shares, or one that is as good but for rounding; both ends take the
    same share.
    """
    (least, *ends), (error, low, high) = expected, observed
    if low > 0 or high < 0:
        return Verdict(0.0, f"your range {low:.3f} to {high:.3f} leaves out 0")
    if abs(low * ends[1] - high * ends[0]) > 1e-4 * max(map(abs, ends)) ** 2:
        return Verdict(
            0.0, f"your range {low:.3f} to {high:.3f} is no share of the range of all values"
        )
    if error <= least * (1 + 1e-3):
        return Verdict(1.0)
    found = f"your range {low:.3f} to {high:.3f} has a squared error of {error:.4g}"
    return Verdict(0.0, f"{found}, {ends[0]:.3f} to {ends[1]:.3f} has {least:.4g}")


ITEMS = (
    Item(
        "choose_scale",
        choose_cases,
        choose_oracle,
        view=two_numbers,
        tolerance=CLOSE,
        minutes=6,
        dots=1,
        nudge="How many steps lie between the first code and the last?",
        hint="Widen the range to take in 0 first. The codes run from 0 to 2**bits - 1: one step "
        "fewer than codes.",
        mistakes=(
            Mistake(
                "You divide by the number of codes. Between them there is one step fewer.",
                wrong="2**bits",
                right="(2**bits - 1)",
            ),
            Mistake(
                "Your range does not always take in 0, and the number 0 needs a code of its own. "
                "Widen the range where all values are on one side.",
                wrong="x.min().item(), x.max().item()",
                right="min(0.0, x.min().item()), max(0.0, x.max().item())",
            ),
            Mistake(
                "You always take 8 bits. Their number is the argument bits.",
                wrong="255",
                right="2**bits - 1",
            ),
            Mistake(
                "You drop the fraction of the zero point. Round it to the nearest code.",
                wrong="int(-low / scale)",
                right="round(-low / scale)",
            ),
            Mistake(
                "Your zero point has the wrong sign. It counts the steps from the lower end up to "
                "0.",
                wrong="round(low / scale)",
                right="round(-low / scale)",
            ),
        ),
    ),
    Item(
        "to_codes",
        quantize_cases,
        quantize_oracle,
        view=as_numbers,
        minutes=4,
        dots=1,
        nudge="Which of rounding, shifting and clamping comes last?",
        hint="Divide, round, add the zero point, and clamp last: values outside the range take the "
        "outermost code.",
        mistakes=(
            Mistake(
                "Values outside the range get codes that do not exist. Clamp the codes.",
                wrong="",
                right=".clamp(0, 2**bits - 1)",
            ),
            Mistake(
                "You clamp too early. The zero point moves the codes, so clamp last.",
                wrong="return torch.round(x / scale).clamp(0, 2**bits - 1) + zero_point",
            ),
            Mistake(
                "You drop the fraction. Round to the nearest code.",
                wrong="torch.trunc(x / scale)",
                right="torch.round(x / scale)",
            ),
            Mistake(
                "The zero point is missing. It is the code that stands for the number 0.",
                wrong="",
                right=" + zero_point",
            ),
            Mistake(
                "You add the zero point before you round, so some halves go to the other "
                "neighbour. Round first.",
                wrong="torch.round(x / scale + zero_point)",
                right="(torch.round(x / scale) + zero_point)",
            ),
        ),
    ),
    Item(
        "there_and_back",
        quantize_cases,
        back_oracle,
        tolerance=CLOSE,
        minutes=3,
        dots=1,
        nudge="Which real number should come back for the code that equals the zero point?",
        hint="Call to_codes to get the codes. To come back, subtract the zero point first, then "
        "multiply by the scale. Codes of type uint8 wrap below 0: turn them into numbers like x "
        "first.",
        mistakes=(
            Mistake(
                "The zero point is still in what comes back. It has to be subtracted from the "
                "codes.",
                wrong="",
                right=" - zero_point",
            ),
            Mistake(
                "You subtract the zero point from the real numbers. It is a code, so subtract it "
                "before you multiply by the scale.",
                wrong="return scale * to_codes(x, scale, zero_point, bits) - zero_point",
            ),
            Mistake(
                "Values outside the range come back as they were. Go through to_codes, which "
                "clamps them.",
                wrong="return scale * torch.round(x / scale)",
            ),
        ),
    ),
    Item(
        "silence",
        dead_cases,
        dead_oracle,
        minutes=5,
        dots=2,
        nudge="If you change only the filter, what does BatchNorm make of the layer's new output?",
        hint="Filters of 0 give the output 0. BatchNorm gives beta for the mean, so the mean has "
        "to be 0 there, too.",
        mistakes=(
            Mistake(
                "The filters are silent, but BatchNorm still subtracts the old mean from zeros. "
                "Which mean would leave them at 0?",
                wrong="",
                right="    mean[variance < 1e-8] = 0\n",
            ),
            Mistake(
                "The dead channels still compute something. Their filters have to become 0 as "
                "well.",
                wrong="",
                right="    weight[variance < 1e-8] = 0\n",
            ),
            Mistake(
                "You look for a variance of exactly 0. Dead channels have a very small one: "
                "everything below 1e-8 counts.",
                wrong="weight, mean = weight.clone(), mean.clone()\n"
                "weight[variance == 0] = 0\n"
                "mean[variance == 0] = 0\n"
                "return weight, mean",
            ),
        ),
    ),
    Item(
        "round_per_channel",
        per_channel_cases,
        per_channel_oracle,
        tolerance=CLOSE,
        minutes=6,
        dots=2,
        nudge="Which shape must the scales have, so that each meets its own filter?",
        hint="One scale for each W[o]: its largest absolute value over 127, shaped so that it "
        "multiplies axis 0. Where a filter is all zeros, any scale but 0 will do.",
        mistakes=(
            Mistake(
                "You use one scale for the whole layer. Each filter has its own.",
                wrong="W.abs().amax()",
                right="W.abs().amax((1, 2, 3), keepdim=True)",
            ),
            Mistake(
                "Your scales belong to the input channels. The first axis of W counts the "
                "filters, so take the maximum over the other three.",
                wrong="(0, 2, 3)",
                right="(1, 2, 3)",
            ),
            Mistake(
                "A filter of zeros gets a scale of 0, and 0 / 0 is nan. Give it any other scale.",
                wrong="",
                right=".clamp(min=1e-12)",
            ),
            Mistake(
                "You return the codes. Multiply them by the scale to get weights back.",
                wrong="torch.round(W / scale)",
                right="torch.round(W / scale) * scale",
            ),
        ),
    ),
    Item(
        "size_in_bytes",
        size_cases,
        size_oracle,
        view=lambda answer, probe: int(answer),
        minutes=4,
        dots=1,
        nudge="Which tensors does a file hold beside the parameters, and does a zero take less "
        "room?",
        hint="model.state_dict() has every parameter and buffer; "
        "numel() times element_size() are the bytes of one.",
        mistakes=(
            Mistake(
                "You count the parameters. A file also holds the buffers, such as BatchNorm's "
                "statistics.",
                wrong="parameters()",
                right="state_dict().values()",
            ),
            Mistake(
                "Not every number takes 4 bytes. Ask each tensor for the size of one of its "
                "elements.",
                wrong="4",
                right="t.element_size()",
            ),
            Mistake(
                "You count numbers. How many bytes does each of them take?",
                wrong="",
                right=" * t.element_size()",
            ),
            Mistake(
                "You leave out zeros. In a file a zero takes as much room as any other number.",
                wrong="int(t.count_nonzero())",
                right="t.numel()",
            ),
        ),
    ),
    Item(
        "least_error",
        least_cases,
        least_oracle,
        view=least_view,
        score=least_score,
        minutes=12,
        dots=2,
        nudge="Errors are measured on all values, also on those that the narrower range cuts off.",
        hint="For each share: the ends, choose_scale of the two ends, there_and_back of all "
        "values, the mean square of what changed. Return the ends with the least of these.",
        mistakes=(
            Mistake(
                "You measure the error inside the range only. Values that are cut off change "
                "most: compare with all values as they were.",
                wrong="bits) - values.clamp(*ends))",
                right="bits) - values)",
            ),
            Mistake(
                "You compare the largest errors. Compare the means of the squared errors.",
                wrong=".abs().max()",
                right=".square().mean()",
            ),
            Mistake(
                "You return the range with the largest error. Return the one with the least.",
                wrong="return max(",
                right="return min(",
            ),
            Mistake(
                "You narrow the range on one side. Both ends take the same share.",
                wrong="(low, high * share)",
                right="(low * share, high * share)",
            ),
            Mistake(
                "Your full range is an average of the batches' ranges. Take the smallest and the "
                "largest value of all batches together.",
                wrong="torch.stack([b.min() for b in batches]).mean().clamp(max=0), "
                "torch.stack([b.max() for b in batches]).mean().clamp(min=0)",
                right="values.min().clamp(max=0), values.max().clamp(min=0)",
            ),
        ),
    ),
)
