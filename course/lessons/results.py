"""Reference results: the CSV files of data/results/, written by the course's own commands."""

import pandas as pd

from course.hosted import REPOSITORY

RESULTS = REPOSITORY / "data" / "results"


def reference(name: str) -> pd.DataFrame:
    """The results of a file of data/results/, named without its ending; if it has rows of several
    networks, only those of the network in the last row.
    """
    path = RESULTS / f"{name}.csv"
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is missing: `git checkout -- {path}` brings it back, or unpack the course"
            " anew; README.md beside it names the command that writes it"
        )
    rows = pd.read_csv(path, dtype={"sha256": str})  # digits alone would be read as a number
    return rows[rows.sha256 == rows.sha256.iloc[-1]] if "sha256" in rows else rows
