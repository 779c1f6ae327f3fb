"""One download that can be killed, resumed and trusted."""

import hashlib
import os
import time
import urllib.request
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import BinaryIO
from urllib.error import HTTPError

from tqdm.auto import tqdm

STALL_SECONDS = 20
PATIENCE_SECONDS = 600
CHUNK = 1 << 16


class DownloadError(RuntimeError):
    """A download failed or was too slow; names the address and what to do."""


def download(url: str, target: Path, algorithm: str, digest: str, impatient: bool = False) -> Path:
    """Fetch `url` into `target`, going on where an earlier try stopped, and verify the checksum.

    Bytes are collected in ``<target>.part``; `target` itself appears only when it is complete and right, so a killed
    download leaves nothing that a later run takes for good.

    Args:
        url: what to fetch.
        target: the file to make.
        algorithm: name of a hashlib algorithm.
        digest: expected checksum, hexadecimal.
        impatient: give up when the estimate passes ten minutes (there is another source to try).
    """
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(part, "ab") as file:
            collect(url, file, impatient)
    except (OSError, HTTPException) as error:  # OSError includes a refused address and a time-out.
        discard_if_empty(part)
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or repr(error)
        raise DownloadError(f"{url} into {target.parent}: {reason}") from error
    except DownloadError:
        discard_if_empty(part)
        raise
    with open(part, "rb") as file:
        found = hashlib.file_digest(file, algorithm).hexdigest()
    if found != digest:
        part.unlink()
        raise DownloadError(f"{url}: {algorithm} is {found[:16]}…, expected {digest[:16]}…; nothing was kept")
    os.replace(part, target)
    return target


def collect(url: str, file: BinaryIO, impatient: bool) -> None:
    """Append to `file` what is still missing of it."""
    request = urllib.request.Request(url)
    if file.tell():
        request.add_header("Range", f"bytes={file.tell()}-")
    try:
        with urllib.request.urlopen(request, timeout=STALL_SECONDS) as response:
            if response.status != 206:  # The server starts from the beginning, so do we.
                file.truncate(0)
            receive(response, file, url, impatient)
    except HTTPError as error:
        if error.code != 416:  # 416: nothing is missing, an earlier run was killed just before its checksum.
            raise


def receive(response: HTTPResponse, file: BinaryIO, url: str, impatient: bool) -> None:
    """Copy the body to the file, watching the clock."""
    missing = int(response.headers.get("Content-Length") or 0)
    started, received = time.monotonic(), 0
    with tqdm(total=missing or None, unit="B", unit_scale=True, desc=url.rsplit("/", 1)[-1], leave=False) as bar:
        # read1 hands over what has arrived; each wait for more is bounded by the socket's time-out.
        while chunk := response.read1(CHUNK):
            file.write(chunk)
            received += len(chunk)
            bar.update(len(chunk))
            elapsed = time.monotonic() - started
            if impatient and elapsed > STALL_SECONDS and missing / received * elapsed > PATIENCE_SECONDS:
                rate = received / elapsed / 1000
                raise DownloadError(f"{url}: {rate:.0f} kB/s would take over {PATIENCE_SECONDS // 60} minutes")
    if received < missing:
        raise DownloadError(
            f"{url}: the connection ended after {received:,} of {missing:,} bytes; run it again to go on"
        )


def discard_if_empty(part: Path) -> None:
    """Leave no empty file behind when not one byte came."""
    if part.exists() and part.stat().st_size == 0:
        part.unlink()
