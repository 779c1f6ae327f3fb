"""Patterns made of functions, and a search with options; lessons 02b, 04a and 04b teach with it.

    silu = pattern_of(lambda x: x * torch.sigmoid(x))
    find(graph_module, silu).matches

Example:
    >>> [(near_miss.node, near_miss.reason) for near_miss in find(graph_module, silu).declined]
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import fx

from helpers.graphs.editing import Editor
from helpers.graphs.effects import nodes_in
from helpers.graphs.errors import Declined
from helpers.graphs.matching import Match, Matcher
from helpers.graphs.operations import target_name
from helpers.graphs.patterns import Constant, OpPattern, Value

COMMUTATIVE_NAMES = {"add", "mul", "maximum", "minimum"}


def pattern_of(function: Callable[..., Any]) -> OpPattern:
    """The pattern that a function of one result computes: its arguments become values.

    Module calls match by the class of the module, so `function` may be an `nn.Module` whose
    submodules are examples. Addition and multiplication of two nodes match in either order.
    """
    example = fx.symbolic_trace(function)
    made: dict[fx.Node, Any] = {}
    for node in example.graph.nodes:
        if node.op == "placeholder":
            made[node] = Value(node.name)
        elif node.op == "get_attr":
            made[node] = Constant(node.name)
        elif node.op != "output":
            made[node] = _operation(example, node, made)
    result = example.graph.output_node().args[0]
    if not isinstance(result, fx.Node) or not isinstance(made[result], OpPattern):
        raise ValueError(
            "a pattern must return the result of one operation: no input, literal or several"
            " results"
        )
    return made[result]


def _operation(example: fx.GraphModule, node: fx.Node, made: dict[fx.Node, Any]) -> OpPattern:
    target = node.target
    if node.op == "call_module":
        target = type(example.get_submodule(target))
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), made.__getitem__)
    two_nodes = len(node.args) == 2 and all(isinstance(arg, fx.Node) for arg in node.args)
    commutative = two_nodes and target_name(target).split(".")[0] in COMMUTATIVE_NAMES
    return OpPattern([target], tuple(args), kwargs=kwargs, name=node.name, commutative=commutative)


class LessonMatch(Match):
    """A match that one can look into, and ask by the pattern's names."""

    @property
    def graph_module(self) -> fx.GraphModule:
        """Where it was found."""
        return self.editor.graph_module

    @property
    def placeholders(self) -> tuple[Any, ...]:
        """What stands for the pattern's values."""
        return tuple(node for part, node in self.nodes.items() if isinstance(part, Value))

    @property
    def returning(self) -> tuple[fx.Node, ...]:
        """The matched operations whose results are used outside the match."""
        inside = {*self.operations}
        return tuple(node for node in self.operations if not node.users.keys() <= inside)

    def __getitem__(self, name: str) -> Any:
        """The node (or literal) that the pattern calls `name`."""
        for part, node in self.nodes.items():
            if part.name == name:
                return node
        names = [part.name for part in self.nodes if part.name]
        raise KeyError(f"the pattern has no node {name!r}; it has {names}")

    def constant(self, name: str) -> Any:
        """The number or tensor of the constant that the pattern calls `name`."""
        return self.named[name]


def opened(match: Match) -> LessonMatch:
    """The same match, to be looked into."""
    return LessonMatch(match.editor, match.anchor, match.nodes)


class NearMiss(NamedTuple):
    """A piece of graph that has the shape of the pattern, and what keeps it from being a match."""

    node: fx.Node
    reason: str


class Found(NamedTuple):
    """What a search brought: the matches and the near misses, both in graph order."""

    matches: list[LessonMatch]
    declined: list[NearMiss]


def find(
    graph_module: fx.GraphModule,
    pattern: OpPattern,
    *,
    match_output: bool = False,
    match_placeholders: bool = False,
    any_literals: bool = False,
    allow_overlap: bool = False,
) -> Found:
    """Find every place where a pattern fits, and the near misses. The graph stays as it is.

    Args:
        match_output: the pattern's result must be exactly what the network returns.
        match_placeholders: the pattern's values must be inputs of the network.
        any_literals: every literal of the pattern stands for any literal.
        allow_overlap: keep matches that share operations; otherwise the first in graph order wins.
    """
    found = Found([], [])
    claimed: dict[fx.Node, fx.Node] = {}
    returned = graph_module.graph.output_node().args[0]
    matcher = Matcher(Editor(graph_module))
    sought = _with_any_literals(pattern, {}) if any_literals else pattern

    def accept(match: Match) -> None:
        if match_output and returned is not match.anchor:
            raise Declined(f"is not what the network returns ({returned})")
        if match_placeholders:
            _check_inputs(match)
        shared = [node for node in match.operations if node in claimed]
        if shared and not allow_overlap:
            raise Declined(f"{shared[0]} already belongs to the match at {claimed[shared[0]]}")
        claimed.update(dict.fromkeys(match.operations, match.anchor))
        found.matches.append(opened(match))

    for anchor in matcher.anchors(sought):
        try:
            matcher.first(sought, anchor, accept)
        except Declined as reason:
            found.declined.append(NearMiss(anchor, str(reason)))
    return found


def _check_inputs(match: Match) -> None:
    for part, value in match.nodes.items():
        is_input = isinstance(value, fx.Node) and value.op == "placeholder"
        if isinstance(part, Value) and part.name and not is_input:
            raise Declined(f"{value} is not an input of the network")


def _with_any_literals(part: Any, made: dict[OpPattern, OpPattern]) -> Any:
    """The pattern with a value in place of each literal; what stands in two places stays one."""
    if isinstance(part, Value):
        return part
    if isinstance(part, (list, tuple)):
        return type(part)(_with_any_literals(one, made) for one in part)
    if not isinstance(part, OpPattern):
        return Value("", where=_check_literal)
    if part not in made:
        made[part] = OpPattern(
            part.targets,
            (*_with_any_literals(part.args, made), *([...] if part.allows_others else [])),
            kwargs={key: _with_any_literals(one, made) for key, one in part.kwargs.items()},
            name=part.name,
            commutative=part.commutative,
        )
    return made[part]


def _check_literal(value: Any) -> None:
    if nodes_in(value):
        raise Declined(f"{value} is not a literal")
