"""Graphs with norms: `reasons` says of each what speaks against folding it, `removed` which go."""

from itertools import pairwise

from graphs.making import IDENTITY, RELU, asleep, bn, case, conv, disguised

PAIR = "x input; a layer c x; b layer n a; out output b"
TWO_PAIRS = "x input; a layer c x; b layer n a; e layer d b; f layer m e; out output f"


def norm_cases(rng):
    """What the instant check asks, too."""
    chain = {"c": conv(rng), "n": bn(rng), "r": RELU, "d": conv(rng, bias=True), "m": bn(rng)}
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
    ]


def fold_edges(rng):
    """What is easily forgotten when folding."""
    row = {"c": conv(rng), "n": bn(rng), "m": bn(rng)}
    return [
        *traps(rng),
        two_norms_in_a_row(rng, row),
        row_that_others_read(rng, row),
        taken(rng, "names that a new module might get", TAKEN),
        taken(rng, "names with a number that a new module might get", NUMBERED),
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
        "paddings": {"c": conv(rng, padding=0), "n": bn(rng)} | second_pair(rng, padding=2),
        "chain": {"c": conv(rng), "i": IDENTITY, "n": bn(rng), "m": bn(rng)},
        "awake": {"c": conv(rng) | {"training": True}, "n": bn(rng)},
        "dead": four(rng),
        "kernels": {"c": conv(rng, padding=0, kernel=1), "n": bn(rng)} | second_pair(rng, kernel=5),
    }


def four(rng):
    """Two convolutions, each with a norm."""
    return {"c": conv(rng)} | without_c(rng)


def without_c(rng):
    return {"n": bn(rng)} | second_pair(rng)


def second_pair(rng, **sizes):
    return {"d": conv(rng, **sizes), "m": bn(rng)}


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
    label = "a norm in training mode"
    return asleep(case(rng, label, layers, PAIR, reasons=reasons, removed=[]))


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
    return disguised(case(rng, label, layers, nodes, reasons=reasons, removed=["e"]))


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


def taken(rng, label, names):
    """Activations bear names that a pass may think of: overwritten, they are no activations."""
    chain = [f"{name} layer {name} {before}" for before, name in pairwise(["b", *names])]
    nodes = f"x input; a layer c x; b layer n a; {'; '.join(chain)}; e layer d {names[-1]}; "
    layers = four(rng) | dict.fromkeys(names, RELU)
    named = {"c": "conv", "n": "bn"} | {name: name for name in names}
    return both_fold(rng, label, layers, nodes + "f layer m e; out output f", named)


WORDS = ("folded", "fused", "merged", "new", "bn")
TAKEN = ["conv1", "conv_1"] + [
    name for word in WORDS for name in (f"{word}1", f"{word}_1", f"{word}_conv", f"conv_{word}")
]
# Among them the numbers of the modules and of the nodes: a pass may count them for a new name.
NUMBERED = [f"{word}{n}" for word in ("conv", "conv_") for n in (0, 1, 2, *range(24, 32))]
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
)
