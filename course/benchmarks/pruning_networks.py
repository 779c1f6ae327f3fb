"""Prune every classification network of torchvision at 30 %, ours beside Torch-Pruning; list what
cannot be pruned.

    python -m course.benchmarks.pruning_networks [NETWORK ...] [--rival] [--unprunable]

One row for each network and tool is written to data/results/pruning_networks.csv as soon as it is
known; a row that is there is not computed again. Each tool has a process of its own, and the two
take turns. Seconds are for finding the groups and pruning (L1, all groups, 30 %), without building
the network, on one thread: by the clock, and of processor time, which other work on the machine
does not lengthen; the median of up to seven runs on fresh networks (fewer where they take long),
because a first run also loads parts of PyTorch. data/results/unprunable.csv has every channel group
that stays, with its reason (an output of the network stays by definition): the tests compare it
with what they find.
"""

import gc
import importlib
import statistics
import time
import warnings
from collections.abc import Callable

import pandas as pd
import torch
import torchvision
from torch import nn

from course.benchmarks.common import KnownRows, Worker, WorkerError, described, refuse_unknown
from course.reference.table import FOLDER
from helpers import metrics, pruning
from helpers.files import write_atomically

RATIO = 0.3
RUNS, ENOUGH_SECONDS = 7, 4


def built(name: str) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    extra = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    size = 299 if name == "inception_v3" else 224
    return torchvision.models.get_model(name, weights=None, **extra).eval(), torch.zeros(
        1, 3, size, size
    )


def ours(model: nn.Module, x: torch.Tensor) -> nn.Module:
    return pruning.prune(model, x, ratio=RATIO, scope="all")


def rival(model: nn.Module, x: torch.Tensor) -> nn.Module:
    import torch_pruning as tp

    outputs = [m for m in model.modules() if isinstance(m, nn.Linear) and m.out_features == 1000]
    outputs += [m for m in model.modules() if isinstance(m, nn.Conv2d) and m.out_channels == 1000]
    heads = {m: m.num_heads for m in model.modules() if isinstance(m, nn.MultiheadAttention)}
    settings = {"pruning_ratio": RATIO, "ignored_layers": outputs, "num_heads": heads}
    importance = tp.importance.MagnitudeImportance(p=1)
    tp.pruner.MagnitudePruner(model, x, importance=importance, **settings).step()
    return model


TOOLS = {"ours": ours, "torch-pruning": rival}


def contestant(name: str, tool: str) -> Callable[[str], dict]:
    """A tool with one network: asked to "prune", it prunes a fresh one and gives its times; then it
    runs the result.
    """
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found: dict = {}

    def answer(order: str) -> dict:
        if order == "prune":
            found.clear()  # its memory is not given back while the next one is timed
            model, x = built(name)
            before = metrics.count_parameters(model)
            gc.collect()  # so that each run begins with the same amount of rubbish: none
            start = time.perf_counter(), time.process_time()
            small = TOOLS[tool](model, x)
            times = {
                "seconds": time.perf_counter() - start[0],
                "cpu_seconds": time.process_time() - start[1],
            }
            found.update(small=small, x=x, parameters=before)
            return times
        with torch.no_grad():
            found["small"].eval()(found["x"])
        left = metrics.count_parameters(found["small"])
        return {
            "parameters": found["parameters"],
            "left": left,
            "share": round(left / found["parameters"], 4),
        }

    return answer


def compete(name: str, tools: list[str]) -> dict[str, dict]:
    """The rows of these tools for one network: they take turns until each pruned often enough."""
    workers, times, rows = (
        {tool: Worker(contestant, name, tool) for tool in tools},
        {tool: [] for tool in tools},
        {},
    )
    while playing := [tool for tool in tools if tool not in rows]:
        for tool in playing:
            done = times[tool]
            try:
                if len(done) < RUNS and sum(one["cpu_seconds"] for one in done) <= ENOUGH_SECONDS:
                    done.append(workers[tool].ask("prune"))
                    continue
                middle = {
                    key: round(statistics.median(one[key] for one in done), 4) for key in done[0]
                }
                rows[tool] = (
                    workers[tool].ask("run") | middle | {"runs": len(done), "outcome": "ok"}
                )
            except WorkerError as error:
                rows[tool] = {"outcome": str(error)}
            workers[tool].close()
    return rows


def summary(rows: pd.DataFrame) -> str:
    """Networks handled by each, and how much faster ours is on those that both handle."""
    good = rows[rows.outcome == "ok"].pivot_table("cpu_seconds", "network", "tool")
    lines = [
        f"{tool}: {good[tool].count()} of {(rows.tool == tool).sum()} networks" for tool in good
    ]
    if len(both := good.dropna()) and len(both.columns) == 2:
        total, ratio = (
            both["torch-pruning"].sum() / both["ours"].sum(),
            both["torch-pruning"] / both["ours"],
        )
        lines.append(
            f"on {len(both)} of both: {total:.1f} times faster in sum, {ratio.median():.1f} in"
            " median"
        )
    return "\n".join(lines)


def unprunable(name: str) -> list[dict]:
    """The groups of a network that stay, and why."""
    with torch.device(
        "cpu" if name.startswith("regnet") else "meta"
    ):  # RegNet computes its widths with tensors
        model, x = built(name)
    groups = pruning.channel_groups(model, torch.zeros(x.shape))
    stay = [
        group
        for group in groups
        if group.reason and group.reason != "it is an output of the network"
    ]
    return [
        {"network": name, "group": group.name, "units": group.size, "reason": group.reason}
        for group in stay
    ]


def main() -> None:
    parser = described(__doc__)
    parser.add_argument("networks", nargs="*", help="torchvision names; all by default")
    parser.add_argument(
        "--rival", action="store_true", help="Torch-Pruning as well (pip install torch-pruning)"
    )
    parser.add_argument("--unprunable", action="store_true", help="write unprunable.csv, instead")
    arguments = parser.parse_args()
    everything = torchvision.models.list_models(module=torchvision.models)
    refuse_unknown(parser, arguments.networks, everything)
    if arguments.unprunable:
        rows = [row for name in everything for row in unprunable(name)]
        write_atomically(FOLDER / "unprunable.csv", pd.DataFrame(rows).to_csv(index=False))
        print(f"{len(rows)} groups of {len({row['network'] for row in rows})} networks")
        return
    table, tools = KnownRows("pruning_networks"), list(TOOLS)[: 2 if arguments.rival else 1]
    if arguments.rival:
        importlib.import_module("torch_pruning")  # once, for all networks
    for name in arguments.networks or everything:
        wanted = [tool for tool in tools if not table.find(network=name, tool=tool)]
        for tool, found in compete(name, wanted).items():
            table.add({"network": name, "tool": tool} | found)
    print(summary(pd.DataFrame(table.rows)))


if __name__ == "__main__":
    main()
