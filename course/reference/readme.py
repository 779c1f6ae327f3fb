"""What is shown of the results: a part of README between two marks, its chart, and
data/results/README.md.
"""

import hashlib
import io
from pathlib import Path

import pandas as pd

from course.reference import page
from course.reference.chart import alternative_text, chart, coded_size, comparable
from course.reference.headline import headline, readable
from course.reference.table import FOLDER, PUBLISHED, RESULTS, SPEED, load, published, speeds
from helpers.data import REPOSITORY
from helpers.files import write_atomically

README, PAGE, FIGURE = REPOSITORY / "README.md", FOLDER / "README.md", FOLDER / "chart.svg"
BEGIN, END = (
    "<!-- results: written by `python -m course results` -->",
    "<!-- end of the results -->",
)
BUSY = 4  # processes that want to run; two of them are the measured one
REMEDY = "run `python -m course results`"


def write() -> list[Path]:
    """Draw the chart, put chart and tables into README, and write the page of all results.

    All is made before the first file is written: a README without its marks leaves every file as it
        was.
    """
    table, drawn = shown(), io.BytesIO()
    labels = {"Title": "accuracy against size", "Description": alternative_text(table)}
    chart(table).savefig(
        drawn, format="svg", metadata={"Date": None, "Identifier": digest()} | labels
    )
    files = made() | {FIGURE: drawn.getvalue()}
    return [write_atomically(path, content) for path, content in files.items()]


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
    if not FIGURE.exists() or digest() not in FIGURE.read_text(encoding="utf-8"):
        found.append(f"{FIGURE.name} was not drawn from the present tables: {REMEDY}")
    return found


def digest() -> str:
    """A hash of the tables that the chart shows, whatever the line ends."""
    texts = [
        path.read_text(encoding="utf-8") if path.exists() else ""
        for path in (RESULTS, PUBLISHED, SPEED)
    ]
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
    """The first screen: chart, four networks, where others are ahead, and the plan beside what came
    out.
    """
    notes = (
        "Accuracy: on 10,000 test images, ± 95 % interval. One image: median time in the engine"
        " ONNX Runtime on two"
    )
    notes += " CPU threads, which computes with 8 bits where the file has fewer"
    notes += (
        ", on a machine that was busy with other work." if (speeds().load > BUSY).any() else "."
    )
    notes += (
        " In the chart, files are also entropy-coded (as `xz -6e` writes them), because others"
        " state such sizes."
    )
    parts = [
        f"![{alternative_text(table)}](data/results/{FIGURE.name})",
        page.as_markdown(readable(headline(table))),
        f"{notes} {standing(table, published())}",
        "The plan, and what came out:",
        page.as_markdown(page.plan(table)),
        "Every network, speed, trial and source: [data/results](data/results/README.md).",
    ]
    return "\n\n".join(parts)


def standing(table: pd.DataFrame, others: pd.DataFrame) -> str:
    """Where others are ahead: both smaller and more accurate than one of ours, with sizes that are
    counted alike.
    """
    ours, others = headline(table), comparable(others)
    ahead = {
        row.name: others[(others.accuracy >= row.accuracy) & (others.file_bytes <= size)]
        for row, size in zip(ours.itertuples(), coded_size(ours), strict=True)
    }
    behind = [f"*{name}*" for name, better in ahead.items() if len(better)]
    alone = [f"*{name}*" for name, better in ahead.items() if better.empty]
    best = pd.concat(
        [*(rows.nlargest(1, "accuracy") for rows in ahead.values()), others.head(0)]
    ).drop_duplicates()
    stated = [
        f"[{label}]({rows.source.iloc[0]}) states {'; '.join(rows.stated)}"
        + ", epoch chosen on test images" * (rows.chosen_on.iloc[0] == "test images")
        for label, rows in best.groupby("label", sort=False)
    ]
    told = []
    if behind:
        told.append(f"other networks are ahead of {listed(behind)} ({'; '.join(stated)})")
    if alone:
        told.append(
            "no other network that we know of is both smaller and more accurate than"
            f" {listed(alone)}"
        )
    return f"With sizes counted alike, {', and '.join(told)}." if told else ""


def listed(names: list[str]) -> str:
    """A, B and C."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
