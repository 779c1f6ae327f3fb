"""What the ablations say: one line for each thing that was changed, over all its seeds."""

import pandas as pd

from course.reference.table import FOLDER

ABLATIONS = FOLDER / "ablations.csv"
NOTE = (
    "One thing is changed at a time; all trainings are the same short one: `python -m course sweep"
    " ablations`."
)


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Mean, lowest and highest accuracy of the networks that differ by their seed alone.

    Such networks are called ``NAME-SEED`` in the sweep.
    """
    measured = table[table.status == "measured"]
    names = [row.name.removesuffix(f"-{row.seed}") for row in measured.itertuples(index=False)]
    by_name = measured.assign(name=names).groupby(["name", "stage"], sort=False)
    return by_name.accuracy.agg(
        mean="mean", lowest="min", highest="max", seeds="count"
    ).reset_index()


def readable(table: pd.DataFrame) -> pd.DataFrame:
    """The summary as the page of results shows it."""
    rows = [
        (
            row.name,
            row.stage,
            f"{row.mean:.2%}",
            f"{row.lowest:.2%} to {row.highest:.2%}" * (row.seeds > 1),
            row.seeds,
        )
        for row in summary(table).itertuples(index=False)
    ]
    return pd.DataFrame(
        rows, columns=["changed", "stage", "test accuracy", "lowest to highest", "seeds"]
    )
