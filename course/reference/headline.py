"""The four rows that one shows first: where we start, and what is worth having."""

import pandas as pd

from course.reference.table import deployed, load, speeds

# What a stranger is told, and the row of the results that it is.
SHOWN = {
    "dense": "dense",
    "half": "half-mixed",
    "a tenth": "tenth-int8",
    "smallest": "tenth-mixed",
}


def headline(table: pd.DataFrame | None = None) -> pd.DataFrame:
    """The rows of SHOWN that are there, under the names that strangers are told, with the bytes
    and times of their ONNX files.
    """
    table = load() if table is None else table
    rows = table[table.name.isin(SHOWN.values())].set_index("name")
    shown = {told: name for told, name in SHOWN.items() if name in rows.index}
    rows = rows.loc[list(shown.values())].assign(row=list(shown.values()), name=list(shown))
    rows["onnx_bytes"] = deployed().onnx_bytes.reindex(rows.row).array
    for batch in (1, 128):
        rows[f"batch{batch}_ms"] = [
            milliseconds(row.row, row.weight_bits, batch) for row in rows.itertuples()
        ]
    return rows.reset_index(drop=True)


def milliseconds(name: str, weight_bits: str, batch: int) -> float:
    """The median time of a network in ONNX Runtime; weights below 8 bits are stored as such and
    computed with as 8 bits.
    """
    found = speeds()
    engine = "ONNX Runtime float32" if weight_bits == "32" else "ONNX Runtime int8"
    structure = name.partition("-")[0]
    found = found[(found.name == structure) & (found.engine == engine) & (found.batch == batch)]
    return float("nan") if found.empty else float(found.median_ms.iloc[0])


def readable(rows: pd.DataFrame) -> pd.DataFrame:
    """The same as a table for people: percent, megabytes, milliseconds, how many times smaller."""
    first = rows.file_bytes.iloc[0]
    columns = {
        "network": list(rows["name"]),
        "weights": [
            "8 bits or fewer" if bits == "mixed" else f"{bits} bits each"
            for bits in rows.weight_bits
        ],
        "parameters": [f"{count / 1e6:.2f} M" for count in rows.params],
        "accuracy": [
            f"{row.accuracy:.2%} ± {(row.high - row.low) / 2:.1%}" for row in rows.itertuples()
        ],
        "file": [megabytes(size) for size in rows.file_bytes],
        "times smaller": [f"{first / size:.0f}" for size in rows.file_bytes],
        "ONNX file": [megabytes(size) for size in rows.onnx_bytes],
        "one image": [f"{time:.2f} ms" if pd.notna(time) else "-" for time in rows.batch1_ms],
    }
    return pd.DataFrame(columns, index=[""] * len(rows))  # row numbers would say nothing


def megabytes(size: float) -> str:
    """Bytes to three digits; a dash where they were not measured."""
    return "-" if pd.isna(size) else f"{size / 1e6:#.3g} MB"
