"""Every figure of the course: one style, for projectors, for greyscale and for screen readers.

Example:
    >>> fig, ax = plots.subplots()
    >>> ax.plot(epochs, accuracy, **plots.line(0), label="reference")
    >>> plots.show(fig, "05-training-curve", alt="Accuracy rises to 94 % in 30 epochs.")
"""

from helpers.plots.comparing import accuracies, bars, lines, waterfall
from helpers.plots.grids import image_grid, number_grids
from helpers.plots.interactive import interactive
from helpers.plots.style import COLOURS, bar, line, show, subplots
