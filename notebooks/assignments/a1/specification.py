"""The exercises of a1, BatchNorm folding by hand. Secret: holds the oracles.

Each oracle runs torch's own layers and reads the answer off their outputs, so it shares no formula
with the solutions: an affine map is found by feeding zeros and ones, a folded weight by probing
with unit inputs.
"""

import sys

import torch
import torch.nn.functional as F
from driver import RUNS, VIEWS, build, describe, execute, modes, numbers
from networks import between, model_cases, model_edges, normal, statistics

from helpers.checks.compare import Tolerance
from helpers.checks.specification import Assignment, Case, Item

CLOSE = Tolerance(relative=1e-8, absolute=1e-10)


# 1. the affine form ------------------------------------------------------------------------------


def _affine_cases(rng):
    return [
        Case(f"{kind} statistics", statistics(rng, between(rng, 2, 9)))
        for kind in ("ordinary", "other")
    ]


def _affine_edges(rng):
    plain, tiny, single = statistics(rng, 5), statistics(rng, 4), statistics(rng, 1)
    new = {"gamma": torch.ones(3), "beta": torch.zeros(3), "mean": torch.zeros(3)}
    new = {name: value.double() for name, value in (new | {"var": torch.ones(3)}).items()}
    made = {
        "five channels": plain,
        # No float32 is as close to 0.017 as results have to be.
        "variances near zero": tiny | {"var": tiny["var"] * 1e-7, "eps": 0.017},
        "a single channel": single,
        "many channels": statistics(rng, 300),
        "an eps near zero": statistics(rng, 5)
        | {"var": tiny["var"].new_full((5,), 1e-8), "eps": 1e-9},
        "the same eps with other statistics": statistics(rng, 5) | {"eps": plain["eps"]},
        "a variance of 0": statistics(rng, 3) | {"var": torch.arange(3) * tiny["var"][:3]},
        "large variances": tiny | {"var": tiny["var"] * 1e7},
        "a large eps": tiny | {"eps": 5.0},  # above every variance
        "a gamma of zeros": tiny | {"gamma": tiny["gamma"] * 0},
        "an eps of 0": plain | {"eps": 0.0},
        "an eps of 0 and variances near zero": plain | {"eps": 0.0, "var": plain["var"] * 1e-11},
        "a new layer": new | {"eps": 1e-5},
        "a new layer of one channel": {k: v[:1] for k, v in new.items()} | {"eps": 1e-5},
    }
    without = {"gamma": None, "beta": None}
    return [
        case
        for label, inputs in made.items()
        for case in (
            Case(label, inputs),
            Case(f"{label}, without gamma and beta", inputs | without),
        )
    ]


def _affine_oracle(inputs, probe):
    def norm(value):
        x = torch.full((1, len(inputs["mean"])), value, dtype=torch.float64)
        return F.batch_norm(
            x,
            inputs["mean"].clone(),
            inputs["var"].clone(),
            inputs["gamma"],
            inputs["beta"],
            eps=inputs["eps"] or sys.float_info.min,  # torch 2.10 and 2.11 refuse 0
        )[0]

    return [norm(1.0) - norm(0.0), norm(0.0)]


# 2. and 3. statistics in training ----------------------------------------------------------------


# The squares of such values leave nothing in float64 of a small variance; nor does it help to take
# one number off all channels.
FAR = 1e6 * torch.tensor([0, 1, -2, 4], dtype=torch.float64)[:, None, None]


def _batch(rng, shape):
    return normal(rng, *shape) * 2 + 1


def _update_case(rng, label, *shape):
    inputs = {
        "x": _batch(rng, shape),
        "running_mean": normal(rng, shape[1]),
        "running_var": torch.rand(shape[1], generator=rng, dtype=torch.float64) + 0.5,
        "momentum": 0.05 * between(rng, 1, 19),
    }
    return Case(label, inputs)


def _update_cases(rng):
    return [
        _update_case(rng, f"a batch of shape {shape}", *shape)
        for shape in ((3, 4, 2, 2), (2, 5, 3, 1))
    ]


def _update_edges(rng):
    ones = torch.ones(3, dtype=torch.float64)
    x = _batch(rng, (2, 3, 1, 1))
    far = _update_case(rng, "channels far from 0 and from each other", 3, 4, 2, 3)
    far.inputs["x"] += FAR
    # No float32 is as close to 0.3 as results have to be.
    wide = _update_case(rng, "values that lie far apart", 3, 2, 2, 4)
    wide.inputs.update(x=wide.inputs["x"] * 1e3, momentum=0.3)
    new = [
        Case(
            f"running statistics of a new layer, a momentum of {momentum:g}",
            {
                "x": _batch(rng, (2, 3, 2, 2)),
                "running_mean": ones * 0,
                "running_var": ones,
                "momentum": momentum,
            },
        )
        for momentum in (0.1, 0.9)
    ]
    far_image = _update_case(rng, "a single image far from 0", 1, 4, 2, 3)
    far_image.inputs["x"] += FAR
    far_channel = _update_case(rng, "a single channel far from 0", 3, 1, 2, 3)
    far_channel.inputs["x"] += 1e6
    all_equal = _update_case(rng, "a batch whose values are all equal", 3, 2, 2, 2)
    all_equal.inputs["x"][:] = 5.0
    close = _update_case(rng, "values close together, small running variances", 3, 4, 2, 2)
    close.inputs["x"] *= 1e-5
    close.inputs["running_var"] *= 1e-9
    return [
        Case(
            "two values per channel",
            {"x": x, "running_mean": ones, "running_var": ones * 2, "momentum": 0.3},
        ),
        *(
            Case(
                f"a momentum of {momentum:g}",
                {"x": x * 3, "running_mean": ones, "running_var": ones / 2, "momentum": momentum},
            )
            for momentum in (0.0, 0.00123, 0.98765, 1.0)
        ),
        *(
            _update_case(rng, label, *shape)
            for label, shape in {
                "a single image": (1, 3, 2, 3),
                "a single channel": (4, 1, 3, 2),
                "many values": (30, 2, 16, 16),
                "many channels": (2, 300, 1, 2),
                "as many rows as channels": (2, 3, 3, 2),
                "as many columns as channels": (2, 3, 2, 3),
                "a single image of a single channel": (1, 1, 2, 3),
                "images of one pixel and one channel": (4, 1, 1, 1),
                "as many images as channels": (3, 3, 1, 4),
            }.items()
        ),
        Case(
            "a channel whose values are all equal",
            {
                "x": torch.cat([x, x[:, :1] * 0 + 5], dim=1),
                "running_mean": normal(rng, 4),
                "running_var": torch.arange(4).double(),
                "momentum": 0.2,
            },
        ),
        far,
        far_image,
        far_channel,
        wide,
        close,
        all_equal,
        *new,
    ]


def _update_oracle(inputs, probe):
    mean, var = inputs["running_mean"].clone(), inputs["running_var"].clone()
    F.batch_norm(inputs["x"], mean, var, training=True, momentum=inputs["momentum"])
    return [mean, var]


def _train_case(rng, label, *shape, eps):
    inputs = {
        "x": _batch(rng, shape),
        "gamma": normal(rng, shape[1]),
        "beta": normal(rng, shape[1]),
        "eps": eps,
    }
    return Case(label, inputs)


def _train_cases(rng):
    return [
        _train_case(rng, f"a batch of shape {shape}", *shape, eps=1e-2 * between(rng, 1, 9))
        for shape in ((3, 4, 2, 2), (2, 5, 3, 2))
    ]


def _train_edges(rng):
    equal = _train_case(rng, "a channel whose values are all equal", 3, 2, 2, 2, eps=0.02)
    equal.inputs["x"][:, 0] = 5.0
    far = _train_case(rng, "channels far from 0 and from each other", 3, 4, 2, 3, eps=1e-3)
    far.inputs["x"] += FAR
    # No float32 is as close to 0.017 as results have to be.
    close = _train_case(rng, "values close together and a beta of zeros", 3, 6, 2, 2, eps=0.017)
    close.inputs["x"] *= 0.01
    close.inputs["beta"] *= 0
    closer = _train_case(rng, "values very close together, a tiny eps", 4, 3, 2, 2, eps=1e-19)
    closer.inputs["x"] *= 1e-9
    no_eps = _train_case(rng, "values very close together, an eps of 0", 4, 3, 2, 2, eps=0.0)
    no_eps.inputs["x"] *= 1e-9
    zeros = _train_case(rng, "a gamma of zeros", 3, 3, 2, 2, eps=0.01)
    zeros.inputs["gamma"] *= 0
    all_equal = _train_case(rng, "a batch whose values are all equal", 3, 2, 2, 2, eps=0.02)
    all_equal.inputs["x"][:] = 5.0
    some = _train_case(rng, "a gamma and a beta with a 0", 3, 4, 2, 3, eps=0.02)
    some.inputs.update(gamma=torch.arange(4).double(), beta=torch.arange(4).flip(0).double())
    wide = _train_case(rng, "values that lie far apart", 3, 2, 2, 4, eps=1e-3)
    wide.inputs["x"] *= 1e5
    outlier = _train_case(rng, "a value far from all others", 10, 2, 5, 4, eps=1e-3)
    outlier.inputs["x"][0, :, 0, 0] = 1e4
    far_image = _train_case(rng, "a single image far from 0", 1, 4, 2, 3, eps=1e-3)
    far_image.inputs["x"] += FAR
    far_channel = _train_case(rng, "a single channel far from 0", 3, 1, 2, 3, eps=1e-3)
    far_channel.inputs["x"] += 1e6
    return [
        # Height equal to the number of channels: a broadcast along the wrong axis goes unnoticed
        # by shapes.
        _train_case(rng, "as many rows as channels", 2, 3, 3, 3, eps=0.1),
        _train_case(rng, "a single image", 1, 3, 4, 5, eps=1e-6),
        _train_case(rng, "a single channel", 3, 1, 2, 4, eps=1e-3),
        _train_case(rng, "images of one pixel", 5, 3, 1, 1, eps=1e-3),
        _train_case(rng, "many values", 30, 2, 16, 16, eps=1e-3),
        _train_case(rng, "many channels", 2, 300, 1, 2, eps=1e-3),
        _train_case(rng, "as many images as channels", 3, 3, 2, 4, eps=1e-3),
        _train_case(rng, "as many rows as channels, fewer columns", 2, 3, 3, 2, eps=1e-3),
        _train_case(rng, "as many columns as channels, fewer rows", 2, 3, 2, 3, eps=1e-3),
        _train_case(rng, "a single image of a single channel", 1, 1, 3, 4, eps=1e-3),
        _train_case(rng, "images of one pixel and one channel", 4, 1, 1, 1, eps=1e-3),
        _train_case(rng, "an eps of 0", 3, 4, 2, 2, eps=0.0),
        _train_case(rng, "a large eps", 3, 2, 2, 3, eps=50.0),  # above every variance
        equal,
        all_equal,
        far,
        far_image,
        far_channel,
        close,
        closer,
        no_eps,
        wide,
        outlier,
        zeros,
        some,
    ]


def _train_oracle(inputs, probe):
    mean, var = torch.zeros(inputs["x"].shape[1]), torch.ones(inputs["x"].shape[1])
    return F.batch_norm(
        inputs["x"],
        mean.double(),
        var.double(),
        inputs["gamma"],
        inputs["beta"],
        training=True,
        eps=inputs["eps"] or sys.float_info.min,  # torch 2.10 and 2.11 refuse 0
    )


# 4. to 7. folding into weights -------------------------------------------------------------------


def _fold_inputs(rng, shape, channels, bias=True, **more):
    inputs = {"weight": normal(rng, *shape), "bias": normal(rng, channels) if bias else None}
    return inputs | {"a": normal(rng, channels), "b": normal(rng, channels)} | more


def _special(inputs, label, all_of_them=True):
    """Numbers that are easily taken for something else, each with and without a bias."""
    a, b, bias = (inputs[name] for name in ("a", "b", "bias"))
    count, zero_last = torch.arange(len(a)).double(), torch.arange(len(bias)).flip(0)
    made = {"numbers with a 0": {"a": count, "b": count.flip(0), "bias": zero_last * bias}}
    if all_of_them:
        made |= {
            "an a of zeros": {"a": a * 0},
            "a b of zeros": {"b": b * 0},
            "an a of ones and a b of zeros": {"a": a * 0 + 1, "b": b * 0},
            "a large a": {"a": a * 1e6},
            "a small a": {"a": a * 1e-6},
            "a large b": {"b": b * 1e6},
        }
    return _with_and_without_a_bias(
        {f"{label}: {name}": inputs | change for name, change in made.items()}
    )


def _with_and_without_a_bias(inputs_by_label):
    return [
        case
        for label, inputs in inputs_by_label.items()
        for case in (
            Case(label, inputs),
            Case(f"{label}, without a bias", inputs | {"bias": None}),
        )
    ]


def _sizes(rng, *largest):
    """Sizes of at least 1, drawn by chance."""
    return tuple(between(rng, 1, size) for size in largest)


def _linear_cases(rng):
    size = between(rng, 3, 8)
    return [
        Case("with a bias", _fold_inputs(rng, (size, size + 1), size)),
        Case("without a bias", _fold_inputs(rng, (size, 2), size, bias=False)),
    ]


def _linear_edges(rng):
    negative = _fold_inputs(rng, (3, 5), 3)
    shapes = {"a square weight": (4, 4), "a single output": (1, 3), "a single input": (3, 1)}
    shapes |= {"a single number": (1, 1), "many outputs": (300, 2), "many inputs": (2, 300)}
    shapes["any sizes"] = _sizes(rng, 6, 6)
    return [
        Case("a negative bias", negative | {"bias": -negative["bias"].abs()}),
        *_special(negative, "three outputs"),
        *_with_and_without_a_bias(
            {label: _fold_inputs(rng, shape, shape[0]) for label, shape in shapes.items()}
        ),
    ]


def _read_off(function, inputs_shape):
    """Weight and bias of an affine function of a vector, by feeding zeros and unit vectors."""
    count = torch.Size(inputs_shape).numel()
    bias = function(torch.zeros(1, *inputs_shape, dtype=torch.float64))
    columns = function(torch.eye(count, dtype=torch.float64).reshape(count, *inputs_shape)) - bias
    return columns, bias[0]


def _channels_last_affine(y, inputs):
    """a * y + b along axis 1, written with the channel axis moved to the end."""
    return torch.movedim(torch.movedim(y, 1, -1) * inputs["a"] + inputs["b"], -1, 1)


def _linear_oracle(inputs, probe):
    weight, bias = inputs["weight"], inputs["bias"]
    columns, bias = _read_off(
        lambda x: _channels_last_affine(F.linear(x, weight, bias), inputs), weight.shape[1:]
    )
    return [columns.T, bias]


def _conv_cases(rng):
    return [
        Case("an ordinary convolution", _fold_inputs(rng, (5, 3, 3, 3), 5)),
        Case("without a bias", _fold_inputs(rng, (4, 2, 1, 1), 4, bias=False)),
        Case("a depthwise convolution", _fold_inputs(rng, (6, 1, 3, 3), 6)),
    ]


def _conv_edges(rng):
    shapes = {
        "as many inputs as outputs": (4, 4, 3, 3),
        "a convolution in one dimension": (5, 2, 3),
        "a one-dimensional kernel of one pixel": (4, 2, 1),
        "a convolution in three dimensions": (3, 2, 2, 1, 3),
        "a kernel that is not square": (4, 2, 1, 3),
        "a kernel of one pixel, one input": (6, 1, 1, 1),
        "two outputs per channel": (8, 1, 3, 3),
        "as many outputs as inputs and as the kernel is wide, in one dimension": (3, 3, 3),
        "as many outputs as inputs and as the kernel is wide, in three": (3, 3, 3, 3, 3),
        "as many outputs as rows": (3, 2, 3, 3),
        "a single output": (1, 3, 2, 2),
        "several groups": (6, 2, 3, 3),
        "a one-dimensional convolution with one input per group": (5, 1, 3),
        "a convolution in three dimensions, one voxel wide": (3, 2, 2, 3, 1),
        "as many outputs as columns": (3, 2, 2, 3),
        "a convolution in three dimensions, one voxel deep": (3, 2, 1, 2, 3),
        "many outputs": (300, 1, 1, 2),
    }
    axes = {1: "1 dimension", 2: "2 dimensions", 3: "3 dimensions"}
    for n, space in axes.items():
        shapes |= {
            f"any sizes in {space}": _sizes(rng, 6, 4, *[3] * n),
            f"a single output in {space}": (1, 2, *[3] * n),
            f"one input per group in {space}": (5, 1, *[2] * n),
            f"a kernel of one point in {space}": (4, 2, *[1] * n),
            f"a single number in {space}": (1, 1, *[1] * n),
            f"as many inputs as outputs in {space}": (4, 4, *[3] * n),
        }
    made = {label: _fold_inputs(rng, shape, shape[0]) for label, shape in shapes.items()}
    special = [
        case
        for n, space in axes.items()
        for case in _special(_fold_inputs(rng, (3, 2, *[2] * n), 3), space, n == 2)
    ]
    return [*_with_and_without_a_bias(made), *special]


def _conv_oracle(inputs, probe):
    weight, conv = inputs["weight"], {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[inputs["weight"].ndim]
    # A kernel laid on an input of its own size gives one number per output channel.
    columns, bias = _read_off(
        lambda x: _channels_last_affine(conv(x, weight, inputs["bias"]), inputs).flatten(1),
        weight.shape[1:],
    )
    return [columns.T.reshape(weight.shape), bias]


def _transposed_cases(rng):
    return [
        Case("one group", _fold_inputs(rng, (3, 5, 2, 2), 5, groups=1)),
        Case("two groups", _fold_inputs(rng, (4, 3, 2, 2), 6, groups=2)),
    ]


def _transposed_edges(rng):
    several = between(rng, 2, 4)
    inputs, outputs, *window = _sizes(rng, 4, 4, 3, 3)
    made = {
        label: _fold_inputs(rng, shape, shape[1] * groups, groups=groups)
        for label, shape, groups in (
            ("depthwise", (4, 1, 3, 3), 4),
            ("as many inputs as outputs", (4, 4, 2, 3), 1),
            ("three groups", (6, 2, 1, 1), 3),
            ("a kernel that is not square", (4, 2, 2, 3), 2),
            ("two groups of three inputs, two outputs each", (6, 2, 1, 2), 2),
            ("depthwise, two outputs per channel", (4, 2, 3, 3), 4),
            ("three groups of two inputs, one output each", (6, 1, 2, 2), 3),
            ("three groups of two inputs, four outputs each", (6, 4, 2, 1), 3),
            ("a single output", (3, 1, 2, 2), 1),
            ("a single input", (1, 3, 2, 2), 1),
            # 1 / 49 * 49 is less than 1
            ("depthwise, many channels", (49, 1, 1, 2), 49),
            ("two groups of many inputs", (98, 2, 1, 1), 2),
            ("depthwise, 300 channels", (300, 1, 1, 1), 300),
            ("two groups of 150 inputs", (300, 2, 1, 1), 2),
            ("one input, one output", (1, 1, 2, 3), 1),
            ("as many inputs and outputs as the kernel is wide", (3, 3, 3, 3), 1),
            ("any sizes, one group", _sizes(rng, 6, 6, 3, 3), 1),
            ("any sizes, several groups", (inputs * several, outputs, *window), several),
        )
    }
    special = [
        case
        for label in ("as many inputs as outputs", "three groups")
        for case in _special(made[label], label)
    ]
    return [*_with_and_without_a_bias(made), *special]


def _transposed_oracle(inputs, probe):
    weight, groups = inputs["weight"], inputs["groups"]
    # One pixel in gives the whole kernel of its channel out.
    columns, bias = _read_off(
        lambda x: _channels_last_affine(
            F.conv_transpose2d(x, weight, inputs["bias"], groups=groups), inputs
        ),
        (len(weight), 1, 1),
    )
    per_group = weight.shape[1]
    kernels = []
    for channel, kernel in enumerate(columns):
        group = channel // (len(weight) // groups)
        kernels.append(kernel[group * per_group : (group + 1) * per_group])
    return [torch.stack(kernels), bias[:, 0, 0]]


def _before_inputs(rng, shape, groups, bias=True):
    inputs = _fold_inputs(rng, shape, shape[0], bias=bias, groups=groups)
    channels = shape[1] * groups
    return inputs | {"a": normal(rng, channels), "b": normal(rng, channels)}


def _before_cases(rng):
    return [
        Case("one group", _before_inputs(rng, (4, 3, 3, 3), 1)),
        Case("without a bias", _before_inputs(rng, (2, 5, 1, 1), 1, bias=False)),
        Case("two groups", _before_inputs(rng, (6, 2, 3, 3), 2)),
    ]


def _before_edges(rng):
    several = between(rng, 2, 4)
    outputs, inputs, *window = _sizes(rng, 4, 4, 3, 3)
    made = {
        label: _before_inputs(rng, shape, groups)
        for label, shape, groups in (
            ("depthwise", (5, 1, 3, 2), 5),
            ("as many inputs as outputs", (4, 4, 2, 2), 1),
            ("a kernel that is not square", (4, 2, 3, 1), 2),
            ("two groups of three outputs, two inputs each", (6, 2, 2, 3), 2),
            ("two groups of two outputs, three inputs each", (4, 3, 2, 3), 2),
            ("depthwise, two outputs per channel", (8, 1, 3, 3), 4),
            ("two groups of one input", (4, 1, 3, 3), 2),
            ("three groups", (9, 2, 1, 1), 3),
            ("three groups of three outputs", (9, 3, 2, 2), 3),
            ("a single output", (1, 3, 2, 3), 1),
            ("a single input", (3, 1, 2, 2), 1),
            ("a large kernel", (2, 1, 3, 130), 1),
            ("a high kernel", (2, 1, 70, 2), 1),
            # 1 / 49 * 49 is less than 1
            ("depthwise, many channels", (49, 1, 1, 2), 49),
            ("two groups of many outputs", (98, 2, 1, 1), 2),
            ("depthwise, 300 channels", (300, 1, 1, 1), 300),
            ("two groups of 150 outputs", (300, 2, 1, 1), 2),
            ("many inputs", (2, 300, 1, 1), 1),
            ("one input, one output", (1, 1, 2, 3), 1),
            ("as many inputs as outputs, a kernel of one pixel", (4, 4, 1, 1), 1),
            ("as many inputs and outputs as the kernel is wide", (3, 3, 3, 3), 1),
            ("any sizes, one group", _sizes(rng, 6, 6, 3, 3), 1),
            ("any sizes, several groups", (outputs * several, inputs, *window), several),
        )
    }
    special = [
        case
        for label in ("as many inputs as outputs", "three groups")
        for case in _special(made[label], label)
    ]
    return [*_with_and_without_a_bias(made), *special]


def _before_oracle(inputs, probe):
    weight, groups = inputs["weight"], inputs["groups"]
    shape = (weight.shape[1] * groups, *weight.shape[2:])

    def network(x):
        return F.conv2d(
            _channels_last_affine(x, inputs), weight, inputs["bias"], groups=groups
        ).flatten(1)

    columns, bias = _read_off(network, shape)
    full = columns.T.reshape(len(weight), *shape)
    outputs, per_group = len(weight) // groups, weight.shape[1]
    parts = [
        full[g * outputs : (g + 1) * outputs, g * per_group : (g + 1) * per_group]
        for g in range(groups)
    ]
    return [torch.cat(parts), bias]


# 8. a whole model --------------------------------------------------------------------------------


def _model_oracle(inputs, probe):
    output = execute(inputs["layers"], probe["x"])
    model = build(inputs["layers"], inputs.get("training", True))
    kinds = [layer["kind"] for layer in inputs["layers"]]
    return {
        # First: an answer that changes it often fails twice.
        "the given model (work on a copy): layers": kinds,
        "the given model (work on a copy): types": [layer["types"] for layer in describe(model)],
        "the given model (work on a copy): training mode of it and of its layers": modes(model),
        "the given model (work on a copy): numbers": numbers(inputs["layers"]),
        "the given model (work on a copy): output": output,
        "layers": [kinds[position] for position in probe["kept"]],
        "output": output,
    }


# Where torch keeps functions that fold.
BUILT_INS = (
    "torch.nn.utils.fusion.*",
    "torch.fx.experimental.optimization.*",
    "torch.ao.*",
    "torch._inductor.fx_passes.*",
    "torch.jit._freeze.*",
    "torch._C._jit_pass_*",
    "torch._C._freeze_module",
)
NORMS = tuple(f"torch.*{kind}_norm*" for kind in ("batch", "layer", "instance", "group", "rms"))
NORMS += ("torch.*local_response_norm*", "torch.*CrossMapLRN2d*")
NORMS += ("torch.*weight_norm*", "torch.*renorm*")
NORMS += ("torch.nn.functional.normalize", "torch.*._normalize", "torchvision.*[Nn]orm*")


def _item(name, points, cases, oracle, edges, nudge, hint, **more):
    more = {
        "edges": edges,
        "nudge": nudge,
        "hint": hint,
        "tolerance": CLOSE,
        "forbidden": BUILT_INS,
    } | more
    return Item(name, cases, oracle, points=points, **more)


ITEMS = (
    _item(
        "bn_affine",
        8,
        _affine_cases,
        _affine_oracle,
        _affine_edges,
        "Multiply the formula out: what stands before y, and what is left when y is 0?",
        "In evaluation BatchNorm is a y + b per channel; "
        "look at eps, the square root, and missing gamma or beta",
    ),
    _item(
        "update_statistics",
        12,
        _update_cases,
        _update_oracle,
        _update_edges,
        "Take one channel: which values are its batch? Is their variance divided by n or by n - 1? "
        "Which side does momentum weigh?",
        "Look at which variance is kept, over which axes, and which side momentum weighs; "
        "subtract the mean before you square, or large values lose their digits",
        forbidden=(),
    ),
    _item(
        "bn_train",
        10,
        _train_cases,
        _train_oracle,
        _train_edges,
        "Compare with the formula of exercise 1: where do the mean and the variance come from now?",
        "Look at which variance normalises, where eps stands, and along which axis gamma lies; "
        "subtract the mean before you square, or large values lose their digits",
        forbidden=NORMS,
    ),
    _item(
        "fold_linear",
        8,
        _linear_cases,
        _linear_oracle,
        _linear_edges,
        "Write one output as a sum over its inputs, then multiply it by its own a",
        "a (W x + bias) + b: which rows does a scale, and what becomes of the old bias?",
    ),
    _item(
        "fold_conv",
        10,
        _conv_cases,
        _conv_oracle,
        _conv_edges,
        "Which entries of the weight does one output channel use?",
        "Output channels lie on the first axis of a convolution's weight, whatever its dimension "
        "and groups",
    ),
    _item(
        "fold_transposed",
        12,
        _transposed_cases,
        _transposed_oracle,
        _transposed_edges,
        "On which axis of this weight do the outputs lie, and what do the groups do to it?",
        "A transposed convolution stores (in, out / groups, ...): which output does each entry "
        "feed?",
    ),
    _item(
        "fold_before",
        14,
        _before_cases,
        _before_oracle,
        _before_edges,
        "Put a constant image into the network: what becomes of b?",
        "W (a x + b) + bias: a scales input channels, and b reaches the output through every tap "
        "of the kernel",
    ),
    _item(
        "fold_model",
        14,
        model_cases,
        _model_oracle,
        model_edges,
        "In which cases does the network compute something else once a norm is folded? Name them "
        "first",
        "Fold only a norm that directly follows a convolution and uses its running statistics, "
        "into a new module",
        # so that new layers may be of torch's usual float32
        tolerance=Tolerance(relative=1e-5, absolute=1e-7),
        run=RUNS["fold_model"],
        view=VIEWS["fold_model"],
    ),
)

ASSIGNMENT = Assignment("a1", "BatchNorm folding by hand", ITEMS, manual_points=12)
