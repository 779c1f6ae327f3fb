"""The resumable state of a training run: one safetensors file, written whole after each epoch."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from helpers import distributed
from helpers.files import write_atomically
from helpers.passes import module_tree
from helpers.training_config import Config, TrainingError
from helpers.training_loop import TrainingLoop


class TrainingState:
    """What must survive a kill: weights, averaged weights, momenta, and the rows of the finished epochs."""

    def __init__(self, loop: TrainingLoop, config: Config, path: str | Path | None):
        self.loop, self.config = loop, config
        self.path = Path(path) if path is not None else None
        self.history: list[dict] = []

    @property
    def epoch(self) -> int:
        """How many epochs are finished."""
        return len(self.history)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """All that the end of a run depends on, beside the weights that it starts with."""
        loop = self.loop
        teacher = None if loop.teacher is None else digest(module_tree.tensors(loop.teacher))
        return asdict(self.config) | {"images": digest([loop.images, loop.labels]), "teacher": teacher}

    def finish_epoch(self, row: dict) -> None:
        """Add an epoch's row and write everything, in one piece."""
        self.history.append(row)
        if self.path is not None and distributed.is_first():
            header = {"settings": json.dumps(self.settings), "history": json.dumps(self.history)}
            # Copies: safetensors refuses tensors that share memory, as those of two layers with the same weight do.
            plain = {"device": "cpu", "copy": True, "memory_format": torch.contiguous_format}
            tensors = {name: tensor.detach().to(**plain) for name, tensor in self.tensors().items()}
            write_atomically(self.path, save(tensors, header))
        distributed.wait()

    def resume(self) -> int:
        """Go back to the last finished epoch, if the file has one; returns how many are finished."""
        if self.path is None or not self.path.exists():
            return 0
        try:
            with safe_open(self.path, "pt") as file:
                header = file.metadata()
                self.refuse_other_settings(json.loads(header["settings"]))
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            history = json.loads(header["history"])
        except (SafetensorError, KeyError, TypeError, ValueError, OSError) as error:
            raise TrainingError(f"{self.path} is not a training state ({error}); delete it to start anew") from error
        self.restore(tensors)
        self.history = history
        return self.epoch

    def tensors(self) -> dict[str, torch.Tensor]:
        """Every tensor of the state, by a flat name."""
        found = {}
        for twin, model in (("model", self.loop.model), ("averaged", self.loop.averaged)):
            # Buffers that a checkpoint leaves out may change in training all the same.
            found |= {f"{twin}.{name}": t for name, t in (dict(model.named_buffers()) | model.state_dict()).items()}
        for name, parameter in self.loop.model.named_parameters():
            momentum = self.loop.optimizer.state.get(parameter, {}).get("momentum_buffer")
            if momentum is not None:
                found[f"momentum.{name}"] = momentum
        return found

    @torch.no_grad()
    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        """Put every tensor back where `tensors` found it."""
        for name, parameter in self.loop.model.named_parameters():
            # An empty place for the momentum, which the optimizer makes only at the first gradient: a parameter that is
            # frozen, or that no image has reached, has none.
            if f"momentum.{name}" in tensors:
                self.loop.optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        places = self.tensors()
        wrong = [
            n
            for n in places.keys() | tensors.keys()
            if n not in places or n not in tensors or places[n].shape != tensors[n].shape
        ]
        if wrong:
            raise TrainingError(f"{self.path} belongs to another network (see {sorted(wrong)[0]}); choose another path")
        for name, place in places.items():
            place.copy_(tensors[name])

    def refuse_other_settings(self, stored: dict) -> None:
        """A run can only go on with the settings that it was started with."""
        mine = json.loads(json.dumps(self.settings))
        other = [f"{k} was {stored.get(k)}, now {v}" for k, v in mine.items() if stored.get(k) != v]
        if other:
            raise TrainingError(
                f"{self.path} was made with other settings ({'; '.join(other)}); delete it or choose another"
            )


def digest(tensors: Iterable[torch.Tensor]) -> str:
    """Tells one list of tensors from another."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return found.hexdigest()[:16]
