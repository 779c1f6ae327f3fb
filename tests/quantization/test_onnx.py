import numpy as np
import onnx
import pytest
import torch
from torch import nn

from course.benchmarks.quantization_rivals import onnx_runtime_static
from course.lessons.onnx_float import operators, session
from helpers import models
from helpers.equivalence import randomize_batchnorm
from helpers.quantization.model import quantize
from helpers.quantization.onnx import ExportError, to_onnx
from helpers.quantization.plan import Recipe


class Residual(nn.Module):
    """Every kind of operation once: strided, padded, depthwise, residual, both poolings, classifier."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU6())
        self.depthwise = nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1, groups=16), nn.ReLU6())
        self.project = nn.Conv2d(16, 16, 1)
        self.widen = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(16, 32, 1), nn.ReLU())
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        x = self.stem(x)
        x = x + self.project(self.depthwise(x))
        return self.head(nn.functional.adaptive_avg_pool2d(self.widen(x), 1).flatten(1))


def images(count=64, seed=0):
    return torch.randint(0, 256, (count, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def network(seed=0):
    torch.manual_seed(seed)
    model = Residual().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias)
    return model


@pytest.fixture
def export(tmp_path):
    def run(recipe, model=None):
        quantized = quantize(model or network(), images(), recipe)
        quantized.mode = "integer"
        return quantized, to_onnx(quantized, tmp_path / "model.onnx")

    return run


def outputs_agree(quantized, path, x):
    found = torch.from_numpy(session(path, threads=1).run(None, {"input": x.numpy()})[0])
    expected = quantized(x)
    spread = expected.std()
    assert (found - expected).abs().mean() < 0.01 * spread  # a code may round the other way at a tie, no more
    assert (found - expected).abs().max() < 0.1 * spread


@pytest.mark.parametrize("residual", ["separate", "fused"])
@pytest.mark.parametrize("options", [{}, {"equalize": True}, {"weight_bits": 4, "activation_bits": 6}])
def test_onnx_runtime_computes_what_the_integer_mode_computes(export, residual, options):
    quantized, path = export(Recipe(residual=residual, **options))
    for count in (1, 5):  # the batch size is free
        outputs_agree(quantized, path, torch.randn(count, 3, 16, 16, generator=torch.Generator().manual_seed(count)))


def test_every_layer_runs_in_an_int8_kernel(export):
    _, path = export(Recipe(residual="separate"))
    found = operators(path, "all")
    assert found["QLinearConv"] == 4
    assert found["QLinearAdd"] == found["QGemm"] == found["NhwcMaxPool"] == 1
    assert found["QLinearAveragePool"] + found["QLinearGlobalAveragePool"] == 1
    assert found["QuantizeLinear"] == 1, "only the input is quantized"
    assert not {"Conv", "Gemm", "MatMul", "Add", "DequantizeLinear", "Clip"} & found.keys()


def test_onnx_runtime_does_no_more_work_on_our_file_than_on_its_own(tmp_path):
    model = randomize_batchnorm(models.mobilenet_v2(width_mult=0.25)).eval()
    pictures = torch.randint(0, 256, (128, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    ours = to_onnx(quantize(model, pictures, Recipe(residual="separate")), tmp_path / "ours.onnx")
    theirs = onnx_runtime_static(model, pictures, "MinMax", tmp_path / "theirs.onnx")
    ours, theirs = operators(ours, "all"), operators(theirs, "all")
    for operator in ("QLinearConv", "QLinearAdd", "QGemm", "Transpose"):
        assert ours[operator] == theirs[operator] > 0
    assert ours.total() <= theirs.total()


def test_a_fused_residual_is_one_integer_convolution_and_the_others_stay_qlinear(export):
    _, path = export(Recipe(residual="fused"))
    found = operators(path, "all")
    assert found["ConvInteger"] == 1
    assert found["QLinearConv"] == 3
    assert "Conv" not in found


def test_weights_that_could_saturate_are_stored_as_uint8(export):
    model = network()
    with torch.no_grad():
        model.stem[0].weight.copy_(torch.tensor([1.0, 0.0, 1.0])[:, None, None])  # ONNX Runtime pairs channels 2 and 0
        model.widen[1].weight.fill_(1.0)
    quantized, path = export(Recipe(residual="separate"), model)
    stored = {tensor.name: tensor.data_type for tensor in onnx.load(path).graph.initializer}
    assert stored["stem.0.weight.codes"] == onnx.TensorProto.UINT8
    assert stored["widen.1.weight.codes"] == stored["depthwise.0.weight.codes"] == onnx.TensorProto.INT8
    assert quantized.step("widen.1").weight.abs().max() == 64
    outputs_agree(quantized, path, 3 * torch.randn(8, 3, 16, 16))


def test_scales_and_codes_in_the_file_are_the_models_own(export):
    quantized, path = export(Recipe(residual="separate"))
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer}
    step = quantized.step("project")
    shift = constants["project.weight.zero_point"].astype(np.int16)
    assert np.array_equal(constants["project.weight.codes"] - shift.reshape(-1, 1, 1, 1), step.weight.numpy())
    assert np.array_equal(constants["project.weight.scale"], step.weight_scale.numpy())
    assert np.array_equal(constants["project.bias.codes"], step.bias.numpy())
    assert constants["project.scale"] == step.out_scale.numpy()


def test_what_stayed_in_float_is_refused_and_no_file_is_written(tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Sigmoid(), nn.Conv2d(4, 2, 1)).eval()
    quantized = quantize(model, images(8), Recipe())
    with pytest.raises(ExportError, match="stayed in float"):
        to_onnx(quantized, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


class Rows(nn.Module):
    """A mean straight into a linear layer, and linear layers on three dimensions."""

    def __init__(self, mean):
        super().__init__()
        self.conv, self.rows = nn.Conv2d(3, 8, 3, 2, 1), nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 4))
        self.mean, self.head = mean, nn.Linear(8 if mean else 32, 10)

    def forward(self, x):
        x = self.conv(x)
        return self.head(x.mean((2, 3)) if self.mean else self.rows(x.flatten(2)).flatten(1))


@pytest.mark.parametrize("mean", [True, False])
def test_linear_layers_take_what_is_flat_already_and_what_has_more_dimensions(export, mean):
    torch.manual_seed(0)
    quantized, path = export(Recipe(), Rows(mean).eval())
    outputs_agree(quantized, path, torch.randn(5, 3, 16, 16))
    assert operators(path, "all")["QGemm"] == (1 if mean else 3)
