"""The GPU, if there is one that this PyTorch can use."""

import warnings
from functools import cache

import torch


@cache
def name_of_gpu() -> str | None:
    """Its name; None where one must compute on the CPU."""
    if not torch.cuda.is_available():
        return None
    try:
        torch.ones(1, device="cuda").add(1).item()  # there may be no kernels for an old GPU
    except RuntimeError as error:
        torch.cuda.reset_peak_memory_stats()  # or `provenance` would say that it was used
        why = str(error).splitlines()[0]
        warnings.warn(f"{torch.cuda.get_device_name()} is not used: {why}", stacklevel=2)
        return None
    return torch.cuda.get_device_name()
