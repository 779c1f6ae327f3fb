"""What is shown of the results: a part of README between two marks, its chart, and
data/results/README.md.
"""

import hashlib
import io
from pathlib import Path

import pandas as pd

from course.lessons.results import reference
from course.reference import page
from course.reference.chart import alternative_text, chart
from course.reference.headline import headline, readable
from course.reference.table import (
    DEPLOYED,
    FOLDER,
    PUBLISHED,
    RESULTS,
    SPEED,
    as_markdown,
    deployed,
    load,
    speeds,
)
from helpers.data import REPOSITORY
from helpers.files import write_atomically
from helpers.plots.style import COLOURS, INK

README, PAGE, FIGURE = REPOSITORY / "README.md", FOLDER / "README.md", FOLDER / "chart.svg"
BEGIN, END = (
    "<!-- results: written by `python -m course results` -->",
    "<!-- end of the results -->",
)
# Above this median of interquartile range / median time, other work disturbed the measurement.
UNSTEADY = 0.15
PICTURE = """\
<picture>
<source media="(prefers-color-scheme: dark)" srcset="data/results/{dark}">
<img src="data/results/{light}" alt="{alt}">
</picture>"""
# Ground, grid, ink, the names of others, and our blue.
DARK = {
    "#ffffff": "#0d1117",
    "#dfe4ea": "#2b323b",
    INK: "#e6edf3",
    "#5b6672": "#9aa4af",
    COLOURS["blue"]: "#6cb2f0",
}
REMEDY = "run `python -m course results`"


def write() -> list[Path]:
    """Draw the chart, put chart and tables into README, and write the page of all results.

    Everything is made before the first file is written: a README without its marks leaves every
    file as it was.
    """
    table, drawn = shown(), io.BytesIO()
    labels = {"Title": "accuracy against size", "Description": alternative_text(table)}
    chart(table).savefig(
        drawn, format="svg", metadata={"Date": None, "Identifier": digest()} | labels
    )
    files = made() | {FIGURE: drawn.getvalue(), dark_figure(): on_dark(drawn.getvalue())}
    return [write_atomically(path, content) for path, content in files.items()]


def dark_figure() -> Path:
    """The chart for readers whose pages are dark."""
    return FIGURE.with_name(f"{FIGURE.stem}-dark{FIGURE.suffix}")


def on_dark(drawing: bytes) -> bytes:
    """The same drawing with light ink on a dark ground."""
    for colour, other in DARK.items():
        drawing = drawing.replace(colour.encode(), other.encode())
    return drawing


def made() -> dict[Path, str]:
    """What README and the page of all results should hold."""
    table = shown()
    return {
        README: with_block(README.read_text(encoding="utf-8"), block(table)),
        PAGE: page.text(table),
    }


def shown() -> pd.DataFrame:
    """The table of results, with the row that the pages compare all others with."""
    if (table := load()).name.eq(first := page.PLAN[0][2]).any():
        return table
    raise ValueError(
        f"{RESULTS} has no row {first!r}: make it with `python -m course sweep reference {first}`"
    )


def stale() -> list[str]:
    """What is out of date, and what to do; empty when all is well."""
    old = [
        path
        for path, text in made().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    names = [path.relative_to(README.parent).as_posix() for path in old]
    found = [f"{name} does not show what the tables hold: {REMEDY}" for name in names]
    for figure in (FIGURE, dark_figure()):
        if not figure.exists() or digest() not in figure.read_text(encoding="utf-8"):
            found.append(f"{figure.name} was not drawn from the present tables: {REMEDY}")
    return found


def digest() -> str:
    """A hash of the tables that the chart shows, whatever the line ends."""
    texts = [path.read_text(encoding="utf-8") for path in (RESULTS, PUBLISHED, SPEED, DEPLOYED)]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def with_block(text: str, new: str) -> str:
    """README with another text between the marks."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(
            f"README.md must have the lines {BEGIN!r} and {END!r}, once each, in this order"
        )
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{new}\n{END}{rest.partition(END)[2]}"


def block(table: pd.DataFrame) -> str:
    """The first screen: the chart and four networks."""
    unsteady = (speeds().iqr_ms / speeds().median_ms).median() > UNSTEADY
    busy = " that was busy with other work" * bool(unsteady)
    notes = (
        "*Half* and *a tenth* keep that share of the parameters; *smallest* is *a tenth* with fewer"
        " bits. In *half* and *smallest* each layer has its own number of bits. Accuracy is on"
        " 10,000 test images, with its 95 % interval. *File*: as the course stores a network; the"
        " chart counts that file compressed by `xz`, so it shows fewer bytes. *ONNX file*: as"
        f" engines load it; its accuracy differs by at most {100 * largest_difference(table):.2f}"
        " points. *One image*: the median time in ONNX Runtime on"
        f" {speeds().threads.iloc[0]} threads of an {speeds().device.iloc[0]}{busy}. ONNX Runtime"
        " computes with at least 8 bits, so fewer bits save space, not time."
    )
    small = reference("tiny").set_index("stage").accuracy["dense"]
    epochs = reference("tiny_training").groupby("image_size").seconds.agg(["median", "size"])
    minutes = epochs.prod(axis=1).sum() / 60  # some epochs of the run were disturbed
    notes += (
        f" The small network of lesson 05 reaches {small:.1%} after {minutes:.0f} minutes of"
        " training on all images; in the lesson it trains for a few minutes, and reaches less."
    )
    parts = [
        PICTURE.format(dark=dark_figure().name, light=FIGURE.name, alt=alternative_text(table)),
        as_markdown(readable(headline(table))),
        notes,
        "Every network, speed, trial and source: [data/results](data/results/README.md).",
    ]
    return "\n\n".join(parts)


def largest_difference(table: pd.DataFrame) -> float:
    """How far the accuracy of any ONNX file is from that of the network it was made from."""
    return (deployed().accuracy - table.set_index("name").accuracy).abs().max()
