"""The exercises of a2, graph passes. Secret: holds the oracles.

No oracle works on a graph. Each case says which nodes have to go; what the graph computes is found
by executing the plain description that it was made from, in graphs/. Names and constants are drawn,
so that no answer can rely on them.
"""

from driver import RUNS, VIEWS, build, describe_layer, execute, kinds_of
from graphs import calls, dead, identities, norms, repeats

from helpers.checks.compare import Tolerance
from helpers.checks.specification import Assignment, Item

# so that new layers may be of torch's usual float32
CLOSE = Tolerance(relative=1e-5, absolute=1e-7)


def _rewrite_oracle(inputs, probe):
    program, removed = inputs["program"], probe["removed"]
    resolved = {
        name: program["layers"][layer.get("same_as", name)]
        for name, layer in program["layers"].items()
    }
    given = build(program)
    return {
        "number returned": len(removed),
        "kinds of nodes": kinds_of(
            [row for row in program["nodes"] if row["name"] not in removed], resolved
        ),
        "outputs": execute(program | {"layers": resolved}, probe["x"]),
        "the given modules (make new ones)": {
            name: describe_layer(given.get_submodule(name)) for name in program["layers"]
        },
    }


def _calls_oracle(inputs, probe):
    layers = inputs["program"]["layers"]
    called = [row["target"] for row in inputs["program"]["nodes"] if row["kind"] == "layer"]
    owners = [layers[name].get("same_as", name) for name in called]
    return {name: owners.count(owner) for name, owner in zip(called, owners, strict=True)}


def _reason_oracle(inputs, probe):
    return probe["reasons"]


READY_MADE = (
    "torch.fx.graph.Graph.eliminate_dead_code",
    "torch.fx.experimental.optimization.*",
    "torch.fx.passes.*",
    "torch.nn.utils.fusion.*",
    "torch.ao.*",
    "torch._inductor.fx_passes.*",
    "torch._functorch.compile_utils.*",
    "torch._functorch.partitioners.*",
    "torch._C._jit_pass_*",
    "torch._C._freeze_module",
)


def _item(name, points, cases, oracle, edges, nudge, hint):
    return Item(
        name,
        cases,
        oracle,
        points=points,
        edges=edges,
        nudge=nudge,
        hint=hint,
        tolerance=CLOSE,
        forbidden=READY_MADE,
        run=RUNS[name],
        **({"view": VIEWS[name]} if name in VIEWS else {}),
    )


ITEMS = (
    _item(
        "calls_per_module",
        8,
        calls.calls_cases,
        _calls_oracle,
        calls.calls_edges,
        "Which nodes run a module, and is the key their name or their target, which may have dots?",
        "Two names may lead to one and the same module: compare the modules, not the names",
    ),
    _item(
        "remove_dead",
        14,
        dead.dead_cases,
        _rewrite_oracle,
        dead.dead_edges,
        "After a node is removed, who has lost the last reader? And which nodes do more than "
        "compute?",
        "What dies when its reader is gone? Inputs, in-place methods and norms in training mode "
        "stay",
    ),
    _item(
        "remove_identities",
        12,
        identities.identity_cases,
        _rewrite_oracle,
        identities.identity_edges,
        "Who reads the node that you remove, and in which mode does a dropout change nothing?",
        "Every reader of the node, the output too, has to read its input; "
        "dropout in training mode stays",
    ),
    _item(
        "merge_repeats",
        16,
        repeats.repeat_cases,
        _rewrite_oracle,
        repeats.repeat_edges,
        "When do two nodes with the same function and inputs still give different results?",
        "Same function, same inputs in the same order; "
        "never random functions, nor any graph with in-place methods",
    ),
    _item(
        "why_not_folded",
        18,
        norms.norm_cases,
        _reason_oracle,
        norms.reason_edges,
        "Go through the table from the top: which row is the first one that applies?",
        "The reasons are asked in the order of the table, and a shared module may hide behind two "
        "names",
    ),
    _item(
        "fold_norms",
        20,
        norms.norm_cases,
        _rewrite_oracle,
        norms.fold_edges,
        "Who else may still use the modules that you were given?",
        "Fold only where no reason speaks against it, and look again after each fold. The new "
        "module keeps all settings of the old one; the given modules stay as they were",
    ),
)

ASSIGNMENT = Assignment("a2", "Graph passes", ITEMS, manual_points=12)
