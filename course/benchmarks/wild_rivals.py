"""The same networks in other packages' hands, each used as documented.

A package that is not installed has no rows.
"""

import copy
import functools
import tempfile
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn

from course.benchmarks.wild_steps import (
    RATIO,
    Found,
    LeftOut,
    Step,
    calibration,
    check_alike,
    check_decibels,
    check_folded,
    one_answer,
    share_left,
)


def torch_fuse(model: nn.Module, inputs: tuple) -> Found:
    """PyTorch's own folding of convolutions and norms."""
    from torch.fx.experimental.optimization import fuse

    return check_folded(model, fuse(model), inputs)


def torch_pruning(model: nn.Module, inputs: tuple) -> Found:
    """Torch-Pruning; the answers must be those with the same channels at zero.

    It cuts through LayerNorm, too, whose mean then is another one: such a network is wrong here.
    It has to be told which layers stay whole: known here where they make the 1,000 classes.
    """
    import torch_pruning as tp

    small, masked = (copy.deepcopy(model) for _ in range(2))
    names = {id(part): name for name, part in small.named_modules()}
    names |= {id(part): name for name, part in small.named_parameters()}
    attention = [m for m in small.modules() if isinstance(getattr(m, "num_heads", None), int)]
    heads = {m: m.num_heads for m in attention if isinstance(m, nn.MultiheadAttention)}
    heads |= {m.qkv: m.num_heads for m in attention if isinstance(getattr(m, "qkv", 0), nn.Linear)}
    last = [m for m in small.modules() if getattr(m, "out_features", 0) == 1000]
    last += [m for m in small.modules() if getattr(m, "out_channels", 0) == 1000]
    if not last:
        raise LeftOut("no classes")
    settings = {"pruning_ratio": RATIO, "ignored_layers": last, "num_heads": heads}
    settings["prune_head_dims"] = False  # timm and transformers store head sizes
    importance = tp.importance.MagnitudeImportance(p=1)
    with torch.enable_grad():  # it follows the graph of gradients
        example = inputs if len(inputs) > 1 else inputs[0]
        pruner = tp.pruner.MagnitudePruner(small, example, importance=importance, **settings)
        left: dict[tuple[str, int], list[int]] = {}  # of an axis, the channels not cut yet
        for group in pruner.step(interactive=True):
            gone: dict[tuple[str, int], set[int]] = {}
            for dependency, channels in group:
                name = names.get(id(dependency.target.module))
                if "out_channels" not in dependency.handler.__name__ or not name:
                    continue
                place = (name, dependency.target.pruning_dim)
                # It counts among the channels that earlier groups have left.
                old = left.setdefault(place, [*range(size_of(masked, *place))])
                if not old:  # it holds no tensor of that kind
                    continue
                set_zero(masked, name, [old[channel] for channel in channels], place[1])
                gone.setdefault(place, set()).update(channels)
            for place, cut in gone.items():
                left[place] = [old for i, old in enumerate(left[place]) if i not in cut]
            group.prune()
    check_alike(masked, small, inputs)
    return share_left(model, small)


def size_of(model: nn.Module, name: str, dim: int) -> int:
    """How many channels a parameter, or a layer or norm, has."""
    tensors = dict(model.named_parameters())
    if name in tensors:
        return tensors[name].shape[dim]
    held = (tensors.get(f"{name}.{part}") for part in ("weight", "bias"))
    return next((len(tensor) for tensor in held if tensor is not None), 0)


@torch.no_grad()
def set_zero(model: nn.Module, name: str, channels: list[int], dim: int) -> None:
    """Set channels of a parameter, or output channels of a layer or norm, to zero."""
    for place, tensor in model.named_parameters():
        if place == name:
            tensor.index_fill_(dim, torch.tensor(channels), 0.0)
        elif place in (f"{name}.weight", f"{name}.bias"):
            tensor.index_fill_(0, torch.tensor(channels), 0.0)


def parts_of(images: Tensor, inputs: tuple) -> tuple[Tensor, ...]:
    """Images in batches of the size that a network was exported with."""
    return images.split(len(inputs[0]))


def images_only(step: Step) -> Step:
    """A step for networks that take images; it gets one with a single answer."""

    @functools.wraps(step)
    def checked(model: nn.Module, inputs: tuple) -> Found:
        if not inputs[0].is_floating_point():
            raise LeftOut("not for images")
        return step(one_answer(model, inputs), inputs)

    return checked


@images_only
def pt2e(model: nn.Module, inputs: tuple) -> Found:
    """The PT2E int8 of torchao, with its settings for x86."""
    from torchao.quantization.pt2e import quantize_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    settings = x86.get_default_x86_inductor_quantization_config()
    quantizer = x86.X86InductorQuantizer().set_global(settings)
    prepared = quantize_pt2e.prepare_pt2e(torch.export.export(model, inputs).module(), quantizer)
    for part in parts_of(calibration(inputs), inputs):
        prepared(part)
    return check_decibels(model, inputs, quantize_pt2e.convert_pt2e(prepared)(*inputs))


@images_only
def onnx_runtime(model: nn.Module, inputs: tuple) -> Found:
    """ONNX Runtime's static quantizer: QDQ, per channel, uint8 activations, int8 weights."""
    from onnxruntime import quantization as ort
    from onnxruntime.quantization.shape_inference import quant_pre_process

    from course.benchmarks.quantization_rivals import Reader, run_onnx

    with tempfile.TemporaryDirectory() as folder:
        raw, ready, made = (Path(folder) / f"{name}.onnx" for name in ("raw", "ready", "made"))
        names = {"input_names": ["x"], "external_data": False, "verbose": False}
        torch.onnx.export(model, inputs, raw, dynamo=True, **names)
        quant_pre_process(raw, ready)
        kinds = {"activation_type": ort.QuantType.QUInt8, "weight_type": ort.QuantType.QInt8}
        reader = Reader(parts_of(calibration(inputs), inputs), "x")
        ort.quantize_static(ready, made, reader, per_channel=True, **kinds)
        return check_decibels(model, inputs, run_onnx(made, threads=1)(*inputs))


# The packages that a step needs; an error that they raise on purpose is their refusal.
NEEDED = {
    "torch fuse": ["torch"],
    "Torch-Pruning": ["torch_pruning"],
    "torchao PT2E": ["torchao", "torch"],
    "ONNX Runtime": ["onnxruntime", "onnx", "onnxscript", "torch"],
}
_STEPS = (torch_fuse, torch_pruning, pt2e, onnx_runtime)
RIVALS = {
    name: step for name, step in zip(NEEDED, _STEPS, strict=True) if find_spec(NEEDED[name][0])
}
