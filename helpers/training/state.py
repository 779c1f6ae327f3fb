"""What a training run writes after each epoch, so that it can be stopped at any time and go on.

Two safetensors files, both written whole, and a CSV of the epochs. The *checkpoint* holds
everything, and a run that goes on from it ends as if it had never been stopped. The *hand-over* is
small enough to be committed, and takes the run to another machine: the weights in float16, from
which the average starts again, and the rows of the finished epochs. To start from the averaged
weights would be worse: they lag behind by some 1 / (1 - ema) steps, which each hand-over would
lose.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from helpers.equivalence import digest
from helpers.files import write_atomically
from helpers.training.config import Config, TrainingError
from helpers.training.loop import TrainingLoop

Place = str | Path | None


class TrainingState:
    """Weights, averaged weights, momenta, and the rows of the finished epochs."""

    def __init__(
        self,
        loop: TrainingLoop,
        checkpoint: Place = None,
        handover: Place = None,
        start: Iterable[torch.Tensor] | None = None,
    ):
        self.loop = loop
        self.start = described(start) if start else {}
        self.history: list[dict] = []  # a row for each epoch
        self.checkpoint = Path(checkpoint) if checkpoint else None
        self.handover = Path(handover) if handover else None
        rows = self.handover and self.handover.with_suffix(".csv")
        written = [path for path in (self.checkpoint, self.handover, rows) if path]
        if len({*written}) < len(written):
            told = "name two files, a hand-over not .csv, for its rows are written there"
            raise TrainingError(f"{handover} cannot be checkpoint and hand-over: {told}")
        if rows and rows.exists() and not rows.read_bytes().startswith(b"epoch,"):
            raise TrainingError(f"{rows} is no list of epochs: name another hand-over")

    @cached_property
    def settings(self) -> dict[str, Any]:
        """All that the outcome of a run depends on, so not `compile`. Tensors are represented by
        digests; that of the starting weights is left out if `start` is not given.
        """
        loop = self.loop
        images = digest([loop.images, loop.labels])
        if not loop.split.mirror:
            images += ", never mirrored"
        # No addresses of objects, which Windows writes in capitals.
        layers = re.sub(" at 0x[0-9a-fA-F]+", "", repr(loop.model))
        settings = plain(loop.config) | {
            "images": images,
            "teacher": digest(tensors_of(loop.teacher)) if loop.teacher else None,
            "normalization": repr(loop.normalization),
            "network": hashlib.sha256(layers.encode()).hexdigest()[:16],
        }
        del settings["compile"]
        return settings | self.start

    def finish_epoch(self, row: dict) -> None:
        """Add an epoch's row and write the files."""
        self.history.append(row)
        if self.checkpoint is not None:
            self.write(self.checkpoint, self.tensors())
        if self.handover is not None:
            self.write(self.handover, self.small_tensors())
            rows = pd.DataFrame(self.history).to_csv(index=False)
            # A table program that shows the file may hold it; the next epoch writes all rows.
            with suppress(PermissionError):
                write_atomically(self.handover.with_suffix(".csv"), rows)

    def write(self, path: Path, tensors: dict[str, torch.Tensor]) -> None:
        """Write one file whole."""
        header = {"settings": json.dumps(self.settings), "history": json.dumps(self.history)}
        # Copies: safetensors refuses tensors that share memory, as those of two layers with the
        # same weight do.
        form = torch.contiguous_format
        copies = {
            name: tensor.detach().to("cpu", copy=True, memory_format=form)
            for name, tensor in tensors.items()
        }
        write_atomically(path, save(copies, header))

    def resume(self) -> int:
        """Go back to the last finished epoch that a file knows, if there is one; returns how many
        are finished.
        """
        places = [path for path in (self.checkpoint, self.handover) if path and path.exists()]
        states = [self.read(path) for path in places]
        if states:
            # Another machine may have brought the hand-over further than this one's checkpoint.
            path, self.history, tensors = max(states, key=lambda state: len(state[1]))
            self.restore(path, tensors)
        return len(self.history)

    def read(self, path: Path) -> tuple[Path, list[dict], dict[str, torch.Tensor]]:
        """The finished epochs and the tensors of a file, if it was made with these settings."""
        try:
            with safe_open(path, "pt") as file:
                header = file.metadata()
                stored = json.loads(header["settings"])
                if path == self.handover:  # another processor draws other last bits
                    stored.pop("starting weights", None)
                self.refuse_other_settings(path, stored)
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return path, json.loads(header["history"]), tensors
        except (SafetensorError, KeyError, TypeError, ValueError, OSError) as error:
            raise TrainingError(
                f"{path} is not a training state ({error}); choose another path, or delete"
                " it to start anew"
            ) from error

    def tensors(self) -> dict[str, torch.Tensor]:
        """Every tensor of the state, by a flat name."""
        tensors = {"last_losses": self.loop.last_losses}
        for twin, model in (("model", self.loop.model), ("averaged", self.loop.averaged)):
            # Buffers that a checkpoint leaves out may change in training all the same.
            for name, tensor in (dict(model.named_buffers()) | model.state_dict()).items():
                tensors[f"{twin}.{name}"] = tensor
        for place, optimizer in enumerate(self.loop.optimizers):
            for number, state in optimizer.state_dict()["state"].items():
                if state.get("momentum_buffer") is not None:
                    tensors[f"momentum.{place}.{number}"] = state["momentum_buffer"]
        return tensors

    def small_tensors(self) -> dict[str, torch.Tensor]:
        """No momenta, no average but at the end, when it is the result, and weights in half the
        bytes; scales and statistics stay exact.
        """
        is_over = len(self.history) == self.loop.config.epochs
        kept = "averaged." if is_over else "model."
        halved = {"last_losses"}
        for name, weight in self.loop.model.named_parameters(remove_duplicate=False):
            if weight.dim() > 1:  # not step sizes: 1e-8 would become 0
                halved.add(f"model.{name}")
        small = {}
        for place, tensor in self.tensors().items():
            if place.startswith((kept, "last_losses")):
                name = place.replace(kept, "model.", 1)
                small[name] = tensor.half() if name in halved else tensor
        return small

    @torch.no_grad()
    def restore(self, path: Path, tensors: dict[str, torch.Tensor]) -> None:
        """Put every tensor back where `tensors` found it."""
        if not any(name.startswith("averaged.") for name in tensors):  # a hand-over
            copies = {name.replace("model.", "averaged.", 1): t for name, t in tensors.items()}
            tensors |= copies
        for place, optimizer in enumerate(self.loop.optimizers):
            parameters = chain.from_iterable(group["params"] for group in optimizer.param_groups)
            for number, parameter in enumerate(parameters):
                # An empty place for the momentum, which the optimizer makes only at the first
                # gradient: a parameter that is frozen, or that no image has reached, has none.
                if f"momentum.{place}.{number}" in tensors:
                    optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        places = self.tensors()
        here = {(name, tensor.shape) for name, tensor in places.items()}
        there = {(name, tensor.shape) for name, tensor in tensors.items()}
        if here != there:
            name = min(here ^ there)[0]
            raise TrainingError(
                f"{path} belongs to another network (see {name}); choose another path"
            )
        for name, place in places.items():
            place.copy_(tensors[name])

    def refuse_other_settings(self, path: Path, stored: dict) -> None:
        """A run goes on only with the settings that it was started with. Of a setting that the file
        does not know, because it is newer, the default counts.
        """
        stored = self.settings | plain(Config()) | stored
        if stored["network"] != self.settings["network"]:
            raise TrainingError(
                f"{path} belongs to another network, or its layers were set differently; choose"
                " another path"
            )
        changed = [name for name, now in self.settings.items() if not same(stored[name], now)]
        if not changed:
            return
        remedy = "set it as it was to go on, delete it, or choose another"
        if not set(changed) - {"starting weights", "their norm"}:
            then = "build or load the network as it was then (same torch.manual_seed) to go on"
            remedy = f"{then}; or delete it, choose another"
        listed = "; ".join(f"{n} was {stored[n]}, now {self.settings[n]}" for n in changed)
        raise TrainingError(f"{path} was made with other settings ({listed}); {remedy}")


def tensors_of(teacher: nn.Module) -> list[torch.Tensor]:
    """Of all that a teacher keeps; what else its parts keep is nothing that it was trained to."""
    return [value for value in teacher.state_dict().values() if isinstance(value, torch.Tensor)]


def described(weights: Iterable[torch.Tensor]) -> dict[str, Any]:
    """What tells these weights from others, to the last bit and nearly."""
    weights = [*weights]
    norms = [w.detach().cpu().double().norm() for w in weights if w.is_floating_point()]
    norm = float(torch.stack(norms).norm()) if norms else 0.0
    return {"starting weights": digest(weights), "their norm": norm}


def same(before: Any, now: Any) -> bool:
    """Whether a setting is what it was; a norm may have been summed in another order."""
    if isinstance(before, float) and isinstance(now, float):
        return math.isclose(before, now, rel_tol=1e-6)
    return before == now


def plain(config: Config) -> dict[str, Any]:
    """The settings as JSON gives them back."""
    return json.loads(json.dumps(asdict(config)))
