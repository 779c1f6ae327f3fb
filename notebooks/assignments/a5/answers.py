# ruff: noqa: F811
"""Right and wrong answers to a5. Secret. Every wrong one is a plausible mistake that must earn nothing.

Each section replaces one function of the source notebook's solutions: `# %% <item> <right or wrong>: <what it is>`.
Those of `network` read the file network.safetensors in this folder, which is as secret as they are.
"""

import json
import math

import torch

# A mistake as one line: what it is, and how the notebook's solution is changed.
# %% pack_bits wrong: the sums as they are, in 64 bits: `.to(torch.uint8)` -> ``
# %% pack_bits wrong: a byte more than needed: `math.ceil(len(stream) / 8) * 8` -> `(len(stream) // 8 + 1) * 8`
# %% unpack_bits wrong: levels in 32 bits: `.sum(1)` -> `.sum(1).int()`
# %% unpack_bits wrong: levels as floats: `.sum(1)` -> `.sum(1).double()`
# %% unpack_bits wrong: all bits: `count * bits]` -> `8 * len(packed) // bits * bits]`, `(count,` -> `(-1,`
# %% squeeze_weight wrong: scales in single precision: `return pack_bits` -> `scales = scales.float(); return pack_bits`
# %% squeeze_weight wrong: cuts off: `torch.round(` -> `torch.trunc(`
# %% restore_weight wrong: in double precision: `scales.float()` -> `scales.double()`
# %% restore_weight wrong: in half precision: `scales.float()` -> `scales`
# %% restore_weight wrong: as one row: `.reshape(shape)` -> `.flatten()`
# %% drop_channels wrong: the mean over the kernel: `weight.flatten(2).sum(2)` -> `weight.flatten(2).mean(2)`
# %% drop_channels wrong: changes its bias: `bias + over_kernel[:, gone] @` -> `bias.add_(1) + over_kernel[:, gone] @`
# %% distillation_loss wrong: one loss for each image: `.sum(1).mean()` -> `.sum(1)`
# %% front wrong: a tensor instead of a list: `return kept` -> `return torch.tensor(kept)`
# %% front wrong: pairs instead of positions: `return kept` -> `return [(sizes[i], accuracies[i]) for i in kept]`
# %% front wrong: as many as there are: `return kept` -> `return order`


# %% pack_bits right: one large integer
def pack_bits(levels, bits):
    together = 0
    for position, level in enumerate(levels.tolist()):
        together |= level << (position * bits)
    return torch.tensor(list(together.to_bytes(-(-len(levels) * bits // 8), "little")), dtype=torch.uint8)


# %% pack_bits right: byte by byte with a reservoir
def pack_bits(levels, bits):
    out, reservoir, held = [], 0, 0
    for level in levels.tolist():
        reservoir |= level << held
        held += bits
        while held >= 8:
            out.append(reservoir & 255)
            reservoir >>= 8
            held -= 8
    if held:
        out.append(reservoir)
    return torch.tensor(out, dtype=torch.uint8)


# %% pack_bits wrong: highest bit first
def pack_bits(levels, bits):
    text = "".join(f"{level:0{bits}b}" for level in levels.tolist())
    text += "0" * (-len(text) % 8)
    return torch.tensor([int(text[i : i + 8], 2) for i in range(0, len(text), 8)], dtype=torch.uint8)


# %% pack_bits wrong: levels do not reach over into the next byte
def pack_bits(levels, bits):
    each, out = 8 // bits, []
    for start in range(0, len(levels), each):
        out.append(sum(level << (i * bits) for i, level in enumerate(levels[start : start + each].tolist())))
    return torch.tensor(out, dtype=torch.uint8)


# %% pack_bits wrong: the last byte is lost
def pack_bits(levels, bits):
    together = sum(level << (i * bits) for i, level in enumerate(levels.tolist()))
    count = len(levels) * bits // 8
    return torch.tensor([together >> (8 * i) & 255 for i in range(count)], dtype=torch.uint8)


# %% pack_bits wrong: one byte for each level
def pack_bits(levels, bits):
    return levels.to(torch.uint8)


# %% pack_bits wrong: one byte too many when the bits fit
def pack_bits(levels, bits):
    together = sum(level << (i * bits) for i, level in enumerate(levels.tolist()))
    return torch.tensor([together >> (8 * i) & 255 for i in range(len(levels) * bits // 8 + 1)], dtype=torch.uint8)


# %% pack_bits wrong: the last level first
def pack_bits(levels, bits):
    together = 0
    for level in levels.tolist():
        together = together << bits | level
    return torch.tensor(list(together.to_bytes(-(-len(levels) * bits // 8), "little")), dtype=torch.uint8)


# %% pack_bits wrong: lets NumPy do it
def pack_bits(levels, bits):
    import numpy

    stream = (levels.long()[:, None] >> torch.arange(bits) & 1).flatten().numpy().astype("uint8")
    return torch.from_numpy(numpy.packbits(stream, bitorder="little"))


# %% unpack_bits right: one large integer
def unpack_bits(packed, bits, count):
    together = int.from_bytes(bytes(packed.tolist()), "little")
    levels = []
    for _ in range(count):
        levels.append(together & (1 << bits) - 1)
        together >>= bits
    return torch.tensor(levels, dtype=torch.int64)


# %% unpack_bits right: windows of two bytes
def unpack_bits(packed, bits, count):
    start = torch.arange(count) * bits
    low = torch.cat([packed.long(), torch.zeros(2, dtype=torch.int64)])
    window = low[start // 8] + 256 * low[start // 8 + 1]
    return (window >> start % 8) & (2**bits - 1)


# %% unpack_bits wrong: highest bit first
def unpack_bits(packed, bits, count):
    text = "".join(f"{byte:08b}" for byte in packed.tolist())
    return torch.tensor([int(text[i * bits : (i + 1) * bits], 2) for i in range(count)], dtype=torch.int64)


# %% unpack_bits wrong: bits that belong to no level are levels too
def unpack_bits(packed, bits, count):
    stream = (packed.long()[:, None] >> torch.arange(8) & 1).flatten()
    whole = len(stream) // bits
    return (stream[: whole * bits].reshape(whole, bits) << torch.arange(bits)).sum(1)


# %% unpack_bits wrong: each byte by itself
def unpack_bits(packed, bits, count):
    each = 8 // bits
    levels = (packed.long()[:, None] >> torch.arange(each) * bits & (2**bits - 1)).flatten()
    return levels[:count]


# %% unpack_bits wrong: the order of bits inside a level is turned around
def unpack_bits(packed, bits, count):
    stream = (packed.long()[:, None] >> torch.arange(8) & 1).flatten()[: count * bits]
    return (stream.reshape(count, bits) << torch.arange(bits - 1, -1, -1)).sum(1)


# %% unpack_bits wrong: takes an offset away
def unpack_bits(packed, bits, count):
    stream = (packed.long()[:, None] >> torch.arange(8) & 1).flatten()[: count * bits]
    return (stream.reshape(count, bits) << torch.arange(bits)).sum(1) - 2 ** (bits - 1)


# %% unpack_bits wrong: a window of one byte
def unpack_bits(packed, bits, count):
    start = torch.arange(count) * bits
    return (packed.long()[start // 8] >> start % 8) & (2**bits - 1)


# %% squeeze_weight right: a loop over channels
def squeeze_weight(weight, bits):
    most, scales, levels = 2 ** (bits - 1) - 1, [], []
    for row in weight.flatten(1):
        scale = (row.abs().max() / most).to(torch.float16)
        scales.append(scale if scale > 0 else torch.ones((), dtype=torch.float16))
        levels.append((row / scales[-1].float()).round().clamp(-most, most))
    return pack_bits(torch.cat(levels).long() + most + 1, bits), torch.stack(scales)


# %% squeeze_weight right: in float64
def squeeze_weight(weight, bits):
    most = 2 ** (bits - 1) - 1
    rows = weight.reshape(len(weight), -1).double()
    scales = (rows.abs().max(dim=1).values / most).to(torch.float16)
    scales = torch.where(scales == 0, torch.ones_like(scales), scales)
    levels = (rows / scales.double().unsqueeze(1)).round()
    levels = torch.clamp(levels, min=-most, max=most) + 2 ** (bits - 1)
    return pack_bits(levels.reshape(-1).to(torch.int64), bits), scales


# %% squeeze_weight wrong: levels made before the scale is rounded
def squeeze_weight(weight, bits):
    most = 2 ** (bits - 1) - 1
    scales = weight.flatten(1).abs().amax(1) / most
    scales[scales.half() == 0] = 1
    levels = torch.round(weight.flatten(1) / scales[:, None]).clamp(-most, most).long()
    return pack_bits(levels.flatten() + 2 ** (bits - 1), bits), scales.half()


# %% squeeze_weight wrong: one scale for all channels
def squeeze_weight(weight, bits):
    most = 2 ** (bits - 1) - 1
    scales = (weight.abs().max() / most).half().repeat(len(weight))
    levels = torch.round(weight.flatten(1) / scales.float()[:, None]).clamp(-most, most).long()
    return pack_bits(levels.flatten() + 2 ** (bits - 1), bits), scales


# %% squeeze_weight wrong: divides zeros by zero
def squeeze_weight(weight, bits):
    most = 2 ** (bits - 1) - 1
    scales = (weight.flatten(1).abs().amax(1) / most).half()
    levels = torch.round(weight.flatten(1) / scales.float()[:, None]).clamp(-most, most).long()
    return pack_bits(levels.flatten() + 2 ** (bits - 1), bits), scales


# %% squeeze_weight wrong: one step too many
def squeeze_weight(weight, bits):
    most = 2 ** (bits - 1)
    scales = (weight.flatten(1).abs().amax(1) / most).half()
    scales[scales == 0] = 1
    levels = torch.round(weight.flatten(1) / scales.float()[:, None]).clamp(-most, most - 1).long()
    return pack_bits(levels.flatten() + most, bits), scales


# %% squeeze_weight wrong: scales by input channel
def squeeze_weight(weight, bits):
    most = 2 ** (bits - 1) - 1
    turned = weight.transpose(0, 1)
    scales = (turned.flatten(1).abs().amax(1) / most).half()
    scales[scales == 0] = 1
    levels = torch.round(turned.flatten(1) / scales.float()[:, None]).clamp(-most, most).long()
    levels = levels.reshape(turned.shape).transpose(0, 1)
    return pack_bits(levels.flatten() + 2 ** (bits - 1), bits), scales


# %% squeeze_weight wrong: the offset is forgotten
def squeeze_weight(weight, bits):
    most = 2 ** (bits - 1) - 1
    scales = (weight.flatten(1).abs().amax(1) / most).half()
    scales[scales == 0] = 1
    levels = torch.round(weight.flatten(1) / scales.float()[:, None]).clamp(-most, most).long()
    return pack_bits(levels.flatten() % 2**bits, bits), scales


# %% squeeze_weight wrong: the largest value without its sign
def squeeze_weight(weight, bits):
    most = 2 ** (bits - 1) - 1
    scales = (weight.flatten(1).amax(1) / most).half()
    scales[scales == 0] = 1
    levels = torch.round(weight.flatten(1) / scales.float()[:, None]).clamp(-most, most).long()
    return pack_bits(levels.flatten() + 2 ** (bits - 1), bits), scales


# %% squeeze_weight wrong: cuts off instead of rounding
def squeeze_weight(weight, bits):
    most = 2 ** (bits - 1) - 1
    scales = (weight.flatten(1).abs().amax(1) / most).half()
    scales[scales == 0] = 1
    levels = (weight.flatten(1) / scales.float()[:, None]).clamp(-most, most).long()
    return pack_bits(levels.flatten() + 2 ** (bits - 1), bits), scales


# %% restore_weight right: the scale in the shape of the weight
def restore_weight(packed, scales, shape, bits):
    levels = unpack_bits(packed, bits, math.prod(shape)).reshape(shape) - 2 ** (bits - 1)
    return levels.float() * scales.float().reshape([-1] + [1] * (len(shape) - 1))


# %% restore_weight right: a scale for every number
def restore_weight(packed, scales, shape, bits):
    count = math.prod(shape)
    each = scales.to(torch.float32).repeat_interleave(count // shape[0])
    return ((unpack_bits(packed, bits, count) - (1 << bits - 1)).to(torch.float32) * each).view(*shape)


# %% restore_weight wrong: the offset is forgotten
def restore_weight(packed, scales, shape, bits):
    levels = unpack_bits(packed, bits, math.prod(shape))
    return (levels.reshape(shape[0], -1) * scales.float()[:, None]).reshape(shape)


# %% restore_weight wrong: the offset is taken away after the scale
def restore_weight(packed, scales, shape, bits):
    levels = unpack_bits(packed, bits, math.prod(shape))
    return (levels.reshape(shape[0], -1) * scales.float()[:, None] - 2 ** (bits - 1)).reshape(shape)


# %% restore_weight wrong: the offset of a symmetric range
def restore_weight(packed, scales, shape, bits):
    levels = unpack_bits(packed, bits, math.prod(shape)) - (2 ** (bits - 1) - 1)
    return (levels.reshape(shape[0], -1) * scales.float()[:, None]).reshape(shape)


# %% restore_weight wrong: scales run along the last axis
def restore_weight(packed, scales, shape, bits):
    levels = unpack_bits(packed, bits, math.prod(shape)) - 2 ** (bits - 1)
    return (levels.reshape(-1, shape[0]) * scales.float()).reshape(shape)


# %% restore_weight wrong: computed in float16
def restore_weight(packed, scales, shape, bits):
    levels = unpack_bits(packed, bits, math.prod(shape)) - 2 ** (bits - 1)
    return (levels.reshape(shape[0], -1).half() * scales[:, None]).reshape(shape).float()


# %% restore_weight wrong: the first scale for all
def restore_weight(packed, scales, shape, bits):
    levels = unpack_bits(packed, bits, math.prod(shape)) - 2 ** (bits - 1)
    return (levels * scales[0].float()).reshape(shape)


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


# %% drop_channels wrong: the bias stays as it was
def drop_channels(weight, bias, keep, means):
    return weight[:, keep], bias


# %% drop_channels wrong: output channels
def drop_channels(weight, bias, keep, means):
    keep = keep[keep < len(weight)]
    return weight[keep], bias[keep]


# %% drop_channels wrong: the means of the kept channels
def drop_channels(weight, bias, keep, means):
    sums = weight.reshape(*weight.shape[:2], -1).sum(2)
    return weight[:, keep], bias + sums[:, keep] @ means[keep]


# %% drop_channels wrong: subtracted
def drop_channels(weight, bias, keep, means):
    sums = weight.reshape(*weight.shape[:2], -1).sum(2)
    return weight[:, keep], bias - (sums @ means - sums[:, keep] @ means[keep])


# %% drop_channels wrong: the mean over the kernel instead of the sum
def drop_channels(weight, bias, keep, means):
    sums = weight.reshape(*weight.shape[:2], -1).mean(2)
    return weight[:, keep], bias + sums @ means - sums[:, keep] @ means[keep]


# %% drop_channels wrong: all means, those of the kept channels too
def drop_channels(weight, bias, keep, means):
    sums = weight.reshape(*weight.shape[:2], -1).sum(2)
    return weight[:, keep], bias + sums @ means


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


# %% distillation_loss wrong: lets torch do it
def distillation_loss(scores, teacher_scores, labels, temperature, share):
    wanted, given = (torch.log_softmax(z / temperature, dim=1) for z in (teacher_scores, scores))
    apart = torch.nn.functional.kl_div(given, wanted, reduction="batchmean", log_target=True)
    return share * temperature**2 * apart + (1 - share) * torch.nn.functional.cross_entropy(scores, labels)


# %% distillation_loss wrong: the square of the temperature is forgotten
def distillation_loss(scores, teacher_scores, labels, temperature, share):
    wanted = torch.log_softmax(teacher_scores / temperature, dim=1)
    apart = (wanted.exp() * (wanted - torch.log_softmax(scores / temperature, dim=1))).sum(1).mean()
    return share * apart + (1 - share) * torch.nn.functional.cross_entropy(scores, labels)


# %% distillation_loss wrong: student and teacher exchanged
def distillation_loss(scores, teacher_scores, labels, temperature, share):
    given = torch.log_softmax(scores / temperature, dim=1)
    apart = (given.exp() * (given - torch.log_softmax(teacher_scores / temperature, dim=1))).sum(1).mean()
    return share * temperature**2 * apart + (1 - share) * torch.nn.functional.cross_entropy(scores, labels)


# %% distillation_loss wrong: the mean over classes, too
def distillation_loss(scores, teacher_scores, labels, temperature, share):
    wanted = torch.log_softmax(teacher_scores / temperature, dim=1)
    apart = (wanted.exp() * (wanted - torch.log_softmax(scores / temperature, dim=1))).mean()
    return share * temperature**2 * apart + (1 - share) * torch.nn.functional.cross_entropy(scores, labels)


# %% distillation_loss wrong: softmax along the batch
def distillation_loss(scores, teacher_scores, labels, temperature, share):
    wanted = torch.log_softmax(teacher_scores / temperature, dim=0)
    apart = (wanted.exp() * (wanted - torch.log_softmax(scores / temperature, dim=0))).sum(1).mean()
    return share * temperature**2 * apart + (1 - share) * torch.nn.functional.cross_entropy(scores, labels)


# %% distillation_loss wrong: logarithm of a softmax that is zero
def distillation_loss(scores, teacher_scores, labels, temperature, share):
    wanted, given = torch.softmax(teacher_scores / temperature, 1), torch.softmax(scores / temperature, 1)
    apart = (wanted * (wanted.log() - given.log())).sum(1).mean()
    return share * temperature**2 * apart + (1 - share) * torch.nn.functional.cross_entropy(scores, labels)


# %% distillation_loss wrong: the labels are softened, too
def distillation_loss(scores, teacher_scores, labels, temperature, share):
    wanted, given = (torch.log_softmax(z / temperature, dim=1) for z in (teacher_scores, scores))
    apart = (wanted.exp() * (wanted - given)).sum(1).mean()
    return share * temperature**2 * apart + (1 - share) * torch.nn.functional.nll_loss(given, labels)


# %% distillation_loss wrong: shares exchanged
def distillation_loss(scores, teacher_scores, labels, temperature, share):
    wanted, given = (torch.log_softmax(z / temperature, dim=1) for z in (teacher_scores, scores))
    apart = (wanted.exp() * (wanted - given)).sum(1).mean()
    return (1 - share) * temperature**2 * apart + share * torch.nn.functional.cross_entropy(scores, labels)


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


# %% front wrong: equals beat each other
def front(accuracies, sizes):
    kept = []
    for j in range(len(sizes)):
        others = [i for i in range(len(sizes)) if i != j]
        if not any(accuracies[i] >= accuracies[j] and sizes[i] <= sizes[j] for i in others):
            kept.append(j)
    return sorted(kept, key=lambda j: sizes[j])


# %% front wrong: beaten only when worse in both
def front(accuracies, sizes):
    count = range(len(sizes))
    kept = [j for j in count if not any(accuracies[i] > accuracies[j] and sizes[i] < sizes[j] for i in count)]
    return sorted(kept, key=lambda j: (sizes[j], j))


# %% front wrong: in the order given
def front(accuracies, sizes):
    count = range(len(sizes))

    def beats(i, j):
        no_worse = accuracies[i] >= accuracies[j] and sizes[i] <= sizes[j]
        return no_worse and (accuracies[i], sizes[i]) != (accuracies[j], sizes[j])

    return [j for j in count if not any(beats(i, j) for i in count)]


# %% front wrong: larger is better
def front(accuracies, sizes):
    order = sorted(range(len(sizes)), key=lambda i: (-sizes[i], i))
    kept = []
    for i in order:
        if not kept or accuracies[i] > accuracies[kept[-1]]:
            kept.append(i)
    return sorted(kept, key=lambda j: sizes[j])


# %% front wrong: the most accurate one alone
def front(accuracies, sizes):
    return [max(range(len(sizes)), key=lambda i: accuracies[i])]


# %% front wrong: neighbours only
def front(accuracies, sizes):
    order = sorted(range(len(sizes)), key=lambda i: (sizes[i], i))
    return [j for i, j in enumerate(order) if i == 0 or accuracies[j] > accuracies[order[i - 1]]]


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
            levels = unpack_bits(tensors["weights"][byte:last], given["bits"], count) - 2 ** (given["bits"] - 1)
            rows = levels.reshape(out, -1) * tensors["scales"][row : row + out].double()[:, None]
            layer |= {"weight": rows.reshape(given["shape"]), "bias": tensors["biases"][row : row + out]}
            byte, row = last, row + out
        layers.append(layer)
    return layers


# %% network wrong: the offset of the levels is forgotten
def restore(tensors):
    layers, byte, row = json.loads(bytes(tensors["plan"].tolist())), 0, 0
    for layer in layers:
        if "shape" in layer:
            shape, bits = layer.pop("shape"), layer.pop("bits")
            last = byte + math.ceil(math.prod(shape) * bits / 8)
            levels = unpack_bits(tensors["weights"][byte:last], bits, math.prod(shape)).reshape(shape[0], -1)
            layer["weight"] = (levels * tensors["scales"][row : row + shape[0]].float()[:, None]).reshape(shape)
            layer["bias"] = tensors["biases"][row : row + shape[0]]
            byte, row = last, row + shape[0]
    return layers


# %% network wrong: the scales are forgotten
def restore(tensors):
    layers, byte, row = json.loads(bytes(tensors["plan"].tolist())), 0, 0
    for layer in layers:
        if "shape" in layer:
            shape, bits = layer.pop("shape"), layer.pop("bits")
            last = byte + math.ceil(math.prod(shape) * bits / 8)
            layer["weight"] = restore_weight(tensors["weights"][byte:last], torch.ones(shape[0]), shape, bits)
            layer["bias"] = tensors["biases"][row : row + shape[0]]
            byte, row = last, row + shape[0]
    return layers


# %% network wrong: the biases are forgotten
def restore(tensors):
    layers, byte, row = json.loads(bytes(tensors["plan"].tolist())), 0, 0
    for layer in layers:
        if "shape" in layer:
            shape, bits = layer.pop("shape"), layer.pop("bits")
            last = byte + math.ceil(math.prod(shape) * bits / 8)
            scales = tensors["scales"][row : row + shape[0]]
            layer["weight"] = restore_weight(tensors["weights"][byte:last], scales, shape, bits)
            layer["bias"] = torch.zeros(shape[0])
            byte, row = last, row + shape[0]
    return layers


# %% network wrong: every layer reads from the start of the file
def restore(tensors):
    layers = json.loads(bytes(tensors["plan"].tolist()))
    for layer in layers:
        if "shape" in layer:
            shape, bits = layer.pop("shape"), layer.pop("bits")
            used = math.ceil(math.prod(shape) * bits / 8)
            layer["weight"] = restore_weight(tensors["weights"][:used], tensors["scales"][: shape[0]], shape, bits)
            layer["bias"] = tensors["biases"][: shape[0]]
    return layers


# %% network wrong: one class for every image
def restore(tensors):
    bias = torch.zeros(10)
    bias[3] = 1
    return [{"kind": "pool"}, {"kind": "linear", "weight": torch.zeros(10, 3), "bias": bias}]


# %% network wrong: predictions instead of a network
def restore(tensors):
    return [3] * 1000


# %% network wrong: random weights of the right shapes
def restore(tensors):
    layers, generator = json.loads(bytes(tensors["plan"].tolist())), torch.Generator().manual_seed(0)
    for layer in layers:
        if "shape" in layer:
            shape = layer.pop("shape")
            layer["weight"] = torch.randn(shape, generator=generator) * math.prod(shape[1:]) ** -0.5
            layer["bias"] = torch.zeros(shape[0])
    return layers


# %% network wrong: activations and sums are left out
def restore(tensors):
    layers, byte, row = [], 0, 0
    for layer in json.loads(bytes(tensors["plan"].tolist())):
        if "shape" in layer:
            shape, bits = layer.pop("shape"), layer.pop("bits")
            last = byte + math.ceil(math.prod(shape) * bits / 8)
            scales = tensors["scales"][row : row + shape[0]]
            layer["weight"] = restore_weight(tensors["weights"][byte:last], scales, shape, bits)
            layer["bias"] = tensors["biases"][row : row + shape[0]]
            byte, row = last, row + shape[0]
        if layer["kind"] in ("conv", "linear", "pool"):
            layers.append(layer)
    return layers
