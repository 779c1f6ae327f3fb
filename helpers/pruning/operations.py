"""One name for each operation, however it is written: `x + y`, `x += y`, `torch.add`, `Tensor.add_` are all "add"."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch.fx


def operation_name(function: Callable) -> str:
    """The name that the table of rules knows a function of PyTorch's by; all others keep their full name."""
    if function.__name__ == "__get__":  # of a property: x.shape
        return function.__self__.__name__
    home = getattr(function, "__module__", None) or "torch"
    if home.split(".")[0] != "torch" or home.startswith("torch._ops"):
        return f"{home}.{function.__name__}"
    return function.__name__.strip("_")


@contextmanager
def opaque_functions(replacement: Callable[[Callable], Callable]) -> Iterator[None]:
    """While the block runs, another function stands for each that its library declares to be one (`torch.fx.wrap`)."""
    places = [(namespace, name) for (_, name), namespace in torch.fx._symbolic_trace._wrapped_fns_to_patch.items()]
    before = [(namespace, name, namespace[name]) for namespace, name in places if name in namespace]
    for namespace, name, function in before:
        namespace[name] = replacement(function)
    try:
        yield
    finally:
        for namespace, name, function in before:
            namespace[name] = function
