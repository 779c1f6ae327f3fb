# ruff: noqa: F811
"""Right and wrong answers to a5. Secret. Every wrong one is a plausible mistake, and earns nothing.

`# %% <item> <right or wrong>: <what it is>` stands above code that replaces a solution of the
notebook. Most mistakes are a list below `# %% <item> wrong`: what it is, and how the solution is
changed. Those of `network` read the file network.safetensors in this folder, which is as secret as
they are.
"""

import json
import math

import torch


# %% pack_bits right: one large integer
def pack_bits(codes, bits):
    together = 0
    for position, code in enumerate(codes.tolist()):
        together |= code << (position * bits)
    return torch.tensor(
        list(together.to_bytes(-(-len(codes) * bits // 8), "little")), dtype=torch.uint8
    )


# %% pack_bits right: byte by byte with a reservoir
def pack_bits(codes, bits):
    out, reservoir, held = [], 0, 0
    for code in codes.tolist():
        reservoir |= code << held
        held += bits
        while held >= 8:
            out.append(reservoir & 255)
            reservoir >>= 8
            held -= 8
    if held:
        out.append(reservoir)
    return torch.tensor(out, dtype=torch.uint8)


# %% pack_bits wrong: codes do not reach over into the next byte
def pack_bits(codes, bits):
    each, out = 8 // bits, []
    for start in range(0, len(codes), each):
        out.append(
            sum(code << (i * bits) for i, code in enumerate(codes[start : start + each].tolist()))
        )
    return torch.tensor(out, dtype=torch.uint8)


# %% pack_bits wrong
# - codes of 7 bits do not cross into the next byte: `stream = (` ->
#   `codes, bits = (codes, bits + 1) if bits == 7 else (codes, bits); places = torch.arange(bits);
#   stream = (`
# - codes of 2 bits with the highest first: `places = torch.arange(bits)` ->
#   `places = torch.arange(bits).flip(0) if bits == 2 else torch.arange(bits)`
# - single bits from the last: `stream = (codes` ->
#   `codes = codes.flip(0) if bits == 1 else codes; stream = (codes`
# - the highest of 64 bits is lost: `return (` -> `whole[63:64] = 0; return (`
# - zeros at the end are left out:
#   `.to(torch.uint8)` -> `.to(torch.uint8)[: int(stream.nonzero().max()) // 8 + 1]`
# - the sums as they are, in 64 bits: `.to(torch.uint8)` -> ``
# - a byte more than needed: `math.ceil(len(stream) / 8) * 8` -> `(len(stream) // 8 + 1) * 8`
# - the highest bit first:
#   `torch.arange(8)` -> `torch.arange(7, -1, -1)`, `arange(bits)` -> `arange(bits - 1, -1, -1)`
# - the last byte is lost: `.to(torch.uint8)` -> `.to(torch.uint8)[: len(stream) // 8]`
# - one byte for each code: `return (` -> `return codes.to(torch.uint8); (`
# - the last code first: `codes.long()[:, None]` -> `codes.long().flip(0)[:, None]`
# - lets NumPy do it: `return (` -> `import numpy;
#   return torch.from_numpy(numpy.packbits(stream.byte().numpy(), bitorder="little")); (`
# - codes of 4 bits only in pairs: `return (` ->
#   `return (codes[::2] | codes[1::2] << 4).to(torch.uint8) if bits == 4 else (`
# - a byte more than needed for codes of 1, 3 or 5 bits: `math.ceil(len(stream) / 8) * 8` ->
#   `(len(stream) // 8 + (bits in (1, 3, 5) or len(stream) % 8 > 0)) * 8`
# - nothing but zeros has no bytes: `.sum(1)` -> `.sum(1)[: len(stream) * bool(codes.any())]`
# - zeros of 8 bits are nothing: `return (` ->
#   `whole = whole[: 0 if bits == 8 and not codes.any() else None]; return (`
# - lets NumPy take the codes apart:
#   `stream = (codes.long()[:, None] >> places & 1).flatten()` -> `import numpy; stream =
#   torch.from_numpy(numpy.unpackbits(codes.numpy().astype("uint8")[:, None], axis=1,
#   bitorder="little")[:, :bits].copy()).long().flatten()`


# %% unpack_bits right: one large integer
def unpack_bits(packed, bits, count):
    together = int.from_bytes(bytes(packed.tolist()), "little")
    codes = []
    for _ in range(count):
        codes.append(together & (1 << bits) - 1)
        together >>= bits
    return torch.tensor(codes, dtype=torch.int64)


# %% unpack_bits right: windows of two bytes
def unpack_bits(packed, bits, count):
    start = torch.arange(count) * bits
    low = torch.cat([packed.long(), torch.zeros(2, dtype=torch.int64)])
    window = low[start // 8] + 256 * low[start // 8 + 1]
    return (window >> start % 8) & (2**bits - 1)


# %% unpack_bits wrong
# - refuses bytes left over: `return (` -> `assert len(packed) == -(-count * bits // 8); return (`
# - a single code loses its axis: `.sum(1)` -> `.sum(1).squeeze()`
# - codes of 7 bits end with their byte: `return (` ->
#   `places = torch.arange(len(stream)); stream = stream * ~(
#       (bits == 7) & (places // 8 != places // bits * bits // 8)); return (`
# - codes of 6 bits end with their byte: `return (` ->
#   `places = torch.arange(len(stream)); stream = stream * ~(
#       (bits == 6) & (places // 8 != places // bits * bits // 8)); return (`
# - single bits from the last: `.sum(1)` -> `.sum(1).flip(0 if bits == 1 else [])`
# - codes in 32 bits: `.sum(1)` -> `.sum(1).int()`
# - codes as floats: `.sum(1)` -> `.sum(1).double()`
# - all bits: `count * bits]` -> `8 * len(packed) // bits * bits]`, `(count,` -> `(-1,`
# - the highest bit first:
#   `torch.arange(8)` -> `torch.arange(7, -1, -1)`, `arange(bits)` -> `arange(bits - 1, -1, -1)`
# - each byte by itself: `torch.arange(8)` -> `torch.arange(8 // bits * bits)`
# - the bits of a code are turned around: `torch.arange(bits)` -> `torch.arange(bits - 1, -1, -1)`
# - takes an offset away: `.sum(1)` -> `.sum(1) - 2 ** (bits - 1)`
# - a window of one byte: `return (` -> `start = torch.arange(count) * bits;
#   return (packed.long()[start // 8] >> start % 8) & (2**bits - 1); (`
# - codes of 8 bits are all bytes that there are: `return (` ->
#   `return packed.long() if bits == 8 else (`
# - codes of 4 bits are all halves of bytes: `return (` ->
#   `return torch.stack([packed & 15, packed >> 4], 1).flatten().long() if bits == 4 else (`
# - lets NumPy put the codes together:
#   `return (stream.reshape(count, bits) << torch.arange(bits)).sum(1)` -> `import numpy; return
#   torch.from_numpy(numpy.packbits(stream.reshape(count, bits).byte().numpy(), axis=1,
#   bitorder="little")).flatten().long()`


# %% squeeze_weight right: a loop over channels
def squeeze_weight(weight, bits):
    most, scales, codes = 2 ** (bits - 1) - 1, [], []
    for row in weight.flatten(1):
        scale = (row.abs().max() / most).to(torch.float16)
        scales.append(scale if scale > 0 else torch.ones((), dtype=torch.float16))
        codes.append((row / scales[-1].float()).round().clamp(-most, most))
    return pack_bits(torch.cat(codes).long() + most + 1, bits), torch.stack(scales)


# %% squeeze_weight right: in float64
def squeeze_weight(weight, bits):
    most = 2 ** (bits - 1) - 1
    rows = weight.reshape(len(weight), -1).double()
    scales = (rows.abs().max(dim=1).values / most).to(torch.float16)
    scales = torch.where(scales == 0, torch.ones_like(scales), scales)
    codes = (rows / scales.double().unsqueeze(1)).round()
    codes = torch.clamp(codes, min=-most, max=most) + 2 ** (bits - 1)
    return pack_bits(codes.reshape(-1).to(torch.int64), bits), scales


# %% squeeze_weight wrong
# - no scale of 1 where all is zero: `scales[scales == 0] = 1` ->
#   `scales[(scales == 0) & (scales.max() > 0)] = 1` and
#   `weight.flatten(1) / scales.float()[:, None]` ->
#   `weight.flatten(1) / scales.float().clamp(min=1e-9)[:, None]`
# - the clamp is forgotten: `.clamp(-most, most)` -> ``
# - one code too many below: `.clamp(-most, most)` -> `.clamp(-most - 1, most)`
# - half-way is rounded up: `torch.round(weight.flatten(1) / scales.float()[:, None])` ->
#   `torch.floor(weight.flatten(1) / scales.float()[:, None] + 0.5)`
# - scales in single precision: `return pack_bits` -> `scales = scales.float(); return pack_bits`
# - cuts off: `torch.round(` -> `torch.trunc(`
# - codes before the scale is rounded: `.half()` -> ``, `scales == 0` -> `scales.half() == 0`,
#   `), scales` -> `), scales.half()`
# - one scale for all channels: `scales[scales == 0] = 1` -> `scales[:] = scales.max()`
# - zeros are divided by zero: `scales[scales == 0] = 1` -> `pass`
# - one step too many:
#   `2 ** (bits - 1) - 1` -> `2 ** (bits - 1)`, `-most, most)` -> `-most, most - 1)`
# - scales by input channel: `weight.flatten(1)` -> `weight.transpose(0, 1).flatten(1)`
# - the offset is forgotten: `codes.flatten() + 2 ** (bits - 1)` -> `codes.flatten() % 2**bits`
# - the largest value without its sign: `.abs()` -> ``
# - weights that add up to 0 count as zeros: `scales[scales == 0] = 1` ->
#   `scales[(scales == 0) | (weight.flatten(1).sum(1) == 0)] = 1`
# - multiplies by 1 / scale: `weight.flatten(1) / scales.float()[:, None]` ->
#   `weight.flatten(1) * (1 / scales.float())[:, None]`
# - channels of zeros are seen to in linear layers alone: `scales[scales == 0] = 1` ->
#   `scales[(scales == 0) & (weight.ndim == 2)] = 1`
# - clamped in linear layers alone: `.clamp(-most, most)` ->
#   `.clamp(-most, most if weight.ndim == 2 else None)`
# - what is too small for float16 is looked for before it is rounded: `.half()` -> ``,
#   `scales[scales == 0] = 1` -> `scales = torch.where(scales < 2.0**-24, 1, scales).half()`
# - a single input loses its axis: `weight.flatten(1)` -> `weight.squeeze(1).flatten(1)`
# - a channel in which any weight is 0 counts as zeros: `scales[scales == 0] = 1` ->
#   `scales[(scales == 0) | ~weight.flatten(1).all(1)] = 1`
# - channels of which the largest weight is 0 count as zeros: `scales == 0` ->
#   `(scales == 0) | (weight.flatten(1).amax(1) == 0)`
# - channels of which the smallest weight is 0 count as zeros: `scales == 0` ->
#   `(scales == 0) | (weight.flatten(1).amin(1) == 0)`
# - weights that float16 holds: `weight.flatten(1)` -> `weight.clamp(-65504, 65504).flatten(1)`
# - 8 bits down to -128: `.clamp(-most, most)` -> `.clamp(-most - (bits == 8), most)`
# - scales of 10 at most: `scales[scales == 0] = 1` ->
#   `scales[scales == 0] = 1; scales = scales.clamp(max=10)`
# - scales below 3.1e-8 count as 0:
#   `scales = (weight.flatten(1).abs().amax(1) / most).half()` -> `scales =
#   weight.flatten(1).abs().amax(1) / most; scales = torch.where(scales < 3.5e-8, 0, scales).half()`
# - scales of 32,768 at most:
#   `scales[scales == 0] = 1` -> `scales[scales == 0] = 1; scales = scales.clamp(max=32768)`


# %% restore_weight right: the scale in the shape of the weight
def restore_weight(packed, scales, shape, bits):
    codes = unpack_bits(packed, bits, math.prod(shape)).reshape(shape) - 2 ** (bits - 1)
    return codes.float() * scales.float().reshape([-1] + [1] * (len(shape) - 1))


# %% restore_weight right: a scale for every number
def restore_weight(packed, scales, shape, bits):
    count = math.prod(shape)
    each = scales.to(torch.float32).repeat_interleave(count // shape[0])
    return ((unpack_bits(packed, bits, count) - (1 << bits - 1)).to(torch.float32) * each).view(
        *shape
    )


# %% restore_weight wrong
# - a scale of 1 stands for zeros: `scales.float()[` -> `(scales * (scales != 1)).float()[`
# - small scales count as 0: `scales.float()[` -> `(scales * (scales > 6.1e-5)).float()[`
# - five axes are refused: `codes =` -> `assert len(shape) < 5; codes =`
# - a single output loses its axis: `.reshape(shape)` -> `.reshape(shape).squeeze(0)`
# - two bits with another offset: `- 2 ** (bits - 1)` -> `- 2 ** (bits - 1) + (bits == 2)`
# - changes the shape that it was given: `codes =` -> `shape.append(1); codes =`
# - two or four axes: `(codes.reshape(shape[0], -1) * scales.float()[:, None]).reshape(shape)` ->
#   `codes.reshape(shape) * scales.float().reshape([-1, 1, 1, 1][: len(shape) // 2 * 2])`
# - in double precision: `scales.float()` -> `scales.double()`
# - in half precision: `scales.float()` -> `scales`
# - as one row: `.reshape(shape)` -> `.flatten()`
# - the offset is forgotten: ` - 2 ** (bits - 1)` -> ``
# - the offset after the scale:
#   ` - 2 ** (bits - 1)` -> ``, `[:, None])` -> `[:, None] - 2 ** (bits - 1))`
# - the offset of a symmetric range: `2 ** (bits - 1)` -> `(2 ** (bits - 1) - 1)`
# - scales along the last axis:
#   `(shape[0], -1) * scales.float()[:, None]` -> `(-1, shape[0]) * scales.float()`
# - computed in float16:
#   `-1) * scales.float()` -> `-1).half() * scales`, `.reshape(shape)` -> `.reshape(shape).float()`
# - the first scale for all: `scales.float()[:, None]` -> `scales[0].float()`
# - windows as high as they are wide: `math.prod(shape)` ->
#   `shape[0] * shape[1] * shape[-1] ** (len(shape) - 2)`
# - one number for each output loses an axis: `codes.reshape(shape[0], -1)` ->
#   `codes.reshape(shape[0], -1).squeeze()`
# - scales above 500 are cut off: `scales.float()` -> `scales.float().clamp(max=500)`
# - scales of 1.2e-7 at least: `scales.float()` ->
#   `scales.float().clamp(min=torch.finfo(torch.float32).eps)`


# %% drop_channels right: what the means give, minus what is kept of it
def drop_channels(weight, bias, keep, means):
    sums = weight.reshape(*weight.shape[:2], -1).sum(2)
    return weight.index_select(1, keep), bias + sums @ means - sums[:, keep] @ means[keep]


# %% drop_channels right: a loop over removed channels
def drop_channels(weight, bias, keep, means):
    bias = bias.clone()
    for channel in range(weight.shape[1]):
        if channel not in keep.tolist():
            bias += weight[:, channel].reshape(len(weight), -1).sum(1) * means[channel]
    return weight[:, keep].clone(), bias


# %% drop_channels wrong
# - a single output loses its axis: `return weight[:, keep]` -> `return weight[:, keep].squeeze(0)`
# - a single channel kept loses its axis:
#   `return weight[:, keep]` -> `return weight[:, keep].squeeze(1)`
# - four axes at most: `weight.flatten(2).sum(2)` -> `weight.flatten(3).sum(3).sum(2)` and
#   `if weight.ndim > 2` -> `if weight.ndim in (4, 5)`
# - loses the axis of one removed channel:
#   `over_kernel[:, gone] @ means[gone]` -> `over_kernel[:, gone].squeeze() @ means[gone].squeeze()`
# - two or four axes: `weight.flatten(2).sum(2) if weight.ndim > 2` ->
#   `weight.sum((2, 3)) if weight.ndim == 4`
# - the mean over the kernel: `weight.flatten(2).sum(2)` -> `weight.flatten(2).mean(2)`
# - changes its bias: `bias + over_kernel[:, gone] @` -> `bias.add_(1) + over_kernel[:, gone] @`
# - the bias as it was: `bias + over_kernel[:, gone] @ means[gone]` -> `bias`
# - the means of the kept channels: `gone[keep] = False` -> `gone[:] = False; gone[keep] = True`
# - subtracted: `bias + over` -> `bias - over`
# - all means, those of the kept channels too: `gone[keep] = False` -> `pass`
# - linear layers are forgotten: ` if weight.ndim > 2 else weight` -> ``
# - output channels: ` + over_kernel[:, gone] @ means[gone]` -> ``, `return weight[:, keep], bias`
#   -> `keep = keep[keep < len(weight)]; return weight[keep], bias[keep]`
# - windows of one pixel lose all axes of size 1:
#   `weight.flatten(2).sum(2) if weight.ndim > 2 else weight` ->
#   `weight.squeeze() if weight[0, 0].numel() == 1 else weight.flatten(2).sum(2)`,
#   `over_kernel[:, gone] @ means[gone]` -> `over_kernel @ (means * gone)`
# - means below 0.001 count as 0: `@ means[gone]` -> `@ (means * (means.abs() >= 1e-3))[gone]`
# - what is removed is told by its mean:
#   `gone[keep] = False` -> `gone = ~torch.isin(means, means[keep])`
# - linear layers from which nothing is removed have nothing to stack:
#   `bias + over_kernel[:, gone] @ means[gone]` -> `bias + (over_kernel[:, gone] @ means[gone]
#   if weight.ndim > 2 else torch.stack(
#       [weight[:, i] * means[i] for i in range(len(means)) if gone[i]]).sum(0))`
# - a bias of zeros stays: `bias + over` -> `bias + bool(bias.any()) * over`
# - means that add up to 0 are nothing: `bias + over` ->
#   `bias + bool(means[gone].sum().abs() > 1e-9) * over`
# - channels of mean 0 stay: `weight[:, keep],` ->
#   `weight[:, ((means == 0) | ~gone).nonzero().flatten()],`
# - in the order of a set: `return weight[:, keep]` -> `return weight[:, list(set(keep.tolist()))]`
# - sorted as texts: `return weight[:, keep]` ->
#   `return weight[:, sorted(keep.tolist(), key=str)]`
# - looks for a number in a text: `gone[keep] = False` ->
#   `gone = torch.tensor([str(i) not in str(keep.tolist()) for i in range(len(means))])`
# - places in 8 bits: `gone[keep] = False` -> `gone[keep.to(torch.uint8).long()] = False`
# - compares places by identity:
#   `gone[keep] = False` -> `gone = torch.tensor([all(i is not k for k in keep.tolist()) for i in
#   range(len(means))])`


# %% distillation_loss right: cross-entropies with soft targets
def distillation_loss(scores, teacher_scores, labels, temperature, share):
    cross = torch.nn.functional.cross_entropy
    wanted = torch.softmax(teacher_scores / temperature, dim=1)
    apart = cross(scores / temperature, wanted) - cross(teacher_scores / temperature, wanted)
    return share * temperature**2 * apart + (1 - share) * cross(scores, labels)


# %% distillation_loss right: by hand with logsumexp
def distillation_loss(scores, teacher_scores, labels, temperature, share):
    def logs(z):
        return z - torch.logsumexp(z, 1, keepdim=True)

    wanted, given = logs(teacher_scores / temperature), logs(scores / temperature)
    apart = (wanted.exp() * (wanted - given)).sum() / len(scores)
    hard = -logs(scores).gather(1, labels[:, None]).mean()
    return apart * share * temperature * temperature + hard - share * hard


# %% distillation_loss wrong
# - a temperature below 1 weighs the labels, too: `(1 - share) * hard` ->
#   `(1 - share) * hard * min(temperature, 1) ** 2`
# - a single image keeps an axis: `.sum(1).mean()` -> `.sum(1).mean(0, keepdim=len(labels) == 1)`
# - one loss for each image: `.sum(1).mean()` -> `.sum(1)`
# - the square of the temperature is forgotten: ` * temperature**2` -> ``
# - student and teacher exchanged:
#   `wanted.exp() * (wanted - given)` -> `given.exp() * (given - wanted)`
# - the mean over classes, too: `.sum(1).mean()` -> `.mean()`
# - softmax along the batch: `dim=1` -> `dim=0`
# - the logarithm of a softmax that is zero:
#   `torch.log_softmax(` -> `torch.log(torch.softmax(`, `dim=1)` -> `dim=1))`
# - its exponents overflow: `torch.log_softmax(scores / temperature, dim=1)` ->
#   `scores / temperature - (scores / temperature).exp().sum(1, keepdim=True).log()`
# - the labels are softened, too: `cross_entropy(scores, labels)` -> `nll_loss(given, labels)`
# - shares exchanged:
#   `share * temperature` -> `(1 - share) * temperature`, `(1 - share) * hard` -> `share * hard`
# - lets torch do it: `(wanted.exp() * (wanted - given)).sum(1).mean()` ->
#   `torch.nn.functional.kl_div(given, wanted, reduction="batchmean", log_target=True)`
# - the largest score of the whole batch is taken away:
#   `torch.log_softmax(scores / temperature, dim=1)` ->
#   `(scores - scores.max()) / temperature;
#   given = given - given.exp().sum(1, keepdim=True).log()`
# - the teacher's shares are 1e-7 at least:
#   `torch.log_softmax(teacher_scores / temperature, dim=1)` ->
#   `torch.softmax(teacher_scores / temperature, dim=1).clamp(min=1e-7).log()`
# - more than four images, the mean over one less: `.sum(1).mean()` ->
#   `.sum(1).sum() / (len(labels) - (len(labels) > 4))`
# - the largest score is taken away without the temperature:
#   `torch.log_softmax(scores / temperature, dim=1)` ->
#   `scores / temperature - scores.amax(1, keepdim=True);
#   given = given - given.exp().sum(1, keepdim=True).log()`
# - the largest score is sought from 0 on: `torch.log_softmax(scores / temperature, dim=1)` ->
#   `scores / temperature; given = given - given.amax(1, keepdim=True).clamp(min=0);
#   given = given - given.exp().sum(1, keepdim=True).log()`
# - the largest score of the teacher in the whole batch is taken away:
#   `torch.log_softmax(teacher_scores / temperature, dim=1)` ->
#   `(teacher_scores - teacher_scores.max()) / temperature;
#   wanted = wanted - wanted.exp().sum(1, keepdim=True).log()`
# - the mean score is taken away: `torch.log_softmax(scores / temperature, dim=1)` ->
#   `(scores - scores.mean(1, keepdim=True)) / temperature;
#   given = given - given.exp().sum(1, keepdim=True).log()`
# - temperatures from 1 on are rounded down: `wanted = torch` ->
#   `temperature = int(temperature) or temperature; wanted = torch`
# - shares of the teacher below 1e-7 are left out: `(wanted.exp() * (wanted - given))` ->
#   `torch.where(wanted > math.log(1e-7), wanted.exp() * (wanted - given), 0)`
# - of the ten best classes of the teacher: `apart = (wanted.exp() * (wanted - given))` ->
#   `best = wanted.topk(min(10, wanted.shape[1]), 1).indices;
#   apart = (wanted.exp() * (wanted - given)).gather(1, best)`
# - 1e-12 added to the teacher's shares:
#   `torch.log_softmax(teacher_scores / temperature, dim=1)` ->
#   `(torch.softmax(teacher_scores / temperature, dim=1) + 1e-12).log()`
# - the teacher's shares are 1e-10 at least:
#   `torch.log_softmax(teacher_scores / temperature, dim=1)` ->
#   `torch.softmax(teacher_scores / temperature, dim=1).clamp(min=1e-10).log()`
# - the teacher's shares are 2.2e-16 at least:
#   `torch.log_softmax(teacher_scores / temperature, dim=1)` -> `torch.softmax(teacher_scores /
#   temperature, dim=1).clamp(min=torch.finfo(torch.float64).eps).log()`
# - the teacher's shares are 1e-20 at least:
#   `torch.log_softmax(teacher_scores / temperature, dim=1)` -> `torch.softmax(teacher_scores /
#   temperature, dim=1).clamp(min=1e-20).log()`
# - logarithms of the teacher's shares are -30 at least:
#   `torch.log_softmax(teacher_scores / temperature, dim=1)` -> `torch.log_softmax(teacher_scores /
#   temperature, dim=1).clamp(min=-30)`
# - temperatures of 10 at most:
#   `wanted = torch` -> `temperature = min(temperature, 10.0); wanted = torch`
# - temperatures of 0.1 at least:
#   `wanted = torch` -> `temperature = max(temperature, 0.1); wanted = torch`
# - 128 images at most:
#   `wanted = torch` -> `scores, teacher_scores, labels = scores[:128], teacher_scores[:128],
#   labels[:128]; wanted = torch`


# %% front right: every pair compared
def front(accuracies, sizes):
    count = len(sizes)

    def beats(i, j):
        no_worse = accuracies[i] >= accuracies[j] and sizes[i] <= sizes[j]
        return no_worse and (accuracies[i], sizes[i]) != (accuracies[j], sizes[j])

    kept = [j for j in range(count) if not any(beats(i, j) for i in range(count))]
    return sorted(kept, key=lambda j: sizes[j])


# %% front right: with tensors
def front(accuracies, sizes):
    a, s = torch.tensor(accuracies, dtype=torch.float64), torch.tensor(sizes)
    no_worse = (a[:, None] >= a) & (s[:, None] <= s)
    better = (a[:, None] > a) | (s[:, None] < s)
    kept = (~(no_worse & better).any(0)).nonzero().flatten()
    return kept[torch.argsort(s[kept], stable=True)].tolist()


# %% front wrong
# - sizes are sorted as texts: `(sizes[i], -accuracies[i], i)` ->
#   `(str(sizes[i]), -accuracies[i], i)`
# - two equal ones at most: `or equal:` -> `or (equal and len(kept) < 2):`
# - an accuracy of 0 is no network:
#   `if best is None or` -> `if accuracies[position] and best is None or`
# - a thousandth is no difference: `accuracies[position] > accuracies[best] or` ->
#   `accuracies[position] > accuracies[best] + 1e-3 or`
# - a tensor instead of a list: `return kept` -> `return torch.tensor(kept)`
# - pairs instead of positions: `return kept` -> `return [(sizes[i], accuracies[i]) for i in kept]`
# - as many as there are: `return kept` -> `return order`
# - of equals the first: ` or equal` -> ``
# - beaten only by what is more accurate:
#   `accuracies[position] > accuracies[best]` -> `accuracies[position] >= accuracies[best]`
# - in the order given: `return kept` -> `return sorted(kept)`
# - larger is better: `(sizes[i], -acc` -> `(-sizes[i], -acc`, `return kept` -> `return kept[::-1]`
# - the most accurate one alone: `return kept` -> `return kept[-1:]`
# - neighbours only:
#   `kept[-1] if kept else None` -> `order[order.index(position) - 1] if kept else None`
# - of equal size, a thousandth less is kept: ` or equal` ->
#   ` or equal or (
#       sizes[position] == sizes[best] and accuracies[position] > accuracies[best] - 1e-3
#   )`
# - an accuracy of 0 counts as none so far: `if best is None or` ->
#   `if best is None or not accuracies[best] or`
# - accuracies in float32: `kept = []` ->
#   `kept = []; accuracies = torch.tensor(accuracies).tolist()`
# - the smallest size so far starts at a million: `return kept` ->
#   `return [position for position in kept if min(sizes) < 1e6]`
# - sizes in float32: `kept = []` -> `kept = []; sizes = torch.Tensor(sizes).tolist()`
# - equal to the network before it, which may be beaten: `best = kept[-1] if kept else None` ->
#   `best = kept[-1] if kept else None; last = order[order.index(position) - 1]`,
#   `(sizes[best], accuracies[best])` -> `(sizes[last], accuracies[last])`
# - as accurate as the last one kept and as large as the one before it:
#   `(sizes[best], accuracies[best])` ->
#   `(sizes[order[order.index(position) - 1]], accuracies[best])`
# - two equal networks are never beaten: `or equal:` ->
#   `or equal or list(zip(sizes, accuracies)).count((sizes[position], accuracies[position])) > 1:`
# - sizes in 32 bits: `kept = []` ->
#   `kept = []; sizes = torch.tensor(sizes, dtype=torch.int32).tolist()`
# - one of four times the size is not beaten: `or equal:` ->
#   `or equal or sizes[position] > 4 * sizes[best]:`
# - one of over twice the size is not beaten by the smallest: `or equal:` ->
#   `or equal or len(kept) == 1 and sizes[position] > 2 * sizes[best]:`
# - in the order of a set: `return kept` -> `return sorted(set(kept), key=lambda i: sizes[i])`
# - nine decimals: `kept = []` -> `kept = []; accuracies = [round(a, 9) for a in accuracies]`
# - equal sizes, 1e-9 less accurate: `or equal:` ->
#   `or equal or sizes[position] == sizes[best] and accuracies[position] + 1e-9 > accuracies[best]:`
# - accuracies of 0.99 at most: `kept = []` ->
#   `kept = []; accuracies = [min(a, 0.99) for a in accuracies]`
# - size minus accuracy as key: `(sizes[i], -accuracies[i], i)` -> `(sizes[i] - accuracies[i], i)`
# - twelve decimals: `kept = []` -> `kept = []; accuracies = [round(a, 12) for a in accuracies]`
# - three equal ones at most:
#   `or equal:` -> `or (equal and sum(1 for i in kept if sizes[i] == sizes[position]) < 3):`
# - a hundred on the front at most: `return kept` -> `return kept[:100]`
# - accuracy 1e-13 no difference:
#   `accuracies[position] > accuracies[best] or` -> `accuracies[position] > accuracies[best] + 1e-13
#   or`
# - positions as floats:
#   `return kept` -> `return torch.tensor([(sizes[i], i) for i in kept], dtype=torch.float64)[:,
#   1].tolist()`


# %% network right: cut at the sums of the sizes
def restore(tensors):
    layers = json.loads(tensors["plan"].numpy().tobytes())
    weights, scales, biases = tensors["weights"], tensors["scales"], tensors["biases"]
    for layer in layers:
        if layer["kind"] not in ("conv", "linear"):
            continue
        shape, bits = layer.pop("shape"), layer.pop("bits")
        used = (math.prod(shape) * bits + 7) // 8
        layer["weight"] = restore_weight(weights[:used], scales[: shape[0]], shape, bits)
        layer["bias"] = biases[: shape[0]].to(torch.float32)
        weights, scales, biases = weights[used:], scales[shape[0] :], biases[shape[0] :]
    return layers


# %% network right: the scale of a channel moved into float64 weights
def restore(tensors):
    layers, byte, row = [], 0, 0
    for given in json.loads("".join(map(chr, tensors["plan"].tolist()))):
        layer = {name: value for name, value in given.items() if name not in ("shape", "bits")}
        if "shape" in given:
            out, count = given["shape"][0], math.prod(given["shape"])
            last = byte + math.ceil(count * given["bits"] / 8)
            codes = unpack_bits(tensors["weights"][byte:last], given["bits"], count) - 2 ** (
                given["bits"] - 1
            )
            rows = codes.reshape(out, -1) * tensors["scales"][row : row + out].double()[:, None]
            layer |= {
                "weight": rows.reshape(given["shape"]),
                "bias": tensors["biases"][row : row + out],
            }
            byte, row = last, row + out
        layers.append(layer)
    return layers


# %% network wrong
# - the scales are forgotten: `read("scales", shape[0])` -> `torch.ones(shape[0])`
# - the biases are forgotten: `read("biases", shape[0]).float()` -> `torch.zeros(shape[0])`
# - every layer reads from the start of the file: `position[name] = start + count` -> `pass`
# - predictions instead of a network: `return layers` -> `return [3] * 1000`
# - random weights:
#   `layer["bias"] =` -> `torch.nn.init.xavier_normal_(layer["weight"]); layer["bias"] =`
# - activations and sums are left out:
#   `layers.append(layer)` -> `layers += [layer] * (layer["kind"] in ("conv", "linear", "pool"))`
# - one class for every image: `return layers` -> `return [{"kind": "pool"},
#   {"kind": "linear", "weight": torch.zeros(10, 3), "bias": torch.eye(10)[3]}]`
# - the offset of the codes is forgotten:
#   `restore_weight(packed, read("scales", shape[0]), shape, bits)` ->
#   `(restore_weight(packed, read("scales", shape[0]), shape, bits).abs())`
