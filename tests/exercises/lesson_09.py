# fmt: off
TOTAL = "(codes.long() - zero_in) @ weight.long().T + bias"
ROUNDED = "(product + (1 << (shift - 1)) - 1 + odd) >> shift"
WINDOWS = """
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

ANSWERS = {
    "fixed_point": {"right": [
        "_, exponent = math.frexp(factor)\nshift = 31 - exponent\nreturn int(round(math.ldexp(factor, shift))), shift",
        ("2 * factor", "factor + factor"),
    ], "wrong": [
        ("2**30", "2**31"), ("2**30", "2**29"), ("round(factor)", "int(factor)"), ("round(factor)", "factor + 0.25"),
        ("factor), shift", "factor), -shift"), ("2**30", "2**14", "factor), shift", "factor) << 16, shift + 16"),
        "return round(factor * 2**31), 31",
    ]},
    "rescale": {"right": [
        "p = total * multiplier\nodd = (p >> shift) & 1\nreturn (p + (1 << (shift - 1)) - 1 + odd) >> shift",
        "q, rest = divmod(total * multiplier, 2**shift)\nhalf = 2 ** (shift - 1)\n"
        "return q + (rest > half or (rest == half and q % 2 == 1))",
    ], "wrong": [
        "return (total * multiplier) >> shift", "return (total * multiplier + (1 << (shift - 1))) >> shift",
        "return round(total * multiplier / 2**shift)",
        "p = total * multiplier\ns = 1 if p >= 0 else -1\nreturn s * ((abs(p) + (1 << (shift - 1))) >> shift)",
        "return int(total * multiplier / 2**shift)", "return (total * multiplier + (1 << (shift - 1)) - 1) >> shift",
        "return (total >> shift) * multiplier",
    ]},
    "integer_layer": {"right": [
        (TOTAL, "codes.long() @ weight.long().T - zero_in * weight.long().sum(1) + bias.long()"),
        ("rounded + zero_out", "zero_out + rounded"),
    ], "wrong": [
        (".clamp(0, 255)", ""), ("(rounded + zero_out).clamp(0, 255)", "(rounded.clamp(0, 255) + zero_out)"),
        (" - 1 + odd", ""), (" - zero_in", ""), ("- zero_in", "+ zero_in"), (" + bias", ""),
        ("codes.long()", "codes.to(torch.int8).long()"), (ROUNDED, "torch.round(total * (multiplier / 2**shift))"),
        "x = codes.to(torch.int8) @ weight.T\n"
        "return ((x.long() + bias) * multiplier / 2**shift).round().add(zero_out).clamp(0, 255)",
    ]},
    "integer_convolution": {"right": [WINDOWS, (".to(torch.uint8)", ".float()")], "wrong": [
        ("codes.double() - zero_in", "codes.double()"), ("codes.double() - zero_in", "(codes - zero_in).double()"),
        ("x = codes.double() - zero_in", "x = F.pad(codes.double(), (padding,) * 4) - zero_in; padding = 0"),
        ("multiplier[:, None, None], shift", "multiplier[0], shift"),
        ("multiplier[:, None, None], shift", "multiplier, shift"), (" - 1 + odd", ""), ("bias.double()", "None"),
        (", groups=groups", ", groups=1"), ("bias.double(), stride", "bias.double(), 1"),
        ("(rounded + zero_out).clamp(0, 255)", "(rounded.clamp(0, 255) + zero_out)"),
        ("weight.double()", "weight.double().flip(2, 3)"),
        ("codes.double()", "codes.float()", "weight.double(), bias.double()", "weight.float(), bias.float()"),
    ]},
    "add_shortcut": {"right": [
        ("residual.long() - zero_residual", "residual.int().sub(zero_residual).long()"),
        ("rounded + zero_out", "zero_out + rounded"),
    ], "wrong": [
        ("residual.long() - zero_residual", "residual.long()"), ("residual.long() - zero", "residual - zero"),
        (" * multiplier_residual", " * multiplier"), (" - 1 + odd", ""), (" + zero_out", ""), (".clamp(0, 255)", ""),
        ("+ (residual", "- (residual"), (".clamp(0, 255)", ".clamp(max=255)"), ("total.long()", "total"),
        ("= total", "= (zero_out << shift) + total", "rounded + zero_out", "rounded"),
        ("rounded + zero_out", "torch.round(product / 2**shift) + zero_out"),
        ("(rounded + zero_out)", "(((total * multiplier) / 2**shift).round().long() + zero_out + "
         "((residual.long() - zero_residual) * multiplier_residual / 2**shift).round().long())"),
    ]},
}
