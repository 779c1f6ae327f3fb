"""The files of the record: one entry a line, so that a diff shows what changed."""

import json
from pathlib import Path
from typing import Any

import torch

from tests.record import measure

FOLDER = Path(__file__).parent
ANYWHERE = "any machine"
FLOAT_TOLERANCE, CODES_TOLERANCE = 1e-3, 0.1  # of the logits' spread, where the bits may differ: another machine


def load(name: str) -> dict[str, Any]:
    path = FOLDER / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def write(path: Path, entries: dict[str, Any]) -> None:
    lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in sorted(entries.items()))
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def where(mode: str) -> str:
    """On which machines the bits of a mode are the same."""
    return ANYWHERE if mode == "integer" else measure.machine()


def entry_of(mode: str, found: torch.Tensor, old: dict[str, Any] | None) -> dict[str, Any]:
    """Rounded logits, and hashes; those of other machines stay as long as nothing changed on this one."""
    here = {where(mode): measure.digest(found)}
    unchanged = old is not None and not logits_differ(mode, found, old)
    return {"sha256": (old["sha256"] if unchanged else {}) | here, "logits": [rounded(row) for row in found.tolist()]}


def rounded(row: list[float]) -> list[float]:
    return [round(value, 2) for value in row]


def logits_differ(mode: str, found: torch.Tensor, entry: dict[str, Any]) -> str | None:
    """How the logits of a mode differ from their entry, or None."""
    expected = torch.tensor(entry["logits"])
    worst = (found - expected).abs().max().item()
    if where(mode) in entry["sha256"]:
        if entry["sha256"][where(mode)] == measure.digest(found):
            return None
        return f"other bits on {where(mode)}; rounded to 0.01, the logits differ by at most {worst:.3f}"
    coded = mode in ("simulated", "kernel", "quantized")
    allowed = 0.006 + (CODES_TOLERANCE if coded else FLOAT_TOLERANCE) * expected.std().item()
    return f"the logits differ by up to {worst:.3f}, allowed are {allowed:.3f}" if not worst <= allowed else None
