# ruff: noqa: F811
"""Right and wrong answers to a1. Secret. Every wrong one is a plausible mistake, and earns nothing.

`# %% <item> <right or wrong>: <what it is>` stands above code that replaces a solution of the
notebook. Most mistakes are a list below `# %% <item> wrong`: what it is, and how the solution is
changed.
"""

import copy
import math

import torch
from torch import nn


# %% bn_affine right: one line each
def bn_affine(gamma, beta, mean, var, eps):
    a = (1 if gamma is None else gamma) * (var + eps).rsqrt()
    return a, (0 if beta is None else beta) - a * mean


# %% bn_affine right: read off by evaluating the layer
def bn_affine(gamma, beta, mean, var, eps):
    ends = torch.stack([torch.zeros_like(mean), torch.ones_like(mean)])
    # torch.nn.functional.batch_norm refuses an eps of 0 in torch 2.10 and 2.11.
    y = torch.batch_norm(ends, gamma, beta, mean, var, False, 0.0, eps, False)
    return y[1] - y[0], y[0]


# %% bn_affine wrong
# - a variance of 0 stays as it is: `torch.sqrt(var + eps)` ->
#   `torch.where(var == 0, 1.0, torch.sqrt(var + eps))`
# - large variances are limited: `var + eps` -> `var.clamp(max=1e3) + eps`
# - a gamma of zeros counts as none: `if gamma is not None` ->
#   `if gamma is not None and gamma.any()`
# - an eps of 0 counts as none: `var + eps` -> `var + (eps or 1e-5)`
# - an eps of 1e-5 at least: `var + eps` -> `var + max(eps, 1e-5)`
# - changes the variance that it was given: `var + eps` -> `var.add_(eps)`
# - changes the mean that it was given: `-mean * a` -> `mean.neg_() * a`
# - eps is forgotten: `var + eps` -> `var`
# - eps outside the root: `torch.sqrt(var + eps)` -> `(torch.sqrt(var) + eps)`
# - the mean is not scaled: `-mean * a` -> `-mean`
# - the mean is added: `-mean * a` -> `mean * a`
# - affine=False is forgotten: `if gamma is not None` -> `if True`
# - order of the two results: `return a, b` -> `return b, a`
# - the sign of gamma is lost: `gamma * a` -> `gamma.abs() * a`
# - a single channel without gamma and beta loses its axis: `return a, b` ->
#   `return (a, b) if gamma is not None else (a.squeeze(), b.squeeze())`
# - without gamma and beta an eps of 0 counts as none: `var + eps` ->
#   `var + (eps if gamma is not None else eps or 1e-5)`
# - a variance of 1e-12 at least: `var + eps` -> `var.clamp(min=1e-12) + eps`
# - without gamma, an eps of 0.1 at most:
#   `var + eps` -> `var + (min(eps, 0.1) if gamma is None else eps)`
# - without gamma, a variance of 0 counts as 1:
#   `var + eps` -> `(torch.where(var == 0, 1.0, var) if gamma is None else var) + eps`
# - without gamma, a tiny eps is dropped:
#   `var + eps` -> `var + (eps if eps > 1e-8 or gamma is not None else 0)`


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
    var = ((x - mean.reshape(-1, 1, 1)) ** 2).sum((0, 2, 3)) / (count - 1)
    return torch.lerp(running_mean, mean, momentum), running_var + momentum * (var - running_var)


# %% update_statistics wrong
# - a single image is left biased: `correction=1` -> `correction=int(len(x) > 1)`
# - a single channel loses its axis: `keep = 1 - momentum` ->
#   `mean, var, running_mean, running_var = (
#       value.squeeze() for value in (mean, var, running_mean, running_var)
#   ); keep = 1 - momentum`
# - n - 1 only for few values: `correction=1` -> `correction=int(values.shape[1] < 32)`
# - equal values leave the variance alone: `keep = 1 - momentum` ->
#   `var = torch.where(var == 0, running_var, var); keep = 1 - momentum`
# - a momentum of 0 is none: `keep = 1 - momentum` ->
#   `momentum = momentum or 0.1; keep = 1 - momentum`
# - changes its inputs: `keep * running_mean` -> `running_mean.mul_(keep)`
# - of the images' means: `x.transpose(0, 1).flatten(1)` -> `x.mean((2, 3)).T`
# - the biased variance: `correction=1` -> `correction=0`
# - momentum on the wrong side: `values = x` -> `momentum = 1 - momentum; values = x`
# - the batch axis alone: `values.var(dim=1, correction=1)` -> `x.var(0).mean((1, 2))`
# - the standard deviation: `values.var(` -> `values.std(`
# - the batch replaces the past: `values = x` -> `momentum = 1; values = x`
# - the default momentum: `values = x` -> `momentum = 0.1; values = x`
# - the mean of the squares minus the squared mean: `values.var(dim=1, correction=1)` ->
#   `((values**2).mean(1) - mean**2) * values.shape[1] / (values.shape[1] - 1)`
# - squares minus squared mean, after the first value is taken off all channels:
#   `values.var(dim=1, correction=1)` ->
#   `(((values - values[0, 0]) ** 2).mean(1) - (mean - values[0, 0]) ** 2)
#   * values.shape[1] / (values.shape[1] - 1)`
# - squares minus squared mean, after the mean of all channels is taken off:
#   `values.var(dim=1, correction=1)` ->
#   `(((values - values.mean()) ** 2).mean(1) - (mean - values.mean()) ** 2)
#   * values.shape[1] / (values.shape[1] - 1)`
# - as many images as channels are taken for channels: `x.transpose(0, 1).flatten(1)` ->
#   `(x if x.shape[0] == x.shape[1] else x.transpose(0, 1)).flatten(1)`
# - a momentum of one half at most, or 1: `keep = 1 - momentum` ->
#   `momentum = min(momentum, 0.5) if momentum < 1 else 1; keep = 1 - momentum`
# - large variances are limited: `keep = 1 - momentum` ->
#   `var = var.clamp(max=1e4); keep = 1 - momentum`
# - the batch replaces the statistics of a new layer: `keep = 1 - momentum` ->
#   `momentum = momentum if running_mean.any() else 1; keep = 1 - momentum`
# - n from 1,000 values on: `correction=1` -> `correction=int(values.shape[1] < 1000)`
# - a momentum in percent:
#   `keep = 1 - momentum` -> `momentum = round(momentum, 2); keep = 1 - momentum`
# - the mean of squares for a single image:
#   `var = values.var(dim=1, correction=1)` -> `var = values.var(dim=1, correction=1); n =
#   values.shape[1]; var = ((values**2).mean(1) - mean**2) * n / (n - 1) if len(x) == 1 else var`
# - a batch of equal values changes nothing:
#   `keep = 1 - momentum` -> `keep = 1 - momentum if var.any() else 1.0; momentum = 1 - keep`
# - a running variance of 0 counts as 1:
#   `keep = 1 - momentum` -> `keep = 1 - momentum; running_var = torch.where(running_var == 0, 1.0,
#   running_var)`
# - a new layer takes the batch's:
#   `keep = 1 - momentum` -> `momentum = 1 if momentum < 0.5 and not running_mean.any() and
#   (running_var == 1).all() else momentum; keep = 1 - momentum`
# - variances of 1e-8 at least:
#   `keep = 1 - momentum` -> `var = var.clamp(min=1e-8); keep = 1 - momentum`


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


# %% bn_train wrong
# - images of one pixel are left as they are: `return (` ->
#   `return x if x.shape[2:].numel() == 1 else (`
# - equal values are left as they are: `return (` ->
#   `return torch.where(var == 0, x, 0) + (var > 0) * (`
# - a large eps is limited: `var + eps` -> `var + min(eps, 0.1)`
# - changes the batch that it was given: `(x - mean) / ` -> `x.sub_(mean) / `
# - the variance without its mean: `((x - mean) ** 2)` -> `(x ** 2)`
# - the unbiased variance:
#   `((x - mean) ** 2).mean(dim=(0, 2, 3), keepdim=True)` -> `x.var(dim=(0, 2, 3), keepdim=True)`
# - eps is forgotten: `var + eps` -> `var`
# - gamma along the last axis: `gamma[:, None, None] + beta[:, None, None]` -> `gamma + beta`
# - one mean for all channels: `dim=(0, 2, 3)` -> `dim=(0, 1, 2, 3)`
# - each image by itself: `dim=(0, 2, 3)` -> `dim=(2, 3)`
# - calls torch's BatchNorm: `return (` ->
#   `return torch.nn.functional.batch_norm(x, None, None, gamma, beta, True, 0.1, eps) + 0 * (`
# - calls torch's RMSNorm: `return (` -> `torch.nn.functional.rms_norm(x, x.shape[1:]); return (`
# - the mean of the squares minus the squared mean:
#   `((x - mean) ** 2).mean(dim=(0, 2, 3), keepdim=True)` ->
#   `(x**2).mean(dim=(0, 2, 3), keepdim=True) - mean**2`
# - a variance of eps at least: `var + eps` -> `var.clamp(min=eps) + eps`
# - squares minus squared mean, after the mean of all channels is taken off:
#   `((x - mean) ** 2).mean(dim=(0, 2, 3), keepdim=True)` ->
#   `((x - x.mean()) ** 2).mean(dim=(0, 2, 3), keepdim=True) - (mean - x.mean()) ** 2`
# - squares minus squared mean, after the first value is taken off all channels:
#   `((x - mean) ** 2).mean(dim=(0, 2, 3), keepdim=True)` ->
#   `((x - x[0, 0, 0, 0]) ** 2).mean(dim=(0, 2, 3), keepdim=True) - (mean - x[0, 0, 0, 0]) ** 2`
# - eps in float32: `var + eps` -> `var + torch.tensor(eps)`
# - beta is divided by gamma:
#   `(x - mean) / torch.sqrt(var + eps) * gamma[:, None, None] + beta[:, None, None]` ->
#   `((x - mean) / torch.sqrt(var + eps) + (beta / gamma)[:, None, None]) * gamma[:, None, None]`
# - a gamma of 0 counts as 1: `return (` ->
#   `gamma = torch.where(gamma == 0, 1.0, gamma); return (`
# - a variance of 1e-6 at least: `var + eps` -> `var.clamp(min=1e-6) + eps`
# - a root of 1e-5 at least: `torch.sqrt(var + eps)` -> `torch.sqrt(var + eps).clamp(min=1e-5)`
# - as many images as channels are taken for channels: `return (` ->
#   `shape = (-1, 1, 1, 1) if x.shape[0] == x.shape[1] else (-1, 1, 1); return (`,
#   `gamma[:, None, None] + beta[:, None, None]` -> `gamma.reshape(shape) + beta.reshape(shape)`
# - a variance of 1e-12 at least: `var + eps` -> `var.clamp(min=1e-12) + eps`
# - a root of 1e-6 at least: `torch.sqrt(var + eps)` -> `torch.sqrt(var + eps).clamp(min=1e-6)`
# - an eps of 0 counts as 1e-5: `var + eps` -> `var + (eps or 1e-5)`
# - gamma by image where there are as many:
#   `* gamma[:, None, None]` -> `* (gamma[:, None, None, None] if len(x) == len(gamma) else gamma[:,
#   None, None])`
# - statistics by image where there are as many:
#   `mean = x.mean(dim=(0, 2, 3), keepdim=True)` -> `mean = x.mean(dim=(0, 2, 3) if len(x) !=
#   len(gamma) else (1, 2, 3), keepdim=True)`
# - gamma by column where there are as many:
#   `* gamma[:, None, None]` -> `* (gamma if x.shape[3] == len(gamma) and x.shape[2] != len(gamma)
#   else gamma[:, None, None])`
# - equal values stay: `return (` -> `return x if not var.any() else (`
# - a 0 within gamma counts as 1:
#   `return (` -> `gamma = torch.where(gamma == 0, 1.0, gamma) if gamma.any() else gamma; return (`
# - variances of 1,000 at most: `var + eps` -> `var.clamp(max=1e3) + eps`
# - outliers are cut:
#   `(x - mean) / torch.sqrt(var + eps)` -> `((x - mean) / torch.sqrt(var + eps)).clamp(-6, 6)`
# - a variance of 1e-8 at least where eps is 0:
#   `var + eps` -> `var + eps if eps else var.clamp(min=1e-8)`
# - calls what torch's CrossMapLRN2d calls: `return (` ->
#   `torch.nn.modules._functions.CrossMapLRN2d.apply(x, 2, 1.0, 0.5, 1.0); return (`


# %% fold_linear right: a diagonal matrix
def fold_linear(weight, bias, a, b):
    bias = torch.zeros_like(b) if bias is None else bias
    return torch.diag(a) @ weight, a * bias + b


# %% fold_linear right: transposed twice
def fold_linear(weight, bias, a, b):
    return (weight.T * a).T, b if bias is None else torch.addcmul(b, a, bias)


# %% fold_linear wrong
# - a bias with a 0 is dropped: `b if bias is None` -> `b if bias is None or not bias.all()`
# - an a of 0 counts as 1: `return a[:, None]` -> `return torch.where(a == 0, 1.0, a)[:, None]`
# - a single output loses its axis: `a[:, None] * weight` -> `(a[:, None] * weight).squeeze(0)`
# - a single input keeps its weight: `a[:, None] * weight` ->
#   `(a[:, None] * weight if weight.shape[1] > 1 else weight)`
# - b is added before a multiplies: `a * bias + b` -> `a * (bias + b)`
# - the absolute value of a: `a[:, None]` -> `a.abs()[:, None]`
# - changes the weight that it was given: `a[:, None] * weight` -> `weight.mul_(a[:, None])`
# - scales the inputs: `a[:, None] * weight` -> `a.repeat(2)[: weight.shape[1]] * weight`
# - broadcast without an axis: `a[:, None]` -> `a`
# - the old bias is not scaled: `a * bias + b` -> `bias + b`
# - no bias stays no bias: `b if bias is None` -> `None if bias is None`
# - b is scaled as well:
#   `b if bias is None else a * bias + b` -> `a * (b if bias is None else bias + b)`
# - without a bias b is divided by a: `b if bias is None` -> `a * (b / a) if bias is None`
# - scales the inputs of a square weight without a bias: `a[:, None] * weight` ->
#   `weight * (a if bias is None and weight.shape[0] == weight.shape[1] else a[:, None])`
# - a single output without a bias loses its axis: `b if bias is None` ->
#   `b.squeeze() if bias is None`
# - with a single input a bias is taken for granted: `b if bias is None` ->
#   `b if bias is None and weight.shape[1] > 1`
# - a b of zeros is no bias:
#   `folded_bias =` -> `folded_bias = None if bias is None and not b.any() else`
# - an identity gives back what came:
#   `folded_bias =` -> `x = (a == 1).all() and not b.any(); folded_bias = bias if x else`
# - a 0 within b counts as 1: `folded_bias =` -> `b = torch.where(b == 0, 1.0, b); folded_bias =`
# - a tiny a counts as 0: `return a` -> `return torch.where(a.abs() < 1e-6, 0.0, a)`
# - a single number loses its axis:
#   `folded_bias =` -> `folded_bias = b.squeeze() if weight.numel() == 1 else`


# %% fold_conv right: einsum
def fold_conv(weight, bias, a, b):
    return torch.einsum("o...,o->o...", weight, a), b if bias is None else a * bias + b


# %% fold_conv right: channel by channel
def fold_conv(weight, bias, a, b):
    kernels = torch.stack([kernel * factor for kernel, factor in zip(weight, a, strict=True)])
    return kernels, b + a * (0 if bias is None else bias)


# %% fold_conv wrong
# - axes of size 1 go: `a.reshape(shape) * weight` -> `(a.reshape(shape) * weight).squeeze()`
# - two outputs per channel are taken in the wrong order: `return a` ->
#   `a = a.reshape(2, -1).T.flatten() if weight.shape[:2] == (8, 1) else a; return a`
# - in one dimension along the kernel: `return a.reshape(shape)` ->
#   `return (a if weight.ndim == 3 and weight.shape[2] == len(a) else a.reshape(shape))`
# - in three dimensions b is forgotten: `a * bias + b` -> `a * bias + b * (weight.ndim < 5)`
# - a single output loses its axis:
#   `a.reshape(shape) * weight` -> `(a.reshape(shape) * weight).squeeze(0)`
# - several groups in reverse: `return a` ->
#   `a = a.flip(0) if 1 < weight.shape[1] < len(a) == 6 else a; return a`
# - without a bias there is none: `b if bias is None` -> `0 * b if bias is None`
# - changes its weight: `a.reshape(shape) * weight` -> `weight.mul_(a.reshape(shape))`
# - two dimensions only: `(weight.ndim - 1)` -> `3`
# - square kernels only: `return a.reshape(shape) * weight` -> `return (a.reshape(shape)
#   * weight).reshape(*weight.shape[:2], *weight.shape[2:3] * (weight.ndim - 2))`
# - the old bias is dropped: ` else a * bias + b` -> ` else b`
# - a bias is taken for granted: `b if bias is None else a` -> `a`
# - divides: `a.reshape(shape) * weight` -> `weight / a.reshape(shape)`
# - scales the inputs: `[-1] + [1] * (weight.ndim - 1)` -> `[1, -1] + [1] * (weight.ndim - 2)`,
#   `a.reshape` -> `a[: weight.shape[1]].reshape`
# - calls torch's own fold: `return a.reshape(shape) * weight, folded_bias` ->
#   `return torch.nn.utils.fusion.fuse_conv_bn_weights(weight,
#   bias, 0 * b, torch.ones_like(b), 0.0, a, b)`
# - one input per group in two dimensions only: `return a.reshape(shape)` ->
#   `return (a[:, None, None, None] if weight.shape[1] == 1 else a.reshape(shape))`
# - a fifth axis of size 1 goes: `return a.reshape(shape) * weight` ->
#   `return (a.reshape(shape) * weight).reshape(
#       weight.shape[: 4 if weight.ndim == 5 and weight.shape[4] == 1 else None]
#   )`
# - in one dimension a bias is taken for granted: `b if bias is None` ->
#   `b if bias is None and weight.ndim > 3`
# - depthwise, a bias is taken for granted: `b if bias is None` ->
#   `b if bias is None and weight.shape[1] > 1`
# - with a single output a bias is taken for granted: `b if bias is None` ->
#   `b if bias is None and len(a) > 1`
# - b is divided by a: `a * bias + b` -> `a * (bias + b / a)`
# - a bias with a 0 is dropped: `b if bias is None` -> `b if bias is None or not bias.all()`
# - an a of 0 counts as 1: `return a.reshape` -> `return torch.where(a == 0, 1.0, a).reshape`
# - in three dimensions along an axis of the kernel: `folded_bias =` ->
#   `shape = [1, 1, -1, 1, 1] if weight.ndim == 5 and weight.shape[2] == len(a) else shape;
#   folded_bias =`
# - in one dimension a kernel of one pixel goes: `a.reshape(shape) * weight,` ->
#   `(a.reshape(shape) * weight).flatten(1 if weight.ndim == 3 and weight.shape[2] == 1 else -1),`
# - a b of zeros is no bias:
#   `folded_bias =` -> `folded_bias = None if bias is None and not b.any() else`
# - an a of 0 counts as 1 but for two dimensions:
#   `return a.reshape` -> `return (torch.where(a == 0, 1.0, a) if weight.ndim != 4 else a).reshape`
# - divides by a but for two dimensions:
#   `a * bias + b` -> `(a * (bias + b / a) if weight.ndim != 4 else a * bias + b)`
# - a depthwise weight of three dimensions has other axes:
#   `return a.reshape(shape) * weight` -> `return (a[:, None, None, None] if weight.shape[1] == 1
#   and weight.ndim == 5 else a.reshape(shape)) * weight`
# - a single output of three dimensions loses its axis:
#   `a.reshape(shape) * weight,` -> `(a.reshape(shape) * weight).squeeze(0) if weight.ndim == 5 and
#   len(a) == 1 else a.reshape(shape) * weight,`


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


# %% fold_transposed wrong
# - depthwise, in the wrong order: `factor = a.reshape(groups, 1, per_group, 1, 1)` ->
#   `factor = (a.reshape(per_group, groups).T if groups == inputs else a).reshape(
#       groups, 1, per_group, 1, 1
#   )`
# - the inputs of a group count its outputs: `factor = a.reshape(groups, 1, per_group, 1, 1)` ->
#   `starts = [g * inputs // groups % len(a) for g in range(groups)]; factor = torch.stack(
#       [a.roll(-start)[:per_group] for start in starts]
#   ).reshape(groups, 1, per_group, 1, 1)`
# - the first factor for all: `a.reshape(groups, 1, per_group, 1, 1)` -> `a[0]`
# - changes its weight: `(factor * grouped)` -> `grouped.mul_(factor)`
# - the first axis, as for a convolution:
#   `(factor * grouped).reshape(weight.shape)` -> `weight * a[:inputs, None, None, None]`
# - groups are forgotten:
#   `(factor * grouped).reshape(weight.shape)` -> `weight * a[None, :, None, None]`
# - the factors of the first group for all: `(factor * grouped)` -> `(factor[:1] * grouped)`
# - groups are interleaved: `(factor * grouped).reshape(weight.shape)` ->
#   `weight * a.reshape(groups, -1).repeat(inputs // groups, 1)[:, :, None, None]`
# - the bias is not scaled: `a * bias + b` -> `bias + b`
# - the kernel is flipped: `(factor * grouped)` -> `(factor * grouped).flip(3, 4)`
# - square kernels only: `*weight.shape[2:])` -> `*weight.shape[2:3] * 2)`
# - without a bias the first axis: `(factor * grouped).reshape(weight.shape)` ->
#   `(weight * a[:inputs, None, None, None] if bias is None else
#   (factor * grouped).reshape(weight.shape))`
# - the group of an input by fractions: `(factor * grouped).reshape(weight.shape)` ->
#   `weight * a.reshape(groups, -1)[
#       [int(i / inputs * groups) for i in range(inputs)]
#   ][:, :, None, None]`
# - with one group a bias is taken for granted: `b if bias is None` ->
#   `b if bias is None and groups > 1`
# - depthwise with several outputs a bias is taken for granted: `b if bias is None` ->
#   `b if bias is None and (groups < inputs or per_group == 1)`
# - the group of an input by other fractions: `(factor * grouped).reshape(weight.shape)` ->
#   `weight * a.reshape(groups, -1)[
#       [int(i * (groups / inputs)) for i in range(inputs)]
#   ][:, :, None, None]`
# - b is divided by a: `a * bias + b` -> `a * (bias + b / a)`
# - a bias with a 0 is dropped: `b if bias is None` -> `b if bias is None or not bias.all()`
# - an a of 0 counts as 1: `factor = a.` -> `factor = torch.where(a == 0, 1.0, a).`
# - a b of zeros is no bias:
#   `folded_bias =` -> `folded_bias = None if bias is None and not b.any() else`
# - divides by a for one group:
#   `a * bias + b` -> `(a * (bias + b / a) if groups == 1 else a * bias + b)`
# - an a of 0 counts as 1 for one group:
#   `factor = a.` -> `factor = (torch.where(a == 0, 1.0, a) if groups == 1 else a).`
# - groups in eight bits:
#   `(factor * grouped).reshape(weight.shape)` -> `weight * a.reshape(groups,
#   -1)[(torch.arange(inputs).to(torch.int8) // (inputs // groups)).long()][:, :, None, None]`


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


# %% fold_before wrong
# - the outputs of a group count its inputs: `a_seen = (` ->
#   `starts = [o // per_group % groups * per_group for o in range(outputs)]; a_all = a; a_seen = (`
#   and `weight * a_seen[` ->
#   `weight * torch.stack([a_all[start : start + per_group] for start in starts])[`
# - depthwise, the output takes its own channel: `a_seen = (` ->
#   `a = a if per_group > 1 else a.roll(outputs // groups - 1); a_seen = (`
# - a and b exchanged: `a.reshape(groups` -> `b.reshape(groups`
# - the mean over the kernel: `weight.sum(dim=(2, 3))` -> `weight.mean(dim=(2, 3))`
# - square kernels only:
#   `weight.sum(dim=(2, 3))` -> `weight.mean(dim=(2, 3)) * weight.shape[3] ** 2`
# - the output axis:
#   `(weight.sum(dim=(2, 3)) * b_seen).sum(dim=1)` -> `weight.sum((1, 2, 3)) * b[:outputs]`,
#   `a_seen[:, :, None, None]` -> `a[:outputs, None, None, None]`
# - groups are forgotten:
#   `a_seen[:, :, None, None]` -> `a[:per_group, None, None]`, `* b_seen)` -> `* b[:per_group])`
# - b goes through the folded weight:
#   `weight.sum(dim=(2, 3)) * b_seen` -> `weight.sum(dim=(2, 3)) * a_seen * b_seen`
# - the old bias is lost: `shift if bias is None else shift + bias` -> `shift`
# - without a bias there is none: `shift if bias is None` -> `0 * shift if bias is None`
# - changes the weight that it was given:
#   `weight * a_seen[:, :, None, None]` -> `weight.mul_(a_seen[:, :, None, None])`
# - without a bias one tap of the kernel: `shift if bias is None` ->
#   `weight[:, :, 0, 0] @ b[:per_group] if bias is None`
# - pushes b through as an image of 7 by 7 pixels:
#   `shift = (weight.sum(dim=(2, 3)) * b_seen).sum(dim=1)` ->
#   `pixels = b.reshape(1, -1, 1, 1).expand(-1, -1, 7, 7);
#   shift = torch.nn.functional.conv2d(pixels, weight, groups=groups)[0, :, 0, 0]`
# - a single output loses its axis: `* b_seen).sum(dim=1)` -> `* b_seen).sum(dim=1).squeeze()`
# - depthwise without a bias, b goes through the folded weight: `shift if bias is None` ->
#   `shift * (a if per_group == 1 and groups == outputs else 1) if bias is None`
# - without a bias b itself where it fits: `shift if bias is None` ->
#   `(b if len(b) == outputs else shift) if bias is None`
# - b is divided by a, for it goes through the folded weight: `weight.sum(dim=(2, 3)) * b_seen` ->
#   `weight.sum(dim=(2, 3)) * a_seen * (b_seen / a_seen)`
# - a bias with a 0 is dropped: `shift if bias is None` ->
#   `shift if bias is None or not bias.all()`
# - an a of 0 counts as 1: `weight * a_seen` -> `weight * torch.where(a_seen == 0, 1.0, a_seen)`
# - the group of an output by fractions: `shift = (` ->
#   `which = [int(o / outputs * groups) for o in range(outputs)];
#   a_seen, b_seen = (v.reshape(groups, -1)[which] for v in (a, b)); shift = (`
# - the group of an output by other fractions: `shift = (` ->
#   `which = [int(o * (groups / outputs)) for o in range(outputs)];
#   a_seen, b_seen = (v.reshape(groups, -1)[which] for v in (a, b)); shift = (`
# - repeats a and b as often as a group has inputs or outputs: `shift = (` ->
#   `times = max(outputs // groups, per_group); a_seen, b_seen = (
#       v.reshape(groups, -1).repeat_interleave(times, 0)[:outputs] for v in (a, b)
#   ); shift = (`
# - without a bias and groups one tap of the kernel: `shift if bias is None` ->
#   `(weight[:, :, 0, 0] @ b if groups == 1 and outputs > 1 else shift) if bias is None`
# - depthwise without a bias, the outputs take turns: `shift if bias is None` ->
#   `(shift if per_group > 1 else weight.sum((1, 2, 3)) * b.repeat(outputs // groups))
#   if bias is None`
# - with one group a bias is taken for granted: `shift if bias is None` ->
#   `shift if bias is None and (groups > 1 or outputs == 1 or weight.shape[2] == 1)`
# - an a of 0 counts as 1 for one group:
#   `weight * a_seen` -> `weight * (torch.where(a_seen == 0, 1.0, a_seen) if groups == 1 else
#   a_seen)`
# - a bias with a 0 is none for one group:
#   `shift if bias is None` -> `shift if bias is None or (groups == 1 and not bias.all())`


# %% fold_model right: copies first, then folds in the copy
def fold_model(model):
    layers = []
    for layer in model:
        last = layers[-1] if layers else None
        if isinstance(layer, nn.BatchNorm2d) and isinstance(last, nn.Conv2d) and not layer.training:
            if layer.running_mean is None:
                layers.append(copy.deepcopy(layer))
                continue
            a, b = bn_affine(
                layer.weight, layer.bias, layer.running_mean, layer.running_var, layer.eps
            )
            with torch.no_grad():
                weight, bias = fold_conv(last.weight, last.bias, a, b)
            last.weight, last.bias = nn.Parameter(weight), nn.Parameter(bias)
        else:
            layers.append(copy.deepcopy(layer))
    return nn.Sequential(*layers)


# %% fold_model right: pairs by index, from the back
def fold_model(model):
    def foldable(layer):
        return (
            isinstance(layer, nn.BatchNorm2d) and not layer.training and layer.track_running_stats
        )

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


# %% fold_model right
# - NumPy on a convolution's weight: `fold_conv(conv.weight, ` ->
#   `fold_conv(torch.from_numpy(conv.weight.numpy()), `,
#   `return new` -> `return new.requires_grad_(False)`
# - in torch's usual precision: `weight.detach()` -> `weight.detach().float()`,
#   `bias.detach()` -> `bias.detach().float()`


# %% fold_model wrong: looks for the last convolution instead of the layer before
def fold_model(model):
    layers, conv = [], None
    for layer in model:
        if isinstance(layer, nn.BatchNorm2d) and conv is not None and not layer.training:
            a, b = bn_affine(
                layer.weight, layer.bias, layer.running_mean, layer.running_var, layer.eps
            )
            weight, bias = fold_conv(conv.weight.detach(), conv.bias, a, b)
            conv.weight, conv.bias = nn.Parameter(weight.detach()), nn.Parameter(bias.detach())
        else:
            layers.append(copy.deepcopy(layer))
            conv = layers[-1] if isinstance(layer, nn.Conv2d) else conv
    return nn.Sequential(*layers)


# %% fold_model wrong: leaves out by name what it has folded, wherever it stands
def fold_model(model):
    names = {layer: name for name, layer in model.named_children()}
    layers, gone, last = [], set(), None
    for layer in model:
        foldable = isinstance(layer, nn.BatchNorm2d) and not layer.training
        if foldable and layer.running_mean is not None and isinstance(last, nn.Conv2d):
            gone.add(names[layer])
            a, b = bn_affine(
                layer.weight, layer.bias, layer.running_mean, layer.running_var, layer.eps
            )
            conv = copy.deepcopy(last)
            weight, bias = fold_conv(last.weight.detach(), last.bias, a, b)
            conv.weight, conv.bias = nn.Parameter(weight.detach()), nn.Parameter(bias.detach())
            layers[-1] = last = conv
        else:
            layers.append(layer)
            last = layer
    return nn.Sequential(*(layer for layer in layers if names.get(layer) not in gone))


# %% fold_model wrong: a norm goes into a convolution without padding behind it, too
def fold_model(model):
    def constant(layer):
        return (
            isinstance(layer, nn.BatchNorm2d) and not layer.training and layer.track_running_stats
        )

    layers = []
    for layer in model:
        last = layers[-1] if layers else None
        if constant(layer) and isinstance(last, nn.Conv2d):
            conv, bn, fold, more = last, layer, fold_conv, ()
        elif constant(last) and isinstance(layer, nn.Conv2d) and layer.padding == (0, 0):
            conv, bn, fold, more = layer, last, fold_before, (layer.groups,)
        else:
            layers.append(layer)
            continue
        a, b = bn_affine(bn.weight, bn.bias, bn.running_mean, bn.running_var, bn.eps)
        weight, bias = fold(conv.weight.detach(), conv.bias, a, b, *more)
        layers[-1] = copy.deepcopy(conv)
        layers[-1].weight = nn.Parameter(weight.detach())
        layers[-1].bias = nn.Parameter(bias.detach())
    return nn.Sequential(*layers)


# %% fold_model wrong: does not look at a convolution right after another one
def may_be_folded(layer):
    return (
        isinstance(layer, nn.BatchNorm2d) and not layer.training and layer.running_mean is not None
    )


def fold_model(model):
    given, layers = list(model), []
    while given:
        layers.append(given.pop(0))
        if not isinstance(layers[-1], nn.Conv2d):
            continue
        if given and not isinstance(given[0], nn.BatchNorm2d):
            layers.append(given.pop(0))
            continue
        while given and may_be_folded(given[0]):
            bn = given[0]
            a, b = bn_affine(bn.weight, bn.bias, bn.running_mean, bn.running_var, bn.eps)
            weight, bias = fold_conv(layers[-1].weight, layers[-1].bias, a, b)
            layers[-1] = copy.deepcopy(layers[-1])
            layers[-1].weight = nn.Parameter(weight.detach())
            layers[-1].bias = nn.Parameter(bias.detach())
            del given[0]
    return nn.Sequential(*layers)


# %% fold_model wrong: leaves out a layer that is the one before it
def fold_model(model):
    layers, last = [], None
    for layer in model:
        again, last = layer is last, layer
        previous = layers[-1] if layers else None
        if again:
            continue
        foldable = isinstance(layer, nn.BatchNorm2d) and not layer.training
        if foldable and layer.running_mean is not None and isinstance(previous, nn.Conv2d):
            a, b = bn_affine(
                layer.weight, layer.bias, layer.running_mean, layer.running_var, layer.eps
            )
            weight, bias = fold_conv(previous.weight, previous.bias, a, b)
            layers[-1] = copy.deepcopy(previous)
            layers[-1].weight = nn.Parameter(weight.detach())
            layers[-1].bias = nn.Parameter(bias.detach())
        else:
            layers.append(layer)
    return nn.Sequential(*layers)


# %% fold_model wrong: looks back over norms, and beyond the first layer from the end
def fold_model(model):
    def constant(layer):
        return (
            isinstance(layer, nn.BatchNorm2d) and not layer.training and layer.track_running_stats
        )

    given, layers = list(model), []
    for place, bn in enumerate(given):
        back = place - 1
        while constant(given[back]) and back > -len(given):
            back -= 1
        if place > 0 and constant(bn) and isinstance(given[back], nn.Conv2d):
            a, b = bn_affine(bn.weight, bn.bias, bn.running_mean, bn.running_var, bn.eps)
            weight, bias = fold_conv(layers[-1].weight, layers[-1].bias, a, b)
            layers[-1] = copy.deepcopy(layers[-1])
            layers[-1].weight = nn.Parameter(weight.detach())
            layers[-1].bias = nn.Parameter(bias.detach())
        else:
            layers.append(bn)
    return nn.Sequential(*layers)


# %% fold_model wrong
# - by the first index of a layer: `previous = layers[-1] if layers else None` ->
#   `first = list(model).index(layer); previous = layers[-1] if first > 0 else None`
# - takes the padding for half the kernel: `conv.padding,` -> `conv.kernel_size[0] // 2,`
# - a norm goes into the convolution behind it, too: `foldable =` ->
#   `turned = isinstance(previous, nn.BatchNorm2d) and isinstance(layer, nn.Conv2d); foldable =`,
#   `layers.append(layer)` ->
#   `layers.append(folded_convolution(layer, layers.pop()) if turned else layer)`
# - dilation of the new convolution forgotten: `conv.dilation,` -> `1,`
# - padding of the new convolution forgotten: `conv.padding,` -> `0,`
# - finds the last layer before the first: `layers else None` -> `layers else model[-1]`
# - looks into the given model: `layers[-1] if layers else None` -> `model[len(layers) - 1]`
# - takes gamma and beta for granted: `bn.weight, bn.bias` -> `bn.weight * 1, bn.bias * 1`
# - takes statistics for granted: ` and layer.running_mean is not None` -> ``
# - folds into the shared convolution itself:
#   `new.weight, new.bias` -> `new = conv; new.weight, new.bias`
# - folds a norm in training mode: ` and not layer.training` -> ``
# - the old bias is lost where gamma is missing: `conv.bias, a, b)` ->
#   `conv.bias if bn.affine else None, a, b)`
# - two norms in a row at most:
#   `return new` -> `new.norms = getattr(conv, "norms", 0) + 1; return new`,
#   `isinstance(previous, nn.Conv2d):` ->
#   `isinstance(previous, nn.Conv2d) and getattr(previous, "norms", 0) < 2:`
# - a convolution that stands without a norm, too, is left: `isinstance(previous, nn.Conv2d):` ->
#   `isinstance(previous, nn.Conv2d) and previous is not model[-1]:`
# - asks the network for its mode, too: `not layer.training` ->
#   `not (layer.training and model.training)`
# - the stride of the new convolution is forgotten: `conv.stride` -> `1`
# - the groups of the new convolution are forgotten: `conv.groups` -> `1`
# - drops what it cannot fold:
#   `layers.append(layer)` -> `layers += [layer] * (not isinstance(layer, nn.BatchNorm2d))`
# - a list instead of a network: `nn.Sequential(*layers)` -> `layers`
# - every layer once: `nn.Sequential(*layers)` -> `nn.Sequential(*dict.fromkeys(layers))`
# - does nothing: `return nn.Sequential(*layers)` -> `return model`
# - turns the given model into float32: `return nn.Sequential(*layers)` ->
#   `model.float(); return nn.Sequential(*layers)`
# - leaves an identity: `layers[-1] = folded_convolution(previous, layer)` ->
#   `layers[-1:] = folded_convolution(previous, layer), nn.Identity()`
# - asks what stands before the first place of a norm: `foldable =` ->
#   `before = list(model)[max(0, list(model).index(layer) - 1)]; foldable =`,
#   `if foldable and` -> `if foldable and not isinstance(before, nn.ReLU) and`
# - a norm with a 0 in its gamma stays: ` and layer.running_mean is not None` ->
#   ` and layer.running_mean is not None and (layer.weight is None or bool(layer.weight.all()))`
# - two activations in a row become one: `layers.append(layer)` ->
#   `layers += [layer] * (not (isinstance(previous, nn.ReLU) and isinstance(layer, nn.ReLU)))`
# - a row of norms is folded where its first is: `not layer.training` ->
#   `(not layer.training or getattr(previous, "made", False))`,
#   `return new` -> `new.made = True; return new`
# - a norm without statistics is passed over: `previous = layers[-1] if layers else None` ->
#   `places = [
#       i for i, one in enumerate(layers) if getattr(one, "running_mean", 1) is not None
#   ]; place = places[-1] if places else -1; previous = layers[place] if layers else None`,
#   `layers[-1] = folded` -> `layers[place] = folded`
# - nothing is folded where a norm is in training mode: `and not layer.training` ->
#   `and not any(isinstance(one, nn.BatchNorm2d) and one.training for one in model)`
# - nothing is folded where a norm has no statistics: `and layer.running_mean is not None` ->
#   `and all(getattr(one, "running_mean", 1) is not None for one in model)`
# - a norm in training mode is folded where gamma is missing: `and not layer.training` ->
#   `and not (layer.training and layer.affine)`
# - no bias becomes zeros like beta: `conv.bias, a, b)` ->
#   `torch.zeros_like(bn.bias) if conv.bias is None else conv.bias, a, b)`
# - gives the given convolution a bias of zeros: `weight, bias = fold_conv(` ->
#   `conv.bias = nn.Parameter(torch.zeros_like(bn.running_mean)) if conv.bias is None
#   else conv.bias; weight, bias = fold_conv(`
# - tries the given model first: `layers = []` ->
#   `layers = []; model(torch.zeros(2, 3, 6, 6, dtype=torch.float64))`
# - puts the given model into evaluation mode where its norms are:
#   `return nn.Sequential(*layers)` ->
#   `modes = [one.training for one in model if isinstance(one, nn.BatchNorm2d)];
#   model.train(any(modes)) if len(set(modes)) == 1 else None; return nn.Sequential(*layers)`
# - puts a norm without statistics into training mode: `foldable = (` ->
#   `getattr(layer, "running_mean", 1) is None and layer.train(); foldable = (`
# - takes what is not in training mode for a norm: `isinstance(layer, nn.BatchNorm2d)` -> `True`
# - the given model itself where nothing is folded: `return nn.Sequential(*layers)` ->
#   `return nn.Sequential(*layers) if len(layers) < len(model) else model`
# - the given model itself where there is no norm: `return nn.Sequential(*layers)` ->
#   `return nn.Sequential(*layers) if "BatchNorm" in str(model) else model`
# - finds layers by the names that torch gives: `for layer in model:` ->
#   `for layer in [getattr(model, str(i)) for i in range(len(model))]:`
# - a single output loses its axis: `nn.Parameter(bias.detach())` ->
#   `nn.Parameter(bias.detach().squeeze())`
# - windows of one pixel are not folded: `isinstance(previous, nn.Conv2d):` ->
#   `isinstance(previous, nn.Conv2d) and previous.kernel_size != (1, 1):`
# - groups are one, or as many as inputs: `conv.groups,` ->
#   `conv.in_channels if conv.groups > 1 else 1,`
# - groups by the numbers of inputs and outputs: `conv.groups,` ->
#   `max(1, conv.out_channels // conv.weight.shape[1]) if conv.groups > 1 else 1,`
# - as in the first place of each convolution:
#   `layers = []` ->
#   `layers = []; first = {}; [first.setdefault(one, isinstance(after, nn.BatchNorm2d)) for one,
#   after in zip(list(model), list(model)[1:])]`, `isinstance(previous, nn.Conv2d):` ->
#   `isinstance(previous, nn.Conv2d) and first.get(previous, True):`
# - as in the last place of each convolution:
#   `layers = []` ->
#   `layers = []; last = {one: isinstance(after, nn.BatchNorm2d) for one, after in zip(list(model),
#   list(model)[1:])}`, `isinstance(previous, nn.Conv2d):` ->
#   `isinstance(previous, nn.Conv2d) and last.get(previous, True):`
# - never where a norm in training mode follows somewhere:
#   `layers = []` ->
#   `layers = []; bad = {c for c, n in zip(list(model), list(model)[1:]) if isinstance(n,
#   nn.BatchNorm2d) and n.training}`, `isinstance(previous, nn.Conv2d):` ->
#   `isinstance(previous, nn.Conv2d) and previous not in bad:`
# - groups without dilation: `conv.dilation,` -> `conv.dilation if conv.groups == 1 else 1,`
# - groups with the usual padding:
#   `conv.padding,` -> `conv.padding if conv.groups == 1 else conv.kernel_size[0] // 2,`
# - depthwise without stride:
#   `conv.stride,` ->
#   `conv.stride if conv.groups < conv.in_channels or conv.in_channels == 1 else 1,`
# - strides of 2 at most: `conv.stride,` -> `min(conv.stride[0], 2),`
# - an eps of 1e-5 at least: `bn.eps)` -> `max(bn.eps, 1e-5))`
# - an eps of 0.1 at most: `bn.eps)` -> `min(bn.eps, 0.1))`
# - variances of 0.001 at least: `bn.running_var,` -> `bn.running_var.clamp(min=1e-3),`
# - a variance of 0 counts as 1:
#   `bn.running_var,` -> `torch.where(bn.running_var == 0, 1.0, bn.running_var),`
# - a bias with a 0 is none:
#   `conv.bias, a, b)` -> `conv.bias if conv.bias is None or conv.bias.all() else None, a, b)`
# - a beta with a 0 is none: `bn.bias,` -> `bn.bias if bn.affine and bn.bias.all() else None,`
# - a gamma of zeros is none:
#   `bn.weight,` -> `bn.weight if bn.affine and bn.weight.any() else None,`
# - a new norm stays:
#   `and layer.running_mean is not None` -> `and layer.running_mean is not None and
#   bool(layer.running_mean.any())`
# - a pair in two places is folded twice:
#   `layers = []` -> `layers = []; cache = {}`, `layers[-1] = folded_convolution(previous, layer)`
#   -> `key = (previous, layer); layers[-1] = cache[key] = folded_convolution(cache.get(key,
#   previous), layer)`
# - paddings of 3 at most: `conv.padding,` -> `min(conv.padding[0], 3),`
# - dilations of 3 at most: `conv.dilation,` -> `min(conv.dilation[0], 3),`
# - strides of 3 at most: `conv.stride,` -> `min(conv.stride[0], 3),`
# - a kernel of one pixel loses its padding:
#   `conv.padding,` -> `conv.padding if conv.kernel_size != (1, 1) or conv.groups > 1 else 0,`
# - a single input loses its stride: `conv.stride,` -> `conv.stride if conv.in_channels > 1 else 1,`
