from itertools import pairwise

import pandas as pd
import pytest

from course import reference
from helpers.plots.tradeoffs import tradeoffs


@pytest.fixture
def table():
    points = [
        ("big", "dense", 8e6, 20.0, 0.95),
        ("half", "fine-tuned", 4e6, 12.0, 0.94),
        ("bad", "int8", 5e6, 15.0, 0.9),
    ]
    rows = [
        {"name": name, "stage": stage, "status": "measured", "accuracy": accuracy, "low": accuracy - 0.01}
        | {"high": accuracy + 0.01, "file_bytes": size, "batch1_ms": ms, "batch1_iqr_ms": 1.0, "threads": 2}
        for name, stage, size, ms, accuracy in points
    ]
    rows.append({"name": "cut", "stage": "pruned", "status": "measured", "accuracy": 0.1, "file_bytes": 4e6})
    return pd.DataFrame([*rows, {"name": "later", "stage": "qat", "status": "not run"}])


def names_in(ax):
    return {text.get_text() for text in ax.texts}


def test_both_panels_name_the_front_and_only_the_front(table):
    left, right = tradeoffs(table).axes
    assert names_in(left) == names_in(right) == {"big", "half"}


def test_error_bars_reach_from_low_to_high(table):
    left, right = tradeoffs(table).axes
    bars = {round(segment[0][0]): segment[:, 1] for segment in left.containers[0].lines[2][0].get_segments()}
    assert bars[8_000_000] == pytest.approx([94, 96])
    sideways = right.containers[0].lines[2][0].get_segments()[0]
    assert sideways[:, 0] == pytest.approx([19.5, 20.5])


def test_others_stand_beside_the_bytes_only(table):
    others = reference.published()
    left, right = tradeoffs(table, others).axes
    assert set(others.letter) <= {name[0] for name in names_in(left)}
    assert names_in(right) == {"big", "half"}


def test_a_course_without_measurements_can_be_drawn():
    empty = reference.load(reference.RESULTS.with_name("none.csv"))
    for ax in tradeoffs(empty).axes:
        assert "not measured yet" in names_in(ax)


@pytest.mark.parametrize("span", [1.5, 3, 90])
def test_numbers_below_an_axis_are_several_and_do_not_touch(table, span):
    reached = table.name.isin(["big", "half"])
    table.loc[reached, ["file_bytes", "batch1_ms"]] = [[9e6, 6.0], [9e6 / span, 6 / span]]
    figure = tradeoffs(table)
    figure.draw_without_rendering()
    for ax in figure.axes:
        low, high = ax.get_xlim()
        ticks = [tick for tick in ax.xaxis.get_major_ticks() if low <= tick.get_loc() <= high]
        boxes = [tick.label1.get_window_extent() for tick in ticks]
        assert len(boxes) >= 2
        assert all(a.x1 + 2 < b.x0 for a, b in pairwise(boxes))


def test_a_network_far_below_the_best_does_not_squeeze_the_axis(table):
    far = table[table.name == "half"].assign(name="far", accuracy=0.5, low=0.49, high=0.51, file_bytes=1e6, batch1_ms=2)
    left, right = tradeoffs(pd.concat([table, far])).axes
    assert "far" not in names_in(left) | names_in(right)
    assert left.get_ylim()[0] > 80
