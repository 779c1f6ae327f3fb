from helpers import plots


def test_the_line_bends_where_the_limits_meet():
    layers = {"slow": [(0.5, 2.0)], "fast": [(20.0, 90.0), (40.0, 95.0)]}
    (ax,) = plots.roofline(peak=100.0, memory_rate=10.0, layers=layers).axes
    roof = dict(zip(*ax.lines[0].get_data(), strict=True))
    left, right = min(roof), max(roof)
    assert abs(roof[left] * 1e9 / (10 * left) - 1) < 1e-9 and roof[right] * 1e9 == 100
    assert list(ax.lines[1].get_xdata()) == [10.0, 10.0]  # the ridge
    assert left < 0.5 and right > 40
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["slow", "fast"]
    assert len(ax.collections[1].get_offsets()) == 2
