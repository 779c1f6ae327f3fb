"""Networks to fold, described as plain data, and the numbers in them. Secret, as the specification.

Which layers must be left after folding stands beside each network, by position.
"""

import math

import torch

from helpers.checks.specification import Case

IMAGE = 6  # rows and columns of the images that networks are tried on
BARE = {"gamma": None, "beta": None}  # a norm without them


def normal(rng, *shape):
    """Normally distributed numbers."""
    return torch.randn(*shape, generator=rng, dtype=torch.float64)


def between(rng, low, high):
    """A whole number, both ends included."""
    return torch.randint(low, high + 1, (1,), generator=rng).item()


def statistics(rng, channels):
    """BatchNorm parameters with small variances, so that eps matters, and with negative gammas."""
    return {
        "gamma": normal(rng, channels),
        "beta": normal(rng, channels),
        "mean": normal(rng, channels),
        "var": torch.rand(channels, generator=rng, dtype=torch.float64) * 0.05 + 1e-3,
        "eps": 1e-3 * between(rng, 1, 9),
    }


def conv(rng, name, cin, cout, kernel=3, groups=1, bias=False, stride=1, dilation=1, padding=None):
    """A convolution; equal names are one and the same module."""
    return {
        "kind": "conv",
        "name": name,
        "weight": normal(rng, cout, cin // groups, kernel, kernel),
        "bias": normal(rng, cout) if bias else None,
        "stride": stride,
        "groups": groups,
        "dilation": dilation,
        "padding": kernel // 2 if padding is None else padding,
    }


def bn(rng, name, channels, training=False, **without):
    """A norm; `without` takes parameters away."""
    parts = statistics(rng, channels) | without
    return {
        "kind": "bn",
        "name": name,
        "weight": parts["gamma"],
        "bias": parts["beta"],
        "mean": parts["mean"],
        "var": parts["var"],
        "eps": parts["eps"],
        "training": training,
        "channels": channels,
    }


def relu(name):
    """An activation."""
    return {"kind": "relu", "name": name}


def model_case(rng, label, layers, kept):
    """A network, the images on which it is tried, and the positions of what must be left."""
    images = normal(rng, 3, 3, IMAGE, IMAGE)
    return Case(label, {"layers": layers}, {"x": images, "kept": kept})


def model_cases(rng):
    """What the instant check asks, too. All layers are drawn before the first images."""
    plain = convolutions_norms_and_activations(rng)
    apart = [conv(rng, "c1", 3, 4, stride=2), relu("r1"), bn(rng, "b1", 4)]
    return [
        model_case(rng, "convolutions, norms and activations", plain, [0, 2, 3, 5, 6]),
        model_case(rng, "a norm that follows an activation", apart, [0, 1, 2]),
    ]


def model_edges(rng):
    """What is easily forgotten. The layers of most networks are drawn before the first images."""
    training = norm_in_training(rng)
    three_times = conv_used_three_times(rng)
    first = norm_first(rng)
    dilated = stride_and_dilation(rng)
    untracked = norm_without_statistics(rng)
    row = three_norms_in_a_row(rng)
    padded = other_paddings(rng)
    asleep = in_a_network_that_is_not(rng, training)
    norm = bn(rng, "b1", 3)
    two = [conv(rng, "c1", 3, 3), conv(rng, "c2", 3, 3)]
    named = model_case(rng, "layers with names of their own", *norms_and_activation(rng))
    named.inputs["prefix"] = "layer_"
    evaluated = model_case(rng, "a network in evaluation mode", *norms_and_activation(rng))
    evaluated.inputs["training"] = False
    return [
        model_case(rng, "a norm in training mode, then one that is not", *training),
        model_case(rng, "one convolution used three times, once without a norm", *three_times),
        model_case(rng, "three norms in a row", *row),
        model_case(rng, "paddings that change the size of the images", *padded),
        *one_norm_in_two_places(rng, norm, *two),
        model_case(rng, "a norm as the first layer and a convolution as the last", *first),
        model_case(
            rng, "a convolution with stride and dilation, a norm without gamma and beta", *dilated
        ),
        model_case(rng, "a norm without running statistics", *untracked),
        asleep,
        model_case(rng, "one norm after an activation and a convolution", *activation_first(rng)),
        model_case(rng, "a norm whose gamma has a 0", *zero_in_gamma(rng)),
        model_case(rng, "a norm before a convolution without padding", *norm_unpadded(rng)),
        model_case(rng, "two activations in a row", *two_activations(rng)),
        model_case(rng, "two convolutions in a row, then a norm", *two_convolutions(rng)),
        model_case(
            rng, "a convolution without a bias, a norm without gamma and beta", *barest_pair(rng)
        ),
        model_case(rng, "windows of one pixel and of two by two", *small_windows(rng)),
        model_case(rng, "two groups of channels", *two_groups(rng)),
        model_case(rng, "a norm in training mode between two that are not", *between_two(rng)),
        model_case(
            rng, "a norm without running statistics before one that has some", *untracked_first(rng)
        ),
        model_case(rng, "the same norm twice in a row", *norm_twice(rng)),
        model_case(rng, "a network without norms", [conv(rng, "c1", 3, 4), relu("r1")], [0, 1]),
        model_case(rng, "a network of one norm", [bn(rng, "b1", 3)], [0]),
        model_case(rng, "two norms first and a convolution last", *two_norms_first(rng)),
        model_case(rng, "the same layers in other company each time", *other_company(rng)),
        model_case(rng, "a convolution before norms in both modes", *norms_in_both_modes(rng)),
        model_case(rng, "convolutions with settings of all kinds", *all_settings(rng)),
        model_case(rng, "stride and dilation without padding", *unpadded(rng)),
        model_case(rng, "one pair in two places", *pair_again(rng)),
        model_case(rng, "one pair twice in a row", *pair_twice(rng)),
        model_case(rng, "seven norms in a row", *seven_norms(rng)),
        model_case(rng, "new norms", *new_norms(rng)),
        model_case(rng, "norms with small and large numbers", *small_and_large(rng)),
        model_case(rng, "numbers with zeros", *with_zeros(rng)),
        model_case(rng, "a norm whose gamma is all zeros", *gamma_of_zeros(rng)),
        model_case(rng, "norms before convolutions of one pixel", *norms_before_pixels(rng)),
        model_case(rng, "pairs right after norms that stay", *pairs_after_norms(rng)),
        model_case(rng, "large settings", *large_settings(rng)),
        model_case(rng, "settings of narrow convolutions", *narrow_settings(rng)),
        named,
        evaluated,
        *(
            drawn_network(rng, f"layers drawn by chance, network {number}")
            for number in range(1, 5)
        ),
    ]


def convolutions_norms_and_activations(rng):
    return [
        conv(rng, "c1", 3, 4),
        bn(rng, "b1", 4),
        relu("r1"),
        conv(rng, "c2", 4, 4, groups=4),
        bn(rng, "b2", 4),
        relu("r2"),
        conv(rng, "c3", 4, 5, kernel=1, bias=True),
    ]


def norm_in_training(rng):
    layers = [conv(rng, "c1", 3, 4), bn(rng, "b1", 4, training=True), bn(rng, "b2", 4)]
    return layers, [0, 1, 2]


def in_a_network_that_is_not(rng, training):
    label = "a norm in training mode in a network that is not"
    case = model_case(rng, label, *training)
    case.inputs["training"] = False
    return case


def conv_used_three_times(rng):
    shared = conv(rng, "c1", 3, 3, bias=True)
    with_norms = [shared, bn(rng, "b1", 3), relu("r1"), shared, bn(rng, "b2", 3), relu("r1")]
    return [*with_norms, shared], [0, 2, 3, 5, 6]


def norm_first(rng):
    layers = [bn(rng, "b1", 3), conv(rng, "c1", 3, 3), relu("r1"), conv(rng, "c2", 3, 3)]
    return layers, [0, 1, 2, 3]


def stride_and_dilation(rng):
    dilated = conv(rng, "c1", 3, 4, bias=True, stride=2, dilation=2)
    return [dilated, bn(rng, "b1", 4, **BARE)], [0]


def norm_without_statistics(rng):
    return [conv(rng, "c1", 3, 4), bn(rng, "b1", 4, mean=None, var=None)], [0, 1]


def three_norms_in_a_row(rng):
    return [conv(rng, "c1", 3, 4), *(bn(rng, name, 4) for name in ("b1", "b2", "b3"))], [0]


def other_paddings(rng):
    first = [conv(rng, "c1", 3, 4, padding=0), bn(rng, "b1", 4)]
    return [*first, conv(rng, "c2", 4, 3, padding=2), bn(rng, "b2", 3)], [0, 2]


def other_company(rng):
    c, b, r = conv(rng, "c1", 3, 3, bias=True), bn(rng, "b1", 3), relu("r1")
    return [c, r, c, b, r, b, c, r, r], [0, 1, 2, 4, 5, 6, 7, 8]


def norms_in_both_modes(rng):
    c, awake = conv(rng, "c1", 3, 3), bn(rng, "b1", 3, training=True)
    return [c, awake, relu("r1"), c, c, bn(rng, "b2", 3)], [0, 1, 2, 3, 4]


def all_settings(rng):
    convolutions = (
        conv(rng, "c1", 3, 6, 3, groups=3, bias=True, stride=2, dilation=2, padding=3),
        conv(rng, "c2", 6, 4, 1, groups=2, stride=2, padding=1),
        conv(rng, "c3", 4, 4, 2, groups=4, bias=True, dilation=3, padding=2),
        conv(rng, "c4", 4, 8, 3, stride=3, padding=3),
        conv(rng, "c5", 8, 8, 2, groups=4, stride=2, dilation=2, padding=2),
    )
    layers = []
    for number, layer in enumerate(convolutions):
        without = BARE if number in (1, 2) else {}
        norm = bn(rng, f"b{number}", len(layer["weight"]), **without)
        layers += [layer, norm, relu(f"r{number}")]
    return layers, [place for place in range(len(layers)) if place % 3 != 1]


def unpadded(rng):
    return [conv(rng, "c1", 3, 4, 2, stride=2, dilation=2, padding=0), bn(rng, "b1", 4)], [0]


def activation_first(rng):
    norm = bn(rng, "b1", 3)
    layers = [conv(rng, "c1", 3, 3), relu("r1"), norm, relu("r2"), conv(rng, "c2", 3, 3), norm]
    return layers, [0, 1, 2, 3, 4]


def zero_in_gamma(rng):
    return [conv(rng, "c1", 3, 4), bn(rng, "b1", 4, gamma=torch.arange(4).double())], [0]


def norm_unpadded(rng):
    layers = [bn(rng, "b1", 3), conv(rng, "c1", 3, 4, padding=0), relu("r1")]
    return layers, [0, 1, 2]


def two_activations(rng):
    layers = [conv(rng, "c1", 3, 4), relu("r1"), relu("r2"), conv(rng, "c2", 4, 3)]
    return layers, [0, 1, 2, 3]


def two_convolutions(rng):
    layers = [conv(rng, "c1", 3, 4, bias=True), conv(rng, "c2", 4, 5), bn(rng, "b1", 5)]
    return [*layers, relu("r1")], [0, 1, 3]


def barest_pair(rng):
    return [relu("r1"), conv(rng, "c1", 3, 4), bn(rng, "b1", 4, **BARE)], [0, 1]


def small_windows(rng):
    pixel = [conv(rng, "c1", 3, 1, kernel=1, bias=True), bn(rng, "b1", 1)]
    return [*pixel, relu("r1"), conv(rng, "c2", 1, 4, kernel=2), bn(rng, "b2", 4)], [0, 2, 3]


def two_groups(rng):
    grouped = conv(rng, "c2", 4, 6, groups=2, stride=2, bias=True)
    return [conv(rng, "c1", 3, 4), relu("r1"), grouped, bn(rng, "b1", 6)], [0, 1, 2]


def between_two(rng):
    norms = [bn(rng, "b1", 4), bn(rng, "b2", 4, training=True, **BARE), bn(rng, "b3", 4)]
    after = [relu("r1"), conv(rng, "c2", 4, 3), bn(rng, "b4", 3)]
    return [conv(rng, "c1", 3, 4), *norms, *after], [0, 2, 3, 4, 5]


def untracked_first(rng):
    norms = [bn(rng, "b1", 4, mean=None, var=None, **BARE), bn(rng, "b2", 4)]
    after = [relu("r1"), conv(rng, "c2", 4, 3), bn(rng, "b3", 3)]
    return [conv(rng, "c1", 3, 4), *norms, *after], [0, 1, 2, 3, 4]


def pair_again(rng):
    c, b = conv(rng, "c1", 3, 3, bias=True), bn(rng, "b1", 3)
    return [c, b, relu("r1"), c, b], [0, 2, 3]


def pair_twice(rng):
    c, b = conv(rng, "c1", 3, 3), bn(rng, "b1", 3)
    return [c, b, c, b, relu("r1"), c], [0, 2, 4, 5]


def ordinary(rng, channels):
    """Variances so large that what is computed in float32 stays precise through many norms."""
    return torch.rand(channels, generator=rng, dtype=torch.float64) + 0.5


def seven_norms(rng):
    bare = [{}, BARE, {}, {}, {}, BARE, {}]
    norms = [bn(rng, f"b{i}", 4, var=ordinary(rng, 4), **w) for i, w in enumerate(bare)]
    return [conv(rng, "c1", 3, 4), *norms, relu("r1")], [0, 8]


def new_norms(rng):
    zeros, ones = torch.zeros(4).double(), torch.ones(4).double()
    new = {"mean": zeros, "var": ones, "eps": 0.5}
    layers = [conv(rng, "c1", 3, 4), bn(rng, "b1", 4, gamma=ones, beta=zeros, **new), relu("r1")]
    return [*layers, conv(rng, "c2", 4, 4, bias=True), bn(rng, "b2", 4, **BARE, **new)], [0, 2, 3]


def small_and_large(rng):
    var = ordinary(rng, 4)
    small = [conv(rng, "c1", 3, 4), bn(rng, "b1", 4, var=var * 1e-8, eps=1e-9), relu("r1")]
    large = [conv(rng, "c2", 4, 4), bn(rng, "b2", 4, var=var * 1e5), relu("r2")]
    return [*small, *large, conv(rng, "c3", 4, 4), bn(rng, "b3", 4, eps=5.0)], [0, 2, 3, 5, 6]


def with_zeros(rng):
    count = torch.arange(4).double()
    first = conv(rng, "c1", 3, 4, bias=True)
    first["bias"] = count
    norm = bn(rng, "b1", 4, var=count / 4, beta=count - 1, mean=count - 2)
    return [first, norm, relu("r1"), conv(rng, "c2", 4, 3), bn(rng, "b2", 3)], [0, 2, 3]


def pairs_after_norms(rng):
    awake, untracked = bn(rng, "b1", 4, training=True), {"mean": None, "var": None, **BARE}
    layers = [conv(rng, "c1", 3, 4), awake, awake, conv(rng, "c2", 4, 3), bn(rng, "b2", 3)]
    layers += [relu("r1"), bn(rng, "b3", 3, training=True, **untracked)]
    layers += [conv(rng, "c3", 3, 4), bn(rng, "b4", 4), conv(rng, "c4", 4, 4)]
    layers += [bn(rng, "b5", 4, **untracked), conv(rng, "c5", 4, 3), bn(rng, "b6", 3)]
    return layers, [0, 1, 2, 3, 5, 6, 7, 9, 10, 11]


def gamma_of_zeros(rng):
    zeros = torch.zeros(4).double()
    return [conv(rng, "c1", 3, 4), bn(rng, "b1", 4, gamma=zeros), relu("r1")], [0, 2]


def norms_before_pixels(rng):
    first = [bn(rng, "b1", 3), conv(rng, "c1", 3, 4, kernel=1), relu("r1")]
    grouped = conv(rng, "c2", 4, 4, kernel=1, groups=4, bias=True)
    return [*first, bn(rng, "b2", 4), grouped], [0, 1, 2, 3, 4]


def large_settings(rng):
    layers = [
        conv(rng, "c1", 3, 12, 5, stride=4, padding=9),
        bn(rng, "b1", 12),
        conv(rng, "c2", 12, 12, 2, groups=12, dilation=5, padding=4),
        bn(rng, "b2", 12),
    ]
    return layers, [0, 2]


def narrow_settings(rng):
    convolutions = (
        conv(rng, "c1", 3, 3, 3, groups=3, stride=2, dilation=2, padding=6),
        conv(rng, "c2", 3, 1, 1, stride=2, padding=3),
        conv(rng, "c3", 1, 2, 3, stride=2, dilation=2, padding=5),
        conv(rng, "c4", 2, 1, 2, stride=2, dilation=2, padding=3, bias=True),
    )
    layers = []
    for number, layer in enumerate(convolutions):
        layers += [layer, bn(rng, f"b{number}", len(layer["weight"])), relu(f"r{number}")]
    return layers, [place for place in range(len(layers)) if place % 3 != 1]


def norm_twice(rng):
    norm = bn(rng, "b1", 4)
    return [conv(rng, "c1", 3, 4), norm, norm, relu("r1")], [0, 3]


def two_norms_first(rng):
    norms = [bn(rng, "b1", 3), bn(rng, "b2", 3)]
    return [*norms, conv(rng, "c1", 3, 3), relu("r1"), conv(rng, "c2", 3, 3)], [0, 1, 2, 3, 4]


def norms_and_activation(rng):
    layers = [bn(rng, "b1", 3), conv(rng, "c1", 3, 4), bn(rng, "b2", 4), relu("r1")]
    return layers, [0, 1, 3]


def drawn_network(rng, label):
    """Twelve layers drawn by chance, some of which are the same module."""
    layers, channels, size = [], 3, IMAGE
    for place in range(12):
        kind = ("conv", "conv", "conv", "bn", "bn", "bn", "bn", "relu")[between(rng, 0, 7)]
        fitting = [old for old in layers if old["kind"] == kind and _fits(old, channels, size)]
        if fitting and between(rng, 1, 3) == 1:
            layer = fitting[between(rng, 1, len(fitting)) - 1]
        elif kind == "conv":
            layer = _drawn_conv(rng, f"c{place}", channels, size)
        elif kind == "bn":
            layer = _drawn_bn(rng, f"b{place}", channels)
        else:
            layer = relu(f"r{place}")
        layers.append(layer)
        if kind == "conv":
            channels, size = len(layer["weight"]), _size_after(layer, size)
    case = model_case(rng, label, layers, _left(layers))
    case.inputs["training"] = between(rng, 0, 1) == 1
    return case


def _drawn_conv(rng, name, channels, size):
    outputs = (1, 2, 3, 4, 6)[between(rng, 0, 4)]
    divisors = [n for n in range(1, 7) if math.gcd(channels, outputs) % n == 0]
    drawn = {
        "kernel": between(rng, 1, 3),
        "groups": divisors[between(rng, 1, len(divisors)) - 1],
        "bias": between(rng, 0, 1) == 1,
        "stride": between(rng, 1, 2),
        "dilation": between(rng, 1, 2),
        "padding": between(rng, 0, 2),
    }
    layer = conv(rng, name, channels, outputs, **drawn)
    if not _fits(layer, channels, size):
        layer |= {"stride": 1, "padding": 2}  # which fits all
    return layer


def _drawn_bn(rng, name, channels):
    # Variances so large that what is computed in float32 stays precise through many norms.
    drawn = {"var": torch.rand(channels, generator=rng, dtype=torch.float64) + 0.5}
    if between(rng, 1, 3) == 1:
        drawn |= BARE
    if between(rng, 1, 8) == 1:
        drawn |= {"mean": None, "var": None}
    return bn(rng, name, channels, training=between(rng, 1, 6) == 1, **drawn)


def _fits(layer, channels, size):
    """Whether a layer can stand here, and leaves images of at least two by two pixels."""
    if layer["kind"] == "conv":
        inputs = layer["weight"].shape[1] * layer["groups"]
        return inputs == channels and _size_after(layer, size) >= 2
    return layer.get("channels", channels) == channels


def _size_after(layer, size):
    reach = layer["dilation"] * (layer["weight"].shape[-1] - 1)
    return (size + 2 * layer["padding"] - reach - 1) // layer["stride"] + 1


def _left(layers):
    """The positions of what is not folded."""
    left, behind_conv = [], False
    for position, layer in enumerate(layers):
        constant = layer["kind"] == "bn" and not layer["training"] and layer["mean"] is not None
        if constant and behind_conv:
            continue
        left.append(position)
        behind_conv = layer["kind"] == "conv"
    return left


def one_norm_in_two_places(rng, norm, one, other):
    label = "one norm after two convolutions and an activation"
    layers = [one, norm, relu("r1"), norm, other, norm]
    before = "one norm before and after a convolution"
    return [
        model_case(rng, label, layers, [0, 2, 3, 4]),
        model_case(rng, before, [norm, one, norm], [0, 1]),
    ]
