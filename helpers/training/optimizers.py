"""Which optimizer steps which weights: SGD all of them, or Muon the dense convolutions and SGD the
rest.
"""

from collections import defaultdict

import torch
from torch import nn

from helpers.training.config import Config


def optimizers(model: nn.Module, config: Config) -> list[torch.optim.Optimizer]:
    """SGD with momentum, and Muon if the settings give it a rate; each group keeps its peak rate as
    ``peak``.
    """
    decayed, spared = weight_groups(model, config.weight_decay)
    filters = []
    if config.muon:
        filters = [p for p in decayed["params"] if is_filter(p)]
        decayed["params"] = [p for p in decayed["params"] if not is_filter(p)]
    chosen = [torch.optim.SGD([decayed, spared], config.lr, momentum=0.9, nesterov=True)]
    if filters:
        chosen.append(Muon(filters, config.muon))
    for optimizer in chosen:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return chosen


class Muon(torch.optim.Optimizer):
    """Momentum whose step is made orthogonal, so that no direction of a filter matrix moves farther
    than another (Jordan 2024).

    As `torch.optim.Muon`, for filters of any shape. That one iterates in bfloat16, which took 3.1 s
    a step for MobileNetV2 on one core without bfloat16 instructions; float32 took 0.15 s. Matrices
    of one shape are made orthogonal together, since a GPU would wait for each of them alone.
    """

    def __init__(self, filters: list[nn.Parameter], lr: float):
        super().__init__(filters, {"lr": lr, "momentum": 0.95, "weight_decay": 0.1})

    @torch.no_grad()
    def step(self) -> None:
        """Move every filter that has a gradient."""
        for group in self.param_groups:
            filters = [p for p in group["params"] if p.grad is not None]
            if not filters:
                continue
            torch._foreach_mul_(filters, 1 - group["lr"] * group["weight_decay"])
            stacks = defaultdict(list)
            for filter, ahead in zip(filters, self.look_ahead(filters, group), strict=True):
                stacks[wide(ahead).shape].append((filter, ahead))
            for members in stacks.values():
                steps = orthogonal(torch.stack([wide(ahead) for _, ahead in members]))
                for (filter, ahead), step in zip(members, steps, strict=True):
                    rows, columns = ahead.shape
                    upright = step.T if rows > columns else step
                    rate = group["lr"] * max(1, rows / columns) ** 0.5
                    filter.sub_(upright.reshape(filter.shape), alpha=rate)

    def look_ahead(self, filters: list[nn.Parameter], group: dict) -> list[torch.Tensor]:
        """Nesterov's momentum as matrices, a row for each output channel."""
        gradients = [filter.grad for filter in filters]
        for filter in filters:
            self.state[filter].setdefault("momentum_buffer", torch.zeros_like(filter))
        averages = [self.state[filter]["momentum_buffer"] for filter in filters]
        torch._foreach_lerp_(averages, gradients, 1 - group["momentum"])
        ahead = torch._foreach_lerp(gradients, averages, group["momentum"])
        return [matrix.flatten(1) for matrix in ahead]


def is_filter(parameter: nn.Parameter) -> bool:
    """Whether it is a stack of filters, not a table of positions or of scales, (1, C, H, W)."""
    return parameter.dim() == 4 and len(parameter) > 1


def wide(matrix: torch.Tensor) -> torch.Tensor:
    """The matrix, transposed if it has more rows than columns."""
    return matrix.T if matrix.shape[0] > matrix.shape[1] else matrix


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """Newton-Schulz: bring all singular values near 1 (0.7 to 1.2) by an odd polynomial of each
    matrix of a stack.
    """
    x = matrices / matrices.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.mT
        # 3.4445 x - 4.775 (x xT) x + 2.0315 (x xT)^2 x
        factor = torch.baddbmm(gram, gram, gram, beta=-4.775, alpha=2.0315)
        x = torch.baddbmm(x, factor, x, beta=3.4445)
    return x


def weight_groups(model: nn.Module, weight_decay: float) -> list[dict]:
    """Two parameter groups: dense weights decay; BatchNorm, biases and depthwise filters do not."""
    convolutions = [m for m in model.modules() if isinstance(m, nn.modules.conv._ConvNd)]
    depthwise = {id(m.weight) for m in convolutions if m.groups == m.in_channels > 1}
    in_convolutions = {id(m.weight) for m in convolutions}
    for p in model.parameters():
        # A QatNetwork has no convolutions: its filters are recognised by their shape.
        if id(p) not in in_convolutions and p.dim() == 4 and p.shape[1] == 1:
            depthwise.add(id(p))
    decayed = [p for p in model.parameters() if p.dim() > 1 and id(p) not in depthwise]
    spared = [p for p in model.parameters() if p.dim() <= 1 or id(p) in depthwise]
    return [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": spared, "weight_decay": 0.0},
    ]
