ROLL = """
moved = torch.zeros_like(images)
for i, (down, right) in enumerate(shifts.tolist()):
    one = F.pad(images[i], (4, 4, 4, 4)).roll((down, right), (1, 2))[:, 4:-4, 4:-4]
    moved[i] = one.flip(-1) if mirror[i] else one
return moved
"""

ANSWERS = {
    "convolution_macs": {
        "right": [
            "side = (size + stride - 1) // stride; "
            "return side**2 * c_out * (c_in // groups) * kernel**2",
        ],
        "wrong": [
            ("(size // stride)", "size"),
            ("(c_in // groups)", "c_in"),
            ("c_out", "(c_out // groups)"),
            (") ** 2", ")"),
            ("kernel**2", "kernel"),
            ("(size // stride)", "((size - kernel) // stride + 1)"),
            ("return", "return 2 *"),
            ("(size // stride) ** 2 * ", ""),
        ],
        "base": "return (size // stride) ** 2 * c_out * (c_in // groups) * kernel**2",
    },
    "block_weights": {
        "right": ["return expansion * c_in * (c_in + 9 + c_out)"],
        "wrong": [
            ("9 * h", "9 * h * h"),
            ("9 * h", "h"),
            (" + 9 * h", ""),
            ("n * c_in;", "n * c_out;"),
            "h = expansion * c_in; return 9 * (c_in * h + h + h * c_out)",
            "return c_in * c_out * 9",
        ],
        "base": "h = expansion * c_in; return c_in * h + 9 * h + h * c_out",
    },
    "augment": {
        "right": [ROLL, ("empty_like", "zeros_like")],
        "wrong": [
            ("4 - down", "4 + down"),
            ("4 - right", "4 + right"),
            ("(down, right)", "(right, down)"),
            ("flip(2)", "flip(1)"),
            ("if mirror[i]", "if not mirror[i]"),
            ROLL.replace("F.pad(images[i], (4, 4, 4, 4))", "images[i]").replace(
                "[:, 4:-4, 4:-4]", ""
            ),
            "return images",
        ],
    },
    "rate_at": {
        "right": [
            ("math.", "np."),
            ("math.cos(", "torch.cos(torch.tensor(1.0) * "),
            ("steps // 10", "int(steps / 10)"),
        ],
        "wrong": [
            ("step + 1", "step"),
            ("(step - warm) / (steps - warm)", "step / steps"),
            ("steps // 10", "steps // 5"),
            ("steps // 10", "round(steps / 10)"),
            ("peak * ", ""),
            ("return peak * (1 +", "return 2 * peak * (1 +"),
            ("1 + math", "1 - math"),
            "return peak",
        ],
    },
    "average_weights": {
        "right": [
            ("a.is_floating_point()", "a.dtype == torch.float32"),
            "return {n: a.lerp(current[n], 1 - decay) if a.dtype.is_floating_point else "
            "current[n].clone()\n"
            "        for n, a in average.items()}",
        ],
        "wrong": [
            ("decay * a + (1 - decay)", "(1 - decay) * a + decay"),
            ("else current[n].clone()", "else a.clone()"),
            (".clone()", ""),
            (" + (1 - decay)", " + decay"),
            ("if a.is_floating_point()", "if a.ndim > 1"),
            ("if a.is_floating_point()", "if a.ndim"),
            ("if a.is_floating_point()", "if n != 'num_batches_tracked'"),
            "return current",
            "return average",
            (
                "return {n: current[n].mul_(1 - decay).add_(decay * a) if a.ndim else current[n] "
                "for n, a in average.items()}"
            ),
            "for n, a in average.items():\n"
            "    a.copy_(decay * a + (1 - decay) * current[n] if a.ndim else current[n])\n"
            "return average",
        ],
        "base": "return {n: decay * a + (1 - decay) * current[n] if a.is_floating_point() else "
        "current[n].clone() for n, a in average.items()}",
    },
}

TRIALS = {
    "convolution_macs": [
        ("group", "return (size // stride) ** 2 * c_in * c_out * kernel**2"),
        ("stride|output", "return size**2 * c_out * c_in // groups * kernel**2"),
        ("kernel|window|square", "return (size // stride) ** 2 * c_out * c_in // groups * kernel"),
        (
            "one|multiply-add|twice|two",
            "return 2 * (size // stride) ** 2 * c_out * c_in // groups * kernel**2",
        ),
        (
            "c_out|outputs",
            "return (size // stride) ** 2 * (c_out // groups) * (c_in // groups) * kernel**2",
        ),
    ],
    "block_weights": [
        (
            "depthwise|one window|per channel",
            "h = c_in * expansion; return c_in * h + 9 * h * h + h * c_out",
        ),
        ("9|3 x 3|window", "h = c_in * expansion; return c_in * h + h + h * c_out"),
        ("depthwise|middle|three", "h = c_in * expansion; return c_in * h + h * c_out"),
        ("hidden|c_in|expan", "h = c_out * expansion; return c_in * h + 9 * h + h * c_out"),
    ],
    "augment": [
        (
            "sign|opposite|direction|minus|against|other way",
            (
                "4 - down : 4 - down",
                "4 + down : 4 + down",
                "4 - right : 4 - right",
                "4 + right : 4 + right",
            ),
        ),
        ("last|axis|left|column|width", ("cut.flip(2)", "cut.flip(1)")),
        (
            "before you move|first, then",
            (
                "cut = padded[i, :, 4",
                "whole = padded[i].flip(2) if mirror[i] else padded[i]\n"
                "        moved[i] = whole[:, 4",
                "        moved[i] = cut.flip(2) if mirror[i] else cut\n",
                "",
            ),
        ),
        ("down.*right|row|order|swap", ("for i, (down, right)", "for i, (right, down)")),
        (
            "pad|edge|border|wrap|zero",
            "out = torch.empty_like(images)\n"
            "for i, (down, right) in enumerate(shifts.tolist()):\n"
            "    one = images[i].roll((down, right), (1, 2))\n"
            "    out[i] = one.flip(-1) if mirror[i] else one\n"
            "return out",
        ),
    ],
    "rate_at": [
        (r"step \+ 1|first|zero|\b0\b", ("peak * (step + 1) / warm", "peak * step / warm")),
        ("warm", "return peak * (1 + math.cos(math.pi * step / steps)) / 2"),
        (
            "end of the warm|after|since|remain|counted",
            ("(step - warm) / (steps - warm)", "step / steps"),
        ),
        ("half|2", ("(steps - warm))) / 2", "(steps - warm)))")),
        ("last step", ("(step - warm) / (steps - warm)", "(step - warm) / (steps - warm - 1)")),
        (r"fall|cos|sign|1 \+|rise", ("(1 + math.cos", "(1 - math.cos")),
    ],
    "average_weights": [
        (
            "decay|old",
            "return {n: (1 - decay) * a + decay * current[n] if a.is_floating_point()\n"
            "        else current[n].clone() for n, a in average.items()}",
        ),
        (
            "count|integer|whole|float",
            "return {n: decay * a + (1 - decay) * current[n] for n, a in average.items()}",
        ),
        (
            "place|copy|new|changes",
            "for n, a in average.items():\n"
            "    if a.is_floating_point():\n"
            "        a.mul_(decay).add_((1 - decay) * current[n])\n"
            "    else:\n"
            "        average[n] = current[n].clone()\n"
            "return average",
        ),
        ("copy|clone|same tensor|new", ("new.clone()", "new")),
    ],
}
