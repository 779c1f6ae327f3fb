"""What integer mode must compute, a second time: NumPy, 64-bit integers, windows, Python's own
rounding.

Nothing here comes from helpers. Sums are exact, a factor is a fraction, and a result is rounded
once, half to even.
"""

import math
from fractions import Fraction

import numpy as np


def multiplier_and_shift(factor: float, largest_shift: int) -> tuple[int, int]:
    """factor ~ multiplier / 2^shift with 31 significant bits, or as many as the largest shift
    leaves.
    """
    shift = min(31 - math.frexp(factor)[1], largest_shift)
    multiplier = round(Fraction(factor) * 2**shift)
    return (multiplier // 2, shift - 1) if multiplier == 2**31 else (multiplier, shift)


def rescale(terms: list[np.ndarray], factors: list[list[float]]) -> np.ndarray:
    """round(sum of term * factor), exactly, with fixed-point factors: one per term and channel
    (dimension 1).
    """
    result = np.zeros(terms[0].shape, dtype=np.int64)
    room = min([62, *(52 - math.frexp(max(row))[1] for row in factors[1:])])
    for channel in range(result.shape[1]):
        first, shift = multiplier_and_shift(factors[0][channel], room)
        multipliers = [first, *(round(Fraction(row[channel]) * 2**shift) for row in factors[1:])]
        total = sum(
            term[:, channel].astype(object) * m for term, m in zip(terms, multipliers, strict=True)
        )
        whole = total // 2**shift
        twice = 2 * (total - whole * 2**shift)  # the rest, compared with one half
        result[:, channel] = whole + ((twice > 2**shift) | ((twice == 2**shift) & (whole % 2 == 1)))
    return result


def windows(x, kernel, stride, padding, dilation, border):
    """What lies under a kernel at each place: (images, channels, rows, columns, *kernel)."""
    x = np.pad(x, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2), constant_values=border)
    reach = [dilation[i] * (kernel[i] - 1) + 1 for i in (0, 1)]
    found = np.lib.stride_tricks.sliding_window_view(x, reach, (2, 3))
    return found[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]


def conv_sums(codes, weight, bias, zero_point, stride, padding, dilation, groups):
    """sum (code - zero_point) * weight + bias, window by window; the border is real 0."""
    x = windows(
        codes.astype(np.int64) - zero_point, weight.shape[2:], stride, padding, dilation, border=0
    )
    pairs = zip(np.split(x, groups, 1), np.split(weight.astype(np.int64), groups), strict=True)
    sums = [np.einsum("ncyxhw,ochw->noyx", part, filters) for part, filters in pairs]
    return np.concatenate(sums, 1) + bias.astype(np.int64)[:, None, None]


def run_step(step, inputs: list[np.ndarray], sources: list[tuple[float, int]]):
    """One step of a network from its saved tensors: codes, or sums with their factors for the last
    layer.

    `step.op` says kind, attributes and shape; `sources` are (scale, zero point) of each input.
    """
    state = {
        name: getattr(step, "codes" if name == "weight" else name).numpy()
        for name, _ in step.named_buffers()
    }
    kind, attributes, shape = step.op.kind, step.op.attributes, step.op.shape
    if kind == "reshape":
        return inputs[0].reshape(len(inputs[0]), *shape)
    if kind == "max_pool":
        return pool(inputs[0], kind, attributes).astype(np.uint8)
    centred = [
        codes.astype(np.int64) - zero_point
        for codes, (_, zero_point) in zip(inputs, sources, strict=True)
    ]
    units = [[scale] * shape[0] for scale, _ in sources]
    if kind == "conv":
        geometry = [attributes[name] for name in ("stride", "padding", "dilation", "groups")]
        centred[0] = conv_sums(inputs[0], state["weight"], state["bias"], sources[0][1], *geometry)
    elif kind == "linear":
        centred[0] = centred[0] @ state["weight"].astype(np.int64).T + state["bias"]
    elif kind == "average_pool":
        centred[0] = pool(centred[0], kind, attributes).reshape(len(inputs[0]), *shape)
        units[0] = [sources[0][0] / math.prod(attributes["kernel"])] * shape[0]
    if kind in ("conv", "linear"):
        units[0] = [sources[0][0] * float(scale) for scale in state["weight_scale"]]
    if "out_scale" not in state:
        return centred[0], units[0]
    out = float(state["out_scale"])
    codes = rescale(centred, [[unit / out for unit in row] for row in units]) + int(
        state["out_zero_point"]
    )
    last = state["last"].astype(np.int64).reshape(1, -1, *[1] * (codes.ndim - 2))
    return np.minimum(np.maximum(codes, int(state["first"])), last).astype(np.uint8)


def pool(x: np.ndarray, kind: str, attributes: dict) -> np.ndarray:
    """Sum or maximum of each window. Beyond the border there is nothing."""
    padding, dilation = attributes.get("padding", (0, 0)), attributes.get("dilation", (1, 1))
    least = np.iinfo(np.int64).min
    x = windows(
        x.astype(np.int64),
        attributes["kernel"],
        attributes["stride"],
        padding,
        dilation,
        border=least,
    )
    return x.sum((4, 5)) if kind == "average_pool" else x.max((4, 5))


def run_network(model, x: np.ndarray) -> dict[str, np.ndarray]:
    """Every edge of a quantized network, from its saved tensors alone; x is normalised float32
    input.
    """
    scale, zero_point = model.input.out_scale.numpy(), int(model.input.out_zero_point)
    codes = np.rint(x / scale) + zero_point  # float32, like the network's input
    values = {
        "input": np.clip(codes, int(model.input.first), int(model.input.last[0])).astype(np.uint8)
    }
    coded = {"input": (float(scale), zero_point)}
    for step in model.steps.values():
        name, inputs, own = step.op.name, step.op.inputs, dict(step.named_buffers())
        values[name] = run_step(step, [values[i] for i in inputs], [coded[i] for i in inputs])
        coded[name] = coded[inputs[0]]
        if "out_scale" in own:
            coded[name] = (float(own["out_scale"]), int(own["out_zero_point"]))
    return values
