import operator

import pytest
import torch
from torch import fx, nn

from helpers.graphs.matching import find
from helpers.graphs.patterns import LITERAL, Constant, Op, Pattern, PatternError, Value, traced


def test_an_operation_needs_a_target():
    with pytest.raises(PatternError, match="no targets"):
        Op([], name="conv")


def test_a_commutative_operation_describes_both_operands():
    with pytest.raises(PatternError, match="fewer than two operands"):
        Op([operator.add], (Value("x"),), commutative=True)


def test_an_operation_is_called_by_its_name_or_by_its_targets():
    assert repr(Op([nn.Conv2d], name="conv")) == "conv"
    assert repr(Op([nn.Conv2d, torch.relu, "relu"])) == "Conv2d/relu/relu"
    assert repr(LITERAL) == "LITERAL"


def test_the_nodes_of_a_pattern_come_inputs_first_and_once():
    x, z = Value("x"), Constant("z")
    inner = Op([torch.mul], (x, z), name="inner")
    outer = Op([torch.add], (inner, [x, inner]), name="outer")
    assert Pattern((outer, inner)).nodes() == [x, z, inner, outer]


def test_a_function_is_traced_into_a_pattern():
    pattern = traced(lambda x, y: torch.relu(x * y + 2))
    relu = pattern.outputs[0]
    add = relu.args[0]
    assert relu.targets == {torch.relu}
    assert (add.targets, add.args[1], add.commutative) == ({operator.add}, 2, False)
    assert add.args[0].commutative
    assert [part.name for part in pattern.nodes()] == ["x", "y", "mul", "add", "relu"]


def test_subtraction_is_not_commutative():
    assert not traced(lambda x, y: x - y).outputs[0].commutative


def test_modules_in_a_traced_pattern_stand_for_their_class():
    example = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1))
    network = fx.symbolic_trace(nn.Sequential(nn.Identity(), nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5)))
    assert [str(match.anchor) for match in find(network, traced(example)).matches] == ["_2"]


def test_a_buffer_in_a_traced_pattern_stands_for_any_constant():
    class Shift(nn.Module):
        def __init__(self, size):
            super().__init__()
            self.shift = nn.Buffer(torch.ones(size))

        def forward(self, x):
            return torch.add(x, self.shift)

    assert len(find(fx.symbolic_trace(Shift(7)), traced(Shift(1))).matches) == 1


def test_several_results_are_several_anchors():
    assert len(traced(lambda x: (torch.sin(x), torch.cos(x))).outputs) == 2


def test_a_pattern_returns_results_of_operations():
    with pytest.raises(PatternError, match="must return the results"):
        traced(lambda x: x)
