"""Where the boxes of a drawing go: one below the other in the order of the graph, in columns of equal height.

What a node hands to the one below it is a straight line. Every other line leaves its column for a lane of its own, runs
down or up in that, and reaches its user through the gap above it, so that none runs through a box.
"""

from dataclasses import dataclass, field

HALF = 0.36  # half the height of a drawn box, in rows
LANE, GAP = 0.12, 0.3  # between two lanes, and between the last one and the next column, in boxes


@dataclass
class Layout:
    """Places in units of one box: x to the right, y downwards.

    Attributes:
        places: box name -> (x, y) of its centre.
        paths: (from, to) -> the corners of the line between two boxes.
        width, height: of the whole drawing.
    """

    places: dict[str, tuple[float, float]] = field(default_factory=dict)
    paths: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=dict)
    width: float = 0.0
    height: float = 0.0


def arrange(edges: dict[str, tuple[str, ...]], rows_per_column: int) -> Layout:
    """Arrange a graph.

    Args:
        edges: node -> its operands; operands come before the nodes that use them.
        rows_per_column: how tall the drawing may grow before it is wrapped.

    Returns:
        The places of all nodes and the corners of all edges.
    """
    columns = -(-len(edges) // rows_per_column)
    height = -(-len(edges) // columns)
    at = {name: divmod(number, height) for number, name in enumerate(edges)}
    lines = [(source, user) for user, operands in edges.items() for source in operands]
    lanes: list[list[set[int]]] = [[] for _ in range(columns)]  # of each column: the gaps that each lane passes
    lane_of = {line: _lane(lanes[at[line[0]][0]], *(at[name] for name in line)) for line in lines}
    layout, left = Layout(height=float(height)), []
    for lanes_here in lanes:
        left.append(layout.width)
        layout.width += 1 + LANE * (len(lanes_here) + 1) + GAP
    layout.width -= GAP
    layout.places = {name: (left[column] + 0.5, row + 0.5) for name, (column, row) in at.items()}
    for line, lane in lane_of.items():
        (x1, y1), (x2, y2) = (layout.places[name] for name in line)
        beside = [] if lane is None else [x1 + 0.5 + LANE * (lane + 1)]
        layout.paths[line] = [(x1, y1 + HALF), *((x, y) for x in beside for y in (y1 + 0.5, y2 - 0.5)), (x2, y2 - HALF)]
    return layout


def _lane(lanes: list[set[int]], source: tuple[int, int], user: tuple[int, int]) -> int | None:
    """The first lane that is free between the gap below the source and the gap above its user; None for a neighbour."""
    if user == (source[0], source[1] + 1):
        return None
    gaps = set(range(min(source[1] + 1, user[1]), max(source[1] + 1, user[1]) + 1))
    number = next((number for number, taken in enumerate(lanes) if taken.isdisjoint(gaps)), len(lanes))
    if number == len(lanes):
        lanes.append(set())
    lanes[number] |= gaps
    return number
