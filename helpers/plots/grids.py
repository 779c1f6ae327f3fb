"""Small grids: matrices with their numbers written in, and images with their names."""

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from helpers.plots.style import COLOURS, INK, subplots

# Light in the middle and dark at one end only, so that sign and size survive greyscale.
DIVERGING = LinearSegmentedColormap.from_list(
    "course", [COLOURS["orange"], "#ffffff", COLOURS["blue"]]
)
CELL = 0.62  # inches
MARGIN = 0.9  # in cells, to the right of a matrix, for a sign


def number_grids(
    grids: dict[str, torch.Tensor],
    signs: str = "",
    highlight: dict[str, tuple[int, int, int, int]] | None = None,
) -> Figure:
    """Draw matrices side by side with every number written into its cell.

    Args:
        grids: title -> matrix (H, W), from left to right.
        signs: one character between each two neighbours, such as "*=".
        highlight: title -> (row, column, height, width) of a frame to draw.
    """
    matrices = {}
    for title, values in grids.items():
        matrices[title] = np.atleast_2d(np.asarray(values, dtype=float))
    widths = [matrix.shape[1] + MARGIN for matrix in matrices.values()]
    height = max(matrix.shape[0] for matrix in matrices.values())
    size = (CELL * sum(widths) + 0.4, CELL * height + 0.7)
    figure, axes = subplots(1, len(matrices), size=size, width_ratios=widths, squeeze=False)
    limit = max(np.abs(matrix).max() for matrix in matrices.values()) or 1.0
    for ax, (title, matrix) in zip(axes[0], matrices.items(), strict=True):
        number_grid(ax, matrix, title, limit, height)
        if highlight and title in highlight:
            row, column, tall, wide = highlight[title]
            corner = (column - 0.5, row - 0.5)
            ax.add_patch(Rectangle(corner, wide, tall, fill=False, edgecolor=INK, linewidth=3))
    for ax, sign, matrix in zip(axes[0], signs, matrices.values(), strict=False):
        rows, columns = matrix.shape
        ax.text(columns - 0.05, (rows - 1) / 2, sign, fontsize=20, va="center")
    return figure


def number_grid(ax: Axes, matrix: np.ndarray, title: str, limit: float, height: int) -> None:
    """One matrix of `number_grids`.

    Args:
        limit: the largest absolute value of all matrices.
        height: how many rows the tallest has.
    """
    rows, columns = matrix.shape
    ax.imshow(matrix, cmap=DIVERGING, vmin=-limit, vmax=limit)
    centred = {"ha": "center", "va": "center", "fontsize": 13}
    for (row, column), value in np.ndenumerate(matrix):
        is_dark = value > 0.55 * limit
        ax.text(column, row, f"{value:.4g}", color="white" if is_dark else INK, **centred)
    above = (height - rows) / 2  # so that all matrices are centred
    look = {"ha": "center", "va": "bottom", "fontsize": 12, "fontweight": "bold"}
    ax.text((columns - 1) / 2, -0.65 - above, title, **look)
    right = columns - 0.5 + MARGIN
    ax.set(xlim=(-0.5, right), ylim=(rows - 0.5 + above, -0.5 - above))
    ax.set_axis_off()


def image_grid(images: torch.Tensor, titles: list[str]) -> Figure:
    """Draw images, uint8 (N, 1 or 3, H, W), ten in a row, with their names above."""
    columns = 10
    rows = -(-len(images) // columns)
    figure, axes = subplots(rows, columns, size=(0.95 * columns, 1.2 * rows), squeeze=False)
    for ax in axes.flat:
        ax.set_axis_off()
    for ax, image, title in zip(axes.flat, images, titles, strict=False):
        ax.imshow(image.permute(1, 2, 0).numpy(), cmap="gray", vmin=0, vmax=255)
        ax.set_title(title, fontsize=10, fontweight="normal")
    return figure
