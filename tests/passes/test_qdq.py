import pytest
import torch
from torch import fx, nn

from helpers.graphs.tracing import trace
from helpers.passes.passer import Passer
from helpers.passes.qdq import DEQUANTIZE, QUANTIZE, REQUANTIZE, dequantize, quantize
from tests.passes.graphs import graph_of, network

X = torch.randn(4, 6, 5)
FIRST = (0.02, 3, -128, 127)
SECOND = (0.05, -7, -128, 127)


def q(x, parameters=FIRST):
    return quantize(x, *parameters)


def dq(codes, parameters=FIRST):
    return dequantize(codes, *parameters[:2])


def run(function, x=X, route="fx"):
    """Run the pass, check the answers bit for bit, and return the names of the calls that are left."""
    net = network(function)
    graph_module = trace(net, (x,), route=route)
    expected = net(x)
    report = Passer(["qdq"]).run(graph_module)
    got = graph_module(x)
    for one, other in zip(*((v if isinstance(v, tuple) else (v,)) for v in (got, expected)), strict=True):
        assert torch.equal(one, other)
        assert one.dtype == other.dtype
    assert Passer(["qdq"]).run(graph_module).changed == []
    calls = [getattr(n.target, "__name__", n.target) for n in graph_module.graph.nodes if n.op.startswith("call")]
    calls = [name.split(".")[0] for name in calls]
    return calls, report


def test_the_same_parameters_cancel():
    calls, report = run(lambda net, x: dq(q(dq(q(x)))))
    assert calls == ["quantize", "dequantize"]
    assert report.changed == [("qdq", "quantize_default_1", "quantize_default_1 became quantize_default")]


def test_every_code_survives_the_round_trip_that_is_cancelled():
    codes = torch.arange(-128, 128).to(torch.int8)
    for scale in (1e-6, 0.02, 1 / 3, 7.7, 1e4):
        for zero_point in (-128, -5, 0, 127):
            assert torch.equal(q(dq(codes, (scale, zero_point)), (scale, zero_point, -128, 127)), codes)


def test_other_parameters_merge_into_one_step():
    calls, _ = run(lambda net, x: dq(q(dq(q(x)), SECOND), SECOND))
    assert calls == ["quantize", "requantize", "dequantize"]
    codes = q(X)
    assert not torch.equal(REQUANTIZE(codes, *FIRST[:2], *SECOND), codes)  # cancelling here would be wrong


@pytest.mark.parametrize("narrow", [(0.02, 3, -127, 127), (0.02, 3, -8, 7), (0.02, 3, 0, 255)])
def test_a_range_that_clamps_or_another_dtype_does_not_cancel(narrow):
    calls, _ = run(lambda net, x: dq(q(dq(q(x)), narrow), narrow), 3 * X)
    assert calls == ["quantize", "requantize", "dequantize"]


@pytest.mark.parametrize("route", ["fx", "export"])
@pytest.mark.parametrize(
    "shape",
    [
        lambda x: x.view(24, 5),
        lambda x: torch.flatten(x, 1),
        lambda x: x.transpose(1, 2).contiguous().permute(2, 0, 1),
        lambda x: x.reshape(4, 30).unsqueeze(1)[:, :, ::2].expand(4, 3, 15),
    ],
)
def test_pairs_come_together_across_operations_that_only_shape(shape, route):
    calls, report = run(lambda net, x: dq(q(shape(dq(q(x))))), route=route)
    assert calls.count("quantize") == calls.count("dequantize") == 1
    assert calls[0] == "quantize"
    assert calls[-1] == "dequantize"
    assert any("runs on codes" in what for *_, what in report.changed)


def test_nothing_moves_past_an_operation_that_computes():
    calls, report = run(lambda net, x: dq(q(torch.relu(dq(q(x))))))
    assert calls == ["quantize", "dequantize", "relu", "quantize", "dequantize"]
    assert report.changed == []


def test_the_rounding_itself_stays():
    calls, _ = run(lambda net, x: dq(q(x)))
    assert calls == ["quantize", "dequantize"]
    assert not torch.equal(dq(q(X)), X)


def test_the_same_cast_twice_is_made_once():
    calls, _ = run(lambda net, x: (dq(q(x)) + 1, dq(q(x)) * 2, q(x, SECOND)))
    assert calls == ["quantize", "dequantize", "add", "mul", "quantize"]


def test_other_readers_of_the_value_keep_it():
    calls, _ = run(lambda net, x: (torch.sin(y := dq(q(x))), dq(q(y)).view(-1)))
    assert sorted(calls) == ["dequantize", "dequantize", "quantize", "sin", "view"]


def test_without_shapes_it_says_what_is_missing():
    report = Passer(["qdq"]).run(graph_of(lambda net, x: q(dq(x))))
    assert report.declined == [("qdq", "quantize_default", "the dtype of x is unknown: run type_inference")]


def test_codes_that_count_from_another_zero_are_not_the_same():
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.empty(5, dtype=torch.int8, device="meta")
    back = graph.call_function(DEQUANTIZE, (x, 0.1, 3))
    graph.output(graph.call_function(QUANTIZE, (back, 0.1, -4, -128, 127)))
    graph_module = fx.GraphModule(nn.Module(), graph)
    codes = torch.tensor([-128, -7, 0, 9, 127], dtype=torch.int8)
    Passer(["qdq"]).run(graph_module)
    assert graph_module(codes).tolist() == [-128, -14, -7, 2, 120]
