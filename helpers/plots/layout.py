"""Where the boxes of a drawn graph stand, and the way that each line takes between them.

Boxes stand one below the other in the order of the graph, in columns of equal height. What a node
hands to the one below it is a straight line. Every other line has a lane beside the column, so that
none runs through a box.
"""

from typing import NamedTuple

HALF = 0.36  # half the height of a drawn box, in rows
LANE = 0.12  # between two lanes, in boxes
GAP = 0.3  # between the last lane and the next column


class Layout(NamedTuple):
    """Places in units of one box, x to the right and y downwards.

    Attributes:
        places: the centre of each box, by name.
        paths: the corners of each edge's line, by the names of its source and its user.
    """

    places: dict[str, tuple[float, float]]
    paths: dict[tuple[str, str], list[tuple[float, float]]]
    width: float
    height: float


def arrange(edges: dict[str, tuple[str, ...]], rows_per_column: int) -> Layout:
    """Arrange a graph.

    Args:
        edges: node -> its operands; operands come before the nodes that use them.
        rows_per_column: how tall the drawing may grow before it is wrapped.
    """
    columns = -(-len(edges) // rows_per_column)
    height = -(-len(edges) // columns)
    cells = {name: divmod(number, height) for number, name in enumerate(edges)}
    # Of each column the lanes, and of each lane the gaps between rows that it passes.
    lanes: list[list[set[int]]] = [[] for _ in range(columns)]
    lane_of = {
        (source, user): _take_lane(lanes[cells[source][0]], cells[source], cells[user])
        for user, operands in edges.items()
        for source in operands
    }
    widths = [1 + LANE * (len(beside) + 1) + GAP for beside in lanes]
    places = {
        name: (sum(widths[:column]) + 0.5, row + 0.5) for name, (column, row) in cells.items()
    }
    paths = {}
    for (source, user), lane in lane_of.items():
        paths[source, user] = _corners(places[source], places[user], lane)
    return Layout(places, paths, sum(widths) - GAP, float(height))


def _take_lane(lanes: list[set[int]], source: tuple[int, int], user: tuple[int, int]) -> int | None:
    """Take the first lane that is free from the gap below the source to the gap above its user.

    None for neighbours, which need none.

    Args:
        source, user: column and row of two boxes.
    """
    below = source[1] + 1
    if user == (source[0], below):
        return None
    gaps = set(range(min(below, user[1]), max(below, user[1]) + 1))
    for number, taken in enumerate(lanes):
        if taken.isdisjoint(gaps):
            taken.update(gaps)
            return number
    lanes.append(gaps)
    return len(lanes) - 1


def _corners(
    source: tuple[float, float], user: tuple[float, float], lane: int | None
) -> list[tuple[float, float]]:
    """The corners of a line between two boxes, by way of a lane if it has one."""
    x, top = source
    end, bottom = user
    corners = [(x, top + HALF), (end, bottom - HALF)]
    if lane is not None:
        beside = x + 0.5 + LANE * (lane + 1)
        corners[1:1] = [(beside, top + 0.5), (beside, bottom - 0.5)]
    return corners
