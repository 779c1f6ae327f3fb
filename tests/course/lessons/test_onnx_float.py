import numpy as np
import torch
from torch import nn

from course.lessons import onnx_float
from helpers import metrics


def small():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU6()).eval()
    metrics.randomize_batchnorm(model, 0)
    return model


def test_each_level_leaves_fewer_operators(tmp_path):
    path = onnx_float.export(small(), torch.zeros(1, 3, 8, 8), tmp_path / "net.onnx")
    off, basic, most = (onnx_float.operators(path, level) for level in onnx_float.LEVELS)
    assert (off["Conv"], off["BatchNormalization"], off["Clip"]) == (1, 1, 1)
    assert (basic["BatchNormalization"], basic["Clip"]) == (0, 1)
    assert most["Clip"] == 0


def test_the_exported_network_computes_the_same(tmp_path):
    model, x = small(), torch.randn(2, 3, 8, 8)
    session = onnx_float.session(onnx_float.export(model, x, tmp_path / "net.onnx"), threads=1)
    (got,) = session.run(None, {"x": x.numpy()})
    np.testing.assert_allclose(got, model(x).detach(), rtol=1e-4, atol=1e-5)
