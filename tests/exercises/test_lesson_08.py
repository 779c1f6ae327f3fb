from tests.exercises.trying import solution_of, try_answers


def test_choose_scale():
    try_answers(
        "choose_scale",
        "x, bits",
        right=[
            "low, high = min(0.0, x.min().item()), max(0.0, x.max().item()); s = (high - low) / (2**bits - 1); "
            "return s, round(-low / s)",
            "low, high = x.min().clamp(max=0), x.max().clamp(min=0); s = (high - low) / (2**bits - 1); "
            "return s, torch.round(-low / s)",
            solution_of("08", "choose_scale"),
        ],
        wrong=[
            "low, high = x.min(), x.max(); s = (high - low) / (2**bits - 1); return s, torch.round(-low / s)",
            "low, high = x.min().clamp(max=0), x.max().clamp(min=0); s = (high - low) / 2**bits; "
            "return s, torch.round(-low / s)",
            "low, high = x.min().clamp(max=0), x.max().clamp(min=0); s = (high - low) / (2**bits - 1); return s, 0",
            "low, high = x.min().clamp(max=0), x.max().clamp(min=0); s = (high - low) / (2**bits - 1); "
            "return s, torch.round(low / s)",
            "low, high = x.min().clamp(max=0), x.max().clamp(min=0); s = (high - low) / 255; "
            "return s, torch.round(-low / s)",
            "s = x.abs().max() / (2 ** (bits - 1) - 1); return s, 0",
            "low, high = x.min().clamp(max=0), x.max().clamp(min=0); s = (high - low) / (2**bits - 1); "
            "return s, int(-low / s)",
            "low, high = x.min().clamp(max=0), x.max().clamp(min=0); s = (high - low) / (2**bits - 1); "
            "return s, torch.ceil(-low / s)",
        ],
    )


def test_to_codes():
    try_answers(
        "to_codes",
        "x, scale, zero_point, bits",
        right=[
            "return (torch.round(x / scale) + zero_point).clamp(0, 2**bits - 1)",
            "return torch.clamp((x / scale).round().to(torch.int64) + zero_point, 0, (1 << bits) - 1)",
            solution_of("08", "to_codes"),
        ],
        wrong=[
            "return torch.round(x / scale) + zero_point",
            "return (torch.round(x / scale).clamp(0, 2**bits - 1) + zero_point)",
            "return (torch.round(x / scale) - zero_point).clamp(0, 2**bits - 1)",
            "return ((x / scale).int() + zero_point).clamp(0, 2**bits - 1)",
            "return (torch.round(x / scale) + zero_point).to(torch.uint8)",
            "return (torch.round(x / scale) + zero_point).clamp(0, 2**bits)",
            "return (torch.round(x * scale) + zero_point).clamp(0, 2**bits - 1)",
            "return torch.round(x / scale + zero_point).clamp(0, 2**bits - 1)",
        ],
    )


def test_round_per_channel():
    try_answers(
        "round_per_channel",
        "W",
        right=[
            "s = W.abs().amax((1, 2, 3), keepdim=True) / 127; return torch.round(W / s) * s",
            "s = W.flatten(1).abs().max(1).values[:, None, None, None] / 127; return (W / s).round() * s",
            solution_of("08", "round_per_channel"),
        ],
        wrong=[
            "s = W.abs().max() / 127; return torch.round(W / s) * s",
            "s = W.abs().amax((0, 2, 3), keepdim=True) / 127; return torch.round(W / s) * s",
            "s = W.abs().amax((1, 2, 3), keepdim=True) / 127; return torch.round(W / s)",
            "s = W.amax((1, 2, 3), keepdim=True) / 127; return torch.round(W / s) * s",
            "s = W.abs().amax((1, 2, 3), keepdim=True) / 255; return torch.round(W / s).clamp(-127, 127) * s",
            "return W",
        ],
    )


def test_there_and_back():
    try_answers(
        "there_and_back",
        "x, scale, zero_point, bits",
        right=[
            "return scale * (to_codes(x, scale, zero_point, bits) - zero_point)",
            "return torch.fake_quantize_per_tensor_affine(x, scale, zero_point, 0, 2**bits - 1)",
            solution_of("08", "there_and_back"),
        ],
        wrong=[
            "return scale * to_codes(x, scale, zero_point, bits)",
            "return scale * to_codes(x, scale, zero_point, bits) - zero_point",
            "return scale * (to_codes(x, scale, zero_point, bits) + zero_point)",
            "return torch.round(x / scale) * scale",
            "return (to_codes(x, scale, zero_point, bits) - zero_point) / scale",
            "return scale * (to_codes(x, scale, zero_point, 8) - zero_point)",
            "return x",
        ],
    )


def test_size_in_bytes():
    try_answers(
        "size_in_bytes",
        "model",
        right=[
            "return sum(t.numel() * t.element_size() for t in model.state_dict().values())",
            "tensors = [*model.parameters(), *model.buffers()]\nreturn sum(t.nbytes for t in tensors)",
            solution_of("08", "size_in_bytes"),
        ],
        wrong=[
            "return sum(4 * int(p.count_nonzero()) for p in model.parameters())",
            "return sum(p.numel() * p.element_size() for p in model.parameters())",
            "return 4 * sum(t.numel() for t in model.state_dict().values())",
            "return sum(t.numel() for t in model.state_dict().values())",
            "return sum(t.element_size() for t in model.state_dict().values())",
            "return sum(int(t.count_nonzero()) * t.element_size() for t in model.state_dict().values())",
        ],
    )


def test_moving_average():
    lines = "low, high = batches[0].min(), batches[0].max()\nfor b in batches[1:]:\n    "
    try_answers(
        "moving_average",
        "batches, memory",
        right=[
            lines + "low, high = low + (1 - memory) * (b.min() - low), high + (1 - memory) * (b.max() - high)\n"
            "return low, high",
            "import functools\nstep = lambda old, new: memory * old + (1 - memory) * new\n"
            "return functools.reduce(step, [torch.stack(b.aminmax()) for b in batches])",
            solution_of("08", "moving_average"),
        ],
        wrong=[
            lines + "low, high = memory * b.min() + (1 - memory) * low, memory * b.max() + (1 - memory) * high\n"
            "return low, high",
            lines.replace("low, high = batches[0].min(), batches[0].max()", "low = high = 0").replace("[1:]", "")
            + "low, high = memory * low + (1 - memory) * b.min(), memory * high + (1 - memory) * b.max()\n"
            "return low, high",
            "return torch.cat(batches, 1).aminmax()",
            "return sum(b.min() for b in batches) / len(batches), sum(b.max() for b in batches) / len(batches)",
            lines + "low, high = min(low, b.min()), memory * high + (1 - memory) * b.max()\nreturn low, high",
            lines + "low, high = memory * low + b.min(), memory * high + b.max()\nreturn low, high",
        ],
    )


def test_percentile():
    ordered = "v = torch.cat([b.flatten() for b in batches]).sort().values\n"
    try_answers(
        "percentile",
        "batches, share",
        right=[
            ordered + "k = int(share * len(v))\nreturn v[k], v[len(v) - 1 - k]",
            "v = torch.cat([b.reshape(-1) for b in batches])\nk = int(share * v.numel()) + 1\n"
            "return v.kthvalue(k).values, (-v).kthvalue(k).values.neg()",
            solution_of("08", "percentile"),
        ],
        wrong=[
            ordered + "k = int(share * len(v))\nreturn v[k], v[-k]",
            ordered + "k = int(share * len(v) / 2)\nreturn v[k], v[-1 - k]",
            ordered + "k = int(share * len(v))\nreturn v[0], v[-1 - k]",
            ordered + "return v[0], v[-1]",
            "v = torch.cat([b.flatten() for b in batches])\nk = int(share * len(v))\nreturn v[k], v[-1 - k]",
            "v = batches[0].flatten().sort().values\nk = int(share * len(v))\nreturn v[k], v[-1 - k]",
            ordered + "k = int(share * len(v)) + 1\nreturn v[k], v[-1 - k]",
            ordered + "return tuple(v.quantile(q, interpolation='lower') for q in (share, 1 - share))",
        ],
    )


def test_least_error():
    body = """values = torch.cat(batches)
low, high = values.min().clamp(max=0), values.max().clamp(min=0)
best, least = None, float("inf")
for share in torch.linspace(0.3, 1, 36):
    ends = low * share, high * share
    scale, zero_point = choose_scale(torch.stack(ends), bits)
    error = (there_and_back(values, scale, zero_point, bits) - values).square().mean()
    if error < least:
        best, least = ends, error
return best"""
    try_answers(
        "least_error",
        "batches, bits",
        right=[body, body.replace(".square().mean()", ".norm()"), solution_of("08", "least_error")],
        wrong=[
            body.replace("error < least", "error < least or True"),
            body.replace("if error < least", "if best is None"),
            body.replace(".square().mean()", ".abs().max()"),
            body.replace("- values)", "- values.clamp(*ends))"),
            body.replace("ends = low * share, high * share", "ends = low, high * share"),
            body.replace("error < least", "-error < least"),
            body.replace("1, 36)", "1, 20)"),
            body.replace("zero_point, bits) - values", "zero_point, 8) - values"),
            "return torch.cat(batches).aminmax()",
        ],
    )
