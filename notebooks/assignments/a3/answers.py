# ruff: noqa: F811
"""Right and wrong answers to a3. Secret. Every wrong one is a plausible mistake, and earns nothing.

`# %% <item> <right or wrong>: <what it is>` stands above code that replaces a solution of the
notebook. Most mistakes are a list below `# %% <item> wrong`: what it is, and how the solution is
changed.
"""

import torch


# %% norm_importance right: torch's vector norm
def norm_importance(weight, p):
    return torch.linalg.vector_norm(weight.flatten(1), ord=p, dim=1)


# %% norm_importance right: channel by channel
def norm_importance(weight, p):
    return torch.stack([row.abs().pow(p).sum().pow(1 / p) for row in weight])


# %% norm_importance wrong
# - a single output loses its axis: `.sum(dim=1)` -> `.sum(dim=1).squeeze()`
# - a single output of negative weights: `weight.flatten(1).abs()` ->
#   `(weight.flatten(1).abs() if len(weight) > 1 else weight.flatten(1))`
# - four axes at most: `.sum(dim=1)` -> `.sum(dim=1)[: len(weight) if weight.ndim < 5 else 1]`
# - a root that is never 0: `.sum(dim=1) ** (1 / p)` -> `.sum(dim=1).add(1e-12) ** (1 / p)`
# - changes its weight: `weight.flatten(1).abs()` -> `weight.flatten(1).abs_()`
# - the square of the 2-norm: ` ** (1 / p)` -> ``
# - summed over inputs first: `weight.flatten(1)` -> `weight.sum(1).flatten(1)`
# - per input channel: `weight.flatten(1)` -> `weight.transpose(0, 1).flatten(1)`
# - without the absolute value: `.abs()` -> ``
# - the mean instead of the sum: `.sum(dim=1)` -> `.mean(dim=1)`
# - always the 1-norm: `return (` -> `p = 1; return (`
# - the largest weight:
#   `(weight.flatten(1).abs() ** p).sum(dim=1) ** (1 / p)` -> `weight.flatten(1).abs().amax(1)`
# - depthwise, always the 2-norm: `return (` ->
#   `p = 2 if weight.ndim == 4 and weight.shape[1] == 1 else p; return (`
# - depthwise, always the 1-norm: `return (` ->
#   `p = 1 if weight.ndim == 4 and weight.shape[1] == 1 else p; return (`
# - square kernels only: `weight.flatten(1)` -> `(weight.reshape(len(weight), weight.shape[1] *
#   weight.shape[2] ** 2) if weight.ndim == 4 else weight.flatten(1))`
# - in one dimension a sum of 2-norms: `return (` ->
#   `return weight.norm(dim=2).sum(1) if weight.ndim == 3 and p == 2 else (`
# - the 1-norm over four axes at most: `return (` ->
#   `return weight.abs().sum((1, 2, 3)) if weight.ndim > 3 and p == 1 else (`
# - of a single output always the 1-norm: `return (` ->
#   `p = 1 if len(weight) == 1 and weight.ndim > 2 else p; return (`
# - a single input of a linear layer keeps its sign: `return (` ->
#   `return weight[:, 0] ** p if weight.shape[1:] == (1,) and p == 1 else (`
# - of kernels of one pixel always the 2-norm: `return (` ->
#   `p = 2 if weight.shape[2:] == (1, 1) else p; return (`
# - a single weight loses its axis: `.sum(dim=1)` ->
#   `.sum(dim=1).reshape([-1] * (weight.numel() > 1))`
# - weights below 1e-4 count as 0: `weight.flatten(1).abs()` ->
#   `torch.nn.functional.threshold(weight.flatten(1).abs(), 1e-4, 0)`
# - scaled by the largest weight, which may be 0: `return (` ->
#   `weight = weight / weight.abs().max(); return (`
# - weights below -10 count as -10: `weight.flatten(1)` -> `weight.flatten(1).clamp(min=-10)`
# - long rows in 16 bits: `return (` ->
#   `weight = weight if weight[0].numel() < 1000 else weight.half().double(); return (`
# - weights close to 0 are 0:
#   `weight.flatten(1).abs()` -> `torch.nn.functional.threshold(weight.flatten(1).abs(), 1e-8, 0)`
# - weights of 10,000 at most: `weight.flatten(1)` -> `weight.flatten(1).clamp(-1e4, 1e4)`
# - a little more than 0: `** (1 / p)` -> `** (1 / p) + 1e-12`
# - at least 1e-12:
#   `return (weight` -> `return ((weight`, `** (1 / p)` -> `** (1 / p)).clamp(min=1e-12)`
# - twelve decimals: `weight.flatten(1)` -> `weight.flatten(1).round(decimals=12)`
# - weights below 1e-12 are 0:
#   `weight.flatten(1).abs()` -> `torch.nn.functional.threshold(weight.flatten(1).abs(), 1e-12, 0)`
# - weights of 1e8 at most: `weight.flatten(1)` -> `weight.flatten(1).clamp(-1e8, 1e8)`
# - a linear layer of one weight loses its axis:
#   `return (` -> `return weight.abs().reshape(()) if weight.shape == (1, 1) else (`
# - a single output in one dimension loses its axis:
#   `.sum(dim=1)` -> `.sum(dim=1).reshape([-1] * (len(weight) > 1 or weight.ndim != 3))`
# - a single output in three dimensions loses its axis:
#   `.sum(dim=1)` -> `.sum(dim=1).reshape([-1] * (len(weight) > 1 or weight.ndim != 5))`
# - of kernels of one pixel in one dimension always the 2-norm:
#   `return (` -> `p = 2 if weight.ndim == 3 and weight.shape[2] == 1 else p; return (`
# - depthwise in three dimensions, always the 2-norm:
#   `return (` -> `p = 2 if weight.ndim == 5 and weight.shape[1] == 1 else p; return (`
# - large linear layers in float32:
#   `return (` -> `weight = weight.float().double() if weight.ndim == 2 and weight.shape[1] > 100
#   else weight; return (`


# %% taylor_importance right: einsum
def taylor_importance(activation, gradient):
    return torch.einsum("nchw,nchw->nc", activation, gradient).abs().mean(0)


# %% taylor_importance right: flattened
def taylor_importance(activation, gradient):
    return (activation.flatten(2) * gradient.flatten(2)).sum(-1).abs().sum(0) / len(activation)


# %% taylor_importance wrong
# - a single image keeps its sign: `.abs().mean(dim=0)` -> `.mean(dim=0)` and
#   `(activation * gradient)` ->
#   `(activation * gradient if len(gradient) == 1 else activation.abs())`
# - images without a gradient do not count: `.mean(dim=0)` ->
#   `.sum(dim=0) / (gradient != 0).flatten(1).any(1).sum()`
# - images of one pixel lose an axis too few: `.sum(dim=(2, 3)).abs()` ->
#   `.sum(dim=(2, 3), keepdim=activation.shape[2:].numel() == 1).abs()`
# - the square instead of the absolute value: `.abs().mean(dim=0)` -> `.square().mean(dim=0)`
# - changes its input: `(activation * gradient)` -> `activation.mul_(gradient)`
# - absolute value before the sum: `.sum(dim=(2, 3)).abs()` -> `.abs().sum(dim=(2, 3))`
# - absolute value after the mean: `.abs().mean(dim=0)` -> `.mean(dim=0).abs()`
# - the sum over the batch: `.mean(dim=0)` -> `.sum(dim=0)`
# - the mean over pixels: `.sum(dim=(2, 3))` -> `.mean(dim=(2, 3))`
# - the gradient alone: `(activation * gradient)` -> `gradient`
# - per image: `.mean(dim=0)` -> `.mean(dim=1)`
# - a single channel of a single image loses its axis: `.mean(dim=0)` ->
#   `.mean(dim=0).reshape([-1] * (activation.shape[:2].numel() > 1))`
# - a single number loses its axis: `.mean(dim=0)` ->
#   `.mean(dim=0).reshape([-1] * (activation.numel() > 1))`
# - images in which a channel is zero do not count: `.mean(dim=0)` ->
#   `.sum(dim=0) / (activation != 0).flatten(2).any(2).sum(dim=0).clamp(min=1)`
# - images that are zero do not count: `.mean(dim=0)` ->
#   `.sum(dim=0) / (activation != 0).flatten(1).any(1).sum()`
# - at least 1e-8: `.mean(dim=0)` -> `.mean(dim=0).clamp(min=1e-8)`
# - of one row each pixel by itself: `(activation * gradient)` ->
#   `(activation * gradient if activation.shape[2] > 1 else activation.abs() * gradient.abs())`
# - of one column each pixel by itself: `(activation * gradient)` ->
#   `(activation * gradient if activation.shape[3] > 1 else activation.abs() * gradient.abs())`
# - scaled by the largest gradient, which may be 0: `(activation * gradient)` ->
#   `(activation * (gradient / gradient.abs().max()))` and `.mean(dim=0)` ->
#   `.mean(dim=0) * gradient.abs().max()`
# - the activation alone where no gradient comes: `(activation * gradient)` ->
#   `(activation * gradient if gradient.any() else activation)`
# - the mean of the means of 32 images each: `return (activation * gradient)` ->
#   `parts = activation.split(32), gradient.split(32); return torch.stack([(a * g)` and
#   `.mean(dim=0)` -> `.mean(dim=0) for a, g in zip(*parts)]).mean(dim=0)`
# - gradients of 5 at most: `* gradient)` -> `* gradient.clamp(-5, 5))`
# - activations of 6 at most: `activation *` -> `activation.clamp(max=6) *`
# - the mean of the means of 256 images each:
#   `return (activation * gradient)` -> `parts = activation.split(256), gradient.split(256); return
#   torch.stack([(a * g)`, `.mean(dim=0)` -> `.mean(dim=0) for a, g in zip(*parts)]).mean(dim=0)`
# - at least 1e-12: `.mean(dim=0)` -> `.mean(dim=0).clamp(min=1e-12)`
# - twelve decimals: `.mean(dim=0)` -> `.mean(dim=0).round(decimals=12)`
# - gradients below 1e-12 are 0: `* gradient)` -> `* gradient.where(gradient.abs() > 1e-12, 0.))`
# - activations below 1e-6 are 0:
#   `activation *` -> `activation.where(activation.abs() > 1e-6, 0.) *`
# - activations of 1e5 at most: `activation *` -> `activation.clamp(-1e5, 1e5) *`
# - gradients of 1e5 at most: `* gradient)` -> `* gradient.clamp(-1e5, 1e5))`
# - a single image and channel keep their sign:
#   `return (` -> `return (activation * gradient).sum().reshape(1) if activation.shape[:2] == (1, 1)
#   else (`
# - equal images count once:
#   `return (` -> `both = torch.cat([activation, gradient], 3).unique(dim=0); activation, gradient =
#   both.chunk(2, 3); return (`


# %% channels_to_keep right: removes from a list
def channels_to_keep(scores, ratio):
    values, left = scores.tolist(), list(range(len(scores)))
    for _ in range(int(len(scores) * ratio)):
        if len(left) > 1:
            left.remove(min(left, key=lambda i: (values[i], -i)))
    return torch.tensor(left)


# %% channels_to_keep right: sorts pairs
def channels_to_keep(scores, ratio):
    stay = max(1, len(scores) - int(len(scores) * ratio))
    best = sorted((-score, index) for index, score in enumerate(scores.tolist()))[:stay]
    return torch.tensor(sorted(index for _, index in best))


# %% channels_to_keep wrong
# - positions that torch takes for a mask: `.sort().values` -> `.sort().values.byte()`
# - ties broken by a small number: `torch.sort(scores,` ->
#   `torch.sort(scores - 1e-9 * torch.arange(len(scores)),`
# - scores in float32: `torch.sort(scores,` -> `torch.sort(scores.float(),`
# - rounds to nearest: `int(len(scores) * ratio)` -> `round(len(scores) * ratio)`
# - by size, whatever the sign: `torch.sort(scores` -> `torch.sort(scores.abs()`
# - the first channels: `stable=True).indices` -> `stable=True).indices.sort().values`
# - keeps the lowest: `descending=True` -> `descending=False`
# - is not sorted: `].sort().values` -> `]`
# - nothing may be left:
#   `min(int(len(scores) * ratio), len(scores) - 1)` -> `int(len(scores) * ratio)`
# - one too few: `len(scores) - removed]` -> `max(1, len(scores) - removed - 1)]`
# - the share that is kept: `int(len(scores) * ratio)` -> `len(scores) - int(len(scores) * ratio)`
# - the first that reach the last score: `order[: len(scores) - removed].sort().values` ->
#   `(scores >= scores[order[len(scores) - removed - 1]]).nonzero().flatten()[:
#   len(scores) - removed]`
# - the higher index among equals: `torch.sort(scores, descending=True, stable=True).indices` ->
#   `scores.argsort(stable=True).flip(0)`
# - what stays is rounded up from 1 - ratio:
#   `removed = min(int(len(scores) * ratio), len(scores) - 1)` ->
#   `removed = len(scores) - max(int(-(len(scores) * (1 - ratio) // -1)), 1)`
# - of many equal scores any, as NumPy sorts:
#   `torch.sort(scores, descending=True, stable=True).indices` ->
#   `torch.from_numpy(scores.neg().numpy().argsort())`
# - at least one goes: `int(len(scores) * ratio)` -> `max(int(len(scores) * ratio), ratio > 0)`
# - the product in float32: `int(len(scores) * ratio)` ->
#   `int(torch.floor(torch.tensor(ratio) * len(scores)))`
# - whole percents: `int(len(scores) * ratio)` -> `len(scores) * int(ratio * 100) // 100`
# - what goes is marked with 0: `order[: len(scores) - removed].sort().values` ->
#   `scores.index_fill(0, order[len(scores) - removed :], 0).nonzero().flatten()`
# - scores of 0 go first: `torch.sort(scores,` -> `torch.sort(scores.where(scores != 0, -1e300),`
# - scores of ten digits: `torch.sort(scores,` -> `torch.sort((scores * 1e10).round(),`
# - a single channel goes: `return order` ->
#   `return order[:0] if len(scores) == 1 and ratio == 1 else order`
# - two channels stay: `return order` -> `removed *= len(scores) > 2; return order`
# - where all are to go, the last of the highest stays: `return order` ->
#   `return scores.argsort(stable=True)[-1:] if ratio == 1 else order`
# - where all are to go, the one farthest from 0 stays: `return order` ->
#   `return scores.abs().argmax().reshape(1) if ratio == 1 else order`
# - a ratio of six digits: `len(scores) * ratio` -> `len(scores) * round(ratio, 6)`
# - a ratio of 0.99 at most: `len(scores) * ratio` -> `len(scores) * min(ratio, 0.99)`
# - scores close to 0 are 0:
#   `torch.sort(scores,` -> `torch.sort(scores.where(scores.abs() > 1e-12, 0.),`
# - a little is taken off for each position:
#   `torch.sort(scores,` -> `torch.sort(scores - 1e-16 * torch.arange(len(scores)),`
# - in the order of a set:
#   `return order[: len(scores) - removed].sort().values` -> `return torch.tensor(list(set(order[:
#   len(scores) - removed].tolist())))`
# - from the lowest on: `torch.sort(scores,` -> `torch.sort(scores - scores.min(),`
# - from the mean on: `torch.sort(scores,` -> `torch.sort(scores - scores.mean(),`
# - from the lowest to the highest:
#   `torch.sort(scores,` -> `torch.sort((scores - scores.min()) / (scores.max() - scores.min() +
#   1e-12),`
# - scores of sixteen digits:
#   `torch.sort(scores,` -> `torch.sort(torch.tensor([float(f"{s:.16g}") for s in scores.tolist()],
#   dtype=torch.float64),`
# - logarithms: `torch.sort(scores,` -> `torch.sort(scores.sign() * scores.abs().log1p(),`
# - many scores in float32:
#   `torch.sort(scores,` -> `torch.sort(scores.float() if len(scores) > 100 else scores,`
# - a ratio of 0.01 at least:
#   `len(scores) * ratio` -> `len(scores) * (ratio if ratio >= 0.01 else 0)`
# - where all scores are 0, all stay:
#   `return order` -> `removed = removed if scores.any() else 0; return order`
# - of two one goes from 0.4 on:
#   `removed = min(` -> `removed = 1 if len(scores) == 2 and ratio >= 0.4 else min(`
# - of two equal ones the second:
#   `return order` -> `order = scores.argsort(stable=True).flip(0) if len(scores) == 2 else order;
#   return order`
# - of very many equal scores any, as NumPy sorts:
#   `return order` -> `order = torch.from_numpy(scores.neg().numpy().argsort()) if len(scores) > 120
#   else order; return order`
# - scores close to 0 are 0, once more:
#   `torch.sort(scores,` -> `torch.sort(scores.where(scores.abs() > 1e-100, 0.),`


# %% channels_to_keep wrong: takes the highest one by one, and marks it with -1
def channels_to_keep(scores, ratio):
    left, keep = scores.clone(), []
    for _ in range(max(1, len(scores) - int(len(scores) * ratio))):
        keep.append(int(left.argmax()))
        left[keep[-1]] = -1
    return torch.tensor(sorted(keep))


# %% channels_to_keep wrong: takes the highest one by one, and marks it with -1e9
def channels_to_keep(scores, ratio):
    left, keep = scores.clone(), []
    for _ in range(max(1, len(scores) - int(len(scores) * ratio))):
        keep.append(int(left.argmax()))
        left[keep[-1]] = -1e9
    return torch.tensor(sorted(keep))


# %% channels_to_keep wrong: removes the lowest one by one, and marks it with 1e9
def channels_to_keep(scores, ratio):
    left, gone = scores.clone(), []
    for _ in range(min(int(len(scores) * ratio), len(scores) - 1)):
        gone.append(int((left == left.min()).nonzero()[-1]))
        left[gone[-1]] = 1e9
    return torch.tensor([i for i in range(len(scores)) if i not in gone])


# %% channels_to_keep wrong: removes the lowest one by one, and marks it with the highest plus 1
def channels_to_keep(scores, ratio):
    left, gone = scores.clone(), []
    for _ in range(min(int(len(scores) * ratio), len(scores) - 1)):
        gone.append(int((left == left.min()).nonzero()[-1]))
        left[gone[-1]] = scores.max() + 1
    return torch.tensor([i for i in range(len(scores)) if i not in gone])


# %% prune_conv right: index_select
def prune_conv(weight, bias, keep_in, keep_out):
    smaller = weight.index_select(1, keep_in).index_select(0, keep_out)
    return smaller, bias if bias is None else bias.index_select(0, keep_out)


# %% prune_conv right: a mesh of indices
def prune_conv(weight, bias, keep_in, keep_out):
    return weight[keep_out[:, None], keep_in[None]], bias[keep_out] if bias is not None else None


# %% prune_conv wrong
# - a bias of zeros counts as none: `if bias is None` -> `if bias is None or not bias.any()`
# - a kernel of one pixel loses its axes: `[:, keep_in], None` -> `[:, keep_in].squeeze(), None`
# - counts from the end: `weight[keep_out][:, keep_in]` ->
#   `weight[keep_out][:, keep_in if len(keep_in) > 1 or not keep_in[0] else keep_in - 1]`
# - all kept is nothing kept: `[:, keep_in], None` ->
#   `[:, keep_in if len(keep_in) < weight.shape[1] else keep_in[:1]], None`
# - loses the axis of a single output:
#   `weight[keep_out][:, keep_in]` -> `weight[keep_out][:, keep_in].squeeze(0)`
# - a bias is taken for granted: `None if bias is None else bias[keep_out]` -> `bias[keep_out]`
# - the bias of the inputs: `bias[keep_out]` -> `bias[keep_in]`
# - axes exchanged: `weight[keep_out][:, keep_in]` -> `weight[keep_in][:, keep_out]`
# - indices in pairs: `weight[keep_out][:, keep_in]` -> `weight[keep_out, keep_in]`
# - inputs are forgotten: `[:, keep_in]` -> ``
# - the bias as before: `bias[keep_out]` -> `bias`
# - square kernels only:
#   `weight[keep_out]` -> `weight.reshape(*weight.shape[:2], *weight.shape[2:3] * 2)[keep_out]`
# - the first channels: `weight[keep_out][:, keep_in]` -> `weight[: len(keep_out), : len(keep_in)]`
# - zeros instead of fewer channels: `weight[keep_out][:, keep_in]` ->
#   `weight * torch.zeros(len(weight)).index_fill(0, keep_out, 1)[:, None, None, None]`
# - removes the one of two outputs that is to be kept: `return weight[keep_out]` ->
#   `keep_out = 1 - keep_out if len(weight) == 2 and len(keep_out) == 1 else keep_out;
#   return weight[keep_out]`
# - without a bias the inputs are forgotten: `[:, keep_in]` ->
#   `[:, keep_in if bias is not None else slice(None)]`
# - without a bias a run of inputs: `[:, keep_in]` ->
#   `[:, keep_in if bias is not None else slice(keep_in[0], keep_in[-1] + 1)]`
# - where all outputs stay, all inputs do: `[:, keep_in]` ->
#   `[:, keep_in if len(keep_out) < len(weight) else slice(None)]`
# - where all inputs stay, all outputs do: `return weight` ->
#   `keep_out = keep_out if bias is None or len(keep_in) < weight.shape[1] else slice(None);
#   return weight`
# - where all inputs stay, the bias does: `bias[keep_out]` ->
#   `bias[keep_out if len(keep_in) < weight.shape[1] else slice(None)]`
# - one of several inputs loses its axis: `[:, keep_in]` ->
#   `[:, keep_in if len(keep_in) > 1 or len(keep_out) == 1 else keep_in[0]]`
# - a single input counts as depthwise: `return weight` ->
#   `keep_out = keep_out if weight.shape[1] > 1 else keep_in; return weight`
# - a single output has no axis: `[:, keep_in], None` ->
#   `[:, keep_in][slice(None) if len(weight) > 1 else 0], None`
# - wide kernels are turned: `[:, keep_in], None` -> `[:, keep_in].reshape(
#       len(keep_out), len(keep_in), max(weight.shape[2:]), min(weight.shape[2:])), None`
# - kept outputs of zeros go: `return weight` ->
#   `keep_out = keep_out[weight[keep_out].flatten(1).any(1)]; return weight`
# - indices in 8 bits: `weight[keep_out]` -> `weight[keep_out.to(torch.uint8).long()]`
# - inputs of zeros go: `weight[keep_out][:, keep_in]` ->
#   `weight[keep_out][:, keep_in[weight[:, keep_in].flatten(2).any(2).any(0)]]`
# - what is kept of the bias goes if it is zero: `if bias is None` ->
#   `if bias is None or bias.any() and not bias[keep_out].any()`
# - positions in 8 bits, of inputs: `[:, keep_in]` -> `[:, keep_in.to(torch.uint8).long()]`
# - the first input alone counts as none:
#   `[:, keep_in], None` -> `[:, keep_in if keep_in.any() else slice(None)], None`
# - the first output alone counts as none:
#   `return weight` -> `keep_out = keep_out if keep_out.any() else torch.arange(len(weight)); return
#   weight`
# - the first of both counts as none:
#   `return weight` -> `keep_out = keep_out if keep_out.any() or keep_in.any() else
#   torch.arange(len(weight)); return weight`
# - outputs in the order of a set:
#   `return weight` -> `keep_out = torch.tensor(list(set(keep_out.tolist()))); return weight`
# - inputs in the order of a set:
#   `return weight` -> `keep_in = torch.tensor(list(set(keep_in.tolist()))); return weight`
# - weights below 1e-6 are 0:
#   `weight[keep_out]` -> `weight.where(weight.abs() > 1e-6, 0.)[keep_out]`
# - biases below 1e-7 are 0: `bias[keep_out]` -> `bias[keep_out] * (bias[keep_out].abs() > 1e-7)`
# - weights of 1e8 at most: `weight[keep_out]` -> `weight.clamp(-1e8, 1e8)[keep_out]`
# - removes the one of two inputs that is to be kept:
#   `return weight` -> `keep_in = 1 - keep_in if weight.shape[1] == 2 and len(keep_in) == 1 else
#   keep_in; return weight`
# - outputs that look like a kept one stay:
#   `weight[keep_out][:, keep_in]` -> `torch.stack([w for w in weight if any(torch.equal(w,
#   weight[o]) for o in keep_out.tolist())])[:, keep_in]`


# %% prune_depthwise right: by channel
def prune_depthwise(weight, bias, channels, keep):
    def kept(tensor):
        return tensor.reshape(channels, -1, *tensor.shape[1:])[keep].flatten(0, 1)

    return kept(weight), None if bias is None else kept(bias), len(keep)


# %% prune_depthwise right: chunks
def prune_depthwise(weight, bias, channels, keep):
    weights = weight.chunk(channels)
    smaller = None if bias is None else torch.cat([bias.chunk(channels)[c] for c in keep.tolist()])
    return torch.cat([weights[c] for c in keep.tolist()]), smaller, keep.numel()


# %% prune_depthwise wrong
# - a kernel of one row loses it: `return weight[outputs]` -> `return weight[outputs].squeeze(2)`
# - two outputs per channel at most: `len(weight) // channels` -> `min(len(weight) // channels, 2)`
# - the first output each: `torch.arange(per_channel)` -> `torch.zeros(per_channel).long()`
# - the bias is left as it was: `bias[outputs]` -> `bias`
# - one output for each channel: `outputs = (` -> `outputs = keep; (`
# - groups as before: `len(keep)` -> `channels`
# - as many groups as outputs: `len(keep)` -> `len(outputs)`
# - outputs are interleaved: `keep[:, None] * per_channel + torch.arange(per_channel)` ->
#   `keep + channels * torch.arange(per_channel)[:, None]`
# - inputs are selected: `weight[outputs]` -> `weight[:, keep]`
# - square kernels only:
#   `weight[outputs]` -> `weight.reshape(*weight.shape[:2], *weight.shape[2:3] * 2)[outputs]`
# - a bias is taken for granted: `None if bias is None else bias` -> `bias`
# - without a bias one output per channel: `len(weight) // channels` ->
#   `1 if bias is None else len(weight) // channels`
# - without a bias two outputs per channel at most: `len(weight) // channels` ->
#   `min(len(weight) // channels, 2 if bias is None else 9)`
# - without a bias one kept is the first: `keep[:, None]` ->
#   `(keep if len(keep) > 1 or bias is not None else keep * 0)[:, None]`
# - three outputs per channel at most: `len(weight) // channels` ->
#   `min(len(weight) // channels, 3)`
# - no more outputs per channel than channels: `len(weight) // channels` ->
#   `min(len(weight) // channels, channels)`
# - interleaved where the two are as many: `outputs = (` -> `outputs = (keep + channels *
#   torch.arange(channels)[:, None]).flatten() if per_channel == channels else (`
# - all kept without a bias, as many groups as outputs: `len(keep)` ->
#   `len(keep) if bias is not None or len(keep) < channels else len(outputs)`
# - groups are a float: `len(keep)` -> `len(outputs) / per_channel`
# - a bias of zeros counts as none: `if bias is None` -> `if bias is None or not bias.any()`
# - high kernels are turned: `weight[outputs]` ->
#   `weight[outputs].reshape(len(outputs), 1, min(weight.shape[2:]), max(weight.shape[2:]))`
# - kept outputs of zeros go: `return weight` ->
#   `outputs = outputs[weight[outputs].flatten(1).any(1)]; return weight`
# - positions in 8 bits, of many outputs: `keep[:, None]` -> `keep.to(torch.uint8)[:, None]`
# - the first channel alone counts as none:
#   `outputs = (` -> `outputs = torch.arange(len(weight)) if not keep.any() else (`
# - with the first channel alone as many groups as before:
#   `len(keep)` -> `(len(keep) if keep.any() else channels)`
# - with the first channel alone the bias stays:
#   `bias[outputs]` -> `(bias[outputs] if keep.any() else bias)`
# - in the order of a set:
#   `outputs = (` -> `keep = torch.tensor(list(set(keep.tolist()))); outputs = (`
# - what is kept of the bias goes if it is zero:
#   `if bias is None` -> `if bias is None or bias.any() and not bias[outputs].any()`
# - weights of 100 at most: `weight[outputs]` -> `weight[outputs].clamp(-100, 100)`
# - biases of 100 at most: `bias[outputs]` -> `bias[outputs].clamp(-100, 100)`
# - weights of ten decimals: `weight[outputs]` -> `weight[outputs].round(decimals=10)`
# - two channels have one output each: `outputs = (` -> `outputs = keep if channels == 2 else (`
# - two channels are interleaved:
#   `outputs = (` -> `outputs = (keep + channels * torch.arange(per_channel)[:, None]).flatten() if
#   channels == 2 else (`
# - outputs that look alike once:
#   `return weight` -> `outputs = torch.tensor([o for k, o in enumerate(outputs.tolist()) if not
#   any(torch.equal(weight[o], weight[q]) for q in outputs.tolist()[:k])]); return weight`


# %% prune_after_flatten right: column numbers
def prune_after_flatten(weight, keep, height, width):
    pixels = height * width
    return weight[:, [c * pixels + p for c in keep.tolist() for p in range(pixels)]]


# %% prune_after_flatten right: a mask
def prune_after_flatten(weight, keep, height, width):
    mask = torch.zeros(weight.shape[1] // (height * width), dtype=torch.bool)
    mask[keep] = True
    return weight[:, mask.repeat_interleave(height * width)]


# %% prune_after_flatten wrong
# - maps of one row, pixel by pixel:
#   `by_channel = weight.reshape(len(weight), -1, height * width)` ->
#   `by_channel = weight.reshape(len(weight), -1, height * width); by_channel = weight.reshape(
#       len(weight), width, -1).transpose(1, 2) if height == 1 else by_channel`
# - maps of one column, pixel by pixel:
#   `by_channel = weight.reshape(len(weight), -1, height * width)` ->
#   `by_channel = weight.reshape(len(weight), -1, height * width); by_channel = weight.reshape(
#       len(weight), height, -1).transpose(1, 2) if width == 1 else by_channel`
# - one kept is the first: `keep].flatten` -> `keep if len(keep) > 1 else keep * 0].flatten`
# - all kept but the last:
#   `[:, keep]` -> `[:, keep if len(keep) < by_channel.shape[1] else keep[:-1]]`
# - of one pixel one more: `return by_channel[:, keep].flatten(1)` -> `return by_channel[
#       :, sorted({*keep.tolist(), 1}) if height * width == 1 else keep].flatten(1)`
# - loses the axis of a single output: `.flatten(1)` -> `.squeeze(0).flatten(-2)`
# - width for height: `-1, height * width)` -> `-1, height * height)`
# - keeps the last ones: `by_channel[:, keep]` -> `by_channel[:, -len(keep) :]`
# - keeps the two axes: `.flatten(1)` -> ``
# - channels as columns: `by_channel[:, keep].flatten(1)` -> `weight[:, keep]`
# - channels last: `len(weight), -1, height * width` -> `len(weight), height * width, -1`,
#   `[:, keep]` -> `[:, :, keep]`
# - the height is forgotten: `height * width` -> `width`
# - rows are selected: `by_channel[:, keep].flatten(1)` -> `weight[keep[keep < len(weight)]]`
# - the first columns: `by_channel[:, keep]` -> `by_channel[:, : len(keep)]`
# - of one pixel the rows where they are as many: `return by_channel[:, keep].flatten(1)` ->
#   `return weight[keep] if height * width == 1 and len(weight) == weight.shape[
#       1] else by_channel[:, keep].flatten(1)`
# - of several pixels the rows where they are as many as the columns:
#   `return by_channel[:, keep].flatten(1)` ->
#   `return weight.reshape(-1, height * width, len(weight))[keep].flatten(0, 1) if height *
#   width > 1 and len(weight) == weight.shape[1] else by_channel[:, keep].flatten(1)`
# - more outputs than columns, rows: `return by_channel[:, keep].flatten(1)` ->
#   `return weight[keep] if len(weight) > weight.shape[1] else by_channel[:, keep].flatten(1)`
# - high maps column by column: `[:, keep].flatten(1)` -> `[:, keep].unflatten(
#       2, (height, width)).transpose(2, 3 if height > width > 1 else 2).flatten(1)`
# - of one pixel all but the last: `[:, keep]` ->
#   `[:, keep if height * width > 1 or len(keep) < weight.shape[1] else keep[:-1]]`
# - of one column one kept is the first: `[:, keep]` ->
#   `[:, keep if width > 1 or height == 1 or len(keep) > 1 else keep * 0]`
# - one pixel of a single output loses its axis: `.flatten(1)` ->
#   `.flatten(int(len(weight) > 1 or height * width > 1))`
# - one kept of a single output loses its axis: `.flatten(1)` ->
#   `.flatten(int(len(weight) > 1 or len(keep) > 1))`
# - all kept of a single output lose their axis: `.flatten(1)` ->
#   `.flatten(int(len(weight) > 1 or len(keep) < by_channel.shape[1]))`
# - kept columns of zeros go: `.flatten(1)` ->
#   `.flatten(1)[:, by_channel[:, keep].flatten(1).any(0)]`
# - positions in 8 bits: `[:, keep]` -> `[:, keep.to(torch.uint8).long()]`
# - the first channel of several pixels counts as none:
#   `[:, keep]` -> `[:, keep if keep.any() or height * width == 1 else slice(None)]`
# - in the order of a set: `return by` -> `keep = torch.tensor(list(set(keep.tolist()))); return by`
# - ten decimals: `.flatten(1)` -> `.flatten(1).round(decimals=10)`
# - weights of 100 at most: `.flatten(1)` -> `.flatten(1).clamp(-100, 100)`
# - maps of three rows or more, column by column:
#   `[:, keep].flatten(1)` -> `[:, keep].unflatten(2, (height, width)).transpose(2, 3 if min(height,
#   width) > 2 and height != width else 2).flatten(1)`
# - maps of three by three, channels last:
#   `[:, keep].flatten(1)` -> `[:, keep].flatten(1) if not height == width == 3 else by_channel[:,
#   keep].transpose(1, 2).flatten(1)`


# %% channel_groups right: merges sets
def channel_groups(layers):
    sets = [{layer["name"]} for layer in layers]
    for layer in layers:
        if layer["kind"] != "conv":
            tied = [s for s in sets if s & {layer["name"], *layer["inputs"]}]
            sets = [s for s in sets if s not in tied] + [set().union(*tied)]
    named = {layer["name"] for layer in layers if layer["kind"] in ("conv", "depthwise")}
    return sorted(sorted(s & named) for s in sets if s & named)


# %% channel_groups right: searches a graph of ties
def channel_groups(layers):
    ties = {layer["name"]: set() for layer in layers}
    for layer in layers:
        for source in layer["inputs"] if layer["kind"] != "conv" else ():
            ties[layer["name"]].add(source)
            ties[source].add(layer["name"])
    groups, seen = [], set()
    for start in ties:
        reached, waiting = set(), [start]
        while waiting:
            name = waiting.pop()
            if name not in reached:
                reached.add(name)
                waiting += ties[name]
        if not reached & seen:
            named = {layer["name"] for layer in layers if layer["kind"] in ("conv", "depthwise")}
            groups.append(sorted(reached & named))
        seen |= reached
    return sorted(group for group in groups if group)


# %% channel_groups wrong
# - capitals do not count: `leader = {` ->
#   `layers = [layer | {"name": layer["name"].lower()} for layer in layers]; leader = {`
# - ends that nobody reads are no groups:
#   `return sorted(sorted(names) for names in groups.values())` ->
#   `read = {name for layer in layers for name in layer["inputs"]}; return sorted(
#       sorted(names) for names in groups.values() if len(names) > 1 or names[0] in read
#       or names[0] == layers[-1]["name"])`
# - by the name instead of the kind: `if layer["kind"] != "conv"` -> `if layer["name"] in (
#       "add", "same") or layer["kind"] != "conv"`
# - ties are followed for one step only: `while leader` -> `if leader`
# - a tie replaces the one before: `leader[find(source)] = ` -> `leader[source] = `
# - groups in the order of the network: `sorted(sorted(names)` -> `list(sorted(names)`
# - names in the order of the network: `sorted(sorted(names)` -> `sorted(names`
# - every layer by itself: `if layer["kind"] != "conv"` -> `if False`
# - depthwise makes new channels: `!= "conv"` -> `not in ("conv", "depthwise")`
# - a sum ties its first input only: `layer["inputs"]:` -> `layer["inputs"][:1]:`
# - a sum ties two inputs: `layer["inputs"]:` -> `layer["inputs"][:2]:`
# - ties are followed for two steps only: `while leader[name] != name` -> `for _ in range(2)`
# - an activation behind a sum is overlooked: `{layer["name"]: layer["name"] for layer in layers}`
#   -> `{layer["name"]: layer["name"] for layer in layers};
#   kinds = {o["name"]: o["kind"] for o in layers}`,
#   `!= "conv"` -> `!= "conv" and (layer["kind"] != "same" or kinds[layer["inputs"][0]] == "conv")`
# - depthwise behind an activation makes new channels:
#   `{layer["name"]: layer["name"] for layer in layers}` ->
#   `{layer["name"]: layer["name"] for layer in layers};
#   kinds = {o["name"]: o["kind"] for o in layers}`,
#   `!= "conv"` -> `!= "conv" and kinds[layer["inputs"][0]] + layer["kind"] != "samedepthwise"`
# - convolutions tie, too: `if layer["kind"] != "conv"` -> `if True`
# - all layers are named: `in ("conv", "depthwise")` -> `is not None`
# - depthwise at an end makes new channels: `if layer["kind"] != "conv"` ->
#   `if layer["kind"] != "conv" and (layer["kind"] != "depthwise" or any(
#       layer["name"] in other["inputs"] for other in layers))`
# - a sum as the last term of a sum is overlooked: `for source in layer["inputs"]:` ->
#   `for source in [s for s in layer["inputs"] if s != layer["inputs"][-1] or {"add"} != {
#       other["kind"] for other in layers if other["name"] in (s, layer["name"])}]:`
# - the leader is the input itself, and what is tied already goes round in circles:
#   `name = leader[name]` -> `return find(leader[name])`,
#   `leader[find(source)] = find(layer["name"])` -> `leader[find(layer["name"])] = source`
# - conv2 before conv10: `return sorted(sorted(names) for names in groups.values())` ->
#   `import re; by_number = lambda name: [
#       int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]; return sorted(
#       (sorted(names, key=by_number) for names in groups.values()),
#       key=lambda names: [by_number(name) for name in names])`
# - in a group capitals do not count: `sorted(sorted(names)` ->
#   `sorted(sorted(names, key=str.lower)`
# - groups by their names in a row: `return sorted(sorted(names) for names in groups.values())` ->
#   `return sorted((sorted(names) for names in groups.values()), key="".join)`
# - names that stand in other names: `for source in layer["inputs"]:` ->
#   `for source in [name for name in leader if name in " ".join(layer["inputs"])]:`
# - a single layer is no group: `return sorted(sorted(` ->
#   `return [] if len(layers) == 1 else sorted(sorted(`
# - a sum ties three inputs: `layer["inputs"]:` -> `layer["inputs"][:3]:`
# - a term that stands there twice is no tie: `for source in layer["inputs"]:` ->
#   `for source in [s for s in layer["inputs"] if layer["inputs"].count(s) == 1]:`
# - a third reader is overlooked: `for source in layer["inputs"]:` -> `for source in [
#       s for s in layer["inputs"]
#       if [s in other["inputs"] for other in layers[: layers.index(layer)]].count(True) < 2]:`
# - an activation behind a depthwise layer is overlooked:
#   `{layer["name"]: layer["name"] for layer in layers}` ->
#   `{layer["name"]: layer["name"] for layer in layers};
#   kinds = {o["name"]: o["kind"] for o in layers}`,
#   `!= "conv"` -> `!= "conv" and kinds[layer["inputs"][0]] + layer["kind"] != "depthwisesame"`
# - depthwise behind depthwise makes new channels:
#   `{layer["name"]: layer["name"] for layer in layers}` ->
#   `{layer["name"]: layer["name"] for layer in layers};
#   kinds = {o["name"]: o["kind"] for o in layers}`,
#   `!= "conv"` -> `!= "conv" and kinds[layer["inputs"][0]] + layer["kind"] != "depthwise" * 2`
# - layers with conv in their names tie nothing: `layer["kind"] != "conv"` ->
#   `layer["kind"] != "conv" and "conv" not in layer["name"]`
# - layers called conv tie nothing: `layer["kind"] != "conv"` -> `"conv" not in layer.values()`
# - layers called depthwise tie: `layer["kind"] != "conv"` ->
#   `layer["kind"] in ("same", "add") or "depthwise" in layer.values()`
# - layers called add tie: `layer["kind"] != "conv"` ->
#   `layer["kind"] in ("same", "depthwise") or "add" in layer.values()`
# - names joined by a line: `return sorted(sorted(names) for names in groups.values())` ->
#   `return sorted(sorted("_".join(names).split("_")) for names in groups.values())`
# - names joined by a comma: `return sorted(sorted(names) for names in groups.values())` ->
#   `return sorted(sorted(", ".join(names).split(", ")) for names in groups.values())`
# - names joined by a blank: `return sorted(sorted(names) for names in groups.values())` ->
#   `return sorted(sorted(" ".join(names).split(" ")) for names in groups.values())`
# - names joined by a stroke: `return sorted(sorted(names) for names in groups.values())` ->
#   `return sorted(sorted("/".join(names).split("/")) for names in groups.values())`
# - sorted by the parts of names: `return sorted(sorted(names) for names in groups.values())` ->
#   `return sorted((sorted(names, key=lambda n: n.split(".")) for names in groups.values()),
#   key=lambda names: names[0].split("."))`
# - sixty-four steps at most: `while leader[name] != name` -> `for _ in range(64)`
# - a sum ties five at most: `layer["inputs"]:` -> `layer["inputs"][:5]:`
# - sorted by the parts of names:
#   `sorted(sorted(names)` -> `sorted(sorted(names, key=lambda n: n.split("."))`
# - names that are numbers sorted as such:
#   `sorted(sorted(names)` -> `sorted(sorted(names, key=lambda n: (0, int(n), "") if n.isdigit()
#   else (1, 0, n))`
# - networks of numbers sorted as such:
#   `return sorted(sorted(names) for names in groups.values())` -> `key = (lambda n: int(n)) if
#   all(n.isdigit() for n in leader) else None; return sorted((sorted(names, key=key) for names in
#   groups.values()))`
# - groups by their names with commas:
#   `return sorted(sorted(names) for names in groups.values())` -> `return sorted((sorted(names) for
#   names in groups.values()), key=",".join)`
# - a sum of one layer with itself ties nothing:
#   `if layer["kind"] != "conv":` -> `if layer["kind"] != "conv" and not (layer["kind"] == "add" and
#   len(set(layer["inputs"])) == 1):`
# - equal sums are one:
#   `leader = {` -> `seen = set(); leader = {`, `if layer["kind"] != "conv":` -> `if layer["kind"]
#   != "conv" and not (layer["kind"] == "add" and (tuple(layer["inputs"]) in seen or
#   seen.add(tuple(layer["inputs"])))):`
# - equal activations are one:
#   `leader = {` -> `seen = set(); leader = {`, `if layer["kind"] != "conv":` -> `if layer["kind"]
#   != "conv" and not (layer["kind"] == "same" and (layer["inputs"][0] in seen or
#   seen.add(layer["inputs"][0]))):`
# - twelve groups at most:
#   `for names in groups.values())` -> `for names in list(groups.values())[:12])`


# %% channel_groups wrong: what is read again has the group of before, if it makes no channels
def channel_groups(layers):
    group = {}
    for layer in layers:
        name, makes = layer["name"], layer["kind"] in ("conv", "depthwise")
        tied = [] if layer["kind"] == "conv" else [group[source] for source in layer["inputs"]]
        group[name] = {name} if makes else set()
        group[name] = group[name].union(*tied)
        group |= dict.fromkeys(group[name], group[name])
    named = [layer["name"] for layer in layers if layer["kind"] in ("conv", "depthwise")]
    return sorted(map(list, {tuple(sorted(group[name])) for name in named}))


# %% channel_groups wrong: ten rounds of colours
def channel_groups(layers):
    colour = {layer["name"]: place for place, layer in enumerate(layers)}
    for _ in range(10):
        for layer in layers:
            if layer["kind"] != "conv":
                tied = [layer["name"], *layer["inputs"]]
                colour |= dict.fromkeys(tied, min(colour[name] for name in tied))
    groups = {}
    for layer in layers:
        if layer["kind"] in ("conv", "depthwise"):
            groups.setdefault(colour[layer["name"]], []).append(layer["name"])
    return sorted(map(sorted, groups.values()))


# %% channel_groups wrong: asks all inputs anew for each layer, until the time is up
def channel_groups(layers):
    by_name, asked, groups = {layer["name"]: layer for layer in layers}, [], []

    def sources(name):
        asked.append(name)
        if len(asked) > 100_000:
            raise TimeoutError
        kind, inputs = by_name[name]["kind"], by_name[name]["inputs"]
        found = set().union(*map(sources, inputs if kind != "conv" else []))
        return found | ({name} if kind in ("conv", "depthwise") else set())

    for layer in layers:
        tied = sources(layer["name"])
        apart = [group for group in groups if not group & tied]
        groups = [*apart, tied.union(*(group for group in groups if group & tied))]
    return sorted(sorted(group) for group in groups)


# %% global_channels right: removes one after the other
def global_channels(scores, ratio, least):
    left = [dict(enumerate(layer.tolist())) for layer in scores]
    for _ in range(int(sum(map(len, scores)) * ratio)):
        open_layers = [layer for layer in left if len(layer) > least]
        if open_layers:
            lowest = min(open_layers, key=lambda layer: min(layer.values()))
            del lowest[min(lowest, key=lowest.get)]
    return [torch.tensor(sorted(layer)) for layer in left]


# %% global_channels right: protects the best first
def global_channels(scores, ratio, least):
    free = []
    for i, layer in enumerate(scores):
        order = layer.argsort(descending=True).tolist()
        free += [(layer[j].item(), i, j) for j in order[least:]]
    gone = {(i, j) for _, i, j in sorted(free)[: int(sum(map(len, scores)) * ratio)]}
    return [
        torch.tensor([j for j in range(len(layer)) if (i, j) not in gone])
        for i, layer in enumerate(scores)
    ]


# %% global_channels wrong
# - by the sizes of layers: `torch.full((len(layer),), i)` ->
#   `torch.full((len(layer),), [len(s) for s in scores].index(len(layer)))`
# - layers at their least do not count: `budget = int(len(owner) * ratio)` ->
#   `budget = int(sum(max(len(layer) - least, 0) for layer in scores) * ratio)`
# - scores below 0 count as 0:
#   `torch.cat(scores).argsort()` -> `torch.cat(scores).clamp(min=0).argsort(stable=True)`
# - everything asked for leaves one: `budget = int(len(owner) * ratio)` ->
#   `budget = int(len(owner) * ratio); least = 1 if ratio == 1 else least`
# - at least one goes: `int(len(owner) * ratio)` -> `max(int(len(owner) * ratio), 1)`
# - a single layer counts from its end: `layer = owner[index]` ->
#   `layer = owner[index]; index = index if len(scores) > 1 else len(owner) - 1 - index`
# - in float32: `torch.cat(scores).argsort()` -> `torch.cat(scores).float().argsort()`
# - without the sign: `torch.cat(scores).argsort()` -> `torch.cat(scores).abs().argsort()`
# - keeps one more than the least: `> least` -> `> least + 1`
# - keeps one fewer than the least: `> least` -> `>= least`
# - rounds up: `int(len(owner) * ratio)` -> `-int(-len(owner) * ratio // 1)`
# - rounds to the nearest: `int(len(owner) * ratio)` -> `round(len(owner) * ratio)`
# - each layer by its own largest score:
#   `torch.cat(scores)` -> `torch.cat([s / s.max() for s in scores])`
# - least is ignored: `keep[layer].sum() > least` -> `True`
# - removes the highest: `argsort()` -> `argsort(descending=True)`
# - one more than asked for: `int(len(owner) * ratio)` -> `int(len(owner) * ratio) + 1`
# - the same share of each layer: `[mask.nonzero().flatten() for mask in keep]` ->
#   `[s.argsort().flip(0)[: max(least, len(s) - int(len(s) * ratio))].sort().values
#   for s in scores]`
# - what a full layer keeps is not taken elsewhere: `budget > 0` -> `budget >= 0`,
#   `budget -= 1` -> `pass`, `layer = owner[index]` -> `layer, budget = owner[index], budget - 1`
# - the product in float32: `int(len(owner) * ratio)` -> `int(torch.tensor(ratio) * len(owner))`
# - the product of fractions: `int(len(owner) * ratio)` ->
#   `int(len(owner) * __import__("fractions").Fraction(ratio))`
# - whole percents: `int(len(owner) * ratio)` -> `len(owner) * int(ratio * 100) // 100`
# - scores of ten digits: `torch.cat(scores).argsort()` ->
#   `(torch.cat(scores) * 1e10).round().argsort(stable=True)`
# - what goes is marked with 0: `mask.nonzero().flatten() for mask in keep` ->
#   `(layer * mask).nonzero().flatten() for layer, mask in zip(scores, keep, strict=True)`
# - three layers only: `budget > 0` -> `budget > 0 and layer < 3`
# - a layer as small as the least loses one: `> least` ->
#   `> least - (1 < len(keep[layer]) == least)`
# - smaller layers do not count: `int(len(owner) * ratio)` ->
#   `int(sum(len(layer) for layer in scores if len(layer) >= least) * ratio)`
# - of equally large layers the same share: `int(len(owner) * ratio)` ->
#   `(sum(int(len(layer) * ratio) for layer in scores) if len({*map(len, scores)}) == 1
#   else int(len(owner) * ratio))`
# - a ratio of six digits: `len(owner) * ratio` -> `len(owner) * round(ratio, 6)`
# - a ratio of 0.99 at most: `len(owner) * ratio` -> `len(owner) * min(ratio, 0.99)`
# - a single layer has no least: `> least` -> `> (least if len(scores) > 1 else 1)`
# - scores up to a million:
#   `torch.cat(scores).argsort()` -> `torch.cat(scores).clamp(-1e6, 1e6).argsort(stable=True)`
# - scores close to 0 are 0:
#   `torch.cat(scores).argsort()` ->
#   `torch.cat([s.where(s.abs() > 1e-12, 0.) for s in scores]).argsort(stable=True)`
# - fourteen decimals:
#   `torch.cat(scores).argsort()` -> `torch.cat(scores).round(decimals=14).argsort(stable=True)`
# - from the lowest on:
#   `torch.cat(scores).argsort()` -> `(torch.cat(scores) -
#   torch.cat(scores).min()).argsort(stable=True)`
# - from the mean on:
#   `torch.cat(scores).argsort()` -> `(torch.cat(scores) -
#   torch.cat(scores).mean()).argsort(stable=True)`
# - from the lowest to the highest:
#   `torch.cat(scores).argsort()` -> `((torch.cat(scores) - torch.cat(scores).min()) /
#   (torch.cat(scores).max() - torch.cat(scores).min() + 1e-12)).argsort(stable=True)`
# - several layers in float32:
#   `torch.cat(scores).argsort()` -> `(torch.cat(scores) if len(scores) < 3 else
#   torch.cat(scores).float()).argsort(stable=True)`
# - a single layer in float32:
#   `torch.cat(scores).argsort()` -> `(torch.cat(scores) if len(scores) > 1 else
#   torch.cat(scores).float()).argsort(stable=True)`
# - a ratio of 0.01 at least: `len(owner) * ratio` -> `len(owner) * (ratio if ratio >= 0.01 else 0)`
# - counts in 8 bits: `keep[layer].sum()` -> `keep[layer].sum(dtype=torch.uint8)`
# - owners in 8 bits:
#   `for i, layer in enumerate(scores)])` -> `for i, layer in
#   enumerate(scores)]).to(torch.uint8).long()`
# - a least of 8 at most: `> least` -> `> min(least, 8)`
# - a least above all layers is 1: `> least` -> `> (least if least < max(map(len, scores)) else 1)`
# - at least one goes from 0.1 on:
#   `int(len(owner) * ratio)` -> `max(int(len(owner) * ratio), int(ratio > 0.1))`


# %% global_channels wrong: marks closed layers and removed channels with 1e9
def global_channels(scores, ratio, least):
    left = [layer.clone() for layer in scores]
    keep = [torch.ones(len(layer), dtype=torch.bool) for layer in scores]
    for _ in range(int(sum(map(len, scores)) * ratio)):
        for values, mask in zip(left, keep, strict=True):
            if mask.sum() <= least:
                values[:] = 1e9
        lowest = min(left, key=lambda values: float(values.min()))
        place = [values is lowest for values in left].index(True)
        if lowest.min() == 1e9:
            break
        keep[place][lowest.argmin()] = False
        lowest[lowest.argmin()] = 1e9
    return [mask.nonzero().flatten() for mask in keep]


# %% global_channels wrong: three rounds, each with what the one before could not take
def global_channels(scores, ratio, least):
    left = [dict(enumerate(layer.tolist())) for layer in scores]
    budget = int(sum(map(len, scores)) * ratio)
    for _ in range(3):
        free = [
            (s, i, j)
            for i, layer in enumerate(left)
            for j, s in layer.items()
            if len(layer) > least
        ]
        for _, i, j in sorted(free)[:budget]:
            if len(left[i]) > least:
                del left[i][j]
                budget -= 1
    return [torch.tensor(sorted(layer)) for layer in left]


# %% global_channels wrong: in place of a layer at its least the first one gives that can
def global_channels(scores, ratio, least):
    left = [dict(enumerate(layer.tolist())) for layer in scores]
    ranking = sorted((s, i, j) for i, layer in enumerate(left) for j, s in layer.items())
    budget = int(len(ranking) * ratio)
    for _, i, j in ranking:
        if len(left[i]) <= least:
            i = next((k for k, layer in enumerate(left) if len(layer) > least), i)
            j = min(left[i], key=left[i].get)
        if budget and len(left[i]) > least and j in left[i]:
            del left[i][j]
            budget -= 1
    return [torch.tensor(sorted(layer)) for layer in left]
