"""Networks that a learner has trained: kept beside `mine.py`, for later lessons to go on with."""

from torch import nn

from helpers import checks


def keep_network(model: nn.Module, name: str) -> None:
    """Keep a network for later lessons; a run without a learner keeps nothing.

    Args:
        model: a network that `models.save` can write.
        name: what later lessons ask for, such as "tiny-trained".
    """
    if checks.headless():
        print(f"{name}: not kept: this run was automatic")
        return
    from helpers import models  # loads torchvision, which no exercise needs

    path = models.save(model, checks.lessons().mine_folder / f"{name}.safetensors")
    print(f"{name}: kept for later lessons in {path}")


def your_network(*names: str) -> nn.Module:
    """The learner's own network in eval mode, or the shipped one; prints which.

    Args:
        names: names under which it may have been kept; the first one that exists is taken.
    """
    from helpers import models

    for name in names:
        path = checks.lessons().mine_folder / f"{name}.safetensors"
        if not checks.headless() and path.exists():
            print(f"{name}: your own, from {path}")
            return models.load(path)
    print("your network: the course's tiny.safetensors, because you have kept none of your own")
    return models.pretrained("tiny")
