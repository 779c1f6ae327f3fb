"""The form that every fusing pass has: build the pattern, make the fused operation, insert it.

A fuser says only what is its own: which piece of graph it looks for, whether this one may be fused, and what takes its
place. Looking, replacing, counting and giving reasons are the same for all of them and stand here.

Example:
    >>> class FuseSilu(Fuser):
    ...     name = "fuse_silu"
    ...     def build_pattern(self):
    ...         return traced(lambda x: x * torch.sigmoid(x))
    ...     def make_op(self, match):
    ...         return match.graph_module.graph.call_function(F.silu, (match["x"],))
"""

from collections.abc import Sequence

from torch import fx

from helpers.graphs.matching import Match, find
from helpers.graphs.patterns import Op, Pattern
from helpers.graphs.replacing import Replacement, replace_matches
from helpers.passes.folder import Pass, PassResult


class Fuser(Pass):
    """A pass that replaces each match of one pattern by something fused."""

    def build_pattern(self) -> Op | Pattern:
        """Abstract: the piece of graph that this fuser looks for."""
        raise NotImplementedError(f"{type(self).__name__} has no build_pattern(): say what to look for")

    def may_fuse(self, match: Match) -> str | None:
        """Why this match must stay as it is, in one line; None when it may be fused."""

    def make_op(self, match: Match) -> fx.Node | tuple[fx.Node, ...]:
        """Abstract: make the fused operation at the graph's insertion point; one result for each anchor."""
        raise NotImplementedError(f"{type(self).__name__} has no make_op(): say what takes the place of a match")

    def insert(self, matches: Sequence[Match]) -> list[Replacement]:
        """Put the fused operation where the matches are, with their source lines and shapes."""
        return replace_matches(matches, self.make_op)

    def run(self, graph_module: fx.GraphModule) -> PassResult:
        """Find, ask, fuse; what almost matched is declined with the reason."""
        found = find(graph_module, self.build_pattern(), filters=[self.may_fuse])
        result = PassResult()
        for refusal in found.refused:
            result.decline(refusal.node, refusal.reason)
        for report in self.insert(found.matches):
            made = ", ".join(map(str, report.results))
            result.change(report.anchors[0], f"{' + '.join(reversed(report.removed))} became {made}")
        return result
