"""Which recipe buys most per hour? Each gets the same processor time, and a schedule that ends with it.

    OMP_NUM_THREADS=1 taskset -c 0 python -m course.benchmarks.recipes --network tiny --minutes 3 "sgd" "muon"

The clock decides on the learning rate and the size of the images, so that nothing has to be known about speeds before.
Accuracies are of validation images. Rows are added to data/results/recipe_comparison.csv.
"""

import argparse
import math
import time
from itertools import chain
from pathlib import Path

import pandas as pd
import torch
from torch import nn
from torch.nn import functional as F

from helpers import data, models, training
from helpers.allocator import kept_memory
from helpers.augment import training_batch
from helpers.training.loop import share_of_peak, uses_bfloat16
from helpers.training.optimizers import optimizers
from helpers.training.strided_depthwise import unstrided_depthwise

TABLE = Path("data/results/recipe_comparison.csv")
GROWING = (20, 24, 28, 32)
SGD, MUON = training.Config(batch_size=128), training.Config(batch_size=256, muon=0.02)
RECIPES = {  # name -> settings, sides of the images, share of the certain images that is skipped
    "sgd": (SGD, (32,), 0.0),
    "sgd, growing images": (SGD, GROWING, 0.0),
    "muon": (MUON, (32,), 0.0),
    "muon, growing images": (MUON, GROWING, 0.0),
    "muon, growing images, fewer late": (MUON, GROWING, 0.5),
}


def train(network: str, split: data.Split, name: str, seconds: float, seed: int) -> dict:
    """Train until the processor time is used up; a row of the table."""
    config, sizes, skipped = RECIPES[name]
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = models.build(network, num_classes=10).to(memory_format=torch.channels_last).train()
    steppers, last_losses = optimizers(model, config), torch.full((len(split.train_labels),), math.inf)
    images, epoch, done, started = 0, 0, 0.0, time.process_time()
    while done < 1:
        order, weights = chosen(last_losses, skipped if epoch and done < 0.875 else 0.0, generator)
        for indices in order.split(config.batch_size)[: len(order) // config.batch_size]:
            done = (time.process_time() - started) / seconds
            if done >= 1:
                break
            for group in chain.from_iterable(stepper.param_groups for stepper in steppers):
                group["lr"] = group["peak"] * share_of_peak(done * 10_000, 10_000, config.warmup)
            batch = training_batch(split.train_images, indices, epoch, generator, sizes[int(done * len(sizes))])
            labels, bfloat16 = split.train_labels[indices], uses_bfloat16("auto", batch.device)
            with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16), unstrided_depthwise(model):
                losses = F.cross_entropy(model(batch), labels, label_smoothing=0.1, reduction="none")
            model.zero_grad()
            (losses * weights[indices]).mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), config.clip)
            for stepper in steppers:
                stepper.step()
            last_losses[indices] = losses.detach().float()
            images += len(indices)
        epoch += 1
    found = training.evaluate(model, split.validation_images, split.validation_labels)
    row = {"recipe": name, "network": network, "seed": seed, "minutes": seconds / 60, "images": images}
    return row | {"validation_accuracy": found.accuracy, "validation_loss": round(found.loss, 4)}


def chosen(losses: torch.Tensor, skipped: float, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """An order of images, and the weight of each.

    Of those with a loss below the mean a share is skipped, and the rest weighs more, so that the sum of all gradients
    is expected to be the same (InfoBatch, Qin et al. 2024).
    """
    order, weights = torch.randperm(len(losses), generator=generator), torch.ones_like(losses)
    if not skipped:
        return order, weights
    certain = losses < losses[losses.isfinite()].mean()
    weights[certain] = 1 / (1 - skipped)
    left_out = certain & (torch.rand(len(losses), generator=generator) < skipped)
    return order[~left_out[order]], weights


def main() -> None:
    """Train by each recipe in turn, and add a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="+", choices=RECIPES)
    parser.add_argument("--network", default="tiny")
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    split = data.load_cifar10("offline").split()
    for name in arguments.recipes:
        with kept_memory():
            row = train(arguments.network, split, name, arguments.minutes * 60, arguments.seed)
        print(row, flush=True)
        before = [pd.read_csv(TABLE)] if TABLE.exists() else []
        pd.concat([*before, pd.DataFrame([row])]).to_csv(TABLE, index=False)


if __name__ == "__main__":
    main()
