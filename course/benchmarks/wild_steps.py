"""What is done with each network of `wild.py`, and how one knows that it is right.

A step returns numbers for its row, or raises: `Wrong` where something was handed out that answers
differently, any other error as it comes.
"""

import copy
import functools
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from course.benchmarks.wild_norms import foldable_norms
from course.benchmarks.wild_reference import MARGIN, decibels, reference
from helpers import passes, pruning, quantization
from helpers.graphs.tracing import OTHER_INPUTS
from helpers.quantization.integer import AveragePool

RATIO = 0.3
IMAGES = 16
ROUNDING = 1e-4  # of float32, relative to the largest answer
CLOSE = 30  # of an ONNX file and the integers, in decibels
HALFWAY = 1e-4  # of a code; float32 computes 255 to 3e-5
FLIPPED = 0.01  # the share of the codes of a step that may be rounded the other way
Found = dict[str, Any]
Step = Callable[[nn.Module, tuple], Found]


class Wrong(Exception):
    """A network was handed out, and answers differently."""


class LeftOut(Exception):
    """A step is not for this network: the result that its row gets, and perhaps the reason."""


def answers(model: nn.Module, inputs: tuple) -> list[Tensor]:
    """All tensors that a network answers with."""
    given = tuple(x.clone() for x in inputs)
    return [leaf for leaf in tree_leaves(model(*given)) if isinstance(leaf, Tensor)]


def others(inputs: tuple) -> tuple:
    """Inputs of the same form."""
    return tuple(torch.randn_like(x) if x.is_floating_point() else x.flip(-1) for x in inputs)


def distance(expected: list[Tensor], found: list[Tensor]) -> float:
    """The largest difference, relative to the largest number."""
    if [x.shape for x in expected] != [x.shape for x in found]:
        return math.inf
    gaps = [0.0]
    for one, two in zip(expected, found, strict=True):
        largest = one.double().abs().max().clamp(min=1e-12)
        gap = ((one.double() - two.double()).abs().max() / largest).item()
        gaps.append(math.inf if math.isnan(gap) else gap)
    return max(gaps)


def check_alike(model: nn.Module, made: nn.Module, inputs: tuple) -> None:
    """An error if two networks answer differently by more than ten times what float32 rounds."""
    wide = copy.deepcopy(model).double()
    for given in (inputs, others(inputs)):
        expected = answers(model, given)
        try:
            exact = answers(wide, tuple(x.double() if x.is_floating_point() else x for x in given))
            rounding = distance(exact, expected)
        except RuntimeError:  # it is written for float32
            rounding = 0.0
        gap = distance(expected, answers(made, given))
        if gap > max(ROUNDING, 10 * rounding):
            raise Wrong(f"answers differ by {gap:.1g}, and float32 rounds by {rounding:.1g}")


def check_batches(model: nn.Module, made: nn.Module, inputs: tuple) -> None:
    """An error if it answers another number of images otherwise; it may refuse them."""
    more = tuple(torch.cat([x, x[:1]]) for x in inputs)
    try:
        check_alike(model, made, more)
    except AssertionError as refusal:
        if OTHER_INPUTS not in str(refusal):
            raise


def check_folded(model: nn.Module, made: nn.Module, inputs: tuple) -> Found:
    """The numbers of norms, after an error if a folded network answers differently."""
    check_alike(model, made, inputs)
    check_batches(model, made, inputs)
    foldable = foldable_norms(model, inputs)
    return {"foldable": foldable, "folded": foldable - foldable_norms(made, inputs)}


def optimized(model: nn.Module, inputs: tuple, **route: str) -> Found:
    """Fold with a route, or with that which `optimize` takes."""
    return check_folded(model, passes.optimize(model, inputs, **route)[0], inputs)


def share_left(model: nn.Module, small: nn.Module) -> Found:
    """The share of the parameters that are left."""
    before, after = (sum(p.numel() for p in one.parameters()) for one in (model, small))
    return {"left": round(after / before, 4)}


def pruned(model: nn.Module, inputs: tuple) -> Found:
    """Prune by magnitude what is zero before: cutting it must change nothing."""
    model = copy.deepcopy(model)
    for group in pruning.channel_groups(model, inputs).prunable("all"):
        none = math.ceil(0.4 * group.size)
        tensors = dict(model.named_parameters())
        for member in group.members:
            if member.tensor in tensors:
                chosen = torch.from_numpy(member.indices[member.numbers < none])
                tensors[member.tensor].index_fill_(member.dim, chosen, 0.0)
    small = pruning.prune(model, inputs, ratio=RATIO, scope="all")
    check_alike(model, small, inputs)
    return share_left(model, small)


class One(nn.Module):
    """A network that answers with a structure, of which this picks the first tensor."""

    def __init__(self, network: nn.Module, keys: list) -> None:
        super().__init__()
        self.network = network
        self.keys = keys

    def forward(self, x: Tensor) -> Tensor:
        answer = self.network(x)
        for key in self.keys:
            answer = answer[key]
        return answer


@functools.cache
def one_answer(model: nn.Module, inputs: tuple) -> nn.Module:
    """The network itself, or, where it answers with a structure, the part that makes its first
    tensor.
    """
    answer = model(*(x.clone() for x in inputs))
    keys = []
    while not isinstance(answer, Tensor):
        keys.append(next(iter(answer)) if isinstance(answer, dict) else 0)
        answer = answer[keys[-1]]
    return One(model, keys).eval() if keys else model


@functools.cache
def calibration(inputs: tuple) -> Tensor:
    """Images to measure ranges with, always the same."""
    random = torch.Generator().manual_seed(1)
    return torch.randn(IMAGES, *inputs[0].shape[1:], generator=random)


def check_decibels(model: nn.Module, inputs: tuple, *found: Tensor) -> Found:
    """How far answers are from float32, after an error if it is much more than rounding costs."""
    (expected,) = answers(model, inputs)
    exact = min(decibels(expected, one) for one in found)
    by_torch = reference(model, calibration(inputs), inputs)
    if not exact >= by_torch - MARGIN:
        raise Wrong(
            f"answers are {exact:.0f} dB above their error; PyTorch's rounding reaches"
            f" {by_torch:.0f} dB"
        )
    return {"decibels": round(exact, 1), "reference": round(by_torch, 1)}


def check_codes(made: quantization.QuantizedModel, mode: str, x: Tensor) -> None:
    """An error if a step, given the same codes, makes other codes in a mode than in simulation.

    A sum that is rounded the other way changes a code by one, and few of them. What that becomes
    from layer to layer is the network's own doing: so each step gets the codes of the simulation.
    """
    values: dict[str, Tensor] = {}
    made.mode = "simulated"
    made.run(x, values.__setitem__)
    made.mode = mode
    for op in made.plan.ops:
        found = getattr(made.step(op.name), made.mode)(*(values[edge] for edge in op.inputs))
        expected = values[op.name]
        if found.dtype == torch.uint8:
            apart = (found.short() - expected.short()).abs()
            if op.kind == "average_pool":
                apart[apart.eq(1) & ties(made.step(op.name), values[op.inputs[0]])] = 0
            share = apart.count_nonzero().item() / max(apart.numel(), 1)
            if apart.max() > 1 or share > max(FLIPPED, 1 / apart.numel()):
                raise Wrong(f"{op.name}: {share:.1%} of the codes differ, by up to {apart.max()}")
        elif distance([expected], [found]) > ROUNDING:
            raise Wrong(f"{op.name}: {mode} and simulated differ in float")


def ties(step: AveragePool, codes: Tensor) -> Tensor:
    """Where a mean lies halfway between two codes: integers take the even one, float32 either."""
    exact = step.sums(codes)[0] * step.factors()[0] / step.out.scale.double()
    return (exact.frac().abs() - 0.5).abs() < HALFWAY


@functools.cache
def quantized_network(
    model: nn.Module, inputs: tuple
) -> tuple[nn.Module, quantization.QuantizedModel]:
    """A network with one answer, and its integers, for both steps that ask for them."""
    if not inputs[0].is_floating_point():
        try:
            quantization.quantize(model, inputs[0])
        except quantization.QuantizationError as refusal:
            raise LeftOut("not for images", refusal) from refusal
        raise Wrong("a network of words was quantized as if it took images")
    model = one_answer(model, inputs)
    return model, quantization.quantize(model, calibration(inputs))


def quantized(model: nn.Module, inputs: tuple) -> Found:
    """Quantize, and compare the modes with each other and with float32."""
    model, made = quantized_network(model, inputs)
    found = []
    for mode in quantization.MODES:
        check_codes(made, mode, *inputs)
        found.append(made(*inputs))
    return check_decibels(model, inputs, *found)


def exported(model: nn.Module, inputs: tuple) -> Found:
    """Write the quantized network as a file, and run it with ONNX Runtime.

    The file may be further from the integers than they are from float32 by what two independent
    errors of one size make, 3 dB.
    """
    model, made = quantized_network(model, inputs)
    from course.benchmarks.quantization_rivals import run_onnx  # loads threads

    made.mode = "integer"
    with tempfile.TemporaryDirectory() as folder:
        run = run_onnx(quantization.to_onnx(made, Path(folder) / "wild.onnx"), threads=1)
    integers, found = made(*inputs), run(*inputs)
    row = check_decibels(model, inputs, found)
    apart = decibels(integers, found)
    if apart < min(CLOSE, row["decibels"] - 3):
        raise Wrong(f"the integers and the file are {apart:.0f} dB apart")
    return row


STEPS: dict[str, Step] = {
    "optimize": optimized,
    "optimize fx": functools.partial(optimized, route="fx"),
    "optimize export": functools.partial(optimized, route="export"),
    "prune": pruned,
    "quantize": quantized,
    "onnx": exported,
}
