"""A headless browser for the tests, which notes whatever goes wrong on a page."""

import shutil
from contextlib import contextmanager, nullcontext

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, PROGRAMS)), None)
NEEDED = [pytest.mark.browser, pytest.mark.skipif(not CHROMIUM, reason="needs Chromium")]
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"]
FLAGS += ["--disable-background-networking", "--disable-component-update"]
LOCAL = ("file:", "data:", "blob:", "about:", "http://127.0.0.1", "ws://127.0.0.1")


@contextmanager
def launched():
    """A browser for several pages."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(url: str, browser=None):
    """A page, and the list of what went wrong on it."""
    with nullcontext(browser) if browser else launched() as its_browser:
        page = its_browser.new_page(viewport={"width": 1280, "height": 900})
        problems: list[str] = []
        page.on(
            "console",
            lambda message: problems.append(message.text) if message.type == "error" else None,
        )
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "request",
            lambda request: (
                request.url.startswith(LOCAL) or problems.append(f"fetches {request.url}")
            ),
        )
        page.goto(url)
        try:
            yield page, problems
        finally:
            page.close()
