"""The one style, and `show`: a figure with its alternative text, in the notebook and as a file."""

import base64
import contextlib
import html
import io
from pathlib import Path

import matplotlib as mpl
from cycler import cycler
from IPython.display import display
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Neighbours differ in lightness too: what colour tells, greyscale tells as well.
COLOURS = {
    "blue": "#0b3f75",
    "orange": "#e8963c",
    "green": "#3b8f63",
    "red": "#a3201b",
    "sky": "#a9d3f5",
}
INK = "#1b2733"
GREY = "#8b96a3"
LINES = ("-", "--", "-.", (0, (1, 1)), (0, (6, 1.5, 1, 1.5, 1, 1.5)))
MARKERS = ("o", "s", "^", "D", "v")
HATCHES = ("", "//", "..", "xx", "\\\\")
FIGURES = Path(__file__).resolve().parents[2] / "build" / "figures"

mpl.rcParams.update(
    {
        "figure.dpi": 144,
        "font.size": 13,
        "font.family": "DejaVu Sans",
        "axes.titlesize": 13,
        "axes.titleweight": "bold",
        "axes.edgecolor": GREY,
        "axes.labelcolor": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.prop_cycle": cycler(color=list(COLOURS.values())) + cycler(linestyle=LINES),
        "grid.color": "#dfe4ea",
        "legend.frameon": False,
        "lines.linewidth": 2.4,
        "lines.markersize": 7,
        "text.color": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "hatch.linewidth": 0.8,
        "svg.fonttype": "none",
        "svg.hashsalt": "course",
    }
)


def subplots(
    rows: int = 1, columns: int = 1, size: tuple[float, float] = (8, 4), **options
) -> tuple[Figure, Axes]:
    """A figure and its axes (one, or an array), without pyplot: `show` alone shows it.

    Args:
        size: width and height in inches; 8 wide fills a page.
        options: for `Figure.subplots`, such as sharey=True or width_ratios.
    """
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


def line(position: int, marker: bool = True) -> dict[str, object]:
    """Colour, line style and, for lines of few points, marker of the n-th line of a plot."""
    look = {
        "color": [*COLOURS.values()][position % len(COLOURS)],
        "linestyle": LINES[position % len(LINES)],
    }
    if marker:
        look["marker"] = MARKERS[position % len(MARKERS)]
    return look


def bar(position: int) -> dict[str, object]:
    """Colour and hatch of the n-th kind of bar of a plot."""
    return {
        "color": [*COLOURS.values()][position % len(COLOURS)],
        "hatch": HATCHES[position % len(HATCHES)],
        "edgecolor": "white",
        "linewidth": 0.5,
    }


def show(figure: Figure, name: str, alt: str) -> None:
    """Display a figure with alternative text, and keep it as PNG and SVG under build/figures/.

    Args:
        name: file name without ending; starts with the lesson's number.
        alt: one or two sentences that say what the figure shows to somebody who cannot see it.
    """
    check_alt(name, alt)
    picture = png(figure)
    # Everything has its place now, so the SVG need not compute the layout again, which takes long.
    figure.set_layout_engine("none")
    with contextlib.suppress(OSError):  # the notebook gets its figure even if no file can be kept
        FIGURES.mkdir(parents=True, exist_ok=True)
        (FIGURES / f"{name}.png").write_bytes(picture)
        metadata = {"Date": None, "Title": name, "Description": alt}
        figure.savefig(FIGURES / f"{name}.svg", metadata=metadata)
    # Markup and not image/png: JupyterLab gives a bare PNG no alternative text.
    shown = {"text/html": markup(figure, picture, alt), "text/plain": alt}
    display(shown, raw=True, metadata={"figure": name})


def check_alt(name: str, alt: str) -> None:
    """Refuse a figure without alternative text."""
    if not alt.strip():
        raise ValueError(
            f"figure {name!r} has no alternative text; say in a sentence what it shows"
        )


def markup(figure: Figure, picture: bytes, alt: str) -> str:
    """The figure as an <img> that carries its own picture."""
    width = round(figure.get_figwidth() * 96)  # pixels per inch of a web page
    data = base64.b64encode(picture).decode()
    source = f'src="data:image/png;base64,{data}"'
    return f'<img {source} width="{width}" alt="{html.escape(alt, quote=True)}">'


def png(figure: Figure) -> bytes:
    """The figure as a PNG file."""
    file = io.BytesIO()
    figure.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()
