"""Learned rounding: for each weight, decide between the two nearest codes so that the layer's output suffers least.

Rounding to the nearest code is best for each weight alone, but errors of neighbouring weights add up or cancel in the
output. With x the exact input, y the input in the quantized network, W the weights and V the rounded weights of one
output channel (rows), and the means taken care of by the bias,

    E |W x - V y|^2 = W cov(x, x) W' - 2 W cov(x, y) V' + V cov(y, y) V'

so the images are needed only for three matrices. Each weight is written as scale * (floor(W / scale) + h(v)) with a
soft switch h(v) = clamp(1.2 sigmoid(v) - 0.1, 0, 1), and gradient descent on v lowers the error while a growing
penalty 1 - |2 h - 1|^beta pushes every switch to 0 or 1.

After M. Nagel et al., "Up or Down? Adaptive Rounding for Post-Training Quantization", arXiv:2004.10568, which follows
the same loss with mini-batches of images instead of their moments.
"""

import dataclasses

import torch

from helpers.quantization.affine import code_range
from helpers.quantization.moments import Moments, rows
from helpers.quantization.plan import Op
from helpers.quantization.weights import PAIR_LIMIT, LayerWeights

__all__ = ["learn_rounding", "output_error"]

STEPS = 200
LEARNING_RATE = 0.05
DAMPING = 0.01  # of the mean variance: few images do not tell everything about many inputs
PENALTY = 0.05
WARM_UP = 0.2  # the share of steps without penalty
BETA_START, BETA_END = 20.0, 2.0


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
    weight, scale = rows(op, op.weight.detach()), rows(op, per_weight(layer))
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


def per_weight(layer: LayerWeights) -> torch.Tensor:
    """The scale of each weight, in the weight's shape."""
    return layer.scale.reshape(-1, *[1] * (layer.codes.ndim - 1)).expand(layer.codes.shape)


def _keep_pairs(op: Op, codes: torch.Tensor, nearest: torch.Tensor) -> torch.Tensor:
    """Undo what would let a pair of 8-bit weights overflow (see `weights.py`)."""
    chosen, safe = (c.reshape(op.weight.shape[0], op.weight.shape[1], -1) for c in (codes, nearest))
    even = chosen.shape[1] // 2 * 2
    pairs = chosen[:, :even].unflatten(1, (-1, 2))
    overflow = (pairs.clamp(min=0).sum(2) > PAIR_LIMIT) | (pairs.clamp(max=0).sum(2) < -PAIR_LIMIT)
    kept = torch.where(overflow.unsqueeze(2), safe[:, :even].unflatten(1, (-1, 2)), pairs).flatten(1, 2)
    return torch.cat([kept, chosen[:, even:]], dim=1).reshape(codes.shape)
