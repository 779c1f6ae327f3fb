# ruff: noqa: F811
"""Right and wrong answers to a3. Secret. Every wrong one is a plausible mistake that must earn nothing.

Each section replaces one function of the source notebook's solutions: `# %% <item> <right or wrong>: <what it is>`.
"""

import torch

# A mistake as one line: what it is, and how the notebook's solution is changed.
# %% prune_depthwise wrong: the first output each: `torch.arange(per_channel)` -> `torch.zeros(per_channel).long()`
# %% channel_groups wrong: ties are followed for one step only: `while leader` -> `if leader`
# %% channel_groups wrong: a tie replaces the one before: `leader[find(source)] = ` -> `leader[source] = `
# %% channel_groups wrong: groups in the order of the network: `sorted(sorted(names)` -> `list(sorted(names)`
# %% channel_groups wrong: names in the order of the network: `sorted(sorted(names)` -> `sorted(names`
# %% norm_importance wrong: changes its weight: `weight.flatten(1).abs()` -> `weight.flatten(1).abs_()`
# %% norm_importance wrong: the square of the 2-norm: ` ** (1 / p)` -> ``
# %% norm_importance wrong: summed over inputs first: `weight.flatten(1)` -> `weight.sum(1).flatten(1)`
# %% taylor_importance wrong: the square instead of the absolute value: `.abs().mean(dim=0)` -> `.square().mean(dim=0)`
# %% taylor_importance wrong: changes its input: `(activation * gradient)` -> `activation.mul_(gradient)`
# %% channels_to_keep wrong: rounds to nearest: `int(len(scores) * ratio)` -> `round(len(scores) * ratio)`
# %% channels_to_keep wrong: the first channels: `stable=True).indices` -> `stable=True).indices.sort().values`
# %% prune_conv wrong: a bias is taken for granted: `None if bias is None else bias[keep_out]` -> `bias[keep_out]`
# %% prune_conv wrong: the bias of the inputs: `bias[keep_out]` -> `bias[keep_in]`
# %% prune_depthwise wrong: the bias is left as it was: `bias[outputs]` -> `bias`
# %% prune_after_flatten wrong: width for height: `-1, height * width)` -> `-1, height * height)`
# %% prune_after_flatten wrong: keeps the last ones: `by_channel[:, keep]` -> `by_channel[:, -len(keep) :]`
# %% prune_after_flatten wrong: keeps the two axes: `.flatten(1)` -> ``
# %% global_channels wrong: keeps one more than the least: `> least` -> `> least + 1`
# %% global_channels wrong: keeps one fewer than the least: `> least` -> `>= least`
# %% global_channels wrong: rounds to nearest: `int(len(owner) * ratio)` -> `math.ceil(len(owner) * ratio)`


# %% norm_importance right: torch's vector norm
def norm_importance(weight, p):
    return torch.linalg.vector_norm(weight.flatten(1), ord=p, dim=1)


# %% norm_importance right: channel by channel
def norm_importance(weight, p):
    return torch.stack([row.abs().pow(p).sum().pow(1 / p) for row in weight])


# %% norm_importance wrong: per input channel
def norm_importance(weight, p):
    return torch.linalg.vector_norm(weight.transpose(0, 1).flatten(1), ord=p, dim=1)


# %% norm_importance wrong: no root
def norm_importance(weight, p):
    return (weight.flatten(1).abs() ** p).sum(1)


# %% norm_importance wrong: no absolute value
def norm_importance(weight, p):
    return weight.flatten(1).sum(1)


# %% norm_importance wrong: mean instead of sum
def norm_importance(weight, p):
    return (weight.flatten(1).abs() ** p).mean(1) ** (1 / p)


# %% norm_importance wrong: always the 1-norm
def norm_importance(weight, p):
    return weight.flatten(1).abs().sum(1)


# %% taylor_importance right: einsum
def taylor_importance(activation, gradient):
    return torch.einsum("nchw,nchw->nc", activation, gradient).abs().mean(0)


# %% taylor_importance right: flattened
def taylor_importance(activation, gradient):
    return (activation.flatten(2) * gradient.flatten(2)).sum(-1).abs().sum(0) / len(activation)


# %% taylor_importance wrong: absolute value before the sum
def taylor_importance(activation, gradient):
    return (activation * gradient).abs().sum((2, 3)).mean(0)


# %% taylor_importance wrong: absolute value after the mean
def taylor_importance(activation, gradient):
    return (activation * gradient).sum((2, 3)).mean(0).abs()


# %% taylor_importance wrong: sum over the batch
def taylor_importance(activation, gradient):
    return (activation * gradient).sum((2, 3)).abs().sum(0)


# %% taylor_importance wrong: mean over pixels
def taylor_importance(activation, gradient):
    return (activation * gradient).mean((2, 3)).abs().mean(0)


# %% taylor_importance wrong: gradient alone
def taylor_importance(activation, gradient):
    return gradient.sum((2, 3)).abs().mean(0)


# %% taylor_importance wrong: per image
def taylor_importance(activation, gradient):
    return (activation * gradient).sum((2, 3)).abs().mean(1)


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


# %% channels_to_keep wrong: keeps the lowest
def channels_to_keep(scores, ratio):
    return scores.argsort(stable=True)[: max(1, len(scores) - int(len(scores) * ratio))].sort().values


# %% channels_to_keep wrong: not sorted
def channels_to_keep(scores, ratio):
    stay = max(1, len(scores) - int(len(scores) * ratio))
    return torch.sort(scores, descending=True, stable=True).indices[:stay]


# %% channels_to_keep wrong: nothing may be left
def channels_to_keep(scores, ratio):
    stay = len(scores) - int(len(scores) * ratio)
    return torch.sort(scores, descending=True, stable=True).indices[:stay].sort().values


# %% channels_to_keep wrong: rounds the number kept down
def channels_to_keep(scores, ratio):
    stay = max(1, int(len(scores) * (1 - ratio)) - 1)
    return torch.sort(scores, descending=True, stable=True).indices[:stay].sort().values


# %% channels_to_keep wrong: the share that is kept
def channels_to_keep(scores, ratio):
    stay = max(1, int(len(scores) * ratio))
    return torch.sort(scores, descending=True, stable=True).indices[:stay].sort().values


# %% channels_to_keep wrong: higher index among equals
def channels_to_keep(scores, ratio):
    removed = min(int(len(scores) * ratio), len(scores) - 1)
    return scores.argsort(stable=True)[removed:].sort().values


# %% prune_conv right: index_select
def prune_conv(weight, bias, keep_in, keep_out):
    smaller = weight.index_select(1, keep_in).index_select(0, keep_out)
    return smaller, bias if bias is None else bias.index_select(0, keep_out)


# %% prune_conv right: a mesh of indices
def prune_conv(weight, bias, keep_in, keep_out):
    return weight[keep_out[:, None], keep_in[None]], bias[keep_out] if bias is not None else None


# %% prune_conv wrong: axes exchanged
def prune_conv(weight, bias, keep_in, keep_out):
    return weight[keep_in][:, keep_out], None if bias is None else bias[keep_out]


# %% prune_conv wrong: indices in pairs
def prune_conv(weight, bias, keep_in, keep_out):
    return weight[keep_out, keep_in], None if bias is None else bias[keep_out]


# %% prune_conv wrong: inputs forgotten
def prune_conv(weight, bias, keep_in, keep_out):
    return weight[keep_out], None if bias is None else bias[keep_out]


# %% prune_conv wrong: bias as before
def prune_conv(weight, bias, keep_in, keep_out):
    return weight[keep_out][:, keep_in], bias


# %% prune_conv wrong: the first channels
def prune_conv(weight, bias, keep_in, keep_out):
    return weight[: len(keep_out), : len(keep_in)], None if bias is None else bias[: len(keep_out)]


# %% prune_conv wrong: zeros instead of fewer channels
def prune_conv(weight, bias, keep_in, keep_out):
    zeroed = torch.zeros_like(weight)
    zeroed[keep_out] = weight[keep_out]
    return zeroed, bias


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


# %% prune_depthwise wrong: one output per channel taken for granted
def prune_depthwise(weight, bias, channels, keep):
    return weight[keep], None if bias is None else bias[keep], len(keep)


# %% prune_depthwise wrong: groups as before
def prune_depthwise(weight, bias, channels, keep):
    outputs = (keep[:, None] * (len(weight) // channels) + torch.arange(len(weight) // channels)).flatten()
    return weight[outputs], None if bias is None else bias[outputs], channels


# %% prune_depthwise wrong: groups of the outputs
def prune_depthwise(weight, bias, channels, keep):
    outputs = (keep[:, None] * (len(weight) // channels) + torch.arange(len(weight) // channels)).flatten()
    return weight[outputs], None if bias is None else bias[outputs], len(outputs)


# %% prune_depthwise wrong: outputs interleaved
def prune_depthwise(weight, bias, channels, keep):
    outputs = (keep[None] + channels * torch.arange(len(weight) // channels)[:, None]).flatten()
    return weight[outputs], None if bias is None else bias[outputs], len(keep)


# %% prune_depthwise wrong: inputs selected
def prune_depthwise(weight, bias, channels, keep):
    return weight[:, keep], bias, len(keep)


# %% prune_depthwise wrong: bias taken for granted
def prune_depthwise(weight, bias, channels, keep):
    outputs = (keep[:, None] * (len(weight) // channels) + torch.arange(len(weight) // channels)).flatten()
    return weight[outputs], bias[outputs], len(keep)


# %% prune_after_flatten right: column numbers
def prune_after_flatten(weight, keep, height, width):
    pixels = height * width
    return weight[:, [c * pixels + p for c in keep.tolist() for p in range(pixels)]]


# %% prune_after_flatten right: a mask
def prune_after_flatten(weight, keep, height, width):
    mask = torch.zeros(weight.shape[1] // (height * width), dtype=torch.bool)
    mask[keep] = True
    return weight[:, mask.repeat_interleave(height * width)]


# %% prune_after_flatten wrong: channels as columns
def prune_after_flatten(weight, keep, height, width):
    return weight[:, keep]


# %% prune_after_flatten wrong: channels last
def prune_after_flatten(weight, keep, height, width):
    return weight.reshape(len(weight), height * width, -1)[:, :, keep].flatten(1)


# %% prune_after_flatten wrong: height forgotten
def prune_after_flatten(weight, keep, height, width):
    columns = (keep[:, None] * width + torch.arange(width)).flatten()
    return weight[:, columns]


# %% prune_after_flatten wrong: rows selected
def prune_after_flatten(weight, keep, height, width):
    return weight[keep[keep < len(weight)]]


# %% prune_after_flatten wrong: first columns
def prune_after_flatten(weight, keep, height, width):
    return weight[:, : len(keep) * height * width]


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


# %% channel_groups wrong: every layer by itself
def channel_groups(layers):
    return sorted([layer["name"]] for layer in layers if layer["kind"] in ("conv", "depthwise"))


# %% channel_groups wrong: depthwise makes new channels
def channel_groups(layers):
    sets = [{layer["name"]} for layer in layers]
    for layer in layers:
        if layer["kind"] not in ("conv", "depthwise"):
            tied = [s for s in sets if s & {layer["name"], *layer["inputs"]}]
            sets = [s for s in sets if s not in tied] + [set().union(*tied)]
    named = {layer["name"] for layer in layers if layer["kind"] in ("conv", "depthwise")}
    return sorted(sorted(s & named) for s in sets if s & named)


# %% channel_groups wrong: a sum ties its first input only
def channel_groups(layers):
    sets = [{layer["name"]} for layer in layers]
    for layer in layers:
        if layer["kind"] != "conv":
            tied = [s for s in sets if s & {layer["name"], layer["inputs"][0]}]
            sets = [s for s in sets if s not in tied] + [set().union(*tied)]
    named = {layer["name"] for layer in layers if layer["kind"] in ("conv", "depthwise")}
    return sorted(sorted(s & named) for s in sets if s & named)


# %% channel_groups wrong: convolutions tie, too
def channel_groups(layers):
    return [sorted(layer["name"] for layer in layers if layer["kind"] in ("conv", "depthwise"))]


# %% channel_groups wrong: all layers are named
def channel_groups(layers):
    sets = [{layer["name"]} for layer in layers]
    for layer in layers:
        if layer["kind"] != "conv":
            tied = [s for s in sets if s & {layer["name"], *layer["inputs"]}]
            sets = [s for s in sets if s not in tied] + [set().union(*tied)]
    return sorted(sorted(s) for s in sets)


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
    return [torch.tensor([j for j in range(len(layer)) if (i, j) not in gone]) for i, layer in enumerate(scores)]


# %% global_channels wrong: the same share of each layer
def global_channels(scores, ratio, least):
    return [layer.argsort(descending=True)[: max(least, len(layer) - int(len(layer) * ratio))].sort().values
            for layer in scores]  # fmt: skip


# %% global_channels wrong: least ignored
def global_channels(scores, ratio, least):
    ordered = torch.cat(scores).sort().values
    removed = int(len(ordered) * ratio)
    limit = ordered[removed] if removed < len(ordered) else torch.inf
    return [(layer >= limit).nonzero().flatten() for layer in scores]


# %% global_channels wrong: what a full layer keeps is not taken elsewhere
def global_channels(scores, ratio, least):
    ordered = torch.cat(scores).sort().values
    removed = int(len(ordered) * ratio)
    limit = ordered[removed] if removed < len(ordered) else torch.inf
    kept = []
    for layer in scores:
        best = layer.argsort(descending=True)
        kept.append(best[: max(int((layer >= limit).sum()), min(least, len(layer)))].sort().values)
    return kept


# %% global_channels wrong: removes the highest
def global_channels(scores, ratio, least):
    left = [dict(enumerate(layer.tolist())) for layer in scores]
    for _ in range(int(sum(map(len, scores)) * ratio)):
        open_layers = [layer for layer in left if len(layer) > least]
        if open_layers:
            highest = max(open_layers, key=lambda layer: max(layer.values()))
            del highest[max(highest, key=highest.get)]
    return [torch.tensor(sorted(layer)) for layer in left]


# %% global_channels wrong: one more than asked for
def global_channels(scores, ratio, least):
    left = [dict(enumerate(layer.tolist())) for layer in scores]
    for _ in range(int(sum(map(len, scores)) * ratio) + 1):
        open_layers = [layer for layer in left if len(layer) > least]
        if open_layers:
            lowest = min(open_layers, key=lambda layer: min(layer.values()))
            del lowest[min(lowest, key=lowest.get)]
    return [torch.tensor(sorted(layer)) for layer in left]
