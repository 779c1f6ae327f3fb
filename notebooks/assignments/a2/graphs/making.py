"""Layers and graphs, described as plain data. All numbers and names are drawn."""

from dataclasses import replace

import torch

from helpers.checks.specification import Case

RELU = {"kind": "relu", "training": False}
IDENTITY = {"kind": "identity", "training": True}
DROPOUT = {"kind": "dropout", "training": False}
ACTIVE_DROPOUT = {"kind": "dropout", "training": True}


def normal(rng, *shape):
    """Normally distributed numbers."""
    return torch.randn(*shape, generator=rng, dtype=torch.float64)


def conv(rng, bias=False, padding=1, kernel=3):
    """A convolution from three channels to three."""
    return {
        "kind": "conv",
        "weight": normal(rng, 3, 3, kernel, kernel),
        "bias": normal(rng, 3) if bias else None,
        "padding": padding,
        "training": False,
    }


def bn(rng, training=False):
    """A norm of three channels, with small variances, so that eps matters."""
    var = torch.rand(3, generator=rng, dtype=torch.float64) * 0.05 + 1e-3
    return {
        "kind": "bn",
        "weight": normal(rng, 3),
        "bias": normal(rng, 3),
        "running_mean": normal(rng, 3),
        "running_var": var,
        "eps": 1e-3 * torch.randint(1, 30, (1,), generator=rng).item(),
        "training": training,
    }


def case(rng, label, layers, nodes, named=None, end="", **probe):
    """Make a graph of nodes such as "x input; sum function add x $; out output sum".

    A node is a name, a kind, a target (where the kind has one) and the inputs; "$" is a random
    number. All names are drawn, but for those of layers in `named`, and end with `end`; those in
    `probe` are drawn alike.
    """
    drawn = iter(torch.randperm(900, generator=rng).tolist())
    layer_names = {name: f"layer{next(drawn)}{end}" for name in layers} | (named or {})
    names, rows = {}, []
    for node in nodes.split("; "):
        name, kind, *rest = node.split()
        names[name] = f"n{next(drawn)}{end}"
        row = {"name": names[name], "kind": kind}
        if kind not in ("input", "output"):
            row["target"] = layer_names.get(rest[0], rest[0])
            rest = rest[1:]
        row["inputs"] = [names[w] if w in names else _number(rng, w) for w in rest]
        rows.append(row)
    program = {"layers": _renamed(layers, layer_names), "nodes": rows}
    probe = {key: _renamed_nodes(value, names) for key, value in probe.items()}
    return Case(label, {"program": program}, probe | {"x": normal(rng, 2, 3, 5, 5)})


def _number(rng, word):
    return round(1 + torch.rand(1, generator=rng).item(), 3) if word == "$" else float(word)


def _renamed(layers, names):
    renamed = {}
    for name, layer in layers.items():
        if "same_as" in layer:
            layer = {"same_as": names[layer["same_as"]]}
        renamed[names[name]] = layer
    return renamed


def _renamed_nodes(told, names):
    if isinstance(told, dict):
        return {names[name]: value for name, value in told.items()}
    return [names[name] for name in told]


def disguised(made):
    """The first input bears the name of the first module, which is not called for that."""
    program = made.inputs["program"]
    old, new = program["nodes"][0]["name"], next(iter(program["layers"]))
    for row in program["nodes"]:
        row["name"] = new if row["name"] == old else row["name"]
        row["inputs"] = [new if word == old else word for word in row["inputs"]]
    return replace(made, label="an input named like a module")


def asleep(made):
    """The graph module as a whole is in evaluation mode, which is no layer's mode."""
    made.inputs["program"]["training"] = False
    return made
