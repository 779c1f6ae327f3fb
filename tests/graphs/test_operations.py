"""The table of operations agrees with the functions that it describes."""

import inspect

import pytest
import torch
from torch import nn

from helpers.graphs import operations


def parameters(function) -> dict[str, inspect.Parameter]:
    """The parameters after the input; none where a built-in function does not tell."""
    try:
        found = list(inspect.signature(function).parameters.values())[1:]
    except ValueError:
        return {}
    return {parameter.name: parameter for parameter in found if parameter.name not in ("args", "kwargs")}


@pytest.mark.parametrize("name", [name for name, form in operations.OPERATIONS.items() if parameters(form.function)])
def test_names_order_and_defaults_are_those_of_the_function(name):
    form = operations.OPERATIONS[name]
    known = parameters(form.function)
    assert [key for key in known if key in form.arguments] == list(form.arguments)
    for key, default in form.arguments.items():
        expected = operations.REQUIRED if known[key].default is inspect.Parameter.empty else known[key].default
        assert default is expected or default == expected


@pytest.mark.parametrize("kind", operations.MODULES)
def test_the_settings_of_a_module_are_attributes_of_these_names(kind):
    form = operations.OPERATIONS[operations.MODULES[kind]]
    needs = {"output_size": 1} if "Adaptive" in kind.__name__ else {"kernel_size": 2} if "Pool" in kind.__name__ else {}
    module = kind(padding=1) if "Pad" in kind.__name__ else kind(**needs)
    required = [key for key, default in form.arguments.items() if default is operations.REQUIRED]
    assert all(hasattr(module, operations.ATTRIBUTES.get(key, key)) for key in required)
    settings = {key: operations.ATTRIBUTES.get(key, key) for key in form.arguments}
    given = {key: getattr(module.eval(), name) for key, name in settings.items() if hasattr(module, name)}
    dimensions = next((int(digit) for digit in kind.__name__ if digit in "13"), 2)
    if kind in (nn.ReLU6, nn.Hardtanh):
        given.pop("inplace", None)
    x = torch.randn(1, 2, *[6] * dimensions)
    if kind is nn.ReLU6:
        given.pop("min_val", None), given.pop("max_val", None)
    assert torch.equal(form.function(x, **given), module(x))


@pytest.mark.parametrize("table", [operations.ARITHMETIC, operations.ARITHMETIC_IN_PLACE])
def test_arithmetic_is_what_its_name_says(table):
    x, y = torch.randn(3), torch.randn(3)
    expected = {"add": x + y, "sub": x - y, "rsub": y - x, "mul": x * y, "div": x / y, "truediv": x / y}
    for name, value in table.items():
        base = name if table is operations.ARITHMETIC else value
        function, swapped = operations.ARITHMETIC[base]
        assert torch.equal(function(*((y, x) if swapped else (x, y))), expected[base])
        assert name.strip("_").removeprefix("i") == base or table is operations.ARITHMETIC
