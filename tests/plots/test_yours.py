import pandas as pd
import pytest

from helpers import plots


@pytest.fixture
def run():
    table = pd.DataFrame({"stage": ["dense", "quantized"], "accuracy": [0.8, 0.7], "file_bytes": [9e6, 1e6]})
    table["low"], table["high"] = table.accuracy - 0.05, table.accuracy + 0.04
    for batch, ms in ((1, [6.0, 3.0]), (128, [300.0, 90.0])):
        table[f"batch{batch}_ms"], table[f"batch{batch}_iqr_ms"] = ms, 0.5
    return table


def test_times_are_those_of_one_image(run):
    *_, times = plots.stages(run).axes
    heights = [bar.get_height() for bar in times.patches]
    assert heights == pytest.approx([6, 3, 300 / 128, 90 / 128])
