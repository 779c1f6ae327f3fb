"""A data set from a folder that holds a folder of images for each class."""

import hashlib
import os
import re
import unicodedata
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torchvision.datasets.folder import IMG_EXTENSIONS

from helpers.dataset import DataError, Dataset, Normalization, from_arrays

# Of images that torchvision leaves out: what Pillow cannot read of them is named, not left out.
MORE_ENDINGS = (".jfif", ".jpe", ".gif", ".avif", ".heic", ".heif")


def from_folder(
    folder: str | Path,
    size: int | None = None,
    normalization: Normalization | None = None,
    mirror: bool = True,
) -> Dataset:
    """A data set of your own from a folder with one folder per class, as torchvision's
    `ImageFolder` takes it. Images are in the order of the classes; `split()` shuffles them.

    Args:
        folder: holds `train` and `test` (or `val`) with a folder for each class, or the folders of
            the classes themselves: then the same fifth of each class is always kept for the test.
        size: bring every image to this side: the shorter side is scaled to it, the middle is cut
            out. Without it images stay as they are, and must all have the same size.
        normalization: what the network was trained with: one number for grey images, three for
            colour. If not given, it is measured on the training images, which get one channel if
            all images are grey.
        mirror: as in `from_arrays`.

    Raises:
        DataError: a class without images, an unreadable image, images of several sizes: names the
            file or folder.
    """
    folder = Path(folder).expanduser()
    train, test = _files_by_class(folder)
    mode = "L" if normalization and len(normalization.mean) == 1 else "RGB"
    files = [path for part in (train, test) for files in part.values() for path in files]
    stacked = _stacked(files, size, mode)
    if normalization is None and bool((stacked == stacked[:, :1]).all()):
        stacked = stacked[:, :1].contiguous()
    labels = [
        torch.arange(len(part)).repeat_interleave(torch.tensor([len(f) for f in part.values()]))
        for part in (train, test)
    ]
    parts = stacked.split([*map(len, labels)])
    return from_arrays(
        *(parts[0], labels[0], parts[1], labels[1]),
        tuple(train),
        normalization,
        Path(os.path.abspath(folder)).name,
        mirror,
    )


def _stacked(files: list[Path], size: int | None, mode: str) -> torch.Tensor:
    """All images (N, C, H, W), each read into its place: memory holds them once."""
    remedy = "give one size for all: size=64, on the command line --input-size 64"
    first = pixels(files[0], size, mode)
    height, width, channels = first.shape
    try:
        images = np.empty((len(files), channels, height, width), np.uint8)
    except MemoryError as error:
        told = f"{len(files)} images of {width} x {height} pixels do not fit into memory"
        raise DataError(f"{told}; {remedy}") from error
    for place, path in enumerate(files):
        image = pixels(path, size, mode) if place else first
        if image.shape != first.shape:
            raise DataError(
                f"{path} has {image.shape[1]} x {image.shape[0]} pixels, the first image {width} x"
                f" {height}; {remedy}"
            )
        images[place] = np.moveaxis(image, 2, 0)
    return torch.from_numpy(images)


def _files_by_class(folder: Path) -> tuple[dict[str, list[Path]], dict[str, list[Path]]]:
    """The files of each class for training, and for the test."""
    test = next((folder / name for name in ("test", "val") if (folder / name).is_dir()), None)
    if test is not None and (folder / "train").is_dir():
        parts = classes_in(folder / "train"), classes_in(test)
        for name in sorted(parts[0].keys() ^ parts[1].keys()):
            raise DataError(f"{folder}: the class {name!r} is in only one of train and {test.name}")
        return parts
    if any((folder / "train").glob("*/")):
        raise DataError(
            f"{folder} has train, but neither test nor val: give the test images one of these names"
        )
    parts = {}, {}
    for name, files in classes_in(folder, fewest=2).items():
        drawn = sorted(files, key=lambda path: _draw(path.relative_to(folder)))
        test = {*drawn[: max(1, round(len(files) / 5))]}
        parts[0][name] = [path for path in files if path not in test]
        parts[1][name] = [path for path in files if path in test]
    return parts


def _draw(path: Path) -> str:
    """A number drawn by the name alone: an image that is added later moves at most one other from
    the test images to those for training, or back.
    """
    name = composed(path.as_posix()).encode("utf-8", "surrogatepass")  # Linux: any bytes
    return hashlib.sha256(name).hexdigest()


def composed(name: str) -> str:
    """A name as most disks spell it: an old disk of a Mac takes an umlaut for two characters."""
    return unicodedata.normalize("NFC", name)


def classes_in(folder: Path, fewest: int = 1) -> dict[str, list[Path]]:
    """The images of each class in a folder, in the order of their names."""
    if not folder.is_dir():
        raise DataError(
            f"{folder} is no folder; expected one that holds a folder of images for each class"
        )
    visible = [p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")]
    # By their names as texts: Windows compares paths without case.
    classes = sorted(visible, key=lambda path: composed(path.name))
    if len({composed(path.name) for path in classes}) < 2:
        raise DataError(
            f"{folder} holds {len(classes)} folders; expected one for each class, two or more"
        )
    inside = [sorted(p.name for p in one.iterdir() if p.is_dir()) for one in classes]
    if len(inside[0]) > 1 and all(folders == inside[0] for folders in inside):
        raise DataError(
            f"{folder}: {classes[0].name} and {classes[1].name} look like parts; call them train"
            " and test"
        )
    images: dict[str, list[Path]] = {}
    for path in classes:
        images.setdefault(composed(path.name), []).extend(_images_in(path))
    for name, files in images.items():
        if len(files) < fewest:
            raise DataError(
                f"{folder / name}: the class has {len(files)} images, and needs {fewest} or more"
            )
    return images


def _images_in(folder: Path) -> list[Path]:
    """All images below a folder, except hidden ones: ._cat.jpg, or a copy in .ipynb_checkpoints."""
    inside = []
    # A link may lead to where it lies, or to images that count already.
    seen = {*map(str, Path(os.path.realpath(folder)).parents)}
    for parent, folders, names in os.walk(folder, followlinks=True):
        folders.sort()
        real = os.path.realpath(parent)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        inside += [(Path(parent) / name).relative_to(folder).as_posix() for name in names]
    visible = [name for name in inside if not re.search(r"(^|/)\.", name)]
    return [
        folder / name
        for name in sorted(visible, key=composed)
        if name.lower().endswith((*IMG_EXTENSIONS, *MORE_ENDINGS))
    ]


def pixels(path: Path, size: int | None, mode: str) -> np.ndarray:
    """An image's bytes (H, W, C), of 8 bits per channel, brought to a size if one is given."""
    try:
        with Image.open(path) as image:
            if image.mode[0] in "IF":
                raise ValueError(
                    f"it is of the mode {image.mode}, and 8 bits per channel are expected"
                )
            image = ImageOps.exif_transpose(image)  # a phone notes how it was held
            if image.has_transparency_data:  # it lies on white, as on a page
                white = Image.new("RGBA", image.size, "white")
                image = Image.alpha_composite(white, image.convert("RGBA"))
            image = image.convert(mode)
    except Exception as error:  # Pillow fails in many ways, on odd notes of a camera, too
        reason = " ".join(str(error).split())
        raise DataError(
            f"{path} cannot be used as an image ({reason}); remove it, or save it again"
        ) from error
    if size:
        image = ImageOps.fit(image, (size, size), Image.Resampling.BILINEAR)
    return np.atleast_3d(image)
