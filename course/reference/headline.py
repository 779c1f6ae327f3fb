"""The few rows of the reference results that one shows first: where we start, and what is worth having."""

import pandas as pd

POINT = 0.01
LATER = ("fine-tuned", "int8", "qat")


def headline(table: pd.DataFrame) -> pd.DataFrame:
    """The dense network, and of each later stage the smallest file that validation puts within a point of it.

    Nothing is chosen on test images: the test accuracy is only shown.

    Args:
        table: as `course.reference.load` gives it; rows that were not run are left out.
    """
    known = table[(table.status == "measured") & table.file_bytes.notna()]
    dense = start(known)
    if dense.empty:
        return dense
    floor = dense.validation_accuracy.iloc[0] - POINT
    good = known[known.validation_accuracy >= floor].sort_values("file_bytes")
    return pd.concat([dense, *(good[good.stage == stage].head(1) for stage in LATER)])


def start(known: pd.DataFrame) -> pd.DataFrame:
    """The row that the others are compared with: of several dense networks the one that validation puts first."""
    dense = known[known.stage == "dense"]
    return dense.sort_values("validation_accuracy", ascending=False, kind="stable").head(1)


def readable(table: pd.DataFrame) -> pd.DataFrame:
    """The same as a table for people: percent, megabytes, milliseconds, and how many times smaller."""
    first = table.file_bytes.iloc[0]
    percent = [
        f"{100 * row.accuracy:.2f} % ({100 * row.low:.1f} to {100 * row.high:.1f})" for row in table.itertuples()
    ]
    rows = {
        "network": table["name"],
        "accuracy (95 % interval)": percent,
        "MB": [f"{size / 1e6:.2f}" for size in table.file_bytes],
        "times smaller": [f"{first / size:.1f}" for size in table.file_bytes],
        "million multiply-adds": [f"{count / 1e6:.1f}" if pd.notna(count) else "" for count in table.macs],
        "ms, 1 image": [f"{time:.2f}" if pd.notna(time) else "" for time in table.batch1_ms],
    }
    blank = [""] * len(table)  # row numbers would say nothing
    return pd.DataFrame({name: list(values) for name, values in rows.items()}, index=blank)
