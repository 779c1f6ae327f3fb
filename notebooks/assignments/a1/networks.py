"""Networks to fold, described as plain data, and the numbers in them. Secret, as the specification.

Which layers must be left after folding stands beside each network, by position.
"""

import torch

from helpers.checks.specification import Case


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
    images = normal(rng, 3, 3, 6, 6)
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
    return [dilated, bn(rng, "b1", 4, gamma=None, beta=None)], [0]


def norm_without_statistics(rng):
    return [conv(rng, "c1", 3, 4), bn(rng, "b1", 4, mean=None, var=None)], [0, 1]


def three_norms_in_a_row(rng):
    return [conv(rng, "c1", 3, 4), *(bn(rng, name, 4) for name in ("b1", "b2", "b3"))], [0]


def other_paddings(rng):
    first = [conv(rng, "c1", 3, 4, padding=0), bn(rng, "b1", 4)]
    return [*first, conv(rng, "c2", 4, 3, padding=2), bn(rng, "b2", 3)], [0, 2]


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


def one_norm_in_two_places(rng, norm, one, other):
    label = "one norm after two convolutions and an activation"
    layers = [one, norm, relu("r1"), norm, other, norm]
    before = "one norm before and after a convolution"
    return [
        model_case(rng, label, layers, [0, 2, 3, 4]),
        model_case(rng, before, [norm, one, norm], [0, 1]),
    ]
