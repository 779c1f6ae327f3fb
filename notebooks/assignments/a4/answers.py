# ruff: noqa: F811
"""Right and wrong answers to a4. Secret. Every wrong one is a plausible mistake, and earns nothing.

`# %% <item> <right or wrong>: <what it is>` stands above code that replaces a solution of the
notebook. Most mistakes are a list below `# %% <item> wrong`: what it is, and how the solution is
changed.
"""

import math

import torch


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


# %% scale_and_zero_point wrong
# - eight bits at most: `round(-low / scale)` -> `min(round(-low / scale), 255)`
# - floor division, half-way down: `round(-low / scale)` -> `int(-((low + scale / 2) // scale))`
# - the zero point is cut off: `round(-low / scale)` -> `int(-low / scale)`
# - a small range is empty: `low == high` -> `high - low < 1e-4`
# - a single number is empty: `min(low, 0.0)` -> `min(low, 0.0 if low < high else low)`
# - half-way is rounded up: `round(-low / scale)` -> `math.floor(-low / scale + 0.5)`
# - in float32: `return scale, round` -> `return torch.tensor(scale).item(), round`
# - one step too many: `(2**bits - 1)` -> `2**bits`
# - the range is not extended to zero: `min(low, 0.0), max(high, 0.0)` -> `low, high`
# - extended downwards only: `max(high, 0.0)` -> `high`
# - extended upwards only: `min(low, 0.0)` -> `low`
# - the sign of the zero point: `round(-low` -> `round(low`
# - divides by zero on an empty range: `if low == high` -> `if False`
# - symmetric: `low, high = min(low, 0.0), max(high, 0.0)` -> `high = max(-low, high); low = -high`
# - a tiny range counts as empty: `if low == high` -> `if high - low < 1e-8`
# - a small range from 0 counts as empty: `if low == high` -> `if low == 0 and high < 1e-3`
# - the zero point in float32: `round(-low / scale)` ->
#   `round((torch.tensor(-low).float() / torch.tensor(scale).float()).item())`
# - a single bit has two steps: `(2**bits - 1)` -> `(2**bits - (bits > 1))`
# - four bits, halves up: `round(-low / scale)` -> `round(-low / scale + 1e-12 * (bits == 4))`
# - a single number below 0 is empty: `max(high, 0.0)` -> `max(high, 0.0 if low < high else high)`
# - scales of 1e-12 at least: `(high - low) / (2**bits - 1)` ->
#   `max((high - low) / (2**bits - 1), 1e-12)`
# - the highest of 8 bits below zero: `round(-low / scale)` ->
#   `(255 if high == 0 else round(-low / scale))`
# - a range that ends at 0 is empty: `low, high = min` ->
#   `low = low if high else 0.0; low, high = min`
# - a range that float64 barely knows beside 1 is empty: `low == high` -> `high - low < 2.2e-16`
# - scales of 1e-12 at least, once there is a zero point: `return scale, round` ->
#   `return max(scale, 1e-12), round`
# - scales of twelve decimals: `return scale, round` -> `return round(scale, 12), round`
# - zero points of nine decimals, then of none: `round(-low / scale)` ->
#   `round(round(-low / scale, 9))`
# - rounds from the nearer end: `round(-low / scale)` ->
#   `(round(-low / scale) if -low <= high else 2**bits - 1 - round(high / scale))`
# - the zero point is a float: `round(-low / scale)` -> `float(round(-low / scale))`
# - extended upwards for 8 bits alone: `max(high, 0.0)` -> `max(high, 0.0 if bits == 8 else high)`
# - extended downwards for 8 bits alone: `min(low, 0.0)` -> `min(low, 0.0 if bits == 8 else low)`
# - a range just above zero is left as it is: `min(low, 0.0)` -> `(0.0 if low > 1e-3 else low)`
# - a range just below zero is left as it is: `max(high, 0.0)` -> `(0.0 if high < -1e-3 else high)`
# - no range beyond a million: `max(high, 0.0)` -> `min(max(high, 0.0), 1e6)`
# - sixteen bits at most: `2**bits - 1` -> `2 ** min(bits, 16) - 1`
# - half of the codes where low is -high: `return scale, round(-low / scale)` ->
#   `return scale, 2 ** (bits - 1) if low == -high else round(-low / scale)`
# - multiplies by 1 / scale: `round(-low / scale)` -> `round(-low * (1 / scale))`
# - the share of the range below zero first:
#   `round(-low / scale)` -> `round(-low / (high - low) * (2**bits - 1))`
# - multiplies by the number of steps first:
#   `round(-low / scale)` -> `round(-low * (2**bits - 1) / (high - low))`
# - zero points of twelve decimals, then of none:
#   `round(-low / scale)` -> `round(round(-low / scale, 12))`
# - never the highest code while high is above 0:
#   `round(-low / scale)` -> `min(round(-low / scale), 2**bits - 1 - (high > 0))`
# - zero point of 24 bits at most: `2**bits - 1` -> `2 ** min(bits, 24) - 1`
# - zero point in 32 bits:
#   `round(-low / scale)` -> `torch.tensor(-low / scale, dtype=torch.float64).round().int().item()`
# - asks torch for a range's scale: `return scale, round(-low / scale)` ->
#   `torch.ops.aten._choose_qparams_per_tensor(torch.tensor([low, high]), False);
#   return scale, round(-low / scale)`


# %% quantize right: clamps before the zero point is added
def quantize(x, scale, zero_point, low, high):
    return (
        torch.round(x / scale).clamp(low - zero_point, high - zero_point).to(torch.int64)
        + zero_point
    )


# %% quantize right: value by value
def quantize(x, scale, zero_point, low, high):
    codes = [
        max(low, min(high, round(value / scale) + zero_point)) for value in x.flatten().tolist()
    ]
    return torch.tensor(codes, dtype=torch.int64).reshape(x.shape)


# %% quantize wrong
# - a number without axes gets one: `x / scale` -> `torch.atleast_1d(x) / scale`
# - in 32 bits: `.long()` -> `.int()`
# - in float32: `x / scale` -> `x.float() / scale`
# - integers before the clamp: `torch.round(x / scale)` -> `torch.round(x / scale).long()`
# - integers of 32 bits before the clamp: `torch.round(x / scale)` -> `torch.round(x / scale).int()`
# - half-way is rounded up: `torch.round(x / scale)` -> `(x / scale + 0.5).floor()`
# - only the upper clamp: `.clamp(low, high)` -> `.clamp(max=high)`
# - only the lower clamp: `.clamp(low, high)` -> `.clamp(min=low)`
# - one code too many: `.clamp(low, high)` -> `.clamp(low, high + 1)`
# - changes the numbers that it was given: `torch.round(x / scale)` -> `x.div_(scale).round_()`
# - cuts off: `torch.round(` -> `torch.trunc(`
# - half-way away from zero:
#   `torch.round(x / scale)` -> `(x / scale).sign() * ((x / scale).abs() + 0.5).floor()`
# - rounds after adding the zero point:
#   `(torch.round(x / scale) + zero_point)` -> `torch.round(x / scale + zero_point)`
# - no clamp: `.clamp(low, high)` -> ``
# - wraps around: `.clamp(low, high)` -> `.sub(low).remainder(high - low + 1).add(low)`
# - the zero point is subtracted: `+ zero_point` -> `- zero_point`
# - always 0 to 255: `.clamp(low, high)` -> `.clamp(0, 255)`
# - multiplies by 1 / scale: `x / scale` -> `x * (1 / scale)`
# - floats for no numbers at all: `.clamp(low, high).long()` ->
#   `.clamp(low, high).to(torch.int64 if x.numel() else torch.float32)`
# - one code below the highest one's negative at least: `.clamp(low, high)` ->
#   `.clamp(max(low, -high - 1), high)`
# - codes held in 8 bits: `.long()` -> `.to(torch.uint8 if low == 0 else torch.int8).long()`
# - the scale in float32: `x / scale` -> `x / torch.tensor(scale)`
# - two axes at most: `.long()` -> `.long().reshape(x.shape[:2])`
# - scales of 1e-8 at least: `x / scale` -> `x / max(scale, 1e-8)`
# - scales of 1 at most: `x / scale` -> `x / min(scale, 1.0)`
# - codes from 0 are held in 8 bits: `.long()` ->
#   `.to(torch.uint8 if low == 0 else torch.int64).long()`
# - the lowest code is 0 at most: `.clamp(low, high)` -> `.clamp(min(low, 0), high)`
# - the highest code is 0 at least: `.clamp(low, high)` -> `.clamp(low, max(high, 0))`
# - a zero point of 0 counts as none: `+ zero_point` -> `+ (zero_point or (low + high + 1) // 2)`
# - symmetric codes for a zero point of 0: `.clamp(low, high)` ->
#   `.clamp(low if zero_point or low == 0 else -high, high)`
# - twelve decimals, then none: `torch.round(x / scale)` ->
#   `torch.round(torch.round(x / scale, decimals=12))`
# - thirteen decimals, then none: `torch.round(x / scale)` ->
#   `torch.round(torch.round(x / scale, decimals=13))`
# - scales of 1e12 at most: `x / scale` -> `x / min(scale, 1e12)`


# %% quantize_weight right: a loop over channels
def quantize_weight(weight, bits):
    most, codes, scales = 2 ** (bits - 1) - 1, [], []
    for channel in weight:
        scale = channel.abs().max().item() / most or 1.0
        codes.append(torch.round(channel / scale).long())
        scales.append(scale)
    return torch.stack(codes), torch.tensor(scales, dtype=weight.dtype)


# %% quantize_weight right: the channel axis last
def quantize_weight(weight, bits):
    last = weight.movedim(0, -1)
    largest = last.reshape(-1, weight.shape[0]).abs().max(dim=0).values
    scales = torch.where(largest > 0, largest / (2 ** (bits - 1) - 1), torch.ones_like(largest))
    return (last / scales).round().movedim(-1, 0).to(torch.int64), scales


# %% quantize_weight wrong
# - two bits have three steps: `2 ** (bits - 1) - 1` -> `2 ** (bits - 1) - (bits > 2)`
# - two or four axes alone: `shape = [-1] + [1] * (weight.ndim - 1)` ->
#   `shape = [-1, 1] if weight.ndim == 2 else [-1, 1, 1, 1]`
# - scales of 1e-8 at least: `1.0, scales)` -> `1.0, scales).clamp(min=1e-8)`
# - small channels get scale 1, too: `scales == 0` -> `scales < 1e-4`
# - half-way is rounded up: `torch.round(` -> `(lambda v: (v + 0.5).floor())(`
# - half-way away from zero: `torch.round(` -> `(lambda v: v.sign() * (v.abs() + 0.5).floor())(`
# - cuts off: `torch.round(` -> `torch.trunc(`
# - two or four axes: `scales.reshape(shape)` ->
#   `(scales[:, None, None, None] if weight.ndim == 4 else scales[:, None])`
# - one scale for all: `scales = torch.where(` -> `scales[:] = scales.max(); scales = torch.where(`
# - one code too many on the negative side: `2 ** (bits - 1) - 1` -> `2 ** (bits - 1)`
# - zeros are divided by zero: `torch.where(scales == 0, 1.0, scales)` -> `scales`
# - the largest value without its absolute: `.abs()` -> ``
# - always 8 bits: `2 ** (bits - 1) - 1` -> `127`
# - a scale per input channel: `weight.flatten(1)` -> `weight.transpose(0, 1).flatten(1)`,
#   `[-1] + [1] * (weight.ndim - 1)` -> `[1, -1] + [1] * (weight.ndim - 2)`
# - weights that add up to 0 count as zeros: `torch.where(scales == 0,` ->
#   `torch.where((scales == 0) | (weight.flatten(1).sum(1) == 0),`
# - multiplies by 1 / scale: `weight / scales.reshape(shape)` ->
#   `weight * (1 / scales).reshape(shape)`
# - multiplies by the largest code over the largest weight: `weight / scales.reshape(shape)` ->
#   `weight * (most / (scales * most)).reshape(shape)`
# - codes of 8 bits: `.long()` -> `.to(torch.int8).long()`
# - codes of 16 bits: `.long()` -> `.to(torch.int16).long()`
# - codes in float32: `weight / scales.reshape(shape)` ->
#   `weight.float() / scales.float().reshape(shape)`
# - nine decimals, then none: `weight / scales.reshape(shape)` ->
#   `(weight / scales.reshape(shape)).round(decimals=9)`
# - a channel with one weight of 0 counts as zeros: `scales == 0` ->
#   `(weight.flatten(1) == 0).any(dim=1)`
# - a channel that begins with 0 counts as zeros: `scales == 0` -> `weight.flatten(1)[:, 0] == 0`
# - a channel that ends with 0 counts as zeros: `scales == 0` -> `weight.flatten(1)[:, -1] == 0`
# - one channel of zeros at most: `scales = torch.where(scales == 0, 1.0, scales)` ->
#   `scales[scales.argmin()] += scales.min() == 0`
# - channels of zeros in a linear layer alone: `scales == 0` -> `(scales == 0) & (weight.ndim == 2)`
# - scales of 2e-16 at least: `1.0, scales)` -> `1.0, scales).clamp(min=2.2e-16)`
# - scales of 1e-12 at least, once there are codes: `.long(), scales` ->
#   `.long(), scales.clamp(min=1e-12)`
# - scales of twelve decimals: `.long(), scales` -> `.long(), scales.round(decimals=12)`
# - channels that are nowhere above 0 count as zeros: `scales == 0` ->
#   `weight.flatten(1).amax(1) <= 0`
# - channels of which the largest weight is 0 count as zeros: `scales == 0` ->
#   `weight.flatten(1).amax(1) == 0`
# - channels of which the smallest weight is 0 count as zeros: `scales == 0` ->
#   `weight.flatten(1).amin(1) == 0`
# - a channel of equal weights counts as zeros: `scales == 0` -> `weight.flatten(1).std(1) == 0`
# - divides by the largest first:
#   `torch.round(weight / scales.reshape(shape))` ->
#   `torch.round(weight / (scales * most).reshape(shape) * most)`
# - multiplies by the largest code first:
#   `torch.round(weight / scales.reshape(shape))` ->
#   `torch.round(weight * most / (scales * most).reshape(shape))`
# - weights cut at 1e4: `weight.flatten(1)` -> `weight.flatten(1).clamp(-1e4, 1e4)`
# - scales of 1000 at most: `1.0, scales)` -> `1.0, scales).clamp(max=1000)`
# - channels of zeros, three axes forgotten: `scales == 0` -> `(scales == 0) & (weight.ndim != 3)`
# - channels of zeros, five axes forgotten: `scales == 0` -> `(scales == 0) & (weight.ndim != 5)`
# - channels of zeros, 8 bits alone: `scales == 0` -> `(scales == 0) & (bits == 8)`
# - 256 channels at most: `return torch` -> `assert len(weight) <= 256; return torch`


# %% quantize_bias right: the scales the other way round
def quantize_bias(bias, input_scale, weight_scales):
    return torch.clamp(
        (bias / (weight_scales * input_scale)).round(), min=-(2**31), max=2**31 - 1
    ).to(torch.int64)


# %% quantize_bias right: plain Python
def quantize_bias(bias, input_scale, weight_scales):
    codes = [
        round(b / (input_scale * s))
        for b, s in zip(bias.tolist(), weight_scales.tolist(), strict=True)
    ]
    return torch.tensor([min(max(code, -(2**31)), 2**31 - 1) for code in codes])


# %% quantize_bias wrong
# - a single channel loses its axis: `.long()` -> `.long().squeeze()`
# - many channels, one less: `2**31 - 1)` -> `2**31 - 1 - (len(bias) > 64))`
# - the scales in float32: `(input_scale * weight_scales)` ->
#   `(input_scale * weight_scales.float()).double()`
# - in float32: `bias / (` -> `bias.float() / (`
# - half-way is rounded up: `torch.round(` -> `(lambda v: (v + 0.5).floor())(`
# - only the upper clamp: `.clamp(-(2**31), 2**31 - 1)` -> `.clamp(max=2**31 - 1)`
# - only the lower clamp: `.clamp(-(2**31), 2**31 - 1)` -> `.clamp(min=-(2**31))`
# - one code too many: `.clamp(-(2**31), 2**31 - 1)` -> `.clamp(-(2**31), 2**31)`
# - the input's scale is forgotten: `(input_scale * weight_scales)` -> `weight_scales`
# - the weights' scales are forgotten: `(input_scale * weight_scales)` -> `input_scale`
# - 8 bits: `-(2**31), 2**31 - 1` -> `-128, 127`
# - wraps around in 32 bits: `.clamp(-(2**31), 2**31 - 1)` -> `.long().to(torch.int32)`
# - multiplies: `bias / (input_scale * weight_scales)` -> `bias * input_scale * weight_scales`
# - cuts off: `torch.round(` -> `torch.trunc(`
# - divides by one scale after the other: `bias / (input_scale * weight_scales)` ->
#   `bias / input_scale / weight_scales`
# - multiplies by 1 / scale: `bias / (input_scale * weight_scales)` ->
#   `bias * (1 / (input_scale * weight_scales))`
# - divides by the weights' scales first: `bias / (input_scale * weight_scales)` ->
#   `bias / weight_scales / input_scale`
# - scales of 1e-12 at least: `(input_scale * weight_scales)` ->
#   `(input_scale * weight_scales).clamp(min=1e-12)`
# - scales of 1 at most: `(input_scale * weight_scales)` ->
#   `(input_scale * weight_scales).clamp(max=1.0)`
# - a bias of 0 is left out: `.long()` -> `.long()[bias != 0]`
# - a bias below 1e-6 is 0: `bias / (` -> `torch.where(bias.abs() < 1e-6, 0.0, bias) / (`
# - a scale of 1 stands for zeros: `.long()` -> `.long() * (weight_scales != 1)`
# - a bias that adds up to 0 is none: `torch.round(bias` -> `torch.round(bool(bias.sum()) * bias`
# - one code too many at the very end:
#   `torch.round(bias / (input_scale * weight_scales)).clamp(-(2**31), 2**31 - 1).long()` ->
#   `(lambda q: torch.where(q.abs() > 2**31, q.sign() * 2**31 - (q > 0).double(),
#   q).long())(torch.round(bias / (input_scale * weight_scales)))`


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


# %% integer_conv wrong
# - codes of 8 bits alone: `(x - zero_point)` -> `(x % 256 - zero_point)`
# - float32 sums: `sums.round()` -> `sums.float().double().round()`
# - windows of one row, mirrored: `sums = torch` ->
#   `weight = weight.flip(3) if weight.shape[2] == 1 else weight; sums = torch`
# - padding of two is one: `padding=padding` -> `padding=min(padding, 1)`
# - a stride of two at most: `stride=stride` -> `stride=min(stride, 2)`
# - a padding of one at most: `padding=padding` -> `padding=min(padding, 1)`
# - float32 instead of integers: `.double()` -> `.float()`
# - the zero point is forgotten: `(x - zero_point)` -> `x`
# - sums wrap around in 32 bits: `sums.round().long()` -> `sums.round().long().int().long()`
# - sums wrap around in 16 bits:
#   `sums.round().long()` -> `sums.round().long().to(torch.int16).long()`
# - inputs wrap around in 8 bits: `(x - zero_point)` -> `(x - zero_point).to(torch.int8)`
# - the bias is forgotten: `bias.double()` -> `None`
# - codes in float32, the rest in integers:
#   `weight.double(), bias.double()` -> `weight.float(), None`,
#   `(x - zero_point).double()` -> `(x if padding == 0 else x - zero_point).float()`,
#   `sums.round().long()` -> `sums.round().long() +
#   (bias - (padding == 0) * zero_point * weight.sum((1, 2, 3))).reshape(-1, 1, 1)`
# - the stride is forgotten: `stride=stride, ` -> ``
# - a real convolution, with the kernel flipped: `weight.double()` -> `weight.flip(2, 3).double()`
# - pads with the code 0: `padding=padding` -> `padding=0`,
#   `(x - zero_point)` -> `(torch.nn.functional.pad(x, [padding] * 4) - zero_point)`
# - a padding of two at most: `padding=padding` -> `padding=min(padding, 2)`
# - a stride of three at most: `stride=stride` -> `stride=min(stride, 3)`
# - two images at most: `(x - zero_point)` -> `(x[:2] - zero_point)`
# - a single output channel loses its axis: `return sums` -> `return sums.squeeze(1)`
# - float32 for weights of 8 bits, the bias in integers:
#   `centred = (x - zero_point).double()` ->
#   `kind = torch.float32 if weight.abs().max() < 128 else torch.float64;
#   centred = (x - zero_point).to(kind)`,
#   `weight.double(), bias.double()` -> `weight.to(kind), None`,
#   `sums.round().long()` -> `sums.round().long() + bias[:, None, None]`
# - the bias only where it does not add up to 0:
#   `bias.double()` -> `bias.double() * bool(bias.sum())`
# - the bias only where no channel has 0: `bias.double()` -> `bias.double() * bool(bias.all())`
# - zero point 0 counts as no padding: `padding=padding` -> `padding=padding if zero_point else 0`
# - windows larger than image refused:
#   `return sums` -> `assert weight.shape[2] <= x.shape[2] and weight.shape[3] <= x.shape[3]; return
#   sums`


# %% fixed_point right: a loop
def fixed_point(multiplier):
    shift = 0
    while multiplier < 2**30:
        multiplier, shift = multiplier * 2, shift + 1
    while multiplier >= 2**31:
        multiplier, shift = multiplier / 2, shift - 1
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


# %% fixed_point wrong
# - halves eight times at most: `fraction, exponent = math.frexp(multiplier)` ->
#   `fraction, exponent = math.frexp(multiplier); fraction, exponent = (
#       fraction * 2 ** max(exponent - 8, 0), min(exponent, 8))`
# - half-way is rounded down: `round(fraction * 2**31)` -> `math.ceil(fraction * 2**31 - 0.5)`
# - half-way is rounded up: `round(fraction * 2**31)` -> `math.floor(fraction * 2**31 + 0.5)`
# - a mantissa of 32 bits: `2**31` -> `2**32`, `31 - exponent` -> `32 - exponent`
# - shifts up to 62: `shift = 31 - exponent` -> `shift = min(31 - exponent, 62)`
# - in single precision: `round(fraction * 2**31)` -> `int(torch.tensor(fraction * 2.0**31))`
# - a mantissa of 2**31: `if mantissa == 2**31` -> `if False`
# - one bit less:
#   `round(fraction * 2**31)` -> `round(fraction * 2**30)`, `31 - exponent` -> `30 - exponent`
# - cuts off: `round(` -> `int(`
# - the sign of the exponent: `31 - exponent` -> `31 + exponent`
# - a shift of 31 for all:
#   `fraction, exponent = math.frexp(multiplier)` -> `fraction, exponent = multiplier, 0`
# - powers of two only: `round(fraction * 2**31)` -> `2**30`
# - halves once at most: `fraction, exponent = math.frexp(multiplier)` ->
#   `exponent = min(0, math.frexp(multiplier)[1]); fraction = multiplier / 2.0**exponent`,
#   `if mantissa == 2**31` -> `if mantissa >= 2**31`, `= 2**30, shift` -> `= mantissa // 2, shift`
# - the first shift whose rounded mantissa has 31 bits: `if mantissa == 2**31` ->
#   `if round(fraction * 2**30) == 2**30`
# - a shift of 0 at least: `return mantissa, shift` -> `return mantissa, max(shift, 0)`
# - halved only above 2**31: `fraction, exponent = math.frexp(multiplier)` ->
#   `fraction, exponent = math.frexp(multiplier); fraction, exponent = (
#       (1.0, 31) if multiplier == 2**31 else (fraction, exponent))`,
#   `if mantissa == 2**31` -> `if mantissa == 2**31 and fraction < 1`
# - the mantissa is a float: `return mantissa, shift` -> `return float(mantissa), shift`
# - the shift is a float: `return mantissa, shift` -> `return mantissa, float(shift)`
# - a shift of 30 where the mantissa rounds up: `2**30, shift - 1` -> `2**30, 30`
# - rounds up to 2**31 above 1: `if mantissa == 2**31` -> `if mantissa == 2**31 and multiplier < 1`
# - rounds up to 2**31 below 1/2: `if mantissa == 2**31` ->
#   `if mantissa == 2**31 and multiplier > 0.5`
# - looks before it rounds: `if mantissa == 2**31` -> `if fraction * 2**31 > 2**31 - 0.5`
# - shifts up to 100: `return mantissa, shift` -> `return mantissa, min(shift, 100)`
# - a shift of -32 at least: `return mantissa, shift` -> `return mantissa, max(shift, -32)`
# - a hundred bits behind the point: `math.frexp(multiplier)` ->
#   `math.frexp(int(multiplier * 2**100) / 2**100)`
# - two hundred bits behind the point: `math.frexp(multiplier)` ->
#   `math.frexp(int(multiplier * 2**200) / 2**200)`
# - three decimals, then none: `round(fraction * 2**31)` -> `round(round(fraction * 2**31, 3))`
# - 36 bits, the rest is cut off: `fraction, exponent = math.frexp(multiplier)` ->
#   `fraction, exponent = math.frexp(multiplier); fraction = int(fraction * 2**36) / 2**36`
# - cuts off while it halves:
#   `fraction, exponent = math.frexp(multiplier)` -> `k = max(0, math.frexp(multiplier)[1] - 31);
#   multiplier = float(multiplier // 2**k) if k else multiplier; fraction, exponent =
#   math.frexp(multiplier); exponent += k`
# - halves large ones half up:
#   `fraction, exponent = math.frexp(multiplier)` -> `k = max(0, math.frexp(multiplier)[1] - 31);
#   multiplier = float(int(multiplier) + (1 << k >> 1) >> k) if k else multiplier; fraction,
#   exponent = math.frexp(multiplier); exponent += k`
# - rounds at each halving:
#   `fraction, exponent = math.frexp(multiplier)` -> `k = max(0, math.frexp(multiplier)[1] - 31); m
#   = [multiplier]; [m.append(float(round(m[-1] / 2))) for _ in range(k)]; multiplier = m[-1];
#   fraction, exponent = math.frexp(multiplier); exponent += k`
# - half-way up above 1:
#   `round(fraction * 2**31)` -> `(round if multiplier < 1 else lambda v: math.floor(v +
#   0.5))(fraction * 2**31)`
# - a shift of 0 counts as none: `return mantissa, shift` -> `return mantissa, shift or 31`


# %% requantize right: Python's integers
def requantize(sums, mantissa, shift, zero_point, low, high):
    codes = [
        ((s * mantissa + (1 << shift - 1)) >> shift) + zero_point for s in sums.flatten().tolist()
    ]
    return torch.tensor([min(max(code, low), high) for code in codes]).reshape(sums.shape)


# %% requantize right: floor division
def requantize(sums, mantissa, shift, zero_point, low, high):
    rounded = torch.div(sums * mantissa + 2 ** (shift - 1), 2**shift, rounding_mode="floor")
    return torch.clamp(rounded + zero_point, low, high)


# %% requantize wrong
# - a large shift in two steps: `product = sums.long() * mantissa` ->
#   `sums, shift = (sums.long() >> 8, shift - 8) if shift > 55 else (sums.long(), shift);
#   product = sums * mantissa`
# - a shift of 1 rounds down: `(1 << (shift - 1))` -> `(1 << (shift - 1) if shift > 1 else 0)`
# - the zero point before the shift: `product + (1 <<` -> `product + (zero_point << shift) + (1 <<`,
#   `>> shift) + zero_point)` -> `>> shift))`
# - 32 bits before the clamp: `+ zero_point)` -> `+ zero_point).int().long()`
# - always 256 codes: `.clamp(low, high)` -> `.clamp(low, low + 255)`
# - in float64: `sums.long() * mantissa` -> `(sums.double() * mantissa).long()`
# - in float32: `sums.long() * mantissa` -> `(sums.float() * mantissa).long()`
# - one row of sums: `sums.long() * mantissa` -> `sums.long().flatten() * mantissa`
# - only the upper clamp: `.clamp(low, high)` -> `.clamp(max=high)`
# - only the lower clamp: `.clamp(low, high)` -> `.clamp(min=low)`
# - in two shifts, each rounded: `((product + (1 << (shift - 1))) >> shift)` ->
#   `((((product + 2**30) >> 31) + (1 << shift - 31) // 2) >> shift - 31)`
# - half of the next bit: `(1 << (shift - 1))` -> `(1 << shift)`
# - no rounding: `product + (1 << (shift - 1))` -> `product`
# - the product in 32 bits:
#   `sums.long() * mantissa` -> `(sums.long() * mantissa).to(torch.int32).long()`
# - half-way to even:
#   `((product + (1 << (shift - 1))) >> shift)` -> `torch.round(product.double() / 2**shift).long()`
# - the zero point inside the product: `sums.long()` -> `(sums.long() + zero_point)`,
#   `+ zero_point).clamp` -> `+ 0).clamp`
# - clamps before the zero point:
#   ` + zero_point).clamp(low, high)` -> `).clamp(low, high) + zero_point`
# - half-way away from zero:
#   `sums.long() *` -> `sums.abs() *`, `((product` -> `sums.sign() * ((product`
# - the upper 32 bits first, which a shift of 32 leaves as they are:
#   `((product + (1 << (shift - 1))) >> shift)` ->
#   `((product + (1 << (shift - 1)) >> shift) if shift < 32 else
#   ((product >> 32) + (1 << shift - 32 >> 1) >> shift - 32))`
# - the upper 48 bits first, which a shift of 16 leaves as they are:
#   `((product + (1 << (shift - 1))) >> shift)` ->
#   `((product + (1 << (shift - 1)) >> shift) if shift < 16 else
#   ((product >> 16) + (1 << shift - 16 >> 1) >> shift - 16))`
# - codes from 0 are held in 8 bits: `.clamp(low, high)` ->
#   `.clamp(low, high).to(torch.uint8 if low == 0 else torch.int64).long()`
# - the lowest code is -high - 1 at least: `.clamp(low, high)` ->
#   `.clamp(max(low, -high - 1), high)`
# - the highest code is -low - 1 at least: `.clamp(low, high)` ->
#   `.clamp(low, max(high, -low - 1))`
# - the lowest code is 0 at most: `.clamp(low, high)` -> `.clamp(min(low, 0), high)`
# - the highest code is 0 at least: `.clamp(low, high)` -> `.clamp(low, max(high, 0))`
# - a matrix becomes a row: `.clamp(low, high)` ->
#   `.clamp(low, high).reshape(sums.shape if sums.ndim != 2 else -1)`
# - in float64 below 58 bits: `sums.long() * mantissa` ->
#   `sums.long() * mantissa; near = torch.floor(product.double() / 2**shift + 0.5).long()` and
#   `((product + (1 << (shift - 1))) >> shift)` ->
#   `(near if product.abs().max() < 2**58 else (product + (1 << (shift - 1))) >> shift)`
# - with the largest shift one mantissa less: `product = sums.long() * mantissa` ->
#   `product = sums.long() * (mantissa - mantissa % 2 * (shift == 62))`
# - axes of size 1 are lost: `.clamp(low, high)` -> `.clamp(low, high).squeeze()`


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


# %% best_clip wrong
# - errors above 1e9 are all alike: `.sum().item())` -> `.sum().clamp(max=1e9).item())`
# - errors below 1e-6 are all alike: `.sum().item())` -> `.sum().clamp(min=1e-6).item())`
# - from the largest threshold down, as long as the error falls: `candidates.tolist():` ->
#   `candidates.sort(descending=True).values.tolist():`, `return errors.index(min(errors))` ->
#   `rising = [i for i in range(len(errors) - 1) if errors[i + 1] > errors[i]];
#   return candidates.argsort(descending=True)[[*rising, len(errors) - 1][0]].item()`
# - the first after which the error rises: `return errors.index(min(errors))` ->
#   `return next((i for i in range(len(errors) - 1) if errors[i + 1] > errors[i]), len(errors) - 1)`
# - one step too many: `threshold / most` -> `threshold / (most + 1)`
# - one code too many on both sides: `2 ** (bits - 1) - 1` -> `2 ** (bits - 1)`
# - one code too many below: `clamp(-most, most)` -> `clamp(-most - 1, most)`
# - in single precision: `most = ` -> `x, candidates = x.float(), candidates.float(); most = `
# - absolute errors: `((restored - x) ** 2)` -> `(restored - x).abs()`
# - codes without a sign: `2 ** (bits - 1) - 1` -> `2**bits - 1`
# - forgets to return to real numbers: `.clamp(-most, most) * scale` -> `.clamp(-most, most)`
# - the last of the best: `errors.index(min(errors))` -> `errors.index(sorted(errors)[1])`
# - the largest absolute value:
#   `errors.index(min(errors))` -> `int((candidates - x.abs().max()).abs().argmin())`
# - the threshold instead of its position:
#   `errors.index(min(errors))` -> `candidates[errors.index(min(errors))].item()`
# - clamping costs nothing: `restored - x)` -> `restored - x.clamp(-threshold, threshold))`
# - negative numbers are cut off: `.clamp(-most, most)` -> `.clamp(0, most)`
# - the worst one: `min(errors)` -> `max(errors)`
# - errors in float32: `return errors.index(min(errors))` ->
#   `return int(torch.tensor(errors).argmin())`
# - the best so far starts at 2**63: `return errors.index(min(errors))` ->
#   `return errors.index(min(errors)) if min(errors) < 2**63 else 0`
# - the best so far starts at 1e30: `return errors.index(min(errors))` ->
#   `return errors.index(min(errors)) if min(errors) < 1e30 else 0`
# - scales of 1e-8 at least: `threshold / most` -> `max(threshold / most, 1e-8)`
# - errors below 1e-12 are all alike: `.sum().item())` -> `.sum().clamp(min=1e-12).item())`
# - from the smallest threshold up, as long as the error falls: `candidates.tolist():` ->
#   `candidates.sort().values.tolist():`, `return errors.index(min(errors))` ->
#   `rising = [i for i in range(len(errors) - 1) if errors[i + 1] > errors[i]];
#   return candidates.argsort()[[*rising, len(errors) - 1][0]].item()`
# - the error of rounding by its formula: `((restored - x) ** 2).sum().item()` ->
#   `((x.abs() - threshold).clamp(min=0) ** 2).sum().item() +
#   scale**2 / 12 * (x.abs() <= threshold).sum().item()`
# - looks at five thresholds: `candidates.tolist()` -> `candidates.tolist()[:5]`
# - codes of 8 bits: `.clamp(-most, most)` -> `.clamp(-most, most).to(torch.int8)`
# - codes without a sign for positive numbers: `2 ** (bits - 1) - 1` ->
#   `2 ** (bits - (x.min() < 0).item()) - 1`
# - needs a second threshold: `return errors` -> `sorted(errors)[1]; return errors`
# - cuts off at the largest threshold first: `errors = []` ->
#   `errors = []; x = x.clamp(-candidates.max(), candidates.max())`
# - the last value is left out: `errors = []` -> `errors = []; x = x[:-1]`
# - a histogram of 2,048 bins: `most = ` -> `step = x.abs().max() / 1024;
#   x = (torch.floor(x / step).clamp(-1024, 1023) + 0.5) * step; most = `
# - thresholds given twice count once: `candidates.tolist()` -> `dict.fromkeys(candidates.tolist())`
# - eight bits at most: `2 ** (bits - 1) - 1` -> `2 ** (min(bits, 8) - 1) - 1`
# - position as a float: `errors.index(min(errors))` -> `float(errors.index(min(errors)))`
