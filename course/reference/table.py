"""data/results/results.csv: one row per network, written whole and under a lock: processes do not
undo each other.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock

from course.lessons.results import RESULTS as FOLDER
from course.lessons.results import reference
from helpers.files import write_atomically

RESULTS, PUBLISHED = FOLDER / "results.csv", FOLDER / "published.csv"
SPEED, DEPLOYED = FOLDER / "speed.csv", FOLDER / "deployed.csv"
TEXT = ("name", "stage", "status", "source", "split", "weight_bits", "checkpoint", "weights", "key")
TEXT += ("command", "date", "torch", "torchvision", "python", "device", "trained_on")
COLUMNS = (
    *("name", "stage", "status", "source"),
    *(
        "accuracy",
        "low",
        "high",
        "images",
        "split",
        "sample_accuracy",
        "validation_accuracy",
        "cut_accuracy",
        "seed",
    ),
    *("params", "macs", "dead_channels", "weight_bits", "file_bytes", "coded_bytes"),
    *("checkpoint", "weights", "key"),
    *("command", "date", "torch", "torchvision", "python", "device", "trained_on"),
)
WHOLE = ("images", "seed", "params", "macs", "dead_channels", "file_bytes", "coded_bytes")


def load(path: Path = RESULTS) -> pd.DataFrame:
    """The table, with every column; without the file, an empty one."""
    if not path.exists():
        return pd.DataFrame(
            {name: pd.Series(dtype="str" if name in TEXT else "float64") for name in COLUMNS}
        )
    table = pd.read_csv(path, dtype=dict.fromkeys(TEXT, "str") | dict.fromkeys(WHOLE, "Int64"))
    if list(table.columns) != list(COLUMNS):
        raise ValueError(
            f"{path} has other columns than this version writes: delete it, or restore it with git"
        )
    return table


def published() -> pd.DataFrame:
    """Published results for the same network and data, each with its source."""
    return reference("published")


def speeds() -> pd.DataFrame:
    """Median milliseconds of each network in each engine, all in one run."""
    return reference("speed")


def deployed() -> pd.DataFrame:
    """Bytes and accuracy of each network's ONNX file, by name."""
    return reference("deployed").set_index("name")


def put(rows: Iterable[Mapping[str, Any]], path: Path = RESULTS) -> pd.DataFrame:
    """Write rows in the place of those of the same name, which keep what the new ones lack; new
    names come last.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        kept = {row["name"]: row for row in load(path).astype(object).to_dict("records")}
        for row in rows:
            if unknown := row.keys() - set(COLUMNS):
                raise ValueError(f"{path.name} has no column {sorted(unknown)[0]!r}")
            kept[row["name"]] = kept.get(row["name"], {}) | dict(row)
        table = pd.DataFrame(kept.values(), columns=list(COLUMNS)).astype(
            dict.fromkeys(WHOLE, "Int64")
        )
        write_atomically(path, table.to_csv(index=False))
    return load(path)


def as_markdown(table: pd.DataFrame) -> str:
    """A table whose first column is text and the rest, if they are numbers with units, stand to the
    right.
    """
    rows = [list(map(str, row)) for row in table.itertuples(index=False)]
    columns = range(len(table.columns))
    right = [
        "---:" if all(row[at][:1].isdigit() for row in rows if row[at]) else "---" for at in columns
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [list(table.columns), right, *rows])
