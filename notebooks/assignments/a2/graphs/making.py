"""Layers and graphs, described as plain data. All numbers and names are drawn."""

from dataclasses import replace

import torch

from helpers.checks.specification import Case

RELU = {"kind": "relu", "training": False}
IDENTITY = {"kind": "identity", "training": True}
DROPOUT = {"kind": "dropout", "training": False}
ACTIVE_DROPOUT = {"kind": "dropout", "training": True}
# Methods of one value, some with a number; those that work in place, and others.
IN_PLACE = ("add_ {} $", "mul_ {} $", "sub_ {} $", "clamp_min_ {} $")
IN_PLACE += ("neg_ {}", "square_ {}", "tanh_ {}", "sigmoid_ {}")
METHODS = ("neg {}", "square {}", "clamp_min {} $", "type_as {0} {0}", "view_as {0} {0}")


def normal(rng, *shape):
    """Normally distributed numbers."""
    return torch.randn(*shape, generator=rng, dtype=torch.float64)


def pick(rng, values):
    """One of several values, drawn."""
    return values[torch.randint(len(values), (1,), generator=rng).item()]


def shuffled(rng, values):
    """The same values in an order that is drawn."""
    return [values[place] for place in torch.randperm(len(values), generator=rng).tolist()]


def uneven(rng, sizes):
    """Two different sizes: of the height and of the width."""
    return shuffled(rng, sizes)[:2]


def conv(rng, bias=None, kernel=(3, 3), padding=(1, 1), into=3, out=3):
    """A convolution; whether it has a bias is drawn where it is not said."""
    bias = pick(rng, (False, True)) if bias is None else bias
    return {
        "kind": "conv",
        "weight": normal(rng, out, into, *kernel),
        "bias": normal(rng, out) if bias else None,
        "padding": list(padding),
        "training": False,
    }


def bn(rng, training=False, channels=3):
    """A norm with small variances, so that eps matters."""
    var = torch.rand(channels, generator=rng, dtype=torch.float64) * 0.05 + 1e-3
    return {
        "kind": "bn",
        "weight": normal(rng, channels),
        "bias": normal(rng, channels),
        "running_mean": normal(rng, channels),
        "running_var": var,
        "eps": 1e-3 * torch.randint(1, 30, (1,), generator=rng).item(),
        "training": training,
    }


def case(rng, label, layers, nodes, named=None, end="", dots=True, **probe):
    """Make a graph of nodes such as "x input; sum function add x $; out output sum".

    A node is a name, a kind, a target (where the kind has one) and the inputs; "$" is a random
    number. All names are drawn, but for those of layers in `named`, and end with `end`; those in
    `probe` are drawn alike. One is often the beginning of another.
    """
    rows, names, described = [node.split() for node in nodes.split("; ")], {}, []
    numbers = iter(torch.randperm(2 * len(layers) + len(rows) + 20, generator=rng).tolist())
    layer_names = _layer_names(rng, layers, numbers, end, dots) | (named or {})
    for name, kind, *rest in rows:
        names[name] = f"n{next(numbers)}{end}"
        row = {"name": names[name], "kind": kind}
        if kind not in ("input", "output"):
            row["target"] = layer_names.get(rest[0], rest[0])
            rest = rest[1:]
        row["inputs"] = [names[w] if w in names else _number(rng, w) for w in rest]
        described.append(row)
    # Nodes first: where a page shows only the beginning, they say more.
    program = {"nodes": described, "layers": _renamed(layers, layer_names)}
    probe = {key: _renamed_nodes(value, names) for key, value in probe.items()}
    return Case(label, {"program": program}, probe | {"x": normal(rng, 2, 3, 5, 5)})


def _layer_names(rng, layers, numbers, end, dots):
    """New names of layers; with `dots`, every second one lies in a module of its own."""
    names, within = {}, pick(rng, (False, True))
    for name in layers:
        outer = f"block{next(numbers)}." if dots and within else ""
        word = pick(rng, ("layer", "")) if outer else "layer"  # as in a Sequential
        names[name] = f"{outer}{word}{next(numbers)}{end}"
        within = not within
    return names


def _number(rng, word):
    """A whole number stays one."""
    if word == "$":
        return round(1 + torch.rand(1, generator=rng).item(), 3)
    return float(word) if "." in word else int(word)


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
