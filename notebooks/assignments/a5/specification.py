"""The exercises of a5, the pipeline.

Secret: holds the oracles, mostly plain Python over lists and texts of bits.
"""

import math
import struct
from dataclasses import replace

import torch
from driver import (
    TARGET_ACCURACY,
    TARGET_BYTES,
    disturb,
    run_network,
    score_network,
    view_network,
)

from helpers import data
from helpers.checks.compare import Tolerance
from helpers.checks.specification import Assignment, Case, Item, Verdict

CLOSE = Tolerance(relative=1e-6, absolute=1e-9)
EXACT = Tolerance(relative=0.0, absolute=0.0)
SINGLE = Tolerance(relative=3e-5, absolute=3e-5)  # enough for what is computed in float32


def _normal(rng, *shape):
    return torch.randn(*shape, generator=rng, dtype=torch.float64)


def _codes(rng, count, bits):
    return torch.randint(0, 2**bits, (count,), generator=rng)


def _between(rng, low, high):
    return torch.randint(low, high + 1, (), generator=rng).item()


# Bits of a code and how many codes: just 64 bits, more than a float64 holds.
SIZES = ((2, 32), (3, 21), (4, 16), (7, 9), (7, 40), (8, 8))


def _sizes(rng):
    """These, and for each number of bits codes that end with a byte, an odd and an even number of
    others.
    """
    sizes = dict.fromkeys(SIZES)
    for bits in range(1, 9):
        whole, odd, even = (8 * _between(rng, 0, 5) for _ in range(3))
        sizes[bits, whole + 8] = None
        sizes[bits, odd + 2 * _between(rng, 0, 3) + 1] = None
        sizes[bits, even + 2 * _between(rng, 1, 3)] = None
    return [*sizes]


# 1. and 2. packing bits --------------------------------------------------------------------------


def _pack_cases(rng):
    return [
        Case("four bits", {"codes": _codes(rng, 8, 4), "bits": 4}),
        Case("three bits, five numbers", {"codes": _codes(rng, 5, 3), "bits": 3}),
    ]


def _pack_edges(rng):
    return [
        Case("eight bits", {"codes": _codes(rng, 4, 8), "bits": 8}),
        Case("five bits, many numbers", {"codes": _codes(rng, 1001, 5), "bits": 5}),
        Case("one bit, one number", {"codes": torch.ones(1, dtype=torch.int64), "bits": 1}),
        Case(
            "zeros at the end",
            {"codes": torch.cat([_codes(rng, 3, 6), torch.zeros(6, dtype=torch.int64)]), "bits": 6},
        ),
        Case("nothing but zeros", {"codes": torch.zeros(5, dtype=torch.int64), "bits": 3}),
        Case("zeros of 8 bits", {"codes": torch.zeros(3, dtype=torch.int64), "bits": 8}),
        Case("the largest codes", {"codes": torch.full((5,), 255), "bits": 8}),
        *(
            Case(f"{count} codes of {bits} bits", {"codes": _codes(rng, count, bits), "bits": bits})
            for bits, count in _sizes(rng)
        ),
    ]


def _packed(codes, bits):
    """The bytes as a list, by way of one large integer."""
    together = sum(code << (bits * i) for i, code in enumerate(codes))
    return list(together.to_bytes(math.ceil(bits * len(codes) / 8), "little"))


def _pack_oracle(inputs, probe):
    return torch.tensor(_packed(inputs["codes"].tolist(), inputs["bits"]), dtype=torch.uint8)


def _unpack_inputs(codes, bits, more=0):
    """The packed codes, with `more` of the largest ones behind them."""
    together = codes.tolist() + [2**bits - 1] * more
    packed = torch.tensor(_packed(together, bits), dtype=torch.uint8)
    return {"packed": packed, "bits": bits, "count": len(codes)}


def _unpack_cases(rng):
    return [
        Case("four bits", _unpack_inputs(_codes(rng, 6, 4), 4)),
        Case("five bits, seven numbers", _unpack_inputs(_codes(rng, 7, 5), 5)),
    ]


def _unpack_edges(rng):
    cases = [
        Case("eight bits", _unpack_inputs(_codes(rng, 3, 8), 8)),
        Case("three bits, many numbers", _unpack_inputs(_codes(rng, 1003, 3), 3)),
        Case("eight bits, many numbers", _unpack_inputs(_codes(rng, 301, 8), 8)),
        Case("a single code", _unpack_inputs(_codes(rng, 1, 6) + 1, 7)),
        Case("bytes left over", _unpack_inputs(_codes(rng, 2, 3), 3, more=7)),
        Case("nothing but zeros", _unpack_inputs(torch.zeros(5, dtype=torch.int64), 3)),
        Case(
            "zeros at the end",
            _unpack_inputs(
                torch.cat([_codes(rng, 3, 6) + 1, torch.zeros(5, dtype=torch.int64)]), 7
            ),
        ),
        Case("the largest codes", _unpack_inputs(torch.full((5,), 255), 8)),
    ]
    for bits, count in _sizes(rng):
        more = _between(rng, 1, 9) if count % 2 else 0
        label = f"{count} codes of {bits} bits" + " and something behind them" * (more > 0)
        cases.append(Case(label, _unpack_inputs(_codes(rng, count, bits), bits, more)))
    return cases


def _unpack_oracle(inputs, probe):
    together, bits = int.from_bytes(bytes(inputs["packed"].tolist()), "little"), inputs["bits"]
    return torch.tensor(
        [(together >> (bits * i)) % 2**bits for i in range(inputs["count"])], dtype=torch.int64
    )


WEIGHTS = ((2, (4, 3, 3, 3)), (3, (1, 6)), (4, (3, 2, 5)), (6, (3, 2, 2, 3)), (7, (2, 3, 2, 3, 2)))
AXES = range(2, 6)


def _shape(rng, axes, outputs, inputs):
    """The shape of a weight with a window of any size."""
    return outputs, inputs, *(_between(rng, 1, 3) for _ in range(axes - 2))


def _drawn_weights(rng):
    """Labels and shapes with a single output or input, and bits for them."""
    for axes in AXES:
        several = _between(rng, 2, 5)
        for name, sizes in (("output", (1, several)), ("input", (several, 1))):
            label = f"a single {name}, {axes} axes"
            yield label, _shape(rng, axes, *sizes), _between(rng, 2, 8)


# 3. and 4. weights in and out of the file --------------------------------------------------------


def _half(value):
    """A number as float16 stores it."""
    return struct.unpack("<e", struct.pack("<e", value))[0]


def _squeeze_case(label, weight, bits):
    """A case in which no number lies half-way between two codes, where float32 and float64 would
    round apart.
    """
    weight, most = weight.float(), 2 ** (bits - 1) - 1
    for row in weight.flatten(1):
        while _half(row.abs().max().item() / most) != (row.abs().max() / most).half().item():
            row *= 1.01  # nor does a scale lie so between two numbers of float16
        scale = _half(row.abs().max().item() / most) or 1.0
        steps = row.double() / scale
        row.copy_(
            torch.where(
                (steps.frac().abs() - 0.5).abs() < 1e-3, steps.trunc() * scale, row.double()
            )
        )
    return Case(label, {"weight": weight, "bits": bits})


def _squeeze_cases(rng):
    return [
        _squeeze_case("five bits", _normal(rng, 4, 3, 3, 3), 5),
        _squeeze_case("three bits", _normal(rng, 3, 2, 1, 1) * 0.1, 3),
    ]


def _faint(rng, axes, bits):
    """A weight with channels that have no scale in float16, or one that is rounded up far, or down
    so far that codes are clamped.
    """
    weight = _normal(rng, *_shape(rng, axes, 5, _between(rng, 2, 4)))
    places = torch.randperm(5, generator=rng)
    for place, scale in zip(places, (0, 1e-9, 0.52 * 2.0**-24, 1.4 * 2.0**-24), strict=False):
        row = weight[place].flatten()
        row[:2] = row.abs().max() * torch.tensor([1, -1])
        weight[place] = (row * scale * (2 ** (bits - 1) - 1) / row[0]).reshape(weight[0].shape)
    return weight


def _squeeze_edges(rng):
    zero = _normal(rng, 3, 4)
    zero[1] = 0
    tiny = _normal(rng, 4, 5)
    tiny[2] *= 1e-9
    balanced = _normal(rng, 3, 2)
    balanced[1, 1] = -balanced[1, 0]
    one_sign = _normal(rng, 4, 5).abs() * torch.tensor([1, -1, 1, -1]).reshape(4, 1)
    one_sign[:2, _between(rng, 0, 4)] = 0
    halves = torch.cat([torch.full((1, 1), 7.0), torch.arange(-13, 14, 2)[None] / 2], dim=1)
    # Scales that float16 holds, but not their inverses; their products with halves are exact.
    uneven = torch.tensor([[1571.0], [1583.0], [1646.0]]) / 1024
    some = _normal(rng, 3, 4, 2)
    some[:, 0, 0] = 0
    large = _normal(rng, 3, 4)
    cases = [
        _squeeze_case("a channel of zeros", zero, 4),
        _squeeze_case("a weight of 0 in each channel", some, 5),
        _squeeze_case("a channel so small that float16 has no scale for it", tiny, 6),
        Case(
            "weights half-way between two codes",
            {"weight": halves[:, torch.randperm(15, generator=rng)], "bits": 4},
        ),
        Case(
            "weights half-way between two codes, with uneven scales",
            {"weight": (halves * uneven).reshape(3, 5, 3), "bits": 4},
        ),
        _squeeze_case("eight bits, many numbers", _normal(rng, 40, 50) * 3, 8),
        _squeeze_case("large weights", large * 65_000 * 127 / large.abs().max(), 8),
        _squeeze_case("nothing but zeros", zero * 0, 4),
        *(
            _squeeze_case(f"{bits} bits, shape {shape}", _normal(rng, *shape), bits)
            for bits, shape in WEIGHTS
        ),
        _squeeze_case("a channel whose weights add up to 0", balanced, 5),
        _squeeze_case("channels of one sign, two of them with a 0", one_sign, 6),
        *(
            _squeeze_case(label, _normal(rng, *shape), bits)
            for label, shape, bits in _drawn_weights(rng)
        ),
    ]
    for axes in AXES:
        bits = 8 if axes == 2 else _between(rng, 3, 8)
        label = f"channels of almost or exactly 0, {axes} axes"
        cases.append(_squeeze_case(label, _faint(rng, axes, bits), bits))
    return cases


def _squeeze_oracle(inputs, probe):
    bits, codes, scales = inputs["bits"], [], []
    most = 2 ** (bits - 1) - 1
    for row in inputs["weight"].flatten(1).tolist():
        scales.append(_half(max(map(abs, row)) / most) or 1.0)
        codes += [
            min(max(round(value / scales[-1]), -most), most) + 2 ** (bits - 1) for value in row
        ]
    return [
        torch.tensor(_packed(codes, bits), dtype=torch.uint8),
        torch.tensor(scales, dtype=torch.float16),
    ]


def _restore_case(rng, label, shape, bits):
    scales = (torch.rand(shape[0], generator=rng) + 0.01).half()
    packed = _unpack_inputs(_codes(rng, math.prod(shape), bits), bits)["packed"]
    inputs = {"packed": packed, "scales": scales, "shape": list(shape), "bits": bits}
    return Case(label, inputs)


def _restore_cases(rng):
    return [
        _restore_case(rng, "four bits", (3, 2, 3, 3), 4),
        _restore_case(rng, "a linear layer", (5, 3), 6),
    ]


def _restore_edges(rng):
    def scaled(label, scales):
        case = _restore_case(rng, label, (2, 3), 8)
        case.inputs["scales"] = torch.tensor(scales, dtype=torch.float16)
        return case

    return [
        _restore_case(rng, "a depthwise layer", (5, 1, 3, 3), 7),
        _restore_case(rng, "as many inputs as outputs", (4, 4), 3),
        _restore_case(rng, "eight bits", (2, 3, 1, 1), 8),
        _restore_case(rng, "a convolution in one dimension", (4, 2, 3), 5),
        _restore_case(rng, "a kernel of 3 by 1", (2, 2, 3, 1), 8),
        *(
            _restore_case(rng, f"{bits} bits, shape {shape}", shape, bits)
            for bits, shape in WEIGHTS
        ),
        *(_restore_case(rng, *drawn) for drawn in _drawn_weights(rng)),
        scaled("a scale of 1", [1.0, 0.5]),
        scaled("scales that float16 hardly holds", [3e-5, 6e-8]),
        scaled("large scales", [600.0, 65_504.0]),
        scaled("equal scales", [0.25, 0.25]),
    ]


def _restore_oracle(inputs, probe):
    count = math.prod(inputs["shape"])
    codes = _unpack_oracle(
        {"packed": inputs["packed"], "bits": inputs["bits"], "count": count}, {}
    ).tolist()
    per_row, scales = count // inputs["shape"][0], inputs["scales"].tolist()
    values = [
        (code - 2 ** (inputs["bits"] - 1)) * scales[i // per_row] for i, code in enumerate(codes)
    ]
    return torch.tensor(values, dtype=torch.float32).reshape(inputs["shape"])


# 5. channels that leave their mean behind --------------------------------------------------------


def _drop_case(rng, label, shape, kept):
    keep = torch.randperm(shape[1], generator=rng)[:kept].sort().values
    inputs = {"weight": _normal(rng, *shape), "bias": _normal(rng, shape[0]), "keep": keep}
    return Case(label, inputs | {"means": _normal(rng, shape[1])})


def _drop_cases(rng):
    return [_drop_case(rng, "a pointwise convolution", (4, 6, 1, 1), 3)]


def _drop_edges(rng):
    small, equal = (
        _drop_case(rng, f"{kind} means", (3, inputs, 2, 1), 2)
        for kind, inputs in (("small", 6), ("equal", 5))
    )
    small.inputs["means"] = 3e-4 + 6e-4 * torch.rand(6, generator=rng).double()
    equal.inputs["means"][:] = _normal(rng, 1)
    large = _drop_case(rng, "large means", (3, 5, 2, 1), 2)
    large.inputs["means"] *= 1e3
    no_bias = _drop_case(rng, "a bias of zeros", (3, 5, 1, 2), 2)
    no_bias.inputs["bias"][:] = 0
    balanced, still = (
        _drop_case(rng, f"removed means {words}", (3, 6, 2, 1), 3)
        for words in ("that add up to 0", "of which one is 0")
    )
    # Numbers that sort otherwise as texts or in a set.
    many = _drop_case(rng, "four of forty channels kept", (3, 40, 1, 2), 4)
    many.inputs["keep"] = torch.tensor([1, 8, 20, 33])
    removed = sorted(set(range(6)) - set(balanced.inputs["keep"].tolist()))
    balanced.inputs["means"][removed] = torch.tensor([1.5, -0.5, -1.0], dtype=torch.float64)
    still.inputs["means"][min(set(range(6)) - set(still.inputs["keep"].tolist()))] = 0
    cases = [
        no_bias,
        many,
        _drop_case(rng, "three hundred channels", (2, 300, 2), 290),
        balanced,
        still,
        small,
        large,
        equal,
        _drop_case(rng, "a linear layer", (5, 5), 2),
        _drop_case(rng, "a kernel of 3 by 3", (3, 4, 3, 3), 2),
        _drop_case(rng, "nothing removed", (2, 3, 1, 1), 3),
        _drop_case(rng, "a convolution in one dimension", (3, 5, 4), 2),
        _drop_case(rng, "one removed", (3, 4, 2, 1), 3),
        _drop_case(rng, "a convolution in three dimensions", (3, 4, 2, 3, 2), 2),
        _drop_case(rng, "a single output", (1, 5, 3, 3), 3),
        _drop_case(rng, "a linear layer of a single output", (1, 3), 2),
        _drop_case(rng, "one kept", (4, 6, 1, 1), 1),
        _drop_case(rng, "one kept of a linear layer", (4, 4), 1),
        _drop_case(rng, "a single input, kept", (4, 1, 1, 1), 1),
    ]
    for axes in AXES:
        for removed in (0, 1, 2, -1):
            outputs, inputs = _between(rng, 1, 4), _between(rng, 4, 6)
            kept = inputs - removed if removed >= 0 else 1
            label = f"{axes} axes, {kept} of {inputs} channels kept"
            cases.append(_drop_case(rng, label, _shape(rng, axes, outputs, inputs), kept))
    return cases


def _drop_oracle(inputs, probe):
    weight, keep, means = inputs["weight"], inputs["keep"].tolist(), inputs["means"].tolist()
    bias = inputs["bias"].tolist()
    for out in range(len(bias)):
        for channel in set(range(weight.shape[1])) - set(keep):
            bias[out] += sum(weight[out, channel].flatten().tolist()) * means[channel]
    kept = torch.stack([weight[:, channel] for channel in keep], dim=1)
    return [kept, torch.tensor(bias, dtype=torch.float64)]


# 6. distillation ---------------------------------------------------------------------------------


def _distill_case(rng, label, shape, temperature, share, size=1.0, centre=0.0):
    inputs = {name: _normal(rng, *shape) * size + centre for name in ("scores", "teacher_scores")}
    inputs |= {"labels": torch.randint(0, shape[1], (shape[0],), generator=rng)}
    return Case(label, inputs | {"temperature": temperature, "share": share})


def _distill_cases(rng):
    return [_distill_case(rng, "a batch of four", (4, 10), 4.0, 0.7)]


def _distill_edges(rng):
    apart = _distill_case(rng, "many images, one with much larger scores", (8, 4), 2.0, 0.5, 400.0)
    apart.inputs["scores"][0] += 3000
    apart.inputs["teacher_scores"][1] += 3000
    ruled_out = _distill_case(rng, "classes that teacher and student rule out", (3, 6), 2.0, 0.5)
    for name in ("scores", "teacher_scores"):
        ruled_out.inputs[name][:, 2:] -= 4000
    ruled_out.inputs["labels"] %= 2
    opposed = _distill_case(rng, "teacher and student sure of other classes", (3, 4), 1.5, 0.4)
    opposed.inputs["teacher_scores"][:, 0] += 2000
    opposed.inputs["scores"][:, 1] += 2000
    doubtful = [
        _distill_case(rng, f"a class that the student alone rules out{words}", (3, 4), 1.0, 0.8)
        for words in ("", ", by far")
    ]
    for case, scores, below in zip(doubtful, (40_000, 1e10), (18, 28), strict=True):
        case.inputs["scores"][:, 3] -= scores
        case.inputs["teacher_scores"][:, 3] = case.inputs["teacher_scores"].amax(1) - below
        case.inputs["labels"] %= 3
    both = _distill_case(rng, "a class that both rule out, the student by far", (3, 4), 1.0, 0.8)
    both.inputs["scores"][:, 3] -= 1e30
    both.inputs["teacher_scores"][:, 3] -= 4000
    both.inputs["labels"] %= 3
    temperatures = (torch.randperm(20, generator=rng)[:3] + 1) / 4
    cases = [
        _distill_case(rng, "the labels alone", (3, 5), 2.0, 0.0),
        _distill_case(rng, "the teacher alone", (2, 3), 3.0, 1.0),
        _distill_case(rng, "as many images as classes", (4, 4), 1.0, 0.5),
        _distill_case(rng, "large scores", (3, 4), 1.0, 0.5, 400.0, 1000.0),
        _distill_case(rng, "a temperature below 1", (4, 6), 0.5, 0.3),
        _distill_case(rng, "a single image", (1, 10), 2.0, 0.6),
        _distill_case(rng, "three hundred images", (300, 5), 3.0, 0.6),
        _distill_case(rng, "a high temperature", (3, 5), 20.0, 0.5, 30.0),
        _distill_case(rng, "a low temperature", (3, 5), 0.05, 0.5),
        _distill_case(rng, "many classes", (3, _between(rng, 50, 100)), 3.0, 0.8),
        apart,
        ruled_out,
        opposed,
        *doubtful,
        both,
        _distill_case(rng, "large scores, a temperature below 1", (3, 4), 0.5, 0.3, 400.0, 2000.0),
        _distill_case(rng, "large scores, a temperature above 1", (3, 4), 2.0, 0.4, 400.0, 2500.0),
        _distill_case(rng, "scores far below 0", (3, 4), 1.0, 0.5, 400.0, -2500.0),
    ]
    for temperature in temperatures.tolist():
        share, shape = _between(rng, 1, 19) / 20, (_between(rng, 1, 6), _between(rng, 2, 8))
        label = f"temperature {temperature:g}, share {share:g}"
        cases.append(_distill_case(rng, label, shape, temperature, share))
    return cases


def _log_shares(scores, temperature):
    scaled = [score / temperature for score in scores]
    top = max(scaled)
    total = top + math.log(sum(math.exp(value - top) for value in scaled))
    return [value - total for value in scaled]


def _distill_oracle(inputs, probe):
    temperature, losses = inputs["temperature"], []
    rows = zip(
        inputs["scores"].tolist(),
        inputs["teacher_scores"].tolist(),
        inputs["labels"].tolist(),
        strict=True,
    )
    for student, teacher, label in rows:
        wanted, given = _log_shares(teacher, temperature), _log_shares(student, temperature)
        apart = sum(math.exp(w) * (w - g) for w, g in zip(wanted, given, strict=True))
        hard = -_log_shares(student, 1.0)[label]
        losses.append(inputs["share"] * temperature**2 * apart + (1 - inputs["share"]) * hard)
    return torch.tensor(sum(losses) / len(losses), dtype=torch.float64)


# 7. the front ------------------------------------------------------------------------------------


def _front_cases(rng):
    sizes = (torch.randperm(8, generator=rng) + 1) * 1000
    # Larger networks are mostly better, so that several are on the front.
    accuracies = 0.5 + 0.03 * sizes / 1000 + 0.15 * torch.rand(8, generator=rng).double()
    return [Case("eight networks", {"accuracies": accuracies.tolist(), "sizes": sizes.tolist()})]


def _tied(rng, count):
    """Larger networks are mostly better; many are equal in one of the two or in both."""
    sizes = [_between(rng, 1, 6) for _ in range(count)]
    accuracies = [(size + _between(rng, 0, 2)) / 10 for size in sizes]
    return {"accuracies": accuracies, "sizes": [1000 * size for size in sizes]}


def _front_case(label, accuracies, sizes):
    return Case(label, {"accuracies": accuracies, "sizes": sizes})


def _front_edges(rng):
    base = (torch.rand(1, generator=rng, dtype=torch.float64) * 0.1 + 0.6).item()
    return [
        *_equal_networks(base),
        *_near_networks(base),
        *_beaten_networks(base),
        *(
            Case(f"{count} networks with many ties", _tied(rng, count))
            for count in (_between(rng, 8, 15), _between(rng, 16, 30))
        ),
    ]


def _equal_networks(base):
    """Networks that are equal in one of the two, or in both."""
    one, two = base + 0.1, base + 0.2
    best = (3, 8, 10)  # in a set they have another order
    nine_beaten = [
        [chosen if place in best else other for place in range(12)]
        for chosen, other in ((one, base), (20, 50))
    ]
    return [
        _front_case("three equal networks that beat nine", *nine_beaten),
        _front_case("equal accuracies", [base, base, one], [300, 200, 400]),
        _front_case("equal sizes", [base, two, one], [500, 500, 500]),
        _front_case("the same network twice", [base, 0.9, base, 0.1], [10, 20, 10, 15]),
        _front_case("two accuracies of 0", [0.0, 0.0, base], [7, 8, 9]),
        _front_case("five equal networks", [base] * 5, [40] * 5),
        _front_case("two equal networks that a better one beats", [base, one, base], [20, 10, 20]),
        _front_case("two equal networks that a smaller one beats", [base] * 3, [20, 10, 20]),
        _front_case(
            "two equal networks and a better one of their size", [base, base, one], [20] * 3
        ),
    ]


def _near_networks(base):
    """Networks that differ by little, which float32 does not see."""
    hardly, more = [base, base + 1e-7, base + 2e-7], math.nextafter(base, 1)
    return [
        _front_case(
            "sizes of some thousand millions that hardly differ",
            [base, base + 0.1],
            [3_000_000_000, 3_000_000_001],
        ),
        _front_case(
            "accuracies that hardly differ", [0.625 + 1e-8, 0.625, 0.625 + 2e-8], [2, 1, 3]
        ),
        _front_case("equal sizes, accuracies that hardly differ", hardly, [60] * 3),
        _front_case("accuracies whose last digit differs", [base, more], [60, 61]),
        _front_case("equal sizes, the last digit differs", [base, more], [60, 60]),
        _front_case(
            "equal large sizes, accuracies 1e-8 apart", [base, base + 1e-8], [3 * 10**9] * 2
        ),
    ]


def _beaten_networks(base):
    """Networks of which one or more are beaten, or none."""
    one, two = base + 0.1, base + 0.2
    return [
        _front_case("one network", [base], [7]),
        _front_case("an accuracy of 0", [0.0, base], [7, 9]),
        _front_case("an accuracy of 1", [0.995, 1.0], [60, 61]),
        _front_case("accuracies of 1 and 0", [1.0, 0.0], [61, 60]),
        _front_case(
            "three hundred networks, none beaten", [i / 300 for i in range(300)], [*range(1, 301)]
        ),
        _front_case("two of three beaten by the first", [two, base, one], [1, 2, 3]),
        _front_case("sizes of other lengths when written", [one, base, two], [1000, 900, 20000]),
        _front_case("a much larger one that is worse", [one, base], [1000, 9000]),
        _front_case(
            "two larger ones, the first of them worse", [base, base - 0.1, one], [10, 30, 40]
        ),
        _front_case(
            "one hardly better than a smaller one", [two, base, base + 0.01], [3000, 1000, 2000]
        ),
    ]


def _front_oracle(inputs, probe):
    networks = list(zip(inputs["sizes"], inputs["accuracies"], strict=True))

    def beaten(size, accuracy):
        return any(s <= size and a >= accuracy and (s < size or a > accuracy) for s, a in networks)

    front = sorted(
        (i for i, network in enumerate(networks) if not beaten(*network)),
        key=lambda i: (networks[i][0], i),
    )
    return [torch.tensor(i) for i in front]  # Python's integers are like these, its floats are not


# 8. the network ----------------------------------------------------------------------------------


def _images(rng, which, label):
    cifar = data.load_cifar10("sample")
    images = getattr(cifar, f"{which}_images")
    chosen = torch.randperm(len(images), generator=rng)
    # The labels stay outside the box: what goes in is the position of each image, which tells
    # nothing there.
    return Case(
        label, {}, {"images": disturb(images[chosen], rng), "which": which, "chosen": chosen}
    )


def _network_cases(rng):
    return [_images(rng, "train", "disturbed training images")]


def _network_edges(rng):
    return [_images(rng, "test", "disturbed test images")]


def _network_oracle(inputs, probe):
    return getattr(data.load_cifar10("sample"), f"{probe['which']}_labels")[probe["chosen"]]


TORCHS_OWN = ("torch.*quantize*", "torch.ao.*")
NUMPYS_OWN = ("numpy.packbits", "numpy.*.packbits", "numpy.unpackbits", "numpy.*.unpackbits")
# Where the types of tensors belong to the format of a file.
OF_A_FILE = ("pack_bits", "unpack_bits", "squeeze_weight", "restore_weight")


def _item(name, points, cases, oracle, edges, nudge, hint, tolerance=CLOSE, forbidden=()):
    more = {
        "edges": edges,
        "nudge": nudge,
        "hint": hint,
        "tolerance": tolerance,
        "forbidden": forbidden,
    }
    if name in OF_A_FILE:
        more["tolerance"] = replace(tolerance, same_types=True)
    return Item(name, cases, oracle, points=points, **more)


ITEMS = (
    _item(
        "pack_bits",
        9,
        _pack_cases,
        _pack_oracle,
        _pack_edges,
        "Write down by hand which bits of which bytes the first three codes of 3 bits fill",
        "The first number fills the lowest bits of the first byte; "
        "numbers may reach over into the next byte",
        EXACT,
        NUMPYS_OWN,
    ),
    _item(
        "unpack_bits",
        7,
        _unpack_cases,
        _unpack_oracle,
        _unpack_edges,
        "In which byte does code i begin, and at which of its bits?",
        "The last byte may hold bits that belong to no number; return int64",
        EXACT,
        NUMPYS_OWN,
    ),
    _item(
        "squeeze_weight",
        10,
        _squeeze_cases,
        _squeeze_oracle,
        _squeeze_edges,
        "Which scale will the reader of the file have?",
        "Codes must be made with the scale that the file holds, not with the one before it was "
        "rounded to float16",
        EXACT,
        TORCHS_OWN,
    ),
    _item(
        "restore_weight",
        8,
        _restore_cases,
        _restore_oracle,
        _restore_edges,
        "What was done last when the weight was squeezed? Undo that first",
        "Take the offset away before the scale is applied; each output channel has its own scale",
        CLOSE,
        TORCHS_OWN,
    ),
    _item(
        "drop_channels",
        8,
        _drop_cases,
        _drop_oracle,
        _drop_edges,
        "What does a removed channel add to an output if all its pixels hold its mean?",
        "A removed channel leaves weight times mean behind, summed over removed channels and over "
        "the kernel",
        SINGLE,
    ),
    _item(
        "distillation_loss",
        10,
        _distill_cases,
        _distill_oracle,
        _distill_edges,
        "Which of the two terms uses the temperature, and what is averaged over?",
        "The mean over images; the softened part is multiplied by the squared temperature; "
        "mind large scores",
        SINGLE,
        ("torch.*kl_div*", "torch.*kldiv*", "torch.distributions.kl.*"),
    ),
    _item(
        "front",
        8,
        _front_cases,
        _front_oracle,
        _front_edges,
        "Can a network be beaten by one that is equal to it?",
        "Beaten means: another is at least as good in both and better in one; "
        "equals do not beat each other; sort by size, then by position",
        EXACT,
    ),
    Item(
        "network",
        _network_cases,
        _network_oracle,
        function="restore",
        points=30,
        edges=_network_edges,
        seconds=60.0,
        run=run_network,
        view=view_network,
        score=lambda *seen: Verdict(*score_network(*seen)),
        nudge="Which of accuracy and bytes lies farther from full points? Exercise 8 has the rule",
        hint="The lower accuracy of two counts; "
        f"0 points below {TARGET_ACCURACY:.0%} or above {TARGET_BYTES:,} bytes",
    ),
)

ASSIGNMENT = Assignment("a5", "The pipeline", ITEMS, manual_points=10)
