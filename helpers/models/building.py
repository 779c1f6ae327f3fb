"""Builders of networks: ours, torchvision's, and factories of your own.

A factory is a function that makes a network. A file only names it ("package.module:function"), and
it runs when the reader of the file names it too.
"""

import importlib
import json
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any

import torchvision
from torch import nn
from torchvision.models.resnet import BasicBlock
from torchvision.ops import Conv2dNormActivation

from helpers.models.header import ARGUMENTS, ModelError, problem
from helpers.models.rebuilt import in_precision_of, refuse_another_network, untied_state
from helpers.models.spec import Spec, set_spec

# (expansion, channels, blocks, stride) of each stage: torchvision's table, but the second stride is
# 1 instead of 2.
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
    """MobileNetV2 in its usual CIFAR form: 2,236,682 parameters, 88 M multiply-adds.

    Example:
        >>> sum(p.numel() for p in mobilenet_v2().parameters())
        2236682
    """
    arguments = {"num_classes": num_classes, "width_mult": width_mult, "dropout": dropout}
    model = torchvision.models.MobileNetV2(**arguments, inverted_residual_setting=STAGES)
    model.features[0][0].stride = (1, 1)  # torchvision's class has no argument for it
    model.spec = Spec("mobilenet_v2_cifar", arguments)
    return model


def tiny(num_classes: int = 10) -> nn.Module:
    """Nearly the ResNet-8 of MLPerf Tiny: 78,042 parameters, 12.5 M multiply-adds.

    A stem and three of torchvision's residual blocks, of 16, 32 and 64 channels; small enough to
    train while you watch.

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
    """Build a network with random weights.

    Args:
        builder: a name from OURS, or of torchvision's classification networks
            (``torchvision.models.list_models(module=torchvision.models)``), or a factory: a
            function, or "package.module:function", which is imported.
        arguments: passed to the builder; plain JSON values only.
    """
    if arguments.get("weights") is not None:
        raise ModelError("weights come from a file (models.load), not from a builder's download")
    given_function = callable(builder)
    name = name_of(builder) if given_function else builder
    make = builder if given_function else _function_of(builder)
    try:
        stored = json.dumps(arguments)
        if reason := problem(json.loads(stored), ARGUMENTS, "arguments"):
            raise ModelError(f"builder {name!r}, as a file would say it: {reason}")
        model = make(**json.loads(stored))  # a copy: it may change what it gets
    except ModelError:
        raise
    except Exception as error:  # a factory is anybody's code
        doing = "take" if isinstance(error, TypeError) else "work with"
        reason = f"builder {name!r} does not {doing} {arguments}: {one_line(error)}"
        raise ModelError(reason) from error
    if not isinstance(model, nn.Module):
        kind = type(model).__name__
        raise ModelError(f"builder {name!r} gave {kind}, expected a torch.nn.Module")
    set_spec(model, Spec(name, json.loads(stored), make=builder if given_function else None))
    return model


def declare_builder(
    model: nn.Module, builder: str | Callable[..., nn.Module], **arguments: Any
) -> nn.Module:
    """Note on a network of yours which builder makes it, so that it can be saved.

    Args:
        model: the network; its weights stay.
        builder, arguments: as `build` takes them.

    Raises:
        ModelError: the builder makes another network; names what differs.
    """
    twin = in_precision_of(untied_state(model), build(builder, **arguments))
    refuse_another_network(model, twin, f"what {twin.spec.builder!r} makes")
    model.spec = twin.spec
    return model


def name_of(function: Callable) -> str:
    """How a file names a function or a class."""
    # A partial has none; of it, as of a lambda, a file keeps no more.
    return f"{function.__module__}:{getattr(function, '__qualname__', type(function).__name__)}"


def one_line(error: Exception) -> str:
    """An error as one short line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _function_of(name: str) -> Callable[..., nn.Module]:
    """The builder of this name. The module of a factory is imported here, and nowhere else."""
    if name in OURS:
        return OURS[name]
    known = torchvision.models.list_models(module=torchvision.models)
    if name in known:
        # These two warn unless told whether to initialise weights.
        options = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
        return partial(torchvision.models.get_model, name, weights=None, **options)
    module, colon, function = name.partition(":")
    if not colon:
        raise ModelError(
            f"unknown builder {name!r}; use {', '.join(map(repr, OURS))}, one of torchvision's"
            f" {len(known)} names, or package.module:function"
        )
    try:
        return attrgetter(function)(importlib.import_module(module))
    except Exception as error:  # importing runs anybody's code
        raise ModelError(f"the factory {name!r} cannot be imported ({one_line(error)})") from error
