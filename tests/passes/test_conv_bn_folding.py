import pytest
import torch

from helpers.graphs.errors import MustStay
from helpers.passes.conv_bn_folding import folded
from tests.passes.zoo import conv


def test_a_bias_appears_only_when_one_is_needed():
    layer = conv(bias=False)
    assert folded(layer, 2.0, 0.0).bias is None
    assert folded(layer, 2.0, torch.zeros(4)).bias is not None  # for any weights of this shape


def test_weights_without_data_are_refused():
    with pytest.raises(MustStay, match="no data"):
        folded(conv().to("meta"), 2.0, 0.0)
