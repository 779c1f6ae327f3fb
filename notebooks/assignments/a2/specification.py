"""The exercises of a2, graph passes. Secret: holds the oracles.

No oracle works on a graph. Each case says which nodes have to go; what the graph computes is found
by executing the plain description that it was made from. Names and constants are drawn, so that no
answer can rely on them.
"""

import torch
from driver import RUNS, VIEWS, build, describe_layer, execute, kinds_of

from helpers.checks.compare import Tolerance
from helpers.checks.specification import Assignment, Case, Item

CLOSE = Tolerance(
    relative=1e-5, absolute=1e-7
)  # so that new layers may be of torch's usual float32
RELU = {"kind": "relu", "training": False}
IDENTITY = {"kind": "identity", "training": True}
DROPOUT = {"kind": "dropout", "training": False}
ACTIVE_DROPOUT = {"kind": "dropout", "training": True}


def _normal(rng, *shape):
    return torch.randn(*shape, generator=rng, dtype=torch.float64)


def _conv(rng, bias=False, padding=1, kernel=3):
    return {
        "kind": "conv",
        "weight": _normal(rng, 3, 3, kernel, kernel),
        "bias": _normal(rng, 3) if bias else None,
        "padding": padding,
        "training": False,
    }


def _bn(rng, training=False):
    var = torch.rand(3, generator=rng, dtype=torch.float64) * 0.05 + 1e-3
    return {
        "kind": "bn",
        "weight": _normal(rng, 3),
        "bias": _normal(rng, 3),
        "running_mean": _normal(rng, 3),
        "running_var": var,
        "eps": 0.01,
        "training": training,
    }


def _case(rng, label, layers, lines, **probe):
    """Make a graph of lines such as "sum function add left right"; "$" is a random number, all
    names are drawn.

    A line is a name, a kind, a target (where the kind has one) and the inputs. Names in `probe` are
    drawn alike.
    """
    drawn = iter(torch.randperm(900, generator=rng).tolist())
    layer_names = {name: f"layer{next(drawn)}" for name in layers}
    names, rows = {}, []
    for line in lines:
        name, kind, *rest = line.split()
        names[name] = f"n{next(drawn)}"
        row = {"name": names[name], "kind": kind}
        if kind not in ("input", "output"):
            row["target"] = layer_names.get(rest[0], rest[0])
            rest = rest[1:]
        row["inputs"] = [names[w] if w in names else _number(rng, w) for w in rest]
        rows.append(row)
    renamed = {
        layer_names[n]: {"same_as": layer_names[o["same_as"]]} if "same_as" in o else o
        for n, o in layers.items()
    }
    probe = {
        key: {names[n]: v for n, v in value.items()}
        if isinstance(value, dict)
        else [names[n] for n in value]
        for key, value in probe.items()
    }
    program = {"layers": renamed, "nodes": rows}
    return Case(label, {"program": program}, probe | {"x": _normal(rng, 2, 3, 5, 5)})


def _asleep(case):
    """The graph module as a whole is in evaluation mode, which is no layer's mode."""
    case.inputs["program"]["training"] = False
    return case


def _number(rng, word):
    return round(1 + torch.rand(1, generator=rng).item(), 3) if word == "$" else float(word)


def _rewrite_oracle(inputs, probe):
    program, removed = inputs["program"], probe["removed"]
    resolved = {
        name: program["layers"][layer.get("same_as", name)]
        for name, layer in program["layers"].items()
    }
    given = build(program)
    return {
        "count": len(removed),
        "kinds of nodes": kinds_of(
            [row for row in program["nodes"] if row["name"] not in removed], resolved
        ),
        "outputs": execute(program | {"layers": resolved}, probe["x"]),
        "given modules": {
            name: describe_layer(given.get_submodule(name)) for name in program["layers"]
        },
    }


# 1. who is called how often ----------------------------------------------------------------------


def _calls_cases(rng):
    return [
        _case(
            rng,
            "a chain",
            {"c": _conv(rng), "r": RELU},
            [
                "x input",
                "a layer c x",
                "b layer r a",
                "d layer c b",
                "e layer r d",
                "g layer c e",
                "out output g",
            ],
        ),
        _case(
            rng,
            "two inputs",
            {"c": _conv(rng), "d": _conv(rng)},
            [
                "x input",
                "y input",
                "a layer c x",
                "b layer d y",
                "s function add a b",
                "out output s",
            ],
        ),
    ]


def _calls_edges(rng):
    twice = {"c": _conv(rng), "again": {"same_as": "c"}}
    alike = _conv(rng)
    return [
        _case(
            rng,
            "one module under two names",
            {"c": _conv(rng), "again": {"same_as": "c"}, "d": _conv(rng)},
            ["x input", "a layer c x", "b layer again a", "e layer d b", "out output e"],
        ),
        _case(
            rng,
            "one name called twice, and another",
            twice,
            ["x input", "a layer c x", "b layer again a", "e layer c b", "out output e"],
        ),
        _case(rng, "a name that nobody calls", twice, ["x input", "a layer c x", "out output a"]),
        _case(
            rng,
            "modules that are alike",
            {"c": alike, "d": alike, "r": RELU, "s": RELU},
            ["x input", "a layer c x", "b layer r a", "e layer d b", "f layer s e", "out output f"],
        ),
        _case(
            rng,
            "an activation under two names",
            {"r": RELU, "again": {"same_as": "r"}},
            ["x input", "a layer r x", "b function mul a $", "e layer again b", "out output e"],
        ),
        _case(
            rng,
            "a call that nobody reads",
            {"c": _conv(rng)},
            ["x input", "a layer c x", "b layer c a", "out output a"],
        ),
        _case(rng, "no module at all", {}, ["x input", "a function mul x $", "out output a"]),
    ]


def _calls_oracle(inputs, probe):
    layers = inputs["program"]["layers"]
    called = [row["target"] for row in inputs["program"]["nodes"] if row["kind"] == "layer"]
    owners = [layers[name].get("same_as", name) for name in called]
    return {name: owners.count(owner) for name, owner in zip(called, owners, strict=True)}


# 2. dead nodes -----------------------------------------------------------------------------------


def _dead_cases(rng):
    return [
        _case(
            rng,
            "a dead chain",
            {"c": _conv(rng), "r": RELU},
            [
                "x input",
                "a layer c x",
                "d function mul a $",
                "e layer r d",
                "f function add e $",
                "b function mul a $",
                "out output b",
            ],
            removed=["d", "e", "f"],
        ),
        _case(
            rng,
            "nothing dead",
            {"r": RELU},
            ["x input", "a function mul x $", "b layer r a", "out output a b"],
            removed=[],
        ),
    ]


def _dead_edges(rng):
    return [
        _case(
            rng,
            "an input that nobody reads",
            {},
            ["x input", "y input", "a function mul x $", "b function relu y", "out output a"],
            removed=["b"],
        ),
        _case(
            rng,
            "an in-place method",
            {},
            [
                "x input",
                "a function mul x $",
                "d method neg a",
                "e method type_as a x",
                "m method add_ a $",
                "out output a",
            ],
            removed=["d", "e"],
        ),
        _case(
            rng,
            "an in-place method on what nobody else reads",
            {},
            [
                "x input",
                "a function mul x $",
                "d function mul a $",
                "m method add_ d $",
                "e function relu m",
                "out output a",
            ],
            removed=["e"],
        ),
        _case(
            rng,
            "another in-place method",
            {},
            [
                "x input",
                "a function mul x $",
                "m method mul_ a $",
                "d method neg a",
                "out output a",
            ],
            removed=["d"],
        ),
        _asleep(
            _case(
                rng,
                "layers in both modes",
                {"t": _bn(rng, True), "n": _bn(rng), "p": ACTIVE_DROPOUT},
                [
                    "x input",
                    "d layer n x",
                    "r function relu x",
                    "s layer t r",
                    "e layer p x",
                    "a function mul x $",
                    "out output a",
                ],
                removed=["d", "e"],
            )
        ),
        _case(
            rng,
            "a long dead chain with two branches",
            {},
            [
                "x input",
                "a function mul x $",
                "d function mul a $",
                "e function relu a",
                "f function add d e",
                "g function mul f $",
                "h function random g",
                "i function mul h $",
                "out output a",
            ],
            removed=[*"defghi"],
        ),
    ]


# 3. nodes that change nothing --------------------------------------------------------------------


def _identity_cases(rng):
    layers = {"c": _conv(rng), "i": IDENTITY, "p": DROPOUT}
    return [
        _case(
            rng,
            "identity and dropout",
            layers,
            [
                "x input",
                "a layer c x",
                "i layer i a",
                "p layer p i",
                "b function mul p $",
                "out output b",
            ],
            removed=["i", "p"],
        ),
        _case(
            rng,
            "nothing to remove",
            {"r": RELU},
            ["x input", "a layer r x", "b function mul a $", "out output b"],
            removed=[],
        ),
    ]


def _identity_edges(rng):
    return [
        _asleep(
            _case(
                rng,
                "dropout in training mode",
                {"p": ACTIVE_DROPOUT, "q": DROPOUT},
                ["x input", "a function mul x $", "p layer p a", "q layer q p", "out output q"],
                removed=["q"],
            )
        ),
        _case(
            rng,
            "two inputs and a branch",
            {"i": IDENTITY},
            [
                "x input",
                "y input",
                "r function relu x",
                "i layer i x",
                "j layer i y",
                "s function add i r",
                "t function sub s j",
                "out output t",
            ],
            removed=["i", "j"],
        ),
        _case(
            rng,
            "several readers",
            {"i": IDENTITY},
            [
                "x input",
                "i layer i x",
                "a function mul i $",
                "b function sub i a",
                "out output i b",
            ],
            removed=["i"],
        ),
        _case(
            rng,
            "one module called twice",
            {"i": IDENTITY, "r": RELU},
            [
                "x input",
                "i layer i x",
                "a function mul i $",
                "j layer i a",
                "b layer r j",
                "out output b",
            ],
            removed=["i", "j"],
        ),
        _case(
            rng,
            "an identity and a dropout that nobody reads",
            {"i": IDENTITY, "q": DROPOUT},
            ["x input", "i layer i x", "a function mul x $", "q layer q a", "out output a"],
            removed=["i", "q"],
        ),
    ]


# 4. the same thing twice -------------------------------------------------------------------------


def _repeat_cases(rng):
    return [
        _case(
            rng,
            "the same product twice",
            {},
            [
                "x input",
                "a function mul x 0.5",
                "b function mul x 0.5",
                "c function mul x $",
                "s function add a b",
                "t function sub s c",
                "out output t",
            ],
            removed=["b"],
        ),
        _case(
            rng,
            "nothing twice",
            {},
            [
                "x input",
                "y function mul x $",
                "a function sub x y",
                "b function sub y x",
                "out output a b",
            ],
            removed=[],
        ),
    ]


def _repeat_edges(rng):
    return [
        _case(
            rng,
            "repeats of repeats",
            {},
            [
                "x input",
                "a function relu x",
                "c function mul a 2.5",
                "b function relu x",
                "d function mul b 2.5",
                "e function sub c d",
                "out output e d",
            ],
            removed=["b", "d"],
        ),
        _case(
            rng,
            "three of a kind, and others in between",
            {},
            [
                "x input",
                "y input",
                "a function relu x",
                "b function relu y",
                "c function relu x",
                "d function relu x",
                "e function add a b",
                "f function add b a",
                "g function add c b",
                "h function mul e 1.5",
                "i function mul g 1.5",
                "j function mul h 2.5",
                "k function mul i 2.5",
                "out output j k f d",
            ],
            removed=[*"cdgik"],
        ),
        _case(
            rng,
            "random numbers",
            {},
            [
                "x input",
                "a function random x",
                "b function random x",
                "c function sub a b",
                "d function relu x",
                "e function relu x",
                "out output c d e",
            ],
            removed=["e"],
        ),
        _case(
            rng,
            "repeats that read a random number",
            {},
            [
                "x input",
                "a function random x",
                "b function mul a 1.5",
                "c function mul a 1.5",
                "d function sub b c",
                "out output b d",
            ],
            removed=["c"],
        ),
        _case(
            rng,
            "an in-place method",
            {},
            [
                "x input",
                "y function mul x $",
                "a function relu y",
                "m method add_ y $",
                "b function relu y",
                "c function sub a b",
                "out output c",
            ],
            removed=[],
        ),
        _case(
            rng,
            "an in-place method after the repeats",
            {},
            [
                "x input",
                "a function relu x",
                "b function relu x",
                "c function add a b",
                "m method mul_ c $",
                "out output c",
            ],
            removed=[],
        ),
        _case(
            rng,
            "methods",
            {},
            [
                "x input",
                "a method neg x",
                "b method neg x",
                "t method type_as x a",
                "c function mul a 1.5",
                "d function mul b 1.5",
                "e function add a 1.5",
                "f function relu x",
                "g function relu x",
                "out output c d e t f g",
            ],
            removed=["g"],
        ),
        _case(
            rng,
            "modules",
            {"r": RELU},
            [
                "x input",
                "a layer r x",
                "b layer r x",
                "c function mul a 1.5",
                "d function mul b 1.5",
                "out output c d",
            ],
            removed=[],
        ),
    ]


# 5. and 6. norms ---------------------------------------------------------------------------------


def _norm_graphs(rng):
    """Cases with the reason for each norm, and the norms that go when folding."""
    chain = {"c": _conv(rng), "n": _bn(rng), "r": RELU, "d": _conv(rng, bias=True), "m": _bn(rng)}
    apart = {"c": _conv(rng), "r": RELU, "n": _bn(rng)}
    return [
        _case(
            rng,
            "two pairs",
            chain,
            [
                "x input",
                "a layer c x",
                "b layer n a",
                "e layer r b",
                "f layer d e",
                "g layer m f",
                "out output g",
            ],
            reasons={"b": "fold", "g": "fold"},
            removed=["b", "g"],
        ),
        _case(
            rng,
            "an activation in between",
            apart,
            ["x input", "a layer c x", "b layer r a", "e layer n b", "out output e"],
            reasons={"e": "no convolution"},
            removed=[],
        ),
    ]


def _norm_traps(rng):
    training = {"c": _conv(rng), "n": _bn(rng, training=True)}
    read = {"c": _conv(rng), "n": _bn(rng), "d": _conv(rng), "m": _bn(rng)}
    shared = {"c": _conv(rng, bias=True), "n": _bn(rng), "m": _bn(rng)}
    alias = {
        "c": _conv(rng),
        "again": {"same_as": "c"},
        "n": _bn(rng),
        "d": _conv(rng),
        "m": _bn(rng),
    }
    shared_norm = {"c": _conv(rng), "d": _conv(rng), "n": _bn(rng)}
    uncalled = {"c": _conv(rng), "again": {"same_as": "c"}, "n": _bn(rng)}
    sizes = {"c": _conv(rng, padding=0), "n": _bn(rng), "d": _conv(rng, padding=2), "m": _bn(rng)}
    chain = {"c": _conv(rng), "i": IDENTITY, "n": _bn(rng), "m": _bn(rng)}
    awake = {"c": _conv(rng) | {"training": True}, "n": _bn(rng)}
    dead = {"c": _conv(rng), "n": _bn(rng), "d": _conv(rng), "m": _bn(rng)}
    kernels = {
        "c": _conv(rng, padding=0, kernel=1),
        "n": _bn(rng),
        "d": _conv(rng, kernel=5),
        "m": _bn(rng),
    }
    return [
        _asleep(
            _case(
                rng,
                "a norm in training mode",
                training,
                ["x input", "a layer c x", "b layer n a", "out output b"],
                reasons={"b": "training"},
                removed=[],
            )
        ),
        _case(
            rng,
            "a norm of an input, and three readers",
            shared,
            [
                "x input",
                "a layer n x",
                "b layer c a",
                "e layer m b",
                "f function add b e",
                "g function sub f b",
                "out output g",
            ],
            reasons={"a": "no convolution", "e": "several readers"},
            removed=[],
        ),
        _case(
            rng,
            "a result that others read",
            read,
            [
                "x input",
                "a layer c x",
                "b layer n a",
                "s function add a b",
                "e layer d s",
                "f layer m e",
                "out output f",
            ],
            reasons={"b": "several readers", "f": "fold"},
            removed=["f"],
        ),
        _case(
            rng,
            "a result that is an output",
            read,
            [
                "x input",
                "a layer c x",
                "b layer n a",
                "e layer d b",
                "f layer m e",
                "out output f e",
            ],
            reasons={"b": "fold", "f": "several readers"},
            removed=["b"],
        ),
        _case(
            rng,
            "one convolution called twice",
            shared,
            ["x input", "a layer c x", "b layer n a", "e layer c b", "f layer m e", "out output f"],
            reasons={"b": "shared", "f": "shared"},
            removed=[],
        ),
        _case(
            rng,
            "one convolution under two names",
            alias,
            [
                "x input",
                "a layer c x",
                "b layer n a",
                "e layer again b",
                "f layer d e",
                "g layer m f",
                "out output g",
            ],
            reasons={"b": "shared", "g": "fold"},
            removed=["g"],
        ),
        _case(
            rng,
            "one convolution under two names, of which one is called",
            uncalled,
            ["x input", "a layer c x", "b layer n a", "out output b"],
            reasons={"b": "fold"},
            removed=["b"],
        ),
        _case(
            rng,
            "convolutions that change the size of the images",
            sizes,
            ["x input", "a layer c x", "b layer n a", "e layer d b", "f layer m e", "out output f"],
            reasons={"b": "fold", "f": "fold"},
            removed=["b", "f"],
        ),
        _case(
            rng,
            "one norm after two convolutions",
            shared_norm,
            ["x input", "a layer c x", "b layer n a", "e layer d b", "f layer n e", "out output f"],
            reasons={"b": "fold", "f": "fold"},
            removed=["b", "f"],
        ),
        _case(
            rng,
            "an identity in between, then two norms",
            chain,
            ["x input", "a layer c x", "i layer i a", "b layer n i", "e layer m b", "out output e"],
            reasons={"b": "no convolution", "e": "no convolution"},
            removed=[],
        ),
        _case(
            rng,
            "a result that a dead node reads",
            chain,
            ["x input", "a layer c x", "d function mul a $", "b layer n a", "out output b"],
            reasons={"b": "several readers"},
            removed=[],
        ),
        _case(
            rng,
            "a convolution and a norm whose results nobody reads",
            dead,
            [
                "x input",
                "a layer c x",
                "b layer n a",
                "e layer c b",
                "f layer d b",
                "g layer m f",
                "out output b",
            ],
            reasons={"b": "shared", "g": "fold"},
            removed=["g"],
        ),
        _case(
            rng,
            "a convolution in training mode",
            awake,
            ["x input", "a layer c x", "b layer n a", "out output b"],
            reasons={"b": "fold"},
            removed=["b"],
        ),
        _case(
            rng,
            "kernels of other sizes",
            kernels,
            ["x input", "a layer c x", "b layer n a", "e layer d b", "f layer m e", "out output f"],
            reasons={"b": "fold", "f": "fold"},
            removed=["b", "f"],
        ),
    ]


def _reason_edges(rng):
    worst = {"c": _conv(rng), "n": _bn(rng, training=True), "m": _bn(rng)}
    return _norm_traps(rng) + [
        _case(
            rng,
            "several reasons at once",
            worst,
            [
                "x input",
                "a layer c x",
                "b layer n a",
                "e layer m a",
                "g layer c b",
                "s function add e g",
                "h layer n s",
                "out output h",
            ],
            reasons={"b": "training", "e": "several readers", "h": "no convolution"},
            removed=[],
        ),
    ]


def _reason_oracle(inputs, probe):
    return probe["reasons"]


def _fold_edges(rng):
    row = {"c": _conv(rng), "n": _bn(rng), "m": _bn(rng)}
    return _norm_traps(rng) + [
        _case(
            rng,
            "two norms in a row",
            row,
            ["x input", "a layer c x", "b layer n a", "e layer m b", "out output e"],
            removed=["b", "e"],
        ),
    ]


READY_MADE = (
    "torch.fx.graph.Graph.eliminate_dead_code",
    "torch.fx.experimental.optimization.*",
    "torch.fx.passes.*",
    "torch.nn.utils.fusion.*",
    "torch.ao.*",
)


def _item(name, points, cases, oracle, edges, nudge, hint):
    return Item(
        name,
        cases,
        oracle,
        points=points,
        edges=edges,
        nudge=nudge,
        hint=hint,
        tolerance=CLOSE,
        forbidden=READY_MADE,
        run=RUNS[name],
        **({"view": VIEWS[name]} if name in VIEWS else {}),
    )


ITEMS = (
    _item(
        "calls_per_module",
        8,
        _calls_cases,
        _calls_oracle,
        _calls_edges,
        "Can one module be reached under two names?",
        "Two names may lead to one and the same module: compare the modules, not the names",
    ),
    _item(
        "remove_dead",
        14,
        _dead_cases,
        _rewrite_oracle,
        _dead_edges,
        "After a node is removed, who has lost the last reader? And which nodes do more than "
        "compute?",
        "What dies when its reader is gone? Inputs, in-place methods and norms in training mode "
        "stay",
    ),
    _item(
        "remove_identities",
        12,
        _identity_cases,
        _rewrite_oracle,
        _identity_edges,
        "Who reads the node that you remove, and in which mode does a dropout change nothing?",
        "Every reader of the node, the output too, has to read its input; "
        "dropout in training mode stays",
    ),
    _item(
        "merge_repeats",
        16,
        _repeat_cases,
        _rewrite_oracle,
        _repeat_edges,
        "When do two nodes with the same function and inputs still give different results?",
        "Same function, same inputs in the same order; "
        "never random functions, nor any graph with in-place methods",
    ),
    _item(
        "why_not_folded",
        18,
        _norm_graphs,
        _reason_oracle,
        _reason_edges,
        "Go through the table from the top: which row is the first one that applies?",
        "The reasons are asked in the order of the table, and a shared module may hide behind two "
        "names",
    ),
    _item(
        "fold_norms",
        20,
        _norm_graphs,
        _rewrite_oracle,
        _fold_edges,
        "Who else may still use the modules that you were given?",
        "Fold only where no reason speaks against it, into a new module; "
        "the given modules stay as they were",
    ),
)

ASSIGNMENT = Assignment("a2", "Graph passes", ITEMS, manual_points=12)
