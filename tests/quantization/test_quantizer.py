import pytest
import torch
from torch import nn

from helpers.quantization import QuantizedModel, Recipe, quantize
from helpers.quantization.plan import PlanError
from tests.quantization.networks import images, small


def test_the_float_network_is_left_alone_and_close():
    model, x = small(), images(64)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    q = quantize(model, x, Recipe(observer="minmax"))
    assert isinstance(q, QuantizedModel) and not q.training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    expected = model(x)
    assert (q(x) - expected).abs().max() <= 0.03 * expected.abs().max()


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.odd, self.b = nn.Conv2d(3, 4, 3), nn.Softplus(), nn.Conv2d(4, 4, 3)

    def forward(self, x):
        return self.b(self.odd(self.a(x))).mean((2, 3))


def test_unsupported_layer_is_kept_and_listed_or_refused():
    torch.manual_seed(0)
    model, x = Mixed().eval(), images()
    q = quantize(model, x, Recipe(observer="minmax"))
    assert q.float_layers == ["odd"]
    for mode in ("simulated", "integer", "kernel"):
        q.mode = mode
        assert (q(x) - model(x)).abs().max() <= 0.05 * model(x).abs().max()
    with pytest.raises(PlanError, match="odd"):
        quantize(model, x, Recipe(unsupported="refuse"))
