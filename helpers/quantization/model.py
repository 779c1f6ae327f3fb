"""From a float network and calibration images to a quantized network: one list of steps, which it
can run in three modes.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from helpers import models
from helpers.allocator import kept_memory
from helpers.quantization import kernels
from helpers.quantization.affine import Affine, QuantizationError, fit
from helpers.quantization.integer import Step, make_step
from helpers.quantization.lowering import make_plan
from helpers.quantization.observers import calibrate
from helpers.quantization.plan import INPUT, Plan, PlanOp, Recipe, Watch, execute
from helpers.quantization.repairs import repair_weights
from helpers.quantization.verify import calibration_input
from helpers.quantization.weights import LayerWeights, encode_weights

MODES = ("simulated", "integer", "kernel")


@torch.inference_mode(False)  # where rounding could not be learned
@kept_memory()
def quantize(
    model: nn.Module, images: Tensor, recipe: Recipe | None = None, verify: bool = True
) -> "QuantizedModel":
    """Quantize a float network, which is not changed. The result starts in mode "simulated".

    Args:
        model: in eval mode, on the CPU; BatchNorm is folded here.
        images: calibration images from the training set, uint8, or float already normalised; (N, C,
            H, W).
        recipe: how to quantize; the defaults are 8 bits, per channel.
        verify: compare the plan, in float, with the network on the first 16 calibration images.

    Example:
        q = quantize(model, cifar.split().train_images[:1024], Recipe(weight_bits=8))
        q.mode = "integer"
        logits = q(data.normalize(cifar.test_images[:100]))
    """
    recipe = recipe or Recipe()
    images = calibration_input(model, images)
    plan = make_plan(model, images.shape[1:], recipe, images[:16] if verify else None)
    edges = calibrate(plan, images, recipe)
    weights = repair_weights(plan, edges, encode_weights(plan, recipe), images, recipe)
    return QuantizedModel(model, plan, edges, weights, recipe)


def replay(
    model: nn.Module, recipe: Mapping[str, Any], input_shape: Sequence[int]
) -> "QuantizedModel":
    """The structure of a quantized network, for a file's tensors to fill: weights are 0, ranges
    placeholders.
    """
    recipe = Recipe(**recipe)
    plan = make_plan(model.eval(), input_shape, recipe)
    placeholder = fit(torch.zeros(1), recipe.activation_bits, signed=False)
    edges = dict.fromkeys(plan.quantized_edges(), placeholder)
    for op in plan.layers:
        op.weight = torch.zeros_like(op.weight)
    return QuantizedModel(model, plan, edges, encode_weights(plan, recipe), recipe)


class QuantizedModel(nn.Module):
    """A network of integers, on the CPU. It takes normalised float images and returns float logits.

    Attributes:
        steps: the operations in order; `step(name)` finds one by its name in the float network.
        edges: how the codes on each edge are read; None for an edge that carries floats.
        plan: the same operations without weights, biases and clamps.
    """

    def __init__(
        self,
        source: Any,
        plan: Plan,
        edges: dict[str, Affine],
        weights: dict[str, LayerWeights],
        recipe: Recipe,
    ) -> None:
        super().__init__()
        self.recipe = recipe
        self.input_shape = plan.input_shape
        self._mode = "simulated"
        self.input = Step(PlanOp(INPUT, "clamp", (), shape=plan.input_shape), edges.get(INPUT))
        self.steps = nn.ModuleDict()
        for op in plan.ops:
            # A ModuleDict refuses dots and the names of its own methods.
            key = f"{op.name}/" if hasattr(nn.ModuleDict, op.name) else op.name.replace(".", "/")
            self.steps[key] = make_step(
                op, edges.get(op.name), weights.get(op.name), edges.get(op.inputs[0])
            )
        self._by_name = {step.op.name: step for step in self.steps.values()}
        self.plan = Plan([step.op for step in self.steps.values()], plan.input_shape)
        self.derive_integers()
        self.register_load_state_dict_post_hook(QuantizedModel.derive_integers)
        self.eval()
        models.record(
            self,
            source=source,
            step="quantize",
            recipe=recipe.as_dict(),
            input_shape=[*plan.input_shape],
        )

    def step(self, name: str) -> Step:
        """The step of one operation."""
        if name not in self._by_name:
            raise QuantizationError(
                f"there is no step {name!r} in this network; there are {[*self._by_name]}"
            )
        return self._by_name[name]

    @property
    def float_layers(self) -> list[str]:
        """The operations that have no integer form and stayed in float."""
        return [name for name, step in self._by_name.items() if step.module is not None]

    @property
    def mode(self) -> str:
        """In which of the three ways `forward` computes."""
        return self._mode

    @mode.setter
    def mode(self, mode: str) -> None:
        if mode not in MODES:
            raise QuantizationError(f"mode: expected one of {MODES}, got {mode!r}")
        if mode == "kernel" and not kernels.available():
            note = (
                "this PyTorch build or processor has no oneDNN int8 convolutions: integers are used"
                " instead"
            )
            warnings.warn(note, stacklevel=3)
            mode = "integer"
        self._mode = mode

    def derive_integers(self, _: Any = None) -> None:
        """Compute every integer that follows from the scales and zero points.

        Runs after building and after loading; call it after any change to a step's buffers.
        """
        self.edges: dict[str, Affine | None] = {INPUT: self.input.out}
        for name, step in self._by_name.items():
            step.sources = [self.edges[edge] for edge in step.op.inputs]
            step.derive_integers()
            self.edges[name] = step.out

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "QuantizedModel":
        """What `.to()` and its kin do to every tensor; other precisions would round the scales."""
        made = fn(torch.zeros(1))
        if made.device.type != "cpu":
            raise QuantizationError(
                f"a quantized network computes on the CPU, not on {made.device}: leave .to() out"
            )
        if made.dtype != torch.float32:
            raise QuantizationError(
                f"a quantized network keeps its scales in float32, not {made.dtype}, which would"
                " change its answers; leave .half(), .double() and .to(dtype) out"
            )
        return super()._apply(fn, recurse)

    @torch.no_grad()
    def run(self, x: Tensor, watch: Watch = None) -> Tensor:
        """Compute the network; `watch` gets every edge's name and value: uint8 codes, floats where
        nothing is coded.
        """
        problem = "" if x.isfinite().all() else " with NaN or infinity in it"
        if tuple(x.shape[1:]) != self.input_shape or not x.is_floating_point() or problem:
            shape = ", ".join(map(str, self.input_shape))
            raise QuantizationError(
                f"quantized network: expected normalised float images (N, {shape}),"
                f" got {x.dtype} {tuple(x.shape)}{problem}"
            )

        def compute(op, *inputs):
            return getattr(self._by_name[op.name], self._mode)(*inputs)

        codes = self.input.encode(x) if self.input.has_codes else x.float()
        y = execute(self.plan.ops, {INPUT: codes}, compute, watch)
        output = self.edges[self.plan.output]
        return y if output is None else output.dequantize(y)

    forward = run
