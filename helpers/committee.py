"""Several networks that answer as one. Their mean errs less than each of them, which makes it a good teacher."""

from collections.abc import Iterable

import torch
from torch import nn


class Committee(nn.Module):
    """The mean of what its members answer.

    Example:
        >>> Committee([first, second])(images)
    """

    def __init__(self, members: Iterable[nn.Module]):
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Every member's scores, averaged."""
        return torch.stack([member(x) for member in self.members]).mean(0)
