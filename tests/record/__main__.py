"""Renew the record, or dump what its digests are of; see the docstring of the package."""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from tests.record import files, measure


def logits() -> dict[str, Any]:
    old = files.load("logits")
    found = {f"{name} {mode}": (mode, y) for name in measure.CHECKPOINTS for mode, y in measure.logits(name).items()}
    return {key: files.entry_of(mode, y, old.get(key)) for key, (mode, y) in found.items()}


def groups() -> dict[str, Any]:
    return {name: measure.summary(measure.groups(name)) for name in (measure.OURS, *measure.NETWORKS)}


def folds() -> dict[str, Any]:
    return {case: value for route in measure.ROUTES for case, value in measure.zoo_folds(route).items()}


def networks() -> dict[str, Any]:
    return {name: measure.network_folds(name) for name in (measure.OURS, *measure.NETWORKS)}


def marks() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return measure.marks(Path(folder))


def dump_groups(folder: Path) -> None:
    """One file for each network, one line for each group."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (measure.OURS, *measure.NETWORKS):
        files.write(folder / f"{name}.json", {group[0]: group[1:] for group in measure.groups(name)})


PARTS = {part.__name__: part for part in (logits, groups, folds, networks, marks)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.record", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all when none is named")
    parser.add_argument("--dump", type=Path, help="write the channel groups in full into this folder, renew nothing")
    args = parser.parse_args()
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if args.dump:
        dump_groups(args.dump)
    for part in () if args.dump else args.parts or PARTS:
        files.write(files.FOLDER / f"{part}.json", PARTS[part]())
