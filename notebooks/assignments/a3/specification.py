"""The exercises of a3, structured pruning.

Secret: holds the oracles, written with loops and with masks.
"""

from itertools import product

import torch

from helpers.checks.compare import Tolerance
from helpers.checks.specification import Assignment, Case, Item

CLOSE = Tolerance(relative=1e-9, absolute=0.0, same_types=True)


def _normal(rng, *shape):
    return torch.randn(*shape, generator=rng, dtype=torch.float64)


def _whole(rng, low, high):
    """A number from low to high."""
    return int(torch.randint(low, high + 1, (), generator=rng))


def _shuffled(rng, things):
    return [things[i] for i in torch.randperm(len(things), generator=rng).tolist()]


def _sizes(rng, count):
    """Different sizes, so that no axis can be taken for another one."""
    return _shuffled(rng, range(2, 2 + count))


def _pair(rng):
    """A small size and a larger one."""
    return sorted(_sizes(rng, 4)[:2])


# How many channels are kept, and whether there is a bias.
AMOUNTS = ("one", "some", "all")
BIASES = {"": True, ", without a bias": False}
KERNELS = tuple(product((1, 2, 3), repeat=2))


def _some(rng, count, kept):
    """Sorted indices of `kept` out of `count` channels: so many, one that is not the first, some
    with a gap between them, or all.
    """
    if kept == "one":
        return torch.tensor([_whole(rng, 1, count - 1)])
    if kept == "some":
        mask, gap = _normal(rng, count) > 0, _whole(rng, 1, count - 2)
        mask[gap - 1 : gap + 2] = torch.tensor([True, False, True])
        return mask.nonzero().flatten()
    kept = count if kept == "all" else kept
    return torch.randperm(count, generator=rng)[:kept].sort().values


# Positions in many channels, as in a set of Python they are not in order.
FEW = torch.tensor([1, 8, 64, 280])


def _scaled(inputs, size):
    """The same with a weight and a bias of another size."""
    grown = {n: inputs[n] * size for n in ("weight", "bias") if inputs.get(n) is not None}
    return inputs | grown


# 1. and 2. importance ----------------------------------------------------------------------------


def _norm_cases(rng):
    return [Case(f"the {p}-norm", {"weight": _normal(rng, 4, 3, 2, 2), "p": p}) for p in (1, 2)]


def _norm_edges(rng):
    few, many, *kernel = _sizes(rng, 5)
    shapes = {
        "a linear layer, more inputs": (few, many),
        "a linear layer, more outputs": (many, few),
        "a convolution in one dimension, more inputs": (few, many, *kernel[:1]),
        "a convolution in one dimension, more outputs": (many, few, *kernel[:1]),
        "a convolution with a high kernel": (few, many, 3, 2),
        "a convolution with a wide kernel": (many, few, 2, 3),
        "a convolution in three dimensions, more inputs": (few, many, *kernel),
        "a convolution in three dimensions, more outputs": (many, few, *kernel),
        "a square linear layer": (7, 7),
        "as many inputs as outputs": (3, 3, 2, 2),
        "a kernel of one pixel": (3, 3, 1, 1),
        "a depthwise convolution": (4, 1, 3, 3),
        "a depthwise convolution in one dimension": (4, 1, 3),
        "a single output": (1, 2, 3, 3),
        "a linear layer of a single output": (1, 4),
        "a single weight": (1, 1, 1, 1),
        "a linear layer of a single weight": (1, 1),
        "a single weight in one dimension": (1, 1, 1),
        "a single output in one dimension": (1, 3, 4),
        "a single output in three dimensions": (1, 2, 3, 2, 2),
        "a kernel of one pixel in one dimension": (3, 3, 1),
        "a kernel of one pixel in three dimensions": (3, 3, 1, 1, 1),
        "a depthwise convolution in three dimensions": (4, 1, 2, 2, 2),
        "more than 1,000 weights in each channel": (2, 30, 7, 5),
        "a large linear layer": (130, 1100),
    }
    weights = {label: _normal(rng, *shape) for label, shape in shapes.items()}
    weights["a single input of negative weights"] = -_normal(rng, 4, 1).abs()
    weights["a single output of negative weights"] = -_normal(rng, 1, 2, 3, 3).abs()
    weights["a channel of zeros among small weights"] = zero = _normal(rng, 3, 2, 2, 2) * 1e-100
    zero[1] = 0
    weights["nothing but zeros"] = torch.zeros(3, 2, 2, 2, dtype=torch.float64)
    weights["weights far from 0"] = _normal(rng, 3, 2, 2, 2) * 1e100
    return [
        Case(f"{label}, the {p}-norm", {"weight": weight, "p": p})
        for label, weight in weights.items()
        for p in (1, 2)
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
    # As behind a ReLU: nothing of channel 0 in an image, of channel 1 in all, of a whole image.
    still = _taylor_case(rng, "channels and images that are zero", 4, 3, 2, 2)
    still.inputs["activation"] = still.inputs["activation"].abs()
    for place in ((0, 0), (slice(None), 1), 2):
        still.inputs["activation"][place] = 0
    small = _taylor_case(rng, "a channel that is zero, and small gradients", 3, 2, 3, 3)
    small.inputs["activation"][:, 1] = 0
    small.inputs["gradient"] *= 1e-100
    weak = _taylor_case(rng, "small activations", 3, 2, 3, 3)
    weak.inputs["activation"] *= 1e-100
    flat = _taylor_case(rng, "no gradient in the whole batch", 3, 2, 3, 3)
    flat.inputs["gradient"][:] = 0
    large = _taylor_case(rng, "large activations and gradients", 3, 4, 2, 2)
    for tensor in large.inputs.values():
        tensor *= 1e100
    twice = _taylor_case(rng, "an image twice", 3, 2, 2, 2)
    lone = _taylor_case(rng, "a single image and channel of negative products", 1, 1, 2, 3)
    lone.inputs["gradient"] = -lone.inputs["activation"] * 2
    for tensor in twice.inputs.values():
        tensor[2] = tensor[0]
    few, many, short, long = (*_pair(rng), *_pair(rng))
    shapes = {
        "images of one pixel": (5, 4, 1, 1),
        "images of one row": (2, 3, 1, 4),
        "images of one column": (2, 3, 4, 1),
        "as many rows as images and channels": (3, 3, 3, 5),
        "wide images, more than channels": (many, few, short, long),
        "high images, more than channels": (many, few, long, short),
        "wide images, fewer than channels": (few, many, short, long),
        "high images, fewer than channels": (few, many, long, short),
        "as many images as channels": (6, 6, 2, 2),
        "more than 64 images": (2 * _whole(rng, 33, 40) + 1, 2, 2, 1),
        "more than 128 images, channels and pixels": (130, 131, 1, 1),
        "more than 1,000 images": (1030, 2, 1, 2),
        "more than 5,000 pixels": (2, 3, 71, 77),
        "a single image": (1, 4, 3, 3),
        "a single image of one pixel": (1, 3, 1, 1),
        "a single channel": (3, 1, 4, 2),
        "a single channel of one pixel": (3, 1, 1, 1),
        "a single image of a single channel": (1, 1, 2, 3),
        "a single number": (1, 1, 1, 1),
    }
    return [
        silent,
        one,
        still,
        small,
        weak,
        twice,
        lone,
        flat,
        large,
        *(_taylor_case(rng, label, *shape) for label, shape in shapes.items()),
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
    # The last four are the highest, by a few of the last digits of a float64.
    close = torch.cat([torch.randperm(4, generator=rng), torch.randperm(4, generator=rng) + 4])
    many_close = torch.randperm(300, generator=rng)
    few = _normal(rng, 300)
    few[FEW] += 99
    # Beside -4 or 5, the first six are 0.
    mixed = 1e-30 * torch.arange(6).double()
    mixed = torch.cat([mixed, torch.tensor([-4.0, 5.0, -6.0]).double()])
    return [
        Case("equal scores", {"scores": equal, "ratio": 0.5}),
        Case(
            "some equal scores",
            {"scores": torch.tensor([1.0, 3.0, 1.0, 2.0, 1.0]).double(), "ratio": 0.45},
        ),
        Case("everything asked for", {"scores": _normal(rng, 4).abs(), "ratio": 1.0}),
        Case("all of many asked for", {"scores": _normal(rng, 1100), "ratio": 1.0}),
        Case("nothing asked for", {"scores": _normal(rng, 5).abs(), "ratio": 0.0}),
        Case(
            "scores below 0",
            {"scores": torch.tensor([-3.0, 2.0, -1.0, 0.5], dtype=torch.float64), "ratio": 0.5},
        ),
        Case(
            "scores that float32 cannot tell apart",
            {"scores": 1 + 2.0**-52 * close.double(), "ratio": 0.5},
        ),
        Case(
            "large scores, close together",
            {"scores": 2.0**40 + 2.0**-12 * close.double(), "ratio": 0.5},
        ),
        Case(
            "300 scores, close together",
            {"scores": 1 + 2.0**-50 * many_close.double(), "ratio": 0.5},
        ),
        Case("a few of 300 channels stay", {"scores": few, "ratio": 0.987}),
        Case("scores close to 0 beside others", {"scores": mixed, "ratio": 0.6}),
        Case("scores of 0", {"scores": equal * 0, "ratio": 0.5}),
        Case("two equal scores", {"scores": equal[:2], "ratio": 0.5}),
        Case("two scores, nearly half of them to go", {"scores": order[:2], "ratio": 0.49}),
        # 10 * 0.7 is 7, but 10 * (1 - 0.7) is above 3.
        Case("a ratio of 0.7", {"scores": _normal(rng, 10).abs(), "ratio": 0.7}),
        Case("too little asked for", {"scores": _normal(rng, 5).abs(), "ratio": 0.15}),
        Case(  # sorting that is not stable shows above 16 scores only
            "many equal scores",
            {"scores": torch.randperm(1200, generator=rng).double() % 3, "ratio": 0.5},
        ),
        # 100 * 0.29 is just below 29, but 29 in float32.
        Case(
            "a ratio of 0.29",
            {"scores": torch.randperm(100, generator=rng).double(), "ratio": 0.29},
        ),
        Case("all scores far below 0", {"scores": -1e300 - 1e299 * order, "ratio": 0.25}),
        Case("scores far above 0", {"scores": 1e300 + 1e299 * order, "ratio": 0.5}),
        Case("scores close to 0", {"scores": 1e-300 * torch.arange(1, 9).double(), "ratio": 0.5}),
        Case(
            "a few of 1,000 channels to go",
            {"scores": torch.randperm(1000, generator=rng).double(), "ratio": 0.004},
        ),
        Case("equal scores far above 0", {"scores": equal[:4] * 1e17, "ratio": 0.75}),
        Case(
            "everything asked for, equal scores below 0",
            {"scores": torch.tensor([-4.0, -1, -3, -1, -2]).double(), "ratio": 1.0},
        ),
        Case(
            "scores of 0 that stay",
            {"scores": torch.tensor([0.0, 0, -1, 2, 0, -3]).double(), "ratio": 0.5},
        ),
        Case("a ratio of 1 / 8", {"scores": _normal(rng, 8), "ratio": 0.125}),
        Case("a single channel", {"scores": _normal(rng, 1), "ratio": 1.0}),
        Case("one of two", {"scores": _normal(rng, 2), "ratio": 0.5}),
        *_drawn_scores(rng),
    ]


def _exact_share(rng):
    """A count, and a ratio that needs all digits: 3 * (1 / 3) is 1, 3 * 0.33333333 is less."""
    shares = [
        (count, gone / count)
        for count in (3, 6, 7, 9, 11, 13, 14)
        for gone in range(1, count)
        if int(count * (gone / count)) == gone
        if all(count * round(gone / count, digits) < gone for digits in (4, 6, 8))
    ]
    return _shuffled(rng, shares)[0]


def _drawn_scores(rng):
    """Scores of which many are equal."""
    count, ratio = _exact_share(rng)
    drawn = {f"{count} scores, and a ratio of {ratio!r}": (count, ratio)}
    for count in _shuffled(rng, range(3, 33))[:8]:
        parts = _shuffled(rng, (20, 32, count))[0]
        ratio = _whole(rng, 1, parts - 1) / parts
        drawn[f"{count} scores, many of them equal, and a ratio of {ratio:.5g}"] = count, ratio
    count = _whole(rng, 17, 32)
    for words, gone in {"none": 0, "one": 1, "all but one": count - 1}.items():
        drawn[f"{words} to go of more than 16"] = count, (gone + 0.5) / count
    return [
        Case(label, {"scores": torch.randint(-2, 3, (count,), generator=rng).double(), "ratio": r})
        for label, (count, r) in drawn.items()
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
    layers = {
        "as many inputs as outputs": _conv_inputs(rng, 5, 5, 3, 2),
        "as many kept on both sides": _conv_inputs(rng, 6, 6, 3, 3),
        "one of two outputs kept": _conv_inputs(rng, 2, 3, 1, 2),
        "a bias of zeros": zeros | {"bias": torch.zeros(4, dtype=torch.float64)},
        "the last kept": zeros | {name: value[-1:] for name, value in ends.items()},
        "the ends kept": zeros | {name: value[::2] for name, value in ends.items()},
        "a kept output of zeros": _conv_inputs(rng, 4, 3, "some", "some"),
    }
    silent = layers["a kept output of zeros"]
    silent["weight"][silent["keep_out"][0]] = 0
    layers["a kept input of zeros"] = silent = _conv_inputs(rng, 4, 4, "some", "some")
    silent["weight"][:, silent["keep_in"][0]] = 0
    layers["a bias that is zero where it is kept"] = silent = _conv_inputs(rng, 5, 3, "some", "all")
    silent["bias"][silent["keep_out"]] = 0
    layers["300 outputs"] = _conv_inputs(rng, 300, 2, "some", "all", kernel=(1, 1))
    layers["300 inputs"] = _conv_inputs(rng, 2, 300, "all", "some", kernel=(1, 1))
    layers["a large kernel"] = _conv_inputs(rng, 4, 3, "some", "some", kernel=(7, 9))
    plain = _conv_inputs(rng, 5, 6, "some", "some")
    layers["large weights"], layers["small weights"] = _scaled(plain, 1e300), _scaled(plain, 1e-300)
    layers["one of two inputs kept"] = _conv_inputs(rng, 3, 2, "some", 1)
    layers["equal weights"] = plain | {"weight": plain["weight"] * 0 + 1}
    first = torch.tensor([0])
    layers["the first input kept"] = plain | {"keep_in": first}
    layers["the first output kept"] = plain | {"keep_out": first}
    layers["the first of both kept"] = plain | {"keep_in": first, "keep_out": first}
    for name, sizes in {"outputs": (300, 2), "inputs": (2, 300)}.items():
        few = _conv_inputs(rng, *sizes, "all", "all", kernel=(1, 1))
        layers[f"a few of 300 {name}"] = few | {f"keep_{name[:-4]}": FEW}
    layers["a single weight"] = _conv_inputs(rng, 1, 1, "all", "all", kernel=(1, 1))
    layers["a single output of one pixel"] = _conv_inputs(rng, 1, 4, "all", "some", kernel=(1, 1))
    for words, bias in BIASES.items():
        layers[f"a single input{words}"] = _conv_inputs(rng, 5, 1, "some", "all", bias)
        layers[f"a single output{words}"] = _conv_inputs(rng, 1, 4, "all", "some", bias)
        layers[f"a kernel of one pixel{words}"] = _conv_inputs(rng, 5, 4, 3, 3, bias, (1, 1))
        layers[f"as many outputs as all inputs{words}"] = _conv_inputs(rng, 6, 3, 3, 3, bias)
        layers[f"as many inputs as all outputs{words}"] = _conv_inputs(rng, 3, 6, 3, 3, bias)
        kernels, more = _shuffled(rng, KERNELS), _shuffled(rng, (-1, 0, 1) * 3)
        for place, (out, into) in enumerate(product(AMOUNTS, repeat=2)):
            cout = _whole(rng, 4, 6)
            sizes = cout, cout + more[place], out, into
            label = f"{out} of the outputs and {into} of the inputs{words}"
            layers[label] = _conv_inputs(rng, *sizes, bias, kernels[place])
    return [Case(label, inputs) for label, inputs in layers.items()]


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
    zeros = _depthwise_inputs(rng, 4, 2)
    layers = {
        "a bias of zeros": zeros | {"bias": torch.zeros(4, dtype=torch.float64)},
        "three channels of five outputs": _depthwise_inputs(rng, 3, "some", multiplier=5),
        "a single channel of one output": _depthwise_inputs(rng, 1, "all"),
        "300 channels of two outputs": _depthwise_inputs(rng, 300, "some", 2, kernel=(1, 1)),
        "three channels of nine outputs": _depthwise_inputs(rng, 3, "some", 9),
        "a large kernel": _depthwise_inputs(rng, 4, "some", kernel=(7, 9)),
        "a single channel of three outputs": _depthwise_inputs(rng, 1, "all", multiplier=3),
        "a kept channel of zeros": _depthwise_inputs(rng, 4, "some"),
        "three channels of twelve outputs": _depthwise_inputs(rng, 3, "some", 12),
        "a few of 300 channels": _depthwise_inputs(rng, 300, "all", 2, kernel=(1, 1)),
        "a bias that is zero where it is kept": _depthwise_inputs(rng, 5, "some"),
        "one of two channels of two outputs": _depthwise_inputs(rng, 2, "one", 2),
        "one of two channels of three outputs": _depthwise_inputs(rng, 2, "one", 3),
    }
    layers["a few of 300 channels"]["keep"] = FEW
    silent = layers["a bias that is zero where it is kept"]
    silent["bias"][silent["keep"]] = 0
    plain = _depthwise_inputs(rng, 4, "some", multiplier=2)
    layers["equal weights"] = plain | {"weight": plain["weight"] * 0 + 1}
    layers["large weights"], layers["small weights"] = _scaled(plain, 1e300), _scaled(plain, 1e-300)
    layers["the first channel kept"] = plain | {"keep": torch.tensor([0])}
    silent = layers["a kept channel of zeros"]
    silent["weight"][silent["keep"][0]] = 0
    for words, bias in BIASES.items():
        inputs = _depthwise_inputs(rng, 4, "some", multiplier=3, bias=bias, kernel=(1, 1))
        layers[f"three outputs of one pixel each{words}"] = inputs
        inputs = _depthwise_inputs(rng, 3, "some", multiplier=3, bias=bias, kernel=(3, 2))
        layers[f"three channels of three outputs{words}"] = inputs
        kernels = _shuffled(rng, KERNELS)
        for place, (most, kept) in enumerate(product((1, 2, 5), AMOUNTS)):
            multiplier = _whole(rng, min(most, 3), most)
            sizes = _whole(rng, 4, 6), kept, multiplier
            label = f"{kept} of the channels, outputs of each: {multiplier}{words}"
            layers[label] = _depthwise_inputs(rng, *sizes, bias, kernels[place])
    return [Case(label, inputs) for label, inputs in layers.items()]


def _depthwise_oracle(inputs, probe):
    per_channel = len(inputs["weight"]) // inputs["channels"]
    kept = set(inputs["keep"].tolist())
    mask = torch.tensor([i // per_channel in kept for i in range(len(inputs["weight"]))])
    return [
        inputs["weight"][mask],
        None if inputs["bias"] is None else inputs["bias"][mask],
        torch.tensor(len(kept)),  # 3.0 is no number of groups
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
    layers = {
        "as many pixels as channels": _flatten_inputs(rng, 4, 2, 2, 2),
        "as many rows as channels": _flatten_inputs(rng, 3, 3, 2, "some"),
        "as many columns as channels": _flatten_inputs(rng, 3, 2, 3, "some"),
        "more outputs than columns": _flatten_inputs(rng, 4, 1, 1, "some", outputs=7),
        "as many outputs as pixels": _flatten_inputs(rng, 3, 2, 2, "some", outputs=4),
        "a single channel": _flatten_inputs(rng, 1, 2, 3, "all"),
        "a single output of large maps": _flatten_inputs(rng, 4, 2, 11, 3, outputs=1),
        "the last one kept": last | {"keep": torch.tensor([4])},
        "the first of one pixel kept": pixel | {"keep": torch.tensor([0])},
        "the ends of one pixel kept": pixel | {"keep": torch.tensor([0, 4])},
        "kept columns of zeros": _flatten_inputs(rng, 4, 2, 2, "some"),
        "300 channels": _flatten_inputs(rng, 300, 1, 2, "some"),
        "large square maps": _flatten_inputs(rng, 3, 11, 11, "some", outputs=2),
        "a single weight": _flatten_inputs(rng, 1, 1, 1, "all", outputs=1),
        "maps of three by five": _flatten_inputs(rng, 4, 3, 5, "some", outputs=2),
        "maps of five by three": _flatten_inputs(rng, 4, 5, 3, "some", outputs=2),
        "maps of three by three": _flatten_inputs(rng, 4, 3, 3, "some", outputs=2),
        "large maps": _flatten_inputs(rng, 3, 15, 19, "some", outputs=130),
        "a few of 300 channels": _flatten_inputs(rng, 300, 1, 2, "all") | {"keep": FEW},
    }
    plain = layers["maps of three by five"]
    layers["large weights"], layers["small weights"] = _scaled(plain, 1e300), _scaled(plain, 1e-300)
    layers["the first channel kept"] = plain | {"keep": torch.tensor([0])}
    silent = layers["kept columns of zeros"]
    silent["weight"].unflatten(1, (4, -1))[:, silent["keep"][0]] = 0
    long, channels = _whole(rng, 3, 4), _whole(rng, 3, 5)
    maps = {
        "one pixel": (1, 1),
        "one row": (1, long),
        "one column": (long, 1),
        "a square": (2, 2),
        "wide maps": (2, long),
        "high maps": (long, 2),
    }
    for row, (name, (height, width)) in enumerate(maps.items()):
        sizes = channels, height, width
        few = (1, channels, 3)[row % 3]
        layers[f"{name}, all kept"] = _flatten_inputs(rng, *sizes, "all", few)
        outputs = {
            "a single output": 1,
            "as many outputs as channels": channels,
            "as many outputs as columns": channels * height * width,
        }
        for place, (words, count) in enumerate(outputs.items()):
            kept = AMOUNTS[(row + place) % 2]
            layers[f"{name}, {words}, {kept} kept"] = _flatten_inputs(rng, *sizes, kept, count)
    return [Case(label, inputs) for label, inputs in layers.items()]


def _flatten_oracle(inputs, probe):
    pixels = inputs["height"] * inputs["width"]
    kept = set(inputs["keep"].tolist())
    return inputs["weight"][
        :, torch.tensor([c // pixels in kept for c in range(inputs["weight"].shape[1])])
    ]


# 7. groups ---------------------------------------------------------------------------------------


def _layer(name, kind, *inputs):
    return {"name": name, "kind": kind, "inputs": list(inputs)}


PLAIN = ("layer", "Layer", "l", "block.")
# Words of other kinds, and the signs with which names are easily joined, or taken apart again.
MISLEADING = ("conv_", "add_", "same_conv", "depthwise.", "x_y", "x-y.", "x, y", "x/y ", "x|y")
MISLEADING += ("x::y", "x->", "x&", "x#")


def _names(rng, count, beginnings):
    """Names in random order, so that no answer can rely on the alphabet."""
    numbers = torch.randperm(200, generator=rng)[:count].tolist()
    return [f"{_shuffled(rng, beginnings)[0]}{n}" for n in numbers]


def _network(rng, *lines, beginnings=PLAIN):
    """Layers with drawn names, from lines such as "add 0 2": a kind, and which layers are its
    inputs.
    """
    names = _names(rng, len(lines), beginnings)
    rows = [(name, *line.split()) for name, line in zip(names, lines, strict=True)]
    return {
        "layers": [
            _layer(name, kind, *(names[int(i)] for i in inputs)) for name, kind, *inputs in rows
        ]
    }


def _drawn_network(rng, count):
    """A network in which a layer reads any others further up; sums stand in the second half."""
    lines = ["conv"]
    while len(lines) < count:
        late = 2 * len(lines) >= count
        kind = ("conv", "depthwise", "same", "add" if late else "conv")[_whole(rng, 0, 3)]
        reads = {"conv": _whole(rng, 0, 1), "add": _whole(rng, 2, 4)}.get(kind, 1)
        inputs = torch.randint(len(lines), (reads,), generator=rng).tolist()
        lines.append(" ".join([kind, *map(str, inputs)]))
    return _network(rng, *lines, beginnings=MISLEADING)


def _drawn_sums(rng, count):
    """Convolutions, and about as many sums of any two layers further up."""
    lines = ["conv"] * count
    while len(lines) < 2 * count - 2:
        lines.append("add {} {}".format(*torch.randperm(len(lines), generator=rng)[:2].tolist()))
    return _network(rng, *lines)


def _group_cases(rng):
    return [
        Case("a chain", _network(rng, "conv", "same 0", "conv 1", "depthwise 2", "conv 3")),
        Case("a residual block", _network(rng, "conv", "conv 0", "conv 1", "add 0 2", "conv 3")),
    ]


GROUPED = {
    "two blocks in a row": "conv, conv 0, add 0 1, conv 2, depthwise 3, conv 4, same 5, add 2 "
    "6, conv 7",
    "two sums with a common term": "conv, conv, conv, add 0 1, add 2 1, conv 4",
    "three blocks that share a group": "conv, conv 0, add 0 1, conv 2, add 2 3, conv 4, add 4 5",
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
    "the same term twice": "conv, conv, add 0 0, conv 2, add 3 3 1, conv, add 5 4 5",
    "a sum of five, depthwise and activation in turn": "conv, depthwise 0, same 1, conv, "
    "same 3, depthwise 4, conv, conv, conv, add 6 2 7 5 8",
    "depthwise layers in a row": "conv, depthwise 0, same 1, depthwise 2, depthwise 3, same 4, "
    "same 5, conv 6, add 6 7",
    "a layer that is read again after a sum": "conv, same 0, conv, add 2 0, conv, add 4 1, "
    "depthwise 3",
    "two layers that are read again after sums": "conv, conv, same 1, add 0 1, depthwise 2, "
    "conv, conv, same 6, add 6 5, add 7 0",
    "several layers that are read again after a sum": "conv, same 0, depthwise 1, conv, add 0 "
    "3, conv, add 1 5, conv, add 2 7, conv, add 4 9, conv 10, conv, add 6 12",
    "sums of sums": "conv, conv, add 0 1, conv, conv, add 3 4, conv, conv, add 6 7, conv 8, "
    "add 2 5, add 9 10 8",
    "a single layer": "conv",
    "a layer added to itself, then to another": "conv, conv, add 0 0, add 2 1",
    # In a round in which the colours of these still change, the number of colours does not.
    "eight layers of one group": "conv, conv, conv, conv, add 2 1, add 2 3, add 0 5, add 1 4",
    "nine layers of one group": "conv, conv, conv, conv, add 0 2, add 4 1, add 5 1, add 0 2, "
    "add 3 6",
    "two sums of the same terms": "conv, conv, add 0 1, add 0 1, conv, add 3 4",
    "two activations of one layer": "conv, same 0, same 0, conv, add 2 3",
    "two depthwise layers of one layer": "conv, depthwise 0, depthwise 0, conv, add 2 3",
    "a hundred convolutions in a row": ", ".join(["conv"] + [f"conv {i}" for i in range(99)]),
    "a sum of two depthwise layers": "conv, depthwise 0, conv, depthwise 2, add 1 3",
    "a sum of three pairs": "conv, depthwise 0, conv, depthwise 2, conv, depthwise 4, add 1 3 5",
    "a sum of eight": "conv, conv, conv, conv, conv, conv, conv, conv, add 0 1 2 3 4 5 6 7",
    "a hundred layers that keep channels": ", ".join(
        ["conv"] + [f"{('same', 'depthwise')[i % 2]} {i}" for i in range(99)]
    ),
    "forty-nine sums, the last terms first": ", ".join(
        ["conv"] * 50 + [f"add {i} {i + 1}" for i in reversed(range(49))]
    ),
}


def _group_edges(rng):
    forty = ", ".join(["conv"] * 41 + [f"add {i} {i + 1}" for i in _shuffled(rng, range(40))])
    lines = GROUPED | {"forty sums in any order": forty}
    return [
        *_misleading_names(),
        *(
            Case(f"a drawn network of {count} layers", _drawn_network(rng, count))
            for count in range(8, 32, 2)
        ),
        *(Case(f"drawn sums of {count} layers", _drawn_sums(rng, count)) for count in (8, 16, 40)),
        *(Case(label, _network(rng, *these.split(", "))) for label, these in lines.items()),
    ]


def _misleading_names():
    """Networks whose names mislead those who sort or search them."""
    kinds = [_layer("x", "conv")]
    for name in ("add", "same", "depthwise", "conv"):
        kinds.append(_layer(name, "conv", kinds[-1]["name"]))
    others = [
        *(_layer("x", "conv"), _layer("conv", "same", "x"), _layer("y", "depthwise", "conv")),
        *(_layer("depthwise", "conv", "y"), _layer("same", "add", "depthwise", "y")),
    ]
    signs = [_layer(name, "conv") for name in ("a.b", "a-c", "a_d", "a b", "a", "b", "a/b")]
    signs += [_layer("a.b.c", "add", "a.b", "b", "a b"), _layer("a;b:c+d", "conv")]
    signs += [_layer("a_b", "depthwise", "a_d")]
    alike = [_layer("Conv", "conv"), _layer("conv", "conv", "Conv"), _layer("CONV", "conv", "conv")]
    digits = [
        _layer("conv2", "conv"),
        _layer("conv10", "conv"),
        _layer("s", "add", "conv2", "conv10"),
    ]
    numbers = [_layer(name, "conv") for name in ("2", "10", "1", "9")]
    numbers.append(_layer("0", "add", "2", "10"))
    below = [_layer(name, "conv") for name in ("z", "a+b", "a", "a!")]
    below.append(_layer("s", "add", "a", "z"))
    mixed = [
        *(_layer(name, "conv") for name in ("x", "c9", "y", "c10", "z", "c1", "a", "B", "Ca")),
        *(_layer(a + b, "add", a, b) for a, b in (("x", "c9"), ("y", "c10"), ("z", "c1"))),
        _layer("aB", "add", "a", "B"),
    ]
    named = {
        "names with capitals and numbers in several groups": mixed,
        "layers named like kinds": kinds,
        "layers named like kinds that they are not": others,
        "names with signs in them": signs,
        "names that continue another one with a sign": below,
        "names that are numbers": numbers,
        "names that differ in capitals": alike,
        "names with numbers of one digit and of two": digits,
    }
    return [Case(label, {"layers": layers}) for label, layers in named.items()]


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
    return [
        *_odd_scores(rng),
        *_odd_ratios(rng),
        *_odd_layers(rng),
        *(_drawn_layers(rng, count) for count in range(2, 9)),
    ]


def _odd_scores(rng):
    """Scores that are far apart, close together, or of another sign."""
    apart = [torch.tensor([0.3, 0.1, 0.2]).double(), torch.tensor([9.0, 8.0, 1.0, 7.0]).double()]
    close = 1 + 2.0**-52 * torch.randperm(12, generator=rng).double()
    mixed = [torch.tensor([-4.0, 5e-30, 4e-30, 5]).double(), torch.tensor([3.0, 2e-30]).double()]
    far = [1e300 * _normal(rng, n).abs() for n in (2, 9)]
    near_below = [_normal(rng, n).sigmoid() - 6 for n in (4, 5)]
    zero = [torch.tensor([-2.0, 0, -3]).double(), -_normal(rng, 5).abs() - 4]
    below = [_normal(rng, 9), _normal(rng, 7) - 0.5]
    far_below = [-1e9 * _normal(rng, n).exp() for n in (5, 6)]
    scores = {
        "a layer of small scores": (_small_and_large(rng), 0.5, 2),
        "one layer's scores far above the other's": (apart, 0.3, 1),
        "scores that float32 cannot tell apart": (list(close.split([5, 7])), 0.35, 1),
        "close scores of one layer": ([close], 0.5, 2),
        "close scores of four layers": (list(close.split([3, 2, 4, 3])), 0.5, 1),
        "scores close to 0 beside others": (mixed, 0.34, 1),
        "scores far above 0, everything asked for": (far, 1.0, 1),
        "scores below 0, everything asked for": (near_below, 1.0, 1),
        "scores below 0": (below, 0.4, 1),
        "nearly all scores below 0, and far apart": (far_below, 0.5, 2),
        "scores far above 0": ([s * 1e300 for s in apart], 0.5, 1),
        "scores close to 0": ([s * 1e-300 for s in apart], 0.5, 1),
        "a score of 0 that stays": (zero, 0.4, 1),
    }
    return [_global_case(label, *inputs) for label, inputs in scores.items()]


def _odd_ratios(rng):
    """Ratios that leave nothing to do, take all, or are hard to multiply."""
    small = _small_and_large(rng)
    count, ratio = _exact_share(rng)
    share = [_normal(rng, count)]
    ratios = {
        f"{count} channels and a ratio of {ratio!r}": (share, ratio, 1),
        "everything asked for": ([s + 1 for s in small], 1.0, 1),
        "everything asked for, two left": (small, 1.0, 2),
        "all of many asked for": ([_normal(rng, 150), _normal(rng, 150)], 1.0, 1),
        "a layer of 300 channels": ([_normal(rng, 300)], 0.3, 1),
        "a few of 1,000 channels to go": ([_normal(rng, n) for n in (600, 400)], 0.004, 1),
        "less than one channel asked for": ([_normal(rng, 2), _normal(rng, 1)], 0.3, 1),
        "nothing asked for": (small, 0.0, 1),
        "too little asked for": (small, 0.05, 1),
        # 100 * 0.29 is just below 29, but 29 in float32.
        "a ratio of 0.29": ([_normal(rng, 50), _normal(rng, 50)], 0.29, 1),
        # 20 * 0.7 is 14, and 20 times the float 0.7 just below.
        "a ratio of 0.7": ([_normal(rng, 8), _normal(rng, 12)], 0.7, 1),
        "a ratio of 1 / 8": ([_normal(rng, 3), _normal(rng, 5)], 0.125, 1),
    }
    return [_global_case(label, *inputs) for label, inputs in ratios.items()]


def _odd_layers(rng):
    """Layers of one size, alone, or as small as the least."""
    small = _small_and_large(rng)
    single = [_normal(rng, 1), _normal(rng, 5), _normal(rng, 1)]
    tight = [_normal(rng, 12), *(_normal(rng, n) - 9 for n in (4, 1, 3, 2))]
    # 41 of 148 are to go. The lowest layer keeps 5 of its 28, and the next 18 give one each.
    stairs = [_normal(rng, 6).abs() + 10 * height for height in range(20, 0, -1)]
    stairs.append(_normal(rng, 28).abs())
    layers = {
        "a layer smaller than the least": ([small[0][:2], small[1]], 0.5, 3),
        "a single layer": ([_normal(rng, 7).sort().values], 0.5, 2),
        "a single layer, three left": ([small[0]], 0.8, 3),
        "a single layer, one left": ([small[1]], 0.8, 1),
        "a least above all sizes": (small, 0.5, 9),
        "a least of the largest size": (small, 0.5, 5),
        "a least far from 1": ([_normal(rng, 40).abs(), _normal(rng, 40).abs() + 9], 0.125, 35),
        "260 layers": ([_normal(rng, 2) - 9 * (i > 255) for i in range(260)], 0.05, 1),
        "layers of one channel": (single, 0.5, 1),
        "a few of 300 channels to go": ([-torch.arange(280.0).double(), _normal(rng, 20)], 0.02, 1),
        "equally large layers": ([_normal(rng, 5) for _ in range(3)], 0.5, 1),
        "layers as small as the least, and smaller": (tight, 0.33, 4),
        "layers that reach the least one after the other": (stairs, 0.28, 5),
    }
    return [_global_case(label, *inputs) for label, inputs in layers.items()]


def _small_and_large(rng):
    """Three layers, the first of which has by far the smallest scores."""
    return [_normal(rng, 5).abs() * 0.01, _normal(rng, 5).abs() + 1, _normal(rng, 4).abs() + 1]


def _global_case(label, scores, ratio, least):
    return Case(label, {"scores": scores, "ratio": ratio, "least": least})


def _drawn_layers(rng, count):
    """Layers of any size, each with scores of its own height."""
    scores = [_normal(rng, _whole(rng, 1, 8)) * 3 + 2 * _normal(rng, 1) for _ in range(count)]
    ratio, least = _whole(rng, 1, 31) / 32, _whole(rng, 1, 4)
    label = f"{count} drawn layers, a ratio of {ratio}, at least {least}"
    return _global_case(label, scores, ratio, least)


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
