CLAMPED = ".clamp(0, 2**bits - 1)"
ENDS = "values.min().clamp(max=0), values.max().clamp(min=0)"
AVERAGED = "sum(b.min().clamp(max=0) for b in batches) / len(batches), "
AVERAGED += "sum(b.max().clamp(min=0) for b in batches) / len(batches)"

ANSWERS = {
    "choose_scale": {
        "right": [
            "low, high = min(0.0, x.min().item()), max(0.0, x.max().item()); "
            "s = (high - low) / (2**bits - 1); return s, round(-low / s)",
        ],
        "wrong": [
            (".clamp(max=0)", "", ".clamp(min=0)", ""),
            ("(2**bits - 1)", "2**bits"),
            ("torch.round(-low / s)", "0"),
            ("-low", "low"),
            ("(2**bits - 1)", "255"),
            ("torch.round", "int"),
            ("torch.round", "torch.ceil"),
            "s = x.abs().max() / (2 ** (bits - 1) - 1); return s, 0",
        ],
        "base": "low, high = x.min().clamp(max=0), x.max().clamp(min=0); "
        "s = (high - low) / (2**bits - 1); return s, torch.round(-low / s)",
    },
    "to_codes": {
        "right": [
            "return torch.clamp((x / scale).round().to(torch.int64) + zero_point, 0, (1 << bits) - "
            "1)",
        ],
        "wrong": [
            (CLAMPED, ""),
            (f" + zero_point){CLAMPED}", f"{CLAMPED} + zero_point)"),
            ("+ zero_point", "- zero_point"),
            ("torch.round(x / scale)", "(x / scale).int()"),
            (CLAMPED, ".to(torch.uint8)"),
            ("bits - 1", "bits"),
            ("x / scale", "x * scale"),
            ("(x / scale) + zero_point", "(x / scale + zero_point)"),
            "return x.div_(scale).round_().add_(zero_point).clamp_(0, 2**bits - 1)",
        ],
        "base": f"return (torch.round(x / scale) + zero_point){CLAMPED}",
    },
    "silence": {
        "right": [
            "alive = variance >= 1e-8; return weight * alive[:, None, None, None], mean * alive",
            (
                "dead = variance < 1e-8\n"
                "return weight.masked_fill(dead[:, None, None, None], 0), mean.masked_fill(dead, 0)"
            ),
        ],
        "wrong": [
            ("    mean[variance < 1e-8] = 0\n", ""),
            ("    weight[variance < 1e-8] = 0\n", ""),
            ("variance < 1e-8", "variance == 0"),
            ("variance < 1e-8", "variance < 1e-5"),
            ("variance < 1e-8", "variance < 1e-10"),
            ("variance <", "variance >"),
            ("mean[variance < 1e-8]", "mean[:]"),
            ("variance < 1e-8", "variance < 1e-14"),
            ("return weight, mean", "return mean, weight"),
            "alive = variance >= 1e-8; return weight[alive], mean[alive]",
            "return weight, mean",
            ("weight, mean = weight.clone(), mean.clone()", "pass"),
        ],
    },
    "round_per_channel": {
        "right": [
            "s = W.flatten(1).abs().max(1).values[:, None, None, None] / 127\n"
            "return torch.where(s > 0, (W / s).round() * s, 0)",
            (
                "torch.round(W / s) * s",
                "torch.nan_to_num(torch.round(W / s) * s)",
                ".clamp(min=1e-12)",
                "",
            ),
        ],
        "wrong": [
            ("amax((1, 2, 3), keepdim=True)", "max()"),
            ("(1, 2, 3)", "(0, 2, 3)"),
            (" * s", ""),
            (".abs()", ""),
            ("127", "255", "(W / s)", "(W / s).clamp(-127, 127)"),
            "return W",
            (".clamp(min=1e-12)", ""),
        ],
        "base": "s = W.abs().amax((1, 2, 3), keepdim=True).clamp(min=1e-12) / 127\n"
        "return torch.round(W / s) * s",
    },
    "there_and_back": {
        "right": [
            "return torch.fake_quantize_per_tensor_affine(x, scale, zero_point, 0, 2**bits - 1)",
        ],
        "wrong": [
            (" - zero_point)", ")"),
            ("(to_codes", "to_codes", "- zero_point)", "- zero_point"),
            ("- zero", "+ zero"),
            "return torch.round(x / scale) * scale",
            ("scale * (", "(", "- zero_point)", "- zero_point) / scale"),
            ("bits", "8"),
            "return x",
        ],
        "base": "return scale * (to_codes(x, scale, zero_point, bits) - zero_point)",
    },
    "size_in_bytes": {
        "right": [
            "tensors = [*model.parameters(), *model.buffers()]\n"
            "return sum(t.nbytes for t in tensors)",
        ],
        "wrong": [
            (
                "t.numel() * t.element_size()",
                "4 * int(t.count_nonzero())",
                "state_dict().values",
                "parameters",
            ),
            ("state_dict().values", "parameters"),
            ("sum(t.numel() * t.element_size()", "4 * sum(t.numel()"),
            (" * t.element_size()", ""),
            ("t.numel() * ", ""),
            ("t.numel()", "int(t.count_nonzero())"),
        ],
        "base": "return sum(t.numel() * t.element_size() for t in model.state_dict().values())",
    },
    "least_error": {
        "right": [
            (".square().mean()", ".norm()"),
            (ENDS, "values.clamp(max=0).min(), values.clamp(min=0).max()"),
        ],
        "wrong": [
            ("return min(", "return max("),
            (".square().mean()", ".abs().max()"),
            ("- values)", "- values.clamp(*ends))"),
            ("(low * share, high * share)", "(low, high * share)"),
            ("1, 36)", "1, 20)"),
            (".clamp(max=0)", "", ".clamp(min=0)", ""),
            (ENDS, AVERAGED),
            ("zero_point, bits) - values", "zero_point, 8) - values"),
            "return torch.cat(batches).aminmax()",
        ],
    },
}

TRIALS = {
    "choose_scale": [
        (
            r"one fewer|steps|2\*\*bits - 1|minus 1",
            "lo, hi = min(x.min().item(), 0), max(x.max().item(), 0); s = (hi - lo) / 2**bits\n"
            "return s, round(-lo / s)",
        ),
        (
            r"\b0\b|zero",
            "lo, hi = x.min().item(), x.max().item(); s = (hi - lo) / (2**bits - 1)\n"
            "return s, round(-lo / s)",
        ),
        (
            "bits",
            "lo, hi = min(x.min().item(), 0), max(x.max().item(), 0); s = (hi - lo) / 255\n"
            "return s, round(-lo / s)",
        ),
        (
            "sign|negative|minus",
            "lo, hi = min(x.min().item(), 0), max(x.max().item(), 0)\n"
            "s = (hi - lo) / (2**bits - 1)\n"
            "return s, round(lo / s)",
        ),
        (
            "round",
            "lo, hi = min(x.min().item(), 0), max(x.max().item(), 0)\n"
            "s = (hi - lo) / (2**bits - 1)\n"
            "return s, int(-lo / s)",
        ),
    ],
    "to_codes": [
        ("clamp|outside|range", "return torch.round(x / scale) + zero_point"),
        (
            "clamp.*(last|after)|last",
            "return torch.round(x / scale).clamp(0, 2**bits - 1) + zero_point",
        ),
        (
            "round|nearest|trunc|cut",
            "return ((x / scale).int() + zero_point).clamp(0, 2**bits - 1)",
        ),
        ("add|sign|plus", "return (torch.round(x / scale) - zero_point).clamp(0, 2**bits - 1)"),
        ("zero.point", "return torch.round(x / scale).clamp(0, 2**bits - 1)"),
        (
            "round.*first|before you round",
            "return torch.clamp((x / scale + zero_point).round(), 0, 2**bits - 1)",
        ),
        (
            r"2\*\*bits - 1|largest|one less|fewer|last code",
            "return (torch.round(x / scale) + zero_point).clamp(0, 2**bits)",
        ),
    ],
    "there_and_back": [
        ("zero.point", "return scale * to_codes(x, scale, zero_point, bits)"),
        (
            "subtract.*(first|before)|before|order|first",
            "return scale * to_codes(x, scale, zero_point, bits) - zero_point",
        ),
        ("sign|subtract", "return scale * (to_codes(x, scale, zero_point, bits) + zero_point)"),
        ("clamp|range|outside|to_codes", "return scale * (x / scale).round()"),
    ],
    "silence": [
        ("mean", "W = weight.clone(); W[variance < 1e-8] = 0; return W, mean"),
        ("filter|weight", "m = mean.clone(); m[variance < 1e-8] = 0; return weight, m"),
        (
            "1e-8|exact|small|threshold",
            "dead = variance == 0; W, m = weight.clone(), mean.clone()\n"
            "W[dead] = 0; m[dead] = 0; return W, m",
        ),
        (
            "below|smaller|other|live|alive",
            "dead = variance > 1e-8; W, m = weight.clone(), mean.clone()\n"
            "W[dead] = 0; m[dead] = 0; return W, m",
        ),
        (
            "clone",
            "dead = variance < 1e-8; weight[dead] = 0; mean[dead] = 0; return weight, mean",
        ),
    ],
    "round_per_channel": [
        ("one scale|each|own|per", "s = W.abs().max() / 127; return torch.round(W / s) * s"),
        (
            "axis|output|first",
            "s = W.abs().amax((0, 2, 3), keepdim=True).clamp(min=1e-12) / 127\n"
            "return torch.round(W / s) * s",
        ),
        (
            "absolute|negative|sign",
            "s = W.amax((1, 2, 3), keepdim=True).clamp(min=1e-12) / 127\n"
            "return torch.round(W / s) * s",
        ),
        (
            r"zero|\b0\b|nan",
            "s = W.abs().amax((1, 2, 3), keepdim=True) / 127; return torch.round(W / s) * s",
        ),
        (
            "back|scale|multipl",
            "s = W.abs().amax((1, 2, 3), keepdim=True).clamp(min=1e-12) / 127\n"
            "return torch.round(W / s)",
        ),
        (
            "127",
            "s = W.abs().amax((1, 2, 3), keepdim=True).clamp(min=1e-12) / 128\n"
            "return torch.round(W / s) * s",
        ),
    ],
    "size_in_bytes": [
        (
            "buffer|state_dict|statistics",
            "return sum(p.numel() * p.element_size() for p in model.parameters())",
        ),
        (
            "element_size|byte|type",
            "return sum(t.numel() * 4 for t in model.state_dict().values())",
        ),
        ("byte|element_size", "return sum(t.numel() for t in model.state_dict().values())"),
        (
            "zero",
            (
                "return sum(int((t != 0).sum()) * t.element_size() for t in "
                "model.state_dict().values())"
            ),
        ),
    ],
    "least_error": [
        (
            "all values|cut off|outside",
            (
                "(there_and_back(values, scale, zero_point, bits) - values)",
                (
                    "(there_and_back(values.clamp(*ends), scale, zero_point, bits) - "
                    "values.clamp(*ends))"
                ),
            ),
        ),
        ("square|mean|largest", (".square().mean()", ".abs().max()")),
        ("least|smallest|min", ("return min(", "return max(")),
        ("both|low|ends", ("(low * share, high * share)", "(low, high * share)")),
        (
            r"zero|\b0\b",
            ("values.min().clamp(max=0), values.max().clamp(min=0)", "values.min(), values.max()"),
        ),
        ("all batches", (ENDS, AVERAGED)),
    ],
}
