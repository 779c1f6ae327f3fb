"""Large graphs in which much is drawn, so that what is rarely thought of meets. Each node is drawn
together with what has to become of it.
"""

from itertools import product

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
    uneven,
)

ONE = ("relu", "sigmoid", "tanh", "abs")
TWO = ("add", "sub", "maximum")
NUMBERED = ("add", "sub", "mul")
NUMBERS = ("0", "-1", "-2", "2", "0.5", "-0.5", "2.5")
START = ("x input", "y input")


def _function(rng, values):
    """A function of a value, of a value and a number in either order, or of two values."""
    one, two, number = pick(rng, values), pick(rng, values), pick(rng, NUMBERS)
    return pick(
        rng,
        (
            f"function {pick(rng, ONE)} {one}",
            f"function {pick(rng, NUMBERED)} {one} {number}",
            f"function {pick(rng, NUMBERED)} {number} {one}",
            f"function {pick(rng, TWO)} {one} {two}",
        ),
    )


def _method(rng, values, methods=METHODS):
    return f"method {pick(rng, methods).format(pick(rng, values))}"


def _call(rng, values, layers):
    """A call of any kind."""
    layer = f"layer {pick(rng, layers)} {pick(rng, values)}"
    return pick(rng, (_function(rng, values), _method(rng, values), layer))


def _unread(rows):
    """The names of the nodes that no other node reads, such as a and b in "b function abs x"."""
    read = {word for row in rows for word in row.split()[3:]}
    return [name for name in (row.split()[0] for row in rows) if name not in read]


def _layers(rng):
    """Layers of all kinds, of which some have two names."""
    names = {"again": {"same_as": "c"}, "twin": {"same_as": "t"}, "more": {"same_as": "i"}}
    plain = {"r": RELU, "i": IDENTITY, "e": IDENTITY | {"training": False}, "o": DROPOUT}
    norms = {"n": bn(rng), "t": bn(rng, training=True)}
    return {"c": conv(rng)} | norms | plain | {"p": ACTIVE_DROPOUT} | names


def _in_either_mode(rng, label, layers, rows, results, **probe):
    """A graph whose mode as a whole is drawn."""
    nodes = "; ".join([*rows, f"out output {' '.join(results)}"])
    made = case(rng, label, layers, nodes, **probe)
    made.inputs["program"]["training"] = pick(rng, (False, True))
    return made


def many_calls(rng, label):
    """Some names are called by no node, some by several."""
    layers = _layers(rng) | {"like": RELU, "third": {"same_as": "c"}}
    called, rows, values = shuffled(rng, list(layers))[:8], [*START], ["x", "y"]
    for i in range(24):
        rows.append(f"v{i} {_call(rng, values, called)}")
        values.append(f"v{i}")
    return _in_either_mode(rng, label, layers, rows, ["x", *_unread(rows)])


def live_and_dead(rng, label):
    """What lives reads nothing that is dead; it is read, or an output, or does more."""
    layers, rows, lively, removed = _layers(rng), [*START], [*START], []
    quiet, norms = [name for name in layers if name not in ("t", "twin")], ("t", "twin")
    alive, everything, acts = ["x", "y"], ["x", "y"], ["x", "y"]
    for i, role in enumerate(shuffled(rng, ["lives"] * 16 + ["acts"] * 8 + ["dead"] * 24)):
        name, values = f"v{i}", everything if role == "dead" else alive
        call = _call(rng, values, quiet)
        if role == "acts":
            norm = f"layer {pick(rng, norms)} {pick(rng, values)}"
            call = pick(rng, (norm, _method(rng, values, IN_PLACE)))
            acts.append(name)
        if role == "dead":
            call = pick(rng, (call, call, call, f"function random {pick(rng, values)}"))
            removed.append(name)
        else:
            alive.append(name)
            lively.append(f"{name} {call}")
        everything.append(name)
        rows.append(f"{name} {call}")
    results = [name for name in _unread(lively) if name not in acts]
    return _in_either_mode(rng, label, layers, rows, ["x", *results], removed=removed)


def many_identities(rng, label):
    """Identities and dropouts of both modes, also in rows, and whatever else may read them."""
    layers, rows, values, removed = _layers(rng), [*START], ["x", "y"], []
    gone = ("i", "e", "o", "more")
    others = [name for name in layers if name not in gone]
    for i, goes in enumerate(shuffled(rng, [True] * 18 + [False] * 18)):
        row = f"layer {pick(rng, gone)} {pick(rng, values)}"
        if goes:
            removed.append(f"v{i}")
        else:
            row = pick(rng, (_call(rng, values, others), _method(rng, values, IN_PLACE)))
        rows.append(f"v{i} {row}")
        values.append(f"v{i}")
    results = [*_unread(rows), pick(rng, values), pick(rng, values)]
    return _in_either_mode(rng, label, layers, rows, results, removed=removed)


def many_repeats(rng, label, in_place=False):
    """A repeat reads what an earlier node reads, or repeats of that."""
    layers, rows, removed, made = _layers(rng), [*START], [], {}
    first = {"x": "x", "y": "y"}  # of every value the node that computes it first
    for i in range(40):
        name, values = f"v{i}", list(first)
        kinds = [_function(rng, values)] * 3 + [f"function random {pick(rng, values)}"]
        row = pick(rng, (*kinds, _method(rng, values), f"layer {pick(rng, list(layers))} x"))
        if made and pick(rng, (False, True)):
            row = _again(rng, pick(rng, list(made)), first)
        if in_place and i == 20:
            row = _method(rng, values, IN_PLACE)
        kind, target, *inputs = row.split()
        value = (target, *(first.get(word, word) for word in inputs))
        first[name] = name
        if kind == "function" and target != "random":
            first[name] = made.setdefault(value, name)
        if first[name] != name:
            removed.append(name)
        rows.append(f"{name} {row}")
    results = [*_unread(rows), pick(rng, list(first))]
    return _in_either_mode(rng, label, layers, rows, results, removed=[] if in_place else removed)


def _again(rng, value, first):
    """The same function of the same values, each of any node that computes it."""
    target, *inputs = value
    words = [
        pick(rng, [name for name, one in first.items() if one == word] or [word]) for word in inputs
    ]
    return f"function {target} {' '.join(words)}"


def norms_of_all_kinds(rng, label):
    """One norm for each set of what may speak against folding it, and what has no convolution."""
    layers = {"c": conv(rng), "r": RELU, "i": IDENTITY, "n": bn(rng), "t": bn(rng, training=True)}
    start = [*START, "f function sigmoid y", "g method neg x", "h layer r x", "j layer i f"]
    start += ["k layer c x", "l layer i k"]
    blocks = [[f"n{source} layer {pick(rng, 'nt')} {source}"] for source in "xfghjl"]
    reasons, removed = {block[0].split()[0]: "no convolution" for block in blocks}, []
    results = list(reasons)
    for k, against in enumerate(product((False, True), repeat=3)):
        made = _block(rng, k, *against)
        layers |= made["layers"]
        blocks.append(made["rows"])
        reasons |= made["reasons"]
        removed += made["removed"]
        results += made["results"]
    order = shuffled(rng, [block for block in blocks for _ in block])
    rows = [*start, *(block.pop(0) for block in order)]
    told = {"reasons": reasons, "removed": removed}
    return _in_either_mode(rng, label, layers, rows, results, **told)


def _block(rng, k, training, read, shared):
    """A convolution, a norm, and often more norms after it."""
    width = pick(rng, (1, 2, 3, 5))
    sizes = {
        "kernel": uneven(rng, (1, 2, 3)),
        "padding": (pick(rng, (0, 1, 2)), pick(rng, (0, 1, 2))),
    }
    layers = {f"c{k}": conv(rng, out=width, **sizes), f"d{k}": {"same_as": f"c{k}"}}
    layers |= {f"n{k}": bn(rng, training, width), f"m{k}": {"same_as": f"n{k}"}}
    convs, norms, sources = (f"c{k}", f"d{k}"), (f"n{k}", f"m{k}"), "xyfghj"
    conv_row = f"a{k} layer {pick(rng, convs)} {pick(rng, sources)}"
    norm_row = f"b{k} layer {pick(rng, norms)} a{k}"
    readers = [f"q{k} {_reader(rng, f'a{k}')}"] if read else []
    rows = [conv_row, *shuffled(rng, [norm_row, *readers])]
    if shared:
        place = pick(rng, range(len(rows) + 1))
        rows.insert(place, f"s{k} layer {pick(rng, convs)} {pick(rng, sources)}")
    against = (("training", training), ("several readers", read), ("shared", shared))
    reason = next((reason for reason, applies in against if applies), "fold")
    reasons, removed, last = {f"b{k}": reason}, [f"b{k}"] if reason == "fold" else [], f"b{k}"
    for i in range(pick(rng, (0, 1, 2))):
        trains, name = pick(rng, (False, False, True)), f"e{k}{i}"
        layers[name] = bn(rng, trains, width)
        rows.append(f"{name} layer {name} {last}")
        reasons[name] = "no convolution"
        if last in removed and not trains:
            removed.append(name)
        last = name
    results = shuffled(rng, [last, *(row.split()[0] for row in rows if row[0] in "qs")])
    results = results if pick(rng, (False, True)) else [last]
    return {"layers": layers, "rows": rows, "reasons": reasons, "removed": removed} | {
        "results": results
    }


def _reader(rng, value):
    """What reads a value of any number of channels."""
    functions = (f"function mul {value} $", f"function add {value} {value}", f"layer r {value}")
    return pick(rng, (*functions, _method(rng, [value]), _method(rng, [value], IN_PLACE)))
