"""Where the boxes of a drawing go: a layered layout (after Sugiyama), small enough to read.

1. rank      each node stands one row below its lowest operand
2. bridge    an edge that skips rows gets an invisible node in each row it crosses, and so a lane of its own
3. order     within a row, nodes are sorted by the mean place of their neighbours, up and down a few times
4. place     a node moves towards the mean of its neighbours as far as the distance to the next one allows
5. wrap      a tall drawing is cut into columns, read top to bottom, then left to right
"""

import itertools
import operator
from dataclasses import dataclass, field

SWEEPS = 8
COLUMN_GAP = 0.5  # between two columns, in boxes
HALF = 0.36  # half the height of a drawn box, in rows
BRIDGE_WEIGHT = 1e-4  # boxes decide where a row stands, lines that pass give way


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
    rows, chains = _bridge(edges, _rank(edges))
    uppers: dict = {}
    for chain in chains.values():
        for upper, lower in itertools.pairwise(chain):
            uppers.setdefault(lower, []).append(upper)
    return _wrap(rows, _place(rows, uppers), chains, rows_per_column)


def _rank(edges: dict[str, tuple[str, ...]]) -> dict[str, int]:
    """Rows by longest path; a constant stands right above its first user instead of at the very top."""
    ranks: dict[str, int] = {}
    for name, operands in edges.items():
        ranks[name] = max((ranks[operand] + 1 for operand in operands), default=0)
    for name, operands in edges.items():
        for operand in operands:
            if not edges[operand] and ranks[operand] == 0 and operand != next(iter(edges)):
                users = [ranks[user] for user, sources in edges.items() if operand in sources]
                ranks[operand] = max(0, min(users) - 1)
        ranks[name] = max([ranks[name], *(ranks[operand] + 1 for operand in operands)])
    return ranks


def _bridge(edges, ranks) -> tuple[list[list], dict[tuple[str, str], list]]:
    """The rows with their invisible nodes, and for each edge the chain of nodes that it runs through."""
    rows: list[list] = [[] for _ in range(max(ranks.values(), default=0) + 1)]
    for name, rank in ranks.items():
        rows[rank].append(name)
    chains = {}
    for name, operands in edges.items():
        for operand in operands:
            between = [(operand, name, rank) for rank in range(ranks[operand] + 1, ranks[name])]
            for bridge in between:
                rows[bridge[2]].append(bridge)
            chains[operand, name] = [operand, *between, name]
    return rows, chains


def _place(rows: list[list], uppers: dict) -> dict:
    """An x for every node, visible or not: sweeps down and up, sorting and then spreading each row."""
    lowers: dict = {}
    for lower, above in uppers.items():
        for upper in above:
            lowers.setdefault(upper, []).append(lower)
    places = {node: float(i) for row in rows for i, node in enumerate(row)}
    for sweep in range(SWEEPS):
        neighbours, order = (uppers, rows) if sweep % 2 == 0 else (lowers, rows[::-1])
        for row in order:
            for node in row:
                near = neighbours.get(node)
                if near:
                    weights = [_weight(other) for other in near]
                    places[node] = sum(map(operator.mul, weights, map(places.get, near))) / sum(weights)
            row.sort(key=places.__getitem__)
            _spread(row, places)
    return places


def _spread(row: list, places: dict) -> None:
    """Move the nodes of a row apart, as little as possible on the whole, until each has its room."""
    wanted = [places[node] for node in row]
    for left, right in itertools.pairwise(row):
        places[right] = max(places[right], places[left] + _room(left, right))
    weights = [_weight(node) for node in row]
    moved = [want - places[node] for want, node in zip(wanted, row, strict=True)]
    shift = sum(map(operator.mul, weights, moved)) / sum(weights)
    for node in row:
        places[node] += shift


def _weight(node) -> float:
    return 1.0 if isinstance(node, str) else BRIDGE_WEIGHT


def _room(left, right) -> float:
    """A box needs a whole unit, a line only a part of one."""
    return _half_width(left) + _half_width(right)


def _wrap(rows: list[list], places: dict, chains: dict, rows_per_column: int) -> Layout:
    """Cut the rows into columns of equal height, and turn chains into corners."""
    columns = -(-len(rows) // rows_per_column)
    height = -(-len(rows) // columns)
    at, gutters, left = {}, {}, 0.0
    for start in range(0, len(rows), height):
        block = [node for row in rows[start : start + height] for node in row]
        edge = min(places[node] - _half_width(node) for node in block)
        for y, row in enumerate(rows[start : start + height]):
            at.update({node: (left + places[node] - edge, y + 0.5) for node in row})
        gutters.update(dict.fromkeys(block, left - COLUMN_GAP / 2))
        left += max(places[node] + _half_width(node) for node in block) - edge + COLUMN_GAP
    layout = Layout(width=left - COLUMN_GAP, height=float(height))
    layout.places = {node: at[node] for row in rows for node in row if isinstance(node, str)}
    for edge, chain in chains.items():
        layout.paths[edge] = _corners([(*at[node], gutters[node]) for node in chain], height)
    return layout


def _half_width(node) -> float:
    return 0.5 if isinstance(node, str) else 0.1


def _corners(points: list[tuple[float, float, float]], height: int) -> list[tuple[float, float]]:
    """The corners of a line, which runs straight down past each row and slants only between rows.

    Where it goes on in the next column it runs below the old column and up the gutter between the two.
    """
    corners = []
    for i, (x, y, gutter) in enumerate(points):
        if i > 0:
            if y < points[i - 1][1]:
                lane = 0.06 * (i % 3)  # so that several lines in one gutter can be told apart
                low, high = height + 0.1 + lane, -0.1 - lane
                corners += [(points[i - 1][0], low), (gutter - lane, low), (gutter - lane, high), (x, high)]
            corners.append((x, y - HALF))
        if i < len(points) - 1:
            corners.append((x, y + HALF))
    return corners
