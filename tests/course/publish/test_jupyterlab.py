"""Lessons in JupyterLab, as a learner uses them: run all, move a slider, see the figure change."""

import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress

import pytest

from course.publish import runner
from tests.course.publish import chromium
from tests.course.publish.chromium import opened

pytestmark = chromium.NEEDED


@pytest.fixture
def jupyterlab(tmp_path, request):
    """JupyterLab on a copy of a lesson; gives its address."""
    shutil.copy(request.param, tmp_path / "lesson.ipynb")
    shutil.copytree(request.param.parent / "exercises", tmp_path / "exercises")
    settings = (
        tmp_path / "settings" / "@jupyterlab" / "notebook-extension" / "tracker.jupyterlab-settings"
    )
    settings.parent.mkdir(parents=True)
    settings.write_text(
        '{ "windowingMode": "none" }'
    )  # else cells that are out of sight are taken off the page
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_hex(8)
    folders = {
        "JUPYTER_CONFIG_DIR": str(tmp_path / "config"),
        "JUPYTERLAB_SETTINGS_DIR": str(tmp_path / "settings"),
    }
    words = [
        "-m",
        "jupyterlab",
        "--no-browser",
        "--allow-root",
        f"--port={port}",
        f"--IdentityProvider.token={token}",
    ]
    environment = {
        key: value for key, value in os.environ.items() if key != "COURSE_HEADLESS"
    } | folders
    with open(tmp_path / "log", "w") as log:
        server = subprocess.Popen(
            [sys.executable, *words], cwd=tmp_path, env=environment, stdout=log, stderr=log
        )
        try:
            for _ in range(300):  # until it answers
                with suppress(OSError):
                    urllib.request.urlopen(
                        f"http://127.0.0.1:{port}/api?token={token}", timeout=5
                    ).close()
                    break
                time.sleep(0.4)
            yield f"http://127.0.0.1:{port}/lab/tree/lesson.ipynb?token={token}"
        finally:
            server.terminate()
            server.wait(30)


LESSON = next(path for path in runner.lessons() if path.stem.startswith("01"))


@pytest.mark.slow
@pytest.mark.parametrize("jupyterlab", [pytest.param(LESSON, id=LESSON.stem)], indirect=True)
def test_in_jupyterlab_a_figure_follows_its_slider(jupyterlab):
    with opened(jupyterlab) as (page, _):
        page.set_default_timeout(200_000)
        page.locator(".jp-Cell").first.wait_for()
        page.get_by_text(
            "(ipykernel) | Idle"
        ).wait_for()  # cells that are run before the kernel is there are lost
        page.get_by_role("menuitem", name=re.compile("^Run$")).click()
        page.get_by_role("menuitem", name=re.compile("^Run All Cells$")).click()
        figure = page.locator(".course-figure[data-live]").first
        figure.wait_for()
        told = figure.locator(".say")
        before = told.inner_text()
        figure.get_by_label("Stride", exact=True).press("ArrowRight")
        page.wait_for_function(
            "([figure, before]) => figure.querySelector('.say').textContent !== before",
            arg=[figure.element_handle(), before],
        )
