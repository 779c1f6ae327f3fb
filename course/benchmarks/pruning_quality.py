"""Accuracy after pruning and fine-tuning, ours beside Torch-Pruning.

    python -m course.benchmarks.pruning_quality

Every network is cut to the same share of the multiply-adds and gets the same fine-tuning. First
each criterion of each tool once, on a third of the training images, and the best of each is chosen
by its validation accuracy; then the two chosen ones on all of them with several seeds, and only
these are asked for their test accuracy. Rows go to data/results/pruning_quality.csv as soon as they
are known, and a row that is there, for the same bytes of the checkpoint, is not computed again:
delete the file to start anew.
"""

import copy
from dataclasses import replace
from functools import partial

import torch
from torch import nn

from course.benchmarks.common import DENSE, KnownRows, described, need
from helpers import data, metrics, models, pruning, training

EXAMPLE = torch.zeros(1, 3, 32, 32)
GRADIENT_BATCHES, GRADIENT_IMAGES = 8, 128
HALVINGS = 20
TOLERANCE = 0.005
SHARE, SEEDS = 0.5, 3  # of the multiply-adds is kept; in the comparison
CHOOSING_IMAGES = 15_000
CHOOSING, COMPARING = (
    {"epochs": 1, "image_sizes": (24,)},
    {"epochs": 2, "image_sizes": (24, 32)},
)  # of fine-tuning
OURS = [
    *[("hidden", "uniform", c) for c in ("l1", "l2", "bn_scale", "geometric_median", "taylor")],
    *[("all", "uniform", c) for c in ("l1", "taylor")],
    *[(scope, "global", c) for scope in ("hidden", "all") for c in ("l1", "taylor")],
    ("hidden", "uniform", "random"),
]
CRITERIA = ("magnitude l1", "magnitude l2", "taylor", "bn scale", "fpgm")
THEIRS = [(spread, criterion) for spread in ("local", "global") for criterion in CRITERIA]
Batches = list[tuple[torch.Tensor, torch.Tensor]]


def ours(model: nn.Module, batches: Batches, how: tuple[str, str, str]) -> nn.Module:
    scope, allocation, importance = how
    settings = {"importance": importance, "allocation": allocation, "scope": scope}
    return pruning.prune(
        model, EXAMPLE, **settings, target_macs=SHARE, tolerance=TOLERANCE, batches=batches
    )


def theirs(model: nn.Module, batches: Batches, how: tuple[str, str]) -> nn.Module:
    """Halve the interval of Torch-Pruning's ratio until the multiply-adds are met."""
    whole, (low, high) = metrics.count_macs(model, EXAMPLE), (0.0, 1.0)
    twin = copy.deepcopy(model)
    for images, labels in batches if how[1] == "taylor" else ():
        nn.functional.cross_entropy(twin(images), labels).backward()
    for _ in range(HALVINGS):
        ratio = (low + high) / 2
        small = theirs_at(twin, ratio, *how)
        left = metrics.count_macs(small, EXAMPLE) / whole
        if abs(left - SHARE) <= TOLERANCE:
            return small
        low, high = (ratio, high) if left > SHARE else (low, ratio)
    raise SystemExit(
        f"Torch-Pruning, {' '.join(how)}: no ratio leaves {SHARE:.0%} ± {TOLERANCE:.1%} of the"
        " multiply-adds"
    )


def theirs_at(model: nn.Module, ratio: float, spread: str, criterion: str) -> nn.Module:
    import torch_pruning as tp

    importance = {
        "magnitude l1": partial(tp.importance.GroupMagnitudeImportance, p=1),
        "magnitude l2": partial(tp.importance.GroupMagnitudeImportance, p=2),
        "taylor": tp.importance.GroupTaylorImportance,
        "bn scale": tp.importance.BNScaleImportance,
        "fpgm": tp.importance.FPGMImportance,
    }[criterion]()
    small = copy.deepcopy(model)
    for weight, theirs in zip(small.parameters(), model.parameters(), strict=True):
        weight.grad = copy.deepcopy(theirs.grad)
    outputs = [m for m in small.modules() if isinstance(m, nn.Linear)]
    settings = {
        "global_pruning": spread == "global",
        "pruning_ratio": ratio,
        "ignored_layers": outputs,
    }
    tp.pruner.BasePruner(small, EXAMPLE, importance, **settings).step()
    return small


# Every way to cut a network to this share of its multiply-adds, by name.
METHODS = {f"ours: {' '.join(how)}": partial(ours, how=how) for how in OURS}
METHODS |= {f"Torch-Pruning: {' '.join(how)}": partial(theirs, how=how) for how in THEIRS}


def result(
    table: KnownRows,
    cifar: data.Dataset,
    dense: nn.Module,
    name: str,
    config: training.Config,
    test: bool,
):
    """One row: from the table, or computed and put there."""
    split, seen = cifar.split(), cifar
    if not test:
        # A tenth of these is set aside in turn; they contain no validation image of the full set.
        part = slice(CHOOSING_IMAGES)
        seen = replace(
            cifar, train_images=split.train_images[part], train_labels=split.train_labels[part]
        )
    row = {"method": name, "stage": "compared" if test else "chosen from", "seed": config.seed}
    row |= {
        "epochs": config.epochs,
        "image_sizes": str(config.image_sizes),
        "images": len(seen.train_images),
    }
    if known := table.find(**row):
        return known
    torch.manual_seed(config.seed)
    order = torch.randperm(len(split.train_images))[: GRADIENT_BATCHES * GRADIENT_IMAGES].split(
        GRADIENT_IMAGES
    )
    batches = [
        (data.normalize(split.train_images[part]), split.train_labels[part]) for part in order
    ]
    small = METHODS[name](dense, batches)
    row |= {
        "macs": metrics.count_macs(small, EXAMPLE),
        "parameters": metrics.count_parameters(small),
    }
    small.zero_grad(set_to_none=True)
    training.train(small, seen, config, progress=False)
    row["validation"] = training.evaluate(
        small, split.validation_images, split.validation_labels
    ).accuracy
    row["test"] = (
        training.evaluate(small, cifar.test_images, cifar.test_labels).accuracy
        if test
        else float("nan")
    )
    return table.add(row, config.seed)


def main() -> None:
    parser = described(__doc__)
    parser.parse_args()
    need(parser, "torch_pruning")
    cifar, dense = data.load_cifar10("local"), models.load(DENSE)
    table = KnownRows("pruning_quality", DENSE, share=SHARE)
    schedule = training.Config(lr=0.02, ema=0.99)
    best: dict[str, dict] = {}
    for name in METHODS:
        row, tool = (
            result(table, cifar, dense, name, replace(schedule, **CHOOSING), test=False),
            name.split(":")[0],
        )
        best[tool] = max(best.get(tool, row), row, key=lambda r: r["validation"])
    for seed in range(SEEDS):
        for row in best.values():
            result(
                table,
                cifar,
                dense,
                row["method"],
                replace(schedule, seed=seed, **COMPARING),
                test=True,
            )
    compared = table.mine().query("stage == 'compared'").groupby("method").test
    print(
        compared.agg(["mean", "std", "min", "max", "count"])
        .mul([100, 100, 100, 100, 1])
        .round(2)
        .to_string()
    )


if __name__ == "__main__":
    main()
