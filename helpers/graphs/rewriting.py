"""One driver for all rewriting by patterns: a table of `{pattern: rule}`.

A rule gets the match, and what the pattern's names stand for as parameters. It changes the graph
through `match.editor` and returns what it did, in a few words. Or it raises `Declined(reason)`
before it has changed anything, and the place is left as it is; the reason is reported.

    def drop_zero(match, x, sum):
        match.editor.replace(sum, x)
        return f"it was {x}"

    rewrite(graph_module, {OpPattern([operator.add], (Value("x"), 0), name="sum"): drop_zero})

`replace_all` is for rules that only build something new in the place of a match.

Example:
    >>> silu = pattern_of(lambda x: x * torch.sigmoid(x))
    >>> call_silu = lambda match: graph_module.graph.call_function(F.silu, (match["x"],))
    >>> replace_all(graph_module, silu, call_silu)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import fx

from helpers.graphs.editing import Editor
from helpers.graphs.errors import Declined
from helpers.graphs.matching import Matcher
from helpers.graphs.patterns import Match, OpPattern

Rule = Callable[..., str]
Rules = Mapping[OpPattern, Rule]

PROVENANCE = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn")
VALUES = ("val", "tensor_meta")


@dataclass
class Outcome:
    """What was changed, each as (node, what), and what was declined, as (node, reason)."""

    changed: list[tuple[str, str]] = field(default_factory=list)
    declined: list[tuple[str, str]] = field(default_factory=list)

    def change(self, node: fx.Node | str, what: str) -> None:
        """Note a change at `node`."""
        self.changed.append((str(node), what))

    def decline(self, node: fx.Node | str, reason: Any) -> None:
        """Note that `node` was left as it is, and why."""
        self.declined.append((str(node), str(reason)))


def rewrite(graph_module: fx.GraphModule, rules: Rules, *, once: bool = False) -> Outcome:
    """Rewrite what the patterns match, in place: rule by rule, each until nothing matches.

    Args:
        once: walk through the graph once for each rule; what a rule inserts is not looked at.

    Raises:
        RuntimeError: a rule matches its own result again and again.
    """
    outcome = Outcome()
    matcher = Matcher(Editor(graph_module))
    limit = 2 * len(graph_module.graph.nodes)
    for pattern, rule in rules.items():
        walk = _walk(matcher, pattern, rule)
        while walk.changed:
            outcome.changed += walk.changed
            if once:
                break
            if len(outcome.changed) > limit:
                place = f"the rule for {pattern} still matches at {walk.changed[-1][0]}"
                done = len(outcome.changed)
                raise RuntimeError(f"{place} after {done} rewrites: it must change its match")
            walk = _walk(matcher, pattern, rule)
        outcome.declined += walk.declined
    return outcome


def _walk(matcher: Matcher, pattern: OpPattern, rule: Rule) -> Outcome:
    """Offer each match to a rule, in graph order."""
    outcome = Outcome()

    def apply(match: Match) -> str:
        what = rule(match, **match.named)
        if not isinstance(what, str):
            raise TypeError(f"the rule for {pattern} returned {what!r}: it must say what it did")
        return what

    for anchor in matcher.anchors(pattern):
        try:
            what = matcher.first(pattern, anchor, apply)
        except Declined as reason:
            outcome.decline(anchor, reason)
            continue
        if what is not None:
            outcome.change(anchor, what)
    if outcome.changed:  # what shares storage with what may have changed as well
        vars(matcher.editor).pop("storage", None)
    return outcome


class Replacement(NamedTuple):
    """What one replacement did: the names of the nodes that went, the nodes that came, and the node
    map of the match.
    """

    anchor: str
    removed: tuple[str, ...]
    inserted: tuple[fx.Node, ...]
    result: fx.Node
    nodes_map: dict[Any, Any]


def replace_all(
    graph_module: fx.GraphModule,
    pattern: OpPattern,
    build: Callable[[Match], fx.Node],
    filters: Sequence[Callable[[Match], None]] = (),
) -> list[Replacement]:
    """Replace every match of a pattern by what `build` makes, in place.

    The new nodes inherit the anchor's source line and its module stack, and the new result its fake
    value too, since it is the same. The matched nodes go, but for those that are still used.

    Args:
        build: makes the new nodes where the graph inserts, and returns the new result.
        filters: conditions on a match; each raises `Declined` if it is not to be replaced.

    Returns:
        One report for each match, in graph order.

    Raises:
        RuntimeError: `build` returned something else than a node. That match is as before, as after
            any other error.
    """
    replaced: list[Replacement] = []

    def rule(match: Match, **named: Any) -> str:
        for check in filters:
            check(match)
        replaced.append(_replace(match, build))
        return f"replaced by {replaced[-1].result}"

    try:
        rewrite(graph_module, {pattern: rule}, once=True)
    finally:
        graph_module.recompile()
    return replaced


def _replace(match: Match, build: Callable[[Match], fx.Node]) -> Replacement:
    graph, anchor, following = match.editor.graph, match.anchor, match.anchor.next
    try:
        with graph.inserting_before(following):
            result = build(match)
        if not isinstance(result, fx.Node):
            raise RuntimeError(
                f"the replacement of the match at {anchor} is {result}, and must be one node"
            )
    except BaseException:
        for node in reversed(_between(anchor, following)):
            graph.erase_node(node)
        raise
    inserted = _between(anchor, following)
    for node in inserted:
        copy_meta(anchor, node, PROVENANCE)
    if result in inserted:
        copy_meta(anchor, result, VALUES)
    anchor.replace_all_uses_with(result, delete_user_cb=lambda user: user not in inserted)
    unused = []
    for node in sorted(match.vanishing, reverse=True):
        if not node.users:
            unused.append(node.name)
            graph.erase_node(node)
    return Replacement(anchor.name, tuple(unused), inserted, result, match.nodes)


def _between(start: fx.Node, end: fx.Node) -> tuple[fx.Node, ...]:
    nodes = []
    while start.next is not end:
        start = start.next
        nodes.append(start)
    return tuple(nodes)


def copy_meta(old: fx.Node, new: fx.Node, keys: Sequence[str]) -> None:
    """Give a new node the notes of the old one that it lacks."""
    for key in keys:
        if key in old.meta:
            new.meta.setdefault(key, old.meta[key])
