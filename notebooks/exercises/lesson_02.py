"""Lesson 02.

The learner's functions get a traced network; the oracles know how it was put together.
"""

import re
from collections.abc import Mapping
from typing import Any

import torch
from exercise_inputs import between
from torch import fx, nn

from helpers.checks.compare import Tolerance
from helpers.checks.specification import Case, Item, Mistake
from helpers.graphs.errors import Declined

LAYERS = {
    "linear": lambda: nn.Linear(4, 4),
    "relu": nn.ReLU,
    "identity": nn.Identity,
    "norm": lambda: nn.BatchNorm1d(4),
}


class Branches(nn.Module):
    """Layers in a row, and the sum of the last two values: so that a value is read twice.
    Identities may cross over; then the sum reads the value that they pass by, so that none is dead.
    """

    def __init__(self, kinds: list[str], crossing: bool):
        super().__init__()
        self.crossing = crossing
        self.layers = nn.ModuleList([LAYERS[kind]() for kind in kinds])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run them."""
        values = [x]
        for layer in self.layers:
            values.append(
                layer(values[-2 if self.crossing and isinstance(layer, nn.Identity) else -1])
            )
        return values[-1] + values[-3 if self.crossing else -2]


def traced(inputs: dict) -> fx.GraphModule:
    """The network of a case, with weights from its seed, traced."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(inputs["seed"])
        return fx.symbolic_trace(Branches(inputs["kinds"], inputs.get("crossing", False)).eval())


def layer_cases(rng: torch.Generator) -> list[Case]:
    """Rows of layers with identities in all places: at the front, at the end, two in a row."""
    cases = []
    endings = {
        "an identity at the end": ["linear", "identity"],
        "two identities in a row": ["identity", "identity"],
    }
    for label, ends in endings.items():
        kinds = [list(LAYERS)[between(rng, 0, 2)] for _ in range(between(rng, 2, 6))] + ["relu"]
        cases.append(Case(label, {"kinds": kinds + ends, "seed": between(rng, 0, 10**6)}))
    kinds = ["identity", "linear", "identity", "relu"]
    cases.append(Case("an identity in front", {"kinds": kinds, "seed": between(rng, 0, 10**6)}))
    crossing = {
        "kinds": ["linear", "linear", "identity", "linear"],
        "seed": between(rng, 0, 10**6),
        "crossing": True,
    }
    cases.append(Case("an identity that reads another layer than the one before it", crossing))
    cases.append(
        Case(
            "a BatchNorm that changes little",
            {"kinds": ["linear", "norm"], "seed": between(rng, 0, 10**6)},
        )
    )
    cases.append(
        Case("no identity at all", {"kinds": ["linear", "relu"], "seed": between(rng, 0, 10**6)})
    )
    return cases


def run_count(student: Mapping[str, Any], inputs: dict) -> dict:
    """Hand over the graph."""
    return student["nodes_by_op"](traced(inputs).graph)


def count_oracle(inputs: dict, probe: dict) -> dict:
    """Known from the way in which the network was built."""
    return {"placeholder": 1, "call_module": len(inputs["kinds"]), "call_function": 1, "output": 1}


def as_plain(answer: Any, probe: dict) -> dict:
    """A dictionary, also from a Counter."""
    return {str(op): int(count) for op, count in dict(answer).items()}


def run_remove(student: Mapping[str, Any], inputs: dict) -> dict:
    """Hand over the network; look at what became of it.

    Returning it is allowed, changing it in place too.
    """
    graph_module = traced(inputs)
    returned = student["remove_identities"](graph_module)
    if returned not in (None, graph_module):
        raise TypeError("change the graph module that you are given: another one came back")
    graph_module.graph.lint()
    stale = graph_module.code
    graph_module.recompile()
    left = [node for node in graph_module.graph.nodes if node.op == "call_module"]
    layers = dict(graph_module.named_modules())
    read = [node for node in left if node.users and type(layers.get(node.target)) is nn.Identity]
    x = torch.linspace(-2, 2, 12).reshape(3, 4)
    return {
        "modules called": len(left),
        "nodes": len(graph_module.graph.nodes),
        "identities that are read": len(read),
        "the code is that of the graph": stale == graph_module.code,
        "output": graph_module(x).detach(),
    }


def remove_oracle(inputs: dict, probe: dict) -> dict:
    """The network as it was, and the number of layers that are no identity."""
    kept = sum(kind != "identity" for kind in inputs["kinds"])
    x = torch.linspace(-2, 2, 12).reshape(3, 4)
    return {
        "modules called": kept,
        "nodes": kept + 3,
        "identities that are read": 0,
        "the code is that of the graph": True,
        "output": traced(inputs)(x).detach(),
    }


class Chain(nn.Module):
    """Negations in a row, and a ReLU whose loss changes the answers."""

    def __init__(self, length: int):
        super().__init__()
        self.length = length

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run it."""
        for _ in range(self.length):
            x = torch.neg(x)
        return torch.relu(x) + 1


SOUND = {"peel", "strip", "note", "idle"}  # the passes without a flaw
NOTES = 7  # how often `note` changes something


class Did:
    """What a pass returns."""

    def __init__(self, changed: list, declined: list):
        self.changed, self.declined = changed, declined


class Peel:
    """Takes two neighbouring negations out, one pair in each run.

    `flaw` says what goes wrong in it.
    """

    def __init__(self, name: str, log: list, flaw: str = ""):
        self.name, self.log, self.flaw = name, log, flaw
        self.runs = 0

    def requires(self, graph_module: fx.GraphModule) -> None:
        """May find the graph unsuitable."""
        self.log.append(f"{self.name} requires")
        if self.name == "idle":
            raise Declined("nothing to do")
        if self.flaw == "unfit":
            raise ValueError("not for such a graph")

    def run(self, graph_module: fx.GraphModule) -> Did:
        """Remove a pair; or do harm."""
        self.log.append(f"{self.name} runs")
        self.runs += 1
        if self.name == "note":  # rewrites something in its first runs, and removes nothing
            noted = ["a node"] if self.runs <= NOTES else []
            return Did(noted, [] if noted else ["nothing to note"])
        nodes = list(graph_module.graph.nodes)
        found = [
            node for node in nodes if node.target is torch.neg and node.args[0].target is torch.neg
        ]
        gone = found[:1] if not self.flaw else [node for node in nodes if node.target is torch.relu]
        for node in gone:
            inner = node.args[0]
            node.replace_all_uses_with(inner if self.flaw else inner.args[0])
            graph_module.graph.erase_node(node)
            if not self.flaw:
                graph_module.graph.erase_node(inner)
        if self.flaw == "tangler":
            nodes[-2].append(nodes[1])
        return Did([str(node) for node in gone], [] if gone else ["no pair is left"])

    def ensures(self, graph_module: fx.GraphModule) -> None:
        """May find its promise broken."""
        self.log.append(f"{self.name} ensures")
        if self.flaw == "liar":
            raise AssertionError("a promise was not kept")


def runner_cases(rng: torch.Generator) -> list[Case]:
    """Passes that need many rounds, that fail in each of the ways in which one can, and failures to
    be collected.
    """
    plans = {
        "to a fixed point": (["peel", "strip"], 9, False),
        "changes that leave the number of nodes": (["note", "peel"], 9, False),
        "no more rounds than allowed": (["peel"], 2, False),
        "one round": (["peel", "strip"], 1, False),
        "a pass with nothing to do": (["idle", "peel"], 9, False),
        "requires fails": (["peel", "unfit", "strip"], 3, False),
        "ensures fails": (["peel", "liar"], 3, False),
        "the check fails": (["peel", "strip", "spoiler"], 3, False),
        "the graph is out of order": (["peel", "tangler"], 3, False),
        "failures are collected": (["peel", "idle", "strip", "unfit", "spoiler"], 9, True),
    }
    return [
        Case(
            label,
            {
                "passes": names,
                "rounds": rounds,
                "collect": collect,
                "length": 2 * between(rng, 4, 6) + 1,
            },
        )
        for label, (names, rounds, collect) in plans.items()
    ]


def runner_parts(inputs: dict) -> tuple:
    """The graph, the passes, a check that notices stale code, and the list in which all of them
    note what they do.
    """
    log, x = [], torch.linspace(-2, 2, 7)
    graph_module = fx.symbolic_trace(Chain(inputs["length"]))
    some = [Peel(name, log, "" if name in SOUND else name) for name in inputs["passes"]]

    def check(graph_module: fx.GraphModule) -> None:
        log.append("checked")
        assert torch.equal(graph_module(x), Chain(inputs["length"])(x)), "the answers changed"
        assert graph_module.code.count("neg(") == sum(
            node.target is torch.neg for node in graph_module.graph.nodes
        )

    return graph_module, some, check, log


def run_runner(student: Mapping[str, Any], inputs: dict) -> dict:
    """Let the learner's runner run; look at its rows, at what it called, at its errors and at what
    is left.
    """
    graph_module, some, check, log = runner_parts(inputs)
    failures, rows = [] if inputs["collect"] else None, None
    try:
        rows = student["run_passes"](
            some, graph_module, checks=[check], rounds=inputs["rounds"], failures=failures
        )
    except NotImplementedError:
        raise
    except RuntimeError as error:
        if set(inputs["passes"]) <= SOUND:  # nothing fails here but the runner: show its line
            raise
        failures = [error]
    plain = [(*row[:4], len(row[4]), len(row[5])) for row in rows or []]
    return {
        "errors": [f"{type(error).__name__}: {error}" for error in failures or []],
        "rows": [
            "round {}, {}: {} nodes, then {}; {} changed, {} declined".format(*row) for row in plain
        ],
        "what idle declined": [repr(row[5]) for row in rows or [] if row[1] == "idle"],
        "calls": log,
        "nodes": len(graph_module.graph.nodes),
        "code": graph_module.code.count("neg(") + 100 * graph_module.code.count("relu("),
    }


def runner_oracle(inputs: dict, probe: dict) -> dict:
    """A bookkeeping of numbers: how many negations are left says all that can happen."""
    left, rows, calls, errors, ran = inputs["length"], [], [], [], []
    notes = 0
    for number in range(1, inputs["rounds"] + 1):
        start = left, min(notes, NOTES)
        for name in inputs["passes"]:
            steps = [f"{name} requires", f"{name} runs", f"{name} ensures", "checked"]
            calls += steps[: {"idle": 1, "unfit": 1, "liar": 3, "tangler": 3}.get(name, 4)]
            failed = name not in SOUND
            if failed:
                errors.append(said([name, *ran]))
                if not inputs["collect"]:
                    break
            notes += name == "note"
            gone = 2 if left > 2 and name in ("peel", "strip") else 0
            changed = int(notes <= NOTES) if name == "note" else gone // 2
            rows.append(
                f"round {number}, {name}: {left + 4} nodes, then {left - gone + 4}; "
                f"{changed} changed, {int(not changed and not failed)} declined"
            )
            left -= gone
            ran.append(name)
        if (left, min(notes, NOTES)) == start or (errors and not inputs["collect"]):
            break
    rows = [] if errors and not inputs["collect"] else rows
    declined = ["[('idle', 'nothing to do')]" for row in rows if ", idle:" in row]
    return {
        **{"errors": errors, "rows": rows, "what idle declined": declined, "calls": calls},
        **{"nodes": left + 4, "code": left + 100},
    }


def runner_view(answer: dict, probe: dict) -> dict:
    """Of an error only the names of passes: the one that failed, then those before it."""
    errors = []
    for text in answer["errors"]:
        kind, _, message = text.partition(": ")
        names = re.findall(r"\b(peel|strip|idle|unfit|liar|spoiler|tangler)\b", message)
        errors.append(
            said(names) if kind == "PassFailed" and message.startswith(tuple(names)) else text
        )
    return answer | {"errors": errors}


def said(names: list[str]) -> str:
    """What an error must say; of passes that ran before, each once."""
    return f"PassFailed: {names[0]}, after {', '.join(dict.fromkeys(names[1:])) or 'no other'}"


ITEMS = (
    Item(
        "nodes_by_op",
        layer_cases,
        count_oracle,
        run=run_count,
        view=as_plain,
        minutes=4,
        dots=1,
        nudge="Each node has an attribute `op`.",
        hint="Go through graph.nodes and count node.op; ops that do not occur have no entry.",
        mistakes=(
            Mistake(
                "You count the names of the nodes. The kind of a node is in `node.op`.",
                wrong="node.name",
                right="node.op",
            ),
            Mistake(
                "You note which ops there are, but not how often each one occurs. Count them.",
                wrong="return dict.fromkeys((node.op for node in graph.nodes), 1)",
            ),
            Mistake(
                "You count calls of layers only. The input, the output and calls of functions "
                "are nodes, too.",
                wrong="layers = [node for node in graph.nodes if node.op == 'call_module']\n"
                "return {'call_module': len(layers)}",
            ),
            Mistake(
                "Each of your numbers is one too small. The first node of a kind counts, too.",
                wrong="return {op: number - 1 for op, number in Counter(node.op for node in "
                "graph.nodes).items()}",
                right="return Counter(node.op for node in graph.nodes)",
            ),
        ),
    ),
    Item(
        "remove_identities",
        layer_cases,
        remove_oracle,
        run=run_remove,
        tolerance=Tolerance(1e-6, 1e-6),
        minutes=10,
        dots=2,
        nudge="Three steps: find the node, rewire its users, erase it.",
        hint="node.replace_all_uses_with(node.args[0]), then graph.erase_node(node); "
        "go through a copy of the list, and call graph_module.recompile() at the end.",
        mistakes=(
            Mistake(
                "Nothing reads your identities any more, but they are still in the graph. Erase "
                "them.",
                wrong="",
                right="            graph_module.graph.erase_node(node)\n",
            ),
            Mistake(
                "Your graph has not changed. Does any node pass your test? node.target is only "
                "the name of a layer, not the layer.",
                wrong="return graph_module",
            ),
            Mistake(
                "The graph is right, but the code of the module is still the old one. Recompile "
                "it after the last change.",
                wrong="",
                right="    graph_module.recompile()\n",
            ),
            Mistake(
                "The node before the identity in the list is not always the one that it reads. "
                "Take its input from args.",
                wrong="node.prev)",
                right="node.args[0])",
            ),
            Mistake(
                "You stop after the first identity. Go through every node.",
                wrong="erase_node(node)\n            break\n",
                right="erase_node(node)\n",
            ),
        ),
    ),
    Item(
        "run_passes",
        runner_cases,
        runner_oracle,
        run=run_runner,
        view=runner_view,
        minutes=25,
        dots=3,
        nudge="What has to be copied before a pass, so that it can be put back? When is it too "
        "late to copy it?",
        hint="saved = copy.deepcopy(graph_module.graph); "
        "try requires, run, ensures, lint, recompile, checks; except Declined: note the reason; "
        "except the other errors: graph_module.graph = saved, recompile, then raise PassFailed, "
        "with the name in front, or append it.",
        mistakes=(
            Mistake(
                "After a failure the graph is still as the failed pass left it. Put back a copy "
                "that you made before the pass.",
                wrong="",
                right="                graph_module.graph = saved\n",
            ),
            Mistake(
                "A round in which nothing changes should be the last. Your runner goes on.",
                wrong="            pass\n",
                right="            break\n",
            ),
            Mistake(
                "The checks that you were given are never called. Run each of them after the pass.",
                wrong="",
                right="                for check in checks:\n"
                "                    check(graph_module)\n",
            ),
            Mistake(
                "The message should also say which passes ran before the one that failed.",
                wrong="{a_pass.name}",
                right="{a_pass.name}{ran}",
            ),
            Mistake(
                "A graph whose nodes are in the wrong order gets past you. Let lint look at it "
                "before you recompile.",
                wrong="",
                right="                graph_module.graph.lint()\n",
            ),
            Mistake(
                "A pass that has nothing to do counts as failed. Catch Declined before the other "
                "errors, and note its reason.",
                wrong="except (Declined, ",
                right="except Declined as reason:\n"
                "                declined = [(a_pass.name, str(reason))]\n"
                "            except (",
            ),
        ),
    ),
)
