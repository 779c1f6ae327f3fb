import itertools

import pytest
import torch

from helpers.graphs.drawing import HALF, arrange


def overlaps(layout):
    return [
        (one, other)
        for (one, (x1, y1)), (other, (x2, y2)) in itertools.combinations(layout.places.items(), 2)
        if abs(x1 - x2) < 0.99 and abs(y1 - y2) < 2 * HALF
    ]


def random_dag(seed, size=40):
    generator = torch.Generator().manual_seed(seed)
    edges = {"n0": ()}
    for i in range(1, size):
        count = int(torch.randint(0 if i % 7 == 0 else 1, 4, (), generator=generator))
        picks = torch.randint(max(0, i - 9), i, (count,), generator=generator).tolist()
        edges[f"n{i}"] = tuple(dict.fromkeys(f"n{pick}" for pick in picks))
    return edges


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("rows", [8, 100])
def test_boxes_do_not_overlap_and_lines_join_them(seed, rows):
    edges = random_dag(seed)
    layout = arrange(edges, rows)
    assert set(layout.places) == set(edges)
    assert overlaps(layout) == []
    for name, operands in edges.items():
        for operand in operands:
            (x1, y1), (x2, y2) = layout.places[operand], layout.places[name]
            corners = layout.paths[operand, name]
            assert corners[0] == (x1, y1 + HALF)
            assert corners[-1] == (x2, y2 - HALF)
    assert all(0 <= x <= layout.width and 0 <= y <= layout.height for x, y in layout.places.values())


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("rows", [8, 100])
def test_no_line_runs_through_a_box(seed, rows):
    layout = arrange(random_dag(seed), rows)
    for (source, user), corners in layout.paths.items():
        for (x1, y1), (x2, y2) in itertools.pairwise(corners):
            for name, (x, y) in layout.places.items():
                if name not in (source, user) and min(y1, y2) < y < max(y1, y2):
                    crossing = x1 + (x2 - x1) * (y - y1) / (y2 - y1)
                    assert abs(crossing - x) > 0.46, (source, user, name)
