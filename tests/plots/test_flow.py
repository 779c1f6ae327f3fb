from helpers import plots


def test_every_box_and_arrow_says_what_it_was_given():
    (ax,) = plots.flow([("a", "1"), ("b", "2"), ("c", "3")], ["then", "becomes"], strong=(2,)).axes
    assert {"a", "b", "c", "1", "2", "3", "then", "becomes"} <= {text.get_text() for text in ax.texts}
    assert len(ax.patches) == 3
    assert sum(text.arrow_patch is not None for text in ax.texts if hasattr(text, "arrow_patch")) == 2
    plain, _, strong = (patch.get_linewidth() for patch in ax.patches)
    assert strong > plain
