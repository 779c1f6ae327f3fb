"""The exercises of a4, quantization.

Secret: holds the oracles, mostly exact arithmetic in plain Python.
"""

import math
from fractions import Fraction

import torch
from driver import RUNS

from helpers.checks.compare import Tolerance
from helpers.checks.specification import Assignment, Case, Item

CLOSE = Tolerance(relative=1e-9, absolute=0.0, same_types=True)
EXACT = Tolerance(relative=0.0, absolute=0.0, same_types=True)


def _normal(rng, *shape):
    return torch.randn(*shape, generator=rng, dtype=torch.float64)


def _both_signs(rng, count):
    """Normal numbers of which every other one is negative."""
    return (
        _normal(rng, count).abs().add(0.1)
        * torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(count)[:count]
    )


def _integers(rng, low, high, *shape):
    return torch.randint(low, high + 1, shape, generator=rng)


def _one_of(rng, *values):
    return values[_integers(rng, 0, len(values) - 1, 1).item()]


def _power_of_ten(rng, low, high):
    """A number between 10^low and 10^high, of any size in between."""
    return 10.0 ** (low + (high - low) * torch.rand(1, generator=rng, dtype=torch.float64).item())


def _round_half_even(value):
    return round(Fraction(value))


# 1. scale and zero point -------------------------------------------------------------------------


def _range_case(label, low, high, bits):
    return Case(label, {"low": float(low), "high": float(high), "bits": bits})


JUST_BELOW_HALF_WAY = math.nextafter(-131.5 * 0.625, 0)
LONG_SCALE = 923_542_545_135
UNEVEN = 49 / 64  # its inverse is not exact


def _range_cases(rng):
    spread = torch.rand(4, generator=rng, dtype=torch.float64).tolist()
    return [
        _range_case("a range around zero", -spread[0] - 0.1, spread[1] + 0.5, 8),
        _range_case("four bits", -spread[2], spread[3] + 1, 4),
        # Other ways of dividing give another last digit. So they do here, where students see it.
        _range_case(
            "a zero point just below half-way, divided once by the scale",
            *(JUST_BELOW_HALF_WAY, 255 * 0.625 + JUST_BELOW_HALF_WAY, 8),
        ),
        _range_case(
            "a zero point half-way, divided once by the scale",
            *(-179.5 * LONG_SCALE, 75.5 * LONG_SCALE, 8),
        ),
        _range_case(
            "a zero point of 13.5, divided once by the scale",
            *(-13.5 * UNEVEN, 241.5 * UNEVEN, 8),
        ),
    ]


def _range_edges(rng):
    start = torch.rand(1, generator=rng, dtype=torch.float64).item() + 1
    power = 2.0 ** _integers(rng, -3, 3, 1).item()
    bits = [_one_of(rng, 3, 5, 6, 7, 10, 11, 13) for _ in range(6)]
    tiny, huge = _power_of_ten(rng, -60, -48), _power_of_ten(rng, 20, 30)
    near = _power_of_ten(rng, -7, -4)
    uneven = UNEVEN * power
    return [
        _range_case("a zero point of 13.5, uneven", -13.5 * uneven, 241.5 * uneven, 8),
        _range_case("a range above zero", start, 3 * start, bits[0]),
        _range_case("a range below zero", -3 * start, -start, bits[1]),
        _range_case("a range just above zero", start * near, 3 * start, bits[1]),
        _range_case("a range just below zero", -3 * start, -start * near, bits[0]),
        _range_case("an empty range at zero", 0, 0, bits[2]),
        _range_case("a single number", start, start, bits[3]),
        _range_case("a single number below zero", -start, -start, bits[4]),
        _range_case("a range that ends at 0", -start, 0, bits[5]),
        _range_case("a huge range", -start * huge, 4 * start * huge, _one_of(rng, 18, 20, 24)),
        _range_case("a small range", -start * 1e-7, 2 * start * 1e-7, 8),
        _range_case("a zero point half-way between two codes", -power, 5 * power, 2),
        _range_case("a zero point half-way between two others", -3 * power, 3 * power, 2),
        _range_case("a zero point just below a code", -0.66 * power, power, 4),
        _range_case("sixteen bits", -start, 2 * start, 16),
        _range_case("a tiny range", -start * tiny, 2 * start * tiny, 8),
        _range_case("a small range from 0", 0, start * 1e-4, 8),
        _range_case("a single bit", -start, 3 * start, 1),
        _range_case("a single bit, as far below zero as above", -power, power, 1),
        _range_case("a zero point of 2.5", -2.5 * power, 12.5 * power, 4),
        _range_case("a zero point of 10.5", -10.5 * power, 4.5 * power, 4),
        # float32 and ten decimal places take it for 101.5, and would round up.
        _range_case("a zero point near half-way", -101.49999999999, 153.50000000001, 8),
        # Decimal places take it for half-way, too.
        _range_case("a zero point nearer half-way", -101.5 + 2.0**-45, 153.5 + 2.0**-45, 8),
        _range_case("a range that barely reaches above zero", -3 * start, start * near, 8),
        _range_case("a range that barely reaches below zero", -start * near, 3 * start, 8),
        _range_case("thirty-two bits", -3 * start, start, 32),
    ]


def _range_oracle(inputs, probe):
    low, high = min(Fraction(inputs["low"]), 0), max(Fraction(inputs["high"]), 0)
    codes = 2 ** inputs["bits"] - 1
    if low == high:
        return [1.0, 0]
    scale = (high - low) / codes
    return [float(scale), _round_half_even(-low / scale)]


# 2. quantize -------------------------------------------------------------------------------------


def _quantize_cases(rng):
    x = _normal(rng, 4, 5) * 3
    return [
        Case("ordinary numbers", {"x": x, "scale": 0.05, "zero_point": 100, "low": 0, "high": 255})
    ]


def _quantize_edges(rng):
    halves = torch.arange(-9, 10, dtype=torch.float64) / 2
    beside = (halves + 1e-13 * torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(10)[:19]) / 4
    near = torch.nextafter(halves, 9 * torch.tensor([1.0, -1.0]).double().repeat(10)[:19]) / 4
    # Exact multiples of the scale, whose inverse is not exact.
    scale = 49 / 64
    multiples = (torch.arange(-60, 60, dtype=torch.float64) + 0.5) * scale
    return [
        Case("numbers just beside half-way", _quantize_inputs(beside, 0.25, -1, -8, 7)),
        Case("numbers as near half-way as can be", _quantize_inputs(near, 0.25, -1, -8, 7)),
        Case("numbers half-way between two codes", _quantize_inputs(halves, 1.0, 3, -8, 7)),
        Case(
            "numbers far outside", _quantize_inputs(_both_signs(rng, 6) * 1e6, 0.5, -3, -128, 127)
        ),
        Case(
            "numbers that no integer holds",
            _quantize_inputs(_both_signs(rng, 6) * 1e25, 0.5, -3, -128, 127),
        ),
        Case(
            "numbers half-way between two codes, with an uneven scale",
            _quantize_inputs(multiples, scale, -1, -128, 127),
        ),
        Case(
            "codes from -128 to 100",
            _quantize_inputs(_both_signs(rng, 6) * 1e6, 0.5, -3, -128, 100),
        ),
        # Where a scale in float32 is off by more than a code.
        Case(
            "codes of 32 bits",
            _quantize_inputs(_both_signs(rng, 6).clamp(-2, 2) * 1e8, 0.1, -3, -(2**31), 2**31 - 1),
        ),
        Case("no numbers at all", _quantize_inputs(_normal(rng, 0, 3), 0.1, 3, -8, 7)),
        Case("a number without axes", _quantize_inputs(_normal(rng, 1)[0], 0.1, 3, -8, 7)),
        *(
            Case(label, _quantize_drawn(rng, shape, _power_of_ten(rng, *sizes), low, low + codes))
            for label, shape, sizes, low, codes in (
                ("a small scale, three axes", (2, 3, 4), (-60, -45), -200, 300),
                ("a large scale, five axes", (2, 1, 3, 2, 2), (20, 40), -128, 255),
                ("codes of 16 bits", (12,), (-6, 6), 0, 2**16 - 1),
                ("codes above 0", (3, 4), (-3, 3), _integers(rng, 2, 50, 1).item(), 100),
                ("codes below 0", (3, 4), (-3, 3), _integers(rng, -200, -120, 1).item(), 100),
            )
        ),
        *(
            Case(f"zero point 0, codes from {low}", _quantize_drawn(rng, (6,), 0.75, low, 140, 0))
            for low in (0, _integers(rng, -190, -150, 1).item())
        ),
    ]


def _quantize_drawn(rng, shape, scale, low, high, zero_point=None):
    """Numbers whose codes lie between low and high, and beyond on both sides."""
    if zero_point is None:
        zero_point = _integers(rng, low, high, 1).item()
    codes = (low + high) / 2 + (high - low) / 2 * _normal(rng, *shape)
    codes.view(-1)[:2] = torch.tensor([low - 0.8, high + 0.8], dtype=torch.float64)
    return _quantize_inputs((codes - zero_point) * scale, scale, zero_point, low, high)


def _quantize_inputs(x, scale, zero_point, low, high):
    return {"x": x, "scale": scale, "zero_point": zero_point, "low": low, "high": high}


def _quantize_oracle(inputs, probe):
    codes = []
    for value in inputs["x"].flatten().tolist():
        code = _round_half_even(value / inputs["scale"]) + inputs["zero_point"]
        codes.append(min(max(code, inputs["low"]), inputs["high"]))
    return torch.tensor(codes, dtype=torch.int64).reshape(inputs["x"].shape)


# 3. weights, one scale per channel ---------------------------------------------------------------


NEAR_HALF_WAY = [[0.45, 0.7], [-0.45, 0.9], [1.1, 0.55], [0.9, -1.4], [-2.1, -1.65], [1.15, 2.3]]


def _weight_cases(rng):
    sizes = torch.tensor([0.1, 1.0, 10.0, 0.01], dtype=torch.float64)
    return [
        Case(
            "channels of different size",
            {"weight": _normal(rng, 4, 3, 3, 3) * sizes[:, None, None, None], "bits": 8},
        ),
        Case("four bits", {"weight": _normal(rng, 3, 2, 1, 1), "bits": 4}),
        # Other ways of dividing give another last digit. So they do here, where students see it.
        Case(
            "weights near half-way between two codes, divided once by the scale",
            {"weight": torch.tensor(NEAR_HALF_WAY, dtype=torch.float64), "bits": 4},
        ),
    ]


def _with_zeros(rng, *shape):
    """A weight of which one channel, drawn, is zero."""
    weight = _normal(rng, *shape)
    weight[_integers(rng, 0, shape[0] - 1, 1)] = 0
    return weight


def _weight_edges(rng):
    zero = _normal(rng, 3, 4)
    zero[1] = 0
    zero[2] *= 1e-12
    equal = _normal(rng, 3, 4)
    equal[1] = equal[1, 0].item()
    halves = torch.tensor([[3.0, -2.5, 1.5, 0.5, -0.5, -1.5, 2.5]], dtype=torch.float64)
    cancelling = _normal(rng, 3, 2)
    cancelling[1, 1] = -cancelling[1, 0]
    one_sign = _normal(rng, 4, 5).abs() * torch.tensor([1, -1, 1, -1]).reshape(4, 1)
    one_sign[:2, _integers(rng, 0, 4, 1)] = 0
    some = _normal(rng, 6, 2, 2, 2)
    some[[0, 3, 5]] = 0
    some[1, 0], some[2, 1], some[4, :, 0] = 0, 0, 0
    beside = torch.arange(-7, 7, dtype=torch.float64) + 0.5
    beside = torch.cat([beside + 1e-10, beside - 1e-10])
    # Exact multiples of scales whose inverses are not exact.
    scales = torch.tensor([[49.0], [117.0], [123.0]], dtype=torch.float64) / 128
    multiples = torch.tensor([7, *(code + 0.5 for code in range(-7, 7))], dtype=torch.float64)
    return [
        Case("two axes, with a channel of zeros", {"weight": zero, "bits": 8}),
        Case("a channel of equal weights", {"weight": equal, "bits": 8}),
        Case("as many inputs as outputs", {"weight": _normal(rng, 5, 5), "bits": 8}),
        Case("a convolution in one dimension", {"weight": _normal(rng, 4, 2, 3), "bits": 8}),
        Case(
            "weights half-way between two codes",
            {"weight": halves[:, torch.randperm(7, generator=rng)], "bits": 3},
        ),
        Case(
            "weights half-way between two codes, with uneven scales",
            {"weight": multiples * scales, "bits": 4},
        ),
        Case("a channel that adds up to 0", {"weight": cancelling, "bits": 8}),
        Case("channels of one sign, two of them with a 0", {"weight": one_sign, "bits": 8}),
        Case(
            "weights just beside half-way",
            {"weight": torch.cat([multiples[:1], beside]) * scales, "bits": 4},
        ),
        Case("a convolution with weights of 0", {"weight": some, "bits": 8}),
        Case("nothing but zeros", {"weight": torch.zeros(2, 3).double(), "bits": 8}),
        Case("three hundred channels", {"weight": _normal(rng, 300, 2), "bits": 8}),
        Case(
            "huge weights", {"weight": _normal(rng, 3, 4) * _power_of_ten(rng, 20, 40), "bits": 8}
        ),
        *(
            Case(
                f"a channel of zeros, shape {shape}",
                {"weight": _with_zeros(rng, *shape), "bits": bits},
            )
            for bits, shape in (
                (4, (3, 2, 3)),
                (6, (4, 3, 1, 2)),
                (5, (3, 2, 2, 1, 2)),
                (7, (2, 1)),
            )
        ),
        Case(
            "tiny weights", {"weight": _normal(rng, 3, 4) * _power_of_ten(rng, -60, -45), "bits": 8}
        ),
        *(
            Case(f"{bits} bits, shape {shape}", {"weight": _normal(rng, *shape), "bits": bits})
            for bits, shape in (
                (2, (4, 2, 3, 3)),
                (3, (1, 6)),
                (5, (2, 3, 2, 2, 2)),
                (6, (3, 1)),
                (7, (3, 2, 4)),
                (12, (2, 5)),
                (9, (4, 1, 3, 3)),
                (4, (3, 3, 2, 2)),
                (24, (2, 4)),
            )
        ),
    ]


def _weight_oracle(inputs, probe):
    most, rows, scales = 2 ** (inputs["bits"] - 1) - 1, [], []
    for row in inputs["weight"].flatten(1).tolist():
        largest = max(abs(value) for value in row)
        scales.append(largest / most if largest else 1.0)
        rows.append([_round_half_even(value / scales[-1]) for value in row])
    return [
        torch.tensor(rows).reshape(inputs["weight"].shape),
        torch.tensor(scales, dtype=torch.float64),
    ]


# 4. bias -----------------------------------------------------------------------------------------


def _bias_inputs(rng, channels, size=1.0):
    scales = torch.rand(channels, generator=rng, dtype=torch.float64) * 0.01 + 1e-3
    bias = _both_signs(rng, channels) * size
    return {"bias": bias, "input_scale": 0.03, "weight_scales": scales}


def _bias_drawn(rng, channels, low, high):
    """Scales between 10^low and 10^high, and a bias of codes in the thousands, one of them 0."""
    input_scale = _power_of_ten(rng, low, high)
    scales = [_power_of_ten(rng, low, high) for _ in range(channels)]
    scales = torch.tensor(scales, dtype=torch.float64)
    bias = _both_signs(rng, channels) * 5000 * input_scale * scales
    bias[_integers(rng, 0, channels - 1, 1)] = 0
    return {"bias": bias, "input_scale": input_scale, "weight_scales": scales}


def _bias_cases(rng):
    # Scales of 24 bits, so that their product is exact. The quotients are rounded as exact ones.
    input_scale, scales = torch.tensor(0.03).item(), torch.full((13,), 0.003).double()
    nearly = torch.cat([torch.arange(-994.5, -900, 16), torch.arange(175.5, 200, 4)]).double()
    nearly *= input_scale * scales
    return [
        Case("32 channels", _bias_inputs(rng, 32)),
        Case(
            "near half-way between two codes, divided once by the whole scale",
            {"bias": nearly, "input_scale": input_scale, "weight_scales": scales},
        ),
    ]


def _bias_edges(rng):
    tiny = torch.full((3,), 1e-8, dtype=torch.float64)
    halves = [0.5, -0.5, 1.5, 2.5, 2.5 + 1e-10, 3.5 - 1e-10]
    halves = torch.tensor(halves, dtype=torch.float64)[torch.randperm(6, generator=rng)]
    ends = [0.0, 0.0, -1.0, -1.0, -0.5, 0.5, 1.0, 1.0]
    balanced = _bias_inputs(rng, 4)
    balanced["bias"] = torch.tensor([0.5, -0.5, 0.75, -0.75], dtype=torch.float64)
    one = _bias_inputs(rng, 6)
    one["weight_scales"][_integers(rng, 0, 5, 1)] = 1.0
    return [
        Case(
            "scales so small that 32 bits overflow",
            {"bias": _both_signs(rng, 3) * 9, "input_scale": 1e-3, "weight_scales": tiny},
        ),
        Case(
            "half-way between two codes, and just beside",
            {
                "bias": halves,
                "input_scale": 0.5,
                "weight_scales": torch.full((6,), 2.0, dtype=torch.float64),
            },
        ),
        Case(
            "codes at the ends of 32 bits",
            {
                "bias": torch.tensor([2.0**31, -(2.0**31)]).double().repeat(4) + torch.tensor(ends),
                "input_scale": 0.5,
                "weight_scales": torch.full((8,), 2.0, dtype=torch.float64),
            },
        ),
        Case("a weight scale of exactly 1", one),
        Case("a bias that adds up to 0", balanced),
        Case("a single channel", _bias_inputs(rng, 1)),
        Case("two hundred channels", _bias_inputs(rng, 200)),
        Case("two hundred channels beyond 32 bits", _bias_inputs(rng, 200, 1e12)),
        Case("channels that no integer holds", _bias_inputs(rng, 4, 1e25)),
        Case("large codes", _bias_inputs(rng, 50, 1e4)),
        Case("small scales, and a bias of 0", _bias_drawn(rng, 5, -30, -15)),
        Case("scales above 1, and a bias of 0", _bias_drawn(rng, 4, 3, 6)),
    ]


def _bias_oracle(inputs, probe):
    codes = []
    for value, scale in zip(inputs["bias"].tolist(), inputs["weight_scales"].tolist(), strict=True):
        code = _round_half_even(value / (inputs["input_scale"] * scale))
        codes.append(min(max(code, -(2**31)), 2**31 - 1))
    return torch.tensor(codes)


# 5. integer convolution --------------------------------------------------------------------------


def _conv_case(rng, label, shape, kernel, padding, stride, zero_point):
    inputs = {
        "x": _integers(rng, 0, 255, *shape),
        "zero_point": zero_point,
        "weight": _integers(rng, -127, 127, *kernel),
        "bias": _integers(rng, -5000, 5000, kernel[0]),
        "padding": padding,
        "stride": stride,
    }
    return Case(label, inputs)


def _conv_cases(rng):
    return [
        _conv_case(rng, "without padding", (1, 2, 4, 4), (3, 2, 3, 3), 0, 1, 17),
        _conv_case(rng, "with padding", (2, 2, 4, 4), (3, 2, 3, 3), 1, 1, 128),
    ]


# An image, a window, a padding and a stride.
WINDOWS = (
    ((1, 2, 8, 4), (1, 3), 0, 1),
    ((2, 3, 5, 7), (3, 1), 1, 1),
    ((1, 1, 3, 3), (1, 1), 2, 2),
    ((1, 2, 8, 6), (2, 2), 2, 3),
    ((1, 2, 4, 5), (4, 5), 0, 1),
    ((1, 2, 4, 4), (3, 3), 1, 3),
    ((1, 2, 2, 3), (4, 5), 1, 1),
)


def _conv_edges(rng):
    return [
        *_large_sums(rng),
        *_odd_biases(rng),
        _conv_case(rng, "with a stride", (1, 1, 5, 6), (2, 1, 3, 2), 2, 2, 3),
        _conv_case(rng, "with a stride of three", (2, 2, 8, 7), (2, 2, 2, 3), 1, 3, 90),
        *_other_codes(rng),
        *(
            _conv_case(
                rng,
                "windows of {} by {}, images of {} by {}".format(*size, *image[2:]),
                image,
                (3, image[1], *size),
                *steps,
                40,
            )
            for image, size, *steps in WINDOWS
        ),
    ]


def _large_sums(rng):
    """Sums that do not fit into 16 bits, the 24 of a float32, or 32."""
    wide = _conv_case(rng, "sums beyond 16 bits", (1, 40, 3, 3), (2, 40, 3, 3), 1, 1, 255)
    wide.inputs["x"].fill_(0)
    wide.inputs["weight"].fill_(127)
    large = _conv_case(rng, "sums beyond 24 bits", (1, 80, 5, 5), (2, 80, 3, 3), 0, 1, 255)
    large.inputs["x"].fill_(0)
    large.inputs["weight"] = _integers(rng, 113, 127, 2, 80, 3, 3)
    # Of numbers beyond 24 bits float32 holds the even ones alone: every sum is odd, with the bias
    # and without it.
    large.inputs["weight"][:, 0, 0, 0] -= (large.inputs["weight"].sum((1, 2, 3)) + 1) % 2
    large.inputs["bias"] += large.inputs["bias"] % 2
    far = _conv_case(rng, "sums beyond 24 bits of codes", (1, 80, 5, 5), (2, 80, 3, 3), 0, 1, 0)
    far.inputs["x"].fill_(255)
    far.inputs["weight"] = large.inputs["weight"].clone()
    most = _conv_case(rng, "sums beyond 32 bits", (1, 2, 4, 4), (2, 2, 3, 3), 0, 1, 0)
    most.inputs["weight"] = most.inputs["weight"].abs() * torch.tensor([1, -1]).reshape(2, 1, 1, 1)
    most.inputs["bias"] = torch.tensor([2**31 - 1, -(2**31)])
    return [wide, large, far, most]


def _odd_biases(rng):
    balanced = _conv_case(rng, "a bias that adds up to 0", (1, 2, 4, 5), (2, 2, 3, 2), 1, 1, 9)
    balanced.inputs["bias"][1] = -balanced.inputs["bias"][0]
    without = _conv_case(rng, "a bias of 0 in one channel", (1, 2, 5, 4), (3, 2, 2, 3), 0, 1, 5)
    without.inputs["bias"][_integers(rng, 0, 2, 1)] = 0
    zero = _conv_case(rng, "a zero point of 0 and a padding", (1, 2, 4, 5), (3, 2, 2, 3), 1, 1, 0)
    return [balanced, without, zero]


def _other_codes(rng):
    """Codes of other ranges, two of them with a drawn padding and stride."""
    steps = _one_of(rng, 4, 5, 6), _one_of(rng, 1, 2)
    padded = _conv_case(
        rng, "one output channel, a wide padding", (3, 2, 4, 6), (1, 2, 2, 3), *steps, 700
    )
    padded.inputs["x"] *= 4
    steps = _one_of(rng, 0, 1, 2), _one_of(rng, 4, 5, 6)
    strided = _conv_case(
        rng, "a wide stride, signed codes", (3, 3, 12, 17), (4, 3, 2, 3), *steps, -40
    )
    strided.inputs["x"] -= 128
    signed = _conv_case(rng, "signed codes", (1, 2, 4, 4), (3, 2, 3, 3), 1, 1, -3)
    signed.inputs["x"] -= 128
    long = _conv_case(rng, "codes of 16 bits", (1, 64, 4, 4), (3, 64, 3, 3), 1, 1, 300)
    long.inputs["x"] = _integers(rng, 2**15, 2**16 - 1, 1, 64, 4, 4)
    long.inputs["weight"] = _integers(rng, 2**14, 2**15 - 1, 3, 64, 3, 3)
    return [padded, strided, signed, long]


def _conv_oracle(inputs, probe):
    x, weight, pad, stride = inputs["x"], inputs["weight"], inputs["padding"], inputs["stride"]
    (n, cin, height, width), (cout, _, kh, kw) = x.shape, weight.shape
    rows, columns = (height + 2 * pad - kh) // stride + 1, (width + 2 * pad - kw) // stride + 1
    sums = inputs["bias"].reshape(1, cout, 1, 1).repeat(n, 1, rows, columns)
    centred = torch.zeros(n, cin, height + 2 * pad, width + 2 * pad, dtype=torch.int64)
    centred[:, :, pad : pad + height, pad : pad + width] = x - inputs["zero_point"]
    for row in range(rows):
        for column in range(columns):
            window = centred[
                :, None, :, row * stride : row * stride + kh, column * stride : column * stride + kw
            ]
            sums[:, :, row, column] += (window * weight).sum((2, 3, 4))
    return sums


# 6. and 7. fixed-point multiplication ------------------------------------------------------------


def _multiplier_cases(rng):
    values = torch.rand(3, generator=rng, dtype=torch.float64).tolist()
    return [
        Case(f"a multiplier near {v:.1g}", {"multiplier": v})
        for v in (values[0], values[1] * 1e-3, values[2] + 1.5)
    ]


def _multiplier_edges(rng):
    return [
        Case("a power of two", {"multiplier": 0.25}),
        Case("one", {"multiplier": 1.0}),
        Case("a multiplier above 4", {"multiplier": 4.3}),
        Case("a multiplier just below 1/2", {"multiplier": (2**31 - 0.6) / 2**32}),
        Case("a tiny multiplier", {"multiplier": 3e-13}),
        *(
            Case(f"a multiplier of {value:.10g}", {"multiplier": value})
            for value in (0.5, 2.0, 256.0, 700.0, 3e6, 1e12, 1e-15, 3.7e-100, 2.6e99)
        ),
        *(
            Case(f"a multiplier of 2^{power}", {"multiplier": 2.0**power})
            for power in (20, 29, 30, 31, -29, -30, -31)
        ),
        *(
            Case(label, {"multiplier": _power_of_ten(rng, low, high)})
            for label, low, high in (
                ("a very small multiplier", -100, -70),
                ("a very large multiplier", 25, 90),
            )
        ),
        Case("a mantissa that rounds up to a power of two", {"multiplier": 1.0 - 2.0**-40}),
        Case(
            "a mantissa that rounds up, of a small multiplier",
            {"multiplier": (1.0 - 2.0**-40) / 2 ** _integers(rng, 2, 20, 1).item()},
        ),
        Case(
            "a mantissa that rounds up, of a large multiplier",
            {"multiplier": (1.0 - 2.0**-40) * 2 ** _integers(rng, 2, 20, 1).item()},
        ),
        Case(
            "a mantissa half-way to a power of two",
            {"multiplier": (2**31 - 0.5) / 2 ** _integers(rng, 25, 45, 1).item()},
        ),
        *(
            Case(
                f"a mantissa {words} of a {size} multiplier",
                {"multiplier": (2**30 + 2 * _integers(rng, 1, 999, 1).item() + more) * factor},
            )
            for size, factor in (("small", 2.0**-35), ("large", 2.0**20), ("medium", 2.0**-29))
            for words, more in (
                ("half-way between two", 0.5),
                ("half-way between two others", 1.5),
                ("just above half-way", 0.5 + 2.0**-21),
                ("just below half-way", 1.5 - 2.0**-21),
            )
        ),
    ]


def _multiplier_oracle(inputs, probe):
    value, shift = Fraction(inputs["multiplier"]), 0
    while value >= 2**31:
        value, shift = value / 2, shift - 1
    while value < 2**30:
        value, shift = value * 2, shift + 1
    mantissa = _round_half_even(value)
    return [2**30, shift - 1] if mantissa == 2**31 else [mantissa, shift]


def _requantize_inputs(sums, mantissa, shift, zero_point, low=0, high=255):
    return {
        "sums": sums,
        "mantissa": mantissa,
        "shift": shift,
        "zero_point": zero_point,
        "low": low,
        "high": high,
    }


def _requantize_cases(rng):
    mantissa = _integers(rng, 2**30, 2**31 - 1, 1).item()
    return [
        Case(
            "ordinary sums",
            _requantize_inputs(_integers(rng, -40000, 40000, 12), mantissa, 39, 120),
        )
    ]


def _requantize_edges(rng):
    wide = torch.cat([torch.tensor([2**31 - 1, -(2**31)]), _integers(rng, -(2**31), 2**31 - 1, 9)])
    mantissa = _integers(rng, 2**30, 2**31 - 2, 1).item() | 1
    return [
        *_beside_half_way(rng, mantissa),
        *_half_way(mantissa),
        *_all_bits(rng, mantissa, wide),
        *(
            Case(f"sums {words}", _requantize_inputs(sums, mantissa, 39, 120))
            for words, sums in (
                ("of two images", _integers(rng, -40000, 40000, 2, 3, 2, 2)),
                ("of one image", _integers(rng, -40000, 40000, 1, 3, 1, 2)),
                ("with two axes", _integers(rng, -40000, 40000, 3, 4)),
            )
        ),
    ]


def _beside_half_way(rng, mantissa):
    """Products of more digits than a float64 holds, or nearly holds."""
    # Sums whose products with the mantissa lie just beside half-way, with more digits than a
    # float64 holds.
    beside = torch.tensor([(2**30 + d) * pow(mantissa, -1, 2**31) % 2**31 for d in range(-20, 20)])
    below = [((2**31 - d) * pow(mantissa, -1, 2**32) + 2**31) % 2**32 - 2**31 for d in range(1, 20)]
    # A sum and a mantissa whose product lies 1 below half-way: one that a float64 nearly holds.
    medium = _integers(rng, 2**26, 2**27 - 2, 1).item() | 1
    suited = 2**30 + (2**29 - 1) * pow(medium, -1, 2**30) % 2**30
    return [
        Case(
            "sums just beside half-way",
            _requantize_inputs(beside, mantissa, 31, 0, -(2**31), 2**31 - 1),
        ),
        Case(
            "sums just below half-way",
            _requantize_inputs(torch.tensor(below), mantissa, 32, 0, -(2**31), 2**31 - 1),
        ),
        Case(
            "a product of less than 58 bits just below half-way",
            _requantize_inputs(torch.tensor([medium, -5]), suited, 30, 0, -(2**31), 2**31 - 1),
        ),
    ]


def _half_way(mantissa):
    """Sums half-way between two codes, for many shifts."""
    ends = torch.tensor([2**31 - 1, -(2**31), 2**31 - 2, 1 - 2**31])
    ties = torch.tensor([-5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5])
    return [
        Case("sums half-way between two codes", _requantize_inputs(ties, 2**30, 31, 0, -128, 127)),
        *(
            Case(f"the largest sums and shift, {words}", _requantize_inputs(ends, m, 62, 0, -8, 7))
            for words, m in (("half-way", 2**30), ("just beside half-way", 2**30 + 1))
        ),
        # A shift in two steps must not round in the first.
        Case("a shift of 56", _requantize_inputs(2**24 + ties, 2**31 - 1, 56, 0)),
        *(
            Case(
                f"wide codes, a shift of {shift}",
                _requantize_inputs(ties * 71, mantissa, shift, 5, -(2**40), 2**40),
            )
            for shift in (1, 2, 8, 15, 16, 24, 30, 32, 33, 40, 48)
        ),
    ]


def _all_bits(rng, mantissa, wide):
    """Sums that use all 32 bits, for codes of any range."""
    return [
        Case("sums that use all 32 bits", _requantize_inputs(wide, 2**31 - 1, 54, 7)),
        Case("the smallest shift", _requantize_inputs(wide, mantissa, 1, 9)),
        *(
            Case(label, _requantize_inputs(wide, mantissa, shift, (low + high) // 2, low, high))
            for label, shift, low, high in (
                ("codes of 16 bits", 46, 0, 2**16 - 1),
                ("codes above 0", 54, _integers(rng, 2, 50, 1).item(), 150),
                ("codes below 0", 54, -150, _integers(rng, -50, -2, 1).item()),
                ("more codes below 0 than above", 54, -128, _integers(rng, 30, 100, 1).item()),
                ("more codes above 0 than below", 54, -_integers(rng, 30, 100, 1).item(), 127),
            )
        ),
        Case("the largest shift", _requantize_inputs(wide, mantissa, 62, 100)),
        Case("codes of seven bits", _requantize_inputs(wide, mantissa, 54, -10, low=-64, high=63)),
    ]


def _requantize_oracle(inputs, probe):
    codes = []
    for value in inputs["sums"].flatten().tolist():
        exact = Fraction(value * inputs["mantissa"], 2 ** inputs["shift"])
        code = math.floor(exact + Fraction(1, 2)) + inputs["zero_point"]
        codes.append(min(max(code, inputs["low"]), inputs["high"]))
    return torch.tensor(codes).reshape(inputs["sums"].shape)


# 8. calibration ----------------------------------------------------------------------------------


def _clip_cases(rng):
    cases = []
    for label in ("an outlier", "another outlier", "a third outlier"):
        x = _normal(rng, 2000)
        x[0] = 15.0
        # In random order and several times, so that no fixed position is right.
        candidates = torch.tensor([0.5, 2.0, 4.0, 8.0, 30.0], dtype=torch.float64)[
            torch.randperm(5, generator=rng)
        ]
        cases.append(Case(label, {"x": x, "bits": 4, "candidates": candidates}))
    return cases


def _clip_edges(rng):
    x = torch.rand(300, generator=rng, dtype=torch.float64) * 2 - 1
    candidates = torch.tensor([2.0, 1.0, 0.7, 0.2], dtype=torch.float64)
    return [
        *_other_sizes(rng, x, candidates),
        *_other_thresholds(rng, x, candidates),
        *_beyond_thresholds(rng, x),
        *_few_values(),
    ]


def _clip_case(label, x, bits, candidates):
    candidates = torch.as_tensor(candidates, dtype=torch.float64)
    return Case(label, {"x": x.double(), "bits": bits, "candidates": candidates})


def _other_sizes(rng, x, candidates):
    """Numbers and codes of other sizes and signs."""
    tiny, huge = _power_of_ten(rng, -60, -20), _power_of_ten(rng, 60, 100)
    negative = -_normal(rng, 100).abs()
    negative[:5] -= 6
    above = torch.cat([x, torch.tensor([1.1])])
    upwards = [1.2, 1.6, 2.0, 2.4, 2.8, 3.3]
    return [
        _clip_case("evenly spread numbers", x, 3, candidates),
        _clip_case("codes of twelve bits", x, 12, candidates),
        # With twelve bits steps cost less than what is cut off, with eight they cost more.
        _clip_case("twelve bits, one number above the others", above, 12, [1.0, 30.0, 0.5]),
        _clip_case("three codes", x, 2, candidates * 0.67),
        _clip_case("huge numbers", x * huge, 3, candidates * huge),
        _clip_case("tiny numbers", x * tiny, 3, candidates.flip(0) * tiny),
        _clip_case("small numbers", x * 1e-5, 3, candidates.flip(0) * 1e-5),
        _clip_case("negative numbers", negative, 5, candidates.flip(0) * 4),
        # So many that their best threshold is the same for every secret.
        _clip_case("positive numbers", _normal(rng, 2000).abs(), 3, upwards),
    ]


def _other_thresholds(rng, x, candidates):
    """Many thresholds, one, or some that hardly differ."""
    small, large = torch.linspace(0.1, 0.9, 20), torch.linspace(1, 6, 20)
    many = torch.cat([small, large[torch.randperm(20, generator=rng)]])
    usual = _normal(rng, 1000)
    hundred = usual.abs().max() * torch.arange(1, 101).double() / 100
    # What is cut off decides, so the largest is best; float32 sees one threshold, and one error.
    outlier = torch.cat([_normal(rng, 3) * 0.1, torch.tensor([10.0])])
    near = [5.0, 5.0 + 1e-10, 5.0 - 1e-10]
    return [
        _clip_case("a hundred thresholds", usual, 6, hundred),
        _clip_case("thresholds given twice", x, 4, [9.0, 9.0, 5.0, 5.0, 0.7]),
        _clip_case("many thresholds", _normal(rng, 400), 7, many),
        _clip_case("a single threshold", x[:50], 4, candidates[:1]),
        _clip_case("a threshold that is worse between two better", x, 3, [2.0, 9.0, 1.0]),
        _clip_case("thresholds that hardly differ", outlier, 8, near),
    ]


def _beyond_thresholds(rng, x):
    """Numbers that lie below all thresholds, beyond them, or on one."""
    # The last threshold gives +-1 codes of their own, though they lie below it.
    signs, above = _both_signs(rng, 8).sign(), [4.0, 0.9, 1.25, 1.5]
    # What lies beyond both thresholds costs the smaller one more than its finer steps save.
    beyond = torch.cat([x, torch.tensor([20.0])])
    # The first loses nothing; a histogram takes the highest number for one just below.
    highest = torch.cat([torch.zeros(30), torch.tensor([8.0, -8.0])])
    just = 8 * torch.tensor([1.0, 1 - 2.0**-9, 1 - 2.0**-11, 1 - 2.0**-13], dtype=torch.float64)
    return [
        _clip_case("a threshold above all numbers", signs, 3, above),
        _clip_case("an outlier beyond all thresholds", beyond, 3, [1.0, 2.0]),
        _clip_case("the highest numbers alone", highest, 8, just),
    ]


def _few_values():
    """Numbers of which many are equal."""
    ends = torch.tensor([1.0, -1.0] * 5 + [0.6, -0.6] * 15)
    uneven = torch.tensor([-1.0] * 10 + [0.4] * 5)
    equal = torch.full((3,), 2.9, dtype=torch.float64)
    up_and_down = [14.0, 2.9, 21.0]  # the error rises and falls from the largest down
    return [
        _clip_case("few values", ends, 2, [1.0, 0.5]),
        _clip_case("few values, most of them negative", uneven, 2, [1.0, 0.5]),
        _clip_case("equal numbers", equal, 4, up_and_down),
    ]


def _clip_oracle(inputs, probe):
    most, errors = 2 ** (inputs["bits"] - 1) - 1, []
    for threshold in inputs["candidates"].tolist():
        scale, error = threshold / most, 0.0
        for value in inputs["x"].tolist():
            code = min(max(_round_half_even(value / scale), -most), most)
            error += (code * scale - value) ** 2
        errors.append(error)
    return torch.tensor(errors.index(min(errors)))  # not a float


TORCHS_OWN = ("torch.*quantize*", "torch.*choose_qparams*", "torch.ao.*", "torch.ops.onednn.q*")


def _item(name, points, cases, oracle, edges, nudge, hint, tolerance=EXACT):
    more = {
        "run": RUNS.get(name),
        "edges": edges,
        "nudge": nudge,
        "hint": hint,
        "tolerance": tolerance,
        "forbidden": TORCHS_OWN,
    }
    return Item(name, cases, oracle, points=points, **more)


ITEMS = (
    _item(
        "scale_and_zero_point",
        10,
        _range_cases,
        _range_oracle,
        _range_edges,
        "How many steps lie between the lowest and the highest of 2^bits codes?",
        "Zero must have a code, so the range has to contain it; "
        "2^bits codes have 2^bits - 1 steps between them",
        CLOSE,
    ),
    _item(
        "quantize",
        8,
        _quantize_cases,
        _quantize_oracle,
        _quantize_edges,
        "Which comes first: rounding, adding the zero point, or clamping?",
        "Round first (ties to even), then add the zero point, then clamp, and only then make "
        "integers",
    ),
    _item(
        "quantize_weight",
        12,
        _weight_cases,
        _weight_oracle,
        _weight_edges,
        "What is the largest code for 8 bits when the codes are symmetric?",
        "One scale per output channel, from the largest absolute value, and symmetric: -127 to 127 "
        "for 8 bits",
        CLOSE,
    ),
    _item(
        "quantize_bias",
        8,
        _bias_cases,
        _bias_oracle,
        _bias_edges,
        "What is one step of the accumulator worth?",
        "The bias is added to sums of products, so its scale is the product of two scales, in 32 "
        "bits",
    ),
    _item(
        "integer_conv",
        16,
        _conv_cases,
        _conv_oracle,
        _conv_edges,
        "Which code stands for the real number 0?",
        "A padded position means the number 0: which integer is that? And how large can the sums "
        "become?",
    ),
    _item(
        "fixed_point",
        10,
        _multiplier_cases,
        _multiplier_oracle,
        _multiplier_edges,
        "How often do you halve or double the factor until it lies between 1/2 and 1?",
        "multiplier = mantissa / 2^shift with 2^30 <= mantissa < 2^31, also when rounding reaches "
        "2^31",
    ),
    _item(
        "requantize",
        14,
        _requantize_cases,
        _requantize_oracle,
        _requantize_edges,
        "Which way does a shift to the right round, and how large can the products become?",
        "Multiply in 64 bits, add half before shifting, then the zero point, then clamp",
    ),
    _item(
        "best_clip",
        10,
        _clip_cases,
        _clip_oracle,
        _clip_edges,
        "What becomes of a value beyond the threshold, and what of one within it?",
        "Quantize symmetrically with every threshold, return to real numbers, compare squared "
        "errors",
    ),
)

ASSIGNMENT = Assignment("a4", "Quantization in integers", ITEMS, manual_points=12)
