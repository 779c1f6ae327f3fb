"""A quantized network: one list of steps that three executors share."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from helpers.quantization import kernels
from helpers.quantization.affine import Affine, QuantizationError
from helpers.quantization.integer import Edge, Layer, Step, make_step
from helpers.quantization.plan import INPUT, Op, Plan, Recipe, execute, last_uses
from helpers.quantization.weights import LayerWeights

__all__ = ["MODES", "KernelNote", "ModeError", "QuantizedModel", "module_key"]

MODES = ("simulated", "integer", "kernel")


class ModeError(QuantizationError):
    """A mode that does not exist."""


class KernelNote(UserWarning):
    """The int8 kernels cannot be used, at all or for some layers; integer arithmetic does the work instead."""


class QuantizedModel(nn.Module):
    """A network of integers. It takes normalised float images and returns float logits.

    Attributes:
        steps: the operations in order; `step(name)` finds one by its name in the float network.
        edges: how the codes on each edge are read; None for an edge that carries floats.
        recipe: how it was quantized.
        mode: "simulated", "integer" or "kernel".
    """

    def __init__(self, plan: Plan, edges: dict[str, Affine], weights: dict[str, LayerWeights], recipe: Recipe) -> None:
        super().__init__()
        self.recipe = recipe
        self.input_shape = plan.input_shape
        self.input = make_step(Op(INPUT, "clamp", (), shape=plan.input_shape), edges.get(INPUT))
        self.steps = nn.ModuleDict()
        for op in plan.ops:
            step = make_step(op, edges.get(op.name), weights.get(op.name), edges.get(op.inputs[0]))
            self.steps[module_key(op.name)] = step
        self._mode = "simulated"
        self.settle()
        self.register_load_state_dict_post_hook(_settle_after_loading)

    def step(self, name: str) -> Step:
        """The step of one operation.

        Raises:
            QuantizationError: there is no such operation.
        """
        if module_key(name) not in self.steps:
            names = [step.op.name for step in self.steps.values()]
            raise QuantizationError(f"there is no step {name!r} in this network; there are {names}")
        return self.steps[module_key(name)]

    @property
    def float_layers(self) -> list[str]:
        """The operations that have no integer form and stayed in float."""
        return [step.op.name for step in self.steps.values() if step.op.kind == "float"]

    @property
    def mode(self) -> str:
        """Which of the three ways `forward` computes."""
        return self._mode

    @mode.setter
    def mode(self, mode: str) -> None:
        if mode not in MODES:
            raise ModeError(f"mode: expected one of {MODES}, got {mode!r}")
        if mode == "kernel":
            if not kernels.available():
                note = "this PyTorch build or processor has no oneDNN int8 convolutions: integers are used instead"
                warnings.warn(note, KernelNote, stacklevel=2)
                mode = "integer"
            elif unsafe := self._unsafe_layers():
                note = (
                    f"without VNNI the int8 kernels of this processor could saturate in {len(unsafe)} layers "
                    f"({unsafe[0]} is the first): these run in integer arithmetic. "
                    'Recipe(weight_range="pairs") avoids that'
                )
                warnings.warn(note, KernelNote, stacklevel=2)
        self._mode = mode

    def _unsafe_layers(self) -> list[str]:
        layers = [step for step in self.steps.values() if isinstance(step, Layer)]
        return [layer.op.name for layer in layers if not layer.prepare_kernel().usable]

    def settle(self) -> None:
        """Compute every integer that follows from the scales and zero points; done after building and after loading."""
        first = Edge(self.input.out_scale, self.input.out_zero_point) if self.input.coded else None
        self.edges: dict[str, Edge | None] = {INPUT: first}
        for step in self.steps.values():
            self.edges[step.op.name] = step.settle([self.edges[name] for name in step.op.inputs])
        ops = [step.op for step in self.steps.values()]
        self._order = {step.op.name: step for step in self.steps.values()}, ops, last_uses(ops)

    @torch.no_grad()
    def run(self, x: torch.Tensor, watch: Callable[[str, torch.Tensor], None] | None = None) -> torch.Tensor:
        """Compute the network in its mode.

        Args:
            x: normalised float images (N, ...).
            watch: called with the name and the value of every edge: uint8 codes, or floats where nothing is coded.
        """
        if tuple(x.shape[1:]) != self.input_shape or not x.is_floating_point():
            expected = ", ".join(map(str, self.input_shape))
            raise QuantizationError(
                f"quantized network: expected normalised float images (N, {expected}), got {x.dtype} {tuple(x.shape)}"
            )
        codes = self.input.encode(x) if self.input.coded else x
        steps, ops, done = self._order
        y = execute(ops, codes, lambda op, *inputs: getattr(steps[op.name], self._mode)(*inputs), watch, done)
        output = self.edges[ops[-1].name]
        return y if output is None else output.decode(y)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of normalised float images."""
        return self.run(x)

    def _apply(self, *args: Any, **kwargs: Any) -> "QuantizedModel":
        super()._apply(*args, **kwargs)
        self.settle()  # what follows from the scales has to move with them
        return self


def _settle_after_loading(model: QuantizedModel, _: Any) -> None:
    model.settle()


def module_key(name: str) -> str:
    """An operation's name as a key of a ModuleDict, which refuses dots."""
    return name.replace(".", "/")
