"""A table of results in a file, for work that takes long: what is in it need not be computed again."""

import hashlib
from pathlib import Path

import pandas as pd

from helpers.files import write_atomically
from helpers.provenance import provenance


class KnownRows:
    """The rows of a CSV file, and those of them that were computed with the same settings.

    Attributes:
        settings: columns that every row of this run has; they tell its rows from those of other runs.
    """

    def __init__(self, path: Path, checkpoint: Path, **settings: object) -> None:
        self.path, self.settings = path, origin(checkpoint) | settings
        self.rows = pd.read_csv(path, dtype={"sha256": str}).to_dict("records") if path.exists() else []

    def mine(self) -> pd.DataFrame:
        """The rows of this run's settings."""
        return pd.DataFrame([row for row in self.rows if matches(row, self.settings)])

    def find(self, **wanted: object) -> dict | None:
        """The row of these values, if it is known."""
        return next((row for row in self.rows if matches(row, self.settings | wanted)), None)

    def add(self, row: dict, seed: int | None = None) -> dict:
        """Keep a row, at once."""
        self.rows.append(row | self.settings | provenance(seed))
        write_atomically(self.path, pd.DataFrame(self.rows).to_csv(index=False))
        print(row, flush=True)
        return row


def origin(checkpoint: Path) -> dict[str, str]:
    """The columns that name a network. It is known by its bytes: another one may come to have the same name."""
    return {"checkpoint": checkpoint.stem, "sha256": hashlib.sha256(checkpoint.read_bytes()).hexdigest()[:16]}


def matches(row: dict, wanted: dict) -> bool:
    """Whether a row has all of these values."""
    return all(name in row and row[name] == value for name, value in wanted.items())
