# ruff: noqa: F811
"""Right and wrong answers to a4. Secret. Every wrong one is a plausible mistake that must earn nothing.

Each section replaces one function of the source notebook's solutions: `# %% <item> <right or wrong>: <what it is>`.
"""

import math

import torch

# A mistake as one line: what it is, and how the notebook's solution is changed.
# %% scale_and_zero_point wrong: a single number is empty: `min(low, 0.0)` -> `min(low, 0.0 if low < high else low)`
# %% scale_and_zero_point wrong: half-way is rounded up: `round(-low / scale)` -> `math.floor(-low / scale + 0.5)`
# %% scale_and_zero_point wrong: in float32: `return scale, round` -> `return torch.tensor(scale).item(), round`
# %% quantize wrong: half-way is rounded up: `torch.round(x / scale)` -> `(x / scale + 0.5).floor()`
# %% quantize wrong: only the upper clamp: `.clamp(low, high)` -> `.clamp(max=high)`
# %% quantize wrong: only the lower clamp: `.clamp(low, high)` -> `.clamp(min=low)`
# %% quantize wrong: one level too many: `.clamp(low, high)` -> `.clamp(low, high + 1)`
# %% quantize wrong: changes the numbers that it was given: `torch.round(x / scale)` -> `x.div_(scale).round_()`
# %% quantize_weight wrong: half-way is rounded up: `torch.round(` -> `(lambda v: (v + 0.5).floor())(`
# %% quantize_weight wrong: half-way away from zero: `torch.round(` -> `(lambda v: v.sign() * (v.abs() + 0.5).floor())(`
# %% quantize_weight wrong: cuts off: `torch.round(` -> `torch.trunc(`
# %% quantize_bias wrong: half-way is rounded up: `torch.round(` -> `(lambda v: (v + 0.5).floor())(`
# %% quantize_bias wrong: only the upper clamp: `.clamp(-(2**31), 2**31 - 1)` -> `.clamp(max=2**31 - 1)`
# %% quantize_bias wrong: only the lower clamp: `.clamp(-(2**31), 2**31 - 1)` -> `.clamp(min=-(2**31))`
# %% quantize_bias wrong: one level too many: `.clamp(-(2**31), 2**31 - 1)` -> `.clamp(-(2**31), 2**31)`
# %% integer_conv wrong: float32 instead of integers: `.double()` -> `.float()`
# %% fixed_point wrong: half-way is rounded up: `round(fraction * 2**31)` -> `math.floor(fraction * 2**31 + 0.5)`
# %% fixed_point wrong: a mantissa of 32 bits: `2**31` -> `2**32`, `31 - exponent` -> `32 - exponent`
# %% fixed_point wrong: in single precision: `round(fraction * 2**31)` -> `int(torch.tensor(fraction * 2.0**31))`
# %% requantize wrong: in float64: `sums.long() * mantissa` -> `(sums.double() * mantissa).long()`
# %% requantize wrong: in float32: `sums.long() * mantissa` -> `(sums.float() * mantissa).long()`
# %% requantize wrong: only the upper clamp: `.clamp(low, high)` -> `.clamp(max=high)`
# %% requantize wrong: only the lower clamp: `.clamp(low, high)` -> `.clamp(min=low)`
# %% requantize wrong: half of the next bit: `(1 << (shift - 1))` -> `(1 << shift)`
# %% best_clip wrong: absolute errors: `((restored - x) ** 2)` -> `(restored - x).abs()`
# %% best_clip wrong: levels without a sign: `2 ** (bits - 1) - 1` -> `2**bits - 1`
# %% best_clip wrong: forgets to return to real numbers: `.clamp(-most, most) * scale` -> `.clamp(-most, most)`
# %% best_clip wrong: the last of the best: `errors.index(min(errors))` -> `errors.index(sorted(errors)[1])`


# %% scale_and_zero_point right: divides by the number of steps
def scale_and_zero_point(low, high, bits):
    low, high, steps = min(0.0, low), max(0.0, high), (1 << bits) - 1
    scale = (high - low) / steps or 1.0
    return scale, round(-low / scale)


# %% scale_and_zero_point right: with tensors
def scale_and_zero_point(low, high, bits):
    ends = torch.tensor([low, 0.0, high], dtype=torch.float64)
    scale = ((ends.max() - ends.min()) / (2**bits - 1)).item()
    return (scale, int(torch.round(-ends.min() / scale))) if scale > 0 else (1.0, 0)


# %% scale_and_zero_point wrong: one step too many
def scale_and_zero_point(low, high, bits):
    low, high = min(low, 0.0), max(high, 0.0)
    scale = (high - low) / 2**bits or 1.0
    return scale, round(-low / scale)


# %% scale_and_zero_point wrong: range not extended to zero
def scale_and_zero_point(low, high, bits):
    scale = (high - low) / (2**bits - 1) or 1.0
    return scale, round(-low / scale)


# %% scale_and_zero_point wrong: extended upwards only
def scale_and_zero_point(low, high, bits):
    low = min(low, 0.0)
    scale = (high - low) / (2**bits - 1) or 1.0
    return scale, round(-low / scale)


# %% scale_and_zero_point wrong: sign of the zero point
def scale_and_zero_point(low, high, bits):
    low, high = min(low, 0.0), max(high, 0.0)
    scale = (high - low) / (2**bits - 1) or 1.0
    return scale, round(low / scale)


# %% scale_and_zero_point wrong: divides by zero on an empty range
def scale_and_zero_point(low, high, bits):
    low, high = min(low, 0.0), max(high, 0.0)
    scale = (high - low) / (2**bits - 1)
    return scale, round(-low / scale)


# %% scale_and_zero_point wrong: symmetric
def scale_and_zero_point(low, high, bits):
    return max(abs(low), abs(high)) / (2 ** (bits - 1) - 1) or 1.0, 2 ** (bits - 1)


# %% quantize right: clamps before the zero point is added
def quantize(x, scale, zero_point, low, high):
    return torch.round(x / scale).clamp(low - zero_point, high - zero_point).to(torch.int64) + zero_point


# %% quantize right: value by value
def quantize(x, scale, zero_point, low, high):
    levels = [max(low, min(high, round(value / scale) + zero_point)) for value in x.flatten().tolist()]
    return torch.tensor(levels).reshape(x.shape)


# %% quantize wrong: cuts off instead of rounding
def quantize(x, scale, zero_point, low, high):
    return ((x / scale).long() + zero_point).clamp(low, high)


# %% quantize wrong: ties away from zero
def quantize(x, scale, zero_point, low, high):
    return ((x / scale).sign() * ((x / scale).abs() + 0.5).floor() + zero_point).clamp(low, high).long()


# %% quantize wrong: rounds after adding the zero point
def quantize(x, scale, zero_point, low, high):
    return torch.round(x / scale + zero_point).clamp(low, high).long()


# %% quantize wrong: no clamp
def quantize(x, scale, zero_point, low, high):
    return torch.round(x / scale).long() + zero_point


# %% quantize wrong: wraps around
def quantize(x, scale, zero_point, low, high):
    levels = torch.round(x / scale).long() + zero_point
    return (levels - low) % (high - low + 1) + low


# %% quantize wrong: zero point subtracted
def quantize(x, scale, zero_point, low, high):
    return (torch.round(x / scale) - zero_point).clamp(low, high).long()


# %% quantize wrong: always 0 to 255
def quantize(x, scale, zero_point, low, high):
    return (torch.round(x / scale) + zero_point).clamp(0, 255).long()


# %% quantize_weight right: a loop over channels
def quantize_weight(weight, bits):
    most, levels, scales = 2 ** (bits - 1) - 1, [], []
    for channel in weight:
        scale = channel.abs().max().item() / most or 1.0
        levels.append(torch.round(channel / scale).long())
        scales.append(scale)
    return torch.stack(levels), torch.tensor(scales, dtype=weight.dtype)


# %% quantize_weight right: the channel axis last
def quantize_weight(weight, bits):
    last = weight.movedim(0, -1)
    largest = last.reshape(-1, weight.shape[0]).abs().max(dim=0).values
    scales = torch.where(largest > 0, largest / (2 ** (bits - 1) - 1), torch.ones_like(largest))
    return (last / scales).round().movedim(-1, 0).to(torch.int64), scales


# %% quantize_weight wrong: one scale for all
def quantize_weight(weight, bits):
    scale = weight.abs().max() / (2 ** (bits - 1) - 1)
    return torch.round(weight / scale).long(), scale.repeat(len(weight))


# %% quantize_weight wrong: scale per input channel
def quantize_weight(weight, bits):
    most = 2 ** (bits - 1) - 1
    scales = weight.transpose(0, 1).flatten(1).abs().amax(1) / most
    return torch.round(weight / scales.reshape([1, -1] + [1] * (weight.ndim - 2))).long(), scales


# %% quantize_weight wrong: 128 levels on the negative side
def quantize_weight(weight, bits):
    scales = weight.flatten(1).abs().amax(1) / 2 ** (bits - 1)
    scales[scales == 0] = 1
    return torch.round(weight / scales.reshape([-1] + [1] * (weight.ndim - 1))).long(), scales


# %% quantize_weight wrong: zeros divided by zero
def quantize_weight(weight, bits):
    scales = weight.flatten(1).abs().amax(1) / (2 ** (bits - 1) - 1)
    return torch.round(weight / scales.reshape([-1] + [1] * (weight.ndim - 1))).long(), scales


# %% quantize_weight wrong: largest value without its absolute
def quantize_weight(weight, bits):
    scales = weight.flatten(1).amax(1) / (2 ** (bits - 1) - 1)
    scales[scales == 0] = 1
    return torch.round(weight / scales.reshape([-1] + [1] * (weight.ndim - 1))).long(), scales


# %% quantize_weight wrong: always 8 bits
def quantize_weight(weight, bits):
    scales = weight.flatten(1).abs().amax(1) / 127
    scales[scales == 0] = 1
    return torch.round(weight / scales.reshape([-1] + [1] * (weight.ndim - 1))).long(), scales


# %% quantize_bias right: divides twice
def quantize_bias(bias, input_scale, weight_scales):
    return torch.clamp((bias / (weight_scales * input_scale)).round(), min=-(2**31), max=2**31 - 1).to(torch.int64)


# %% quantize_bias right: plain Python
def quantize_bias(bias, input_scale, weight_scales):
    levels = [round(b / (input_scale * s)) for b, s in zip(bias.tolist(), weight_scales.tolist(), strict=True)]
    return torch.tensor([min(max(level, -(2**31)), 2**31 - 1) for level in levels])


# %% quantize_bias wrong: input scale forgotten
def quantize_bias(bias, input_scale, weight_scales):
    return torch.round(bias / weight_scales).clamp(-(2**31), 2**31 - 1).long()


# %% quantize_bias wrong: weight scales forgotten
def quantize_bias(bias, input_scale, weight_scales):
    return torch.round(bias / input_scale).clamp(-(2**31), 2**31 - 1).long()


# %% quantize_bias wrong: 8 bits
def quantize_bias(bias, input_scale, weight_scales):
    return torch.round(bias / (input_scale * weight_scales)).clamp(-128, 127).long()


# %% quantize_bias wrong: wraps around in 32 bits
def quantize_bias(bias, input_scale, weight_scales):
    levels = torch.round(bias / (input_scale * weight_scales)).long()
    return (levels + 2**31) % 2**32 - 2**31


# %% quantize_bias wrong: multiplies
def quantize_bias(bias, input_scale, weight_scales):
    return torch.round(bias * input_scale * weight_scales).long()


# %% quantize_bias wrong: cuts off
def quantize_bias(bias, input_scale, weight_scales):
    return (bias / (input_scale * weight_scales)).clamp(-(2**31), 2**31 - 1).long()


# %% integer_conv right: pads with the zero point, corrects by the sum of the weights
def integer_conv(x, zero_point, weight, bias, padding, stride):
    pad = torch.nn.functional.pad(x.double(), [padding] * 4, value=zero_point)
    sums = torch.nn.functional.conv2d(pad, weight.double(), stride=stride).round().long()
    return sums + (bias - zero_point * weight.sum((1, 2, 3))).reshape(1, -1, 1, 1)


# %% integer_conv right: unfold and a matrix product
def integer_conv(x, zero_point, weight, bias, padding, stride):
    n, _, height, _ = x.shape
    columns = torch.nn.functional.unfold(
        (x - zero_point).double(), weight.shape[2:], padding=padding, stride=stride
    ).long()
    sums = torch.einsum("ok,nkl->nol", weight.flatten(1), columns) + bias[:, None]
    rows = (height + 2 * padding - weight.shape[2]) // stride + 1
    return sums.reshape(n, len(weight), rows, -1)


# %% integer_conv wrong: pads with the level 0
def integer_conv(x, zero_point, weight, bias, padding, stride):
    pad = torch.nn.functional.pad(x, [padding] * 4)
    return torch.nn.functional.conv2d((pad - zero_point).double(), weight.double(), bias.double(), stride=stride).long()


# %% integer_conv wrong: zero point forgotten
def integer_conv(x, zero_point, weight, bias, padding, stride):
    return torch.nn.functional.conv2d(x.double(), weight.double(), bias.double(), stride, padding).long()


# %% integer_conv wrong: sums wrap around in 16 bits
def integer_conv(x, zero_point, weight, bias, padding, stride):
    sums = torch.nn.functional.conv2d((x - zero_point).double(), weight.double(), bias.double(), stride, padding).long()
    return (sums + 2**15) % 2**16 - 2**15


# %% integer_conv wrong: inputs wrap around in 8 bits
def integer_conv(x, zero_point, weight, bias, padding, stride):
    centred = (x - zero_point).to(torch.int8).double()
    return torch.nn.functional.conv2d(centred, weight.double(), bias.double(), stride, padding).long()


# %% integer_conv wrong: bias forgotten
def integer_conv(x, zero_point, weight, bias, padding, stride):
    return torch.nn.functional.conv2d((x - zero_point).double(), weight.double(), None, stride, padding).long()


# %% integer_conv wrong: stride forgotten
def integer_conv(x, zero_point, weight, bias, padding, stride):
    return torch.nn.functional.conv2d((x - zero_point).double(), weight.double(), bias.double(), padding=padding).long()


# %% integer_conv wrong: a real convolution, flipped kernel
def integer_conv(x, zero_point, weight, bias, padding, stride):
    flipped = weight.flip(2, 3).double()
    return torch.nn.functional.conv2d((x - zero_point).double(), flipped, bias.double(), stride, padding).long()


# %% fixed_point right: a loop
def fixed_point(multiplier):
    shift = 0
    while multiplier < 2**30:
        multiplier, shift = multiplier * 2, shift + 1
    mantissa = round(multiplier)
    return (mantissa // 2, shift - 1) if mantissa >= 2**31 else (mantissa, shift)


# %% fixed_point right: logarithm, then a correction
def fixed_point(multiplier):
    shift = 30 - math.floor(math.log2(multiplier))
    while round(multiplier * 2.0**shift) >= 2**31:
        shift -= 1
    while round(multiplier * 2.0**shift) < 2**30:
        shift += 1
    return round(multiplier * 2.0**shift), shift


# %% fixed_point wrong: a mantissa of 2**31
def fixed_point(multiplier):
    fraction, exponent = math.frexp(multiplier)
    return round(fraction * 2**31), 31 - exponent


# %% fixed_point wrong: one bit less
def fixed_point(multiplier):
    fraction, exponent = math.frexp(multiplier)
    return round(fraction * 2**30), 30 - exponent


# %% fixed_point wrong: cuts off
def fixed_point(multiplier):
    fraction, exponent = math.frexp(multiplier)
    return int(fraction * 2**31), 31 - exponent


# %% fixed_point wrong: sign of the exponent
def fixed_point(multiplier):
    fraction, exponent = math.frexp(multiplier)
    mantissa = round(fraction * 2**31)
    return (2**30, 30 + exponent) if mantissa == 2**31 else (mantissa, 31 + exponent)


# %% fixed_point wrong: always 31 bits
def fixed_point(multiplier):
    return round(multiplier * 2**31), 31


# %% fixed_point wrong: powers of two only
def fixed_point(multiplier):
    return 2**30, 30 - round(math.log2(multiplier))


# %% requantize right: Python's integers
def requantize(sums, mantissa, shift, zero_point, low, high):
    levels = [((s * mantissa + (1 << shift - 1)) >> shift) + zero_point for s in sums.tolist()]
    return torch.tensor([min(max(level, low), high) for level in levels])


# %% requantize right: floor division
def requantize(sums, mantissa, shift, zero_point, low, high):
    rounded = torch.div(sums * mantissa + 2 ** (shift - 1), 2**shift, rounding_mode="floor")
    return torch.clamp(rounded + zero_point, low, high)


# %% requantize wrong: no rounding
def requantize(sums, mantissa, shift, zero_point, low, high):
    return (((sums * mantissa) >> shift) + zero_point).clamp(low, high)


# %% requantize wrong: product in 32 bits
def requantize(sums, mantissa, shift, zero_point, low, high):
    product = (sums * mantissa).to(torch.int32).long()
    return (((product + (1 << (shift - 1))) >> shift) + zero_point).clamp(low, high)


# %% requantize wrong: ties to even
def requantize(sums, mantissa, shift, zero_point, low, high):
    return (torch.round(sums.double() * mantissa / 2**shift) + zero_point).clamp(low, high).long()


# %% requantize wrong: zero point inside the product
def requantize(sums, mantissa, shift, zero_point, low, high):
    return (((sums + zero_point) * mantissa + (1 << (shift - 1))) >> shift).clamp(low, high)


# %% requantize wrong: clamps before the zero point
def requantize(sums, mantissa, shift, zero_point, low, high):
    return ((sums * mantissa + (1 << (shift - 1))) >> shift).clamp(low, high) + zero_point


# %% requantize wrong: ties away from zero
def requantize(sums, mantissa, shift, zero_point, low, high):
    size = (sums.abs() * mantissa + (1 << (shift - 1))) >> shift
    return (sums.sign() * size + zero_point).clamp(low, high)


# %% best_clip right: all thresholds at once
def best_clip(x, bits, candidates):
    most = 2 ** (bits - 1) - 1
    scales = (candidates / most)[:, None]
    restored = (x[None] / scales).round().clamp(-most, most) * scales
    return int(((restored - x) ** 2).sum(1).argmin())


# %% best_clip right: clips first
def best_clip(x, bits, candidates):
    def error(t):
        scale = t / (2 ** (bits - 1) - 1)
        return ((x.clamp(-t, t) / scale).round() * scale - x).square().mean().item()

    return min(range(len(candidates)), key=lambda i: error(candidates[i].item()))


# %% best_clip wrong: the largest absolute value
def best_clip(x, bits, candidates):
    return int((candidates - x.abs().max()).abs().argmin())


# %% best_clip wrong: the threshold instead of its position
def best_clip(x, bits, candidates):
    most = 2 ** (bits - 1) - 1
    scales = (candidates / most)[:, None]
    restored = (x[None] / scales).round().clamp(-most, most) * scales
    return candidates[((restored - x) ** 2).sum(1).argmin()].item()


# %% best_clip wrong: clipping costs nothing
def best_clip(x, bits, candidates):
    most = 2 ** (bits - 1) - 1
    scales = (candidates / most)[:, None]
    clipped = x[None].clamp(-candidates[:, None], candidates[:, None])
    return int((((clipped / scales).round() * scales - clipped) ** 2).sum(1).argmin())


# %% best_clip wrong: negative numbers are cut off
def best_clip(x, bits, candidates):
    most = 2 ** (bits - 1) - 1
    scales = (candidates / most)[:, None]
    restored = (x[None] / scales).round().clamp(0, most) * scales
    return int(((restored - x) ** 2).sum(1).argmin())


# %% best_clip wrong: the worst one
def best_clip(x, bits, candidates):
    most = 2 ** (bits - 1) - 1
    scales = (candidates / most)[:, None]
    restored = (x[None] / scales).round().clamp(-most, most) * scales
    return int(((restored - x) ** 2).sum(1).argmax())
