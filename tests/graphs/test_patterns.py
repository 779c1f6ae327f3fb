import operator

import pytest
import torch
from torch import fx, nn

from helpers.graphs.matching import find
from helpers.graphs.patterns import Op, PatternError, Value, traced


def test_an_operation_has_targets_and_a_commutative_one_both_operands():
    with pytest.raises(PatternError, match="no targets"):
        Op([], name="conv")
    with pytest.raises(PatternError, match="fewer than two operands"):
        Op([operator.add], (Value("x"),), commutative=True)


def test_a_function_is_traced_into_a_pattern():
    pattern = traced(lambda x, y: torch.relu(x * y + 2))
    add = pattern.args[0]
    assert pattern.targets == {torch.relu}
    assert (add.targets, add.args[1], add.commutative) == ({operator.add}, 2, False)
    assert add.args[0].commutative and not traced(lambda x, y: x - y).commutative
    assert [part.name for part in pattern.ops()] == ["relu", "add", "mul"]


def test_a_buffer_in_a_traced_pattern_stands_for_any_constant():
    class Shift(nn.Module):
        def __init__(self, size):
            super().__init__()
            self.shift = nn.Buffer(torch.ones(size))

        def forward(self, x):
            return torch.add(x, self.shift)

    assert len(find(fx.symbolic_trace(Shift(7)), traced(Shift(1))).matches) == 1


@pytest.mark.parametrize("function", [lambda x: x, lambda x: [x + 1, x + 2], lambda x: 3])
def test_a_pattern_returns_the_result_of_an_operation(function):
    with pytest.raises(PatternError, match="must return the result of one operation"):
        traced(function)
