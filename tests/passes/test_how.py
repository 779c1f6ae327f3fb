import pytest

from helpers.passes.activations import Activation
from helpers.passes.how import Geometry, How, parse

EXAMPLES = [
    How(),
    How(None, Activation("gelu"), "gemm"),
    How(Geometry(), Activation("relu"), "onednn"),
    How(Geometry((2,), (3,), (1,), 4), Activation("leaky_relu", (1 / 3,))),
    How(Geometry((2, 1, 3), (0, 5, 1), (1, 2, 1), 960), Activation("hardtanh", (-1e-20, 6.0)), "cudnn"),
]


@pytest.mark.parametrize("how", EXAMPLES, ids=str)
def test_a_text_says_all_of_it_exactly(how):
    assert parse(str(how)) == how


def test_the_text_reads_well():
    how = How(Geometry((2, 2), (1, 1), (1, 1), 96), Activation("hardtanh", (0.0, 6.0)), "onednn")
    assert str(how) == "stride 2x2 padding 1x1 dilation 1x1 groups 96 then hardtanh 0.0 6.0 on onednn"


def test_it_is_read_once():
    assert parse(str(EXAMPLES[2])) is parse(str(EXAMPLES[2]))
