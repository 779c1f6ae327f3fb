from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from torchvision.ops import DeformConv2d

from course.benchmarks import speed
from helpers import allocator, metrics, models, passes, quantization
from helpers.metrics import compare_latency, count_parameters, profile
from tests.passes.zoo import Net
from tests.training.tiny import tiny_cifar


def test_multiply_adds_are_counted_inside_of_kernels_too():
    model, x = models.tiny().eval(), torch.randn(16, 3, 32, 32)
    fused, quantized = (
        passes.optimize(model, x, level="inference")[0],
        quantization.quantize(model, x),
    )
    quantized.mode = "kernel"
    assert {metrics.count_macs(network, x) for network in (model, fused, quantized)} == {12_501_632}
    assert count_parameters(model) == 78_042  # both as MLPerf Tiny states its ResNet
    words, attention = (
        torch.zeros(1, 10, 32),
        nn.TransformerEncoderLayer(32, 4, 64, batch_first=True),
    )
    assert (
        metrics.count_macs(attention, words) == 88_320 and torch.backends.mha.get_fastpath_enabled()
    )
    assert metrics.count_macs(nn.LSTM(32, 16, batch_first=True), words) == 30_720


class Unknown(nn.Module):
    """Multiplies by an operator for which no formula is known, and gives a layer a view."""

    def __init__(self):
        super().__init__()
        self.queries, self.layer = nn.Parameter(torch.randn(1, 4)), nn.Linear(4, 4)
        self.offsets = DeformConv2d(3, 4, 3)

    def forward(self, x):
        moved = self.offsets(x, x.new_zeros(len(x), 18, 6, 6)).mean((2, 3))
        return moved + self.layer(self.queries.expand(len(x), -1))


def test_what_the_counter_does_not_know_is_listed_and_a_view_of_a_parameter_is_counted():
    found = profile(Unknown(), torch.zeros(2, 3, 8, 8))
    assert found.macs == 16 and found.uncounted == ("torchvision.deform_conv2d",)
    assert "torchvision.deform_conv2d" in str(found)
    with torch.library._scoped_library("course_test", "DEF") as library:
        library.define("norm_linear(Tensor x, Tensor w) -> Tensor")
        library.impl("norm_linear", torch.matmul, "CompositeExplicitAutograd")
        library.define("twice(Tensor x) -> Tensor", tags=(torch.Tag.pointwise,))
        library.impl("twice", lambda x: x + x, "CompositeExplicitAutograd")
        doubled = Net(lambda m, x: torch.ops.course_test.twice(x))
        assert profile(doubled, torch.ones(1, 4)).uncounted == ()
        multiply = Net(lambda m, x: torch.ops.course_test.norm_linear(x, m.w), w=torch.ones(4, 4))
        assert profile(multiply, torch.ones(1, 4)).uncounted == ("course_test.norm_linear",)
    for name in ("resnet18", "mobilenet_v3_small", "swin_t", "convnext_tiny", "shufflenet_v2_x0_5"):
        network = models.build(name).to("meta")
        assert metrics._count(network, torch.zeros(1, 3, 64, 64, device="meta")).uncounted == set()


@pytest.mark.parametrize("name", ["resnet18", "vit_b_16", "googlenet", "mobilenet_v3_small"])
def test_multiply_adds_are_those_of_the_counter_of_pytorch(name):
    network = models.build(name).eval().to("meta")
    images = torch.zeros(1, 3, 224, 224, device="meta")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(images)
    assert metrics.count_macs(network, images) == counter.get_total_flops() // 2


def test_a_network_that_cannot_be_saved_has_no_file_bytes_and_a_shared_tensor_counts_once():
    assert profile(nn.Linear(3, 4), torch.zeros(1, 3)) == metrics.Profile(16, 12, None)
    tied = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    tied[1].weight = tied[0].weight
    assert count_parameters(tied) == 16


@pytest.fixture
def clock(monkeypatch):
    """The time that passes while networks are measured, and what was called."""
    made = SimpleNamespace(now=0.0, log=[], perf_counter=lambda: made.now, sleep=lambda _: None)
    monkeypatch.setattr(metrics, "time", made)
    return made


class Slow(nn.Module):
    """Takes a known time, and a longer one in the first calls."""

    def __init__(self, clock, seconds, name=""):
        super().__init__()
        self.clock, self.seconds, self.name, self.calls = clock, seconds, name, 0

    def forward(self, x):
        self.calls += 1
        self.clock.now += self.seconds * (10 if self.calls <= 2 else 1)
        self.clock.log.append((self.name, torch.get_num_threads(), self.training))
        return x


def test_latency_leaves_the_warm_up_out(clock):
    model = Slow(clock, 0.004).train()
    result = compare_latency({"": model}, torch.zeros(2, 1), 1, runs=7, warmup=2).iloc[0]
    assert result.median_ms == pytest.approx(4) and result.iqr_ms == pytest.approx(0, abs=1e-9)
    assert (result.runs, result.threads, result.batch) == (7, 1, 2)
    assert model.calls == 9 and model.training and set(clock.log) == {("", 1, False)}


def test_candidates_take_turns_and_are_compared_with_the_first(clock):
    candidates = {
        name: Slow(clock, seconds, name) for name, seconds in (("a", 0.004), ("b", 0.012))
    }
    table = compare_latency(candidates, torch.zeros(1), runs=5, warmup=2)
    calls = "".join(name for name, *_ in clock.log)
    assert calls[:4] == "aabb"  # the warm-up
    rounds = {
        calls[at : at + 4] for at in range(4, len(calls), 4)
    }  # in each turn one call is not timed
    assert len(calls) == 4 + 5 * 4
    assert rounds == {"aabb", "bbaa"}  # neither is always the first
    assert table.speedup.tolist() == pytest.approx([1, 1 / 3])


def test_on_an_apple_gpu_networks_stay_contiguous_since_its_gradients_were_wrong():
    class OnAppleGpu:
        device = torch.device("mps")

        def __getitem__(self, part):
            return torch.zeros(1, 3, 8, 8)

    model = nn.Conv2d(3, 4, 3)
    assert metrics.use_faster_format(OnAppleGpu(), model) == torch.contiguous_format
    assert metrics.use_faster_format(torch.zeros(1, 3, 8, 8), model) == torch.channels_last


def test_what_a_device_cannot_do_is_told_whole_and_not_blamed_on_the_images():
    def forward(model, x):
        raise NotImplementedError("not on this GPU " + 300 * "x" + " but with this remedy")

    with pytest.raises(NotImplementedError, match=r"^not on this GPU.* but with this remedy$"):
        metrics.check_scores(Net(forward), tiny_cifar())


@pytest.mark.parametrize(
    ("mode", "options", "message"),
    [
        ("kernel", {"runs": 2}, "3 runs"),
        ("kernel", {"warmup": 0}, "warm-up"),
        ("kernel", {"threads": 0}, "threads"),
        ("simulated", {}, r"int8 computes in float .* set its mode to 'kernel'"),
    ],
)
def test_measurements_without_sense_are_refused(mode, options, message):
    candidate = nn.Identity()
    candidate.mode = mode
    with pytest.raises(metrics.MeasurementError, match=message):
        compare_latency({"int8": candidate}, torch.zeros(1), **options)


def test_freed_memory_is_kept_while_candidates_are_compared():
    seen = []
    compare_latency({"one": lambda x: seen.append(allocator._open_blocks)}, torch.zeros(1), runs=3)
    assert {*seen} == {1}


def test_every_engine_is_timed_without_gradients_and_with_freed_memory_kept(monkeypatch):
    seen = []

    def note():
        seen.append((torch.is_inference_mode_enabled(), allocator._open_blocks))

    monkeypatch.setitem(speed.ENGINES, "one", lambda form, x, threads: note)
    monkeypatch.setattr(speed, "SECONDS_PER_TURN", 1e-3)
    assert speed.contestant("one", None, torch.get_num_threads())(1) > 0
    assert {*seen} == {(True, 1)}
