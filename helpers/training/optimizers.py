"""Which optimizer steps which weights: SGD all of them, or Muon the dense convolutions and SGD the rest."""

import torch
from torch import nn

from helpers.training.config import Config


def optimizers(model: nn.Module, config: Config) -> list[torch.optim.Optimizer]:
    """SGD with momentum, and Muon if the settings give it a rate; each group keeps its peak rate as ``peak``."""
    decayed, spared = weight_groups(model, config.weight_decay)
    found = []
    if config.muon:
        filters = [p for p in decayed["params"] if p.dim() == 4]
        decayed["params"] = [p for p in decayed["params"] if p.dim() != 4]
        found = [muon(filters, config.muon)] if filters else []
    found.insert(0, torch.optim.SGD([decayed, spared], config.lr, momentum=0.9, nesterov=True))
    for group in (group for optimizer in found for group in optimizer.param_groups):
        group["peak"] = group["lr"]
    return found


def muon(filters: list[nn.Parameter], lr: float) -> torch.optim.Muon:
    """Muon takes matrices only: it steps on flat views of the filters, one row for each, in the same memory.

    The order of the columns means nothing to Muon, so that of channels_last memory will do.
    """
    views = [nn.Parameter(w.detach().permute(0, 2, 3, 1).view(len(w), -1)) for w in filters]
    optimizer = torch.optim.Muon(views, lr)

    def take_gradients(*_: object) -> None:
        for weight, view in zip(filters, views, strict=True):
            view.grad = None if weight.grad is None else weight.grad.permute(0, 2, 3, 1).reshape(view.shape)

    optimizer.register_step_pre_hook(take_gradients)
    return optimizer


def weight_groups(model: nn.Module, weight_decay: float) -> list[dict]:
    """Two parameter groups: dense weights decay; BatchNorm, biases and depthwise filters do not."""
    depthwise = {
        id(m.weight)
        for m in model.modules()
        if isinstance(m, nn.modules.conv._ConvNd) and m.groups == m.in_channels > 1
    }
    decayed = [p for p in model.parameters() if p.dim() > 1 and id(p) not in depthwise]
    spared = [p for p in model.parameters() if p.dim() <= 1 or id(p) in depthwise]
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": spared, "weight_decay": 0.0}]
