"""Write data/results/unprunable.csv: every channel group of torchvision's classification networks that stays, and why.

    python course/benchmarks/pruning_unprunable.py

The output layer of a network is left out: it stays by definition. The list may only shrink: the tests compare it with
what they find.
"""

import csv
from pathlib import Path

import torch
import torchvision
from tqdm import tqdm

from helpers.pruning import channel_groups

RESULTS = Path(__file__).resolve().parents[2] / "data" / "results" / "unprunable.csv"


def unprunable(name: str) -> list[tuple[str, str, int, str]]:
    """(network, group, units, reason) of a network, built without content."""
    extra = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    with torch.device("cpu" if name.startswith("regnet") else "meta"):  # RegNet computes its widths with tensors
        model = torchvision.models.get_model(name, weights=None, **extra).eval()
    size = 299 if name == "inception_v3" else 224
    groups = channel_groups(model, torch.zeros(1, 3, size, size))
    return [
        (name, g.name, g.size, g.reason) for g in groups if g.reason and g.reason != "it is an output of the network"
    ]


def main() -> None:
    rows = []
    for name in tqdm(torchvision.models.list_models(module=torchvision.models)):
        rows += unprunable(name)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with RESULTS.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["network", "group", "units", "reason"])
        writer.writerows(rows)
    print(f"{len(rows)} groups of {len({r[0] for r in rows})} networks")


if __name__ == "__main__":
    main()
