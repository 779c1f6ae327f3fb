"""One driver for all rewriting by patterns: a table of `{pattern: rule}`.

A rule gets the match, and what the pattern's names stand for as parameters. It changes the graph
through `match.editor` and returns what it did, in a few words. Or it raises `Declined(reason)`
before it has changed anything, and the place is left as it is; the reason is reported.

    def drop_zero(match, x, sum):
        match.editor.replace(sum, x)
        return f"it was {x}"

    rewrite(graph_module, {OpPattern([operator.add], (Value("x"), 0), name="sum"): drop_zero})
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from helpers.graphs.editing import Editor
from helpers.graphs.errors import Declined
from helpers.graphs.matching import Match, Matcher
from helpers.graphs.patterns import OpPattern

Rule = Callable[..., str]
Rules = Mapping[OpPattern, Rule]


@dataclass
class Outcome:
    """What was changed, each as (node, what), and what was declined, as (node, reason)."""

    changed: list[tuple[str, str]] = field(default_factory=list)
    declined: list[tuple[str, str]] = field(default_factory=list)

    def change(self, node: fx.Node | str, what: str) -> None:
        """Note a change at `node`."""
        self.changed.append((str(node), what))

    def decline(self, node: fx.Node | str, reason: Any) -> None:
        """Note down that `node` was left as it is, and why."""
        self.declined.append((str(node), str(reason)))


def rewrite(graph_module: fx.GraphModule, rules: Rules) -> Outcome:
    """Rewrite what the patterns match, in place: one walk through the graph for each rule.

    Only the rules that come later look at what a rule inserts. Where a rewrite makes another one
    possible for an earlier rule, or further up, a `Passer` runs all of them again.
    """
    outcome = Outcome()
    for pattern, rule in rules.items():
        # A new editor for each, since what shares storage with what may have changed.
        _walk(Matcher(Editor(graph_module)), pattern, rule, outcome)
    return outcome


def _walk(matcher: Matcher, pattern: OpPattern, rule: Rule, outcome: Outcome) -> None:
    """Offer each match to a rule, in graph order."""

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
