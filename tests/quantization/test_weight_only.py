import copy

import pytest
import torch
from torch import nn

from helpers import models, quantization
from helpers.quantization import affine, codebook
from helpers.quantization.affine import QuantizationError
from helpers.quantization.weight_only import CodedLayer, weights_only


class Every(nn.Module):
    """Each kind of layer, one of them called twice under two names, and an output layer that attention reads itself."""

    def __init__(self):
        super().__init__()
        self.one = nn.Conv1d(4, 6, 3, padding=1, padding_mode="circular")
        self.two = nn.Conv2d(1, 4, 3, stride=2, dilation=2, padding=2)
        self.again = self.two
        self.three = nn.Conv3d(1, 2, 2, bias=False)
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.fc = nn.Linear(6, 8)

    def forward(self, x):
        x = self.two(x[:, None]).mean(3) + self.again(x[:, None]).mean(3)
        x = self.one(x).transpose(1, 2)
        x, _ = self.attention(x, x, x)
        return self.fc(x) + self.three(x[:, None, None].expand(-1, -1, 2, -1, -1)).mean()


def network():
    torch.manual_seed(0)
    return Every().eval()


def by_hand(model, bits, form):
    """The same rounding, written into the float weights of a copy."""
    rounded = copy.deepcopy(model)
    for module in rounded.modules():
        if type(module) in (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear):
            w = module.weight.detach()
            if form == "codebook":
                w = codebook.fit(w, bits).decode()
            else:
                last = 2 ** (bits - 1) - 1
                scale = (w.flatten(1).abs().amax(1) / last).reshape(-1, *[1] * (w.ndim - 1))
                w = (w / scale).round() * scale
            module.weight.data.copy_(w)
    return rounded


@pytest.mark.parametrize("form", ["grid", "codebook"])
@pytest.mark.parametrize("bits", [8, 4, 3, 2])
def test_it_computes_with_the_rounded_weights_and_leaves_the_model_alone(form, bits):
    model, x = network(), torch.randn(2, 9, 9)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    small = weights_only(model, bits, form)
    torch.testing.assert_close(small(x), by_hand(model, bits, form)(x))
    assert not torch.allclose(small(x), model(x), atol=1e-6)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert small.two is small.again
    assert isinstance(small.two, CodedLayer)
    assert type(small.attention.out_proj) is type(model.attention.out_proj)


@pytest.mark.parametrize("form", ["grid", "codebook"])
def test_the_file_holds_packed_codes_and_comes_back_the_same(form, tmp_path):
    torch.manual_seed(0)
    model, x = models.mobilenet_v2(width_mult=0.25).eval(), torch.randn(2, 3, 32, 32)
    sizes = {32: models.save(model, tmp_path / "float").stat().st_size}
    for bits in (8, 3):
        small = weights_only(model, bits, form, layer_bits={"classifier.1": 8})
        path = models.save(small, tmp_path / "small")
        sizes[bits] = path.stat().st_size
        loaded = models.load(path)
        assert torch.equal(loaded(x), small(x))
        assert loaded.features[0][0].bits == bits
        assert loaded.classifier[1].bits == 8
    layers = [m for m in model.modules() if type(m) in (nn.Conv2d, nn.Linear)]
    weights, head = sum(m.weight.numel() for m in layers), model.classifier[1].weight.numel()
    tables = (len(layers) - 1) * (2**8 - 2**3) * 4 if form == "codebook" else 0
    assert sizes[32] - sizes[8] > 0.7 * 3 * weights
    assert sizes[8] - sizes[3] == pytest.approx((weights - head) * 5 / 8 + tables, rel=0.02)


def test_groups_have_scales_of_their_own(tmp_path):
    model = nn.Sequential(nn.Linear(8, 3)).eval()
    small = weights_only(model, 4, group_size=4)
    assert small[0].values.shape == (3, 2)
    expected = affine.fit(model[0].weight.detach(), 4, group_size=4)
    torch.testing.assert_close(small[0].weight(), expected.dequantize(expected.quantize(model[0].weight.detach())))


def test_codes_move_and_copy_with_the_network():
    small = weights_only(network(), 4)
    assert {"two.codes", "two.values", "two.layer.bias"} <= small.state_dict().keys()
    again = copy.deepcopy(small)
    x = torch.randn(1, 9, 9)
    assert torch.equal(again(x), small(x))
    assert again.two.codes.device == torch.device("cpu")
    assert small.to("meta").two.weight().device.type == "meta"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bits": 9}, "one: bits: expected a whole number from 2 to 8"),
        ({"form": "lookup"}, "form: expected one of"),
        ({"layer_bits": {"four": 4}}, r"no layer is called \['four'\]"),
        ({"form": "codebook", "group_size": 4}, "group_size belongs to a grid"),
        ({"group_size": 4}, "does not divide into groups of 4"),
    ],
)
def test_bad_requests_are_refused_by_name(arguments, message):
    with pytest.raises(QuantizationError, match=message):
        quantization.weights_only(network(), **arguments)


def test_broken_weights_and_networks_without_layers_are_refused():
    model = network()
    model.fc.weight.data[0, 0] = float("nan")
    for form in ("grid", "codebook"):
        with pytest.raises(QuantizationError, match=r"fc: .*NaN"):
            weights_only(model, form=form)
    with pytest.raises(QuantizationError, match="no convolution or linear layer"):
        weights_only(nn.Sequential(nn.ReLU()))
