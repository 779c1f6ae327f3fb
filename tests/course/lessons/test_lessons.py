"""What lessons import from course.lessons, and the benchmark of zeros by magnitude."""

import sys

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from course import lessons
from course.benchmarks import pruning_unstructured
from course.benchmarks.pruning_unstructured import share_of_zeros
from course.lessons import onnx_float, roofline
from course.lessons.batches import TrainingBatches
from course.lessons.flow import flow
from course.lessons.profile import PROFILES
from course.lessons.results import RESULTS
from course.lessons.zeros import weights_of, zero_small_weights
from helpers import data, metrics, models, passes
from tests.pruning.zoo import ToyMobile, build


def test_quick_unless_asked(monkeypatch):
    monkeypatch.delenv("PROFILE", raising=False)
    assert lessons.profile().name == "quick"
    monkeypatch.setenv("PROFILE", "full")
    assert lessons.profile().images == 10_000
    asked = []
    monkeypatch.setattr(sys.modules["course.lessons.profile"], "load_cifar10", asked.append)
    PROFILES["quick"].cifar10(), PROFILES["full"].cifar10()
    assert asked == ["offline", "auto"]  # in the quick profile nothing is fetched
    monkeypatch.setenv("PROFILE", "fast")
    with pytest.raises(ValueError, match=r"'fast'.*quick or full"):
        lessons.profile()


def test_reference_results_are_those_measured_last(tmp_path, monkeypatch):
    assert all(len(lessons.reference(path.stem)) for path in RESULTS.glob("*.csv"))
    monkeypatch.setattr(sys.modules["course.lessons.results"], "RESULTS", tmp_path)
    (tmp_path / "some.csv").write_text("sha256,accuracy\na,1\nb,2\na,3\nb,4\n")
    assert lessons.reference("some").accuracy.tolist() == [2, 4]


def test_a_long_training_goes_on_only_from_its_own_state(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["course.lessons.profile"], "STATES", tmp_path)
    network, full = nn.Linear(2, 2), PROFILES["full"]
    first = full.state("07-rate", network, "one epoch")
    assert first.parent == tmp_path and first.name.startswith("07-rate-")
    assert full.state("07-rate", network, "one epoch") == first
    assert full.state("07-rate", network, "two epochs") != first
    assert full.state("07-rate", nn.Linear(2, 2), "one epoch") != first
    assert PROFILES["quick"].state("07-rate", network, "one epoch") is None


def test_each_level_of_onnx_runtime_leaves_fewer_operators_that_compute_the_same(tmp_path):
    model, x = (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU6()).eval(),
        torch.randn(2, 3, 8, 8),
    )
    metrics.randomize_batchnorm(model, 0)
    path = onnx_float.export(model, x, tmp_path / "net.onnx")
    off, basic, most = (onnx_float.operators(path, level) for level in onnx_float.LEVELS)
    assert (off["Conv"], off["BatchNormalization"], off["Clip"]) == (1, 1, 1)
    assert (basic["BatchNormalization"], basic["Clip"], most["Clip"]) == (0, 1, 0)
    (got,) = onnx_float.session(path, threads=1).run(None, {"x": x.numpy()})
    np.testing.assert_allclose(got, model(x).detach(), rtol=1e-4, atol=1e-5)


def test_a_fused_convolution_counts_as_one_whatever_the_processor_calls_it():
    assert onnx_float.counted(["Conv", "FusedConv", "Constant", "Add"]) == {"Conv": 2, "Add": 1}


def test_operations_and_bytes_of_each_convolution_and_of_relu6():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 4, 1)
    )
    found = roofline.measure_layers(model.eval(), torch.zeros(2, 3, 6, 6), repeats=3)
    assert [one.kind for one in found] == [
        "ordinary 3x3",
        "depthwise 3x3",
        "pointwise 1x1",
        "ReLU6 alone",
    ]
    assert [one.operations / 2 for one in found[:3]] == [
        2 * 8 * 36 * 27,
        2 * 8 * 16 * 9,
        2 * 4 * 16 * 8,
    ]
    assert found[0].bytes == 4 * (2 * 3 * 36 + 8 * 27 + 2 * 8 * 36)
    assert found[3].intensity == 0.25
    assert all(
        one.seconds > 0 and one.rate == pytest.approx(one.operations / one.seconds) for one in found
    )
    with pytest.raises(RuntimeError, match="expected input"):
        roofline.measure_layers(model, torch.zeros(2, 1, 6, 6))
    assert not any(module._forward_hooks for module in model)


def test_fewer_images_than_make_a_batch_are_refused():
    images, labels = torch.zeros(3, 3, 32, 32, dtype=torch.uint8), torch.arange(3)
    assert len(list(TrainingBatches(images, labels, size=3))) == 1
    with pytest.raises(ValueError, match="3 images make no batch of size=4"):
        TrainingBatches(images, labels, size=4)


def test_batches_keep_image_and_label_together_and_come_in_another_order_each_time():
    labels = torch.arange(6)
    images = labels.to(torch.uint8).reshape(6, 1, 1, 1).repeat(1, 3, 32, 32)
    batches = TrainingBatches(images, labels, passes=2, size=2)
    told = []
    for shown, label in batches:  # each of one colour, which no crop and no mirror changes
        torch.testing.assert_close(shown, data.normalize(images[label]))
        told += label.tolist()
    assert sorted(told[:6]) == sorted(told[6:]) == labels.tolist() and told[:6] != told[6:]
    assert told == [number for _, label in batches for number in label.tolist()]


def test_bytes_moved_fall_when_an_activation_moves_into_its_convolution():
    model, x = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU6()).eval(), torch.zeros(2, 3, 5, 5)
    graph, _ = passes.optimize(model, x)
    assert roofline.bytes_moved(graph) == 4 * 2 * 25 * (3 + 8 + 8 + 8)
    passes.Passer(["fusion"]).run(graph)
    assert roofline.bytes_moved(graph) == 4 * 2 * 25 * (3 + 8)


def values(model):
    return torch.cat([weight.detach().flatten() for weight in weights_of(model)]).tolist()


@pytest.mark.parametrize("share", [0, 0.29, 0.9])
def test_the_smallest_of_the_whole_network_become_zero(share):
    model = build(ToyMobile)
    before, sparse = values(model), zero_small_weights(model, share)
    order = sorted(range(len(before)), key=lambda i: (abs(before[i]), i))
    gone = set(order[: int(len(before) * share)])
    assert values(sparse) == [0.0 if i in gone else v for i, v in enumerate(before)]
    assert values(model) == before
    assert share_of_zeros(sparse) == pytest.approx(len(gone) / len(before))


def test_a_weight_that_two_layers_share_counts_once():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    nn.init.zeros_(model[2].weight)
    assert share_of_zeros(model) == 0.5


@pytest.mark.slow
@pytest.mark.ci
def test_the_command_writes_a_row_for_each_sparsity_and_zeros_make_only_the_coded_file_smaller(
    tmp_path, capsys
):
    checkpoint = models.save(models.mobilenet_v2(width_mult=0.25), tmp_path / "dense.safetensors")
    out = tmp_path / "table.csv"
    pruning_unstructured.main(
        [str(checkpoint), "--data", "sample", "--runs", "3", "--output", str(out)]
    )
    table = pd.read_csv(out)
    assert table.sparsity.tolist() == list(pruning_unstructured.SPARSITIES)
    assert table.zeros.tolist() == pytest.approx(table.sparsity.tolist(), abs=1e-4)
    assert set(table.file_bytes) == {checkpoint.stat().st_size}
    coded = table.set_index("sparsity").coded_bytes
    assert coded.is_monotonic_decreasing and coded[0.9] < 0.5 * coded[0.0]
    assert (table.low <= table.validation).all()
    assert (table.latency_ms > 0).all()
    assert "sparsity" in capsys.readouterr().out


def test_every_box_and_arrow_of_a_flow_says_what_it_was_given():
    (ax,) = flow([("a", "1"), ("b", "2"), ("c", "3")], ["then", "becomes"], strong=(2,)).axes
    assert {"a", "b", "c", "1", "2", "3", "then", "becomes"} <= {
        text.get_text() for text in ax.texts
    }
    assert len(ax.patches) == 3
    assert (
        sum(text.arrow_patch is not None for text in ax.texts if hasattr(text, "arrow_patch")) == 2
    )
    plain, _, strong = (patch.get_linewidth() for patch in ax.patches)
    assert strong > plain


def test_networks_compared_on_the_same_images_and_when_that_says_nothing():
    images = torch.zeros(600, 3, 32, 32, dtype=torch.uint8)
    labels = torch.arange(600) % 2
    always = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 2))
    nn.init.zeros_(always[1].weight)
    always[1].bias.data = torch.tensor([1.0, 0.0])
    found = lessons.correct(always, images, labels)
    assert found.tolist() == (1.0 - labels).tolist()
    assert lessons.gain(found, found) == "+0.0 points: both are right on the same images"
    assert lessons.gain(torch.ones(600), found).startswith("+50.0 points (+46.0 to +54.0)")
    assert lessons.gain(found, torch.ones(600)).startswith("-50.0 points (-54.0 to -46.0)")
    nine, hundred = torch.ones(1000), torch.ones(1000)
    nine[:9] = 0
    hundred[:100] = 0
    assert lessons.gain(torch.ones(1000), nine).endswith("too close to call")  # nine disagreements
    one_lost = torch.cat((torch.zeros(1), torch.ones(9999)))
    assert lessons.gain(one_lost, torch.ones(10_000)).startswith("+0.0 points (+0.0 to")
    assert not lessons.gain(torch.ones(1000), hundred).endswith("call")
    assert lessons.gain(hundred.roll(20), hundred).endswith("too close to call")
