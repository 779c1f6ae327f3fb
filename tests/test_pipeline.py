import copy
import dataclasses
import functools

import pytest
import torch

from helpers import models, pipeline, pruning, quantization, training
from helpers.data import Normalization, load_cifar10
from helpers.provenance import cpu_name
from helpers.quantization import Recipe
from tests.marks import IN_CI

pytestmark = IN_CI


@pytest.fixture(scope="module")
def result():
    """A short way with a narrow network, on a few images of the sample."""
    cifar = load_cifar10("sample")
    images = {
        f"{part}_images": getattr(cifar, f"{part}_images")[:100, :, ::2, ::2]
        for part in ("train", "test")
    }
    labels = {
        f"{part}_labels": getattr(cifar, f"{part}_labels")[:100] for part in ("train", "test")
    }
    few = dataclasses.replace(cifar, **images, **labels)
    torch.manual_seed(0)
    model = models.mobilenet_v2(width_mult=0.1).eval()
    # Training has switched a channel off: neither BatchNorm on its way has seen it change.
    filters, norm, _ = model.features[3].conv[0]
    filters.weight.data[4], norm.running_var[4], norm.bias.data[4] = 0, 0, -1
    model.features[3].conv[1][1].running_var[4] = 0
    before = copy.deepcopy(model.state_dict())
    with pytest.MonkeyPatch.context() as patch:  # an earlier training has used a GPU
        patch.setattr(torch.cuda, "max_memory_allocated", lambda: 512)
        patch.setattr(torch.cuda, "get_device_name", lambda: "GPU")
        made = pipeline.compress(model, few, finetune_epochs=1, latency_runs=3, progress=False)
    return model, before, few, made


def test_one_row_per_stage_and_each_is_what_it_says(result):
    _, _, cifar, made = result
    assert (
        list(made.table.stage)
        == list(made.stages)
        == ["dense", "pruned", "fine-tuned", "quantized"]
    )
    assert made.model is made.stages["quantized"]
    assert set(made.table.device) == {cpu_name()}
    for row in made.table.itertuples():
        found = training.evaluate(made.stages[row.stage], cifar.test_images, cifar.test_labels)
        assert (row.accuracy, row.test_images) == (found.accuracy, found.n)
        assert row.low <= row.accuracy <= row.high
        assert min(row.batch1_ms, row.batch128_ms) > 0


def test_dead_channels_are_found_and_each_stage_is_smaller(result):
    assert result[3].dead == {"features.3.conv.0.0": [4]}
    rows = result[3].table.set_index("stage")
    assert rows.params["pruned"] < rows.params["dense"]
    assert rows.macs["pruned"] < rows.macs["dense"]
    assert rows.params["fine-tuned"] == rows.params["quantized"] == rows.params["pruned"]
    assert (
        rows.file_bytes["quantized"]
        < 0.5 * rows.file_bytes["fine-tuned"]
        < rows.file_bytes["dense"]
    )


def test_fine_tuning_changes_a_copy_and_the_given_network_stays_as_it_is(result):
    model, before, _, made = result
    pruned, tuned = (next(made.stages[name].parameters()) for name in ("pruned", "fine-tuned"))
    assert not torch.equal(pruned, tuned)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_folder_keeps_the_run_that_it_holds(result, tmp_path):
    model, _, few, made = result
    for stage in ("pruned", "fine-tuned"):
        models.save(made.stages[stage], tmp_path / f"{stage}.safetensors")
    models.save(made.stages["quantized"], tmp_path / "alone" / "quantized.safetensors")
    held = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    other = copy.deepcopy(model)
    torch.nn.init.normal_(other.classifier[1].weight)
    for at, network, *how in (
        ("", other, 0.5, 1),
        ("", model, 0.25, 1),
        ("", model, 0.5, 0),
        ("alone", model, 0.5, 1),
    ):
        with pytest.raises(models.ModelError, match=r"holds another network.*new folder"):
            pipeline.compress(network, few, *how, folder=tmp_path / at, progress=False)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == held
    dense, pruned = made.stages["dense"], made.stages["pruned"]
    held_by = functools.partial(pipeline.refuse_another_run, epochs=1, recipe=Recipe())
    held_by(tmp_path, dense, pruned)  # the same goes on
    models.save(dense, tmp_path / "alone" / "dense.safetensors")  # beside a quantized one
    with pytest.raises(models.ModelError, match="holds another network"):
        held_by(tmp_path / "alone", dense, pruned)
    models.save(made.stages["quantized"], tmp_path / "quantized.safetensors")
    models.save(dense, tmp_path / "dense.safetensors")
    held_by(tmp_path, dense, pruned)
    models.save(dense, tmp_path / "quantized.safetensors")  # which no recipe made
    with pytest.raises(models.ModelError, match="holds another network"):
        held_by(tmp_path, dense, pruned)
    models.save(made.stages["quantized"], tmp_path / "quantized.safetensors")
    for change in ({"recipe": Recipe(weight_bits=4)}, {"epochs": 0}):
        with pytest.raises(models.ModelError, match="with other settings"):
            held_by(tmp_path, dense, pruned, **change)
    models.save(other, tmp_path / "dense.safetensors")
    with pytest.raises(models.ModelError, match="holds another network"):
        held_by(tmp_path, dense, pruned)
    (tmp_path / "dense.safetensors").write_bytes(b"half a file")
    with pytest.raises(models.ModelError, match=r"dense.safetensors is damaged .*new folder"):
        held_by(tmp_path, dense, pruned)


class Classifier(torch.nn.Sequential):
    def __init__(self):
        convolution, mean = torch.nn.Conv2d(3, 10, 3), torch.nn.AdaptiveAvgPool2d(1)
        super().__init__(convolution, torch.nn.ReLU(), mean, torch.nn.Flatten())


def test_a_class_that_does_not_make_the_network_is_refused_when_its_file_is_loaded(tmp_path):
    cifar, images = load_cifar10("sample"), torch.randn(2, 3, 8, 8)
    net = Classifier().eval()
    file = models.save(pipeline.as_saveable(net, cifar), tmp_path / "m.safetensors")
    assert torch.equal(models.load(file, Classifier)(images), net(images))

    traced = torch.fx.symbolic_trace(net)  # its class makes nothing
    traced.input_normalization = Normalization((0.1,) * 3, (0.2,) * 3)
    graph = pipeline.as_saveable(traced, cifar)
    assert torch.equal(graph(images), net(images))
    copied = copy.deepcopy(pruning.remove_dead_channels(graph, images)[0])
    assert copied.input_normalization == traced.input_normalization
    models.save(copied, tmp_path / "graph.safetensors")

    def changed():
        net = Classifier()
        net[1] = torch.nn.SiLU()
        return net

    net = changed().eval()
    file = models.save(pipeline.as_saveable(net, cifar), tmp_path / "m.safetensors")
    with pytest.raises(models.ModelError, match=r"Classifier' alone does not make.*a function"):
        models.load(file, Classifier)
    assert torch.equal(models.load(file, changed)(images), net(images))


def test_an_edited_layer_is_named_before_anything_is_quantized(result):
    model, _, few, _ = result
    edited = copy.deepcopy(model)
    edited.features[0][0].padding_mode = "circular"
    with pytest.raises(models.ModelError, match=r"^features\.0\.0\.padding_mode is 'circular'"):
        pipeline.compress(edited, few, latency_runs=3, progress=False)


def test_what_would_fail_after_the_training_fails_before_it(result, tmp_path):
    model, _, few, _ = result
    with pytest.raises(models.ModelError, match=r"on meta; this is done on the CPU: call \.cpu"):
        pipeline.compress(copy.deepcopy(model).to("meta"), few, progress=False)
    recipe = quantization.Recipe(layer_bits={"no such layer": 4})
    for options, message in (
        ({"latency_runs": 2}, "3 runs or more"),
        ({"recipe": recipe}, "no such layer"),
    ):
        with pytest.raises(ValueError, match=message):
            pipeline.compress(model, few, **options, folder=tmp_path / "new", progress=False)
        assert not (tmp_path / "new").exists()
