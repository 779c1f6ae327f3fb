"""The parts of a network that learns with rounding: weights, step sizes, BatchNorms, edges.

In the forward pass each weight and each edge goes through

    v = x / s        code = clamp(round(v) + z, first, last)        x' = s (code - z)

Rounding has no useful slope, so it is given the slope 1 (the straight-through estimator), d x' / d x = 1 inside the
range, its first and last code included, and 0 outside. The step size s is learned as well; the chain rule gives, as in
the LSQ paper,

    d x' / d s = round(v) - v inside,  first - z or last - z outside

times 1 / sqrt(values that share s * last), which keeps its steps in proportion to those of the weights. The bias is
rounded too, to whole units of input scale * weight scale, which is coarse when both have few bits.

After S. Esser et al., "Learned Step Size Quantization", arXiv:1902.08153. Zero points stay as calibrated.
"""

import copy
import dataclasses

import torch
import torch.nn.functional as F
from torch import nn

from helpers.quantization.affine import Affine, code_range, encode
from helpers.quantization.plan import Op, clamp
from helpers.quantization.recipe import Recipe
from helpers.quantization.weights import LayerWeights, pair_sums, per_row

__all__ = ["NormalizedLayer", "QatEdge", "QatLayer", "fake_quantize"]

SMALLEST_SLOPE = 1e-6  # a channel that BatchNorm multiplies by less is a constant


class QatLayer(nn.Module):
    """Weight, bias and step size (one per output channel, or one) of a layer."""

    def __init__(self, op: Op, start: LayerWeights, recipe: Recipe) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(op.weight.clone()), nn.Parameter(op.bias.clone())
        self.scale = nn.Parameter(start.scale.clone() if recipe.per_channel else start.scale[:1].clone())
        self.bits, self.keep_pairs = start.bits, recipe.weight_range == "pairs" and start.bits == 8

    def run(self, op: Op, source_scale: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
        """The operation with its weight and bias rounded."""
        unit = (source_scale * self.step_size()).detach()
        bias = self.bias + (torch.round(self.bias / unit) * unit - self.bias).detach()
        return dataclasses.replace(op, weight=self.rounded_weight(), bias=bias).run(*inputs)

    def rounded_weight(self) -> torch.Tensor:
        """The weight that codes can stand for."""
        codes = code_range(self.bits, signed=True, narrow=True)
        return fake_quantize(self.weight, per_row(self.step_size(), self.weight), 0, *codes)

    def step_size(self) -> torch.Tensor:
        """The learned step size, positive, and for 8 bits large enough that no pair of weights overflows."""
        scale = self.scale.abs().clamp(min=torch.finfo(torch.float32).tiny)
        if self.keep_pairs:
            least = pair_sums(self.weight.detach()) / code_range(8, signed=True)[1]
            scale = torch.maximum(scale, least if len(scale) > 1 else least.max())
        return scale

    def convert(self) -> LayerWeights:
        """The integers."""
        weight, scale = self.weight.detach(), self.step_size().detach().expand(len(self.weight)).clone()
        codes = encode(weight, per_row(scale, weight), torch.tensor(0), *code_range(self.bits, True, narrow=True))
        return LayerWeights(codes.cpu(), scale.cpu(), self.bias.detach().cpu().clone(), self.bits)


class NormalizedLayer(QatLayer):
    """A convolution in front of its BatchNorm: y = a (w * x) + c, where only w is rounded."""

    def __init__(self, folded: QatLayer, norm: nn.Module) -> None:
        """Take the BatchNorm out of a folded layer again; codes stay as they are, but for their signs."""
        nn.Module.__init__(self)
        self.norm = copy.deepcopy(norm)
        slope, offset = affine_of(self.norm)
        slope = torch.where(slope.abs() < SMALLEST_SLOPE, SMALLEST_SLOPE, slope)
        self.weight = nn.Parameter(folded.weight.detach() / per_row(slope, folded.weight))
        self.scale = nn.Parameter(folded.scale.detach() / slope.abs())
        self.bits, self.keep_pairs = folded.bits, folded.keep_pairs
        self.register_buffer("bias", (folded.bias.detach() - offset) / slope)  # what the convolution had of its own

    def run(self, op: Op, source_scale: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
        """Convolve with the rounded weight, normalise, add the residual, clamp."""
        y = self.norm(F.conv2d(inputs[0], self.rounded_weight(), self.bias, **op.attributes))
        return clamp(y + inputs[1] if op.residual else y, op.clamp)

    def convert(self) -> LayerWeights:
        """The integers, with the BatchNorm folded into scales and bias."""
        plain, (slope, offset) = super().convert(), (t.cpu() for t in affine_of(self.norm))
        codes = plain.codes * per_row(torch.where(slope < 0, -1, 1).to(torch.int8), plain.codes)
        scale = (plain.scale * slope.abs()).clamp(min=torch.finfo(torch.float32).tiny)
        return LayerWeights(codes, scale, plain.bias * slope + offset, self.bits)


def affine_of(norm: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """What a BatchNorm computes in inference: y = a x + c, as (a, c)."""
    slope = torch.rsqrt(norm.running_var + norm.eps)
    if norm.affine:
        slope = slope * norm.weight.detach()
    offset = -slope * norm.running_mean
    return slope, offset + norm.bias.detach() if norm.affine else offset


class QatEdge(nn.Module):
    """Step size of an edge."""

    def __init__(self, affine: Affine) -> None:
        super().__init__()
        self.scale, self.bits = nn.Parameter(affine.scale.clone()), affine.bits
        self.register_buffer("zero_point", affine.zero_point.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Values rounded to what codes can stand for."""
        return fake_quantize(x, self.step_size(), self.zero_point, *code_range(self.bits, signed=False))

    def step_size(self) -> torch.Tensor:
        """The learned step size, positive."""
        return self.scale.abs().clamp(min=torch.finfo(torch.float32).tiny)

    def convert(self) -> Affine:
        """The parameters as calibration would give them."""
        return Affine(self.step_size().detach().cpu(), self.zero_point.cpu(), self.bits, signed=False)


def fake_quantize(
    x: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor | int, first: int, last: int
) -> torch.Tensor:
    """Round x to the values that codes can stand for; the slopes are those at the top of this file.

    Example:
        >>> fake_quantize(torch.tensor([0.26, 9.0]), torch.tensor(0.5), 0, -7, 7)
        tensor([0.5000, 3.5000])
    """
    return _RoundToSteps.apply(x, scale, zero_point, first, last)


class _RoundToSteps(torch.autograd.Function):
    """Both directions in few passes over memory; composed of plain operations they take more than twice as long."""

    @staticmethod
    def forward(ctx, x: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor | int, first: int, last: int):
        code = (x / scale).round_().add_(zero_point)
        rounded = code.clamp(first, last).sub_(zero_point).mul_(scale)
        ctx.save_for_backward(x, scale, code, rounded)
        ctx.first, ctx.last = first, last
        return rounded

    @staticmethod
    def backward(ctx, slope: torch.Tensor):
        """With x' = s (code - z), d x' / d s is (x' - x) / s inside the range and x' / s outside."""
        x, scale, code, rounded = ctx.saved_tensors
        inside = torch.ops.aten.hardtanh_backward(slope, code, ctx.first - 0.5, ctx.last + 0.5)
        along_scale = (slope * rounded).addcmul_(inside, x, value=-1).sum_to_size(scale.shape) / scale
        damping = (x.numel() / scale.numel() * ctx.last) ** -0.5
        return inside, along_scale * damping, None, None, None
