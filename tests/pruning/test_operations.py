"""Names of operations, and functions that are declared to be one."""

import pytest
import torch
import torch.nn.functional as F

from helpers.pruning.operations import opaque_functions, operation_name


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (torch.add, "add"),
        (torch.Tensor.add_, "add"),
        (torch.Tensor.__rsub__, "rsub"),
        (torch.Tensor.index_add, "index_add"),
        (torch.Tensor.shape.__get__, "shape"),
        (torch.Tensor.__getitem__, "getitem"),
        (F.relu_, "relu"),
        (torch._assert, "assert"),
        (torch.ops.aten.relu, "torch._ops.aten.relu"),
        (operation_name, "helpers.pruning.operations.operation_name"),
    ],
)
def test_names(function, name):
    assert operation_name(function) == name


def declared(x):
    return x


torch.fx.wrap("declared")


def test_declared_functions_are_replaced_for_a_while():
    with pytest.raises(ZeroDivisionError), opaque_functions(lambda function: lambda x: (function, x)):
        found, x = declared(3)
        assert (found.__name__, x) == ("declared", 3)
        raise ZeroDivisionError
    assert declared(3) == 3
