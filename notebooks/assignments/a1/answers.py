# ruff: noqa: F811
"""Right and wrong answers to a1. Secret. Every wrong one is a plausible mistake that must earn nothing.

Each section replaces one function of the source notebook's solutions: `# %% <item> <right or wrong>: <what it is>`.
"""

import math

import torch
from torch import nn

# A mistake as one line: what it is, and how the notebook's solution is changed.
# %% fold_linear wrong: b is added before a multiplies: `a * bias + b` -> `a * (bias + b)`
# %% fold_linear wrong: the absolute value of a: `a[:, None]` -> `a.abs()[:, None]`
# %% fold_conv wrong: without a bias there is none: `b if bias is None` -> `0 * b if bias is None`
# %% fold_transposed wrong: the first factor for all: `a.reshape(groups, 1, per_group, 1, 1)` -> `a[0]`
# %% fold_before wrong: a and b exchanged: `a_seen = a` -> `a_seen = b`
# %% fold_before wrong: the mean over the kernel: `weight.sum(dim=(2, 3))` -> `weight.mean(dim=(2, 3))`
# %% fold_linear wrong: changes the weight that it was given: `a[:, None] * weight` -> `weight.mul_(a[:, None])`
# %% fold_conv wrong: changes its weight: `a.reshape(shape) * weight` -> `weight.mul_(a.reshape(shape))`
# %% bn_affine wrong: changes the variance that it was given: `var + eps` -> `var.add_(eps)`
# %% bn_affine wrong: changes the mean that it was given: `-mean * a` -> `mean.neg_() * a`
# %% bn_train wrong: changes the batch that it was given: `(x - mean) / ` -> `x.sub_(mean) / `
# %% update_statistics wrong: changes its inputs: `(1 - momentum) * running_mean` -> `running_mean.mul_(1 - momentum)`
# %% update_statistics wrong: of the images' means: `x.transpose(0, 1).flatten(1)` -> `x.mean((2, 3)).T`
# %% bn_train wrong: the variance without its mean: `((x - mean) ** 2)` -> `(x ** 2)`
# %% fold_model wrong: dilation of the new convolution forgotten: `conv.padding, conv.dilation` -> `conv.padding, 1`
# %% fold_model wrong: padding of the new convolution forgotten: `conv.padding, conv.dilation` -> `0, conv.dilation`
# %% fold_model wrong: finds the last layer before the first: `layers else None` -> `layers else model[-1]`
# %% fold_model wrong: looks into the given model: `layers[-1] if layers else None` -> `model[len(layers) - 1]`
# %% fold_model wrong: takes gamma and beta for granted: `bn.weight, bn.bias` -> `bn.weight * 1, bn.bias * 1`
# %% fold_model wrong: takes statistics for granted: ` and layer.running_mean is not None` -> ``
# %% fold_transposed wrong: changes its weight: `(factor * grouped)` -> `grouped.mul_(factor)`


# %% bn_affine right: one line each
def bn_affine(gamma, beta, mean, var, eps):
    a = (1 if gamma is None else gamma) * (var + eps).rsqrt()
    return a, (0 if beta is None else beta) - a * mean


# %% bn_affine right: read off by evaluating the layer
def bn_affine(gamma, beta, mean, var, eps):
    ends = torch.stack([torch.zeros_like(mean), torch.ones_like(mean)])
    y = torch.nn.functional.batch_norm(ends, mean.clone(), var.clone(), gamma, beta, False, 0.0, eps)
    return y[1] - y[0], y[0]


# %% bn_affine wrong: eps forgotten
def bn_affine(gamma, beta, mean, var, eps):
    a = (1 if gamma is None else gamma) * var.rsqrt()
    return a, (0 if beta is None else beta) - a * mean


# %% bn_affine wrong: eps outside the root
def bn_affine(gamma, beta, mean, var, eps):
    a = (1 if gamma is None else gamma) / (var.sqrt() + eps)
    return a, (0 if beta is None else beta) - a * mean


# %% bn_affine wrong: the mean is not scaled
def bn_affine(gamma, beta, mean, var, eps):
    a = (1 if gamma is None else gamma) / (var + eps).sqrt()
    return a, (0 if beta is None else beta) - mean


# %% bn_affine wrong: affine=False forgotten
def bn_affine(gamma, beta, mean, var, eps):
    a = gamma / (var + eps).sqrt()
    return a, beta - a * mean


# %% bn_affine wrong: order of the two results
def bn_affine(gamma, beta, mean, var, eps):
    a = (1 if gamma is None else gamma) / (var + eps).sqrt()
    return (0 if beta is None else beta) - a * mean, a


# %% bn_affine wrong: sign of gamma lost
def bn_affine(gamma, beta, mean, var, eps):
    a = (1 if gamma is None else gamma.abs()) / (var + eps).sqrt()
    return a, (0 if beta is None else beta) - a * mean


# %% bn_affine wrong: the answer to the visible inputs
def bn_affine(gamma, beta, mean, var, eps):
    return torch.tensor([1.5, -0.3, 0.7], dtype=mean.dtype), torch.tensor([0.1, 0.2, 0.3], dtype=mean.dtype)


# %% update_statistics right: the layer itself does it
def update_statistics(x, running_mean, running_var, momentum):
    layer = nn.BatchNorm2d(x.shape[1], momentum=momentum, dtype=x.dtype)
    layer.running_mean.copy_(running_mean)
    layer.running_var.copy_(running_var)
    layer(x)
    return layer.running_mean, layer.running_var


# %% update_statistics right: sums and counts
def update_statistics(x, running_mean, running_var, momentum):
    count = x.numel() / x.shape[1]
    mean = x.sum((0, 2, 3)) / count
    var = ((x**2).sum((0, 2, 3)) - count * mean**2) / (count - 1)
    return torch.lerp(running_mean, mean, momentum), running_var + momentum * (var - running_var)


# %% update_statistics wrong: biased variance
def update_statistics(x, running_mean, running_var, momentum):
    mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)
    return (1 - momentum) * running_mean + momentum * mean, (1 - momentum) * running_var + momentum * var


# %% update_statistics wrong: momentum on the wrong side
def update_statistics(x, running_mean, running_var, momentum):
    mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3))
    return momentum * running_mean + (1 - momentum) * mean, momentum * running_var + (1 - momentum) * var


# %% update_statistics wrong: batch axis only
def update_statistics(x, running_mean, running_var, momentum):
    mean, var = x.mean(0).mean((1, 2)), x.var(0).mean((1, 2))
    return (1 - momentum) * running_mean + momentum * mean, (1 - momentum) * running_var + momentum * var


# %% update_statistics wrong: standard deviation instead of variance
def update_statistics(x, running_mean, running_var, momentum):
    mean, std = x.mean((0, 2, 3)), x.std((0, 2, 3))
    return (1 - momentum) * running_mean + momentum * mean, (1 - momentum) * running_var + momentum * std


# %% update_statistics wrong: the batch replaces the past
def update_statistics(x, running_mean, running_var, momentum):
    return x.mean((0, 2, 3)), x.var((0, 2, 3))


# %% update_statistics wrong: default momentum
def update_statistics(x, running_mean, running_var, momentum):
    mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3))
    return 0.9 * running_mean + 0.1 * mean, 0.9 * running_var + 0.1 * var


# %% bn_train right: var_mean
def bn_train(x, gamma, beta, eps):
    var, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0)
    a = gamma / (var + eps).sqrt()
    return torch.einsum("nchw,c->nchw", x, a) + (beta - mean * a).reshape(1, -1, 1, 1)


# %% bn_train right: one channel at a time
def bn_train(x, gamma, beta, eps):
    channels = []
    for c in range(x.shape[1]):
        values = x[:, c]
        spread = math.sqrt(((values - values.mean()) ** 2).mean().item() + eps)
        channels.append((values - values.mean()) / spread * gamma[c] + beta[c])
    return torch.stack(channels, dim=1)


# %% bn_train wrong: unbiased variance
def bn_train(x, gamma, beta, eps):
    var, mean = torch.var_mean(x, dim=(0, 2, 3), keepdim=True)
    return (x - mean) / (var + eps).sqrt() * gamma[:, None, None] + beta[:, None, None]


# %% bn_train wrong: eps forgotten
def bn_train(x, gamma, beta, eps):
    var, mean = torch.var_mean(x, dim=(0, 2, 3), keepdim=True, correction=0)
    return (x - mean) / var.sqrt() * gamma[:, None, None] + beta[:, None, None]


# %% bn_train wrong: gamma along the last axis
def bn_train(x, gamma, beta, eps):
    var, mean = torch.var_mean(x, dim=(0, 2, 3), keepdim=True, correction=0)
    return (x - mean) / (var + eps).sqrt() * gamma + beta


# %% bn_train wrong: one mean for all channels
def bn_train(x, gamma, beta, eps):
    return (x - x.mean()) / (x.var(correction=0) + eps).sqrt() * gamma[:, None, None] + beta[:, None, None]


# %% bn_train wrong: each image by itself
def bn_train(x, gamma, beta, eps):
    var, mean = torch.var_mean(x, dim=(2, 3), keepdim=True, correction=0)
    return (x - mean) / (var + eps).sqrt() * gamma[:, None, None] + beta[:, None, None]


# %% bn_train wrong: calls torch's BatchNorm
def bn_train(x, gamma, beta, eps):
    return torch.nn.functional.batch_norm(x, None, None, gamma, beta, True, 0.1, eps)


# %% fold_linear right: a diagonal matrix
def fold_linear(weight, bias, a, b):
    bias = torch.zeros_like(b) if bias is None else bias
    return torch.diag(a) @ weight, a * bias + b


# %% fold_linear right: transposed twice
def fold_linear(weight, bias, a, b):
    return (weight.T * a).T, b if bias is None else torch.addcmul(b, a, bias)


# %% fold_linear wrong: scales the inputs
def fold_linear(weight, bias, a, b):
    return weight * a[: weight.shape[1]].repeat(2)[: weight.shape[1]], b if bias is None else a * bias + b


# %% fold_linear wrong: broadcast without an axis
def fold_linear(weight, bias, a, b):
    return weight * a, b if bias is None else a * bias + b


# %% fold_linear wrong: the old bias is not scaled
def fold_linear(weight, bias, a, b):
    return weight * a[:, None], b if bias is None else bias + b


# %% fold_linear wrong: no bias stays no bias
def fold_linear(weight, bias, a, b):
    return weight * a[:, None], None if bias is None else a * bias + b


# %% fold_linear wrong: b is scaled as well
def fold_linear(weight, bias, a, b):
    return weight * a[:, None], a * b if bias is None else a * (bias + b)


# %% fold_conv right: einsum
def fold_conv(weight, bias, a, b):
    return torch.einsum("o...,o->o...", weight, a), b if bias is None else a * bias + b


# %% fold_conv right: channel by channel
def fold_conv(weight, bias, a, b):
    kernels = torch.stack([kernel * factor for kernel, factor in zip(weight, a, strict=True)])
    return kernels, b + a * (0 if bias is None else bias)


# %% fold_conv wrong: two dimensions only
def fold_conv(weight, bias, a, b):
    return weight * a[:, None, None, None], b if bias is None else a * bias + b


# %% fold_conv wrong: input channels scaled
def fold_conv(weight, bias, a, b):
    shape = [1, -1] + [1] * (weight.ndim - 2)
    return weight * a[: weight.shape[1]].reshape(shape), b if bias is None else a * bias + b


# %% fold_conv wrong: the old bias is dropped
def fold_conv(weight, bias, a, b):
    return weight * a.reshape([-1] + [1] * (weight.ndim - 1)), b


# %% fold_conv wrong: a bias is taken for granted
def fold_conv(weight, bias, a, b):
    return weight * a.reshape([-1] + [1] * (weight.ndim - 1)), a * bias + b


# %% fold_conv wrong: divides
def fold_conv(weight, bias, a, b):
    return weight / a.reshape([-1] + [1] * (weight.ndim - 1)), b if bias is None else a * bias + b


# %% fold_conv wrong: calls torch's own fold
def fold_conv(weight, bias, a, b):
    from torch.nn.utils.fusion import fuse_conv_bn_weights

    zero = torch.zeros_like(b)
    w, c = fuse_conv_bn_weights(weight, bias, zero, torch.ones_like(b), 0.0, a, b)
    return w, c


# %% fold_transposed right: repeated factors
def fold_transposed(weight, bias, a, b, groups):
    factor = a.reshape(groups, -1).repeat_interleave(len(weight) // groups, dim=0)
    return weight * factor[:, :, None, None], b if bias is None else a * bias + b


# %% fold_transposed right: a loop over groups
def fold_transposed(weight, bias, a, b, groups):
    folded, step, outputs = weight.clone(), len(weight) // groups, weight.shape[1]
    for g in range(groups):
        folded[g * step : (g + 1) * step] *= a[g * outputs : (g + 1) * outputs].reshape(1, -1, 1, 1)
    return folded, b + (0 if bias is None else a * bias)


# %% fold_transposed wrong: first axis, as for a convolution
def fold_transposed(weight, bias, a, b, groups):
    return weight * a[: len(weight), None, None, None], b if bias is None else a * bias + b


# %% fold_transposed wrong: groups forgotten
def fold_transposed(weight, bias, a, b, groups):
    return weight * a[None, :, None, None], b if bias is None else a * bias + b


# %% fold_transposed wrong: factors of the first group for all
def fold_transposed(weight, bias, a, b, groups):
    return weight * a[: weight.shape[1]].reshape(1, -1, 1, 1), b if bias is None else a * bias + b


# %% fold_transposed wrong: groups interleaved
def fold_transposed(weight, bias, a, b, groups):
    factor = a.reshape(groups, -1).repeat(len(weight) // groups, 1)
    return weight * factor[:, :, None, None], b if bias is None else a * bias + b


# %% fold_transposed wrong: bias not scaled
def fold_transposed(weight, bias, a, b, groups):
    factor = a.reshape(groups, -1).repeat_interleave(len(weight) // groups, dim=0)
    return weight * factor[:, :, None, None], b if bias is None else bias + b


# %% fold_transposed wrong: the kernel is flipped
def fold_transposed(weight, bias, a, b, groups):
    factor = a.reshape(groups, -1).repeat_interleave(len(weight) // groups, dim=0)
    return (weight * factor[:, :, None, None]).flip(2, 3), b if bias is None else a * bias + b


# %% fold_before right: pushes b through the convolution
def fold_before(weight, bias, a, b, groups):
    pixels = b.reshape(1, -1, 1, 1).expand(-1, -1, *weight.shape[2:])
    shift = torch.nn.functional.conv2d(pixels, weight, bias, groups=groups).flatten()
    per_group = a.reshape(groups, -1).repeat_interleave(len(weight) // groups, dim=0)
    return weight * per_group[:, :, None, None], shift


# %% fold_before right: a loop over outputs
def fold_before(weight, bias, a, b, groups):
    folded, shift = torch.empty_like(weight), torch.zeros(len(weight), dtype=weight.dtype)
    for out in range(len(weight)):
        first = out * groups // len(weight) * weight.shape[1]
        for i in range(weight.shape[1]):
            folded[out, i] = weight[out, i] * a[first + i]
            shift[out] += weight[out, i].sum() * b[first + i]
    return folded, shift if bias is None else shift + bias


# %% fold_before wrong: output axis
def fold_before(weight, bias, a, b, groups):
    shift = (weight.sum((1, 2, 3))) * b[: len(weight)]
    return weight * a[: len(weight), None, None, None], shift if bias is None else shift + bias


# %% fold_before wrong: groups forgotten
def fold_before(weight, bias, a, b, groups):
    shift = (weight * b[: weight.shape[1], None, None]).sum((1, 2, 3))
    return weight * a[: weight.shape[1], None, None], shift if bias is None else shift + bias


# %% fold_before wrong: b counted once and not for every tap
def fold_before(weight, bias, a, b, groups):
    per_group = a.reshape(groups, -1).repeat_interleave(len(weight) // groups, dim=0)
    b_seen = b.reshape(groups, -1).repeat_interleave(len(weight) // groups, dim=0)
    shift = (weight.mean((2, 3)) * b_seen).sum(1)
    return weight * per_group[:, :, None, None], shift if bias is None else shift + bias


# %% fold_before wrong: b pushed through the folded weight
def fold_before(weight, bias, a, b, groups):
    per_group = a.reshape(groups, -1).repeat_interleave(len(weight) // groups, dim=0)
    b_seen = b.reshape(groups, -1).repeat_interleave(len(weight) // groups, dim=0)
    folded = weight * per_group[:, :, None, None]
    shift = (folded.sum((2, 3)) * b_seen).sum(1)
    return folded, shift if bias is None else shift + bias


# %% fold_before wrong: old bias lost
def fold_before(weight, bias, a, b, groups):
    per_group = a.reshape(groups, -1).repeat_interleave(len(weight) // groups, dim=0)
    b_seen = b.reshape(groups, -1).repeat_interleave(len(weight) // groups, dim=0)
    return weight * per_group[:, :, None, None], (weight.sum((2, 3)) * b_seen).sum(1)


# %% fold_before wrong: changes the weight it was given and returns the shift of the changed one
def fold_before(weight, bias, a, b, groups):
    per_group = a.reshape(groups, -1).repeat_interleave(len(weight) // groups, dim=0)
    b_seen = b.reshape(groups, -1).repeat_interleave(len(weight) // groups, dim=0)
    weight *= per_group[:, :, None, None]
    shift = (weight.sum((2, 3)) * b_seen).sum(1)
    return weight, shift if bias is None else shift + bias


# %% fold_model right: copies first, then folds in the copy
def fold_model(model):
    import copy

    layers = []
    for layer in model:
        last = layers[-1] if layers else None
        if isinstance(layer, nn.BatchNorm2d) and isinstance(last, nn.Conv2d) and not layer.training:
            if layer.running_mean is None:
                layers.append(copy.deepcopy(layer))
                continue
            a, b = bn_affine(layer.weight, layer.bias, layer.running_mean, layer.running_var, layer.eps)
            with torch.no_grad():
                weight, bias = fold_conv(last.weight, last.bias, a, b)
            last.weight, last.bias = nn.Parameter(weight), nn.Parameter(bias)
        else:
            layers.append(copy.deepcopy(layer))
    return nn.Sequential(*layers)


# %% fold_model right: pairs by index, from the back
def fold_model(model):
    def foldable(layer):
        return isinstance(layer, nn.BatchNorm2d) and not layer.training and layer.track_running_stats

    layers = list(model)
    for i in range(len(layers) - 1, 0, -1):
        last = i - 1
        if not foldable(layers[i]):
            continue
        while foldable(layers[last]) and last > 0:
            last -= 1
        if not isinstance(layers[last], nn.Conv2d):
            continue
        conv = layers[last]
        for bn in layers[last + 1 : i + 1]:
            a = (1 if bn.weight is None else bn.weight.detach()) / (bn.running_var + bn.eps).sqrt()
            shape, old = conv.weight, conv.bias
            sizes = (conv.kernel_size, conv.stride, conv.padding, conv.dilation, conv.groups)
            conv = nn.Conv2d(conv.in_channels, conv.out_channels, *sizes)
            conv.weight = nn.Parameter(shape.detach() * a.reshape(-1, 1, 1, 1))
            bias = (0 if bn.bias is None else bn.bias.detach()) - a * bn.running_mean
            conv.bias = nn.Parameter(bias if old is None else bias + a * old.detach())
        del layers[last + 1 : i + 1]
        layers[last] = conv
        return fold_model(nn.Sequential(*layers))
    return nn.Sequential(*layers)


# %% fold_model wrong: folds into the shared convolution itself
def fold_model(model):
    layers = []
    for layer in model:
        last = layers[-1] if layers else None
        if isinstance(layer, nn.BatchNorm2d) and isinstance(last, nn.Conv2d) and not layer.training:
            a, b = bn_affine(layer.weight, layer.bias, layer.running_mean, layer.running_var, layer.eps)
            weight, bias = fold_conv(last.weight.detach(), last.bias, a, b)
            last.weight, last.bias = nn.Parameter(weight.detach()), nn.Parameter(bias.detach())
        else:
            layers.append(layer)
    return nn.Sequential(*layers)


# %% fold_model wrong: folds a norm in training mode
def fold_model(model):
    import copy

    layers = []
    for layer in model:
        last = layers[-1] if layers else None
        if isinstance(layer, nn.BatchNorm2d) and isinstance(last, nn.Conv2d):
            a, b = bn_affine(layer.weight, layer.bias, layer.running_mean, layer.running_var, layer.eps)
            weight, bias = fold_conv(last.weight.detach(), last.bias, a, b)
            last.weight, last.bias = nn.Parameter(weight.detach()), nn.Parameter(bias.detach())
        else:
            layers.append(copy.deepcopy(layer))
    return nn.Sequential(*layers)


# %% fold_model wrong: looks for the last convolution instead of the layer before
def fold_model(model):
    import copy

    layers, conv = [], None
    for layer in model:
        if isinstance(layer, nn.BatchNorm2d) and conv is not None and not layer.training:
            a, b = bn_affine(layer.weight, layer.bias, layer.running_mean, layer.running_var, layer.eps)
            weight, bias = fold_conv(conv.weight.detach(), conv.bias, a, b)
            conv.weight, conv.bias = nn.Parameter(weight.detach()), nn.Parameter(bias.detach())
        else:
            layers.append(copy.deepcopy(layer))
            conv = layers[-1] if isinstance(layer, nn.Conv2d) else conv
    return nn.Sequential(*layers)


# %% fold_model wrong: stride and groups of the new convolution forgotten
def fold_model(model):
    layers = []
    for layer in model:
        last = layers[-1] if layers else None
        if isinstance(layer, nn.BatchNorm2d) and isinstance(last, nn.Conv2d) and not layer.training:
            a, b = bn_affine(layer.weight, layer.bias, layer.running_mean, layer.running_var, layer.eps)
            weight, bias = fold_conv(last.weight.detach(), last.bias, a, b)
            new = nn.Conv2d(last.in_channels, last.out_channels, last.kernel_size, padding=last.padding)
            new.weight, new.bias = nn.Parameter(weight.detach()), nn.Parameter(bias.detach())
            layers[-1] = new
        else:
            layers.append(layer)
    return nn.Sequential(*layers)


# %% fold_model wrong: drops every norm
def fold_model(model):
    return nn.Sequential(*(layer for layer in model if not isinstance(layer, nn.BatchNorm2d)))


# %% fold_model wrong: does nothing
def fold_model(model):
    return model


# %% fold_model wrong: the norm becomes a layer of its own kind
def fold_model(model):
    return nn.Sequential(*(nn.Identity() if isinstance(layer, nn.BatchNorm2d) else layer for layer in model))
