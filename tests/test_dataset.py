"""Images of one's own: from arrays and folders, and the normalisation that a network keeps."""

import os
import shutil
import struct
from pathlib import Path, PureWindowsPath
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from helpers import (
    augment,
    data,
    image_folders,
    metrics,
    models,
    passes,
    pruning,
    quantization,
    training,
)
from helpers.data import DataError, Normalization
from helpers.dataset import CIFAR10, normalization_of, normalize, set_default_normalization
from tests.cifar_fixtures import write_images


@pytest.mark.filterwarnings("ignore:'mode' parameter is deprecated")
@pytest.mark.parametrize(("mode", "channels"), [("RGB", 3), ("L", 1)])
def test_a_folder_is_read_and_a_fifth_of_each_class_set_aside(mode, channels, tmp_path):
    found = data.from_folder(write_images(tmp_path / "birds", mode=mode, size=(20, 16)))
    assert (found.name, found.classes) == ("birds", ("class0", "class1", "class2"))
    assert found.train_images.shape == (12, channels, 16, 20) and found.test_images.shape == (
        3,
        channels,
        16,
        20,
    )
    for part in ("train", "test"):
        assert torch.equal(
            getattr(found, f"{part}_images")[:, 0, 0, 0].long(), getattr(found, f"{part}_labels")
        )
    (tmp_path / "birds" / "class0" / "._0.png").touch()  # as macOS leaves it
    again = data.from_folder(tmp_path / "birds")
    assert torch.equal(found.test_images, again.test_images)
    colours = Normalization((0.5,) * 3, (0.2,) * 3)  # three: grey images become coloured
    coloured = data.from_folder(tmp_path / "birds", normalization=colours)
    assert coloured.train_images.shape[1] == 3
    images = found.train_images.double() / 255
    torch.testing.assert_close(
        torch.tensor(found.normalization.mean).double(), images.mean((0, 2, 3)), atol=1e-4, rtol=0
    )
    deviation = images.std((0, 2, 3), correction=0)
    torch.testing.assert_close(
        torch.tensor(found.normalization.deviation).double(), deviation, atol=1e-4, rtol=0
    )
    assert (
        found.describe()
        == f"birds: 12 training + 3 test images ({channels} x 16 x 20 pixels, 3 classes)"
    )


def test_a_transparent_image_lies_on_white(tmp_path):
    write_images(tmp_path, each=2)
    icon = Image.new("RGBA", (8, 8), (0, 0, 0, 0))
    icon.putpixel((0, 0), (0, 0, 0, 255))
    icon.save(tmp_path / "icon.png")
    pixels = image_folders.pixels(tmp_path / "icon.png", None, "RGB")
    assert pixels[0, 0].tolist() == [0, 0, 0] and pixels[4, 4].tolist() == [255, 255, 255]


def test_a_photo_stands_upright_and_of_a_wide_one_the_middle_is_taken(tmp_path):
    held = Image.Exif()
    held[0x0112] = 6  # the phone was held upright
    Image.new("RGB", (30, 20)).save(tmp_path / "photo.jpg", exif=held)
    assert image_folders.pixels(tmp_path / "photo.jpg", None, "RGB").shape == (30, 20, 3)
    wide = np.full((20, 30, 3), (0, 255, 0), np.uint8)
    wide[:, :5] = wide[:, 25:] = (255, 0, 0)
    Image.fromarray(wide).save(tmp_path / "wide.png")
    seen = image_folders.pixels(tmp_path / "wide.png", 10, "RGB")
    assert seen.shape == (10, 10, 3) and (seen[..., 1] > seen[..., 0]).all()


@pytest.mark.parametrize("labels", [torch.zeros(4), torch.zeros(4, 1).long(), torch.zeros(4).int()])
def test_labels_of_another_form_are_refused(labels):
    images = torch.zeros(4, 3, 8, 8, dtype=torch.uint8)
    with pytest.raises(DataError, match=r"train labels are .*, expected torch.int64 of the form"):
        data.Dataset(images, labels, images, labels, "made up")


def test_classes_may_come_in_an_array():
    images, labels = torch.zeros(4, 3, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 0, 1])
    found = data.from_arrays(images, labels, images, labels, classes=np.array(["cat", "dog"]))
    assert found.classes == ("cat", "dog")


@pytest.mark.parametrize("test", ["test", "val"])
def test_folders_called_train_and_test_stay_apart(test, tmp_path):
    write_images(tmp_path, parts=("train",))
    write_images(tmp_path, parts=(test,), each=2)
    found = data.from_folder(tmp_path)
    assert (len(found.train_images), len(found.test_images)) == (15, 6)


def test_a_size_scales_and_cuts_out_the_middle_and_three_numbers_make_grey_images_coloured(
    tmp_path,
):
    write_images(tmp_path, size=(30, 20))
    assert data.from_folder(tmp_path, size=10).train_images.shape[1:] == (3, 10, 10)
    Image.new("L", (30, 40), 7).save(tmp_path / "class1" / "grey.png")
    found = data.from_folder(tmp_path, 10, Normalization((0.5,) * 3, (0.25,) * 3))
    assert found.normalization == ((0.5,) * 3, (0.25,) * 3)
    assert data.from_folder(tmp_path, 10, Normalization((0.5,), (0.25,))).train_images.shape[1] == 1


def half_split(folder):
    write_images(folder, parts=("train", "test"))
    (folder / "test" / "class2").rename(folder / "test" / "other")


DEEP, WIDE = Image.fromarray(np.zeros((16, 16), np.uint16)), Image.new("RGB", (9, 8))


SPOILED = {
    r"class1/1\.png cannot be used as an image \(.*; remove it": lambda f: os.truncate(
        f / "class1/1.png", 60
    ),
    r"class1/1\.jpg cannot be used as an image \(.*; remove it": lambda f: (
        f / "class1/1.jpg"
    ).write_text("no image"),
    r"class1/1\.png cannot .* \(it is of the mode I;16, and 8 bits": lambda f: DEEP.save(
        f / "class1/1.png"
    ),
    "birds/empty: the class has 0 images, and needs 2 or more": lambda f: (
        f / "empty/notes.txt"
    ).mkdir(parents=True),
    r"class2/z\.png has 9 x 8 pixels, .* 16 x 16; give .* size=64, .*-size 64": lambda f: WIDE.save(
        f / "class2/z.png"
    ),
    "birds: the class 'class2' is in only one of train and test": half_split,
    "class0 and class1 look like parts; call them": lambda f: [
        write_images(f / f"class{n}") for n in range(3)
    ],
    "birds has train, but neither test nor val: give the test images one": lambda f: write_images(
        f, parts=("train", "valid")
    ),
    "holds 0 folders; expected one for each class": lambda f: [
        shutil.rmtree(one) for one in f.iterdir()
    ],
    "birds is no folder": shutil.rmtree,
}


def test_every_photo_is_taken_or_named_whatever_its_ending(tmp_path):
    folder = write_images(tmp_path / "birds")
    for ending, form in (("jfif", "JPEG"), ("gif", "GIF")):
        Image.new("RGB", (16, 16)).save(folder / f"class0/z.{ending}", form)
    found = data.from_folder(folder)
    assert len(found.train_images) + len(found.test_images) == 17
    (folder / "class1/1.HEIC").write_bytes(b"as a phone makes them")
    with pytest.raises(DataError, match=r"class1/1\.HEIC cannot be used as an image"):
        data.from_folder(folder)


@pytest.mark.skipif(os.name == "nt", reason="links ask for a right of their own there")
def test_images_behind_a_link_count_and_a_link_upwards_does_not_go_round(tmp_path):
    folder = write_images(tmp_path / "birds")
    more = write_images(tmp_path / "more", classes=1) / "class0"
    for link in ("more", "the same"):
        (folder / "class0" / link).symlink_to(more)
    (folder / "class1/up").symlink_to(folder / "class1")
    (folder / "class2/all").symlink_to(folder)
    (folder / "class1/there").symlink_to(folder / "class2")
    (folder / "class2/back").symlink_to(folder / "class1")
    counts = {name: len(files) for name, files in image_folders.classes_in(folder).items()}
    assert counts == {"class0": 10, "class1": 10, "class2": 10}


def test_an_umlaut_of_two_characters_is_the_same_name(tmp_path):
    """As an old disk of a Mac spells it."""
    order = []
    for spelled in ("\u00c4rzte", "A\u0308rzte"):
        folder = tmp_path / f"{len(order)}"
        for name in (spelled, "Zebra"):
            (folder / name).mkdir(parents=True)
            for number in range(10):
                (folder / name / f"{number}.png").touch()
        parts = image_folders._files_by_class(folder)[1]
        order.append([[name, *(path.name for path in files)] for name, files in parts.items()])
    assert order[0] == order[1] and order[0][0][0] == "Zebra"
    (tmp_path / "0" / "A\u0308rzte").mkdir()  # unpacked beside the other
    (tmp_path / "0" / "A\u0308rzte" / "more.png").touch()
    found = image_folders.classes_in(tmp_path / "0")
    assert {name: len(files) for name, files in found.items()} == {"Zebra": 10, "\u00c4rzte": 11}


def test_images_that_do_not_fit_into_memory_are_named_and_a_folder_here_has_a_name(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(write_images(tmp_path / "birds"))
    assert data.from_folder(".").name == "birds"
    monkeypatch.setattr(image_folders.np, "empty", Mock(side_effect=MemoryError))
    with pytest.raises(DataError, match="15 images of 16 x 16 pixels do not fit into memory; give"):
        data.from_folder(".")


@pytest.mark.parametrize("message", SPOILED)
def test_what_is_wrong_with_a_folder_is_one_line(message, tmp_path):
    folder = write_images(tmp_path / "birds")
    SPOILED[message](folder)
    with pytest.raises(DataError, match=message) as caught:
        data.from_folder(folder)
    assert "\n" not in str(caught.value)


def test_a_photo_with_odd_notes_of_its_camera_is_named(tmp_path, monkeypatch):
    folder = write_images(tmp_path / "birds")
    fails = lambda image: struct.pack("B", 300)  # noqa: E731  (as Pillow on a fraction of -1 / 0)
    monkeypatch.setattr(image_folders.ImageOps, "exif_transpose", fails)
    with pytest.raises(DataError, match=r"class0/\d\.png cannot be used as an image"):
        data.from_folder(folder)


def test_an_image_that_is_added_moves_one_other_at_most(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for number in range(40):
            (tmp_path / name / f"{number}.png").touch()
    trained, tested = image_folders._files_by_class(tmp_path)
    (tmp_path / "cat" / "a new one.png").touch()
    assert image_folders._draw(Path("cat/\udce9.png"))  # as Linux gives bytes that are no UTF-8
    now_trained, now_tested = image_folders._files_by_class(tmp_path)
    assert [len(tested["cat"]), len(now_tested["cat"])] == [8, 8]
    assert len({*trained["cat"]} & {*now_tested["cat"]}) <= 1
    assert (now_trained["dog"], now_tested["dog"]) == (trained["dog"], tested["dog"])


def test_classes_and_files_are_in_the_order_of_their_names_on_windows_too(tmp_path, monkeypatch):
    write_images(tmp_path)
    (tmp_path / "class0").rename(tmp_path / "Zebra")
    (tmp_path / "class1" / "0.png").rename(tmp_path / "class1" / "a.png")
    (tmp_path / "class1" / "1.png").rename(tmp_path / "class1" / "Z.png")
    monkeypatch.setattr(
        Path, "__lt__", lambda one, other: PureWindowsPath(one) < PureWindowsPath(other)
    )
    found = image_folders.classes_in(tmp_path)
    assert list(found) == ["Zebra", "class1", "class2"] and found["class1"][-1].name == "a.png"


def grey_arrays(count=200, classes=100, size=28):
    """Bright stripes on noise, at a place that tells the class."""
    labels = torch.arange(count) % classes
    images = torch.randint(0, 60, (count, size, size), dtype=torch.uint8)
    images[torch.arange(count), labels % size] = 250
    return images.numpy(), labels.numpy()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"train_images": np.zeros((200, 28, 28))},
            r"train images are torch.float64 .*expected torch.uint8",
        ),
        (
            {"test_images": np.zeros((200, 20, 20), np.uint8)},
            r"the test images are .*20, 20\), expected .*1, 28, 28",
        ),
        ({"test_labels": np.arange(199)}, r"expected torch.uint8 \(199, 1, 28, 28"),
        ({"train_labels": []}, r"the train images are .* expected torch.uint8 \(0, "),
        ({"train_labels": np.arange(200) - 1}, r"the train labels are -1 to 198; expected 0 to"),
        (
            {"train_labels": np.arange(200)[:, None]},
            r"labels are torch.int64 \(200, 1\); expected a whole number per",
        ),
        (
            {"test_labels": np.arange(200) + 0.5},
            r"labels are torch.float64 \(200,\); expected a whole",
        ),
        ({"classes": ("one", "two")}, "labels are 0 to 99; expected 0 to 1"),
        (
            {"normalization": data.Normalization((0.5,) * 3, (0.2,) * 3)},
            r"expected torch.uint8 \(200, 3, 28, 28",
        ),
        (
            {"test_images": np.zeros((0, 28, 28), np.uint8), "test_labels": []},
            "200 training and 0 test images",
        ),
        (
            {"train_labels": [], "test_labels": []},
            r"the train images are .* expected torch.uint8 \(0, ",
        ),
        (
            dict.fromkeys(("train_images", "test_images"), np.zeros((200, 28, 28, 3), np.uint8)),
            r"images \(200, 28, 28, 3\) seem to be .*movedim\(3, 1\)",
        ),
        (
            dict.fromkeys(("train_images", "test_images"), np.zeros((200, 784), np.uint8)),
            r"of the form \(N, C, H, W\)",
        ),
    ],
)
def test_arrays_that_do_not_fit_are_named(change, message):
    images, labels = grey_arrays()
    given = {
        "train_images": images,
        "train_labels": labels,
        "test_images": images,
        "test_labels": labels,
    }
    with pytest.raises(DataError, match=message):
        data.from_arrays(**given | change)


def make(classes=100, channels=1):
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, 2),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 13 * 13, classes),
    )


def test_a_network_for_grey_images_keeps_their_normalisation_through_every_stage(tmp_path):
    images, labels = grey_arrays()
    grey, model = data.from_arrays(images, labels, images, labels), models.build(make)
    history = training.train(
        model, grey, training.Config(epochs=2, batch_size=50, lr=0.05), progress=False
    )
    assert set(history.image_size) == {28}  # as they are
    assert model.input_normalization == grey.normalization != normalization_of(nn.Identity())
    x = normalize(grey.test_images, normalization=grey.normalization)
    pruned = pruning.prune(model, x[:1], ratio=0.5, scope="all")
    folded, _ = passes.optimize(pruned, x[:2])
    quantized = quantization.quantize(pruned, grey.train_images)
    assert torch.equal(quantized(x), quantization.quantize(pruned, x)(x))
    for network in (model, pruned, folded, quantized):
        assert normalization_of(network) == grey.normalization
        loaded = models.load(models.save(network, tmp_path / "m.safetensors"), factory=make)
        found = training.evaluate(loaded, grey.test_images, grey.test_labels)
        assert found == training.evaluate(network, grey.test_images, grey.test_labels)
        with torch.no_grad():
            assert found.accuracy == float(
                (network(x).argmax(1) == grey.test_labels).double().mean()
            )

    silent = models.load(models.save(models.build(make), tmp_path / "m.safetensors"), factory=make)
    set_default_normalization(grey, silent)  # as a network that was not saved and loaded
    assert normalization_of(silent) == grey.normalization


def test_a_network_that_learned_cifar_10_keeps_its_normalisation():
    network = nn.Identity()
    set_default_normalization(data.load_cifar10("sample"), network)
    assert network.input_normalization == CIFAR10


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.int16])
def test_labels_may_be_whole_numbers_of_any_kind(dtype):
    images, labels = grey_arrays()
    found = data.from_arrays(images, labels.astype(dtype), images, labels.astype(dtype))
    assert torch.equal(found.test_labels, torch.from_numpy(labels))


def test_a_data_set_says_whether_its_images_may_be_mirrored(monkeypatch):
    monkeypatch.setattr(augment, "alternating_flip", lambda *_: pytest.fail("mirrored"))
    images, labels = grey_arrays()
    digits, animals = (
        data.from_arrays(images, labels, images, labels, mirror=mirror) for mirror in (False, True)
    )
    config = training.Config(epochs=1, batch_size=100)
    training.train(models.build(make), digits, config, progress=False)
    with pytest.raises(pytest.fail.Exception, match="mirrored"):
        training.train(models.build(make), animals, config, progress=False)


def test_two_normalisations_do_not_meet_in_one_training():
    images, labels = grey_arrays()
    grey, model, teacher = data.from_arrays(images, labels, images, labels), make(), make()
    teacher.input_normalization = Normalization((0.1,), (0.2,))
    with pytest.raises(training.TrainingError, match="teacher's images are normalised otherwise"):
        training.train(model, grey, training.Config(distill=0.5), teacher=teacher)


@pytest.mark.parametrize("model", [make(1), make(99), nn.Conv2d(1, 100, 3), nn.LSTM(28, 5)])
def test_a_network_that_gives_no_score_per_class_is_refused(model):
    images, labels = grey_arrays()
    if isinstance(model, nn.LSTM):
        model = nn.Sequential(nn.Flatten(2), nn.Flatten(0, 1), nn.LSTM(784, 5))
    with pytest.raises(
        metrics.MeasurementError, match=r"100 classes: .* need one score per class, of shape"
    ):
        training.train(model, data.from_arrays(images, labels, images, labels))


@pytest.mark.parametrize(
    "wrong", [[[0.5], [0]], [[0.5], [0.1, 0.2]], [[], []], "x", [[0.5]], [[None], [1]]]
)
def test_a_normalisation_that_is_none_is_refused(wrong, tmp_path):
    model = models.build(make)
    model.input_normalization = wrong
    with pytest.raises(models.ModelError, match="as many means as deviations"):
        models.save(model, tmp_path / "m.safetensors")
    assert list(tmp_path.iterdir()) == []
