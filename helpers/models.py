"""Build MobileNetV2 or ResNet-8 for CIFAR-10 from a small specification; save and load any stage of any network.

A file holds tensors and a specification in JSON, never code: the name of a builder from an allow-list, its arguments,
and the steps (channels removed, passes run, quantized) that led to the structure. Loading replays them on fresh
weights and then puts the tensors of the file in their places.
"""

import json
from collections import OrderedDict
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torchvision
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialized
from torch import nn
from torchvision.models.resnet import BasicBlock
from torchvision.ops import Conv2dNormActivation

from helpers.files import write_atomically
from helpers.header import ModelError, checked
from helpers.model_spec import Spec, budget_of, record, replay, resize

__all__ = [
    "ModelError",
    "Spec",
    "build",
    "load",
    "mobilenet_v2",
    "pretrained",
    "read_header",
    "record",
    "resize",
    "save",
    "structure",
    "tiny",
]

CHECKPOINTS = Path(__file__).resolve().parents[1] / "data" / "checkpoints"
# (expansion, channels, blocks, stride) of each stage: torchvision's table with the second stride 2 -> 1.
CIFAR_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobilenet_v2(num_classes: int = 10, width_mult: float = 1.0, dropout: float = 0.0) -> nn.Module:
    """MobileNetV2 in its usual CIFAR form: 2,236,682 parameters, 88 M multiply-adds, last map 4 x 4.

    Example:
        >>> sum(p.numel() for p in mobilenet_v2().parameters())
        2236682
    """
    return build("mobilenet_v2_cifar", num_classes=num_classes, width_mult=width_mult, dropout=dropout)


def tiny(num_classes: int = 10) -> nn.Module:
    """ResNet-8 of MLPerf Tiny, to be trained while one watches: 78,042 parameters, 12.5 M multiply-adds.

    Example:
        >>> sum(p.numel() for p in tiny().parameters())
        78042
    """
    return build("tiny", num_classes=num_classes)


def build(builder: str, **arguments: Any) -> nn.Module:
    """Build a network with random weights by name: ours, or any classification network of torchvision.

    Args:
        builder: a name from OURS or from ``torchvision.models.list_models(module=torchvision.models)``.
        arguments: passed to the builder; plain JSON values only.
    """
    known = torchvision.models.list_models(module=torchvision.models)
    if builder not in OURS and builder not in known:
        ours = ", ".join(map(repr, OURS))
        raise ModelError(f"unknown builder {builder!r}; use {ours} or one of torchvision's {len(known)} names")
    if arguments.get("weights") is not None:
        raise ModelError("weights come from a file (models.load), not from a builder's download")
    try:
        arguments = json.loads(json.dumps(arguments))
        model = OURS[builder](**arguments) if builder in OURS else known_model(builder, arguments)
    except TypeError as error:
        raise ModelError(f"builder {builder!r} does not take {arguments}: {error}") from error
    model.spec = Spec(builder, arguments)
    return model


def known_model(builder: str, arguments: dict[str, Any]) -> nn.Module:
    """One of torchvision's networks, without its download."""
    extra = {"init_weights": True} if builder in ("googlenet", "inception_v3") else {}
    return torchvision.models.get_model(builder, weights=None, **(extra | arguments))


def cifar_mobilenet(num_classes: int = 10, width_mult: float = 1.0, dropout: float = 0.0) -> nn.Module:
    """torchvision's class; the stem's stride is not an argument of it, so it is set afterwards."""
    model = torchvision.models.MobileNetV2(
        num_classes=num_classes,
        width_mult=width_mult,
        dropout=dropout,
        inverted_residual_setting=[list(stage) for stage in CIFAR_STAGES],
    )
    model.features[0][0].stride = (1, 1)
    return model


def resnet8(num_classes: int = 10) -> nn.Module:
    """A stem and three of torchvision's residual blocks, of 16, 32 and 64 channels."""

    def shortcut(channels: int, out_channels: int) -> nn.Module:
        return Conv2dNormActivation(channels, out_channels, 1, stride=2, activation_layer=None)

    return nn.Sequential(
        OrderedDict(
            stem=Conv2dNormActivation(3, 16),
            block1=BasicBlock(16, 16),
            block2=BasicBlock(16, 32, 2, shortcut(16, 32)),
            block3=BasicBlock(32, 64, 2, shortcut(32, 64)),
            pool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            classifier=nn.Linear(64, num_classes),
        )
    )


OURS = {"mobilenet_v2_cifar": cifar_mobilenet, "tiny": resnet8}


def pretrained(name: str = "baseline") -> nn.Module:
    """Load a checkpoint that comes with the course, in eval mode."""
    path = CHECKPOINTS / f"{name}.safetensors"
    if not path.exists():
        shipped = ", ".join(sorted(p.stem for p in CHECKPOINTS.glob("*.safetensors"))) or "none yet"
        raise ModelError(f"no checkpoint {name!r} in {CHECKPOINTS.name}/; shipped: {shipped}")
    return load(path)


def save(model: nn.Module, path: str | Path, **metadata: Any) -> Path:
    """Write a network of any stage into one safetensors file, atomically.

    Args:
        model: a network with a specification (built by this module, or made from one).
        path: the file to write.
        metadata: plain JSON values kept in the header (metrics, provenance); ``read_header`` gives them back.
    """
    spec = getattr(model, "spec", None)
    if spec is None:
        raise ModelError(
            f"{type(model).__name__} carries no specification, so a file could not be rebuilt;"
            " build networks with models.build or models.mobilenet_v2"
        )
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in untied_state(model).items()}
    header = {"spec": json.dumps(asdict(spec)), "metadata": json.dumps(metadata)}
    return write_atomically(Path(path), serialized(tensors, header))


def untied_state(model: nn.Module) -> dict[str, torch.Tensor]:
    """The state dict with each shared tensor once, under its first name."""
    seen: dict[int, str] = {}
    return {n: t for n, t in model.state_dict(keep_vars=True).items() if seen.setdefault(id(t), n) == n}


def read_header(path: str | Path) -> tuple[Spec, dict[str, Any]]:
    """The specification and the metadata of a file, without its tensors."""
    try:
        with safe_open(path, "pt") as file:
            stored, metadata = checked(file.metadata() or {})
    except FileNotFoundError as error:
        raise ModelError(f"{path} does not exist") from error
    except (SafetensorError, ValueError, OSError) as error:
        raise ModelError(f"{path} is not a network saved by this course ({type(error).__name__}: {error})") from error
    return Spec(stored["builder"], stored["arguments"], tuple(stored["steps"])), metadata


def load(path: str | Path) -> nn.Module:
    """Rebuild a saved network, in eval mode. Nothing from the file is executed.

    Raises:
        ModelError: the file is damaged, or tensors are missing, left over or of the wrong shape; they are named.
    """
    spec, _ = read_header(path)
    model = structure(spec, path)
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    put_tensors(model, tensors, path)
    model.spec = spec
    return model.eval()


def structure(spec: Spec, path: str | Path) -> nn.Module:
    """The network that a file's specification describes, with any weights.

    Raises:
        ModelError: whatever keeps it from being built; it says so in one line.
    """
    try:
        with budget_of(path):
            model = build(spec.builder, **spec.arguments)
        return replay(model, spec, path)
    except ModelError:
        raise
    except Exception as error:  # the header led there, and may ask for anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise ModelError(f"{path}: its header describes no network ({reason})") from error


def put_tensors(model: nn.Module, tensors: dict[str, torch.Tensor], path: str | Path) -> None:
    """Load every tensor into its place, or change nothing and say what does not fit."""
    places = untied_state(model)
    problems = [f"missing {name}" for name in places.keys() - tensors.keys()]
    problems += [f"unexpected {name}" for name in tensors.keys() - places.keys()]
    for name in places.keys() & tensors.keys():
        expected, found = places[name], tensors[name]
        if expected.shape != found.shape or expected.dtype != found.dtype:
            problems.append(
                f"{name} is {found.dtype} {tuple(found.shape)}, expected {expected.dtype} {tuple(expected.shape)}"
            )
    if problems:
        listed = "; ".join(sorted(problems)[:8]) + ("; …" if len(problems) > 8 else "")
        raise ModelError(f"{path} does not fit its own specification: {listed}")
    state = model.state_dict()  # carries the layout version that some networks (MNASNet) ask for
    state.update(tensors)
    model.load_state_dict(state, strict=False)  # every name is checked already; tied ones come along
