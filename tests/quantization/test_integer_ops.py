import numpy as np
import pytest
import torch

from helpers.quantization.integer_ops import average_sums, conv_sums, linear_sums
from tests.quantization import reference

CASES = [  # inputs, outputs, kernel, stride, padding, dilation, groups
    (3, 5, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    (4, 6, (1, 1), (1, 1), (0, 0), (1, 1), 1),
    (6, 6, (3, 3), (2, 2), (1, 1), (1, 1), 6),
    (6, 6, (3, 2), (2, 1), (2, 1), (2, 1), 6),
    (4, 8, (3, 3), (1, 1), (1, 1), (1, 1), 4),
    (4, 6, (3, 3), (2, 2), (1, 1), (1, 1), 2),
    (4, 6, (2, 3), (1, 2), (2, 3), (2, 2), 2),
    (1, 1, (1, 1), (3, 3), (0, 0), (1, 1), 1),
]


def make(case, extreme):
    inputs, outputs, kernel, *_, groups = case
    codes = torch.randint(0, 256, (2, inputs, 7, 9), dtype=torch.uint8)
    weight = torch.randint(-127, 128, (outputs, inputs // groups, *kernel), dtype=torch.int8)
    bias = torch.randint(-(2**20), 2**20, (outputs,), dtype=torch.int32)
    return (codes.fill_(255), weight.fill_(127), bias) if extreme else (codes, weight, bias)


@pytest.mark.parametrize("extreme", [False, True])
@pytest.mark.parametrize("zero_point", [0, 117, 255])
@pytest.mark.parametrize("case", CASES)
def test_conv_sums(case, zero_point, extreme):
    codes, weight, bias = make(case, extreme)
    geometry = case[3:]
    folded = bias - zero_point * weight.flatten(1).sum(1, dtype=torch.int32)
    sums = conv_sums(codes, weight, folded, zero_point, *geometry)
    assert sums.dtype == torch.int32
    expected = reference.conv_sums(codes.numpy(), weight.numpy(), bias.numpy(), zero_point, *geometry)
    assert np.array_equal(sums.numpy(), expected)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_conv_sums_in_both_layouts(memory_format):
    codes, weight, bias = make(CASES[2], False)
    expected = reference.conv_sums(codes.numpy(), weight.numpy(), bias.numpy(), 0, *CASES[2][3:])
    codes = codes.contiguous(memory_format=memory_format)
    assert np.array_equal(conv_sums(codes, weight, bias, 0, *CASES[2][3:]).numpy(), expected)


def test_linear_sums_with_the_largest_values():
    codes, weight = torch.full((2, 9000), 255, dtype=torch.uint8), torch.full((3, 9000), -127, dtype=torch.int8)
    bias = torch.tensor([0, 5, -(2**30)], dtype=torch.int32)
    assert linear_sums(codes, weight, bias).tolist() == [[-9000 * 255 * 127 + b for b in bias.tolist()]] * 2


@pytest.mark.parametrize("kernel,stride", [((5, 7), (5, 7)), ((2, 3), (2, 3)), ((3, 3), (1, 2))])
def test_average_sums(kernel, stride):
    codes = torch.randint(0, 256, (2, 3, 5, 7), dtype=torch.uint8)
    expected = reference.pool(codes.numpy(), "average_pool", {"kernel": kernel, "stride": stride})
    assert np.array_equal(average_sums(codes, kernel, stride).numpy(), expected)
