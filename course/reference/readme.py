"""What README shows of the results, between two marks, and the figure beside the tables."""

import hashlib
import io
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from PIL import Image

from course.reference import ablations
from course.reference.ablations import ABLATIONS
from course.reference.headline import headline, start
from course.reference.table import FOLDER, PUBLISHED, RESULTS, ResultsError, load, published
from helpers.data import REPOSITORY
from helpers.files import write_atomically
from helpers.plots.tradeoffs import SPAN, pareto, shown, tradeoffs

README, FIGURE = REPOSITORY / "README.md", FOLDER / "tradeoffs"
BEGIN, END = "<!-- results: written by `python -m course results` -->", "<!-- end of the results -->"
NAMES = (
    "The number in a name says how many percent are gone: of the parameters, by one ranking of the channels inside"
    " blocks (hidden) or of all channels (trunk); or of the multiply-adds, by the same share of every group (fast)."
    " Fine-tuned for two epochs instead of six: short; for twenty more: long."
)
HEADER = (
    "| network | stage | test accuracy (95 %) | parameters | multiply-adds | bytes | smaller | entropy-coded | 1 image"
    " | 128 images |"
)


def write(table: pd.DataFrame) -> list[Path]:
    """Draw the figure and put table and figure into README.

    All is made before the first file is written: a README without its marks leaves every file as it was.
    """
    state, figure, text = digest(), tradeoffs(table, published()), with_block(README.read_text(), block(table))
    labels = {"Title": "accuracy against bytes and latency", "Description": alternative_text(table)}
    svg = rendered(figure, "svg", {"Date": None, "Identifier": state} | labels)
    png = rendered(figure, "png", {"Software": None, "Comment": state})
    files = {README: text, FIGURE.with_suffix(".svg"): svg, FIGURE.with_suffix(".png"): png}
    return [write_atomically(path, content) for path, content in files.items()]


def rendered(figure: Figure, form: str, metadata: dict[str, str | None]) -> bytes:
    """The content of a file with the figure."""
    file = io.BytesIO()
    figure.savefig(file, format=form, metadata=metadata)
    return file.getvalue()


def stale() -> list[str]:
    """What is out of date, and what to do; empty when all is well."""
    remedy = "run `python -m course results`"
    found = []
    if with_block(README.read_text(), block(load())) != README.read_text():
        found.append(f"README.md does not show what {RESULTS.name} holds: {remedy}")
    for path, made_from in figure_states().items():
        if made_from != digest():
            found.append(f"{path.name} was not drawn from the present tables: {remedy}")
    return found


def figure_states() -> dict[Path, str | None]:
    """The tables that each file of the figure says it was drawn from."""
    svg, png = FIGURE.with_suffix(".svg"), FIGURE.with_suffix(".png")
    drawn = digest() if svg.exists() and digest() in svg.read_text() else None
    if not png.exists():
        return {svg: drawn, png: None}
    with Image.open(png) as image:
        return {svg: drawn, png: image.text.get("Comment")}


def digest() -> str:
    """A hash of both tables, whatever the line ends."""
    texts = [path.read_text() if path.exists() else "" for path in (RESULTS, PUBLISHED)]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def with_block(text: str, new: str) -> str:
    """README with another text between the marks."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ResultsError(f"README.md must have the lines {BEGIN!r} and {END!r}, once each, in this order")
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{new}\n{END}{rest.partition(END)[2]}"


def block(table: pd.DataFrame) -> str:
    """A sentence, the figure, the networks that were measured, and how, those that were not, and the ablations."""
    measured, others = table[table.status == "measured"], published()
    parts = [in_short(measured), f"![{alternative_text(table)}](data/results/{FIGURE.name}.png)", sources(others)]
    if len(measured):
        just_cut = measured.stage == "pruned"
        parts += [lines(measured[~just_cut], measured), notes(measured)]
        if just_cut.any():
            parts.append(folded(f"{just_cut.sum()} as cut, before fine-tuning", lines(measured[just_cut], measured)))
    missing = table[table.status != "measured"]
    if len(missing):
        rows = [f"| {row.name} | {row.stage} | `{row.command}` |" for row in missing.itertuples()]
        listed = "\n".join(["| network | stage | command |", "|---|---|---|", *rows])
        parts.append(folded(f"{len(missing)} not run", listed))
    trials = ablations.summary(load(ABLATIONS))
    if len(trials):
        count = (trials.stage != "dense").sum()  # the network that all start from is there to compare with
        parts.append(folded(f"{count} ablations", ablations.text(trials)))
    return "\n\n".join(part for part in parts if part)


def in_short(measured: pd.DataFrame) -> str:
    """The smallest network within a point of the dense one, in a sentence; nothing without a smaller one."""
    rows = headline(measured)
    if len(rows) < 2:
        return ""
    dense, small = rows.iloc[0], rows.iloc[1:].sort_values("file_bytes").iloc[0]
    times = dense.file_bytes / small.file_bytes
    return (
        f"**In short:** {small['name']} is the smallest file within a point of the dense network (chosen on validation"
        f" images): {small.file_bytes:,} bytes instead of {dense.file_bytes:,}, **{times:.1f} times smaller**, with"
        f" {small.accuracy:.2%} of the test images right instead of {dense.accuracy:.2%}."
    )


def folded(title: str, text: str) -> str:
    """What a reader unfolds."""
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"


def lines(rows: pd.DataFrame, measured: pd.DataFrame) -> str:
    """Some of the networks as a table."""
    return "\n".join([HEADER, rule(), *(line(row, measured) for row in rows.itertuples())])


def rule() -> str:
    """The line under the header: text to the left, numbers to the right."""
    return "|---|---|" + "---:|" * (HEADER.count("|") - 3)


def line(row: tuple, measured: pd.DataFrame) -> str:
    """One network."""
    dense = start(measured).file_bytes
    smaller = f"{int(dense.iloc[0]) / row.file_bytes:.1f} x" if len(dense) else "-"
    cells = [
        row.name if pd.isna(row.checkpoint) else f"**{row.name}**",
        row.stage,
        f"{row.accuracy:.2%} ({row.low:.2%} to {row.high:.2%})",
        f"{row.params:,}",
        f"{row.macs:,}",
        f"{row.file_bytes:,}",
        smaller,
        "-" if pd.isna(row.coded_bytes) else f"{row.coded_bytes:,}",
        milliseconds(row.batch1_ms, row.batch1_iqr_ms),
        milliseconds(row.batch128_ms, row.batch128_iqr_ms),
    ]
    return f"| {' | '.join(cells)} |"


def milliseconds(median: float, spread: float) -> str:
    """A median with its interquartile range."""
    return "-" if pd.isna(median) else f"{median:.1f} ± {spread / 2:.1f} ms"


def notes(measured: pd.DataFrame) -> str:
    """Under which conditions the numbers hold."""
    images = " / ".join(f"{int(n):,}" for n in sorted(measured.images.unique()))
    seeds = ", ".join(str(seed) for seed in sorted(measured.seed.dropna().unique()))
    timed = measured[measured.batch1_ms.notna()]
    machines = timed[["device", "threads"]].drop_duplicates().itertuples(index=False)
    devices = "; ".join(f"{machine.device}, {machine.threads} threads" for machine in machines)
    text = f"Accuracy on {images} test images, seed {seeds}. Bytes of the file that was reloaded and evaluated."
    if len(timed):
        text += f" Time: median ± half the interquartile range, those with a time all in turn ({devices})"
        text += ", int8 with real int8 kernels. Float networks spend a good part of the time for 128 images on fresh"
        text += " memory for every large map; kept memory spares that (lesson 05): `quantization_speed.csv` has both."
    text += f" The figure leaves out what is not fine-tuned or more than {100 * SPAN:.0f} points below the best."
    return (
        f"{NAMES} {text} Networks in **bold** are in `data/checkpoints/`. Every column: `data/results/{RESULTS.name}`."
    )


def sources(others: pd.DataFrame) -> str:
    """The letters of the figure."""
    listed = [f"{row.letter} [{row.label}]({row.source})" for row in others.drop_duplicates("letter").itertuples()]
    return f"Others, as stated in: {' · '.join(listed)}"


def alternative_text(table: pd.DataFrame) -> str:
    """The figure in a sentence."""
    front = pareto(shown(table))
    if front.empty:
        return "Accuracy against bytes and latency; nothing is measured yet."
    named = ", ".join(f"{row.name} {row.accuracy:.1%} in {row.file_bytes / 1e6:.2f} MB" for row in front.itertuples())
    return f"Accuracy against bytes and against latency. On the Pareto front by bytes: {named}."
