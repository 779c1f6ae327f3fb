"""The repairs, in the order in which a recipe asks for them: what keeps a network's answers right with few codes.

    equalize         `equalization.py`: moves scale between layers; the network stays the same
    rounding         learned (AdaRound): chooses codes by the error of the layer's output
    bias_correction  takes back the shift of the layer's mean output

**Rounding.** Rounding to the nearest code is best for each weight alone, but errors of neighbouring weights add up or
cancel in the output. With x the exact input, y the input in the quantized network, W the weights and V the rounded
weights of one output channel (rows), and the means taken care of by the bias,

    E |W x - V y|^2 = W cov(x, x) W' - 2 W cov(x, y) V' + V cov(y, y) V'

so the images are needed only for three matrices. Each weight is written as scale * (floor(W / scale) + h(v)) with a
soft switch h(v) = clamp(1.2 sigmoid(v) - 0.1, 0, 1), and gradient descent on v lowers the error while a growing
penalty 1 - |2 h - 1|^beta pushes every switch to 0 or 1. After M. Nagel et al., "Up or Down? Adaptive Rounding for
Post-Training Quantization", arXiv:2004.10568, which follows the same loss with mini-batches of images.

**Bias correction.** Rounded weights and a quantized input give, on average, E[V y] instead of E[W x]. The difference is
a constant per output channel: b' = b + W E[x] - V E[y]. After M. Nagel et al., arXiv:1906.04721.

A convolution is a matrix product with the *columns* of its input: the patch under the kernel at every place of every
image, zeros of the padding included.
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from helpers.quantization.affine import Affine, code_range
from helpers.quantization.equalization import equalize
from helpers.quantization.observers import batches as in_batches
from helpers.quantization.plan import INPUT, Op, Plan, Recipe, last_uses
from helpers.quantization.weights import PAIR_LIMIT, LayerWeights, per_row

__all__ = ["Moments", "correct_bias", "learn_rounding", "moments", "quantized_op", "repair_plan", "repair_weights"]

REPAIR_IMAGES = 512  # the means and covariances of a layer's input are known well enough from these
ENOUGH_PLACES = 1 << 14  # to know the second moments of a few inputs; of many inputs, PLACES_PER_INPUT for each
PLACES_PER_INPUT = 64
STEPS = 200
LEARNING_RATE = 0.05
DAMPING = 0.01  # of the mean variance: few images do not tell everything about many inputs
PENALTY = 0.05
WARM_UP = 0.2  # the share of steps without penalty
BETA_START, BETA_END = 20.0, 2.0

Batches = list[torch.Tensor]
Improve = Callable[[Op, LayerWeights, Batches, Batches], LayerWeights]


def repair_plan(plan: Plan, recipe: Recipe) -> Plan:
    """Repairs of the float network, on a copy."""
    plan = plan.copy()
    if recipe.equalize:
        equalize(plan)
    return plan


def repair_weights(
    plan: Plan, edges: dict[str, Affine], weights: dict[str, LayerWeights], images: torch.Tensor, recipe: Recipe
) -> dict[str, LayerWeights]:
    """Repairs of the rounded weights.

    Args:
        plan: the repaired float network.
        edges: how its edges are quantized.
        weights: its weights, rounded to the nearest code; not changed.
        images: calibration images, uint8 or normalised.
        recipe: `rounding` and `bias_correction` matter here.
    """

    def improve(op: Op, layer: LayerWeights, exact: Batches, rounded: Batches) -> LayerWeights:
        if recipe.rounding == "learned":
            layer = learn_rounding(op, layer, moments(op, exact, rounded))
        return correct_bias(op, layer, exact, rounded) if recipe.bias_correction else layer

    if recipe.rounding == "learned" or recipe.bias_correction:
        return walk(plan, edges, weights, images[:REPAIR_IMAGES], improve)
    return weights


@torch.no_grad()
def walk(
    plan: Plan, edges: dict[str, Affine], weights: dict[str, LayerWeights], images: torch.Tensor, improve: Improve
) -> dict[str, LayerWeights]:
    """Run a plan in float and quantized side by side, and improve the weights of one layer after the other on the way.

    A layer is repaired on what it will really be given: the output of the quantized layers before it. So all images
    pass one operation before the next operation begins; the network is run only once, however many layers it has.

    Args:
        plan: the float operations.
        edges: how each edge is quantized.
        weights: the integer weights so far; not changed.
        images: uint8 images, or normalised input of the plan.
        improve: gets the layer, its integer weights, and its input in batches, exact and as the quantized network
            computes it; returns the weights to go on with.
    """

    def through(edge: str, values: Batches) -> Batches:
        """What is left of an edge's values after quantization; the last edge stays in float."""
        affine = edges.get(edge)
        return values if affine is None else [affine.dequantize(affine.quantize(value)) for value in values]

    def run(op: Op, values: dict[str, Batches]) -> Batches:
        return [op.run(*inputs) for inputs in zip(*(values[edge] for edge in op.inputs), strict=True)]

    batches = list(in_batches(images))
    exact, rounded = {INPUT: batches}, {INPUT: through(INPUT, batches)}
    improved: dict[str, LayerWeights] = {}
    for op, done in zip(plan.ops, last_uses(plan.ops), strict=True):
        if op.name in weights:
            improved[op.name] = improve(op, weights[op.name], exact[op.inputs[0]], rounded[op.inputs[0]])
        exact[op.name] = run(op, exact)
        rounded[op.name] = through(op.name, run(quantized_op(op, improved.get(op.name)), rounded))
        for edge in done:
            del exact[edge], rounded[edge]
    return improved


def quantized_op(op: Op, layer: LayerWeights | None) -> Op:
    """The same operation with the weights that its integers stand for."""
    return op if layer is None else dataclasses.replace(op, weight=layer.decode(), bias=layer.bias)


# --- What a layer sees ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moments:
    """Second central moments of the columns x of the float network and y of the quantized one.

    Attributes:
        exact: cov(x, x), one matrix per group of the convolution, (groups, size, size).
        cross: cov(x, y).
        rounded: cov(y, y).
    """

    exact: torch.Tensor
    cross: torch.Tensor
    rounded: torch.Tensor


def rows(op: Op, weight: torch.Tensor) -> torch.Tensor:
    """A weight as the matrix that multiplies the columns: (groups, outputs per group, size)."""
    groups = op.attributes.get("groups", 1)
    return weight.reshape(groups, weight.shape[0] // groups, -1)


def columns(op: Op, x: torch.Tensor) -> torch.Tensor:
    """The patches that a layer multiplies with its weights: (groups, size, places)."""
    if op.kind == "linear":
        return x.reshape(-1, x.shape[-1]).t().unsqueeze(0)
    groups = op.attributes["groups"]
    if tuple(op.weight.shape[2:]) != (1, 1) or op.attributes["padding"] != (0, 0):
        geometry = (op.attributes[name] for name in ("dilation", "padding", "stride"))
        x = F.unfold(x, op.weight.shape[2:], *geometry)
    elif op.attributes["stride"] != (1, 1):
        down, right = op.attributes["stride"]
        x = x[:, :, ::down, ::right]
    return x.flatten(2).transpose(0, 1).reshape(groups, x.shape[1] // groups, -1)


def means(op: Op, batches: Batches) -> torch.Tensor:
    """The mean column, (groups, size, 1). The patch of a sum is the sum of the patches, so images are added first."""
    patches = columns(op, sum(batch.sum(0, keepdim=True) for batch in batches))
    return patches.mean(2, keepdim=True) / sum(len(batch) for batch in batches)


def moments(op: Op, exact: Batches, rounded: Batches) -> Moments:
    """Second moments of a layer's input, from as many images as are enough.

    Args:
        op: the layer.
        exact: its input in the float network, in batches.
        rounded: its input in the quantized network, in the same batches.
    """
    enough = max(ENOUGH_PLACES, PLACES_PER_INPUT * op.weight[0].numel())
    places_per_image = math.prod(op.shape[:-1] if op.kind == "linear" else op.shape[1:])
    products, x_sum, y_sum, places = [0, 0, 0], 0, 0, 0
    for one, other in zip(exact, rounded, strict=True):
        share = math.ceil((enough - places) / places_per_image)  # that many images have the places still missing
        x, y = columns(op, one[:share]), columns(op, other[:share])
        products = [p + (a @ b.mT).double() for p, (a, b) in zip(products, ((x, x), (x, y), (y, y)), strict=True)]
        x_sum, y_sum = x_sum + x.double().sum(2, keepdim=True), y_sum + y.double().sum(2, keepdim=True)
        places += x.shape[2]
        if places >= enough:
            break
    sums = ((x_sum, x_sum), (x_sum, y_sum), (y_sum, y_sum))
    return Moments(*((p - a @ b.mT / places).div(places).float() for p, (a, b) in zip(products, sums, strict=True)))


# --- Bias correction and learned rounding -----------------------------------------------------------------------------


def correct_bias(op: Op, layer: LayerWeights, exact: Batches, rounded: Batches) -> LayerWeights:
    """Take back the shift of one layer's mean output.

    Args:
        op: the layer in float.
        layer: its integer weights.
        exact, rounded: its input in the float and in the quantized network, in batches.
    """
    wanted = rows(op, op.weight) @ means(op, exact)
    found = rows(op, layer.decode()) @ means(op, rounded)
    return dataclasses.replace(layer, bias=op.bias + (wanted - found).flatten())


def learn_rounding(op: Op, layer: LayerWeights, seen: Moments) -> LayerWeights:
    """Choose the codes of one layer anew; scale, bits and bias stay.

    Args:
        op: the layer in float.
        layer: its weights, rounded to the nearest code.
        seen: the moments of its input.

    Returns:
        Weights whose output error, row by row, is at most that of `layer`.
    """
    first, last = code_range(layer.bits, signed=True, narrow=True)
    weight, scale = rows(op, op.weight.detach()), rows(op, per_row(layer.scale, layer.codes).expand_as(layer.codes))
    floor = torch.floor(weight / scale)
    seen = damped(seen)
    nearest = rows(op, layer.codes).float()
    worst = output_error(weight, nearest * scale, seen).clamp(min=1e-12)
    switch = _learn(weight, scale, floor, worst, seen, (first, last))
    codes = (floor + (switch > 0)).clamp(first, last)
    if layer.bits == 8:
        codes = _keep_pairs(op, codes, nearest)
    better = output_error(weight, codes * scale, seen) < worst
    codes = torch.where(better, codes, nearest)
    return dataclasses.replace(layer, codes=codes.reshape(layer.codes.shape).to(torch.int8))


@torch.enable_grad()
def _learn(
    weight: torch.Tensor,
    scale: torch.Tensor,
    floor: torch.Tensor,
    worst: torch.Tensor,
    seen: Moments,
    codes: tuple[int, int],
) -> torch.Tensor:
    """Gradient descent on the switches; returns them, positive where a weight goes up."""
    share = ((weight / scale - floor + 0.1) / 1.2).clamp(0.01, 0.99)
    switch = torch.logit(share).requires_grad_()  # h(switch) begins at the exact weight
    optimizer = torch.optim.Adam([switch], lr=LEARNING_RATE)
    target = weight @ seen.cross
    for step in range(STEPS):
        soft = (1.2 * torch.sigmoid(switch) - 0.1).clamp(0, 1)
        rounded = (floor + soft).clamp(*codes) * scale
        # the error's slope in V is 2 (V cov(y, y) - W cov(x, y)): backward() needs no second matrix product
        slope = 2 * (rounded.detach() @ seen.rounded - target) / worst
        loss = (rounded * slope).sum()
        progress = (step / STEPS - WARM_UP) / (1 - WARM_UP)
        if progress > 0:
            beta = BETA_START + (BETA_END - BETA_START) * progress
            loss = loss + PENALTY * (1 - (2 * soft - 1).abs().pow(beta)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return switch.detach()


def output_error(weight: torch.Tensor, rounded: torch.Tensor, seen: Moments) -> torch.Tensor:
    """E |W x - V y|^2 for each output channel, means aside: (groups, outputs, 1)."""
    terms = weight @ seen.exact * weight - 2 * (weight @ seen.cross) * rounded + rounded @ seen.rounded * rounded
    return terms.sum(2, keepdim=True)


def damped(seen: Moments) -> Moments:
    """Moments with a little independent noise, which keeps V near W where the images say nothing."""
    size = seen.rounded.shape[1]
    noise = DAMPING * seen.rounded.diagonal(dim1=1, dim2=2).mean(1).reshape(-1, 1, 1) * torch.eye(size)
    return Moments(seen.exact + noise, seen.cross + noise, seen.rounded + noise)


def _keep_pairs(op: Op, codes: torch.Tensor, nearest: torch.Tensor) -> torch.Tensor:
    """Undo what would let a pair of 8-bit weights overflow (see `weights.py`)."""
    chosen, safe = (c.reshape(op.weight.shape[0], op.weight.shape[1], -1) for c in (codes, nearest))
    even = chosen.shape[1] // 2 * 2
    pairs = chosen[:, :even].unflatten(1, (-1, 2))
    overflow = (pairs.clamp(min=0).sum(2) > PAIR_LIMIT) | (pairs.clamp(max=0).sum(2) < -PAIR_LIMIT)
    kept = torch.where(overflow.unsqueeze(2), safe[:, :even].unflatten(1, (-1, 2)), pairs).flatten(1, 2)
    return torch.cat([kept, chosen[:, even:]], dim=1).reshape(codes.shape)
