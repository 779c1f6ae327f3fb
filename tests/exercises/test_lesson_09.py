from tests.exercises.trying import solution_of, try_answers


def test_fixed_point():
    try_answers(
        "fixed_point",
        "factor",
        right=[
            "shift = 0\nwhile factor < 2**30:\n    factor, shift = 2 * factor, shift + 1\nreturn round(factor), shift",
            "import math\n_, exponent = math.frexp(factor)\nshift = 31 - exponent\n"
            "return int(round(math.ldexp(factor, shift))), shift",
            solution_of("09", "fixed_point"),
        ],
        wrong=[
            "shift = 0\nwhile factor < 2**31:\n    factor, shift = 2 * factor, shift + 1\nreturn round(factor), shift",
            "shift = 0\nwhile factor < 2**29:\n    factor, shift = 2 * factor, shift + 1\nreturn round(factor), shift",
            "return round(factor * 2**31), 31",
            "shift = 0\nwhile factor < 2**30:\n    factor, shift = 2 * factor, shift + 1\nreturn int(factor), shift",
            "shift = 0\nwhile factor < 2**30:\n    factor, shift = 2 * factor, shift + 1\nreturn factor + 0.25, shift",
            "shift = 0\nwhile factor < 2**30:\n    factor, shift = 2 * factor, shift + 1\nreturn round(factor), -shift",
            "shift = 0\nwhile factor < 2**14:\n    factor, shift = 2 * factor, shift + 1\n"
            "return round(factor) << 16, shift + 16",
        ],
    )


def test_rescale():
    try_answers(
        "rescale",
        "total, multiplier, shift",
        right=[
            "p = total * multiplier\nodd = (p >> shift) & 1\nreturn (p + (1 << (shift - 1)) - 1 + odd) >> shift",
            "q, rest = divmod(total * multiplier, 2**shift)\nhalf = 2 ** (shift - 1)\n"
            "return q + (rest > half or (rest == half and q % 2 == 1))",
            solution_of("09", "rescale"),
        ],
        wrong=[
            "return (total * multiplier) >> shift",
            "return (total * multiplier + (1 << (shift - 1))) >> shift",
            "return round(total * multiplier / 2**shift)",
            "p = total * multiplier\ns = 1 if p >= 0 else -1\nreturn s * ((abs(p) + (1 << (shift - 1))) >> shift)",
            "return int(total * multiplier / 2**shift)",
            "return (total * multiplier + (1 << (shift - 1)) - 1) >> shift",
            "return (total >> shift) * multiplier",
        ],
    )


def test_integer_layer():
    rounding = "odd = (p >> shift) & 1\np = (p + (1 << (shift - 1)) - 1 + odd) >> shift\n"
    start = "x = codes.long() - zero_in\np = (x @ weight.long().T + bias) * multiplier\n" + rounding
    try_answers(
        "integer_layer",
        "codes, weight, bias, zero_in, multiplier, shift, zero_out",
        right=[
            start + "return (p + zero_out).clamp(0, 255).to(torch.uint8)",
            "w = weight.long()\np = (codes.long() @ w.T - zero_in * w.sum(1) + bias.long()) * multiplier\n"
            + rounding
            + "return (p + zero_out).clamp(0, 255)",
            solution_of("09", "integer_layer"),
        ],
        wrong=[
            start + "return (p + zero_out).to(torch.uint8)",
            start + "return p.clamp(0, 255) + zero_out",
            start.replace(rounding, "p = (p + (1 << (shift - 1))) >> shift\n") + "return (p + zero_out).clamp(0, 255)",
            start.replace(" - zero_in", "") + "return (p + zero_out).clamp(0, 255)",
            start.replace("codes.long()", "codes.to(torch.int8).long()") + "return (p + zero_out).clamp(0, 255)",
            start.replace(" + bias", "") + "return (p + zero_out).clamp(0, 255)",
            start.replace("- zero_in", "+ zero_in") + "return (p + zero_out).clamp(0, 255)",
            "x = codes.to(torch.int8) @ weight.T\n"
            "return ((x.long() + bias) * multiplier / 2**shift).round().add(zero_out).clamp(0, 255)",
        ],
    )


def test_integer_convolution():
    right = solution_of("09", "integer_convolution")

    def instead(part: str, other: str) -> str:
        assert part in right
        return right.replace(part, other)

    windows = """
K, (n, c, *_) = weight.shape[-1], codes.shape
x = F.pad(codes.long() - zero_in, (padding,) * 4).unfold(2, K, stride).unfold(3, K, stride)
x = x.reshape(n, groups, c // groups, *x.shape[2:])
total = torch.einsum("ngcyxuv,gocuv->ngoyx", x, weight.long().reshape(groups, -1, c // groups, K, K)).flatten(1, 2)
p = (total + bias[:, None, None]) * multiplier[:, None, None]
shift = shift[:, None, None]
whole, rest = p >> shift, p - ((p >> shift) << shift)
twice = 2 * rest - (torch.ones_like(shift) << shift)
return (whole + ((twice > 0) | ((twice == 0) & (whole % 2 == 1))) + zero_out).clamp(0, 255)
"""
    try_answers(
        "integer_convolution",
        "codes, weight, bias, zero_in, multiplier, shift, zero_out, stride, padding, groups",
        right=[right, windows, instead(".to(torch.uint8)", ".float()")],
        wrong=[
            instead("codes.double() - zero_in", "codes.double()"),
            instead("codes.double() - zero_in", "(codes - zero_in).double()"),
            instead("x = codes.double() - zero_in", "x = F.pad(codes.double(), (padding,) * 4) - zero_in; padding = 0"),
            instead("multiplier[:, None, None], shift", "multiplier[0], shift"),
            instead("multiplier[:, None, None], shift", "multiplier, shift"),
            instead(" - 1 + odd", ""),
            instead("bias.double()", "None"),
            instead(", groups=groups", ", groups=1"),
            instead("bias.double(), stride", "bias.double(), 1"),
            instead("(rounded + zero_out).clamp(0, 255)", "(rounded.clamp(0, 255) + zero_out)"),
            instead("weight.double()", "weight.double().flip(2, 3)"),
        ],
    )
