"""Lesson 09. The oracles compute with fractions, which are exact however large the numbers are."""

import math
from fractions import Fraction

import torch
from exercise_inputs import as_numbers, between

from helpers.checks.compare import Tolerance
from helpers.checks.specification import Case, Item, Mistake

EXACT = Tolerance(relative=0.0, absolute=0.0)
# Sums, multipliers and shifts whose product misses a half by one, beyond the 53 bits of a float64,
# which takes it for the half and rounds it the other way. The results lie between 100 and 240.
NEARLY_HALVES = (
    (9316843, 1703168317, 46),
    (12389309, 1218316181, 46),
    (8368873, 1273871015, 46),
    (6366229, 1928825661, 46),
)


def fixed_point_cases(rng: torch.Generator) -> list[Case]:
    """Factors as they occur, far below 1, near it, and above."""
    cases = []
    for label, exponent in (
        ("a small factor", -between(rng, 7, 14)),
        ("near 1", 0),
        ("above 1", between(rng, 2, 6)),
    ):
        factor = math.ldexp(
            0.5 + 0.49 * torch.rand((), generator=rng, dtype=torch.float64).item(), exponent
        )
        cases.append(Case(label, {"factor": factor}))
    cases.append(Case("a power of two", {"factor": 2.0 ** -between(rng, 3, 9)}))
    for label, rest in (("a factor to round up", 0.7), ("a factor to round down", 0.3)):
        cases.append(
            Case(
                label,
                {"factor": (between(rng, 2**30, 2**31 - 2) + rest) / 2 ** between(rng, 32, 40)},
            )
        )
    return cases


def fixed_point_oracle(inputs: dict, probe: dict) -> list[str]:
    """Double the fraction until it has 31 bits.

    Compared as text, which is exact for whole numbers of any size.
    """
    factor, shift = Fraction(inputs["factor"]), 0
    while factor < 2**30:
        factor, shift = factor * 2, shift + 1
    return [str(round(factor)), str(shift)]


def whole_pair(answer: list, probe: dict) -> list[str]:
    """Two whole numbers; a number that is not whole is no multiplier."""
    return [whole(part, probe) for part in answer]


def rescale_cases(rng: torch.Generator) -> list[Case]:
    """Sums of both signs, exact halves, and products so long that a float64 cannot tell them from a
    half.
    """
    cases = []
    for label in ("positive sums", "negative sums"):
        sign = 1 if label == "positive sums" else -1
        for _ in range(4):
            total, multiplier = sign * between(rng, 10**5, 10**8), between(rng, 2**30, 2**31 - 1)
            cases.append(
                Case(
                    label, {"total": total, "multiplier": multiplier, "shift": between(rng, 38, 44)}
                )
            )
    for odd in (1, 3, -1, -3, 5, -7):
        half = {"total": odd * 2 ** between(rng, 3, 9), "multiplier": 2**30}
        shift = 31 + int(math.log2(abs(half["total"]) / abs(odd)))
        cases.append(Case("an exact half", half | {"shift": shift}))
    names = ("total", "multiplier", "shift")
    cases += [Case("nearly a half", dict(zip(names, one, strict=True))) for one in NEARLY_HALVES]
    tensors = dict(zip(names, torch.tensor(NEARLY_HALVES).T, strict=True))
    return [*cases, Case("tensors", tensors)]


def rescale_oracle(inputs: dict, probe: dict) -> str | list[str]:
    """Python rounds a fraction to the nearest whole number, and a half to the even one."""
    if isinstance(inputs["total"], torch.Tensor):
        columns = torch.broadcast_tensors(*map(torch.as_tensor, inputs.values()))
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return [rescale_oracle(dict(zip(inputs, row, strict=True)), probe) for row in rows]
    return str(round(Fraction(inputs["total"] * inputs["multiplier"], 2 ** inputs["shift"])))


def whole(answer: int | torch.Tensor, probe: dict) -> str | list[str]:
    """A whole number, or a tensor of them."""
    if isinstance(answer, torch.Tensor) and answer.ndim:
        return [whole(one, probe) for one in answer]
    if int(answer) != answer:
        raise ValueError("it must be a whole number")
    return str(int(answer))


def layer_cases(rng: torch.Generator) -> list[Case]:
    """Codes as they are stored: uint8 and int8, which overflow when they are multiplied as they
    are.
    """
    cases = []
    for label, zero_in, zero_out in (
        ("both zero points", 0, 0),
        ("zero points that differ", 17, 128),
    ):
        zero_in, zero_out = zero_in and between(rng, 5, 90), zero_out and between(rng, 100, 150)
        rows, inputs = between(rng, 3, 7), 4 * between(rng, 5, 9)
        outputs = 2 * between(rng, 2, 5)
        codes = torch.randint(0, 256, (rows, inputs), generator=rng).to(torch.uint8)
        weight = torch.randint(-127, 128, (outputs, inputs), generator=rng).to(torch.int8)
        bias = torch.randint(-4000, 4000, (outputs,), generator=rng).to(torch.int32)
        codes[0], weight[0], weight[1] = 255, 127, -127  # one code above 255 and one below 0
        layer = {
            "codes": codes,
            "weight": weight,
            "bias": bias,
            "zero_in": zero_in,
            "zero_out": zero_out,
        }
        numbers = {"multiplier": between(rng, 2**30, 2**31 - 1), "shift": between(rng, 38, 39)}
        cases.append(Case(label if zero_in else "zero points 0", layer | numbers))
    halves = {
        "codes": torch.randint(0, 16, (6, 8), generator=rng).to(torch.uint8),
        "weight": torch.randint(-2, 3, (6, 8), generator=rng).to(torch.int8),
        "bias": torch.randint(-9, 10, (6,), generator=rng).to(torch.int32),
    }
    numbers = {"zero_in": 7, "zero_out": 128, "multiplier": 2**30, "shift": 31}
    cases.append(Case("sums that end on an exact half", halves | numbers))
    silent = halves | numbers | {"weight": 0 * halves["weight"], "zero_out": 3}
    for total, multiplier, shift in NEARLY_HALVES:
        nearly = silent | {"bias": torch.full((6,), total).int()}
        nearly |= {"multiplier": multiplier, "shift": shift}
        cases.append(Case("products that a float64 takes for halves", nearly))
    return cases


def layer_oracle(inputs: dict, probe: dict) -> torch.Tensor:
    """One output after the other, in whole numbers and fractions."""
    factor = Fraction(inputs["multiplier"], 2 ** inputs["shift"])
    codes, weight, bias = (inputs[name].tolist() for name in ("codes", "weight", "bias"))
    result = []
    for row in codes:
        sums = [
            sum((code - inputs["zero_in"]) * w for code, w in zip(row, weights, strict=True))
            + start
            for weights, start in zip(weight, bias, strict=True)
        ]
        result.append(
            [min(255, max(0, round(total * factor) + inputs["zero_out"])) for total in sums]
        )
    return torch.tensor(result, dtype=torch.float64)


def convolution_cases(rng: torch.Generator) -> list[Case]:
    """Zero points that padding must know, one factor for each channel, depthwise and strided; sums
    on exact halves.
    """
    cases = []
    for label, groups, stride, padding in (
        ("padded", 1, 1, 1),
        ("one group for each channel", 4, 1, 1),
        ("a stride of 2", 2, 2, 1),
        ("1 x 1", 1, 1, 0),
    ):
        kernel = 1 if label == "1 x 1" else 3
        shapes = {"codes": (2, 4, 5, 5), "weight": (8, 4 // groups, kernel, kernel), "bias": (8,)}
        layer = {
            "codes": torch.randint(0, 256, shapes["codes"], generator=rng).to(torch.uint8),
            "weight": torch.randint(-127, 128, shapes["weight"], generator=rng).to(torch.int8),
            "bias": torch.randint(-4000, 4000, shapes["bias"], generator=rng).to(torch.int32),
            "multiplier": torch.randint(2**30, 2**31, (8,), generator=rng),
            "shift": torch.randint(37, 41, (8,), generator=rng),
        }
        if label == "1 x 1":  # small numbers and half of each sum: many exact halves
            layer["codes"], layer["weight"] = layer["codes"] % 16, layer["weight"] % 5 - 2
            layer["multiplier"], layer["shift"] = torch.full((8,), 2**30), torch.full((8,), 31)
            layer["bias"] = layer["bias"] % 9
        points = {"zero_in": between(rng, 5, 90), "zero_out": between(rng, 100, 150)}
        cases.append(
            Case(label, layer | points | {"stride": stride, "padding": padding, "groups": groups})
        )
    # Thousands of large products, and a bias that takes nearly all of their sum away: too long for
    # a float32.
    codes, weight = torch.full((1, 1200, 2, 2), 250), torch.full((8, 1200, 1, 1), 127)
    codes[:, :9], weight[:, :9] = torch.randint(0, 9, (1, 9, 2, 2), generator=rng), 1
    long = {
        "codes": codes.to(torch.uint8),
        "weight": weight.to(torch.int8),
        "zero_in": 0,
        "zero_out": 128,
    }
    long["bias"] = torch.randint(-99, 50, (8,), generator=rng).int() - 1191 * 250 * 127
    long |= {"multiplier": torch.full((8,), 2**30), "shift": torch.full((8,), 30)}
    plain = {"stride": 1, "padding": 0, "groups": 1}
    totals, multipliers, shifts = torch.tensor(NEARLY_HALVES).T
    nearly = {
        "codes": torch.full((1, 4, 2, 2), 17, dtype=torch.uint8),  # all stand for 0
        "weight": torch.randint(-127, 128, (4, 4, 1, 1), generator=rng).to(torch.int8),
        "zero_in": 17,
        "zero_out": between(rng, 1, 9),
    }
    nearly |= {"bias": totals.int(), "multiplier": multipliers, "shift": shifts}
    return [
        *cases,
        Case("1,200 channels", long | plain),
        Case("products that a float64 takes for halves", nearly | plain),
    ]


def convolution_oracle(inputs: dict, probe: dict) -> torch.Tensor:
    """One output after the other, from a window of Python numbers; outside the image lies the real
    number 0.
    """
    weight, bias, codes = (inputs[name].tolist() for name in ("weight", "bias", "codes"))
    stride, padding = inputs["stride"], inputs["padding"]
    factors = [
        Fraction(m, 2**t)
        for m, t in zip(inputs["multiplier"].tolist(), inputs["shift"].tolist(), strict=True)
    ]
    depth, kernel, side = len(weight[0]), len(weight[0][0]), len(codes[0][0])
    places = [start - padding for start in range(0, side + 2 * padding - kernel + 1, stride)]

    def total(image: list, o: int, top: int, left: int) -> int:
        first = o // (len(weight) // inputs["groups"]) * depth
        return bias[o] + sum(
            (image[first + c][top + u][left + v] - inputs["zero_in"]) * weight[o][c][u][v]
            for c in range(depth)
            for u in range(kernel)
            for v in range(kernel)
            if 0 <= top + u < side and 0 <= left + v < side
        )

    def code(image: list, o: int, top: int, left: int) -> int:
        return min(255, max(0, round(total(image, o, top, left) * factors[o]) + inputs["zero_out"]))

    maps = [
        [[[code(i, o, y, x) for x in places] for y in places] for o in range(len(weight))]
        for i in codes
    ]
    return torch.tensor(maps, dtype=torch.float64)


def shortcut_cases(rng: torch.Generator) -> list[Case]:
    """Large sums that need 64 bits; exact halves, also below 0; and halves missed by less than a
    float64 can tell.
    """
    total = torch.randint(-9, 9, (2, 4, 6, 6), generator=rng).int()
    codes = {
        "residual": torch.randint(0, 256, total.shape, generator=rng).to(torch.uint8),
        "shift": 31,
    }
    large = codes | {"zero_residual": between(rng, 10, 40), "zero_out": 135, "total": 9000 * total}
    large |= {
        "multiplier": between(rng, 2**19, 2**20),
        "multiplier_residual": between(rng, 3 * 2**29, 2**31 - 1),
    }
    halves = codes | {
        "zero_residual": between(rng, 90, 120),
        "zero_out": 2 * between(rng, 2, 6) + 1,
        "total": total,
    }
    halves |= {
        "multiplier": 2**29,
        "multiplier_residual": 2**30,
    }  # zero_out is odd: it is added after the rounding
    cases = {
        "large sums": large,
        "exact halves": halves,
        "products that a float64 takes for halves": far_halves(rng, halves),
    }
    return [Case(label, inputs) for label, inputs in cases.items()]


def far_halves(rng: torch.Generator, inputs: dict) -> dict:
    """Half of the shortcut's codes stand for 0, so that the sums alone decide; they nearly end on
    halves.
    """
    total, multiplier, shift = NEARLY_HALVES[between(rng, 0, len(NEARLY_HALVES) - 1)]
    residual = inputs["residual"].clone()
    residual[0] = inputs["zero_residual"]
    return inputs | {
        "total": torch.full_like(inputs["total"], total),
        "residual": residual,
        "multiplier": multiplier,
        "multiplier_residual": between(rng, 2 ** (shift - 9), 2 ** (shift - 8)),
        "shift": shift,
    }


def shortcut_oracle(inputs: dict, probe: dict) -> torch.Tensor:
    """One number after the other, in whole numbers and fractions."""
    sums, codes = inputs["total"].flatten().tolist(), inputs["residual"].flatten().tolist()
    made = []
    for total, code in zip(sums, codes, strict=True):
        product = total * inputs["multiplier"]
        product += (code - inputs["zero_residual"]) * inputs["multiplier_residual"]
        rounded = round(Fraction(product, 2 ** inputs["shift"])) + inputs["zero_out"]
        made.append(min(255, max(0, rounded)))
    return torch.tensor(made, dtype=torch.float64).reshape(inputs["total"].shape)


ITEMS = (
    Item(
        "fixed_point",
        fixed_point_cases,
        fixed_point_oracle,
        view=whole_pair,
        minutes=8,
        dots=2,
        nudge="Doubling changes the shift by one; when does the factor have 31 bits?",
        hint="Double the factor until it is at least 2**30; "
        "the shift counts how often. Round once, at the end.",
        mistakes=(
            Mistake(
                "You double once too often. A number of 31 bits is at least 2**30 and below 2**31.",
                wrong="2**31",
                right="2**30",
            ),
            Mistake(
                "You drop the fraction. Round to the nearest whole number.",
                wrong="int(factor)",
                right="round(factor)",
            ),
            Mistake(
                "Your shift is the same for every factor. Double each one until it has 31 bits, "
                "and count how often.",
                wrong="return round(factor * 2**31), 31",
            ),
        ),
    ),
    Item(
        "rescale",
        rescale_cases,
        rescale_oracle,
        view=whole,
        minutes=12,
        dots=3,
        nudge="What would you add before a shift so that it rounds to the nearest?",
        hint="Whole numbers only: >> rounds down, so add nearly half first; "
        "a half goes to the even neighbour. Everything must also work on tensors of int64.",
        mistakes=(
            Mistake(
                "A shift rounds down. To round to the nearest, add nearly half of what is "
                "shifted out first.",
                wrong="return (total * multiplier) >> shift",
            ),
            Mistake(
                "You round an exact half up every time. It goes to the even neighbour.",
                wrong="return (total * multiplier + (1 << (shift - 1))) >> shift",
            ),
            Mistake(
                "You round an exact half down every time. It goes up where the whole number below "
                "it is odd, which is what the shift leaves, not the product.",
                wrong="product & 1",
                right="(product >> shift) & 1",
            ),
            Mistake(
                "A float64 has 53 bits, and some products need more, so it takes the wrong side "
                "of a half. Use whole numbers only.",
                wrong="product = torch.as_tensor(total * multiplier, dtype=torch.float64)\n"
                "return torch.round(product / 2.0**shift).long()",
            ),
        ),
    ),
    Item(
        "integer_layer",
        layer_cases,
        layer_oracle,
        view=as_numbers,
        tolerance=EXACT,
        minutes=10,
        dots=2,
        nudge="Five steps: sum of products, bias, rescaling, zero_out, clamp. Which type holds "
        "each?",
        hint="Widen to int64 before you multiply, and subtract zero_in from the codes. Call "
        "rescale for the sums; zero_out comes after it.",
        mistakes=(
            Mistake(
                "Your sums are int32, and their product with the multiplier does not fit. Widen "
                "them to int64 before you call rescale.",
                wrong="(codes.int() - zero_in) @ weight.int().T + bias",
                right="(codes.long() - zero_in) @ weight.long().T + bias",
            ),
            Mistake(
                "zero_in is the code of the number 0. Subtract it from the codes before you "
                "multiply.",
                wrong="",
                right=" - zero_in",
            ),
            Mistake(
                "The bias is missing. It is added to the sums, before they are rescaled.",
                wrong="",
                right=" + bias",
            ),
            Mistake(
                "Codes below 0 and above 255 wrap around in uint8. Clamp them first.",
                wrong="",
                right=".clamp(0, 255)",
            ),
            Mistake(
                "You subtract in uint8, where numbers below 0 wrap around. Change the type "
                "before you subtract.",
                wrong="(codes - zero_in).long()",
                right="(codes.long() - zero_in)",
            ),
            Mistake(
                "You clamp before you add zero_out, and codes above 255 wrap around in uint8. "
                "Clamp last.",
                wrong="(rescale(total, multiplier, shift).clamp(0, 255) + zero_out)",
                right="(rescale(total, multiplier, shift) + zero_out).clamp(0, 255)",
            ),
            Mistake(
                "Some of your codes lie above 255, because you clamp before you add zero_out. "
                "Clamp last.",
                wrong="rescale(total, multiplier, shift).clamp(0, 255) + zero_out",
                right="(rescale(total, multiplier, shift) + zero_out).clamp(0, 255)"
                ".to(torch.uint8)",
            ),
            Mistake(
                "A shift alone rounds down. rescale rounds to the nearest.",
                wrong="((total * multiplier) >> shift)",
                right="rescale(total, multiplier, shift)",
            ),
        ),
    ),
    Item(
        "integer_convolution",
        convolution_cases,
        convolution_oracle,
        view=as_numbers,
        tolerance=EXACT,
        minutes=10,
        dots=3,
        nudge="What must stand outside the image: the number 0, or the code 0? And which axis do "
        "the multipliers belong to?",
        hint="Subtract zero_in from the codes first, so that the padding's 0 means 0. F.conv2d in "
        "float64 is exact for whole numbers below 2**53; "
        "turn its result into int64 and call rescale: a float64 is too short for the product with "
        "the multiplier. multiplier[:, None, None] gives each channel its own.",
        mistakes=(
            Mistake(
                "zero_in is the code of the number 0. Subtract it from the codes before you "
                "multiply.",
                wrong="",
                right=" - zero_in",
            ),
            Mistake(
                "Outside the image you put the code 0, which is not the number 0. Subtract "
                "zero_in first, then pad.",
                wrong="x = F.pad(codes.double(), [padding] * 4) - zero_in\n    padding = 0",
                right="x = codes.double() - zero_in",
            ),
            Mistake(
                "You subtract in uint8, where numbers below 0 wrap around. Change the type "
                "before you subtract.",
                wrong="(codes - zero_in).double()",
                right="codes.double() - zero_in",
            ),
            Mistake(
                "multiplier, shift and bias have one number per channel, but one of yours meets "
                "the last axis, the width. Give it the shape (channels, 1, 1).",
                wrong="pass",
                right="multiplier, shift = multiplier[:, None, None], shift[:, None, None]",
            ),
            Mistake(
                "A shift alone rounds down. rescale rounds to the nearest.",
                wrong="((total * multiplier) >> shift)",
                right="rescale(total, multiplier, shift)",
            ),
        ),
    ),
    Item(
        "add_shortcut",
        shortcut_cases,
        shortcut_oracle,
        view=as_numbers,
        tolerance=EXACT,
        minutes=8,
        dots=2,
        nudge="How often is anything rounded?",
        hint="Widen to int64, multiply the sums and residual - zero_residual by their factors, and "
        "add both. rescale with a multiplier of 1 only rounds and shifts.",
        mistakes=(
            Mistake(
                "zero_residual is the code of the number 0 in the shortcut. Subtract it from the "
                "codes first.",
                wrong="",
                right=" - zero_residual",
            ),
            Mistake(
                "You round twice, once for each part. Add the two products, and round their sum "
                "once.",
                wrong="made = rescale(total.long(), multiplier, shift) + zero_out\n"
                "other = rescale(residual.long() - zero_residual, multiplier_residual, shift)\n"
                "return (made + other).clamp(0, 255)",
            ),
            Mistake(
                "The sums are int32, and their products do not fit. Widen them to int64 before "
                "you multiply.",
                wrong="total",
                right="total.long()",
            ),
            Mistake(
                "zero_out is missing. It is the code of the number 0 in the result.",
                wrong="",
                right=" + zero_out",
            ),
        ),
    ),
)
