"""The report, the decks and the demo opened as a reader opens them; the demo's integers, damage,
strange files.
"""

import json
import re
from fractions import Fraction

import nbformat
import numpy as np
import pytest
import torch
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from PIL import Image, ImageOps

from course.commands import pages
from course.publish import demo, report, runner, slides, steps
from course.publish import page as page_parts
from course.publish.page import PARTS
from helpers import data, models
from helpers.passes.passer import PASSES
from helpers.quantization import Recipe, quantize
from tests.course.publish import chromium
from tests.course.publish.chromium import opened
from tests.marks import IN_CI

pytestmark = chromium.NEEDED


def check_figures(images) -> None:
    """Every figure can be read, by eyes and aloud."""
    assert images.evaluate_all(
        "all => all.every(one => one.naturalWidth > 300 && one.alt.length > 30)"
    )


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=IN_CI)])
def test_the_report_is_short_and_leads_to_every_section_and_figure(tmp_path, browser, scheme):
    lessons = runner.lessons()
    figures = [
        name
        for path in lessons
        for name, _ in page_parts.figures(nbformat.read(path, as_version=4))
    ]
    written = report.write_report(lessons, tmp_path / "report.html")
    with opened(written.as_uri(), browser) as (page, problems):
        page.emulate_media(color_scheme=scheme)
        screens = page.evaluate("document.documentElement.scrollHeight / innerHeight")
        assert 5 <= screens <= 10
        colours = page.evaluate("getComputedStyle(document.body).backgroundColor")
        darkest = min(map(int, re.findall(r"\d+", colours)[:3]))
        assert darkest < 60 if scheme == "dark" else darkest == 255
        for name in report.SECTIONS:
            page.click(f"nav a[href='#{name}']")
            assert abs(page.locator(f"section[id='{name}']").bounding_box()["y"]) < 900, name
        assert page.locator("figure").evaluate_all("all => all.map(one => one.id)") == figures
        check_figures(page.locator("figure img"))
        places = page.locator("a[href^='#']").evaluate_all("all => all.map(one => one.hash)")
        assert [place for place in places if page.locator(f"[id='{place[1:]}']").count() != 1] == []
        page.set_viewport_size({"width": 390, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert problems == []
    assert {path.stem for path in (tmp_path / "figures").glob("*.png")} == set(figures)


DECKS = [
    pytest.param(path, id=path.stem, marks=[] if path.stem.startswith("01") else IN_CI)
    for path in runner.lessons(talk=True)
]


@pytest.mark.parametrize("path", DECKS)
def test_a_deck_clicks_through_to_its_end_with_nothing_cut_off(path, tmp_path, browser):
    expected = ["".join(parts) for parts in slides.slides_of(nbformat.read(path, as_version=4))]
    deck = slides.write_deck(path, tmp_path / "deck.html")
    with opened(deck.as_uri(), browser) as (page, problems):
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


def test_what_a_slide_has_little_of_is_large_and_long_lines_are_wrapped(tmp_path, browser):
    def deck_of(text):
        code = new_code_cell("", metadata={"slideshow": {"slide_type": "slide"}})
        code.outputs = [new_output("stream", name="stdout", text=text)]
        path = tmp_path / "notebook.ipynb"
        nbformat.write(new_notebook(cells=[new_markdown_cell("## One"), code]), path)
        return slides.write_deck(path, tmp_path / "deck.html").as_uri()

    sizes = {}
    for length in (20, 60, 400):
        with opened(deck_of("number " * (length // 7)), browser) as (page, _):
            page.wait_for_selector(".reveal.ready")
            sizes[length] = page.evaluate(SIZE_AND_WIDTH)
    letters, widths = zip(*sizes.values(), strict=True)
    assert letters[0] == letters[1] > 30 and letters[2] >= 20
    assert max(widths) <= 1280


SIZE_AND_WIDTH = """() => {
  const line = document.querySelector("pre");
  return [parseFloat(getComputedStyle(line).fontSize), line.scrollWidth];
}"""


def test_a_figure_is_as_large_as_its_slide_has_room_for(tmp_path, browser):
    [path] = runner.lessons(["09"])
    notebook = nbformat.read(path, as_version=4)
    notebook.cells = [cell for cell in notebook.cells if cell.id == "round-code"]
    nbformat.write(notebook, tmp_path / "notebook.ipynb")
    deck = slides.write_deck(tmp_path / "notebook.ipynb", tmp_path / "deck.html")
    with opened(deck.as_uri(), browser) as (page, _):
        page.wait_for_selector(".reveal.ready")
        assert page.locator(".course-figure > .live").bounding_box()["width"] > 1000


SAMPLE = data.load_cifar10("sample")
# Each is wrong in one way that a careless port would be.
WRONG = {
    "rounds down": ("return up ? below + 1 : below", "return below"),
    "pads with code 0": ("x[from + c] : step.sourceZero", "x[from + c] : 0"),
    "a channel too far": ("residual[at + c] - step", "residual[at + (c + 1) % channels] - step"),
    "forgets the upper clamp": ("code > last[c] ? last[c] : code", "code"),
    "rows for columns": (
        "place * outputs + o :",
        "(place * 3 % 9 + Math.floor(place / 3)) % 9 * outputs + o :",
    ),
    "unsigned weights": (">> (32 - bits);", ">>> (32 - bits);"),
}


@pytest.fixture(scope="module")
def browser():
    with chromium.launched() as one:
        yield one


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    return demo.write_demo(tmp_path_factory.mktemp("demo") / "demo.html", SAMPLE)


@pytest.fixture(scope="module")
def small_page(tmp_path_factory):
    only = {"smallest": demo.shipped()["smallest"]}
    return demo.write_demo(tmp_path_factory.mktemp("demo") / "a.html", SAMPLE, only)


def wait_until_ready(page):
    page.wait_for_selector("main:not([hidden])", timeout=60_000)


def expected(model, image):
    """What Python's integer mode computes: a checksum for each layer's codes, and the last sums."""
    codes = {}
    model.run(data.normalize(image.unsqueeze(0)), lambda edge, value: codes.update({edge: value}))
    last = list(model.steps.values())[-1]
    sums = last.sums(codes[last.op.inputs[0]])[0].flatten().tolist()
    layers = [step.op.name for step in model.steps.values() if step is not last]
    return {name: demo.checksum(codes[name].numpy()) for name in layers} | {last.op.name: sums}


def assert_equals_python(page, images, networks):
    for number, name in enumerate(networks):
        model = models.pretrained(name)
        model.mode = "integer"
        for image in images:
            asked = {
                "kind": "trace",
                "network": number,
                "pixels": image.permute(1, 2, 0).flatten().tolist(),
            }
            assert page.evaluate("ask", asked) == expected(model, image), name


MANY = [pytest.param(False, marks=IN_CI), pytest.param(True, marks=pytest.mark.slow)]


@pytest.mark.parametrize("many", MANY)
def test_every_layer_of_every_network_is_python_s_bit_for_bit(browser, tmp_path, many):
    """One image; or fifty, noise and the extremes.

    The networks add by both rules: in one rounding, and in two.
    """
    fused = quantize(
        models.pretrained("tiny"),
        data.normalize(SAMPLE.train_images[:99]),
        Recipe(residual="fused"),
    )
    networks = [
        *demo.SHOWN.values(),
        str(models.save(fused, tmp_path / "fused.safetensors").with_suffix("")),
    ]
    assert [models.pretrained(name).recipe.residual for name in networks] == [
        *["separate"] * 3,
        "fused",
    ]
    paths = {name: models.CHECKPOINTS / f"{name}.safetensors" for name in networks}
    page_file = demo.write_demo(tmp_path / "demo.html", SAMPLE, paths)
    noise = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    extremes = torch.tensor([0, 255], dtype=torch.uint8).reshape(2, 1, 1, 1).expand(2, 3, 32, 32)
    images = (
        torch.cat([SAMPLE.test_images[100:150], noise, extremes])
        if many
        else SAMPLE.test_images[500:501]
    )
    with opened(page_file.as_uri(), browser) as (page, problems):
        wait_until_ready(page)
        assert_equals_python(page, images, networks)
    assert problems == []


@pytest.mark.slow
@pytest.mark.ci
def test_a_learner_s_network_of_3_bits_stands_first_and_computes_as_in_python(
    browser, tmp_path, monkeypatch, capsys
):
    tiny, folder = models.pretrained("tiny"), tmp_path / "mine"
    recipe = Recipe(weight_bits=3)
    three_bits = quantize(tiny, data.normalize(SAMPLE.train_images[:99]), recipe)
    kept = models.save(three_bits, folder / "tiny-three-bits.safetensors")
    models.save(tiny, folder / "tiny-trained.safetensors")
    (folder / "torn.safetensors").write_bytes(kept.read_bytes()[:500])
    monkeypatch.setenv("COURSE_MINE", str(tmp_path / "mine.py"))
    for place, name in ((pages.lab, "WORK"), (pages.runner, "NOTEBOOKS")):
        monkeypatch.setattr(place, name, tmp_path / "elsewhere")
    page_file, _ = pages.write_demo_with_own(tmp_path)
    told = capsys.readouterr().out
    assert "tiny-trained.safetensors is not on the page: it has float weights" in told
    assert "torn.safetensors is not on the page" in told
    with opened(page_file.as_uri(), browser) as (page, problems):
        wait_until_ready(page)
        names = page.locator("#networks h3").all_text_contents()
        assert names == ["yours: tiny-three-bits", *demo.SHOWN]
        assert_equals_python(page, SAMPLE.test_images[:2], [str(kept.with_suffix(""))])
    assert problems == []


@pytest.mark.parametrize(
    "name", [*WRONG][:1] + [pytest.param(name, marks=IN_CI) for name in [*WRONG][1:]]
)
def test_an_error_in_the_interpreter_is_seen(browser, small_page, tmp_path, name):
    right, wrong = WRONG[name]
    text = small_page.read_text()
    assert text.count(right) == 1
    (tmp_path / "wrong.html").write_text(text.replace(right, wrong))
    with opened((tmp_path / "wrong.html").as_uri(), browser) as (page, _):
        wait_until_ready(page)
        with pytest.raises(AssertionError):
            assert_equals_python(page, SAMPLE.test_images[:1], [demo.SHOWN["smallest"]])


def test_rounding_is_exact_at_ties_and_with_products_of_62_bits(browser):
    # Small whole networks rarely meet a tie, so the interpreter's rounding is asked directly.
    cases = [
        (a * m + r * f, s)
        for a, m, s in ((3, 2**30, 31), (-3, 2**30, 31), (2**30, 2**31 - 1, 40))
        for r, f in ((0, 0), (255, 2**52 - 1), (-255, 2**52 - 1), (1, 1), (-1, 1))
    ]
    cases += [((2 * n + 1) << (s - 1), s) for n in (-3, -2, -1, 0, 1, 2) for s in (17, 33, 52)]
    wanted = [round(Fraction(product, 1 << shift)) for product, shift in cases]
    script, rule = (PARTS / "interpreter.js").read_text(), "(lo > 0 || below % 2 !== 0)"
    with opened("about:blank", browser) as (page, _):
        halves = [[p >> 16, p & 0xFFFF, 2.0 ** (s - 16)] for p, s in cases]
        body = f"(cases) => {{ {script}; return cases.map((c) => roundShift(...c)); }}"
        got, up, down = (
            page.evaluate(body.replace(rule, other), halves) for other in (rule, "true", "false")
        )
    assert got == wanted and wanted not in (up, down)


def test_a_photo_is_shrunk_as_in_training_and_a_file_that_is_none_gets_a_sentence(
    browser, small_page, tmp_path
):
    """Lines of one pixel, with which a browser that smooths too little would give other colours."""
    rows, columns = np.mgrid[:512, :700]
    photo = Image.fromarray(
        np.stack([rows % 2 * 200, columns % 2 * 160, columns // 3], 2).astype(np.uint8)
    )
    photo.save(tmp_path / "lines.png")
    (tmp_path / "notes.txt").write_text("no picture")
    with opened(small_page.as_uri(), browser) as (page, problems):
        wait_until_ready(page)
        page.set_input_files("#file", tmp_path / "notes.txt")
        page.wait_for_selector("#photoStatus:has-text('notes.txt is not a picture')")
        page.evaluate("takePhotos([])")
        page.wait_for_selector("#photoStatus:has-text('That was not a file')")
        page.set_input_files("#file", tmp_path / "lines.png")
        page.wait_for_selector("#truth:has-text('Your photo')")
        found = np.array(page.evaluate("Array.from(state.pixels)")).reshape(32, 32, 3)
    wanted = np.asarray(ImageOps.fit(photo, (32, 32), Image.Resampling.BILINEAR), dtype=int)
    assert problems == [] and np.abs(found - wanted).max() <= 3


@pytest.mark.slow
@pytest.mark.ci
def test_what_was_chosen_last_is_shown(browser, small_page, tmp_path):
    """A photo takes long to decode; meanwhile another picture is chosen, once a second photo."""
    slow = """([first, second]) => {
        delete document.body.dataset.late;
        const decode = window.decode ??= createImageBitmap;
        window.createImageBitmap = async ({ name }) => {
            await new Promise((done) => setTimeout(done, name === "slow" ? 400 : 0));
            const pixels = new Uint8ClampedArray(6400).fill(name === "slow" ? 128 : 255);
            const made = await decode(new ImageData(pixels, 40));
            if (name === "slow") setTimeout(() => { document.body.dataset.late = ""; }, 100);
            return made;
        };
        takePhotos([{ name: first }]);
        if (second) takePhotos([{ name: second }]);
        else document.querySelector("#pictures button:nth-child(3)").click();
    }"""
    with opened(small_page.as_uri(), browser) as (page, problems):
        wait_until_ready(page)
        for second, shown in (("", "A test picture"), ("quick", "Your photo")):
            page.evaluate(slow, ["slow", second])
            page.wait_for_selector("body[data-late]:not(:has(.waiting))")
            assert shown in page.inner_text("#truth")
        assert page.evaluate("state.pixels.every((byte) => byte === 255)")
    assert problems == []


@pytest.mark.parametrize("width", [1280, 800])
def test_all_answers_are_seen_at_once_and_few_tab_stops_lead_to_them(browser, page_file, width):
    """A window of 800 pixels in height, and one that is as narrow."""
    with opened(page_file.as_uri(), browser) as (page, problems):
        page.set_viewport_size({"width": width, "height": 800})
        wait_until_ready(page)
        page.wait_for_selector("#said:not(:empty)")
        bars = page.locator(".bar").evaluate_all("all => all.map((one) => one.getClientRects()[0])")
        assert len(bars) == 30 and max(bar["bottom"] for bar in bars) < 800
        page.locator("body").press("Tab")
        stops = 1
        while page.evaluate("document.activeElement.id") != "network":
            page.keyboard.press("Tab")
            stops += 1
            assert stops < 10
    assert problems == []


def test_arrow_keys_go_through_the_pictures(browser, small_page):
    chosen = "#pictures button[aria-pressed=true]"
    with opened(small_page.as_uri(), browser) as (page, problems):
        wait_until_ready(page)
        across = page.evaluate(
            "getComputedStyle($('pictures')).gridTemplateColumns.split(' ').length"
        )
        place = "(one) => [...one.parentNode.children].indexOf(one)"
        page.focus(chosen)
        for key, wanted in (
            ("ArrowLeft", 0),
            ("ArrowRight", 1),
            ("ArrowDown", 1 + across),
            ("ArrowUp", 1),
            ("End", 39),
            ("ArrowRight", 39),
            ("Home", 0),
        ):
            page.keyboard.press(key)
            assert page.locator(chosen).evaluate(place) == wanted, key
            assert page.evaluate(f"({place})(document.activeElement)") == wanted, key
        assert page.locator("#pictures button[tabindex='0']").count() == 1
    assert problems == []


# The labels of a graph that end in dots, or are wider than their box.
CUT_OFF = """groups => groups.flatMap((group) => {
    const width = group.querySelector("rect").getBBox().width;
    const texts = [...group.querySelectorAll("text")];
    const cut = (one) => one.textContent.includes("…") || one.getBBox().width > width;
    return texts.filter(cut).map((one) => one.textContent);
})"""
DAMAGE = {
    "truncated": lambda text: text[: len(text) // 2],
    "no script": lambda text: text[: text.index("// The page:")],
    "one letter": lambda text: re.sub(
        r'(?<="weights":".{400}).', lambda m: "AB"[m[0] == "A"], text, count=1
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_page_says_so(browser, small_page, tmp_path, kind):
    (tmp_path / "damaged.html").write_text(DAMAGE[kind](small_page.read_text()))
    with opened((tmp_path / "damaged.html").as_uri(), browser) as (page, _):
        page.wait_for_selector(
            "#status:has-text('python -m course demo'):not(:has-text('Unpacking'))"
        )
        assert page.is_hidden("main")


@pytest.fixture(scope="module")
def passes_page(tmp_path_factory):
    target = tmp_path_factory.mktemp("passes") / "passes.html"
    return steps.write_steps(target, models.pretrained(), torch.randn(1, 3, 32, 32))


def test_a_box_tells_what_happened_to_it(browser, passes_page):
    with opened(passes_page.as_uri(), browser) as (page, problems):
        page.focus("#box-features_1_conv_0_1")
        page.keyboard.press("Enter")
        assert page.inner_text("#boxTitle") == "features_1_conv_0_1"
        assert page.inner_text("#box").endswith(
            "This pass: removed. folded into features_1_conv_0_0"
        )
        page.click("#sides button:last-child")
        assert page.locator("#box-features_1_conv_0_1").count() == 0
    assert problems == []


def test_the_passes_open_on_folding_with_a_sentence_and_labels_that_can_be_read(
    browser, passes_page
):
    assert steps.SENTENCES.keys() == PASSES.keys()
    with opened(passes_page.as_uri(), browser) as (page, problems):
        page.wait_for_selector("main:not([hidden])")
        assert page.inner_text("#passes button[aria-pressed=true]") == "conv_bn_folding"
        for button in page.locator("#passes button").all():
            button.click()
            sentence = steps.SENTENCES[button.inner_text()]
            assert page.inner_text("#summary").startswith(f"{sentence} Here: ")
            numbers = re.search(r"Here: (\d+) changed, (\d+) declined", page.inner_text("#summary"))
            assert page.locator("#list li").count() == sum(map(int, numbers.groups()))
            assert page.locator("#graph g[tabindex='0']").count() == 1  # one stop for Tab
            cut = page.locator("#graph g").evaluate_all(CUT_OFF)
            assert cut == []
        size = page.locator("#graph text").first.evaluate("(one) => getComputedStyle(one).fontSize")
        assert size == "13px"
    assert problems == []


def test_the_page_is_small_and_asks_for_nothing(page_file):
    text = page_file.read_text()
    assert len(text) < 5_000_000
    assert (
        "connect-src" not in text
        and "default-src 'none'" in text
        and not re.findall(r"https?://", text)
    )


@pytest.mark.slow
@pytest.mark.ci
def test_a_step_that_the_page_cannot_compute_is_refused():
    model = models.pretrained(demo.SHOWN["smallest"])
    step = next(iter(model.steps.values()))
    step.op.attributes["dilation"] = (2, 2)
    with pytest.raises(ValueError, match=r"features\.0\.0: .* no dilation"):
        demo.pack_step(step, model)
    step.op.attributes["dilation"] = (1, 1)
    json.dumps(demo.pack_step(step, model))


@pytest.mark.slow
def test_no_script_keeps_the_page_waiting_and_the_time_of_a_picture_is_told(
    browser, page_file, tmp_path, capsys
):
    """Thread time as Chromium's own trace measures it, so that a busy machine does not count."""
    with opened(page_file.as_uri(), browser) as (page, _):
        page.context.browser.start_tracing(
            page=page, path=tmp_path / "trace.json", categories=["devtools.timeline"]
        )
        page.reload()
        wait_until_ready(page)
        page.wait_for_selector("body[data-scored]", timeout=200_000)
        page.context.browser.stop_tracing()
        rows = page.locator("#scores tr").all_inner_texts()
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    name = next(
        e["tid"]
        for e in events
        if e["name"] == "thread_name" and e["args"]["name"] == "CrRendererMain"
    )
    scripts = [
        e for e in events if e["name"] in ("EvaluateScript", "FunctionCall") and e["tid"] == name
    ]
    longest = max(e.get("tdur", 0) for e in scripts) / 1000
    with capsys.disabled():
        print(f"\nlongest script {longest:.0f} ms; pictures: {rows}")
    assert len(scripts) > 40 and longest < 50
