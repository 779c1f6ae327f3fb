"""data/results/README.md: every table about the reference networks, and which command writes which
file.
"""

import pandas as pd

from course.reference import ablations, tools
from course.reference.standing import standing
from course.reference.table import as_markdown, deployed, load, published, speeds

# The plan at the outset: stage, parameters, megabytes, accuracy; and the row and column that say
# what came out.
PLAN = (
    ("dense: nothing cut", "2.3 M, 9.0 MB, 94 %", "dense", "accuracy"),
    ("half of the parameters cut", "1.15 M, 4.5 MB, 91 %", "half", "cut_accuracy"),
    ("trained again", "1.15 M, 4.5 MB, 93 %", "half", "accuracy"),
    ("rounded to 8 bits", "1.15 M, 1.15 MB, 8 times smaller, 92.5 %", "half-int8", "accuracy"),
)
FILES = {
    "results.csv": "`python -m course sweep reference`",
    "ablations.csv": "`python -m course sweep ablations`",
    "deployed.csv": "`python -m course.benchmarks.deployed`",
    "speed.csv": "`python -m course.benchmarks.speed`",
    "quantization_accuracy.csv": "`python -m course.benchmarks.quantization`",
    "tiny.csv": "`python -m course sweep tiny`",
    "dense_training.csv, tiny_training.csv": "`python -m course train`, as the checkpoints state",
    "tiny_recovery.csv": "`python -m course.benchmarks.tiny_recovery`",
    "pruning_networks.csv, unprunable.csv": (
        "`python -m course.benchmarks.pruning_networks [--unprunable]`"
    ),
    "pruning_quality.csv": "`python -m course.benchmarks.pruning_quality`",
    "pruning_unstructured.csv": "`python -m course.benchmarks.pruning_unstructured`",
    "tiny_rounding.csv": "`python -m course.benchmarks.tiny_rounding`",
    "wild.csv": "`python -m course.benchmarks.wild --package PACKAGE`",
    "peers.csv, peers_speed.csv": "`python -m course.benchmarks.peers [--speed]`",
    "published.csv": "hand, with sources",
    "README.md, chart.svg, chart-dark.svg, and the first screen of the course's README": (
        "`python -m course results`"
    ),
}
NAMES = (
    "The names say roughly what share of the parameters is left; *fast* is made for speed. *fifth*"
    " lacks four residual blocks; *tenth* and *fast* are made from it, and *fast* lacks five more."
    " *-int8* has 8 bits a weight, *-mixed* 8 or fewer, layer by layer; *half-mixed*, *tenth-int8*"
    " and *tenth-mixed* are the first page's *half*, *a tenth* and *smallest*. Accuracy is on"
    " 10,000 test images. *just cut*: with BatchNorm recalibrated, before any training. Commands"
    " are in results.csv; that of *dense* names files that have since been removed. Bytes are those"
    " of the file as reloaded and evaluated; files of the names in **bold** are in"
    " `data/checkpoints/`. Entropy-coded: as `xz -6e` writes the file."
    " ONNX file: its bytes, and its accuracy in ONNX Runtime."
)
MADE = {
    "dense": "training",
    "fine-tuned": "cutting, fine-tuning",
    "int8": "rounding",
    "qat": "training with rounding",
}
SPEED = (
    "Median milliseconds, each engine in a process of its own that keeps freed memory, in random"
    " order. *OpenVINO float32* computed in bfloat16 here, as it does by itself where the processor"
    " can, so it is no float32 time"
)


def text(table: pd.DataFrame) -> str:
    """The whole page."""
    parts = [
        "# Results",
        "Written by `python -m course results`.",
        "## Networks",
        NAMES,
        as_markdown(networks(table)),
        dead(table),
        "## Speed",
        *speed(),
        "## The plan, and what came out",
        as_markdown(plan(table)),
        "## Others",
        (
            "Published results for MobileNetV2 on CIFAR-10, in their authors' words. They come"
            " without error bars, and none of them was measured here."
        ),
        as_markdown(others()),
        standing(table, published()),
        "## Other tools, measured here",
        *tools.sections(),
        "## Ablations",
        ablations.NOTE,
        as_markdown(ablations.readable(load(ablations.ABLATIONS))),
        "## Files",
        as_markdown(pd.DataFrame({"file": FILES.keys(), "written by": FILES.values()})),
    ]
    return "\n\n".join(parts) + "\n"


def networks(table: pd.DataFrame) -> pd.DataFrame:
    """One line per network."""
    dense, files = table[table.stage == "dense"].file_bytes.max(), deployed()
    return pd.DataFrame(
        {
            "network": row.name if pd.isna(row.checkpoint) else f"**{row.name}**",
            "made by": MADE[row.stage],
            "just cut": "" if pd.isna(row.cut_accuracy) else f"{row.cut_accuracy:.2%}",
            "test accuracy (95 %)": f"{row.accuracy:.2%} ({row.low:.2%} to {row.high:.2%})",
            "parameters": f"{row.params:,}",
            "multiply-adds": f"{row.macs:,}",
            "bytes": f"{row.file_bytes:,}",
            "times smaller": f"{dense / row.file_bytes:.1f}",
            "entropy-coded": "" if pd.isna(row.coded_bytes) else f"{row.coded_bytes:,}",
            "ONNX file": in_onnx(files.loc[row.name]) if row.name in files.index else "",
        }
        for row in table.itertuples()
    )


def in_onnx(file: pd.Series) -> str:
    """Bytes and accuracy of what one deploys."""
    return f"{int(file.onnx_bytes):,}: {file.accuracy:.2%}"


def dead(table: pd.DataFrame) -> str:
    """How many channels training has switched off, in the networks where this is known."""
    left = [
        f"*{row.name}* {row.dead_channels}"
        for row in table.dropna(subset="dead_channels").itertuples()
    ]
    how = (
        "no image changes. After fine-tuning all are removed, unless a width would no longer be a"
        " multiple of 16"
    )
    return f"**Dead channels** are those that {how}. Left: {', '.join(left)}."


def speed() -> list[str]:
    """The milliseconds of every engine, and under which conditions."""
    found = speeds()
    first = found.iloc[0]
    cells = [f"{row.median_ms:.2f} ± {row.iqr_ms / 2:.2f}" for row in found.itertuples()]
    order = {"index": found.name.unique(), "columns": found.engine.unique()}
    tables = []
    for batch, rows in found.assign(cell=cells).groupby("batch"):
        wide = rows.pivot_table("cell", "name", "engine", aggfunc="first").reindex(**order)
        tables.append(
            as_markdown(wide.rename_axis(f"{batch} image{'s' * (batch > 1)}").reset_index())
        )
    how = (
        f"{first.device}, {first.threads} threads, {first.rounds} rounds, load of the machine"
        f" {first.load:.0f}"
    )
    return [f"{SPEED} ({how}), ± half the interquartile range.", *tables]


def plan(table: pd.DataFrame) -> pd.DataFrame:
    """The promised numbers beside those that came out, stage by stage."""
    rows, lines = table.set_index("name"), []
    for stage, planned, name, column in PLAN:
        if name in rows.index:
            row, dense = rows.loc[name], rows.loc[PLAN[0][2]]
            times = (
                f", {dense.file_bytes / row.file_bytes:.1f} times smaller"
                if "times" in planned
                else ""
            )
            came = (
                f"{row.params / 1e6:.2f} M, {row.file_bytes / 1e6:.2f} MB{times}, {row[column]:.2%}"
            )
            lines.append((stage, planned, came))
    return pd.DataFrame(lines, columns=["stage", "planned", "achieved"])


def others() -> pd.DataFrame:
    """Published results."""
    return pd.DataFrame(
        {
            "by": f"{row.letter} [{row.label}]({row.source})",
            "method": row.method,
            "stated": row.stated,
            "entropy-coded": row.entropy_coded,
            "pretrained": row.pretrained,
            "network chosen on": row.chosen_on,
        }
        for row in published().itertuples()
    )
