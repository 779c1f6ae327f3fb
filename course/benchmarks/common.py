"""What the comparisons share: rows that are kept, networks known by their bytes, turns in processes
of their own.
"""

import argparse
import hashlib
import math
import multiprocessing
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock

from course.reference.table import FOLDER
from helpers.files import write_atomically
from helpers.models import CHECKPOINTS
from helpers.provenance import provenance

DENSE = CHECKPOINTS / "dense.safetensors"  # the network that all comparisons start from


def described(doc: str) -> argparse.ArgumentParser:
    """What a benchmark takes on its command line: nothing yet; --help tells its docstring."""
    return argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def need(parser: argparse.ArgumentParser, *packages: str) -> None:
    """End before hours of work if a package is missing: the table would lack its rows."""
    if missing := [name for name in packages if find_spec(name) is None]:
        remedy = "pip install -e '.[rivals]' -c constraints.txt"
        parser.error(f"{', '.join(missing)} not installed: {remedy}")


def refuse_unknown(
    parser: argparse.ArgumentParser, asked: Iterable[str], names: Iterable[str]
) -> None:
    """A slip in the name of a network would get a row, which stays in the table."""
    if unknown := {*asked} - {*names}:
        parser.error(f"there is no network {', '.join(sorted(unknown))}")


class KnownRows:
    """A table of data/results/ for work that takes long.

    Every row of a run carries its `settings`; rows of other runs carry others.
    """

    def __init__(self, name: str, checkpoint: Path | None = None, **settings: object) -> None:
        self.path = FOLDER / f"{name}.csv"
        self.settings = (origin(checkpoint) if checkpoint else {}) | settings
        self.rows = self.read()

    def read(self) -> list[dict]:
        """All rows of the file, whole numbers as such."""
        if not self.path.exists():
            return []
        table = pd.read_csv(self.path, dtype={"sha256": str}, dtype_backend="numpy_nullable")
        return table.astype(object).where(table.notna(), math.nan).to_dict("records")

    def mine(self) -> pd.DataFrame:
        """The rows of this run's settings."""
        return pd.DataFrame([row for row in self.rows if matches(row, self.settings)])

    def find(self, **wanted: object) -> dict | None:
        """The row of these values, if it is known."""
        return next((row for row in self.rows if matches(row, self.settings | wanted)), None)

    def add(self, row: dict, seed: int | None = None, instead_of: dict | None = None) -> dict:
        """Write a row at once; rows that other processes have added meanwhile stay.

        It takes the place of what has the values of `instead_of`.
        """
        with FileLock(self.path.with_suffix(".lock")):
            rows = self.read()
            if instead_of is not None:
                rows = [old for old in rows if not matches(old, self.settings | instead_of)]
            self.rows = [*rows, row | self.settings | provenance(seed)]
            # As objects: among floats, the whole numbers of other rows would become some.
            table = pd.DataFrame(self.rows, dtype=object)
            write_atomically(self.path, table.to_csv(index=False))
        print(row, flush=True)
        return row


def origin(checkpoint: Path) -> dict[str, str]:
    """The columns that name a network.

    It is known by its bytes: another one may come to have the same name.
    """
    return {
        "checkpoint": checkpoint.stem,
        "sha256": hashlib.sha256(checkpoint.read_bytes()).hexdigest()[:16],
    }


def matches(row: dict, wanted: dict) -> bool:
    """Whether a row has all of these values."""
    return all(name in row and row[name] == value for name, value in wanted.items())


class WorkerError(RuntimeError):
    """A worker gave no answer; says why."""


class Worker:
    """A contestant in a process of its own: its thread pool, its memory and its crash touch nobody
    else's.

    It is forked, so this process must not have started threads.
    """

    def __init__(self, make: Callable[..., Callable], *arguments: object) -> None:
        fork = multiprocessing.get_context("fork")
        self.pipe, theirs = fork.Pipe()
        self.process = fork.Process(target=serve, args=(theirs, make, arguments), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, *question: object, seconds: float = 540) -> Any:
        """What the function that `make` gave answers to the question."""
        try:
            self.pipe.send(question)
            if not self.pipe.poll(seconds):
                raise WorkerError(f"no answer in {seconds} s")
            good, answer = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise WorkerError("the process ended without an answer") from error
        if not good:
            raise WorkerError(answer)
        return answer

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()


def serve(pipe: Connection, make: Callable[..., Callable], arguments: tuple) -> None:
    """The process of a worker: make the function, then answer questions with it until something
    goes wrong.
    """
    try:
        answer = make(*arguments)
        while True:
            pipe.send((True, answer(*pipe.recv())))
    except EOFError:
        pass
    except Exception as error:
        pipe.send((False, f"{type(error).__name__}: {error}".splitlines()[0][:200]))
