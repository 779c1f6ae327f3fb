"""Renew the record; see the docstring of the package."""

import json
import sys
import tempfile
from pathlib import Path

from tests.record import measure
from tests.record.test_record import FOLDER, load

KEYS = {"logits": measure.CHECKPOINTS, "groups": measure.NETWORKS, "folds": measure.ROUTES}


def write(path: Path, entries: dict) -> None:
    lines = (f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in sorted(entries.items()))
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def renew(part: str, keys: list) -> None:
    found = {name: entry for key in keys for name, entry in getattr(measure, part)(key).items()}
    if (
        part == "logits"
    ):  # what other machines computed stays as long as nothing changed on this one
        for name, old in load(part).items():
            if name not in found or old["logits"] != found[name]["logits"]:
                continue
            both = old["sha256"] | found[name]["sha256"]
            if both.items() >= old["sha256"].items():
                found[name]["sha256"] = both
    write(FOLDER / f"{part}.json", found)


with tempfile.TemporaryDirectory() as temporary:
    keys = KEYS | {"networks": measure.NETWORKS, "marks": [Path(temporary)]}
    for part in sys.argv[1:] or keys:
        renew(part, keys[part])
