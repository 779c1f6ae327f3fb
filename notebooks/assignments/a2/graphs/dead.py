"""Graphs with dead nodes; `removed` are those that have to go."""

from graphs.making import ACTIVE_DROPOUT, RELU, asleep, bn, case, conv


def dead_cases(rng):
    """What the instant check asks, too."""
    return [dead_chain(rng), nothing_dead(rng)]


def dead_edges(rng):
    """What is easily forgotten."""
    return [
        unread_input(rng),
        in_place_method(rng),
        in_place_on_what_nobody_else_reads(rng),
        another_in_place_method(rng),
        asleep(layers_in_both_modes(rng)),
        long_dead_chain(rng),
        called_twice(rng),
        names_with_an_underscore(rng),
        norm_under_two_names(rng),
        many_dead_branches(rng),
    ]


def dead_chain(rng):
    layers = {"c": conv(rng), "r": RELU}
    nodes = (
        "x input; a layer c x; d function mul a $; e layer r d; f function add e $; "
        "b function mul a $; out output b"
    )
    return case(rng, "a dead chain", layers, nodes, removed=[*"def"])


def nothing_dead(rng):
    nodes = "x input; a function mul x $; b layer r a; out output a b"
    return case(rng, "nothing dead", {"r": RELU}, nodes, removed=[])


def unread_input(rng):
    nodes = "x input; y input; a function mul x $; b function relu y; out output a"
    return case(rng, "an input that nobody reads", {}, nodes, removed=["b"])


def in_place_method(rng):
    nodes = (
        "x input; a function mul x $; d method neg a; e method type_as a x; m method add_ a $; "
        "out output a"
    )
    return case(rng, "an in-place method", {}, nodes, removed=[*"de"])


def in_place_on_what_nobody_else_reads(rng):
    nodes = (
        "x input; a function mul x $; d function mul a $; m method add_ d $; e function relu m; "
        "out output a"
    )
    return case(rng, "an in-place method on what nobody else reads", {}, nodes, removed=["e"])


def another_in_place_method(rng):
    nodes = "x input; a function mul x $; m method mul_ a $; d method neg a; out output a"
    return case(rng, "another in-place method", {}, nodes, removed=["d"])


def layers_in_both_modes(rng):
    layers = {"t": bn(rng, True), "n": bn(rng), "p": ACTIVE_DROPOUT}
    nodes = (
        "x input; d layer n x; r function relu x; s layer t r; e layer p x; a function mul x $; "
        "out output a"
    )
    return case(rng, "layers in both modes", layers, nodes, removed=[*"de"])


def long_dead_chain(rng):
    nodes = (
        "x input; a function mul x $; d function mul a $; e function relu a; f function add d e; "
        "g function mul f $; h function random g; i function mul h $; out output a"
    )
    return case(rng, "a long dead chain with two branches", {}, nodes, removed=[*"defghi"])


def called_twice(rng):
    layers = {"t": bn(rng, True), "c": conv(rng)}
    nodes = "x input; a layer t x; s layer t a; d layer c a; b layer c a; out output b"
    return case(rng, "modules that are called twice", layers, nodes, removed=["d"])


def names_with_an_underscore(rng):
    nodes = "x input; d layer c x; a function mul x $; out output a"
    label = "names that end with an underscore"
    return case(rng, label, {"c": conv(rng)}, nodes, end="_", removed=["d"])


def norm_under_two_names(rng):
    layers = {"t": bn(rng, True), "again": {"same_as": "t"}, "c": conv(rng)}
    nodes = "x input; a layer t x; s layer again a; d layer c a; out output a"
    label = "a norm in training mode under two names"
    return case(rng, label, layers, nodes, removed=["d"])


def many_dead_branches(rng):
    """More paths lead through them than anybody can follow."""
    rows, removed, before = ["x input"], [], "x"
    for i in range(30):
        rows += [f"d{i} function relu {before}", f"e{i} function add {before} $"]
        rows += [f"f{i} function sub d{i} e{i}"]
        removed, before = [*removed, f"d{i}", f"e{i}", f"f{i}"], f"f{i}"
    label = "many dead branches, one after the other"
    return case(rng, label, {}, "; ".join([*rows, "out output x"]), removed=removed)
