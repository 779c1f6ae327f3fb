"""A network and images of one's own, through the shell's door; and what keeps a long run from being
lost.
"""

import re
import sys
from argparse import Namespace

import onnxruntime
import pandas as pd
import pytest
import torch
from torch import nn
from torchvision.models import resnet18

from course.__main__ import STAGES, main
from course.commands.finetune import Ensemble
from course.commands.options import named
from course.publish import compressed
from helpers import augment, data, metrics, models, pipeline, quantization, training
from helpers.dataset import CIFAR10, normalization_of
from tests.cifar_fixtures import write_images

FACTORY = f"{__name__}:make"


def make(classes=7, channels=3, width=16):
    """A small network that no builder of the course knows."""
    return nn.Sequential(
        *(
            nn.Conv2d(channels, width, 3, 2),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, 2),
        ),
        *(
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(width, classes),
        ),
    )


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """The options that name a small network and 64-pixel images of 7 classes."""
    place = tmp_path_factory.mktemp("own")
    torch.manual_seed(0)
    torch.save(make().state_dict(), place / "weights.pt")
    images = write_images(place / "images", "kind {}", 7, 10, (64, 64))
    return ["--model", FACTORY, "--weights", str(place / "weights.pt"), "--data", str(images)]


def without_weights(options):
    """The same options for a file of the course: it has the weights."""
    return options[:2] + options[4:]


def test_every_command_takes_a_network_of_ones_own(own, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        "helpers.metrics.file_bytes", lambda _: pytest.fail("saved and loaded again to count")
    )
    files = {name: str(tmp_path / f"{name}.safetensors") for name in ("small", "tuned", "int8")}
    again = without_weights(own)
    fast = ["--epochs", "1", "--batch-size", "16"]
    onnx = tmp_path / "int8.onnx"
    for words in (
        ["prune", "--output", files["small"], *own],
        [
            "finetune",
            files["small"],
            *again,
            "--teacher",
            files["small"],
            *fast,
            "--output",
            files["tuned"],
        ],
        [
            "quantize",
            files["tuned"],
            *again,
            "--output",
            files["int8"],
            "--onnx",
            str(onnx),
            "--images",
            "32",
        ],
        ["evaluate", *files.values(), *again],
        ["evaluate", *own],
    ):
        assert main(words) == 0
    printed = capsys.readouterr().out
    for told in (
        "weights.pt states no normalisation: the images' own is taken",
        "images: 56 training + 14 test images (3 x 64 x 64 pixels, 7 classes)",
        f"small.safetensors: {FACTORY}, steps after building: resize",
        f"weights.pt: {FACTORY}, steps after building: none",
    ):
        assert told in printed
    assert set(pd.read_csv(tmp_path / "tuned.csv").image_size) == {64}
    images = data.from_folder(own[-1])
    network = models.load(files["int8"], factory=FACTORY)
    assert network.input_normalization == images.normalization
    x = data.normalize(images.test_images, normalization=images.normalization)
    session = onnxruntime.InferenceSession(onnx, providers=["CPUExecutionProvider"])
    (answer,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    network.mode = "integer"
    torch.testing.assert_close(torch.from_numpy(answer), network(x), atol=1e-4, rtol=1e-4)
    assert main(["evaluate", files["int8"], *again[2:]]) == 1
    assert "runs only if you name it too" in capsys.readouterr().err


def test_grey_images_train_a_network_of_three_channels_in_batches_that_fit_them(
    tmp_path, monkeypatch, capsys
):
    grey = str(write_images(tmp_path / "grey", mode="L", size=(32, 32), each=30))
    words = ["train", "--data", grey, "--model", "tiny", "--epochs", "1", "--no-mirror"]
    words += ["--output", str(tmp_path / "net.safetensors")]
    assert main(words) == 1 and "(--mean, --deviation)" in capsys.readouterr().err
    seen, train = [], training.train
    watched = lambda *given, **named: seen.append(given[2]) or train(*given, **named)  # noqa: E731
    monkeypatch.setattr(training, "train", watched)
    ways = ["--mean", *["0.5"] * 3, "--deviation", *["0.25"] * 3]
    assert main([*words, *ways, "--arguments", "num_classes=3"]) == 0
    assert seen[0].batch_size == 8
    model = models.load(tmp_path / "net.safetensors")
    assert normalization_of(model) == ((0.5,) * 3, (0.25,) * 3)
    formats, timed = [], metrics.compare_latency
    monkeypatch.setattr(
        metrics,
        "compare_latency",
        lambda named, images, *rest: formats.append(images) or timed(named, images, *rest),
    )
    assert main(["evaluate", words[-1], "--data", grey, "--batch", "2"]) == 0
    assert formats[0].is_contiguous(memory_format=torch.channels_last)


def test_a_file_without_normalisation_says_so_and_images_need_not_be_mirrored(
    own, tmp_path, monkeypatch, capsys
):
    path, again = (
        models.save(models.build(make).eval(), tmp_path / "bare.safetensors"),
        without_weights(own),
    )
    half = ["--mean", *["0.5"] * 3, "--deviation", *["0.2"] * 3]
    used, evaluate = [], training.evaluate

    def watched(model, *words, **settings):
        used.append(model)
        return evaluate(model, *words, **settings)

    monkeypatch.setattr(training, "evaluate", watched)
    for options, told in (([], True), (half, False)):
        assert main(["evaluate", str(path), *again, *options]) == 0
        assert (
            "bare.safetensors states no normalisation: CIFAR-10's is taken"
            in capsys.readouterr().out
        ) == told
    assert normalization_of(used[0]) == CIFAR10 != normalization_of(used[1])
    monkeypatch.setattr(augment, "alternating_flip", lambda *_: pytest.fail("mirrored"))
    teacher = models.build("tiny", num_classes=7)  # of another builder than --model names
    teacher.input_normalization = data.Normalization((0.5,) * 3, (0.2,) * 3)
    taught = ["--teacher", str(models.save(teacher, tmp_path / "teacher.safetensors"))]
    words = ["finetune", str(path), *again, *half, "--no-mirror", "--epochs", "1", *taught]
    assert main([*words, "--output", str(tmp_path / "tuned.safetensors")]) == 0


def test_a_file_is_no_larger_than_asked_with_all_that_it_says_about_itself(own, tmp_path):
    torch.save(make(width=64).state_dict(), tmp_path / "wide.pt")
    out = tmp_path / "mixed.safetensors"
    wide = [*own, "--arguments", "width=64", "--weights", str(tmp_path / "wide.pt")]
    for wanted in (35_000, 34_999):  # then one byte less than the first file has
        wanted = min(wanted, out.stat().st_size - 1) if out.exists() else wanted
        assert main(["quantize", "--output", str(out), *wide, "--file-bytes", str(wanted)]) == 0
        assert out.stat().st_size <= wanted


def test_stopped_while_it_trains_with_rounding_the_same_command_goes_on(own, tmp_path, monkeypatch):
    words = [
        "quantize",
        "--output",
        str(tmp_path / "int8.safetensors"),
        *own,
        "--qat-epochs",
        "2",
        "--images",
        "32",
    ]
    run_epoch, epochs = training.TrainingLoop.run_epoch, []

    def stop_in_the_second(loop, epoch, *rest):
        epochs.append(epoch)
        if epochs == [0, 1]:
            raise KeyboardInterrupt
        return run_epoch(loop, epoch, *rest)

    monkeypatch.setattr(training.TrainingLoop, "run_epoch", stop_in_the_second)
    assert [main(words), main(words)] == [130, 0] and epochs == [0, 1, 1]
    assert [path.name for path in tmp_path.iterdir()] == [
        "int8.safetensors"
    ]  # no state that another run might take


WRONG = {
    "other sizes": (
        ["--arguments", "width=8"],
        "weights.pt does not fit Sequential: 0.bias is torch.float32 (16,)",
    ),
    "another head": (
        ["--arguments", "classes=5"],
        "8.bias is torch.float32 (7,), expected torch.float32 (5,); 8.w",
    ),
    "no argument": (["--arguments", "wide"], "'wide' is not NAME=VALUE, such as num_classes=7"),
    "unknown argument": (["--arguments", "wide=[1]"], "does not take {'wide': [1]}"),
    "no folder": (
        ["--data", "nowhere"],
        "--data nowhere: no such folder, and no source of CIFAR-10 (auto, ",
    ),
    "channels": (
        ["--mean", "0.5", "--deviation", "0.2"],
        "the network does not take images of (1, 64, 64): ",
    ),
    "numbers for pixels up to 255": (
        ["--mean", "123", "116", "103", "--deviation", "58", "57", "57"],
        "divide numbers for pixels up to 255 by 255",
    ),
    "no deviation": (["--mean", *"000", "--deviation", *"000"], "a deviation above 0"),
    "too few numbers": (
        ["--mean", "0.5", "0.5", "0.5"],
        "--mean has 3 numbers and --deviation 0: give one of each per channel",
    ),
}


@pytest.mark.parametrize(
    ("word", "value"), [("False", False), ("false", False), ("None", None), ("x", "x"), ("2", 2)]
)
def test_arguments_are_read_as_json_or_as_python_writes_them(word, value):
    assert named(f"name={word}") == ("name", value)


@pytest.mark.parametrize("wrong", WRONG)
def test_what_does_not_fit_is_said_in_one_line(wrong, own, tmp_path, capsys):
    options, message = WRONG[wrong]
    assert main(["compress", *own, *options, "--output", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert (
        error.startswith("python -m course compress: ")
        and message in error
        and error.count("\n") == 1
    )
    assert not (tmp_path / "out").exists()


def test_a_head_for_another_task_and_neither_a_file_nor_weights_with_a_model_are_refused(
    own, tmp_path, capsys
):
    torch.save(make(1).state_dict(), tmp_path / "regression.pt")
    head = ["--arguments", "classes=1", "--weights", str(tmp_path / "regression.pt")]
    either = "or --model and --weights for a network of your own"
    for options, says in (
        ([*own, *head], "answer of shape (1, 1) for one image, and images has 7 classes"),
        *((options, either) for options in (own[2:], ["x.safetensors", *own], own[:2])),
        (
            ["x.safetensors", *own[4:], "--arguments", "classes=1"],
            "--arguments is for --weights; leave it out",
        ),
    ):
        assert main(["compress", *options, "--output", str(tmp_path / "out")]) == 1
        assert says in capsys.readouterr().err


def test_stopped_after_fine_tuning_the_same_command_goes_on_and_has_not_lost_it(
    own, tmp_path, monkeypatch, capsys
):
    words = ["compress", *own, "--epochs", "2", "--output", str(tmp_path)]
    quantize, steps = quantization.quantize, []

    def fail(model, images, recipe):
        if len(images) > 2:  # not the rehearsal
            raise KeyboardInterrupt
        return quantize(model, images, recipe)

    with monkeypatch.context() as change:
        change.setattr(quantization, "quantize", fail)
        assert main(words) == 130 and "goes on from there" in capsys.readouterr().err
    tuned = models.load(tmp_path / "fine-tuned.safetensors", factory=FACTORY)
    monkeypatch.setattr(training.TrainingLoop, "run_epoch", lambda *_: steps.append("trained"))
    assert main(words) == 0
    assert steps == []
    table = pd.read_csv(tmp_path / "table.csv")
    assert list(table.stage) == ["dense", "pruned", "fine-tuned", "quantized"]
    report = (tmp_path / "report.md").read_text()
    for row in table.itertuples():
        file = tmp_path / f"{row.stage}.safetensors"
        assert row.file_bytes == file.stat().st_size
        models.load(file, factory=FACTORY)
        line = next(line for line in report.splitlines() if line.startswith(f"| {row.stage} |"))
        assert (
            f"| {row.accuracy:.2%} ({row.low:.2%} to {row.high:.2%}) |" in line
            and f"| {row.file_bytes:,} |" in line
        )
        assert line.endswith("| 14 of 14 |")
    assert f"report: {tmp_path / 'report.md'}" in capsys.readouterr().out
    reasons = ("computed in integers", "| 8 | 7 | it is an output of the network |")
    for told in (*reasons, f"## Make it again\n\n{compressed.again()}\n"):
        assert told in report, report
    after = models.load(tmp_path / "fine-tuned.safetensors", factory=FACTORY)
    assert all(
        torch.equal(tensor, after.state_dict()[name]) for name, tensor in tuned.state_dict().items()
    )


def test_a_report_names_the_command_that_made_it_if_there_was_one(monkeypatch):
    for spec, told in ((None, "Run the cell"), (Namespace(name="course.__main__"), "```\ncd ")):
        monkeypatch.setitem(sys.modules, "__main__", Namespace(__spec__=spec))
        assert compressed.again().startswith(told)


def test_files_of_something_else_are_not_written_over(own, tmp_path, capsys):
    assert STAGES == pipeline.STAGES
    for name in ("table.csv", "quantized.onnx"):
        (tmp_path / name).write_text("of somebody")
        assert main(["compress", *own, "--output", str(tmp_path)]) == 1
        assert f"{name} is not of this command: choose a new folder" in capsys.readouterr().err
        (tmp_path / name).unlink()
    (tmp_path / "cats.csv").write_text("image,label\n")
    words = ["train", "--data", own[-1], "--output", str(tmp_path / "cats.safetensors")]
    assert main([*words, "--model", "tiny", "--epochs", "1", "--input-size", "24"]) == 1
    assert "cats.csv is no log of a training: name another, --log" in capsys.readouterr().err
    assert (tmp_path / "cats.csv").read_text() == "image,label\n"


def test_a_plain_module_goes_the_whole_way_and_an_error_hands_over_what_is_finished(
    own, tmp_path, monkeypatch
):
    images, model = data.from_folder(own[-1], size=24), make().eval()
    result = pipeline.compress(
        model, images, finetune_epochs=1, folder=tmp_path, latency_runs=3, progress=False
    )
    assert not hasattr(model, "spec") and not hasattr(model, "input_normalization")
    loaded = models.load(tmp_path / "quantized.safetensors", factory=make)
    found = training.evaluate(loaded, images.test_images, images.test_labels)
    assert found == training.evaluate(result.model, images.test_images, images.test_labels)
    with pytest.raises(models.ModelError, match="runs only if you name it too"):
        models.load(tmp_path / "quantized.safetensors")
    monkeypatch.setattr(pipeline, "latencies", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError) as caught:
        pipeline.compress(model, images, finetune_epochs=0, progress=False)
    assert list(caught.value.stages) == ["dense", "pruned", "quantized"]


@pytest.mark.slow
def test_the_lines_of_the_readme_run(own, tmp_path, monkeypatch):
    text = (data.REPOSITORY / "README.md").read_text()
    (code,) = re.findall(r"```python\n(from helpers import data.*?)```", text, re.S)
    assert len(code.splitlines()) <= 10
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").symlink_to(own[-1])
    torch.save(resnet18(num_classes=7).state_dict(), tmp_path / "weights.pt")
    names = {}
    quick = "prune_ratio=0.5, finetune_epochs=1, latency_runs=3, progress=False"
    exec(code.replace("prune_ratio=0.5", quick), names)
    assert names["small"].input_normalization == names["images"].normalization


def test_an_ensemble_takes_images_as_its_networks_do_and_as_the_data_set_where_they_do_not_say():
    silent, telling = nn.Identity(), nn.Identity()
    telling.input_normalization = data.Normalization((0.5,), (0.25,))
    assert not hasattr(Ensemble([silent, silent]), "input_normalization")
    assert Ensemble([telling, telling]).input_normalization == telling.input_normalization
    with pytest.raises(models.ModelError, match="normalised differently"):
        Ensemble([silent, telling])
