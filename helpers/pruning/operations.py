"""One name for each operation, however it is written: `x + y`, `x += y`, `torch.add`, `Tensor.add_` are all "add"."""

from collections.abc import Callable

IN_PLACE = {"iadd", "isub", "imul", "itruediv", "idiv", "ifloordiv", "ipow"}
REFLECTED = {"radd": "add", "rmul": "mul"}


def operation_name(function: Callable) -> str:
    """The name that the table of rules knows a function of PyTorch's by; all others keep their full name."""
    if function.__name__ == "__get__":  # of a property: x.shape
        return function.__self__.__name__
    home = getattr(function, "__module__", None) or "torch"
    if home.split(".")[0] != "torch" or home.startswith("torch._ops"):
        return f"{home}.{function.__name__}"
    name = function.__name__.strip("_")
    return name.removeprefix("i") if name in IN_PLACE else REFLECTED.get(name, name)
