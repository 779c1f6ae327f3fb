"""Graphs with nodes that change nothing; `removed` are those that have to go."""

from graphs.making import ACTIVE_DROPOUT, DROPOUT, IDENTITY, RELU, asleep, bn, case, conv
from graphs.mixed import many_identities


def identity_cases(rng):
    """What the instant check asks, too."""
    return [identity_and_dropout(rng), nothing_to_remove(rng)]


def identity_edges(rng):
    """What is easily forgotten."""
    return [
        asleep(dropout_in_training(rng)),
        dropouts_of_nothing(rng),
        dropout_in_place(rng),
        modules_within_modules(rng),
        beside_all_kinds(rng),
        read_in_the_third_place(rng),
        *(
            functions_that_change_nothing(rng, *words)
            for words in (("add", "mul"), ("plus", "times"))
        ),
        two_inputs_and_a_branch(rng),
        several_readers(rng),
        called_twice(rng),
        unread(rng),
        two_names(rng),
        beside_an_in_place_method(rng),
        named_like_a_method(rng),
        activations_in_a_row(rng),
        read_by_an_in_place_method(rng),
        identity_in_evaluation(rng),
        nothing_else(rng),
        dropout_under_two_names(rng),
        other_layers(rng),
        many_identities(rng, "many identities and dropouts"),
    ]


def identity_and_dropout(rng):
    layers = {"c": conv(rng), "i": IDENTITY, "p": DROPOUT}
    nodes = "x input; a layer c x; i layer i a; p layer p i; b function mul p $; out output b"
    return case(rng, "identity and dropout", layers, nodes, removed=[*"ip"])


def nothing_to_remove(rng):
    nodes = "x input; a layer r x; b function mul a $; out output b"
    return case(rng, "nothing to remove", {"r": RELU}, nodes, removed=[])


def dropout_in_training(rng):
    layers = {"p": ACTIVE_DROPOUT, "q": DROPOUT}
    nodes = "x input; a function mul x $; p layer p a; q layer q p; out output q"
    return case(rng, "dropout in training mode", layers, nodes, removed=["q"])


def dropouts_of_nothing(rng):
    layers = {"p": ACTIVE_DROPOUT | {"p": 0.0}, "q": DROPOUT | {"p": 0.0}}
    layers |= {"r": DROPOUT | {"p": 1.0}}
    nodes = "x input; a function mul x $; p layer p a; q layer q p; r layer r q; out output r"
    return case(rng, "dropouts of probability 0 and 1", layers, nodes, removed=[*"qr"])


def dropout_in_place(rng):
    layers = {"p": DROPOUT | {"inplace": True}, "q": ACTIVE_DROPOUT | {"inplace": True}}
    nodes = "x input; a function mul x $; p layer p a; q layer q p; out output q"
    return case(rng, "dropouts made with inplace=True", layers, nodes, removed=["p"])


def two_inputs_and_a_branch(rng):
    nodes = (
        "x input; y input; r function relu x; i layer i x; j layer i y; s function add i r; "
        "t function sub s j; out output t"
    )
    return case(rng, "two inputs and a branch", {"i": IDENTITY}, nodes, removed=[*"ij"])


def several_readers(rng):
    nodes = (
        "x input; i layer i x; a function mul i $; b function sub i a; s function add i i; "
        "out output i b s"
    )
    label = "several readers, of which one reads twice"
    return case(rng, label, {"i": IDENTITY}, nodes, removed=["i"])


def called_twice(rng):
    layers = {"i": IDENTITY, "r": RELU}
    nodes = "x input; i layer i x; a function mul i $; j layer i a; b layer r j; out output b"
    return case(rng, "one module called twice", layers, nodes, removed=[*"ij"])


def two_names(rng):
    layers = {"i": IDENTITY, "again": {"same_as": "i"}}
    nodes = "x input; i layer i x; a function relu i; j layer again a; out output j"
    return case(rng, "one module under two names", layers, nodes, removed=[*"ij"])


def beside_an_in_place_method(rng):
    nodes = "x input; i layer i x; a function relu i; b method add_ a $; out output b"
    label = "an identity, and a method in place elsewhere"
    return case(rng, label, {"i": IDENTITY}, nodes, removed=["i"])


def named_like_a_method(rng):
    nodes = "x input; i layer i x; a method neg i; out output a"
    label, named = "an identity named like a method", {"i": "neg"}
    return case(rng, label, {"i": IDENTITY}, nodes, named, removed=["i"])


def unread(rng):
    layers = {"i": IDENTITY, "p": ACTIVE_DROPOUT, "q": DROPOUT, "r": RELU}
    nodes = (
        "x input; i layer i x; a function mul x $; p layer p a; q layer q a; "
        "d function tanh x; m method neg x; r layer r x; out output a"
    )
    label = "an identity and dropouts that nobody reads"
    return case(rng, label, layers, nodes, removed=[*"iq"])


def activations_in_a_row(rng):
    nodes = "x input; a layer r x; b layer s a; e function relu b; f layer r e; out output f"
    layers = {"r": RELU, "s": RELU}
    return case(rng, "two activations in a row", layers, nodes, removed=[])


def read_by_an_in_place_method(rng):
    nodes = (
        "x input; a function mul x $; i layer i a; m method mul_ i $; p layer p m; "
        "b function add a p; out output b m"
    )
    label = "an identity that an in-place method reads"
    return case(rng, label, {"i": IDENTITY, "p": DROPOUT}, nodes, removed=[*"ip"])


def identity_in_evaluation(rng):
    layers = {"i": IDENTITY | {"training": False}, "r": RELU}
    nodes = "x input; i layer i x; a layer r i; out output a"
    return case(rng, "an identity in evaluation mode", layers, nodes, removed=["i"])


def nothing_else(rng):
    layers = {"i": IDENTITY, "p": DROPOUT, "q": DROPOUT}
    nodes = (
        "x input; y input; i layer i y; p layer p i; j layer i p; q layer q j; out output q x i q"
    )
    label = "nothing but identities and dropouts"
    return case(rng, label, layers, nodes, removed=[*"ipjq"])


def dropout_under_two_names(rng):
    layers = {
        "p": ACTIVE_DROPOUT,
        "again": {"same_as": "p"},
        "q": DROPOUT,
        "more": {"same_as": "q"},
    }
    nodes = (
        "x input; a layer p x; b layer again a; e layer q b; f layer more e; g function mul f $; "
        "out output g"
    )
    return case(rng, "dropouts under two names", layers, nodes, removed=[*"ef"])


def other_layers(rng):
    layers = {"n": bn(rng), "c": conv(rng), "t": bn(rng, training=True), "r": RELU}
    nodes = "x input; a layer n x; b layer c a; e layer t b; f layer r e; out output f"
    return case(rng, "no identity, and layers of all other kinds", layers, nodes, removed=[])


def modules_within_modules(rng):
    layers = {"i": IDENTITY, "p": DROPOUT, "q": ACTIVE_DROPOUT}
    named = {"i": "block.0.1", "p": "block.0.drop", "q": "block.part.drop"}
    nodes = "x input; i layer i x; a layer q i; p layer p a; out output p"
    label = "modules within modules within modules"
    return case(rng, label, layers, nodes, named, removed=[*"ip"])


def beside_all_kinds(rng):
    """Identities and dropouts before and after nodes of all kinds."""
    layers = {"i": IDENTITY, "p": DROPOUT, "q": ACTIVE_DROPOUT, "r": RELU, "c": conv(rng)}
    layers |= {"t": bn(rng, training=True), "n": bn(rng)}
    readers = [f"layer {layer}" for layer in "qtncr"]
    readers += ["function random", "function tanh", "method neg"]
    rows, before, after = ["x input"], [], []
    for n, reader in enumerate(readers):
        one, other = ("i", "p") if n % 2 else ("p", "i")
        rows += [f"b{n} layer {one} x", f"d{n} layer {other} x", f"e{n} {reader} b{n}"]
        rows += [f"f{n} {reader} d{n}", f"g{n} layer {one} e{n}", f"h{n} layer {other} f{n}"]
        before += [f"b{n}", f"d{n}"]
        after += [f"g{n}", f"h{n}"]
    nodes, removed = "; ".join([*rows, "out output " + " ".join(after)]), [*before, *after]
    label = "identities and dropouts before and after nodes of all kinds"
    return case(rng, label, layers, nodes, removed=removed)


def read_in_the_third_place(rng):
    nodes = (
        "x input; y input; i layer i x; a function addcmul x y i; b function addcmul y i i; "
        "c function sub 2.5 i; d function clamp i 0 1; out output a b c d"
    )
    label = "an identity that functions of three inputs read"
    return case(rng, label, {"i": IDENTITY}, nodes, removed=["i"])


def functions_that_change_nothing(rng, add, mul):
    """Neither identities nor dropouts: they stay."""
    nodes = (
        f"x input; a function {add} x 0; b function {mul} a 1; c function sub b 0; "
        "d function maximum c c; e function relu d; f function relu e; g function abs f; "
        "h method type_as g g; i method view_as h h; j method neg i; k method neg j; "
        "m layer r f; out output k m"
    )
    label = f"functions and methods that change nothing, {add} and {mul}"
    return case(rng, label, {"r": RELU}, nodes, removed=[])
