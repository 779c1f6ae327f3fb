from tests.exercises.trying import solution_of, try_answers


def test_convolution_macs():
    try_answers(
        "convolution_macs",
        "c_in, c_out, kernel, size, stride, groups",
        right=[
            "side = (size + stride - 1) // stride; return side**2 * c_out * (c_in // groups) * kernel**2",
            "return (size // stride) ** 2 * c_in * c_out * kernel * kernel // groups",
            solution_of("05", "convolution_macs"),
        ],
        wrong=[
            "return size**2 * c_out * (c_in // groups) * kernel**2",
            "return (size // stride) ** 2 * c_out * c_in * kernel**2",
            "return (size // stride) ** 2 * (c_in // groups) * (c_out // groups) * kernel**2",
            "return (size // stride) * c_out * (c_in // groups) * kernel**2",
            "return (size // stride) ** 2 * c_out * (c_in // groups) * kernel",
            "return ((size - kernel) // stride + 1) ** 2 * c_out * (c_in // groups) * kernel**2",
            "return 2 * (size // stride) ** 2 * c_out * (c_in // groups) * kernel**2",
            "return c_out * (c_in // groups) * kernel**2",
        ],
    )


def test_block_weights():
    try_answers(
        "block_weights",
        "c_in, c_out, expansion",
        right=[
            "h = expansion * c_in; return c_in * h + 9 * h + h * c_out",
            "return expansion * c_in * (c_in + 9 + c_out)",
            solution_of("05", "block_weights"),
        ],
        wrong=[
            "h = expansion * c_in; return c_in * h + 9 * h * h + h * c_out",
            "h = expansion * c_in; return c_in * h + h + h * c_out",
            "h = expansion * c_in; return c_in * h + h * c_out",
            "h = expansion * c_out; return c_in * h + 9 * h + h * c_out",
            "h = expansion * c_in; return 9 * (c_in * h + h + h * c_out)",
            "return c_in * c_out * 9",
        ],
    )


AUGMENT = """
def augment(images, shifts, mirror):
    height, width = images.shape[2:]
    padded, moved = F.pad(images, (4, 4, 4, 4)), images.clone()
    for i, (down, right) in enumerate(shifts.tolist()):
        cut = padded[i, :, 4 - down : 4 - down + height, 4 - right : 4 - right + width]
        moved[i] = cut.flip(2) if mirror[i] else cut
    return moved
"""
ROLL = """
moved = torch.zeros_like(images)
for i, (down, right) in enumerate(shifts.tolist()):
    one = F.pad(images[i], (4, 4, 4, 4)).roll((down, right), (1, 2))[:, 4:-4, 4:-4]
    moved[i] = one.flip(-1) if mirror[i] else one
return moved
"""


def test_augment():
    try_answers(
        "augment",
        "images, shifts, mirror",
        right=[AUGMENT, ROLL, solution_of("05", "augment")],
        wrong=[
            AUGMENT.replace("4 - down", "4 + down"),
            AUGMENT.replace("4 - right", "4 + right"),
            AUGMENT.replace("(down, right)", "(right, down)"),
            AUGMENT.replace("flip(2)", "flip(1)"),
            AUGMENT.replace("if mirror[i]", "if not mirror[i]"),
            ROLL.replace("F.pad(images[i], (4, 4, 4, 4))", "images[i]").replace("[:, 4:-4, 4:-4]", ""),
            "return images",
        ],
    )


RATE = """
warm = steps // 10
if step < warm:
    return peak * (step + 1) / warm
return peak * (1 + math.cos(math.pi * (step - warm) / (steps - warm))) / 2
"""


def test_rate_at():
    right = "import math\n" + RATE
    try_answers(
        "rate_at",
        "step, steps, peak",
        right=[right, RATE.replace("math", "np"), solution_of("05", "rate_at")],
        wrong=[
            right.replace("step + 1", "step"),
            right.replace("(step - warm) / (steps - warm)", "step / steps"),
            right.replace("steps // 10", "steps // 5"),
            right.replace("return peak * (1 +", "return 2 * peak * (1 +"),
            right.replace("1 + math", "1 - math"),
            "return peak",
        ],
    )


def test_average_weights():
    right = "return {n: decay * a + (1 - decay) * current[n] if a.is_floating_point() else current[n] "
    right += "for n, a in average.items()}"
    try_answers(
        "average_weights",
        "average, current, decay",
        right=[
            right,
            "return {n: a.lerp(current[n], 1 - decay) if a.dtype.is_floating_point else current[n].clone()\n"
            "        for n, a in average.items()}",
            solution_of("05", "average_weights"),
        ],
        wrong=[
            right.replace("decay * a + (1 - decay)", "(1 - decay) * a + decay"),
            right.replace("else current[n]", "else a"),
            right.replace(" + (1 - decay)", " + decay"),
            right.replace("if a.is_floating_point()", "if a.ndim > 1"),
            "return current",
            "return average",
        ],
    )
