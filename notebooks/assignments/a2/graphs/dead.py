"""Graphs with dead nodes; `removed` are those that have to go."""

from graphs.making import (
    ACTIVE_DROPOUT,
    IDENTITY,
    IN_PLACE,
    METHODS,
    RELU,
    asleep,
    bn,
    case,
    conv,
    pick,
    shuffled,
)
from graphs.mixed import live_and_dead


def dead_cases(rng):
    """What the instant check asks, too."""
    return [dead_chain(rng), nothing_dead(rng)]


def dead_edges(rng):
    """What is easily forgotten."""
    return [
        modules_within_modules(rng),
        acts_on_all_kinds(rng),
        inputs_of_three(rng),
        functions_with_an_underscore(rng),
        unread_input(rng),
        in_place_method(rng),
        in_place_on_what_nobody_else_reads(rng),
        in_place_on_an_input(rng),
        asleep(layers_in_both_modes(rng)),
        long_dead_chain(rng),
        called_twice(rng),
        names_with_an_underscore(rng),
        norm_under_two_names(rng),
        many_dead_branches(rng),
        norm_in_evaluation(rng),
        norm_that_dead_nodes_read(rng),
        read_twice_by_a_dead_node(rng),
        in_place_with_another_result(rng),
        many_in_place_methods(rng),
        live_and_dead(rng, "live and dead nodes"),
        live_and_dead(rng, "more live and dead nodes"),
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


def in_place_on_an_input(rng):
    nodes = "x input; a function mul x $; m method mul_ x $; d method neg a; out output a x"
    return case(rng, "an in-place method on an input", {}, nodes, removed=["d"])


def layers_in_both_modes(rng):
    training = {"training": True}
    layers = {"t": bn(rng, True), "n": bn(rng), "p": ACTIVE_DROPOUT}
    layers |= {"c": conv(rng) | training, "r": RELU | training, "i": IDENTITY}
    nodes = (
        "x input; d layer n x; b function relu x; s layer t b; e layer p x; f layer c x; "
        "g layer r x; h layer i x; a function mul x $; out output a"
    )
    named = {"t": "block.norm"}
    return case(rng, "layers in both modes", layers, nodes, named, removed=[*"defgh"])


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


def norm_in_evaluation(rng):
    nodes = "x input; d layer n x; e layer n d; a function mul x $; out output a"
    label = "a norm in evaluation mode"
    return case(rng, label, {"n": bn(rng)}, nodes, removed=[*"de"])


def norm_that_dead_nodes_read(rng):
    layers = {"t": bn(rng, training=True), "u": bn(rng, training=True)}
    nodes = (
        "x input; a layer t x; d function relu a; e function add d x; b layer u x; "
        "f function relu b; out output x"
    )
    label = "norms in training mode that only dead nodes read"
    return case(rng, label, layers, nodes, removed=[*"def"])


def read_twice_by_a_dead_node(rng):
    nodes = (
        "x input; a function mul x $; d function sub a 2; e function add d d; f function mul a $; "
        "g function maximum f f; b function add a a; out output b"
    )
    label = "dead nodes that read one result twice"
    return case(rng, label, {}, nodes, removed=[*"defg"])


def in_place_with_another_result(rng):
    nodes = (
        "x input; y input; a function mul x $; b function relu y; c function tanh y; "
        "m method add_ a b; d function sub a c; out output a"
    )
    label = "an in-place method that reads two results"
    return case(rng, label, {}, nodes, removed=[*"dc"])


def many_in_place_methods(rng):
    """All of them, and methods that are none."""
    calls = shuffled(rng, [*IN_PLACE, *METHODS])
    rows = [f"m{i} method {call.format('a')}" for i, call in enumerate(calls)]
    nodes = "; ".join(["x input; a function mul x $", *rows, "out output a"])
    removed = [f"m{i}" for i, call in enumerate(calls) if call in METHODS]
    return case(rng, "many in-place methods", {}, nodes, removed=removed)


def modules_within_modules(rng):
    layers = {"t": bn(rng, training=True), "c": conv(rng)}
    named = {"t": "block.0.norm", "c": "block.0.conv"}
    nodes = "x input; a function mul x $; s layer t a; d layer c a; out output a"
    label = "modules within modules within modules"
    return case(rng, label, layers, nodes, named, removed=["d"])


def acts_on_all_kinds(rng):
    """In-place methods and norms in training mode that nobody reads, on results of all kinds."""
    layers = {"c": conv(rng), "t": bn(rng, training=True), "r": RELU, "i": IDENTITY}
    layers |= {"p": ACTIVE_DROPOUT, "n": bn(rng)}
    calls = [f"layer {layer} x" for layer in "cpritn"]
    calls += ["method neg x", "method add_ y $", "function random x", "function tanh x"]
    rows = ["x input", "y input"]
    for n, call in enumerate(calls):
        in_place = pick(rng, IN_PLACE).format(f"a{n}")
        rows += [f"a{n} {call}", f"m{n} method {in_place}", f"b{n} {call}", f"t{n} layer t b{n}"]
        rows.append(f"d{n} layer {pick(rng, 'cri')} x")
    nodes, removed = "; ".join([*rows, "out output x"]), [f"d{n}" for n in range(len(calls))]
    label = "in-place methods and norms in training mode on results of all kinds"
    return case(rng, label, layers, nodes, removed=removed)


def functions_with_an_underscore(rng):
    nodes = (
        "x input; a function above x 0; b function both a a; d function above x $; "
        "e function both a d; f function tanh x; out output f d"
    )
    label = "functions whose names end in an underscore"
    return case(rng, label, {}, nodes, removed=[*"abe"])


def inputs_of_three(rng):
    nodes = (
        "x input; y input; a function tanh x; b function addcmul x y a; d function abs y; "
        "e function addcmul x y d; f function clamp x 0 1; out output b"
    )
    return case(rng, "functions of three inputs", {}, nodes, removed=[*"def"])
