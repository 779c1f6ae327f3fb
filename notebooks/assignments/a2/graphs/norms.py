"""Graphs with norms: `reasons` says of each what speaks against folding it, `removed` which go."""

from dataclasses import replace

import torch

from graphs.making import (
    ACTIVE_DROPOUT,
    DROPOUT,
    IDENTITY,
    RELU,
    asleep,
    bn,
    case,
    conv,
    disguised,
    shuffled,
    uneven,
)
from graphs.mixed import norms_of_all_kinds

PAIR = "x input; a layer c x; b layer n a; out output b"
TWO_PAIRS = "x input; a layer c x; b layer n a; e layer d b; f layer m e; out output f"


def norm_cases(rng):
    """What the instant check asks, too."""
    chain = {
        "c": conv(rng, bias=False),
        "n": bn(rng),
        "r": RELU,
        "d": conv(rng, bias=True),
        "m": bn(rng),
    }
    apart = {"c": conv(rng), "r": RELU, "n": bn(rng)}
    return [two_pairs(rng, chain), activation_in_between(rng, apart)]


def reason_edges(rng):
    """What is easily forgotten when one is asked for the reasons."""
    worst = {"c": conv(rng), "n": bn(rng, training=True), "m": bn(rng)}
    unread = {"n": bn(rng), "c": conv(rng)}
    return [
        *traps(rng),
        several_reasons(rng, worst),
        nobody_reads_it(rng, unread),
        norm_of_a_disguised_input(rng, unread | {"m": bn(rng)}),
        two_norms_in_a_row(rng, unread | {"m": bn(rng)}),
        result_that_a_method_changes(rng),
        norm_that_reads_twice(rng, unread),
        readers_of_all_kinds(rng, training=True),
        no_convolution_in_training(rng),
        two_reasons_under_two_names(rng),
        *of_either(rng),
        norms_of_all_kinds(rng, "norms of all kinds"),
    ]


def fold_edges(rng):
    """What is easily forgotten when folding."""
    row = {"c": conv(rng), "n": bn(rng), "m": bn(rng)}
    return [
        *traps(rng),
        two_norms_in_a_row(rng, row),
        row_that_others_read(rng, row),
        row_that_ends_in_training(rng, row | {"m": bn(rng, training=True)}),
        names_that_are_taken(rng, {"c": "conv", "n": "bn"}),
        names_that_are_taken(rng, {"c": "part.conv", "n": "bn", "d": "block.conv"}, " in modules"),
        *of_either(rng),
        very_long_row(rng),
        row_of_which_one_is_an_output(rng, row),
        one_norm_twice_in_a_row(rng),
        padded_pixels(rng),
        read_in_all_places(rng),
        extreme_norms(rng),
        second_names_that_are_taken(rng),
        norms_of_all_kinds(rng, "norms of all kinds"),
        norms_of_all_kinds(rng, "more norms of all kinds"),
    ]


def of_either(rng):
    """Graphs on which reasons and folding go wrong alike."""
    return [
        modules_within_modules(rng),
        read_in_the_second_place(rng),
        read_by_quiet_layers(rng),
        all_kinds_in_between(rng),
        readers_of_all_kinds(rng),
        conv_that_is_the_output(rng),
        alike(rng),
        conv_under_three_names(rng),
        sources_of_all_kinds(rng),
        one_channel(rng),
    ]


def traps(rng):
    """Graphs on which a fold may go wrong."""
    layers = layers_of_traps(rng)
    return [make(rng, layers[name]) for make, name in TRAPS]


def layers_of_traps(rng):
    """All layers are drawn before the first graph; some belong to two graphs."""
    return {
        "training": {"c": conv(rng), "n": bn(rng, training=True)},
        "four": four(rng),
        "one conv": {"c": conv(rng, bias=True), "n": bn(rng), "m": bn(rng)},
        "two names": {"c": conv(rng), "again": {"same_as": "c"}} | without_c(rng),
        "one norm": {"c": conv(rng), "d": conv(rng), "n": bn(rng)},
        "one name called": {"c": conv(rng), "again": {"same_as": "c"}, "n": bn(rng)},
        "paddings": {"c": conv(rng, padding=uneven(rng, (0, 1, 2))), "n": bn(rng)}
        | second_pair(rng, padding=uneven(rng, (0, 1, 2))),
        "chain": {"c": conv(rng), "i": IDENTITY, "n": bn(rng), "m": bn(rng)},
        "awake": {"c": conv(rng) | {"training": True}, "n": bn(rng)},
        "dead": four(rng),
        "kernels": kernels(rng),
        "channels": channels(rng),
        "aliased norm": {"c": conv(rng), "n": bn(rng), "again": {"same_as": "n"}, "d": conv(rng)},
        "negated": {"c": conv(rng), "n": bn(rng), "m": bn(rng)},
        "row": {"c": conv(rng), "n": bn(rng), "m": bn(rng)},
        "three pairs": four(rng) | {"f": conv(rng), "o": bn(rng), "r": RELU, "e": conv(rng)},
    }


def four(rng):
    """Two convolutions, each with a norm."""
    return {"c": conv(rng)} | without_c(rng)


def without_c(rng):
    return {"n": bn(rng)} | second_pair(rng)


def second_pair(rng, **sizes):
    return {"d": conv(rng, **sizes), "m": bn(rng)}


def kernels(rng):
    """Pairs of which no kernel is square."""
    sizes = {"kernel": uneven(rng, (1, 2, 3)), "padding": uneven(rng, (0, 1, 2))}
    second = second_pair(rng, kernel=uneven(rng, (1, 2, 3)))
    return {"c": conv(rng, **sizes), "n": bn(rng)} | second


def channels(rng):
    """Pairs that change the number of channels."""
    one, two, *_ = shuffled(rng, (1, 2, 4, 5))
    small, large = shuffled(rng, (((1, 1), (0, 0)), ((5, 5), (2, 2))))
    first = conv(rng, False, *small, out=one)
    second = conv(rng, True, *large, into=one, out=two)
    return {"c": first, "n": bn(rng, channels=one), "d": second, "m": bn(rng, channels=two)}


def two_pairs(rng, layers):
    nodes = "x input; a layer c x; b layer n a; e layer r b; f layer d e; g layer m f; out output g"
    reasons = {"b": "fold", "g": "fold"}
    return case(rng, "two pairs", layers, nodes, reasons=reasons, removed=[*"bg"])


def activation_in_between(rng, layers):
    nodes = "x input; a layer c x; b layer r a; e layer n b; out output e"
    reasons = {"e": "no convolution"}
    return case(rng, "an activation in between", layers, nodes, reasons=reasons, removed=[])


def norm_in_training(rng, layers):
    reasons = {"b": "training"}
    label, named = "a norm in training mode", {"n": "block.norm"}  # the block is in evaluation mode
    return asleep(case(rng, label, layers, PAIR, named, reasons=reasons, removed=[]))


def norm_of_an_input(rng, layers):
    nodes = (
        "x input; a layer n x; b layer c a; e layer m b; f function add b e; g function sub f b; "
        "out output g"
    )
    reasons = {"a": "no convolution", "e": "several readers"}
    label = "a norm of an input, and three readers"
    return case(rng, label, layers, nodes, reasons=reasons, removed=[])


def result_that_others_read(rng, layers):
    nodes = (
        "x input; a layer c x; b layer n a; s function add a b; e layer d s; f layer m e; "
        "out output f"
    )
    reasons = {"b": "several readers", "f": "fold"}
    return case(rng, "a result that others read", layers, nodes, reasons=reasons, removed=["f"])


def norm_that_reads_twice(rng, layers):
    nodes = "x input; a layer c x; b layer n a; d layer n a; s function add b d; out output s"
    reasons = {"b": "several readers", "d": "several readers"}
    return case(rng, "one norm that reads a result twice", layers, nodes, reasons=reasons)


def result_that_is_an_output(rng, layers):
    nodes = TWO_PAIRS.replace("output f", "output f e b")
    reasons = {"b": "fold", "f": "several readers"}
    return case(rng, "results that are outputs", layers, nodes, reasons=reasons, removed=["b"])


def conv_called_twice(rng, layers):
    nodes = "x input; a layer c x; b layer n a; e layer c b; f layer m e; out output f"
    reasons = {"b": "shared", "f": "shared"}
    return case(rng, "one convolution called twice", layers, nodes, reasons=reasons, removed=[])


def norm_of_a_disguised_input(rng, layers):
    """The input bears the name of the convolution that follows."""
    layers = {"c": layers["c"], "n": layers["n"], "m": layers["m"]}
    nodes = "x input; b layer n x; a layer c b; e layer m a; out output e"
    reasons = {"b": "no convolution", "e": "fold"}
    label = "an input named like a convolution"
    made = case(rng, label, layers, nodes, dots=False, reasons=reasons, removed=["e"])
    return disguised(made)


def conv_under_two_names(rng, layers):
    nodes = (
        "x input; a layer c x; b layer n a; e layer again b; h layer n e; f layer d h; "
        "g layer m f; out output g"
    )
    reasons = {"b": "shared", "h": "shared", "g": "fold"}
    label = "one convolution under two names"
    return case(rng, label, layers, nodes, reasons=reasons, removed=["g"])


def conv_of_two_names_called_once(rng, layers):
    label = "one convolution under two names, of which one is called"
    return case(rng, label, layers, PAIR, reasons={"b": "fold"}, removed=["b"])


def size_of_the_images(rng, layers):
    label = "convolutions that change the size of the images"
    return both_fold(rng, label, layers, TWO_PAIRS)


def norm_after_two_convs(rng, layers):
    nodes = "x input; a layer c x; b layer n a; e layer d b; f layer n e; out output f"
    return both_fold(rng, "one norm after two convolutions", layers, nodes)


def identity_in_between(rng, layers):
    nodes = "x input; a layer c x; i layer i a; b layer n i; e layer m b; out output e"
    reasons = {"b": "no convolution", "e": "no convolution"}
    label = "an identity in between, then two norms"
    return case(rng, label, layers, nodes, reasons=reasons, removed=[])


def read_by_a_dead_node(rng, layers):
    nodes = "x input; a layer c x; d function mul a $; b layer n a; out output b"
    reasons = {"b": "several readers"}
    return case(rng, "a result that a dead node reads", layers, nodes, reasons=reasons, removed=[])


def dead_pair(rng, layers):
    nodes = "x input; a layer c x; b layer n a; e layer c b; f layer d b; g layer m f; out output b"
    reasons = {"b": "shared", "g": "fold"}
    label = "a convolution and a norm whose results nobody reads"
    return case(rng, label, layers, nodes, reasons=reasons, removed=["g"])


def conv_in_training(rng, layers):
    label = "a convolution in training mode"
    return case(rng, label, layers, PAIR, reasons={"b": "fold"}, removed=["b"])


def other_kernels(rng, layers):
    return both_fold(rng, "kernels of other sizes", layers, TWO_PAIRS)


def both_fold(rng, label, layers, nodes, named=None):
    """Nothing speaks against either of two norms."""
    reasons = {"b": "fold", "f": "fold"}
    return case(rng, label, layers, nodes, named, reasons=reasons, removed=[*"bf"])


def several_reasons(rng, layers):
    nodes = (
        "x input; a layer c x; b layer n a; e layer m a; g layer c b; s function add e g; "
        "h layer n s; out output h"
    )
    reasons = {"b": "training", "e": "several readers", "h": "no convolution"}
    return case(rng, "several reasons at once", layers, nodes, reasons=reasons, removed=[])


def nobody_reads_it(rng, layers):
    nodes = "x input; a layer n x; b layer c x; out output b"
    reasons = {"a": "no convolution"}
    return case(rng, "a norm of an input that nobody reads", layers, nodes, reasons=reasons)


def two_norms_in_a_row(rng, layers):
    nodes = "x input; a layer c x; b layer n a; e layer m b; out output e"
    reasons = {"b": "fold", "e": "no convolution"}
    return case(rng, "two norms in a row", layers, nodes, reasons=reasons, removed=[*"be"])


def result_that_a_method_changes(rng):
    layers = {"c": conv(rng), "n": bn(rng)}
    nodes = "x input; a layer c x; d method add_ a $; b layer n a; out output b"
    reasons = {"b": "several readers"}
    return case(rng, "a result that a method changes in place", layers, nodes, reasons=reasons)


def row_that_others_read(rng, layers):
    nodes = "x input; a layer c x; b layer n a; e layer m b; s function add b e; out output s"
    reasons = {"b": "fold", "e": "no convolution"}
    label = "two norms in a row, and another reader of the first"
    return case(rng, label, layers, nodes, reasons=reasons, removed=["b"])


def row_that_ends_in_training(rng, layers):
    nodes = "x input; a layer c x; b layer n a; e layer m b; out output e"
    reasons = {"b": "fold", "e": "no convolution"}
    label = "two norms in a row, the second in training mode"
    return case(rng, label, layers, nodes, reasons=reasons, removed=["b"])


def other_channels(rng, layers):
    label = "convolutions that change the number of channels"
    return both_fold(rng, label, layers, TWO_PAIRS)


def norm_under_two_names(rng, layers):
    nodes = "x input; a layer c x; b layer n a; e layer d b; f layer again e; out output f"
    return both_fold(rng, "one norm under two names", layers, nodes)


def norm_of_a_method(rng, layers):
    """The convolution that follows is named like the method."""
    nodes = "x input; s method neg x; b layer n s; a layer c b; e layer m a; out output e"
    reasons = {"b": "no convolution", "e": "fold"}
    label, named = "a norm of a method's result", {"c": "neg"}
    return case(rng, label, layers, nodes, named, reasons=reasons, removed=["e"])


def long_row(rng, layers):
    nodes = "x input; a layer c x; b layer n a; e layer m b; f layer n e; out output f"
    reasons = {"b": "fold", "e": "no convolution", "f": "no convolution"}
    label = "three norms in a row, the first of them again at the end"
    return case(rng, label, layers, nodes, reasons=reasons, removed=[*"bef"])


def names_that_are_taken(rng, named, words=""):
    """Activations bear the names that a pass would give, also one that no node calls."""
    nodes = (
        "x input; a layer c x; b layer n a; s layer r b; t layer s s; g layer v t; h layer w g; "
        "e layer d h; f layer m e; "
        "out output f"
    )
    spare = dict.fromkeys("ursvw", RELU)
    label = f"names{words} that a new module might get"
    made = both_fold(rng, label, four(rng) | spare, nodes, named)
    names = [name for name, layer in made.inputs["program"]["layers"].items() if layer == RELU]
    return replace(made, inputs=made.inputs | {"spare": names})


def read_by_layers_and_methods(rng, layers):
    nodes = (
        "x input; a layer c x; b layer n a; e layer r a; f layer d x; g layer e f; h layer m f; "
        "i layer f x; j method neg i; k layer o i; out output b e g h j k"
    )
    reasons = dict.fromkeys("bhk", "several readers")
    label = "results that an activation, a convolution or a method reads, too"
    return case(rng, label, layers, nodes, reasons=reasons, removed=[])


def conv_called_twice_alike(rng, layers):
    nodes = (
        "x input; a layer c x; b layer n a; e layer c x; f layer m e; s function add b f; "
        "out output s"
    )
    reasons = {"b": "shared", "f": "shared"}
    label = "one convolution called twice with the same input"
    return case(rng, label, layers, nodes, reasons=reasons, removed=[])


def unread_norm_in_training(rng, layers):
    nodes = "x input; a layer c x; b layer n a; out output x"
    label = "a norm in training mode that nobody reads"
    return case(rng, label, layers, nodes, reasons={"b": "training"}, removed=[])


def modules_within_modules(rng):
    named = {"c": "block.0.conv", "n": "block.0.norm", "d": "block.part.0", "m": "block.part.1"}
    return both_fold(rng, "modules within modules within modules", four(rng), TWO_PAIRS, named)


def read_in_the_second_place(rng):
    nodes = (
        "x input; a layer c x; b layer n a; s function add x a; e layer d s; f layer m e; "
        "g function sub 2.5 e; out output b f g"
    )
    reasons, label = dict.fromkeys("bf", "several readers"), "results read in the second place"
    return case(rng, label, four(rng), nodes, reasons=reasons, removed=[])


def read_by_quiet_layers(rng):
    layers = four(rng) | {"i": IDENTITY, "p": DROPOUT}
    nodes = (
        "x input; a layer c x; b layer n a; i layer i a; e layer d x; f layer m e; p layer p e; "
        "out output b i f p"
    )
    reasons = dict.fromkeys("bf", "several readers")
    label = "results that an identity or a dropout reads, too"
    return case(rng, label, layers, nodes, reasons=reasons, removed=[])


def all_kinds_in_between(rng):
    """Between convolution and norm: dropout, methods, two identities, a function."""
    layers = {name: conv(rng) for name in "cdfghj"} | {name: bn(rng) for name in "nmouvw"}
    layers |= {"p": DROPOUT, "i": IDENTITY}
    nodes = (
        "x input; a1 layer c x; a2 layer p a1; a3 layer n a2; b1 layer d x; b2 method add_ b1 $; "
        "b3 layer m b2; c1 layer f x; c2 method view_as c1 c1; c3 layer o c2; d1 layer g x; "
        "d2 layer i d1; d3 layer i d2; d4 layer u d3; e1 layer h x; e2 function add e1 $; "
        "e3 layer v e2; f1 layer j x; f2 function mul f1 $; f3 layer w f2; "
        "out output a3 b3 c3 d4 e3 f3"
    )
    reasons = dict.fromkeys(("a3", "b3", "c3", "d4", "e3", "f3"), "no convolution")
    label = "a dropout, methods, two identities or a function in between"
    return case(rng, label, layers, nodes, reasons=reasons, removed=[])


def very_long_row(rng):
    layers = {"c": conv(rng)} | {f"n{place}": bn(rng) for place in range(12)}
    rows = [f"b{n} layer n{n} b{n - 1}" for n in range(1, 12)]
    nodes = "; ".join(["x input; a layer c x; b0 layer n0 a", *rows, "out output b11"])
    removed = [f"b{n}" for n in range(12)]
    reasons = dict.fromkeys(removed, "no convolution") | {"b0": "fold"}
    return case(rng, "twelve norms in a row", layers, nodes, reasons=reasons, removed=removed)


def row_of_which_one_is_an_output(rng, layers):
    nodes = "x input; a layer c x; b layer n a; e layer m b; out output b e"
    reasons, label = (
        {"b": "fold", "e": "no convolution"},
        "two norms in a row, both of them outputs",
    )
    return case(rng, label, layers, nodes, reasons=reasons, removed=["b"])


def one_norm_twice_in_a_row(rng):
    layers = {"c": conv(rng), "n": bn(rng)}
    nodes = "x input; a layer c x; b layer n a; e layer n b; m method add_ e $; out output e m"
    reasons = {"b": "fold", "e": "no convolution"}
    label = "one norm twice in a row, then a method in place"
    return case(rng, label, layers, nodes, reasons=reasons, removed=[*"be"])


def padded_pixels(rng):
    layers = {"c": conv(rng, True, (1, 1), (1, 2)), "d": conv(rng, False, (1, 1), (2, 0))}
    layers |= {"n": bn(rng), "m": bn(rng)}
    return both_fold(rng, "windows of one pixel with padding", layers, TWO_PAIRS)


TRAPS = (
    (norm_in_training, "training"),
    (norm_of_an_input, "one conv"),
    (result_that_others_read, "four"),
    (result_that_is_an_output, "four"),
    (conv_called_twice, "one conv"),
    (conv_under_two_names, "two names"),
    (conv_of_two_names_called_once, "one name called"),
    (size_of_the_images, "paddings"),
    (norm_after_two_convs, "one norm"),
    (identity_in_between, "chain"),
    (read_by_a_dead_node, "chain"),
    (dead_pair, "dead"),
    (conv_in_training, "awake"),
    (other_kernels, "kernels"),
    (other_channels, "channels"),
    (norm_under_two_names, "aliased norm"),
    (norm_of_a_method, "negated"),
    (long_row, "row"),
    (read_by_layers_and_methods, "three pairs"),
    (conv_called_twice_alike, "one conv"),
    (unread_norm_in_training, "training"),
)


READERS = (
    "function add x {}",
    "function addcmul x x {}",
    "function sub 2.5 {}",
    "function random {}",
)
READERS += ("method neg {}", "method view_as x {}", "method type_as x {}", "method add_ {} $")
READERS += tuple(f"layer {name} {{}}" for name in "ripqdt")


def readers_of_all_kinds(rng, training=False):
    """Of each convolution one, beside the norm."""
    layers = {"r": RELU, "i": IDENTITY, "p": DROPOUT, "q": ACTIVE_DROPOUT, "d": conv(rng)}
    layers |= {"t": bn(rng, training=True), "n": bn(rng, training)}
    rows, reasons = ["x input"], {}
    for k, reader in enumerate(READERS):
        layers[f"c{k}"] = conv(rng)
        pair = [f"b{k} layer n a{k}", f"e{k} {reader.format(f'a{k}')}"]
        rows += [f"a{k} layer c{k} x", *shuffled(rng, pair)]
        reasons[f"b{k}"] = "training" if training else "several readers"
        if reader == "layer t {}":
            reasons[f"e{k}"] = "training"
    layers["c"] = conv(rng)
    rows += ["a layer c x", "b layer n a"]  # the output reads it, too
    reasons["b"] = "training" if training else "several readers"
    results = " ".join(row.split()[0] for row in rows if row[0] in "be") + " a"
    label = f"readers of all kinds beside a norm{' in training mode' if training else ''}"
    nodes = "; ".join([*rows, f"out output {results}"])
    return case(rng, label, layers, nodes, reasons=reasons, removed=[])


def conv_that_is_the_output(rng):
    layers, nodes = (
        {"c": conv(rng), "n": bn(rng)},
        "x input; a layer c x; b layer n a; out output a",
    )
    label, reasons = "a convolution's result that is the output", {"b": "several readers"}
    return case(rng, label, layers, nodes, reasons=reasons, removed=[])


def alike(rng):
    one, norm = conv(rng, bias=True), bn(rng)
    layers = {"c": one, "n": norm, "d": one, "m": norm}
    return both_fold(rng, "convolutions and norms that are alike", layers, TWO_PAIRS)


def conv_under_three_names(rng):
    layers = {"c": conv(rng), "again": {"same_as": "c"}, "more": {"same_as": "c"}, "n": bn(rng)}
    nodes = (
        "x input; a layer c x; b layer n a; d layer again b; e layer n d; f layer more e; "
        "g layer n f; out output g"
    )
    reasons, label = dict.fromkeys("beg", "shared"), "one convolution under three names"
    return case(rng, label, layers, nodes, reasons=reasons, removed=[])


def sources_of_all_kinds(rng):
    """What a convolution reads does not matter."""
    layers = {"r": RELU, "i": IDENTITY, "p": ACTIVE_DROPOUT, "d": conv(rng), "t": bn(rng, True)}
    calls = ["function random x", "function sub 2.5 x", "method neg y", "method type_as x y"]
    calls += [f"layer {name} y" for name in layers]
    rows, reasons = ["x input", "y input"], {}
    for k, call in enumerate(calls):
        layers |= {f"c{k}": conv(rng), f"n{k}": bn(rng)}
        rows += [f"s{k} {call}", f"a{k} layer c{k} s{k}", f"b{k} layer n{k} a{k}"]
        reasons[f"b{k}"] = "fold"
    layers |= {"c": conv(rng), "n": bn(rng)}
    rows += ["a layer c y", "b layer n a"]
    removed, told = [*reasons, "b"], reasons | {"b": "fold", f"s{len(calls) - 1}": "no convolution"}
    nodes = "; ".join([*rows, f"out output {' '.join(removed)}"])
    label = "convolutions that read results of all kinds"
    return case(rng, label, layers, nodes, reasons=told, removed=removed)


def one_channel(rng):
    layers = {"c": conv(rng, True, out=1), "n": bn(rng, channels=1)}
    layers |= {"d": conv(rng, False, into=1, out=1), "m": bn(rng, channels=1)}
    return both_fold(rng, "convolutions of one channel", layers, TWO_PAIRS)


def read_in_all_places(rng):
    """The norm's result: twice by one node, last of three, after a number."""
    layers = {"c": conv(rng), "n": bn(rng), "r": RELU}
    nodes = (
        "x input; a layer c x; b layer n a; d function sub 2.5 b; e function maximum b b; "
        "f function addcmul x x b; g function addcmul x b b; h method neg b; i layer r b; "
        "j method type_as x b; u function tanh x; v method neg x; w layer r x; "
        "out output b d e f g h i j b"
    )
    label, reasons = "a norm that is read in all places", {"b": "fold"}
    return case(rng, label, layers, nodes, reasons=reasons, removed=["b"])


def extreme_norms(rng):
    """A gamma of 0, variances from 0 to 10,000, a small eps and none."""
    layers = four(rng)
    one, other = layers["n"], layers["m"]
    one["weight"][0], other["weight"][2] = 0, 0
    one["running_var"], one["eps"] = torch.tensor([1e4, 0, 1e-5], dtype=torch.float64), 1e-5
    one["running_mean"] += 20
    other["running_var"], other["eps"] = torch.tensor([1e-5, 2, 1], dtype=torch.float64), 0.0
    return both_fold(rng, "norms of extreme numbers", layers, TWO_PAIRS)


def second_names_that_are_taken(rng):
    """As names_that_are_taken, by a module that has another name, too."""
    layers = four(rng) | {"q": RELU} | {name: {"same_as": "q"} for name in "ursvw"}
    nodes = (
        "x input; a layer c x; b layer n a; p layer q b; s layer r p; t layer s s; g layer v t; "
        "h layer w g; e layer d h; f layer m e; out output f"
    )
    label = "second names that a new module might get"
    made = both_fold(rng, label, layers, nodes, {"c": "conv", "n": "bn"})
    layers = made.inputs["program"]["layers"].items()
    names = [name for name, layer in layers if "same_as" in layer]
    return replace(made, inputs=made.inputs | {"spare": names})


def no_convolution_in_training(rng):
    layers = {"r": RELU, "i": IDENTITY, "p": DROPOUT, "n": bn(rng), "t": bn(rng, training=True)}
    rows = ["x input", "f function tanh x", "m method neg x"]
    rows += [f"{name}0 layer {name} x" for name in "ripn"]
    sources = ("x", "f", "m", "r0", "i0", "p0", "n0")
    rows += [f"b{source} layer t {source}" for source in sources]
    reasons = dict.fromkeys([*(f"b{source}" for source in sources), "n0"], "no convolution")
    nodes = "; ".join([*rows, f"out output {' '.join(reasons)}"])
    label = "norms in training mode without a convolution"
    return case(rng, label, layers, nodes, reasons=reasons)


def two_reasons_under_two_names(rng):
    """Shared, and read by others or before a norm in training mode."""
    layers = {"c": conv(rng), "again": {"same_as": "c"}, "n": bn(rng), "t": bn(rng, training=True)}
    nodes = (
        "x input; a layer c x; b layer n a; d layer again x; e layer n d; s function add a d; "
        "f layer again e; g layer t f; out output b e s g"
    )
    reasons = {"b": "several readers", "e": "several readers", "g": "training"}
    label = "one convolution under two names, and other reasons"
    return case(rng, label, layers, nodes, reasons=reasons)
