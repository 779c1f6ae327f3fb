"""Sliders: a figure that follows them in JupyterLab, and a sentence where nothing moves them."""

import os
from collections.abc import Callable

from IPython.display import display
from matplotlib.figure import Figure

from helpers.plots.style import markup, png


def explore(draw: Callable[..., Figure], alt: str, **ranges: tuple[float, float, float]) -> None:
    """Show sliders on the left, and the figure that belongs to their values.

    Args:
        draw: makes a figure from one keyword argument per slider.
        ranges: name of the argument -> (lowest, start, highest).
    """
    if os.environ.get("COURSE_HEADLESS"):
        print(
            f"Run this cell in JupyterLab to get sliders for {', '.join(ranges)}. The figure above"
            " shows the same without them."
        )
        return
    import ipywidgets as widgets  # slow to import, and of no use when headless

    sliders = {
        name: widgets.FloatSlider(
            start, min=low, max=high, step=(high - low) / 40, description=name
        )
        for name, (low, start, high) in ranges.items()
    }
    picture = widgets.HTML()

    def redraw(_=None) -> None:
        figure = draw(**{name: slider.value for name, slider in sliders.items()})
        picture.value = markup(figure, png(figure), alt)

    for slider in sliders.values():
        slider.observe(redraw, "value")
    redraw()
    display(widgets.HBox([widgets.VBox(list(sliders.values())), picture]))
