"""Who is called how often."""

from graphs.making import ACTIVE_DROPOUT, DROPOUT, IDENTITY, RELU, bn, case, conv, disguised, pick
from graphs.mixed import many_calls


def calls_cases(rng):
    """What the instant check asks, too."""
    return [chain(rng), two_inputs(rng)]


def calls_edges(rng):
    """What is easily forgotten. All layers of several graphs are drawn before the first graph."""
    twice = {"c": conv(rng), "again": {"same_as": "c"}}
    alike = conv(rng)
    return [
        two_names(rng),
        two_names_called(rng, twice),
        case(rng, "a name that nobody calls", twice, "x input; a layer c x; out output a"),
        alike_modules(rng, alike),
        activation_under_two_names(rng),
        unread_call(rng),
        disguised(chain(rng, dots=False)),
        uncalled(rng),
        three_names(rng),
        case(rng, "no module at all", {}, "x input; a function mul x $; out output a"),
        calls_that_agree(rng),
        two_modules_of_two_names(rng),
        quiet_layers_under_two_names(rng),
        module_named_like_a_method(rng),
        modules_within_modules(rng),
        all_kinds_under_two_names(rng),
        called_often(rng),
        many_calls(rng, "many calls"),
    ]


def chain(rng, dots=True):
    layers = {"c": conv(rng), "r": RELU}
    nodes = "x input; a layer c x; b layer r a; d layer c b; e layer r d; g layer c e; out output g"
    return case(rng, "a chain", layers, nodes, dots=dots)


def two_inputs(rng):
    layers = {"c": conv(rng), "d": conv(rng)}
    nodes = "x input; y input; a layer c x; b layer d y; s function add a b; out output s"
    return case(rng, "two inputs", layers, nodes)


def two_names(rng):
    layers = {"c": conv(rng), "again": {"same_as": "c"}, "d": conv(rng)}
    nodes = "x input; a layer c x; b layer again a; e layer d b; out output e"
    return case(rng, "one module under two names", layers, nodes)


def uncalled(rng):
    layers = {"c": conv(rng), "d": conv(rng), "r": RELU}
    nodes = "x input; a layer c x; b layer r a; out output b"
    return case(rng, "a module that nobody calls", layers, nodes)


def three_names(rng):
    layers = {"c": conv(rng), "again": {"same_as": "c"}, "more": {"same_as": "c"}}
    nodes = "x input; a layer c x; b layer again a; e layer more b; out output e"
    return case(rng, "one module under three names", layers, nodes)


def two_names_called(rng, twice):
    nodes = "x input; a layer c x; b layer again a; e layer c b; out output e"
    return case(rng, "one name called twice, and another", twice, nodes)


def alike_modules(rng, alike):
    layers = {"c": alike, "d": alike, "r": RELU, "s": RELU}
    nodes = "x input; a layer c x; b layer r a; e layer d b; f layer s e; out output f"
    return case(rng, "modules that are alike", layers, nodes)


def activation_under_two_names(rng):
    layers = {"r": RELU, "again": {"same_as": "r"}}
    nodes = "x input; a layer r x; b function mul a $; e layer again b; out output e"
    return case(rng, "an activation under two names", layers, nodes)


def unread_call(rng):
    layers = {"c": conv(rng)}
    nodes = "x input; a layer c x; b layer c a; out output a"
    return case(rng, "a call that nobody reads", layers, nodes)


def calls_that_agree(rng):
    layers = {"c": conv(rng)}
    nodes = "x input; y input; a layer c y; b layer c y; s function add a b; out output s x"
    return case(rng, "a module called twice with the second input", layers, nodes)


def two_modules_of_two_names(rng):
    layers = {"c": conv(rng), "d": conv(rng), "again": {"same_as": "c"}, "more": {"same_as": "d"}}
    nodes = (
        "x input; a layer c x; b layer more a; e layer again b; f layer d e; g layer more f; "
        "out output g"
    )
    return case(rng, "two modules, each under two names", layers, nodes)


def module_named_like_a_method(rng):
    layers, named = {"r": RELU, "c": conv(rng)}, {"r": "neg"}
    nodes = "x input; a layer c x; m method neg a; b layer r m; out output b"
    return case(rng, "a module named like a method", layers, nodes, named)


def quiet_layers_under_two_names(rng):
    layers = {"i": IDENTITY, "also": {"same_as": "i"}, "p": DROPOUT, "again": {"same_as": "p"}}
    layers |= {"n": bn(rng), "more": {"same_as": "n"}}
    nodes = (
        "x input; a layer i x; b layer p a; e layer n b; f layer also e; g layer again f; "
        "h layer more g; out output h"
    )
    label = "an identity, a dropout and a norm, each under two names"
    return case(rng, label, layers, nodes)


def modules_within_modules(rng):
    layers = {"c": conv(rng), "again": {"same_as": "c"}, "r": RELU}
    named = {"c": "block.0.conv", "again": "block.part.1", "r": "block.0.act"}
    nodes = "x input; a layer c x; b layer again a; e layer r b; out output e"
    return case(rng, "modules within modules within modules", layers, nodes, named)


def all_kinds_under_two_names(rng):
    """Layers of all kinds in both modes."""
    kinds = (RELU, IDENTITY, DROPOUT, ACTIVE_DROPOUT, conv(rng), bn(rng))
    layers, rows, before = {}, ["x input"], "x"
    for n, layer in enumerate(kinds):
        for training in (False, True):
            one = f"{'et'[training]}{n}"
            layers |= {one: layer | {"training": training}, f"{one}b": {"same_as": one}}
            rows += [f"a{one} layer {one} {before}", f"b{one} layer {one}b a{one}"]
            before = f"b{one}"
    nodes = "; ".join([*rows, f"out output {before}"])
    return case(rng, "layers of all kinds, each under two names", layers, nodes)


def called_often(rng):
    layers = {"r": RELU, "c": conv(rng), "again": {"same_as": "c"}}
    rows = [f"a{n + 1} layer {pick(rng, ('r', 'c', 'again'))} a{n}" for n in range(60)]
    nodes = "; ".join(["a0 input", *rows, "out output a60"])
    return case(rng, "modules that are called often", layers, nodes)
