TOTAL = "(codes.long() - zero_in) @ weight.long().T + bias"
OWN = "p = total * multiplier; odd = (p >> shift) & 1; "
OWN += "rounded = (p + (1 << (shift - 1)) - 1 + odd) >> shift"
SUMS, TERMS = "rescale(total, multiplier, shift)", "rescale(product, 1, shift)"
PLACED = "(multiplier.double() / 2.0**shift)"
FLOAT64 = "torch.round(total.double() * multiplier / 2.0**shift).long()"
WINDOWS = """
K, (n, c, *_) = weight.shape[-1], codes.shape
x = F.pad(codes.long() - zero_in, (padding,) * 4).unfold(2, K, stride).unfold(3, K, stride)
x = x.reshape(n, groups, c // groups, *x.shape[2:])
weight = weight.long().reshape(groups, -1, c // groups, K, K)
total = torch.einsum("ngcyxuv,gocuv->ngoyx", x, weight).flatten(1, 2)
p = (total + bias[:, None, None]) * multiplier[:, None, None]
shift = shift[:, None, None]
whole, rest = p >> shift, p - ((p >> shift) << shift)
twice = 2 * rest - (torch.ones_like(shift) << shift)
return (whole + ((twice > 0) | ((twice == 0) & (whole % 2 == 1))) + zero_out).clamp(0, 255)
"""

ANSWERS = {
    "fixed_point": {
        "right": [
            (
                "_, exponent = math.frexp(factor)\n"
                "shift = 31 - exponent\n"
                "return int(round(math.ldexp(factor, shift))), shift"
            ),
            ("2 * factor", "factor + factor"),
        ],
        "wrong": [
            ("2**30", "2**31"),
            ("2**30", "2**29"),
            ("round(factor)", "int(factor)"),
            ("round(factor)", "factor + 0.25"),
            ("factor), shift", "factor), -shift"),
            ("2**30", "2**14", "factor), shift", "factor) << 16, shift + 16"),
            "return round(factor * 2**31), 31",
        ],
    },
    "rescale": {
        "right": [
            (
                "p = total * multiplier\n"
                "odd = (p >> shift) & 1\n"
                "return (p + (1 << (shift - 1)) - 1 + odd) >> shift"
            ),
            "p, half = total * multiplier, 2 ** (shift - 1)\nq = p // 2**shift\n"
            "rest = p - q * 2**shift\n"
            "return q + ((rest > half) | ((rest == half) & (q % 2 == 1)))",
        ],
        "wrong": [
            "return (total * multiplier) >> shift",
            "return (total * multiplier + (1 << (shift - 1))) >> shift",
            "return round(total * multiplier / 2**shift)",
            (
                "p = total * multiplier\n"
                "s = 1 if p >= 0 else -1\n"
                "return s * ((abs(p) + (1 << (shift - 1))) >> shift)"
            ),
            "return int(total * multiplier / 2**shift)",
            "return (total * multiplier + (1 << (shift - 1)) - 1) >> shift",
            ("(product >> shift) & 1", "product & 1"),
            "return (total >> shift) * multiplier",
            "q, rest = divmod(int(total) * int(multiplier), 2 ** int(shift))\n"
            "half = 2 ** (int(shift) - 1)\n"
            "return q + (rest > half or (rest == half and q % 2 == 1))",
        ],
    },
    "integer_layer": {
        "right": [
            (
                TOTAL,
                "codes.long() @ weight.long().T - zero_in * weight.long().sum(1) + bias.long()",
            ),
            (f"{SUMS} + zero_out", f"zero_out + {SUMS}"),
            (SUMS, "rounded", "return (", OWN + "; return ("),
        ],
        "wrong": [
            (".clamp(0, 255)", ""),
            (f"({SUMS} + zero_out).clamp(0, 255)", f"({SUMS}.clamp(0, 255) + zero_out)"),
            (SUMS, "((total * multiplier) >> shift)"),
            (SUMS, FLOAT64),
            (" - zero_in", ""),
            ("- zero_in", "+ zero_in"),
            (" + bias", ""),
            ("codes.long()", "codes.to(torch.int8).long()"),
            ("(codes.long() - zero_in)", "(codes - zero_in).long()"),
            (SUMS, "torch.round(total * (multiplier / 2**shift))"),
            "x = codes.to(torch.int8) @ weight.T\n"
            "return ((x.long() + bias) * multiplier / 2**shift).round().add(zero_out).clamp(0, "
            "255)",
        ],
    },
    "integer_convolution": {
        "right": [WINDOWS, (".to(torch.uint8)", ".float()")],
        "wrong": [
            ("codes.double() - zero_in", "codes.double()"),
            ("codes.double() - zero_in", "(codes - zero_in).double()"),
            (
                "x = codes.double() - zero_in",
                "x = F.pad(codes.double(), (padding,) * 4) - zero_in; padding = 0",
            ),
            ("multiplier[:, None, None], shift", "multiplier[0], shift"),
            ("multiplier[:, None, None], shift", "multiplier, shift"),
            ("bias.double()", "None"),
            (SUMS, "((total * multiplier) >> shift)"),
            (SUMS, FLOAT64),
            (SUMS, f"torch.round(total * {PLACED}).long()"),
            (", groups=groups", ", groups=1"),
            ("bias.double(), stride", "bias.double(), 1"),
            ("(rounded + zero_out).clamp(0, 255)", "(rounded.clamp(0, 255) + zero_out)"),
            ("weight.double()", "weight.double().flip(2, 3)"),
            (
                "codes.double()",
                "codes.float()",
                "weight.double(), bias.double()",
                "weight.float(), bias.float()",
            ),
        ],
    },
    "add_shortcut": {
        "right": [
            ("residual.long() - zero_residual", "residual.int().sub(zero_residual).long()"),
            (f"{TERMS} + zero_out", f"zero_out + {TERMS}"),
        ],
        "wrong": [
            ("residual.long() - zero_residual", "residual.long()"),
            ("residual.long() - zero", "residual - zero"),
            (" * multiplier_residual", " * multiplier"),
            (TERMS, "(product >> shift)"),
            (" + zero_out", ""),
            (".clamp(0, 255)", ""),
            ("+ (residual", "- (residual"),
            (".clamp(0, 255)", ".clamp(max=255)"),
            ("total.long()", "total"),
            ("= total", "= (zero_out << shift) + total", f"{TERMS} + zero_out", TERMS),
            (TERMS, "torch.round(product / 2**shift)"),
            (TERMS, "torch.round(product.double() / 2.0**shift).long()"),
            (
                f"{TERMS} + zero_out",
                "rescale(total.long(), multiplier, shift) + zero_out "
                "+ rescale(residual.long() - zero_residual, multiplier_residual, shift)",
            ),
        ],
    },
}

TRIALS = {
    "fixed_point": [
        ("30|31", ("2**30", "2**31")),
        ("round|nearest|cut", ("round(factor)", "int(factor)")),
        ("31 bits|30|double", "return round(factor * 2**31), 31"),
        (
            "round.*(end|last|once)|early",
            "shift = 0\n"
            "while factor < 2**30:\n"
            "    factor = round(2 * factor) if factor > 1 else 2 * factor\n"
            "    shift += 1\n"
            "return round(factor), shift",
        ),
    ],
    "rescale": [
        ("down|nearest|half", "return (total * multiplier) >> shift"),
        ("even|half", "return (total * multiplier + (1 << (shift - 1))) >> shift"),
        (
            "float|whole|53",
            "product = torch.as_tensor(total * multiplier, dtype=torch.float64)\n"
            "return torch.round(product / 2.0**shift).long()",
        ),
        ("first|before|order", "return (total >> shift) * multiplier"),
        (
            "away|even|negative",
            "p = torch.as_tensor(total * multiplier)\n"
            "return p.sign() * ((p.abs() + (1 << (shift - 1))) >> shift)",
        ),
        ("odd", ("(product >> shift) & 1", "product % 2")),
        ("half down", "return (total * multiplier + (1 << (shift - 1)) - 1) >> shift"),
    ],
    "integer_layer": [
        (
            "int64",
            (
                "(codes.long() - zero_in) @ weight.long().T",
                "(codes.int() - zero_in) @ weight.int().T",
            ),
        ),
        (
            "zero_in",
            "total = codes.long() @ weight.long().T + bias\n"
            "return (rescale(total, multiplier, shift) + zero_out).clamp(0, 255).to(torch.uint8)",
        ),
        (
            "bias",
            "total = (codes.long() - zero_in) @ weight.long().T\n"
            "return (rescale(total, multiplier, shift) + zero_out).clamp(0, 255).to(torch.uint8)",
        ),
        (
            "clamp|wrap|255",
            "total = (codes.long() - zero_in) @ weight.long().T + bias\n"
            "return (rescale(total, multiplier, shift) + zero_out).to(torch.uint8)",
        ),
        (
            "zero_out",
            "total = (codes.long() - zero_in) @ weight.long().T + bias\n"
            "return rescale(total, multiplier, shift).clamp(0, 255).to(torch.uint8)",
        ),
        (
            "round|rescale|nearest",
            "total = (codes.long() - zero_in) @ weight.long().T + bias\n"
            "return (((total * multiplier) >> shift) + zero_out).clamp(0, 255).to(torch.uint8)",
        ),
        (
            "clamp (last|after)",
            "total = (codes.long() - zero_in) @ weight.long().T + bias\n"
            "return (rescale(total, multiplier, shift).clamp(0, 255) + zero_out).to(torch.uint8)",
        ),
        (
            "clamp (last|after)",
            "total = (codes.long() - zero_in) @ weight.long().T + bias\n"
            "return zero_out + rescale(total, multiplier, shift).clamp(0, 255)",
        ),
        (
            "wrap.*before you subtract",
            "total = (codes - zero_in).to(torch.int64) @ weight.long().T + bias\n"
            "return (rescale(total, multiplier, shift) + zero_out).clamp(0, 255)",
        ),
    ],
    "integer_convolution": [
        ("zero_in", ("codes.double() - zero_in", "codes.double()")),
        (
            "pad",
            (
                "x = codes.double() - zero_in",
                "x = F.pad(codes.double(), [padding] * 4) - zero_in\n    padding = 0",
            ),
        ),
        (
            "wrap|uint8|type|wide|float64",
            ("codes.double() - zero_in", "(codes - zero_in).double()"),
        ),
        ("bias", ("bias.double(), stride", "None, stride")),
        (
            "channel|shape|own",
            ("multiplier[:, None, None], shift[:, None, None]", "multiplier[0], shift[0]"),
        ),
        ("zero_out", ("(rounded + zero_out)", "rounded")),
        ("axis|shape", ("[:, None, None]", "")),
    ],
    "add_shortcut": [
        ("zero_residual", ("(residual.long() - zero_residual)", "residual.long()")),
        (
            "once|twice|rounded",
            "return (rescale(total.long(), multiplier, shift) + zero_out\n"
            "        + rescale(residual.long() - zero_residual, multiplier_residual, shift)\n"
            "        ).clamp(0, 255)",
        ),
        ("int64|wide|overflow|wrap|long", ("total.long() * multiplier", "total * multiplier")),
        ("zero_out", (" + zero_out)", ")")),
        ("multiplier_residual|own|factor", ("* multiplier_residual", "* multiplier")),
        (
            "uint8|wrap|below|wide|int64",
            ("(residual.long() - zero_residual)", "(residual - zero_residual).long()"),
        ),
    ],
}
