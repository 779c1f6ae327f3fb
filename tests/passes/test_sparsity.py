import itertools

import pytest
import torch
from torch import fx, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from helpers.passes.passer import Passer
from helpers.passes.sparsity import NotTwoOfFour, SparseKernels, keep_two_of_four, pack, unpack


def test_the_two_largest_of_four_stay():
    for row in itertools.permutations([0.5, -1.0, 2.0, -3.0]):
        kept = keep_two_of_four(torch.tensor([row]))[0].tolist()
        assert [value for value in kept if value] == [value for value in row if abs(value) >= 2]


@pytest.mark.parametrize("shape", [(5, 8), (3, 4, 3, 3), (7, 12, 1, 1), (1, 4)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_packing_loses_nothing(shape, dtype):
    weight = keep_two_of_four(torch.randn(shape).to(dtype))
    packed = pack(weight)
    assert torch.equal(unpack(packed), weight)
    assert packed.bytes == weight.numel() // 2 * weight.element_size() + -(-weight.numel() // 8)
    assert (weight.view(-1, 4) != 0).sum(-1).eq(2).all()


def test_fours_with_fewer_than_two_numbers_are_packed_too():
    rows = [row for row in itertools.product([0.0, 1.0, -2.0], repeat=4) if sum(map(bool, row)) <= 2]
    weight = torch.tensor(rows)
    assert torch.equal(unpack(pack(weight)), weight)


def test_positions_ascend_as_the_kernels_want_them():
    packed = pack(torch.tensor([[0.0, 0.0, 5.0, 0.0, 0.0, 7.0, 0.0, 8.0]]))
    assert packed.values.tolist() == [[[0, 5], [7, 8]]]
    assert packed.positions.tolist() == [0 | 2 << 2 | 1 << 4 | 3 << 6]


def test_what_is_not_sparse_is_refused():
    with pytest.raises(NotTwoOfFour, match="1 groups of four hold more than two numbers"):
        pack(torch.tensor([[1.0, 2.0, 0.0, 3.0, 0.0, 0.0, 1.0, 0.0]]))
    with pytest.raises(NotTwoOfFour, match=r"shape \(2, 6\) has rows that are no multiple of 4"):
        keep_two_of_four(torch.ones(2, 6))


def test_the_pass_prunes_in_new_tensors_and_declines_odd_rows():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 8, 3), nn.Flatten(), nn.Linear(8, 5)).eval()
    graph_module = fx.symbolic_trace(net)
    before = net[1].weight.clone()
    report = Passer(["sparsify_2_4"]).run(graph_module)
    assert report.changed == [
        ("sparsify_2_4", "_1", "keeps 144 of 288 weights"),
        ("sparsify_2_4", "_3", "keeps 20 of 40 weights"),
    ]
    assert report.declined == [("sparsify_2_4", "_0", "its rows hold 27 weights, which four does not divide")]
    assert torch.equal(net[1].weight, before)
    assert torch.equal(graph_module.get_submodule("1").weight, keep_two_of_four(before))
    assert Passer(["sparsify_2_4"]).run(graph_module).changed == []


def test_layers_that_may_compute_something_else_are_declined():
    hooked, odd = nn.Linear(8, 4), NonDynamicallyQuantizableLinear(4, 4)
    hooked.register_forward_hook(lambda module, args, result: result)
    report = Passer(["sparsify_2_4"]).run(
        fx.symbolic_trace(nn.Sequential(hooked, odd, nn.Linear(4, 6), nn.Linear(6, 2)))
    )
    assert [node for _, node, _ in report.changed] == ["_2"]
    reasons = {node: reason for _, node, reason in report.declined}
    assert "hooks" in reasons["_0"] and "subclass" in reasons["_1"] and "6 weights" in reasons["_3"]


def test_a_weight_that_is_packed_already_stays():
    class PackedWeight(torch.Tensor):
        """Stands for what the kernels keep."""

    layer = nn.Linear(64, 32)
    layer.weight = nn.Parameter(layer.weight.detach().as_subclass(PackedWeight))
    result = SparseKernels().run(fx.symbolic_trace(nn.Sequential(layer)))
    assert result.changed == [] and result.declined == []


def test_the_gpu_pass_is_skipped_on_a_cpu_and_declines_what_the_kernels_do_not_take():
    graph_module = fx.symbolic_trace(nn.Sequential(nn.Linear(64, 32)))
    assert Passer(["sparse_kernels"]).run(graph_module).rows[0].note == "skipped: bound to cuda, and this is cpu"
    (decline,) = SparseKernels().run(graph_module).declined
    assert decline.reason == "its weight is torch.float32 on cpu: the kernels take float16 and bfloat16 on cuda"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_the_sparse_tensor_cores_give_the_same():
    net = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 64), nn.Linear(64, 10)).cuda().half().eval()
    graph_module = fx.symbolic_trace(net)
    x = torch.randn(64, 128, device="cuda", dtype=torch.float16)
    with torch.no_grad():
        declined = Passer(["sparse_kernels"]).run(graph_module).declined
        assert "run sparsify_2_4 first" in declined[0][2]
        Passer(["sparsify_2_4"]).run(graph_module)
        expected = graph_module(x)
        report = Passer(["sparse_kernels"]).run(graph_module)
        assert [node for _, node, _ in report.changed] == ["_0", "_2"]
        assert "no multiple of (32, 64)" in report.declined[0][2]
        torch.testing.assert_close(graph_module(x), expected, rtol=1e-2, atol=1e-2)
