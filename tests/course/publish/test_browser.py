"""The report and the decks, opened as a reader opens them."""

import nbformat
import pytest

from course.publish import page as page_parts
from course.publish import report, runner, slides
from tests.course.publish import chromium
from tests.course.publish.chromium import opened

pytestmark = chromium.NEEDED


def check_figures(images) -> None:
    """Every figure can be read, by eyes and aloud."""
    assert images.evaluate_all("all => all.every(one => one.naturalWidth > 300 && one.alt.length > 30)")


def test_the_report_shows_formulas_figures_and_leads_to_them(tmp_path):
    (lesson_01,) = runner.lessons(["01"])
    target = report.write_report([lesson_01], tmp_path / "report.html", "quick")
    with opened(target.as_uri()) as (page, problems):
        assert page.locator("section[id='01_batchnorm_math']").count() == 1
        assert page.locator("math").count() > 30
        assert page.locator("math").first.bounding_box()["width"] > 3
        images = page.locator("main img")
        assert images.count() == lesson_01.read_text().count("<img ") >= 5
        check_figures(images)
        page.click("nav a[href='#figures']")
        page.click("section#figures a[href='#01-convolution']")
        assert page.evaluate("location.hash") == "#01-convolution"
        assert page.locator("[id='01-convolution']").is_visible()
        page.locator("summary", has_text="code").first.click()
        assert page.locator("details[open] .code").first.is_visible()
        assert "provenance" in page.content() and "MATH" not in page.inner_text("main")
        assert problems == []
    assert (tmp_path / "figures" / "01-convolution.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_report_of_all_lessons_leads_to_every_lesson_and_figure(tmp_path):
    lessons = runner.lessons()
    target = report.write_report(lessons, tmp_path / "report.html", "quick")
    with opened(target.as_uri()) as (page, problems):
        for path in lessons:
            page.click(f"nav a[href='#{path.stem}']")
            section = page.locator(f"section[id='{path.stem}']")
            assert abs(section.bounding_box()["y"]) < 200, path.stem  # the page has jumped there
            drawn = [name for name, _ in page_parts.figures(nbformat.read(path, as_version=4))]
            assert section.locator("img").evaluate_all("all => all.map(one => one.id)") == drawn, path.stem
        check_figures(page.locator("main img"))
        for link in page.locator("main a[href^='#']").all():
            target_id = link.get_attribute("href")[1:]
            assert page.locator(f"[id='{target_id}']").count() == 1, target_id
        assert page.locator("math").count() > 300 and "FORMULA" not in page.inner_text("main")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "a table is wider than the page"
        assert problems == []


DECKS = [
    pytest.param(path, id=path.stem, marks=[] if path.stem.startswith("01") else pytest.mark.slow)
    for path in (*runner.lessons(), runner.NOTEBOOKS / runner.TALK)
]


@pytest.mark.parametrize("path", DECKS)
def test_a_deck_clicks_through_to_its_end_with_nothing_cut_off(path, tmp_path):
    expected = ["".join(parts) for parts in slides.slides_of(nbformat.read(path, as_version=4))]
    with opened(slides.write_deck(path, tmp_path / "deck.html").as_uri()) as (page, problems):
        page.wait_for_selector(".reveal.ready")
        assert page.evaluate("Reveal.getTotalSlides()") == len(expected) >= 5
        for slide in expected:
            title = page.evaluate("Reveal.getCurrentSlide().innerText")[:80]
            assert page.evaluate("Reveal.getCurrentSlide().scrollHeight") <= 720, title
            for part in ("math", "img"):
                shown = page.evaluate(f"Reveal.getCurrentSlide().querySelectorAll('{part}').length")
                assert shown == slide.count(f"<{part} "), title
            page.keyboard.press("ArrowRight")
        assert page.evaluate("Reveal.isLastSlide()")
        assert page.locator("aside.notes").count() >= len(expected) // 2
        check_figures(page.locator("section img"))
        assert problems == []
