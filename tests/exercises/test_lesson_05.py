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
