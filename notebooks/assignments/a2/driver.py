"""How the exercises of a2 are run and looked at.

Holds no answer: it travels to students and into the box.

A graph travels as plain data: `layers` describes modules by name, `nodes` lists what is computed in
order. An input of a node is the name of an earlier node, or a number. `build` makes an
fx.GraphModule of it, `describe` goes back, and `execute` computes a description without torch.fx,
for graphs that nobody vouches for.
"""

import operator

import torch
import torch.nn.functional as F
from torch import fx, nn

FUNCTIONS = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "maximum": torch.maximum,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "abs": torch.abs,
    "clamp": torch.clamp,
    "addcmul": torch.addcmul,
    "random": torch.rand_like,
    "plus": operator.add,  # as x + y becomes
    "times": operator.mul,
    "above": torch.gt,
    "both": operator.and_,
}
NAMES = {function: name for name, function in FUNCTIONS.items()}
METHODS = ("neg", "type_as", "view_as", "square", "clamp_min")
METHODS += ("add_", "mul_", "sub_", "neg_", "square_", "tanh_", "sigmoid_", "clamp_min_")
STATE = {"conv": ("weight", "bias"), "bn": ("weight", "bias", "running_mean", "running_var")}


def build(program):
    """Make an fx.GraphModule; layers with the same "same_as" are one and the same module under
    several names.

    The mode of the whole is that of no layer: "training" sets it alone.
    """
    root, graph, made = nn.Module(), fx.Graph(), {}
    for name, layer in program["layers"].items():
        made[name] = made[layer["same_as"]] if "same_as" in layer else _layer(layer)
        _put(root, name, made[name])
    for row in program["nodes"]:
        inputs = tuple(
            made["node " + value] if isinstance(value, str) else value for value in row["inputs"]
        )
        kind, name = row["kind"], row["name"]
        if kind == "input":
            node = graph.placeholder(name)
        elif kind == "output":
            node = graph.output(inputs[0] if len(inputs) == 1 else inputs)
        elif kind == "layer":
            node = graph.create_node("call_module", row["target"], inputs, name=name)
        elif kind == "method":
            node = graph.create_node("call_method", row["target"], inputs, name=name)
        else:
            node = graph.create_node("call_function", FUNCTIONS[row["target"]], inputs, name=name)
        made["node " + name] = node
    graph_module = fx.GraphModule(root, graph)
    for name in program["layers"]:  # those that no node calls, too
        _put(graph_module, name, root.get_submodule(name))
        if "." in name:  # the mode of what is around a layer is not its own
            graph_module.get_submodule(name.rpartition(".")[0]).training = False
    graph_module.training = program.get("training", True)
    return graph_module.requires_grad_(False)  # as in the lessons: NumPy takes it


def _put(module, name, layer):
    """Add a layer; what stands before a dot in its name is the name of a module around it."""
    *outer, last = name.split(".")
    for one in outer:
        if not hasattr(module, one):
            module.add_module(one, nn.Module())
        module = getattr(module, one)
    module.add_module(last, layer)


def _layer(layer):
    kind = layer["kind"]
    if kind == "conv":
        weight = layer["weight"]
        conv = nn.Conv2d(
            weight.shape[1],
            weight.shape[0],
            tuple(weight.shape[2:]),
            padding=tuple(layer["padding"]),
            bias=layer["bias"] is not None,
            dtype=weight.dtype,
        )
        conv.weight.data = weight
        if layer["bias"] is not None:
            conv.bias.data = layer["bias"]
        return conv.train(layer["training"])
    if kind == "bn":
        bn = nn.BatchNorm2d(len(layer["weight"]), eps=layer["eps"], dtype=layer["weight"].dtype)
        bn.weight.data, bn.bias.data = layer["weight"], layer["bias"]
        bn.running_mean, bn.running_var = layer["running_mean"], layer["running_var"]
        return bn.train(layer["training"])
    if kind == "dropout":
        dropout = nn.Dropout(layer.get("p", 0.5), layer.get("inplace", False))
        return dropout.train(layer["training"])
    return {"relu": nn.ReLU, "identity": nn.Identity}[kind]().train(layer["training"])


def describe(graph_module):
    """Turn an fx.GraphModule into plain data."""
    nodes, layers = [], {}
    for node in graph_module.graph.nodes:
        values = (*node.args, *node.kwargs.values())
        values = (
            values[0] if node.op == "output" and isinstance(values[0], tuple | list) else values
        )
        row = {
            "name": node.name,
            "inputs": [v.name if isinstance(v, fx.Node) else v for v in values],
        }
        if node.op == "call_module":
            row |= {"kind": "layer", "target": node.target}
            layers[node.target] = describe_layer(graph_module.get_submodule(node.target))
        elif node.op == "call_function":
            row |= {"kind": "function", "target": NAMES.get(node.target, str(node.target))}
        elif node.op == "call_method":
            row |= {"kind": "method", "target": node.target}
        else:
            row |= {"kind": {"placeholder": "input"}.get(node.op, node.op)}
        nodes.append(row)
    return {"nodes": nodes, "layers": layers}


def describe_layer(layer):
    """Turn a module into plain data; what a graph has no kind for keeps only its class's name."""
    kinds = {
        nn.Conv2d: "conv",
        nn.BatchNorm2d: "bn",
        nn.ReLU: "relu",
        nn.Identity: "identity",
        nn.Dropout: "dropout",
    }
    kind = next(
        (kind for known, kind in kinds.items() if isinstance(layer, known)), type(layer).__name__
    )
    row = {
        "kind": kind,
        "types": sorted({str(tensor.dtype) for tensor in layer.state_dict().values()}),
    }
    row |= {"training": layer.training} | {
        name: getattr(layer, name) for name in STATE.get(kind, ())
    }
    if kind == "conv":
        words = {"same": [(size - 1) // 2 for size in layer.kernel_size], "valid": [0, 0]}
        named = isinstance(layer.padding, str)
        row["padding"] = words[layer.padding] if named else list(layer.padding)
    return row | ({"eps": layer.eps} if kind == "bn" else {})


def execute(program, x):
    """Compute a described graph on one image batch, and twice that for a second input.

    Returns the outputs.
    """
    values, drawn = {}, 0
    if len(program["nodes"]) > 100:
        raise ValueError("more nodes than were given")
    for row in program["nodes"]:
        inputs = [values[v] if isinstance(v, str) else float(v) for v in row["inputs"]]
        if row["kind"] == "output":
            return inputs
        if row["kind"] == "input":
            values[row["name"]] = x * (len(values) + 1)
        elif (row["kind"], row["target"]) == ("function", "random"):
            # Any fixed values do: what counts is that two draws stay two.
            generator, drawn = torch.Generator().manual_seed(drawn), drawn + 1
            shape = inputs[0].shape
            values[row["name"]] = torch.rand(shape, generator=generator, dtype=torch.float64)
        else:
            values[row["name"]] = _compute(program, row, inputs)
    raise ValueError("the graph has no output")


def _compute(program, row, inputs):
    if row["kind"] == "layer":
        return _compute_layer(program["layers"][row["target"]], inputs[0])
    if row["kind"] == "method":
        methods = {name: getattr(torch.Tensor, name) for name in METHODS}
        return methods[row["target"]](*inputs)
    if row["target"] not in FUNCTIONS:
        raise ValueError(f"a call of {row['target'][:60]} was not expected")
    return FUNCTIONS[row["target"]](*inputs)


def _compute_layer(layer, x):
    if layer["kind"] == "conv":
        if (
            layer["weight"].numel() > 100_000
            or len(layer["padding"]) != 2
            or not all(type(size) is int and 0 <= size <= 8 for size in layer["padding"])
        ):
            raise ValueError("a convolution of unexpected size")
        bias = None if layer["bias"] is None else layer["bias"].double()
        return F.conv2d(x, layer["weight"].double(), bias, padding=layer["padding"])
    if layer["kind"] == "bn":
        mean, var = (layer[name].double().clone() for name in ("running_mean", "running_var"))
        weight, bias = layer["weight"].double(), layer["bias"].double()
        return F.batch_norm(
            x, mean, var, weight, bias, training=bool(layer["training"]), eps=layer["eps"]
        )
    if layer["kind"] == "dropout" and layer["training"]:
        return (
            x * 0.5
        )  # stands for it: whoever removes it is found out, and nothing is left to chance
    if layer["kind"] == "relu":
        return x.relu()
    if layer["kind"] in ("identity", "dropout"):
        return x
    raise ValueError(f"a layer of kind {str(layer['kind'])[:30]!r} was not expected")


def ask(function):
    """Run a function that says something about a graph, and leaves it as it is."""

    def run(student, inputs):
        graph_module = build(inputs["program"])
        before = _state(graph_module)
        answer = student[function](graph_module)
        if _state(graph_module) != before:
            raise ValueError(f"{function} changed the graph or the modules that it was asked about")
        return answer

    return run


def _state(graph_module):
    """A graph and its modules as text, in which every number has all its digits."""
    rows = []
    for name, layer in graph_module.named_modules(remove_duplicate=False):
        described = (describe_layer(layer) | dict(layer.state_dict())).items()
        rows.append((name, [(k, v.tolist() if hasattr(v, "tolist") else v) for k, v in described]))
    return f"{graph_module.graph} {rows}"


def rewrite(function):
    """Run a pass; describe what it returned, its graph, and the modules that it was given.

    Any name will do for the layers in "spare": here they get those of the new modules that the pass
    makes when it is run for the first time. Of these is told what has the name afterwards.
    """

    def run(student, inputs):
        program = inputs["program"]
        names = {name: name for name in program["layers"]}
        if "spare" in inputs:
            spare = list(inputs["spare"])
            for _ in range(2):  # those that it gives where the first are taken, too
                made = _new_names(student[function], _renamed(program, names))
                names |= dict(zip(spare, made, strict=False))
                spare = spare[len(made) :]
            program = _renamed(program, names)
        graph_module = build(program)
        given = {name: graph_module.get_submodule(names[name]) for name in names}
        count = student[function](graph_module)
        _require_whole(graph_module.graph)
        graph_module.recompile()
        held = dict(graph_module.named_modules(remove_duplicate=False))
        for name in inputs.get("spare", ()):
            given[name] = held.get(names[name], given[name])
        return {
            "count": count,
            "program": describe(graph_module),
            "given": {name: describe_layer(layer) for name, layer in given.items()},
        }

    return run


def _new_names(function, program):
    """Where a pass puts new convolutions."""
    graph_module = build(program)
    before = {name for name, _ in graph_module.named_modules(remove_duplicate=False)}
    function(graph_module)
    after = graph_module.named_modules()
    return [name for name, made in after if name not in before and isinstance(made, nn.Conv2d)]


def _renamed(program, names):
    """The same program with other names of layers, none of which has two."""
    rows = [
        row | {"target": names[row["target"]]} if row["kind"] == "layer" else row
        for row in program["nodes"]
    ]
    layers = {names[name]: layer for name, layer in program["layers"].items()}
    return program | {"nodes": rows, "layers": layers}


def _require_whole(graph):
    """Raise an error unless nodes read and are read by nodes of this graph alone, and one is its
    output.
    """
    graph.lint()
    nodes = set(graph.nodes)
    if not any(node.op == "output" for node in nodes):
        raise ValueError("the graph has no output any more: its output node was removed")
    for node in nodes:
        if gone := set(node.users) - nodes:
            problem = f"{node} is still read by {gone.pop()}, which is no longer in the graph"
            raise ValueError(f"{problem}: use graph.erase_node")


def kinds_of(nodes, layers):
    """What each node is: the kind of its layer, its function or method, an input or the output."""
    return sorted(
        layers[n["target"]]["kind"] if n["kind"] == "layer" else n.get("target") or n["kind"]
        for n in nodes
    )


def view_rewrite(answer, probe):
    """What was done, what kinds of nodes are left, what the graph computes, and whether given
    modules were spared.
    """
    try:
        outputs = execute(answer["program"], probe["x"])
    except Exception as problem:
        raise ValueError(f"the graph that your function left cannot be run: {problem}") from problem
    return {
        "number returned": answer["count"],
        "kinds of nodes": kinds_of(answer["program"]["nodes"], answer["program"]["layers"]),
        "outputs": outputs,
        "the given modules (make new ones)": answer["given"],
    }


PASSES = ("remove_dead", "remove_identities", "merge_repeats", "fold_norms")
QUESTIONS = ("calls_per_module", "why_not_folded")
RUNS = {name: rewrite(name) for name in PASSES} | {name: ask(name) for name in QUESTIONS}
VIEWS = dict.fromkeys(PASSES, view_rewrite)
SCORES = {}
