import itertools

import pandas as pd
import pytest

from course import reference
from helpers import plots


@pytest.fixture
def run():
    table = pd.DataFrame({"stage": ["dense", "quantized"], "accuracy": [0.8, 0.7], "file_bytes": [9e6, 1e6]})
    table["low"], table["high"] = table.accuracy - 0.05, table.accuracy + 0.04
    for batch, ms in ((1, [6.0, 3.0]), (128, [300.0, 90.0])):
        table[f"batch{batch}_ms"], table[f"batch{batch}_iqr_ms"] = ms, 0.5
    return table


def test_stars_stand_at_their_costs_and_inside_the_axes(run):
    empty = reference.load(reference.RESULTS.with_name("none.csv"))
    left, right = plots.tradeoffs(empty, run=run).axes
    for ax, cost in ((left, "file_bytes"), (right, "batch1_ms")):
        (stars,) = (line for line in ax.lines if line.get_marker() == "*")
        assert list(stars.get_xdata()) == list(run[cost]) and list(stars.get_ydata()) == [80, 70]
        low, high = ax.get_xlim()
        assert low < run[cost].min() and high > run[cost].max()
        assert {"your dense", "your quantized"} <= {text.get_text() for text in ax.texts}


def test_the_widened_axes_keep_round_numbers(run):
    alone = reference.load().head(1)  # one network alone spans hardly any axis
    for ax in plots.tradeoffs(alone, run=run).axes:
        low, high = ax.get_xlim()
        assert sum(low <= tick <= high for tick in ax.get_xticks()) >= 2


def test_whiskers_reach_from_low_to_high(run):
    empty = reference.load(reference.RESULTS.with_name("none.csv"))
    left, _ = plots.tradeoffs(empty, run=run).axes
    (segments,) = (one.get_segments() for one in left.collections if len(one.get_segments()) == 2)
    assert segments[0][:, 1] == pytest.approx([75, 84])


def test_times_are_those_of_one_image(run):
    *_, times = plots.stages(run).axes
    heights = [bar.get_height() for bar in times.patches]
    assert heights == pytest.approx([6, 3, 300 / 128, 90 / 128])


def test_names_do_not_lie_on_each_other_however_far_the_run_is_from_the_reference(run):
    figure = plots.tradeoffs(reference.load(), reference.published(), run)
    figure.draw_without_rendering()
    for ax in figure.axes:
        boxes = [text.get_window_extent() for text in ax.texts if len(text.get_text()) > 1]  # a letter is a source
        assert len(boxes) >= 4
        assert not any(box.overlaps(other) for box, other in itertools.combinations(boxes, 2))
