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
