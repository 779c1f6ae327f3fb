"""The repairs, in the order in which a recipe asks for them: what keeps a network's answers right with few codes.

**Cross-layer equalization.** A channel whose weights are 100 times smaller than the largest loses all its bits when one
scale serves the whole tensor. A clamp at zero lets a positive factor pass, relu(x / s) = relu(x) / s, so for each
channel

    W1 -> W1 / s     b1 -> b1 / s     upper clamp h -> h / s (ReLU6 becomes a limit per channel)     W2 -> W2 * s

leaves the network as it was. s = sqrt(range of W1 / range of W2) gives both layers the same range in that channel.
Edges that are added to each other, or joined by a pooling, must carry the same factors: together they are a *space*,
with all layers that write to it and all that read from it. After M. Nagel et al., "Data-Free Quantization Through
Weight Equalization and Bias Correction", arXiv:1906.04721; the limit per channel is exact, the paper replaces ReLU6.

**Rounding.** Rounding to the nearest code is best for each weight alone, but errors of neighbouring weights add up or
cancel in the output. With x the exact input, y the input in the quantized network, W the weights and V the rounded
weights of one output channel (rows), and the means taken care of by the bias,

    E |W x - V y|^2 = W cov(x, x) W' - 2 W cov(x, y) V' + V cov(y, y) V'

so the images are needed only for three matrices. Each weight is written as scale * (floor(W / scale) + h(v)) with a
soft switch h(v) = clamp(1.2 sigmoid(v) - 0.1, 0, 1), and gradient descent on v lowers the error while a growing
penalty 1 - |2 h - 1|^beta pushes every switch to 0 or 1. After M. Nagel et al., "Up or Down? Adaptive Rounding for
Post-Training Quantization", arXiv:2004.10568, which follows the same loss with mini-batches of images.

**Bias correction.** Rounded weights and a quantized input give, on average, E[V y] instead of E[W x]. The difference is
a constant per output channel: b' = b + W E[x] - V E[y]. From the same paper.

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
from helpers.quantization.observers import batches as in_batches
from helpers.quantization.plan import INPUT, Op, Plan, Recipe, last_uses
from helpers.quantization.weights import PAIR_LIMIT, LayerWeights, per_row

__all__ = ["equalize", "quantized_op", "repair_plan", "repair_weights"]

REPAIR_IMAGES = 512  # the means and covariances of a layer's input are known well enough from these
ENOUGH_PLACES = 1 << 14  # to know the second moments of a few inputs; of many inputs, PLACES_PER_INPUT for each
PLACES_PER_INPUT = 64
STEPS = 200
LEARNING_RATE = 0.05
DAMPING = 0.01  # of the mean variance: few images do not tell everything about many inputs
PENALTY = 0.05
WARM_UP = 0.2  # the share of steps without penalty
BETA_START, BETA_END = 20.0, 2.0
SWEEPS = 40  # of the equalization
CONVERGED = 1e-3  # a sweep whose factors all lie so near to 1 is the last
CARRIERS = ("add", "average_pool", "max_pool", "clamp")  # a factor per channel passes them

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


# --- Cross-layer equalization -----------------------------------------------------------------------------------------


@dataclass
class Space:
    """Edges that share one factor per channel, the layers around them, and why they must stay as they are."""

    edges: set[str]
    writers: list[Op]
    readers: list[Op]
    reason: str | None = None


def equalize(plan: Plan) -> list[Space]:
    """Equalise every space of a plan, in place; the network computes the same function as before.

    Args:
        plan: a copy that belongs to the caller.

    Returns:
        All spaces; those with a `reason` were left alone.
    """
    found = spaces(plan)
    for _ in range(SWEEPS):
        strongest = max((_equalize_space(plan, space) for space in found if space.reason is None), default=0.0)
        if strongest < CONVERGED:
            break
    return found


def spaces(plan: Plan) -> list[Space]:
    """Group the edges of a plan into spaces, in the order in which the plan reaches them."""
    parent = {edge: edge for edge in [INPUT, *(op.name for op in plan.ops)]}

    def root(edge: str) -> str:
        while parent[edge] != edge:
            edge = parent[edge]
        return edge

    for op in plan.ops:
        for edge in _tied(plan, op):
            parent[root(edge)] = root(op.name)
    groups: dict[str, Space] = {}
    for edge in parent:
        groups.setdefault(root(edge), Space(set(), [], [])).edges.add(edge)
    for space in groups.values():
        space.writers = [op for op in plan.layers if op.name in space.edges]
        space.readers = [op for op in plan.layers if op.inputs[0] in space.edges]
        space.reason = _objection(plan, space)
    return list(groups.values())


def _tied(plan: Plan, op: Op) -> list[str]:
    """The inputs of an operation that must carry the same factors as its output."""
    if op.kind in CARRIERS or (op.kind == "reshape" and _keeps_channels(plan, op)):
        return list(op.inputs)
    return [op.residual] if op.residual else []


def _keeps_channels(plan: Plan, op: Op) -> bool:
    """Whether a reshape only drops dimensions of size 1 after the channels."""
    before = plan.input_shape if op.inputs[0] == INPUT else plan[op.inputs[0]].shape
    return before[0] == op.shape[0] and len(op.shape) == 1


def _objection(plan: Plan, space: Space) -> str | None:
    """Why a space must stay as it is, or None."""
    if INPUT in space.edges or plan.output in space.edges:
        return "it holds the network's input or output"
    for op in plan.ops:
        inside = op.name in space.edges
        if op.kind == "linear" and len(op.shape) > 1 and (inside or op.inputs[0] in space.edges):
            return f"{op.name} has its channels in the last of several dimensions"
        if inside and op.clamp is not None and not (op.clamp[0] is None or _is_zero(op.clamp[0])):
            return f"the lower clamp of {op.name} is not zero"
        foreign = op.kind in ("float", "reshape") and not _tied(plan, op)
        if foreign and (inside or space.edges.intersection(op.inputs)):
            return f"{op.name} ({op.kind}) does not let a factor per channel pass"
    if not space.writers or not space.readers:
        return "no layer writes to it, or none reads from it"
    return None


def _is_zero(bound: float | torch.Tensor) -> bool:
    return bool((torch.as_tensor(bound) == 0).all())


def _equalize_space(plan: Plan, space: Space) -> float:
    """One step for one space; returns how far the strongest factor is from 1."""
    before = torch.stack([op.weight.abs().flatten(1).amax(1) for op in space.writers]).amax(0)
    after = torch.stack([input_view(op).abs().amax((1, 3)).flatten() for op in space.readers]).amax(0)
    alive = (before > 0) & (after > 0)  # the factor of a dead channel does not matter
    factor = torch.where(alive, (before / after.clamp(min=1e-30)).sqrt(), 1.0).clamp(1e-4, 1e4)
    for op in plan.ops:
        if op.name in space.edges:
            _divide_output(op, factor)
    for op in space.readers:
        view = input_view(op)
        op.weight = (view * factor.reshape(view.shape[0], 1, view.shape[2], 1)).view_as(op.weight)
    return float((factor - 1).abs().max())


def _divide_output(op: Op, factor: torch.Tensor) -> None:
    """Divide an operation's output: its weights, bias and limit."""
    if op.kind in ("conv", "linear"):
        op.weight = op.weight / factor.reshape(-1, *[1] * (op.weight.ndim - 1))
        op.bias = op.bias / factor
    if op.clamp is not None and op.clamp[1] is not None:
        op.clamp = (op.clamp[0], op.clamp[1] / factor)


def input_view(op: Op) -> torch.Tensor:
    """The weights seen from their input channels: (groups, outputs per group, inputs per group, kernel)."""
    groups = op.attributes.get("groups", 1)
    return op.weight.reshape(groups, op.weight.shape[0] // groups, op.weight.shape[1], -1)


# --- Layer by layer, on what the quantized network computes ----------------------------------------------------------


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
