"""Graphs that compute the same thing twice; `removed` are the nodes that have to go."""

from graphs.making import (
    ACTIVE_DROPOUT,
    DROPOUT,
    IDENTITY,
    IN_PLACE,
    METHODS,
    RELU,
    bn,
    case,
    conv,
    pick,
    shuffled,
)
from graphs.mixed import many_repeats


def repeat_cases(rng):
    """What the instant check asks, too."""
    return [same_product(rng), nothing_twice(rng)]


def repeat_edges(rng):
    """What is easily forgotten."""
    return [
        repeats_of_repeats(rng),
        three_of_a_kind(rng),
        random_numbers(rng),
        readers_of_a_random_number(rng),
        in_place_method(rng),
        in_place_method_after(rng),
        methods(rng),
        modules(rng),
        number_first(rng),
        numbers_close_together(rng),
        numbers_of_one_hash(rng),
        a_number_of_zero(rng),
        names_with_an_underscore(rng),
        a_repeat_that_nobody_reads(rng),
        long_chain(rng),
        two_random_numbers(rng),
        another_in_place_method(rng),
        read_by_layers_and_methods(rng),
        numbers_of_either_sign(rng),
        functions_of_two_results(rng),
        functions_of_three_inputs(rng),
        functions_of_two_inputs_or_three(rng),
        dead_but_no_repeat(rng),
        names_and_numbers(rng),
        number_in_front_or_behind(rng),
        operators(rng),
        three_inputs_in_another_order(rng),
        two_long_chains(rng),
        readers_of_layers_in_training(rng),
        function_of_its_own_result(rng),
        repeat_read_in_the_third_place(rng),
        *(
            in_place_elsewhere(rng, *what, call)
            for what, call in zip(2 * HARMLESS, shuffled(rng, IN_PLACE), strict=True)
        ),
        in_place_method_of_two(rng),
        one_output(rng),
        comparisons(rng),
        calls_of_no_function(rng),
        random_numbers_of_all_kinds(rng),
        names_of_an_underscore(rng),
        large_whole_numbers(rng),
        many_repeats(rng, "many repeats"),
        many_repeats(rng, "many repeats, and an in-place method", in_place=True),
    ]


def same_product(rng):
    nodes = (
        "x input; a function mul x 0.5; b function mul x 0.5; c function mul x $; "
        "s function add a b; t function sub s c; out output t"
    )
    return case(rng, "the same product twice", {}, nodes, removed=["b"])


def nothing_twice(rng):
    nodes = "x input; y function mul x $; a function sub x y; b function sub y x; out output a b"
    return case(rng, "nothing twice", {}, nodes, removed=[])


def numbers_of_one_hash(rng):
    """Python's hash of -1 is that of -2."""
    nodes = "x input; a function mul x -1; b function mul x -2; c function add a b; out output c"
    return case(rng, "two numbers of one hash", {}, nodes, removed=[])


def a_number_of_zero(rng):
    nodes = "x input; a function add x 0; b function add x 0; c function mul a b; out output c"
    return case(rng, "a number of 0", {}, nodes, removed=["b"])


def repeats_of_repeats(rng):
    nodes = (
        "x input; a function relu x; c function mul a 2.5; b function relu x; "
        "d function mul b 2.5; e function sub c d; out output e d"
    )
    return case(rng, "repeats of repeats", {}, nodes, removed=[*"bd"])


def three_of_a_kind(rng):
    nodes = (
        "x input; y input; a function relu x; b function relu y; c function relu x; "
        "d function relu x; e function add a b; f function add b a; g function add c b; "
        "h function mul e 1.5; i function mul g 1.5; j function mul h 2.5; k function mul i 2.5; "
        "out output j k f d"
    )
    label = "three of a kind, and others in between"
    return case(rng, label, {}, nodes, removed=[*"cdgik"])


def random_numbers(rng):
    nodes = (
        "x input; d function relu x; a function random x; b function random x; "
        "c function sub a b; e function relu x; out output c d e"
    )
    return case(rng, "random numbers", {}, nodes, removed=["e"])


def readers_of_a_random_number(rng):
    nodes = (
        "x input; a function random x; b function mul a 1.5; c function mul a 1.5; "
        "d function sub b c; out output b d"
    )
    return case(rng, "repeats that read a random number", {}, nodes, removed=["c"])


def in_place_method(rng):
    nodes = (
        "x input; y function mul x $; a function relu y; m method add_ y $; b function relu y; "
        "c function sub a b; out output c"
    )
    return case(rng, "an in-place method", {}, nodes, removed=[])


def in_place_method_after(rng):
    nodes = (
        "x input; a function relu x; b function relu x; c function add a b; m method mul_ c $; "
        "out output c"
    )
    return case(rng, "an in-place method after the repeats", {}, nodes, removed=[])


def methods(rng):
    nodes = (
        "x input; f function relu x; a method neg x; b method neg x; t method type_as x a; "
        "c function mul a 1.5; d function mul b 1.5; e function add a 1.5; g function relu x; "
        "h function mul a 1.5; out output c d e t f g h"
    )
    return case(rng, "methods", {}, nodes, removed=[*"gh"])


def modules(rng):
    nodes = (
        "x input; e function relu x; a layer r x; b layer r x; c function mul a 1.5; "
        "d function mul b 1.5; f function relu x; g function mul a 1.5; out output c d f g"
    )
    return case(rng, "modules", {"r": RELU}, nodes, removed=[*"fg"])


def number_first(rng):
    nodes = (
        "x input; a function sub x 2.0; b function sub 2.0 x; c function sub 2.0 x; "
        "d function mul a b; out output d c"
    )
    return case(rng, "a number in front", {}, nodes, removed=["c"])


def numbers_close_together(rng):
    nodes = (
        "x input; a function mul x 1.25; b function mul x 1.250000001; "
        "c function mul x 1.2500000000000002; d function add x 0.0000000000001; "
        "e function add x 0.0000000000002; out output a b c d e"
    )
    return case(rng, "numbers close together", {}, nodes, removed=[])


def names_with_an_underscore(rng):
    nodes = (
        "x input; m method neg x; a layer r m; b function mul a 1.5; c function mul a 1.5; "
        "out output b c"
    )
    label = "names that end with an underscore"
    return case(rng, label, {"r": RELU}, nodes, end="_", removed=["c"])


def a_repeat_that_nobody_reads(rng):
    nodes = "x input; a function relu x; b function relu x; c function mul a $; out output c"
    return case(rng, "a repeat that nobody reads", {}, nodes, removed=["b"])


def long_chain(rng):
    """Written out, its end would be longer than any memory."""
    rows, before = ["x input"], "x"
    for i in range(45):
        rows += [f"a{i} function relu {before}", f"b{i} function add a{i} {before}"]
        before = f"b{i}"
    nodes = "; ".join([*rows, f"out output {before}"])
    return case(rng, "a long chain in which every result is read twice", {}, nodes, removed=[])


def two_random_numbers(rng):
    nodes = (
        "x input; a function random x; b function random x; c function mul a 1.5; "
        "d function mul b 1.5; e function relu c; f function relu d; g function relu c; "
        "out output e f g"
    )
    label = "the same steps after two random numbers"
    return case(rng, label, {}, nodes, removed=["g"])


def another_in_place_method(rng):
    """One that few think of."""
    call = pick(rng, ("neg_ {}", "square_ {}", "tanh_ {}", "sigmoid_ {}"))
    nodes = (
        f"x input; a function tanh x; m method {call.format('x')}; b function tanh x; "
        "out output a b m"
    )
    return case(rng, "another in-place method", {}, nodes, removed=[])


def read_by_layers_and_methods(rng):
    nodes = (
        "x input; a function tanh x; b function tanh x; c layer r b; d method neg b; "
        "e function add b b; f method type_as b a; out output c d e f"
    )
    label = "a repeat that layers and methods read"
    return case(rng, label, {"r": RELU}, nodes, removed=["b"])


def numbers_of_either_sign(rng):
    nodes = (
        "x input; a function add x 2; b function add x -2; c function add x 2; d function add x 3; "
        "e function add x 2.5; f function sub x 2; g function add x -2.5; out output a b c d e f g"
    )
    return case(rng, "numbers of either sign", {}, nodes, removed=["c"])


def functions_of_two_results(rng):
    nodes = (
        "x input; y input; a function tanh x; b function tanh y; c function mul a b; "
        "d function mul b a; e function mul a a; f function mul a y; g function maximum a b; "
        "h function maximum b a; i function maximum a x; j function add a b; k function add a a; "
        "l function mul a b; out output c d e f g h i j k l"
    )
    return case(rng, "functions of two results", {}, nodes, removed=["l"])


def functions_of_three_inputs(rng):
    nodes = (
        "x input; y input; a function clamp x 0 1; b function clamp x 0 6; "
        "c function addcmul x y y; d function addcmul x x y; e function addcmul x y y; "
        "f function clamp x 0 6; g function clamp x -1 6; h function clamp x 6 0; "
        "out output a b c d e f g h"
    )
    return case(rng, "functions of three inputs", {}, nodes, removed=[*"ef"])


def functions_of_two_inputs_or_three(rng):
    nodes = (
        "x input; a function clamp x 0.5; b function clamp x 0.5 1.5; "
        "c function clamp x 0.5 1.5; d function clamp x 0.5; out output a b c d"
    )
    return case(rng, "functions of two inputs or three", {}, nodes, removed=[*"cd"])


def dead_but_no_repeat(rng):
    nodes = (
        "x input; a function relu x; b function tanh x; c layer r a; d function abs x; "
        "e function relu x; m method neg x; u function random x; out output d e"
    )
    return case(rng, "dead nodes that repeat nothing", {"r": RELU}, nodes, removed=["e"])


def names_and_numbers(rng):
    """Written one after the other, v1 and 10.5 are v11 and 0.5."""
    nodes = "x input; y input; a function mul x 10.5; b function mul y 0.5; out output a b"
    made = case(rng, "names that end with a number", {}, nodes, removed=[])
    rows = made.inputs["program"]["nodes"]
    for row, read_by, name in zip(rows[:2], rows[2:4], ("v1", "v11"), strict=True):
        row["name"] = read_by["inputs"][0] = name
    return made


def number_in_front_or_behind(rng):
    nodes = (
        "x input; a function add x 2; b function add 2 x; c function mul x 2.5; "
        "d function mul 2.5 x; e function mul 2.5 x; out output a b c d e"
    )
    return case(rng, "one number in front and behind", {}, nodes, removed=["e"])


def operators(rng):
    nodes = (
        "x input; y input; a function plus x y; b function plus y x; c function times a b; "
        "d function times b a; e function plus x y; f function plus x 2; g function plus 2 x; "
        "h function times a b; i function times x 2.5; j function times 2.5 x; "
        "out output a b c d e f g h i j"
    )
    return case(rng, "operators of Python, in either order", {}, nodes, removed=[*"eh"])


def three_inputs_in_another_order(rng):
    nodes = (
        "x input; y input; a function addcmul x x y; b function addcmul x y x; "
        "c function addcmul y x x; d function addcmul x y x; out output a b c d"
    )
    return case(rng, "three inputs in another order", {}, nodes, removed=["d"])


def two_long_chains(rng):
    rows = ["x input", "y input"]
    for n in range(24):
        function = pick(rng, ("sigmoid", "tanh", "abs"))
        for chain in "ab":
            before = f"{chain}{n - 1}" if n else "x"
            call = f"{function} {before}" if n % 2 else f"add {before} {n}.5"
            rows.append(f"{chain}{n} function {call}")
    nodes, removed = "; ".join([*rows, "out output a23 b23"]), [f"b{n}" for n in range(24)]
    return case(rng, "two long chains of the same steps", {}, nodes, removed=removed)


def readers_of_layers_in_training(rng):
    layers = {"t": bn(rng, training=True), "p": ACTIVE_DROPOUT}
    nodes = (
        "x input; a layer t x; b layer p x; c function tanh a; d function tanh a; "
        "e function abs b; f function abs b; out output c d e f"
    )
    label = "repeats that read layers in training mode"
    return case(rng, label, layers, nodes, removed=[*"df"])


def function_of_its_own_result(rng):
    nodes = (
        "x input; a function relu x; b function relu a; c function maximum b b; "
        "d function relu a; e function abs x; f function abs e; g function mul x 1; "
        "h function add x 0; i function sub x 0; j function mul x 2; k function add x x; "
        "out output b c d f g h i j k"
    )
    return case(rng, "a function of its own result", {}, nodes, removed=["d"])


def repeat_read_in_the_third_place(rng):
    nodes = (
        "x input; y input; a function tanh x; b function tanh x; c function addcmul x y b; "
        "d function addcmul y b b; e function sub 2.5 b; out output a c d e"
    )
    label = "a repeat that functions of three inputs read"
    return case(rng, label, {}, nodes, removed=["b"])


# What a method works on in place: a label, and the nodes before and after the repeats.
HARMLESS = (
    ("a method's result, before all functions", "m method neg y; p method {}; ", ""),
    ("a layer's result that nobody else reads", "m layer r y; ", "p method {}; "),
    ("a method's result, after all functions", "", "m method neg y; p method {}; "),
    ("random numbers", "", "m function random y; p method {}; "),
)


def in_place_elsewhere(rng, label, before, after, call):
    """It changes no input of a repeat, and still the graph is left alone."""
    nodes = f"x input; y input; {before}a function relu x; b function relu x; {after}out output a b"
    layers = {"r": RELU} if "layer" in before else {}
    nodes = nodes.format(call.format("m"))
    name = f"{call.split()[0]}, an in-place method of {label}"
    return case(rng, name, layers, nodes, removed=[])


def in_place_method_of_two(rng):
    nodes = (
        "x input; y input; a function relu x; b function relu x; m method add_ y x; out output a b"
    )
    return case(rng, "an in-place method that reads two inputs", {}, nodes, removed=[])


def one_output(rng):
    nodes = "x input; a function tanh x; b function tanh x; out output b"
    return case(rng, "a repeat that is the output", {}, nodes, removed=["b"])


def comparisons(rng):
    nodes = (
        "x input; y input; a function above x y; b function above y x; c function above x y; "
        "d function both a b; e function both b c; f function both a b; g function both d d; "
        "h function above x 0.5; out output a b d e f g h"
    )
    return case(rng, "comparisons in either order", {}, nodes, removed=[*"cf"])


def calls_of_no_function(rng):
    """Twice each."""
    layers = {"c": conv(rng), "n": bn(rng), "i": IDENTITY, "p": DROPOUT, "r": RELU}
    calls = [f"layer {name} x" for name in layers]
    calls += [f"method {call.format('x')}".replace("$", "0.5") for call in METHODS]
    calls += ["method type_as x f", "method view_as x f"]
    rows = [f"{copy}{n} {call}" for copy in "ab" for n, call in enumerate(calls)]
    rows = ["f function tanh x", *rows, "g function tanh x"]
    nodes = "; ".join(["x input", *rows, "out output g " + " ".join(r.split()[0] for r in rows)])
    return case(rng, "modules and methods called twice alike", layers, nodes, removed=["g"])


def random_numbers_of_all_kinds(rng):
    rows = ["x input", "f function tanh x", "r layer r x", "m method neg x", "q function random x"]
    rows += [f"{copy}{value} function random {value}" for value in "frmq" for copy in "ab"]
    rows += [
        "u function random x",
        "v function random x",
        "g function sub af bf",
        "h function sub af bf",
    ]
    names = " ".join(row.split()[0] for row in rows if row[0] in "abgh")
    nodes = "; ".join([*rows, f"out output {names}"])
    label = "random numbers like results of all kinds"
    return case(rng, label, {"r": RELU}, nodes, removed=["h"])


def names_of_an_underscore(rng):
    """Joined by underscores, v and 1 and 2 are v_1 and 2."""
    nodes = "x input; y input; a function clamp x 1 2; b function clamp y 2; out output a b"
    made = case(rng, "names that end with an underscore and a number", {}, nodes, removed=[])
    rows = made.inputs["program"]["nodes"]
    for row, read_by, name in zip(rows[:2], rows[2:4], ("v", "v_1"), strict=True):
        row["name"] = read_by["inputs"][0] = name
    return made


def large_whole_numbers(rng):
    nodes = (
        "x input; a function mul x 1000; b function mul x 1000; c function mul x 1000000000; "
        "d function mul x 1000000001; out output a b c d"
    )
    return case(rng, "large whole numbers", {}, nodes, removed=["b"])
