import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from helpers import models
from helpers.graphs.tracing import trace
from helpers.passes import Passer, optimize
from helpers.passes.activations import Activation
from helpers.passes.fused_ops import conv_act, linear_act
from helpers.passes.how import Geometry, parse
from helpers.passes.kernel_selection import choose
from helpers.passes.kernels import Operands
from tests.passes.graphs import network


def call(channels, size, kernel=1, batch=1, dtype=torch.float32, **rest):
    x = torch.empty(batch, channels, size, size, dtype=dtype, device="meta")
    padding = (kernel // 2,) * 2
    return Operands(
        x, torch.empty(channels, channels, kernel, kernel, dtype=dtype), None, None, Geometry((1, 1), padding), **rest
    )


def kernels_of(graph_module):
    return [parse(node.args[-1]).kernel for node in graph_module.graph.nodes if node.target in (conv_act, linear_act)]


def test_shape_decides_between_the_kernels_of_a_cpu():
    assert choose(call(64, 8)) == ("onednn_product", None)
    assert choose(call(8, 5, kernel=3)) == ("onednn", None)
    residual = call(8, 5)._replace(other=torch.empty(1, 8, 5, 5))
    assert choose(residual) == ("onednn_product", None)
    assert choose(residual._replace(activation=Activation("relu"))) == ("onednn", None)


def test_without_onednn_a_1x1_convolution_still_has_the_matrix_product(monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert choose(call(64, 64)) == ("gemm", None)
    kernel, reason = choose(call(8, 5, kernel=3))
    assert kernel == "plain"
    assert "no oneDNN" in reason
    assert "only a 1x1 convolution" in reason


def test_dtype_and_device_without_kernel_stay_plain_with_the_reason():
    assert choose(call(8, 5, dtype=torch.float64))[0] == "plain"
    assert "float32, not torch.float64" in choose(call(8, 5, dtype=torch.float64))[1]
    elsewhere = call(8, 5)._replace(weight=torch.empty(8, 8, 1, 1, device="meta"))
    assert choose(elsewhere) == ("plain", "no fused kernel is known for meta")


def test_a_gpu_gets_cudnn_where_it_applies():
    """On fake tensors: what is chosen, not what it computes."""
    with FakeTensorMode():
        x, weight = torch.empty(1, 8, 5, 5, device="cuda"), torch.empty(8, 8, 1, 1, device="cuda")
        relu = Operands(x, weight, None, None, Geometry(), Activation("relu"))
        assert choose(relu) == ("cudnn", None)
        kernel, reason = choose(relu._replace(activation=Activation("hardtanh", (0.0, 6.0))))
    assert kernel == "plain"
    assert "ends in relu, not hardtanh(0, 6)" in reason


def test_a_convolution_on_its_own_gets_a_kernel_too():
    graph_module, _ = optimize(
        network(lambda net, x: net.conv(x), conv=nn.Conv2d(3, 4, 3)), torch.randn(1, 3, 8, 8), level="inference"
    )
    assert kernels_of(graph_module) == ["onednn"]


@pytest.mark.parametrize(
    ("layer", "x", "reason"),
    [
        (nn.Conv2d(3, 4, 3).double(), torch.randn(1, 3, 8, 8).double(), "float32, not torch.float64"),
        (nn.Conv1d(3, 4, 3), torch.randn(1, 3, 8), "4 dimensions"),
        (nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), torch.randn(1, 3, 8, 8), "padding_mode='circular'"),
    ],
)
def test_a_layer_without_kernel_is_declined_and_stays_a_module(layer, x, reason):
    graph_module = trace(network(lambda net, x: net.layer(x), layer=layer), (x,))
    report = Passer(["canonicalize", "kernel_selection"]).run(graph_module)
    assert kernels_of(graph_module) == []
    assert reason in report.declined[0][2]


def test_without_shapes_nothing_is_chosen():
    graph_module = torch.fx.symbolic_trace(network(lambda net, x: F.relu(net.conv(x)), conv=nn.Conv2d(3, 4, 3)))
    report = Passer(["canonicalize", "conv_act_fusion", "kernel_selection"]).run(graph_module)
    assert kernels_of(graph_module) == ["plain"]
    assert "the shape of x is not known" in report.declined[0][2]


def randomised(seed):
    """MobileNetV2 with BatchNorm statistics that are not the identity."""
    torch.manual_seed(seed)
    model = models.mobilenet_v2().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, std=0.3)
            nn.init.uniform_(module.running_var, 0.5, 2)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.3)
    return model


@pytest.mark.parametrize(("route", "batch"), [("fx", 1), ("fx", 3), ("export", 2)])
def test_mobilenet_runs_on_kernels_throughout(route, batch):
    model, x = randomised(batch), torch.randn(batch, 3, 32, 32)
    graph_module, report = optimize(model, x, level="inference", route=route)
    assert len(kernels_of(graph_module)) == 52
    assert "plain" not in kernels_of(graph_module)
    assert not [reason for name, _, reason in report.declined if name == "kernel_selection"]
    with torch.inference_mode():
        exact = copy.deepcopy(model).double()(x.double())
        own = (model(x) - exact).abs().max()
        assert (graph_module(x) - exact).abs().max() <= max(1e-5 * exact.abs().max(), 4 * own)


def test_in_float64_mobilenet_is_a_composition_and_exact():
    model, x = randomised(2).double(), torch.randn(2, 3, 32, 32, dtype=torch.float64)
    graph_module, report = optimize(model, x, level="inference")
    assert set(kernels_of(graph_module)) == {"plain"}
    assert all("float64" in reason for name, _, reason in report.declined if name == "kernel_selection")
    with torch.inference_mode():
        torch.testing.assert_close(graph_module(x), model(x), rtol=1e-10, atol=1e-10)


def test_another_batch_size_than_it_was_optimised_for():
    model = randomised(0)
    graph_module, _ = optimize(model, torch.randn(1, 3, 32, 32), level="inference")
    x = torch.randn(5, 3, 32, 32)
    with torch.inference_mode():
        torch.testing.assert_close(graph_module(x), model(x), rtol=1e-4, atol=1e-4)


def test_a_saved_network_comes_back_fused(tmp_path):
    model, x = randomised(1), torch.randn(2, 3, 32, 32)
    graph_module, _ = optimize(model, x, level="inference")
    with torch.inference_mode():
        expected = graph_module(x)
    models.save(graph_module, tmp_path / "fused.safetensors")
    loaded = models.load(tmp_path / "fused.safetensors")
    assert kernels_of(loaded) == kernels_of(graph_module)
    with torch.inference_mode():
        assert torch.equal(loaded(x), expected)
