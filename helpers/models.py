"""Build a network from a small specification; save and load any stage of it.

A file holds tensors and a specification in JSON, never code: the name of a builder, its arguments,
and the steps (channels removed, passes run, quantized) that led to the structure. Loading replays
them on fresh weights and then puts the tensors of the file in their places. Builders are ours,
torchvision's, and factories of your own: a factory is a function that the file only names, and that
runs when whoever loads the file names it too.
"""

import importlib
import json
import pickle
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torchvision
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from safetensors.torch import save as serialized
from torch import nn
from torchvision.models.resnet import BasicBlock
from torchvision.ops import Conv2dNormActivation

from helpers.dataset import CIFAR10, Normalization
from helpers.files import write_atomically
from helpers.header import ModelError, checked
from helpers.model_spec import (  # noqa: F401  (offered here, too)
    Spec,
    budget_of,
    bypass,
    record,
    replay,
    resize,
)

WRAPPERS = (
    "state_dict",
    "model_state_dict",
    "model",
)  # where training scripts put a state dict beside other things
MOST_NAMED = 20  # tensors that do not fit
CHECKPOINTS = Path(__file__).resolve().parents[1] / "data" / "checkpoints"
# (expansion, channels, blocks, stride) of each stage: torchvision's table with the second stride 2
# -> 1.
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobilenet_v2(num_classes: int = 10, width_mult: float = 1.0, dropout: float = 0.0) -> nn.Module:
    """MobileNetV2 in its usual CIFAR form: 2,236,682 parameters, 88 M multiply-adds, last map 4 x
    4.

    Example:
        >>> sum(p.numel() for p in mobilenet_v2().parameters())
        2236682
    """
    arguments = {"num_classes": num_classes, "width_mult": width_mult, "dropout": dropout}
    model = torchvision.models.MobileNetV2(**arguments, inverted_residual_setting=STAGES)
    model.features[0][0].stride = (1, 1)  # which torchvision's class has no argument for
    model.spec = Spec("mobilenet_v2_cifar", arguments)
    return model


def tiny(num_classes: int = 10) -> nn.Module:
    """Nearly the ResNet-8 of MLPerf Tiny, to be trained while one watches: 78,042 parameters, 12.5
    M multiply-adds.

    A stem and three of torchvision's residual blocks, of 16, 32 and 64 channels.

    Example:
        >>> sum(p.numel() for p in tiny().parameters())
        78042
    """
    shortcut = {"stride": 2, "activation_layer": None}
    layers = OrderedDict(
        stem=Conv2dNormActivation(3, 16),
        block1=BasicBlock(16, 16),
        block2=BasicBlock(16, 32, 2, Conv2dNormActivation(16, 32, 1, **shortcut)),
        block3=BasicBlock(32, 64, 2, Conv2dNormActivation(32, 64, 1, **shortcut)),
        pool=nn.AdaptiveAvgPool2d(1),
        flatten=nn.Flatten(),
        classifier=nn.Linear(64, num_classes),
    )
    model = nn.Sequential(layers)
    model.spec = Spec("tiny", {"num_classes": num_classes})
    return model


OURS = {"mobilenet_v2_cifar": mobilenet_v2, "tiny": tiny}


def build(builder: str | Callable[..., nn.Module], **arguments: Any) -> nn.Module:
    """Build a network with random weights: ours, any classification network of torchvision, or your
    own.

    Args:
        builder: a name from OURS or from
            ``torchvision.models.list_models(module=torchvision.models)``, or a factory: a function,
            or "package.module:function", which is imported.
        arguments: passed to the builder; plain JSON values only.
    """
    if arguments.get("weights") is not None:
        raise ModelError("weights come from a file (models.load), not from a builder's download")
    make, name = (builder, name_of(builder)) if callable(builder) else (maker(builder), builder)
    try:
        arguments = json.loads(json.dumps(arguments))
        model = make(**arguments)
    except ModelError:
        raise
    except Exception as error:  # a factory is anybody's code
        doing = "take" if isinstance(error, TypeError) else "work with"
        raise ModelError(
            f"builder {name!r} does not {doing} {arguments}: {one_line(error)}"
        ) from error
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"builder {name!r} gave {type(model).__name__}, expected a torch.nn.Module"
        )
    model.spec = Spec(name, arguments, make=builder if callable(builder) else None)
    return model


def made_by(
    model: nn.Module, builder: str | Callable[..., nn.Module], **arguments: Any
) -> nn.Module:
    """Note on a network that you have which builder makes its structure, so that it can be saved.

    Args:
        model: the network; its weights stay.
        builder, arguments: as `build` takes them.

    Raises:
        ModelError: the builder makes another structure; names the tensors that differ.
    """
    twin = build(builder, **arguments)
    put_tensors(
        twin, untied_state(model), type(model).__name__, f"what {twin.spec.builder!r} makes"
    )
    for found, made in zip(repr(model).splitlines(), repr(twin).splitlines(), strict=False):
        if found != made:
            raise ModelError(
                f"{twin.spec.builder!r} makes {made.strip()!r} where the network has"
                f" {found.strip()!r}"
            )
    model.spec = twin.spec
    return model


def name_of(function: Callable) -> str:
    """How a file names a function or a class."""
    return f"{function.__module__}:{function.__qualname__}"


def one_line(error: Exception) -> str:
    """An error as one short line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def maker(name: str) -> Callable[..., nn.Module]:
    """What a builder's name stands for. The module of a factory is imported here, and nowhere else."""
    known = torchvision.models.list_models(module=torchvision.models)
    if name in OURS or name in known:
        extra = (
            {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
        )  # or they warn
        return OURS.get(name) or partial(torchvision.models.get_model, name, weights=None, **extra)
    module, colon, function = name.partition(":")
    if not colon:
        choice = (
            f"{', '.join(map(repr, OURS))}, one of torchvision's {len(known)} names, or"
            " package.module:function"
        )
        raise ModelError(f"unknown builder {name!r}; use {choice}")
    try:
        return getattr(importlib.import_module(module), function)
    except Exception as error:  # importing runs anybody's code
        raise ModelError(f"the factory {name!r} cannot be imported ({one_line(error)})") from error


def pretrained(name: str = "dense") -> nn.Module:
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
        metadata: plain JSON values kept in the header (metrics, provenance); ``read_header`` gives
            them back.
    """
    spec = getattr(model, "spec", None)
    if spec is None:
        lacks = f"{type(model).__name__} carries no specification, so a file could not be rebuilt"
        remedy = "models.made_by(model, 'package.module:function', **arguments)"
        raise ModelError(f"{lacks}; say which function makes it: {remedy}")
    stored = {"builder": spec.builder, "arguments": spec.arguments, "steps": spec.steps}
    if (told := getattr(model, "input_normalization", None)) and (
        told != CIFAR10 or spec.builder not in OURS
    ):
        stored["normalization"] = told
    header = {"spec": json.dumps(stored), "metadata": json.dumps(metadata)}
    checked(header)
    tensors = {
        name: tensor.detach().to("cpu", copy=True).contiguous()
        for name, tensor in untied_state(model).items()
    }
    return write_atomically(Path(path), serialized(tensors, header))


def untied_state(model: nn.Module) -> dict[str, torch.Tensor]:
    """The state dict with each shared tensor once, under its first name."""
    seen: dict[int, str] = {}
    return {
        n: t for n, t in model.state_dict(keep_vars=True).items() if seen.setdefault(id(t), n) == n
    }


def read_header(path: str | Path) -> tuple[Spec, dict[str, Any]]:
    """The specification and the metadata of a file, without its tensors."""
    try:
        with safe_open(path, "pt") as file:
            stored, metadata = checked(file.metadata() or {})
        return Spec(**stored | {"steps": tuple(stored["steps"])}), metadata
    except FileNotFoundError as error:
        raise ModelError(f"{path} does not exist") from error
    except (SafetensorError, ValueError, OSError) as error:
        raise ModelError(
            f"{path} is not a network saved by this course ({type(error).__name__}: {error})"
        ) from error


def load(path: str | Path, factory: str | Callable[..., nn.Module] | None = None) -> nn.Module:
    """Rebuild a saved network, in eval mode. Nothing from the file is executed.

    Args:
        factory: for a network of your own: the name of the factory that the file states, once more,
            or the function.

    Raises:
        ModelError: the file is damaged, or tensors are missing, left over or of the wrong shape;
            they are named.
    """
    spec, _ = read_header(path)
    model, tensors = structure(spec, path, factory), load_file(path)
    kinds, made = (
        {t.dtype for t in some.values() if t.is_floating_point()}
        for some in (tensors, untied_state(model))
    )
    model = (
        model.to(*kinds) if len(kinds) == 1 and kinds != made else model
    )  # model.half() leaves no step in the file
    put_tensors(model, tensors, path)
    model.spec = replace(spec, make=factory if callable(factory) else None)
    if (
        spec.normalization or spec.builder in OURS
    ):  # which were trained on CIFAR-10; another may not say
        model.input_normalization = Normalization(*map(tuple, spec.normalization or CIFAR10))
    return model.eval()


def structure(
    spec: Spec, path: str | Path, factory: str | Callable[..., nn.Module] | None = None
) -> nn.Module:
    """The network that a file's specification describes, with any weights; `factory` as in `load`.

    Raises:
        ModelError: whatever keeps it from being built; it says so in one line.
    """
    builder = factory if callable(factory) else spec.builder
    if factory and factory not in (builder, spec.builder):
        raise ModelError(f"{path} was made by {spec.builder!r}, not by {factory!r}")
    if not factory and ":" in builder:
        asks = (
            f"{path} asks for code, {builder!r}, which runs only if you name it too, so look at it"
            " first"
        )
        raise ModelError(f"{asks}: models.load(path, factory=...), or --model on the command line")
    try:
        with budget_of(path):
            model = build(builder, **spec.arguments)
        return replay(model, spec, path)
    except ModelError:
        raise
    except Exception as error:  # the header led there, and may ask for anything
        raise ModelError(f"{path}: its header describes no network ({one_line(error)})") from error


def load_weights(model: nn.Module, path: str | Path) -> nn.Module:
    """Put the tensors of a state dict, written by safetensors or by `torch.save`, into a network;
    runs no code.

    Raises:
        ModelError: the file is something else, or a tensor does not fit; names all that do not.
    """
    try:
        stored = load_file(path)
    except FileNotFoundError as error:
        raise ModelError(f"{path} does not exist") from error
    except (SafetensorError, OSError):
        try:
            stored = torch.load(path, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, ValueError, EOFError, OSError):
            stored = None
    tensors = stored if isinstance(stored, dict) else {}
    tensors = next(
        (tensors[key] for key in WRAPPERS if isinstance(tensors.get(key), dict)), tensors
    )
    wrapped = all(
        str(name).startswith("module.") for name in tensors
    )  # as DistributedDataParallel writes them
    if wrapped and tensors.keys().isdisjoint(model.state_dict()):
        tensors = {name.removeprefix("module."): tensor for name, tensor in tensors.items()}
    if not tensors or not all(isinstance(tensor, torch.Tensor) for tensor in tensors.values()):
        raise ModelError(
            f"{path} holds no state dict; write one with torch.save(model.state_dict(), path)"
        )
    first: dict[int, str] = {}  # of tensors with two names, either is enough, and so are both
    names = {n: first.setdefault(id(t), n) for n, t in model.state_dict(keep_vars=True).items()}
    put_tensors(model, {names.get(n, n): t for n, t in tensors.items()}, path, type(model).__name__)
    return model


def put_tensors(
    model: nn.Module,
    tensors: dict[str, torch.Tensor],
    path: str | Path,
    owner: str = "its own specification",
) -> None:
    """Load every tensor into its place, or change nothing and say what does not fit."""
    both = untied_state(model), tensors
    wanted, found = (
        {name: f"{t.dtype} {tuple(t.shape)}" for name, t in some.items()} for some in both
    )
    problems = [f"missing {name}" for name in wanted.keys() - found.keys()]
    problems += [f"unexpected {name}" for name in found.keys() - wanted.keys()]
    different = (name for name in wanted.keys() & found.keys() if wanted[name] != found[name])
    problems += [f"{name} is {found[name]}, expected {wanted[name]}" for name in different]
    if problems:
        listed = "; ".join(sorted(problems)[:MOST_NAMED])
        more = f"; and {len(problems) - MOST_NAMED} more" if len(problems) > MOST_NAMED else ""
        raise ModelError(f"{path} does not fit {owner}: {listed}{more}")
    state = model.state_dict()  # carries the layout version that some networks (MNASNet) ask for
    state.update(tensors)
    model.load_state_dict(
        state, strict=False
    )  # every name is checked already; tied ones come along
