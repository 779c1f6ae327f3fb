# fmt: off
from tests.exercises.trying import Answers

LOW, HIGH = "memory * low + (1 - memory) * batch.min()", "memory * high + (1 - memory) * batch.max()"
ORDERED = "v = torch.cat([b.flatten() for b in batches]).sort().values\n"
ENDS = "values.min().clamp(max=0), values.max().clamp(min=0)"

ANSWERS = {
    "choose_scale": Answers(right=[
        "low, high = min(0.0, x.min().item()), max(0.0, x.max().item()); s = (high - low) / (2**bits - 1); "
        "return s, round(-low / s)",
    ], wrong=[
        (".clamp(max=0)", "", ".clamp(min=0)", ""), ("(2**bits - 1)", "2**bits"), ("torch.round(-low / s)", "0"),
        ("-low", "low"), ("(2**bits - 1)", "255"), ("torch.round", "int"), ("torch.round", "torch.ceil"),
        "s = x.abs().max() / (2 ** (bits - 1) - 1); return s, 0",
    ], base="low, high = x.min().clamp(max=0), x.max().clamp(min=0); s = (high - low) / (2**bits - 1); "
        "return s, torch.round(-low / s)"),
    "to_codes": Answers(right=[
        "return (torch.round(x / scale) + zero_point).clamp(0, 2**bits - 1)",
        "return torch.clamp((x / scale).round().to(torch.int64) + zero_point, 0, (1 << bits) - 1)",
    ], wrong=[
        "return torch.round(x / scale) + zero_point",
        "return (torch.round(x / scale).clamp(0, 2**bits - 1) + zero_point)",
        "return (torch.round(x / scale) - zero_point).clamp(0, 2**bits - 1)",
        "return ((x / scale).int() + zero_point).clamp(0, 2**bits - 1)",
        "return (torch.round(x / scale) + zero_point).to(torch.uint8)",
        "return (torch.round(x / scale) + zero_point).clamp(0, 2**bits)",
        "return (torch.round(x * scale) + zero_point).clamp(0, 2**bits - 1)",
        "return torch.round(x / scale + zero_point).clamp(0, 2**bits - 1)",
    ]),
    "round_per_channel": Answers(right=[
        "s = W.abs().amax((1, 2, 3), keepdim=True) / 127; return torch.round(W / s) * s",
        "s = W.flatten(1).abs().max(1).values[:, None, None, None] / 127; return (W / s).round() * s",
    ], wrong=[
        "s = W.abs().max() / 127; return torch.round(W / s) * s",
        "s = W.abs().amax((0, 2, 3), keepdim=True) / 127; return torch.round(W / s) * s",
        "s = W.abs().amax((1, 2, 3), keepdim=True) / 127; return torch.round(W / s)",
        "s = W.amax((1, 2, 3), keepdim=True) / 127; return torch.round(W / s) * s",
        "s = W.abs().amax((1, 2, 3), keepdim=True) / 255; return torch.round(W / s).clamp(-127, 127) * s", "return W",
    ]),
    "there_and_back": Answers(right=[
        "return scale * (to_codes(x, scale, zero_point, bits) - zero_point)",
        "return torch.fake_quantize_per_tensor_affine(x, scale, zero_point, 0, 2**bits - 1)",
    ], wrong=[
        "return scale * to_codes(x, scale, zero_point, bits)",
        "return scale * to_codes(x, scale, zero_point, bits) - zero_point",
        "return scale * (to_codes(x, scale, zero_point, bits) + zero_point)", "return torch.round(x / scale) * scale",
        "return (to_codes(x, scale, zero_point, bits) - zero_point) / scale",
        "return scale * (to_codes(x, scale, zero_point, 8) - zero_point)", "return x",
    ]),
    "size_in_bytes": Answers(right=[
        "return sum(t.numel() * t.element_size() for t in model.state_dict().values())",
        "tensors = [*model.parameters(), *model.buffers()]\nreturn sum(t.nbytes for t in tensors)",
    ], wrong=[
        "return sum(4 * int(p.count_nonzero()) for p in model.parameters())",
        "return sum(p.numel() * p.element_size() for p in model.parameters())",
        "return 4 * sum(t.numel() for t in model.state_dict().values())",
        "return sum(t.numel() for t in model.state_dict().values())",
        "return sum(t.element_size() for t in model.state_dict().values())",
        "return sum(int(t.count_nonzero()) * t.element_size() for t in model.state_dict().values())",
    ]),
    "moving_average": Answers(right=[
        "import functools\nstep = lambda old, new: memory * old + (1 - memory) * new\n"
        "return functools.reduce(step, [torch.stack(b.aminmax()) for b in batches])",
        ("batches[0].aminmax()", "batches[0].min(), batches[0].max()"),
    ], wrong=[
        ("(1 - memory) *", "memory *"), ("batches[0].aminmax()", "0, 0", "batches[1:]", "batches"),
        (LOW, "min(low, batch.min())", HIGH, "max(high, batch.max())"), ("+ (1 - memory) *", "+"),
        "return torch.cat(batches, 1).aminmax()",
        "return sum(b.min() for b in batches) / len(batches), sum(b.max() for b in batches) / len(batches)",
    ]),
    "percentile": Answers(right=[
        ORDERED + "k = int(share * len(v))\nreturn v[k], v[len(v) - 1 - k]",
        "v = torch.cat([b.reshape(-1) for b in batches])\nk = int(share * v.numel()) + 1\n"
        "return v.kthvalue(k).values, (-v).kthvalue(k).values.neg()",
    ], wrong=[
        ORDERED + "k = int(share * len(v))\nreturn v[k], v[-k]",
        ORDERED + "k = int(share * len(v) / 2)\nreturn v[k], v[-1 - k]",
        ORDERED + "k = int(share * len(v))\nreturn v[0], v[-1 - k]", ORDERED + "return v[0], v[-1]",
        "v = torch.cat([b.flatten() for b in batches])\nk = int(share * len(v))\nreturn v[k], v[-1 - k]",
        "v = batches[0].flatten().sort().values\nk = int(share * len(v))\nreturn v[k], v[-1 - k]",
        ORDERED + "k = int(share * len(v)) + 1\nreturn v[k], v[-1 - k]",
        ORDERED + "return tuple(v.quantile(q, interpolation='lower') for q in (share, 1 - share))",
    ]),
    "least_error": Answers(right=[
        (".square().mean()", ".norm()"), (ENDS, "values.clamp(max=0).min(), values.clamp(min=0).max()"),
    ], wrong=[
        ("return min(", "return max("), (".square().mean()", ".abs().max()"), ("- values)", "- values.clamp(*ends))"),
        ("(low * share, high * share)", "(low, high * share)"), ("1, 36)", "1, 20)"),
        (".clamp(max=0)", "", ".clamp(min=0)", ""), ("zero_point, bits) - values", "zero_point, 8) - values"),
        "return torch.cat(batches).aminmax()",
    ]),
}
