"""How much work a lesson does: a taste that takes a minute, or the whole thing."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from helpers.data import REPOSITORY, Dataset, load_cifar10

STATES = REPOSITORY / "build" / "lessons"


@dataclass(frozen=True)
class Profile:
    """The budgets of one profile."""

    name: str
    images: int  # test images for one accuracy
    repeats: int  # how often a time is measured

    def cifar10(self) -> Dataset:
        """The data: whatever is on this machine in the quick profile, fetched when needed in the
        full one.
        """
        return load_cifar10("offline" if self.name == "quick" else "auto")

    def state(self, name: str, network: nn.Module, settings: object) -> Path | None:
        """Where a long training keeps what it has reached, so that a lesson that was stopped goes
        on from there.

        Another network to start from, or other settings (all that decides how it ends), make
        another file, so that nothing old is taken for new. None in the quick profile, whose
        trainings take seconds.
        """
        if self.name == "quick":
            return None
        digest = hashlib.sha256(repr(settings).encode())
        for key, tensor in network.state_dict().items():
            digest.update(f"{key} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return STATES / f"{name}-{digest.hexdigest()[:12]}.state"


PROFILES = {
    "quick": Profile("quick", images=500, repeats=6),
    "full": Profile("full", images=10_000, repeats=50),
}


def profile() -> Profile:
    """The profile that the environment variable PROFILE names; quick without it."""
    name = os.environ.get("PROFILE", "quick")
    if name not in PROFILES:
        raise ValueError(f"PROFILE={name!r} is unknown; set it to {' or '.join(PROFILES)}")
    return PROFILES[name]
