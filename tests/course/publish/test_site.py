"""The website as a visitor meets it: from a plain file server, on a wide and a narrow screen."""

import functools
import re
import threading
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from course.commands import pages
from course.publish import runner, site
from tests.course.publish import chromium

pytestmark = [
    *chromium.NEEDED,
    pytest.mark.slow,
    pytest.mark.ci,
    # The theme calls what Sphinx will remove in its version 11.
    pytest.mark.filterwarnings("ignore::sphinx.deprecation.RemovedInSphinx11Warning"),
    pytest.mark.filterwarnings("ignore::sphinx.deprecation.RemovedInSphinx10Warning"),
]
MOST_BYTES = 60e6


class Links(HTMLParser):
    """Where a page leads, what it loads, and the places in it that one can jump to."""

    def __init__(self):
        super().__init__()
        self.targets: set[str] = set()
        self.ids: set[str] = set()

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.targets.add(value)
            elif name == "id":
                self.ids.add(value)


class Quiet(SimpleHTTPRequestHandler):
    """Says nothing of each request."""

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    written = pages.write_demo(folder)
    return site.write_site(folder / "site", written).parent


@pytest.fixture(scope="module")
def served(folder):
    handler = functools.partial(Quiet, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def made_by_sphinx(folder):
    others = ("genindex.html", "demo.html", "passes.html")
    return [path for path in sorted(folder.glob("*.html")) if path.name not in others]


def test_every_lesson_guide_and_result_has_a_page_and_every_link_leads_somewhere(folder):
    names = {path.stem for path in made_by_sphinx(folder)}
    assert {path.stem for path in runner.lessons()} < names
    assert {"index", "glossary", "results", "teaching", "students"} < names
    assert {path.stem for path in (site.ASSIGNMENTS / "teaching").glob("*.md")} == set(
        site.TEACHING
    )
    assert set(site.TEACHING) < names
    found = {}
    for path in made_by_sphinx(folder):
        found[path.name] = Links()
        found[path.name].feed(path.read_text(encoding="utf-8"))
    lost = []
    for name, page in found.items():
        for target in page.targets:
            place, _, anchor = target.partition("#")
            if re.match(r"[a-z]+:", target) or target == "#":
                continue
            file = place.partition("?")[0] or name
            no_place = anchor and file in found and anchor not in found[file].ids
            if no_place or not (folder / file).exists():
                lost.append(f"{name}: {target}")
    assert lost == []
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < MOST_BYTES


# What a page shows only after a while.
SHOWN_LATER = {
    "demo.html": "main:not([hidden])",
    "passes.html": "svg",
    "search.html?q=dead+channel": "#search-results li a",
}


# Of a cell with its margins, in lines.
HEIGHTS = """all => all.map(
  (one) => one.clientHeight / parseFloat(getComputedStyle(one).lineHeight)
)"""


def test_pages_have_no_line_for_other_places_and_numbers_stay_whole(folder, served):
    for path in made_by_sphinx(folder):
        text = path.read_text(encoding="utf-8")
        assert "Author name" not in text and "google.colab" not in text, path.name
    with (
        chromium.launched() as browser,
        chromium.opened(f"{served}/results.html", browser) as (page, _),
    ):
        lines = page.locator("#speed td").evaluate_all(HEIGHTS)
    assert len(lines) > 90 and max(lines) < 2


def test_all_pages_fit_a_phone_and_ask_no_other_host(folder, served):
    names = [path.name for path in sorted(folder.glob("*.html"))] + list(SHOWN_LATER)[2:]
    assert set(SHOWN_LATER) <= set(names)
    wide = []
    with chromium.launched() as browser:
        for name in names:
            with chromium.opened(f"{served}/{name}", browser) as (page, problems):
                page.set_viewport_size({"width": 390, "height": 800})
                if name in SHOWN_LATER:
                    page.locator(SHOWN_LATER[name]).first.wait_for(timeout=60_000)
                if page.evaluate("document.documentElement.scrollWidth") > 390:
                    wide.append(name)
                assert problems == [], name
    assert wide == []


def test_search_and_the_glossary_answer_and_it_can_be_dark(served):
    with chromium.launched() as browser:
        with chromium.opened(f"{served}/search.html?q=dead+channel", browser) as (page, problems):
            results = page.locator("#search-results li a")
            results.first.wait_for()
            assert any("Quantization" in text for text in results.all_inner_texts())
        with chromium.opened(f"{served}/02_graphs_and_passes.html", browser) as (page, problems):
            word = page.locator("a[href^='glossary.html#term-']").first
            word.click()
            page.locator(":target").wait_for(state="attached")
            page.emulate_media(color_scheme="dark")
            page.reload()
            colours = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert max(map(int, re.findall(r"\d+", colours)[:3])) < 60
            page.goto(f"{served}/results.html")
            assert page.locator("img[src='chart-dark.svg']").is_visible()
            assert not page.locator("img[src='chart.svg']").is_visible()
            assert problems == []


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work", encoding="utf-8")
    with pytest.raises(FileExistsError, match="name a new folder"):
        site.write_site(tmp_path, [])
    assert (tmp_path / "thesis.txt").exists()
