"""The exercises of a3, structured pruning.

Secret: holds the oracles, written with loops and with masks.
"""

import torch

from helpers.checks.compare import Tolerance
from helpers.checks.specification import Assignment, Case, Item

CLOSE = Tolerance(relative=1e-9, absolute=1e-12, same_types=True)


def _normal(rng, *shape):
    return torch.randn(*shape, generator=rng, dtype=torch.float64)


def _some(rng, count, kept):
    """Sorted indices of `kept` out of `count` channels."""
    return torch.randperm(count, generator=rng)[:kept].sort().values


# 1. and 2. importance ----------------------------------------------------------------------------


def _norm_cases(rng):
    return [Case(f"the {p}-norm", {"weight": _normal(rng, 4, 3, 2, 2), "p": p}) for p in (1, 2)]


def _norm_edges(rng):
    zero = _normal(rng, 3, 2, 2, 2)
    zero[1] = 0
    return [
        Case("a channel of zeros", {"weight": zero, "p": 2}),
        Case("a linear layer", {"weight": _normal(rng, 5, 5), "p": 1}),
        Case("as many inputs as outputs", {"weight": _normal(rng, 3, 3, 1, 1), "p": 2}),
        Case("a single output", {"weight": -_normal(rng, 1, 2, 3, 3).abs(), "p": 1}),
        Case("a linear layer of a single output", {"weight": _normal(rng, 1, 4), "p": 2}),
        Case("a single input", {"weight": _normal(rng, 4, 1), "p": 2}),
        Case("a convolution in one dimension", {"weight": _normal(rng, 3, 2, 5), "p": 1}),
        Case("a convolution in three dimensions", {"weight": _normal(rng, 3, 2, 2, 3, 2), "p": 2}),
        Case("a depthwise convolution", {"weight": _normal(rng, 4, 1, 3, 3), "p": 1}),
    ]


def _norm_oracle(inputs, probe):
    powers = [[abs(v) ** inputs["p"] for v in row] for row in inputs["weight"].flatten(1).tolist()]
    return torch.tensor([sum(row) ** (1 / inputs["p"]) for row in powers], dtype=torch.float64)


def _taylor_case(rng, label, *shape):
    return Case(label, {"activation": _normal(rng, *shape), "gradient": _normal(rng, *shape)})


def _taylor_cases(rng):
    return [_taylor_case(rng, "a batch of four", 4, 3, 2, 2)]


def _taylor_edges(rng):
    silent = _taylor_case(rng, "an image without a gradient", 3, 2, 2, 2)
    silent.inputs["gradient"][1] = 0
    one = _taylor_case(rng, "a single image of negative products", 1, 3, 2, 2)
    one.inputs["gradient"] = -one.inputs["activation"] * 2
    return [
        silent,
        one,
        _taylor_case(rng, "images of one pixel", 3, 4, 1, 1),
        _taylor_case(rng, "a single image", 1, 4, 3, 3),
        _taylor_case(rng, "wide images", 3, 3, 3, 5),
        _taylor_case(rng, "a single channel", 3, 1, 4, 2),
        _taylor_case(rng, "a single image of a single channel", 1, 1, 2, 3),
    ]


def _taylor_oracle(inputs, probe):
    activation, gradient = inputs["activation"], inputs["gradient"]
    scores = []
    for channel in range(activation.shape[1]):
        images = range(len(activation))
        changes = [
            abs(sum((activation[i, channel] * gradient[i, channel]).flatten().tolist()))
            for i in images
        ]
        scores.append(sum(changes) / len(changes))
    return torch.tensor(scores, dtype=torch.float64)


# 3. which channels stay --------------------------------------------------------------------------


def _keep_cases(rng):
    return [Case(f"ratio {r}", {"scores": _normal(rng, 10).abs(), "ratio": r}) for r in (0.3, 0.55)]


def _keep_edges(rng):
    equal = torch.ones(6, dtype=torch.float64)
    order = torch.randperm(8, generator=rng).double()
    # The last four are the highest, by less than 1e-9 altogether.
    close = torch.cat([torch.randperm(4, generator=rng), torch.randperm(4, generator=rng) + 4])
    return [
        Case("equal scores", {"scores": equal, "ratio": 0.5}),
        Case(
            "some equal scores",
            {"scores": torch.tensor([1.0, 3.0, 1.0, 2.0, 1.0]).double(), "ratio": 0.45},
        ),
        Case("everything asked for", {"scores": _normal(rng, 4).abs(), "ratio": 1.0}),
        Case("nothing asked for", {"scores": _normal(rng, 5).abs(), "ratio": 0.0}),
        Case(
            "scores below 0",
            {"scores": torch.tensor([-3.0, 2.0, -1.0, 0.5], dtype=torch.float64), "ratio": 0.5},
        ),
        Case(
            "scores that float32 cannot tell apart",
            {"scores": 1 + 1e-10 * close.double(), "ratio": 0.5},
        ),
        # 10 * 0.7 is 7, but 10 * (1 - 0.7) is above 3.
        Case("a ratio of 0.7", {"scores": _normal(rng, 10).abs(), "ratio": 0.7}),
        Case("too little asked for", {"scores": _normal(rng, 5).abs(), "ratio": 0.15}),
        Case(  # sorting that is not stable shows above 16 scores only
            "many equal scores",
            {"scores": torch.randperm(120, generator=rng).double() % 3, "ratio": 0.5},
        ),
        # 100 * 0.29 is just below 29, but 29 in float32.
        Case(
            "a ratio of 0.29",
            {"scores": torch.randperm(100, generator=rng).double(), "ratio": 0.29},
        ),
        Case("all scores far below 0", {"scores": -1e20 - 1e19 * order, "ratio": 0.25}),
        Case("scores far above 0", {"scores": 1e20 + 1e19 * order, "ratio": 0.5}),
        Case("equal scores far above 0", {"scores": equal[:4] * 1e17, "ratio": 0.75}),
    ]


def _keep_oracle(inputs, probe):
    scores = inputs["scores"].tolist()
    dropped = min(int(len(scores) * inputs["ratio"]), len(scores) - 1)
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    return torch.tensor(sorted(order[: len(scores) - dropped]))


# 4. to 6. surgery --------------------------------------------------------------------------------


def _conv_inputs(rng, cout, cin, kept_out, kept_in, bias=True, kernel=(3, 2)):
    return {
        "weight": _normal(rng, cout, cin, *kernel), "bias": _normal(rng, cout) if bias else None,
        "keep_in": _some(rng, cin, kept_in), "keep_out": _some(rng, cout, kept_out),
    }  # fmt: skip


def _conv_cases(rng):
    return [
        Case("with a bias", _conv_inputs(rng, 6, 4, 3, 2)),
        Case("without a bias", _conv_inputs(rng, 5, 3, 4, 3, bias=False)),
    ]


def _conv_edges(rng):
    zeros = _conv_inputs(rng, 4, 3, 2, 2)
    ends = {"keep_in": torch.arange(3), "keep_out": torch.arange(4)[[0, 2, 3]]}
    return [
        Case("as many inputs as outputs", _conv_inputs(rng, 5, 5, 3, 2)),
        Case("as many kept on both sides", _conv_inputs(rng, 6, 6, 3, 3)),
        Case("one of two outputs kept", _conv_inputs(rng, 2, 3, 1, 2)),
        Case("one kept on each side", _conv_inputs(rng, 4, 3, 1, 1)),
        Case("a bias of zeros", zeros | {"bias": torch.zeros(4, dtype=torch.float64)}),
        Case("a kernel of one pixel", _conv_inputs(rng, 5, 6, 3, 2, kernel=(1, 1))),
        Case("all kept", _conv_inputs(rng, 4, 3, 4, 3)),
        Case("the last kept", zeros | {name: value[-1:] for name, value in ends.items()}),
        Case("the ends kept", zeros | {name: value[::2] for name, value in ends.items()}),
    ]


def _conv_oracle(inputs, probe):
    out, into = inputs["keep_out"].tolist(), inputs["keep_in"].tolist()
    weight = torch.stack([torch.stack([inputs["weight"][o, i] for i in into]) for o in out])
    return [
        weight,
        None if inputs["bias"] is None else torch.stack([inputs["bias"][o] for o in out]),
    ]


def _depthwise_inputs(rng, channels, kept, multiplier=1, bias=True, kernel=(2, 3)):
    outputs = channels * multiplier
    return {
        "weight": _normal(rng, outputs, 1, *kernel),
        "bias": _normal(rng, outputs) if bias else None,
        "channels": channels,
        "keep": _some(rng, channels, kept),
    }


def _depthwise_cases(rng):
    return [Case("one output per channel", _depthwise_inputs(rng, 6, 3))]


def _depthwise_edges(rng):
    return [
        Case("two outputs per channel", _depthwise_inputs(rng, 5, 3, multiplier=2)),
        Case("without a bias", _depthwise_inputs(rng, 4, 2, bias=False)),
        Case("three outputs per channel", _depthwise_inputs(rng, 4, 2, multiplier=3)),
        Case(
            "two outputs per channel, without a bias",
            _depthwise_inputs(rng, 4, 2, multiplier=2, bias=False),
        ),
        Case("one kept channel of two outputs", _depthwise_inputs(rng, 3, 1, multiplier=2)),
        Case("a kernel of one pixel", _depthwise_inputs(rng, 4, 2, kernel=(1, 1))),
        Case("a kernel of one row", _depthwise_inputs(rng, 6, 4, kernel=(1, 3))),
        Case("all kept, three outputs per channel", _depthwise_inputs(rng, 3, 3, multiplier=3)),
        Case("one kept of one output", _depthwise_inputs(rng, 4, 1)),
    ]


def _depthwise_oracle(inputs, probe):
    per_channel = len(inputs["weight"]) // inputs["channels"]
    kept = set(inputs["keep"].tolist())
    mask = torch.tensor([i // per_channel in kept for i in range(len(inputs["weight"]))])
    return [
        inputs["weight"][mask],
        None if inputs["bias"] is None else inputs["bias"][mask],
        len(kept),
    ]


def _flatten_inputs(rng, channels, height, width, kept, outputs=3):
    return {
        "weight": _normal(rng, outputs, channels * height * width),
        "keep": _some(rng, channels, kept),
        "height": height,
        "width": width,
    }


def _flatten_cases(rng):
    return [Case("two by two pixels", _flatten_inputs(rng, 5, 2, 2, 3))]


def _flatten_edges(rng):
    last, pixel = _flatten_inputs(rng, 5, 2, 2, 1), _flatten_inputs(rng, 5, 1, 1, 1)
    return [
        Case("one pixel", _flatten_inputs(rng, 6, 1, 1, 2)),
        Case("one pixel, as many outputs as channels", _flatten_inputs(rng, 4, 1, 1, 2, outputs=4)),
        Case("an oblong", _flatten_inputs(rng, 3, 2, 4, 2)),
        Case("as many pixels as channels", _flatten_inputs(rng, 4, 2, 2, 2)),
        Case("a single output", _flatten_inputs(rng, 4, 2, 11, 3, outputs=1)),
        Case("maps of one row", _flatten_inputs(rng, 4, 1, 3, 3)),
        Case("maps of one column", _flatten_inputs(rng, 4, 3, 1, 3)),
        Case("all kept", _flatten_inputs(rng, 5, 2, 2, 5)),
        Case("the last one kept", last | {"keep": torch.tensor([4])}),
        Case("the first of one pixel kept", pixel | {"keep": torch.tensor([0])}),
        Case("the ends of one pixel kept", pixel | {"keep": torch.tensor([0, 4])}),
    ]


def _flatten_oracle(inputs, probe):
    pixels = inputs["height"] * inputs["width"]
    kept = set(inputs["keep"].tolist())
    return inputs["weight"][
        :, torch.tensor([c // pixels in kept for c in range(inputs["weight"].shape[1])])
    ]


# 7. groups ---------------------------------------------------------------------------------------


def _layer(name, kind, *inputs):
    return {"name": name, "kind": kind, "inputs": list(inputs)}


def _names(rng, count):
    """Names in random order, so that no answer can rely on the alphabet."""
    return [f"layer{number}" for number in torch.randperm(90, generator=rng)[:count].tolist()]


def _network(rng, *lines):
    """Layers with drawn names, from lines such as "add 0 2": a kind, and which layers are its
    inputs.
    """
    names = _names(rng, len(lines))
    rows = [(name, *line.split()) for name, line in zip(names, lines, strict=True)]
    return {
        "layers": [
            _layer(name, kind, *(names[int(i)] for i in inputs)) for name, kind, *inputs in rows
        ]
    }


def _group_cases(rng):
    return [
        Case("a chain", _network(rng, "conv", "same 0", "conv 1", "depthwise 2", "conv 3")),
        Case("a residual block", _network(rng, "conv", "conv 0", "conv 1", "add 0 2", "conv 3")),
    ]


def _group_edges(rng):
    cases = {
        "two blocks in a row": "conv, conv 0, add 0 1, conv 2, depthwise 3, conv 4, same 5, add 2 "
        "6, conv 7",
        "two sums with a common term": "conv, conv, conv, add 0 1, add 2 1, conv 4",
        "three blocks that share a group": "conv, conv 0, add 0 1, conv 2, add 2 3, conv 4, add 4 "
        "5",
        "a sum of three": "conv, conv, conv, add 0 1 2",
        "sums in a row, each with a term of the one before": "conv, conv, conv, conv, conv, conv, "
        "add 5 4, add 4 3, add 3 2, add 2 1, add 1 0",
        "ends that nobody reads": "conv, conv 0, conv 0, conv 2",
        "a depthwise layer at the end": "conv, conv 0, depthwise 1",
        "a sum whose last term is a sum": "conv, conv, add 0 1, conv 2, add 3 2",
        "several layers that keep channels": "conv, same 0, same 1, conv 2, same 3, same 4, add 2 "
        "5, same 6, conv 7, same 8, depthwise 9, add 7 10",
        "a sum of a layer and its own depthwise layer": "conv, depthwise 0, add 0 1",
        # Each sum has two ways to the one before, so 2**30 lead to the first.
        "thirty depthwise blocks in a row": ", ".join(
            ["conv"] + [f"depthwise {i}, add {i} {i + 1}" for i in range(0, 60, 2)]
        ),
    }
    kinds = [_layer("add", "conv"), _layer("same", "conv", "add"), _layer("conv", "conv", "same")]
    alike = [_layer("Conv", "conv"), _layer("conv", "conv", "Conv"), _layer("CONV", "conv", "conv")]
    digits = [
        _layer("conv2", "conv"),
        _layer("conv10", "conv"),
        _layer("s", "add", "conv2", "conv10"),
    ]
    return [
        Case("layers named like kinds", {"layers": kinds}),
        Case("names that differ in capitals", {"layers": alike}),
        Case("names with numbers of one digit and of two", {"layers": digits}),
        *(Case(label, _network(rng, *lines.split(", "))) for label, lines in cases.items()),
    ]


def _group_oracle(inputs, probe):
    # Colours spread along the graph until nothing changes.
    colour = {layer["name"]: i for i, layer in enumerate(inputs["layers"])}
    for _ in inputs["layers"]:
        for layer in inputs["layers"]:
            if layer["kind"] != "conv":
                tied = [layer["name"], *layer["inputs"]]
                lowest = min(colour[name] for name in tied)
                colour |= dict.fromkeys(tied, lowest)
    groups = {}
    for layer in inputs["layers"]:
        if layer["kind"] in ("conv", "depthwise"):
            groups.setdefault(colour[layer["name"]], []).append(layer["name"])
    return sorted(sorted(group) for group in groups.values())


# 8. one threshold for all layers -----------------------------------------------------------------


def _global_cases(rng):
    scores = [_normal(rng, n).abs() * size for n, size in ((6, 1.0), (8, 2.0), (4, 0.5))]
    return [Case("three layers", {"scores": scores, "ratio": 0.55, "least": 1})]


def _global_edges(rng):
    apart = [torch.tensor([0.1, 0.2, 0.3]).double(), torch.tensor([1.0, 9.0, 8.0, 7.0]).double()]
    close = 1 + 1e-9 * torch.randperm(12, generator=rng).double()
    single = [_normal(rng, 1), _normal(rng, 5), _normal(rng, 1)]
    small = [_normal(rng, 5).abs() * 0.01, _normal(rng, 5).abs() + 1, _normal(rng, 4).abs() + 1]
    return [
        Case("a layer of small scores", {"scores": small, "ratio": 0.5, "least": 2}),
        Case("everything asked for", {"scores": [s + 1 for s in small], "ratio": 1.0, "least": 1}),
        Case(
            "one layer's scores far above the other's", {"scores": apart, "ratio": 0.3, "least": 1}
        ),
        Case(
            "a layer smaller than the least",
            {"scores": [small[0][:2], small[1]], "ratio": 0.5, "least": 3},
        ),
        Case(
            "scores that float32 cannot tell apart",
            {"scores": list(close.split([5, 7])), "ratio": 0.5, "least": 1},
        ),
        Case(
            "scores below 0",
            {"scores": [_normal(rng, 9), _normal(rng, 7) - 0.5], "ratio": 0.4, "least": 1},
        ),
        Case(
            "nearly all scores below 0, and far apart",
            {"scores": [-_normal(rng, 5).exp(), -_normal(rng, 6).exp()], "ratio": 0.5, "least": 2},
        ),
        Case("nothing asked for", {"scores": small, "ratio": 0.0, "least": 1}),
        Case("too little asked for", {"scores": small, "ratio": 0.05, "least": 1}),
        Case("everything asked for, two left", {"scores": small, "ratio": 1.0, "least": 2}),
        Case(
            "a single layer", {"scores": [_normal(rng, 5).sort().values], "ratio": 0.5, "least": 2}
        ),
        Case("a single layer, three left", {"scores": [small[0]], "ratio": 0.5, "least": 3}),
        Case("a single layer, one left", {"scores": [small[1]], "ratio": 0.8, "least": 1}),
        Case("layers of one channel", {"scores": single, "ratio": 0.5, "least": 1}),
        Case(
            "equally large layers",
            {"scores": [_normal(rng, 4) for _ in range(3)], "ratio": 0.5, "least": 1},
        ),
        # 100 * 0.29 is just below 29, but 29 in float32.
        Case(
            "a ratio of 0.29",
            {"scores": [_normal(rng, 50), _normal(rng, 50)], "ratio": 0.29, "least": 1},
        ),
        Case("scores far above 0", {"scores": [s * 1e20 for s in apart], "ratio": 0.5, "least": 1}),
    ]


def _global_oracle(inputs, probe):
    scores = [layer.tolist() for layer in inputs["scores"]]
    left = [set(range(len(layer))) for layer in scores]
    budget = int(sum(map(len, scores)) * inputs["ratio"])
    for _, layer, channel in sorted(
        (s, i, j) for i, row in enumerate(scores) for j, s in enumerate(row)
    ):
        if budget and len(left[layer]) > inputs["least"]:
            left[layer].remove(channel)
            budget -= 1
    return [torch.tensor(sorted(kept)) for kept in left]


LIBRARIES = ("torch.nn.utils.prune.*", "torch.ao.*", "torch_pruning.*")


def _item(name, points, cases, oracle, edges, nudge, hint):
    more = {
        "edges": edges,
        "nudge": nudge,
        "hint": hint,
        "tolerance": CLOSE,
        "forbidden": LIBRARIES,
    }
    return Item(name, cases, oracle, points=points, **more)


ITEMS = (
    _item(
        "norm_importance",
        8,
        _norm_cases,
        _norm_oracle,
        _norm_edges,
        "Over which axes do you sum, and what is left to do with the sum to have a norm?",
        "One number per output channel: the norm over all other axes, root included",
    ),
    _item(
        "taylor_importance",
        8,
        _taylor_cases,
        _taylor_oracle,
        _taylor_edges,
        "What is the score of a channel in one image?",
        "Sum over pixels, then the absolute value, then the mean over the batch: the order matters",
    ),
    _item(
        "channels_to_keep",
        10,
        _keep_cases,
        _keep_oracle,
        _keep_edges,
        "Try 5 channels, a ratio of 0.5 and two equal scores by hand",
        "Round the number removed down, keep at least one, break ties in favour of the lower "
        "index, sort the result",
    ),
    _item(
        "prune_conv",
        10,
        _conv_cases,
        _conv_oracle,
        _conv_edges,
        "Which axis of the weight belongs to the outputs, and which to the inputs?",
        "Outputs lie on the first axis and inputs on the second; "
        "each is selected by its own indices",
    ),
    _item(
        "prune_depthwise",
        10,
        _depthwise_cases,
        _depthwise_oracle,
        _depthwise_edges,
        "With two outputs for each channel: which rows of the weight belong to channel 1?",
        "Each channel owns a run of outputs; the number of groups shrinks, too",
    ),
    _item(
        "prune_after_flatten",
        12,
        _flatten_cases,
        _flatten_oracle,
        _flatten_edges,
        "Where in the flattened row do the pixels of channel 1 begin and end?",
        "Flattening (C, H, W) turns each channel into a run of H * W columns",
    ),
    _item(
        "channel_groups",
        16,
        _group_cases,
        _group_oracle,
        _group_edges,
        "If one channel goes from the output of an addition, what has to go from each of its "
        "inputs?",
        "A sum ties all its inputs, a depthwise layer ties its output to its input; "
        "ties hold across several layers",
    ),
    _item(
        "global_channels",
        14,
        _global_cases,
        _global_oracle,
        _global_edges,
        "Sort all the scores together. What if the next one lies in a layer that is at its least?",
        "Remove the lowest scores of all layers together; "
        "a layer at its least is skipped for the next score",
    ),
)

ASSIGNMENT = Assignment("a3", "Structured pruning", ITEMS, manual_points=12)
