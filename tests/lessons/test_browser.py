"""The report, a deck and a lesson in JupyterLab, opened as a reader opens them."""

import os
import re
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from helpers.lessons import report, runner, slides

pytestmark = pytest.mark.browser
CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def opened(url: str):
    """A page, and the list of what went wrong on it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        problems: list[str] = []
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: None if local(request.url) else problems.append(f"fetches {request.url}"))
        page.goto(url)
        try:
            yield page, problems
        finally:
            browser.close()


def local(url: str) -> bool:
    return url.startswith(("file:", "data:", "blob:", "about:", "http://127.0.0.1", "ws://127.0.0.1"))


@pytest.fixture
def lesson_01():
    return runner.lessons(["01"])[0]


@pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Chromium")
def test_the_report_shows_formulas_figures_and_leads_to_them(tmp_path, lesson_01):
    target = report.write_report([lesson_01], tmp_path / "report.html", "quick")
    with opened(target.as_uri()) as (page, problems):
        assert page.locator("section#01_batchnorm_math".replace("#0", "#\\30 ")).count() == 1
        assert page.locator("math").count() > 30
        assert page.locator("math").first.bounding_box()["width"] > 3
        images = page.locator("main img")
        assert images.count() >= 8
        assert images.evaluate_all("all => all.every(one => one.naturalWidth > 300 && one.alt.length > 30)")
        page.click("nav a[href='#figures']")
        page.click("section#figures a[href='#01-convolution']")
        assert page.evaluate("location.hash") == "#01-convolution"
        assert page.locator("[id='01-convolution']").is_visible()
        page.locator("summary", has_text="code").first.click()
        assert page.locator("details[open] .code").first.is_visible()
        assert "provenance" in page.content() and "MATH" not in page.inner_text("main")
        assert problems == []
    assert (tmp_path / "figures" / "01-convolution.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Chromium")
def test_a_deck_clicks_through_to_its_end_with_nothing_cut_off(tmp_path, lesson_01):
    target = slides.write_deck(lesson_01, tmp_path / "deck.html")
    with opened(target.as_uri()) as (page, problems):
        page.wait_for_selector(".reveal.ready")
        total = page.evaluate("Reveal.getTotalSlides()")
        assert total >= 8
        for _ in range(total):
            height = page.evaluate("Reveal.getCurrentSlide().scrollHeight")
            assert height <= 720, page.evaluate("Reveal.getCurrentSlide().innerText")[:80]
            page.keyboard.press("ArrowRight")
        assert page.evaluate("Reveal.isLastSlide()")
        assert page.locator("aside.notes").count() >= 5
        assert page.locator("section math").count() > 5 and page.locator("section img").count() >= 6
        assert problems == []


@pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Chromium")
def test_the_talk_clicks_through_to_its_end_with_nothing_cut_off(tmp_path):
    target = slides.write_deck(runner.NOTEBOOKS / runner.TALK, tmp_path / "talk.html")
    with opened(target.as_uri()) as (page, problems):
        page.wait_for_selector(".reveal.ready")
        total = page.evaluate("Reveal.getTotalSlides()")
        assert 12 <= total <= 15
        for _ in range(total):
            title = page.evaluate("Reveal.getCurrentSlide().innerText")[:80]
            assert page.evaluate("Reveal.getCurrentSlide().scrollHeight") <= 720, title
            assert page.evaluate("Reveal.getSlideNotes().length") > 60, title
            page.keyboard.press("ArrowRight")
        assert page.evaluate("Reveal.isLastSlide()")
        assert page.locator("section img").count() >= 10
        assert problems == []


@pytest.fixture
def jupyterlab(tmp_path):
    """JupyterLab on a small lesson with a slider; gives its address."""
    draw = [
        "from helpers import plots\n\ndef draw(slope):\n    figure, ax = plots.subplots(size=(3, 2))\n"
        "    ax.plot([0, 1], [0, slope])\n    return figure\n\nplots.show(draw(1.0), '99-slope', alt='a rising line')",
        "plots.explore(draw, 'a line that follows the slider', slope=(0.0, 1.0, 2.0))",
    ]
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    cells = [new_code_cell(source) for source in draw]
    nbformat.write(new_notebook(cells=cells, metadata=kernel), tmp_path / "lesson.ipynb")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_hex(8)
    settings = {"JUPYTER_CONFIG_DIR": str(tmp_path / "config"), "JUPYTERLAB_SETTINGS_DIR": str(tmp_path / "settings")}
    words = ["-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}", f"--IdentityProvider.token={token}"]
    environment = {key: value for key, value in os.environ.items() if key != "COURSE_HEADLESS"} | settings
    with open(tmp_path / "log", "w") as log:
        server = subprocess.Popen([sys.executable, *words], cwd=tmp_path, env=environment, stdout=log, stderr=log)
        try:
            wait_for(f"http://127.0.0.1:{port}/api?token={token}")
            yield f"http://127.0.0.1:{port}/lab/tree/lesson.ipynb?token={token}"
        finally:
            server.terminate()
            server.wait(30)


def wait_for(url: str) -> None:
    """Until a server answers."""
    for _ in range(300):
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.4)
    raise TimeoutError(url)


@pytest.mark.slow
@pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Chromium")
def test_in_jupyterlab_the_figure_follows_the_slider(jupyterlab):
    with opened(jupyterlab) as (page, _):
        page.set_default_timeout(100_000)
        page.locator(".jp-Cell").first.wait_for()
        page.get_by_text("(ipykernel) | Idle").wait_for()  # cells that are run before the kernel is there are lost
        page.get_by_role("menuitem", name=re.compile("^Run$")).click()
        page.get_by_role("menuitem", name=re.compile("^Run All Cells$")).click()
        picture = page.locator("img[alt='a line that follows the slider']")
        picture.wait_for()
        assert page.locator("img[alt='a rising line']").count() == 1
        before = picture.get_attribute("src")
        page.locator(".noUi-handle").first.press("ArrowRight")
        page.wait_for_function(
            "before => document.querySelector(\"img[alt='a line that follows the slider']\").src !== before", arg=before
        )
