"""Memory planning: all buffers of a graph share one block of memory, and those that are never alive together overlap.

    liveness    a buffer is alive from the operation that fills it to the last one that reads it, through any view
    placing     largest first, each at the lowest offset where it overlaps nothing that is alive at the same time
    executing   one allocation at the start; every buffer becomes a view into it

Works on graphs whose operations write into buffers (`out_variants`). What the network returns must outlive the call,
so it keeps an allocation of its own.

Example:
    >>> Passer(["out_variants", "memory_planning"]).run(graph_module)
    >>> plan = graph_module.meta["memory_plan"]
    >>> plan.bytes, plan.bytes_without_reuse, plan.lower_bound
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import fx

from helpers.passes.folder import Pass, PassResult
from helpers.passes.registry import register

ALIGNMENT = 64  # bytes: one cache line, and the widest vector register
ALLOCATION = torch.ops.aten.empty_strided.default


@dataclass(frozen=True)
class Slot:
    """Where one buffer lies, and the first and last step (position in the graph) at which it is alive."""

    node: str
    bytes: int
    first: int
    last: int
    offset: int = 0

    @property
    def end(self) -> int:
        """The first byte behind the buffer, rounded up to the alignment."""
        return self.offset + _aligned(self.bytes)

    def meets(self, other: "Slot") -> bool:
        """Whether both are alive at some step."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Plan:
    """The slots of all buffers in one block.

    Attributes:
        slots: in graph order.
        returned_bytes: what the returned buffers take in addition, each in its own allocation.
    """

    slots: tuple[Slot, ...]
    returned_bytes: int

    @property
    def bytes(self) -> int:
        """The size of the block."""
        return max((slot.end for slot in self.slots), default=0)

    @property
    def bytes_without_reuse(self) -> int:
        """What the buffers would take side by side."""
        return sum(_aligned(slot.bytes) for slot in self.slots)

    @property
    def lower_bound(self) -> int:
        """The most that is alive at one step: no plan can do with less."""
        steps = {slot.first for slot in self.slots}
        return max(
            (sum(_aligned(s.bytes) for s in self.slots if s.first <= step <= s.last) for step in steps), default=0
        )


def place(slots: Iterable[Slot]) -> tuple[Slot, ...]:
    """Give every buffer an offset, largest first.

    Example:
        >>> [slot.offset for slot in place([Slot("a", 64, 0, 1), Slot("b", 64, 1, 2), Slot("c", 64, 2, 3)])]
        [0, 64, 0]
    """
    placed: list[Slot] = []
    for slot in sorted(slots, key=lambda slot: (-slot.bytes, slot.first)):
        offset = 0
        for other in sorted((other for other in placed if other.meets(slot)), key=lambda other: other.offset):
            if offset + slot.bytes <= other.offset:
                break
            offset = max(offset, other.end)
        placed.append(Slot(slot.node, slot.bytes, slot.first, slot.last, offset))
    return tuple(sorted(placed, key=lambda slot: slot.first))


def carve(block: torch.Tensor, offset: int, like: tuple[torch.dtype, list[int], list[int]]) -> torch.Tensor:
    """A tensor of the given dtype, shape and strides inside a block of bytes, from `offset` on."""
    dtype, shape, strides = like
    return torch.as_strided(block.view(dtype), shape, strides, offset // dtype.itemsize)


@register
class MemoryPlanning(Pass):
    """Puts all buffers into one block; the plan is kept in `graph_module.meta["memory_plan"]`."""

    name = "memory_planning"

    def run(self, graph_module: fx.GraphModule) -> PassResult:
        """Find out what is alive when, place it, and rewrite the allocations."""
        result = PassResult()
        buffers = [node for node in graph_module.graph.nodes if node.target is ALLOCATION]
        slots, returned_bytes = [], 0
        lives = _lives(graph_module)
        returned = set(graph_module.graph.output_node().all_input_nodes)
        for node in buffers:
            first, last, aliases = lives[_storage(node)]
            size = node.meta["val"].untyped_storage().nbytes()
            if aliases & returned:
                returned_bytes += size
                result.decline(node, "the network returns it: it has to outlive the call")
            else:
                slots.append(Slot(node.name, size, first, last))
        if slots:
            plan = Plan(place(slots), returned_bytes)
            _execute(graph_module, plan, result)
            graph_module.meta["memory_plan"] = plan
        return result


def _lives(graph_module: fx.GraphModule) -> dict[int, tuple[int, int, set[fx.Node]]]:
    """For each piece of memory: the first and last step that touches it, and the nodes whose values lie in it."""
    steps = {node: step for step, node in enumerate(graph_module.graph.nodes)}
    lives: dict[int, tuple[int, int, set[fx.Node]]] = {}
    for node, step in steps.items():
        if isinstance(node.meta.get("val"), torch.Tensor):
            last = max((steps[user] for user in node.users), default=step)
            first, latest, aliases = lives.get(_storage(node), (step, step, set()))
            lives[_storage(node)] = (first, max(last, latest), aliases | {node})
    return lives


def _execute(graph_module: fx.GraphModule, plan: Plan, result: PassResult) -> None:
    """One allocation in front of everything, and a view in place of each buffer."""
    nodes = {node.name: node for node in graph_module.graph.nodes}
    graph = graph_module.graph
    device = nodes[plan.slots[0].node].meta["val"].device
    with graph.inserting_before(nodes[plan.slots[0].node]):
        block = graph.call_function(torch.empty, (plan.bytes,), {"dtype": torch.uint8, "device": device})
    block.meta["val"] = torch.empty(plan.bytes, dtype=torch.uint8, device="meta")
    for slot in plan.slots:
        node = nodes[slot.node]
        value = node.meta["val"]
        with graph.inserting_before(node):
            like = (value.dtype, list(value.shape), list(value.stride()))
            view = graph.call_function(carve, (block, slot.offset, like), name=f"{node.name}_at_{slot.offset}")
        view.meta.update(node.meta)
        node.replace_all_uses_with(view)
        graph.erase_node(node)
        result.change(slot.node, f"{slot.bytes} bytes at {slot.offset}, alive from step {slot.first} to {slot.last}")
    saved = f"one block of {plan.bytes} bytes instead of {plan.bytes_without_reuse}"
    result.change(block, f"{saved}; at least {plan.lower_bound} are alive at once")


def _storage(node: fx.Node) -> int:
    return node.meta["val"].untyped_storage()._cdata


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
