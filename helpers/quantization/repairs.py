"""Repairs of the rounded weights, layer by layer, on what the quantized network really gives each
layer.

**Learned rounding.** Rounding to the nearest code is best for each weight alone, but errors of
neighbouring weights add up or cancel in the output. With x the exact input, y the input in the
quantized network, W the weights and V the rounded weights of one output channel, and the means left
to bias correction,

    E |W x - V y|^2 = [W -V] C [W -V]'      with C the covariance matrix of x and y together

so of the images only C is needed. Each weight is written as scale * (floor(W / scale) + h(v)) with
a soft switch

    h(v) = clamp(1.2 sigmoid(v) - 0.1, 0, 1)

and gradient descent on v lowers the error while a penalty 1 - |2 h - 1|^beta, with beta falling,
takes hold of more and more switches, and pushes each to 0 or 1. After M. Nagel et al., "Up or Down?
Adaptive Rounding for Post-Training Quantization" (AdaRound), arXiv:2004.10568, which follows the
same loss with mini-batches of images.

**Bias correction.** Rounded weights and a quantized input give, on average, E[V y] instead of
E[W x]. The difference is a constant per output channel: b' = b + W E[x] - V E[y]. After
arXiv:1906.04721.

A convolution is a matrix product with the *columns* of its input: the patch under the kernel at
every place.
"""

import math
import warnings
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.quantization.affine import Affine, code_range
from helpers.quantization.observers import BATCH
from helpers.quantization.plan import INPUT, Plan, PlanOp, Recipe, execute
from helpers.quantization.weights import LayerWeights, per_row

REPAIR_IMAGES = 512  # enough for the means and covariances of a layer's input
# A covariance is measured on at least this many places (patches), and this many per input.
FEWEST_PLACES = 1 << 14
PLACES_PER_INPUT = 64
MOST_INPUTS = 5000  # ResNet-50 has 4,608; a covariance of 10,000 columns has 0.8 GB in float64
STEPS = 200
LEARNING_RATE = 0.05
TINY = torch.finfo(torch.float32).tiny
DAMPING = 0.01  # noise, as a share of the mean variance: see `covariance`
PENALTY = 0.05
WARM_UP = 0.2  # the share of steps without penalty
BETA_START = 20.0
BETA_END = 2.0

Batches = list[Tensor]


@torch.no_grad()
def repair_weights(
    plan: Plan,
    edges: dict[str, Affine],
    weights: dict[str, LayerWeights],
    images: Tensor,
    recipe: Recipe,
) -> dict[str, LayerWeights]:
    """Choose roundings and biases anew, as a recipe asks; the weights given are not changed.

    The plan runs in float and quantized side by side; all images pass one operation before the next
    one begins.
    """
    if recipe.rounding == "nearest" and not recipe.bias_correction:
        return weights
    repaired = {}

    def rounded(edge, batches):
        if edge not in edges:
            return batches
        return [edges[edge].dequantize(edges[edge].quantize(batch)) for batch in batches]

    def compute(op, *inputs):  # each a pair: the exact batches, and the rounded ones
        layer = weights.get(op.name)
        if layer and recipe.rounding == "learned" and not has_too_many_inputs(op):
            layer = learn_rounding(op, layer, covariance(op, *inputs[0]))
        if layer and recipe.bias_correction:
            layer = correct_bias(op, layer, *inputs[0])
        if layer:
            repaired[op.name] = layer
        exact, quantized = zip(*inputs, strict=True)
        exact = [op.run(*batch) for batch in zip(*exact, strict=True)]
        op = quantized_op(op, layer)
        quantized = [op.run(*batch) for batch in zip(*quantized, strict=True)]
        return exact, rounded(op.name, quantized)

    batches = list(images[:REPAIR_IMAGES].split(BATCH))
    execute(plan.ops, {INPUT: (batches, rounded(INPUT, batches))}, compute)
    return repaired


def has_too_many_inputs(op: PlanOp) -> bool:
    """Whether the covariance of a layer's inputs would fill the memory; a warning then says so."""
    inputs = op.weight[0].numel()
    if inputs > MOST_INPUTS:
        told = f"{op.name}: {inputs} inputs are too many to learn its rounding: nearest is taken"
        warnings.warn(told, stacklevel=2)
    return inputs > MOST_INPUTS


def quantized_op(op: PlanOp, layer: LayerWeights | None) -> PlanOp:
    """The same operation with the weights that its integers stand for."""
    return replace(op, weight=layer.decode(), bias=layer.bias) if layer else op


def correct_bias(op: PlanOp, layer: LayerWeights, exact: Batches, rounded: Batches) -> LayerWeights:
    """Take back the shift of a layer's mean output.

    A layer is affine, so its output for the mean image is the mean of its outputs.
    """
    affine = replace(op, inputs=op.inputs[:1], clamp=None)
    exact_mean = affine.run(_mean_image(exact))
    rounded_mean = replace(affine, weight=layer.decode()).run(_mean_image(rounded))
    channels = 1 if op.kind == "conv" else -1
    shift = (exact_mean - rounded_mean).movedim(channels, 0).flatten(1).mean(1)
    return replace(layer, bias=op.bias + shift)


def _mean_image(batches):
    return sum(batch.sum(0, keepdim=True) for batch in batches) / sum(map(len, batches))


def rows(op: PlanOp, weight: Tensor) -> Tensor:
    """A weight as the matrix that multiplies the columns: (groups, outputs per group, size)."""
    return weight.unflatten(0, (op.attributes.get("groups", 1), -1)).flatten(2)


def columns(op: PlanOp, x: Tensor) -> Tensor:
    """The patches that a layer multiplies with its weights: (groups, size, places)."""
    if op.kind == "linear":
        return x.reshape(-1, x.shape[-1]).t().unsqueeze(0)
    geometry = {name: op.attributes[name] for name in ("dilation", "padding", "stride")}
    patches = F.unfold(x, op.weight.shape[2:], **geometry)
    return patches.transpose(0, 1).unflatten(0, (op.attributes["groups"], -1)).flatten(2)


def covariance(op: PlanOp, exact: Batches, rounded: Batches) -> Tensor:
    """The covariance of a layer's columns x and y together: (groups, 2 size, 2 size).

    Only as many images are used as are needed. The same little noise is added to x and to y,
    independent for each column: where the images say nothing, an error W - V then costs something,
    too.
    """
    size = op.weight[0].numel()
    places_per_image = math.prod(op.shape[:-1] if op.kind == "linear" else op.shape[1:])
    places_wanted = max(FEWEST_PLACES, PLACES_PER_INPUT * size)
    images_left = math.ceil(places_wanted / places_per_image)
    products = sums = places = 0
    for x, y in zip(exact, rounded, strict=True):
        if images_left <= 0:
            break
        pair = [columns(op, batch[:images_left]) for batch in (x, y)]
        both = torch.cat(pair, dim=1)
        products = products + (both @ both.mT).double()
        sums = sums + both.double().sum(2, keepdim=True)
        places += both.shape[2]
        images_left -= len(x)
    measured = (products - sums @ sums.mT / places).div(places).float()
    variances = measured.diagonal(dim1=1, dim2=2)[:, size:]
    noise = DAMPING * variances.mean(1).reshape(-1, 1, 1)
    return measured + noise * torch.eye(size).repeat(2, 2)


def output_error(weight: Tensor, rounded: Tensor, cov: Tensor) -> Tensor:
    """E |W x - V y|^2 for each output channel, without the means: (groups, outputs, 1)."""
    both = torch.cat([weight, -rounded], dim=2)
    return (both @ cov * both).sum(2, keepdim=True)


@torch.enable_grad()
def learn_rounding(op: PlanOp, layer: LayerWeights, cov: Tensor) -> LayerWeights:
    """Choose the codes of one layer anew, given the covariance of its input; no row becomes worse
    than in `layer`.
    """
    limits = code_range(layer.bits, signed=True)
    weight = rows(op, op.weight.detach())
    scale = rows(op, per_row(layer.scale, layer.codes).expand_as(layer.codes))
    nearest = rows(op, layer.codes).float()
    worst = output_error(weight, nearest * scale, cov)
    # The error of a row that is exact is 0; against its signal, any other is large.
    unit = worst.maximum(1e-12 * output_error(weight, 0 * weight, cov)).clamp(min=TINY)
    floor = torch.floor(weight / scale)
    share = ((weight / scale - floor + 0.1) / 1.2).clamp(0.01, 0.99)
    switch = torch.logit(share).requires_grad_()  # h(switch) begins at the exact weight
    optimizer = torch.optim.Adam([switch], lr=LEARNING_RATE)
    size = weight.shape[2]
    cov_xy = cov[:, :size, size:]
    cov_yy = cov[:, size:, size:]
    target = weight @ cov_xy
    for step in range(STEPS):
        soft = (1.2 * torch.sigmoid(switch) - 0.1).clamp(0, 1)
        rounded = (floor + soft).clamp(*limits) * scale
        # The error's slope in V is 2 (V cov(y, y) - W cov(x, y)); given as a constant, backward()
        # needs no second matrix product.
        slope = 2 * (rounded.detach() @ cov_yy - target) / unit
        loss = (rounded * slope).sum()
        progress = (step / STEPS - WARM_UP) / (1 - WARM_UP)
        if progress > 0:
            beta = BETA_START + (BETA_END - BETA_START) * progress
            loss = loss + PENALTY * (1 - (2 * soft - 1).abs().pow(beta)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    codes = (floor + (switch.detach() > 0)).clamp(*limits)
    error = output_error(weight, codes * scale, cov)
    codes = torch.where(error < worst, codes, nearest)
    return replace(layer, codes=codes.reshape(layer.codes.shape).to(torch.int8))
