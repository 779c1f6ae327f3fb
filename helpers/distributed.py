"""Several processes that train one network, started by ``torchrun``; with one process all of this does nothing.

Each process computes the gradient of its share of a batch, and all take the same step with the mean of these gradients.
"""

import os

import torch
from torch import distributed as dist
from torch import nn


def start() -> None:
    """Join the group that torchrun announces in the environment, if there is one."""
    if int(os.environ.get("WORLD_SIZE", 1)) > 1 and not dist.is_initialized():
        cuda = torch.cuda.is_available()
        if cuda:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl" if cuda else "gloo")


def stop() -> None:
    """Leave the group."""
    if dist.is_initialized():
        dist.destroy_process_group()


def is_first() -> bool:
    """Whether this process writes the files and shows the bars."""
    return not dist.is_initialized() or dist.get_rank() == 0


def wait() -> None:
    """Let every process reach this line before any goes on."""
    if dist.is_initialized():
        dist.barrier()


def share_of(indices: torch.Tensor) -> torch.Tensor:
    """This process's part of a batch."""
    return indices.tensor_split(dist.get_world_size())[dist.get_rank()] if dist.is_initialized() else indices


def average_gradients(model: nn.Module) -> None:
    """Replace each gradient by its mean over all processes, in one exchange."""
    if dist.is_initialized():
        average([p.grad for p in model.parameters() if p.grad is not None])


def average_buffers(model: nn.Module) -> None:
    """Give every process the mean of the BatchNorm statistics."""
    if dist.is_initialized():
        average([b for b in model.buffers() if b.is_floating_point()])


def average(tensors: list[torch.Tensor]) -> None:
    """The mean over all processes, written into the tensors."""
    flat = torch.cat([t.flatten() for t in tensors])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for tensor, part in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
        tensor.copy_(part.view_as(tensor))
