"""Parameters and multiply-adds of the CIFAR MobileNetV2 in closed form, from its published table alone."""

STAGES = ((1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def mobilenet_counts(keep_hidden=lambda n: n, keep_trunk=lambda n: n, classes: int = 10) -> tuple[int, int]:
    """(parameters, multiply-adds for one 32 x 32 image) when `keep_*` say how many channels of a width are left."""
    size, width = 32, keep_trunk(32)
    parameters, macs = 27 * width + 2 * width, 27 * width * size**2
    full = 32
    for expansion, channels, blocks, stride in STAGES:
        for block in range(blocks):
            hidden = width
            if expansion > 1:
                hidden = keep_hidden(full * expansion)
                parameters += width * hidden + 2 * hidden
                macs += width * hidden * size**2
            size = size // stride if block == 0 else size
            out = keep_trunk(channels)
            parameters += 9 * hidden + 2 * hidden + hidden * out + 2 * out
            macs += (9 * hidden + hidden * out) * size**2
            full, width = channels, out
    last = keep_trunk(1280)
    parameters += width * last + 2 * last + last * classes + classes
    return parameters, macs + width * last * size**2 + last * classes
