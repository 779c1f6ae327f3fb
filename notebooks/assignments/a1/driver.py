"""How the exercises of a1 are run and looked at.

Holds no answer: it travels to students and into the box.

`RUNS` turns plain inputs into calls of the student's functions and the results back into plain
data. `VIEWS` turns an answer into what is compared, in a box that holds none of the student's code.
"""

from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import nn

SIZES = ("stride", "padding", "dilation", "groups")
NUMBERS = ("mean", "var", "weight", "bias")


def build(layers, training=True, prefix=""):
    """Make an nn.Sequential of plain descriptions; equal "name"s are one and the same module.

    `training` is the mode of the whole and of all layers but the norms. Within the whole, layers
    are called by their places, with a prefix.
    """
    modules, made = [], {}
    for layer in layers:
        name = layer["name"]
        made[name] = made.get(name) or _build_one(layer, training)
        modules.append(made[name])
    model = nn.Sequential(OrderedDict((f"{prefix}{i}", layer) for i, layer in enumerate(modules)))
    model.training = training
    return model


def _build_one(layer, training):
    if layer["kind"] == "relu":
        return nn.ReLU().train(training)
    if layer["kind"] == "conv":
        weight = layer["weight"]
        conv = nn.Conv2d(
            weight.shape[1] * layer["groups"],
            weight.shape[0],
            weight.shape[2:],
            stride=layer["stride"],
            padding=layer["padding"],
            dilation=layer["dilation"],
            groups=layer["groups"],
            bias=layer["bias"] is not None,
            dtype=weight.dtype,
        )
        conv.weight.data = weight
        if layer["bias"] is not None:
            conv.bias.data = layer["bias"]
        return conv.train(training)
    affine, tracked = layer["weight"] is not None, layer["mean"] is not None
    bn = nn.BatchNorm2d(
        layer["channels"],
        layer["eps"],
        affine=affine,
        track_running_stats=tracked,
        dtype=torch.float64,
    )
    if affine:
        bn.weight.data, bn.bias.data = layer["weight"], layer["bias"]
    if tracked:
        bn.running_mean, bn.running_var = layer["mean"], layer["var"]
    return bn.train(layer["training"])


def describe(model):
    """Turn a Sequential of Conv2d, BatchNorm2d and ReLU into plain descriptions."""
    types = [
        sorted({str(tensor.dtype) for tensor in module.state_dict().values()}) for module in model
    ]
    return [
        _describe_one(module) | {"types": found} for module, found in zip(model, types, strict=True)
    ]


def _describe_one(module):
    if isinstance(module, nn.ReLU):
        return {"kind": "relu"}
    if isinstance(module, nn.Conv2d):
        return {
            "kind": "conv",
            "weight": module.weight,
            "bias": module.bias,
            "stride": module.stride[0],
            "padding": module.padding[0],
            "dilation": module.dilation[0],
            "groups": module.groups,
        }
    if isinstance(module, nn.BatchNorm2d):
        return {
            "kind": "bn", "weight": module.weight, "bias": module.bias, "mean": module.running_mean,
            "var": module.running_var, "eps": module.eps, "training": module.training,
            "channels": module.num_features,
        }  # fmt: skip
    return {"kind": type(module).__name__}


def execute(layers, x):
    """Compute described layers in float64.

    Accepts only small, plain numbers, because `layers` may be hostile.
    """
    for layer in layers:
        if layer["kind"] == "relu":
            x = x.relu()
        elif layer["kind"] == "conv":
            if layer["weight"].numel() > 100_000 or not all(_small(layer[n]) for n in SIZES):
                raise ValueError("a convolution of unexpected size")
            bias = None if layer["bias"] is None else layer["bias"].double()
            x = F.conv2d(x, layer["weight"].double(), bias, *(layer[name] for name in SIZES))
        elif layer["kind"] == "bn":
            parts = [
                layer[name] if layer[name] is None else layer[name].double().clone()
                for name in NUMBERS
            ]
            x = F.batch_norm(
                x, *parts, training=bool(layer["training"]) or parts[0] is None, eps=layer["eps"]
            )
        else:
            raise ValueError(f"a layer of kind {str(layer['kind'])[:30]!r} was not expected")
    return x


def _small(value):
    return type(value) is int and 0 <= value <= 64


def run_fold_model(student, inputs):
    """Fold a model and describe both the result and what became of the original."""
    model = build(inputs["layers"], inputs.get("training", True), inputs.get("prefix", ""))
    model.requires_grad_(False)  # as in the lessons: NumPy takes it
    folded = student["fold_model"](model)
    if not isinstance(folded, nn.Sequential):
        raise TypeError(
            f"fold_model should return an nn.Sequential, but returns a {type(folded).__name__}"
        )
    if folded is model:
        raise TypeError("fold_model should return a new nn.Sequential, but returns the given one")
    original = describe(model)  # first: what was returned may be of a class of the student's
    training = modes(model)
    return {"folded": describe(folded), "original": original, "training": training}


def modes(model):
    """Whether a Sequential and each of its layers is in training mode."""
    return [module.training for module in (model, *model)]


def numbers(layers):
    """The numbers that belong to each layer."""
    return [{name: layer[name] for name in (*NUMBERS, "eps") if name in layer} for layer in layers]


def view_fold_model(answer, probe):
    """Which layers are left, and what both networks compute on images that the box has not seen."""
    return {
        "the given model (work on a copy): layers": [layer["kind"] for layer in answer["original"]],
        "the given model (work on a copy): types": [layer["types"] for layer in answer["original"]],
        "the given model (work on a copy): numbers": numbers(answer["original"]),
        "the given model (work on a copy): output": execute(answer["original"], probe["x"]),
        "layers": [layer["kind"] for layer in answer["folded"]],
        "output": execute(answer["folded"], probe["x"]),
        "the given model (work on a copy): training mode of it and of its layers": answer[
            "training"
        ],
    }


RUNS = {"fold_model": run_fold_model}
VIEWS = {"fold_model": view_fold_model}
SCORES = {}
