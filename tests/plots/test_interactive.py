"""Figures to play with: drawn without errors and requests, moved by mouse and keyboard, light, dark
and narrow; what they show is what Python computes.
"""

import json
import sys

import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from helpers import metrics, pruning
from helpers.plots import subplots
from helpers.plots.interactive import FOLDER, LARGEST, interactive
from helpers.quantization import affine
from tests.course.publish import chromium
from tests.course.publish.chromium import opened
from tests.plots import playable
from tests.plots.playable import FIGURES, numbers

pytestmark = chromium.NEEDED
DARK = "rgb(230, 235, 240)"  # the ink of a dark page


@pytest.fixture(scope="module")
def browser():
    with chromium.launched() as one:
        yield one


@pytest.fixture
def play(browser, tmp_path):
    """Opens a figure; afterwards nothing must have gone wrong."""
    pages = []

    def open_figure(name):
        (tmp_path / "page.html").write_text(playable.document(name), encoding="utf-8")
        context = opened((tmp_path / "page.html").as_uri(), browser)
        page, problems = context.__enter__()
        pages.append((context, problems))
        return page

    yield open_figure
    for context, problems in pages:
        context.__exit__(None, None, None)
        assert problems == []


def press(page, label, key, times=1):
    """Move a slider, or a choice, by keyboard."""
    for _ in range(times):
        page.get_by_label(label, exact=True).press(key)


def point(page, label, share):
    """Click a slider at a share of its length."""
    box = page.get_by_label(label, exact=True).bounding_box()
    page.mouse.click(box["x"] + 8 + share * (box["width"] - 16), box["y"] + box["height"] / 2)


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_drawn_read_aloud_and_large_enough_to_touch(play, name):
    page = play(name)
    for width in (760, 390):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.locator(".live svg > *").count() > 5
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.locator("p[aria-live=polite]").inner_text().endswith(".")
    assert len(page.locator("img").get_attribute("alt")) > 60
    unnamed = "all => all.filter((one) => !one.labels.length).length"
    assert page.locator("input, select").evaluate_all(unnamed) == 0
    heights = "all => all.map((one) => one.getBoundingClientRect().height)"
    assert min(page.locator("label, button, select").evaluate_all(heights)) >= 44


@pytest.mark.parametrize("name", FIGURES)
def test_the_picture_that_stands_in_shows_the_same_numbers(play, name):
    page = play(name)
    page.set_viewport_size({"width": playable.WIDTH + 24, "height": 900})
    about = Image.open(FOLDER / f"{name.split('-')[1]}.png").text["numbers"]
    assert numbers(page) == pytest.approx(json.loads(about)), f"take it again: {playable.__doc__}"


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_small_and_fetches_nothing(name):
    page = playable.html(name)
    assert len(page.encode()) <= LARGEST
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")


def test_colours_follow_the_page(play):
    page = play("01-window")
    ink = "getComputedStyle(document.querySelector('.live svg text')).fill"
    for media in ("dark", "light"):
        page.emulate_media(color_scheme=media)
        page.wait_for_function("new Promise((done) => requestAnimationFrame(() => done(true)))")
        root = page.locator(".course-figure")
        assert (root.get_attribute("data-dark") is not None) == (media == "dark")
    for attribute, light, dark in (("data-theme", "light", "dark"), ("class", "light", "dark")):
        for value in (dark, light):
            page.evaluate(f"document.documentElement.setAttribute('{attribute}', '{value}')")
            page.wait_for_function(
                f"document.querySelector('.course-figure').hasAttribute('data-dark') === {json.dumps(value == dark)}"
            )
        page.evaluate(f"document.documentElement.removeAttribute('{attribute}')")
    page.evaluate("document.body.dataset.jpThemeLight = 'false'")
    page.wait_for_selector("[data-dark]")
    assert page.evaluate(ink).startswith("rgb(163")  # the muted ink of a dark page


def test_without_scripts_and_in_print_the_picture_is_shown(browser):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.set_content(playable.document("01-window"))
    assert page.locator("img").bounding_box()["width"] > 300
    context.close()
    page = browser.new_page()
    page.set_content(playable.document("01-window"))
    assert page.locator("img").bounding_box()["width"] <= 1
    page.emulate_media(media="print")
    assert page.locator("img").bounding_box()["width"] > 300
    assert not page.locator(".live").is_visible()
    page.close()


def test_several_figures_on_a_page_do_not_disturb_each_other(browser):
    page = browser.new_page()
    names = ["01-window", "01-norm", "01-window"]  # a cell that was run twice, too
    body = "".join(playable.html(name) for name in names)
    page.set_content(playable.PAGE.format(figure=body, scheme="light"))
    assert page.locator(".live").count() == 3
    page.get_by_label("Stride").first.press("ArrowRight")
    assert [numbers(page, i).get("size") for i in range(3)] == [3, None, 5]
    assert page.evaluate("typeof Figure") == "undefined"
    page.close()


def test_what_cannot_be_shown_is_refused_with_a_remedy(monkeypatch):
    with pytest.raises(ValueError, match=r"no module 'nothing'; there are .*weights"):
        interactive("08-nothing", {}, "A figure.")
    with pytest.raises(ValueError, match=r"08-weights.*pass fewer numbers"):
        interactive("08-weights", {"weight": torch.zeros(20_000)}, "A figure.")
    with pytest.raises(ValueError, match="no alternative text"):
        interactive("08-weights", {}, " ")
    shown = []
    module = sys.modules["helpers.plots.interactive"]
    monkeypatch.setattr(module, "display", lambda data, **more: shown.append((data, more)))
    figure, _ = subplots()
    interactive("01-window", {"text": "</script>"}, 'A "picture".', still=figure)
    data, more = shown[0]
    assert data["text/html"].count("</script>") == 1
    assert data["image/png"] in data["text/html"]
    assert more["metadata"] == {"figure": "01-window"}


def rounded(weight, bits, axis, alive, most=None):
    """Signal-to-noise ratio of the living filters, and the share of their weights that become 0."""
    ruler = affine.fit(weight, bits=bits, axis=axis)
    back = ruler.dequantize(ruler.quantize(weight))[alive]
    return affine.sqnr(weight[alive], back), float((back == 0).float().mean())


def test_weights_round_as_in_python(play):
    data = playable.weights()
    weight = data["weight"].detach()
    alive = torch.ones(len(weight), dtype=torch.bool)
    alive[data["dead"]] = False
    silent = weight * alive[:, None, None, None]
    page = play("08-weights")

    def agrees(weight, bits, axis):
        sqnr, zeros = rounded(weight, bits, axis, alive)
        found = numbers(page)
        assert found["sqnr"] == pytest.approx(float(sqnr), rel=1e-4)
        assert found["zeros"] == pytest.approx(zeros, rel=1e-4)

    agrees(weight, 8, None)
    press(page, "Bits", "ArrowLeft", 2)
    agrees(weight, 6, None)
    page.get_by_label("dead filters set to 0").click()
    agrees(silent, 6, None)
    point(page, "Bits", 0)
    agrees(silent, 2, None)
    press(page, "one scale for the layer", "ArrowRight")
    press(page, "Bits", "ArrowRight", 2)
    agrees(weight, 4, 0)


def test_the_window_gives_the_numbers_of_a_convolution(play):
    data = playable.window()
    image = torch.tensor(data["image"]).float()[None, None]
    weights = torch.tensor(data["weights"]).float()[None, None]
    page = play("01-window")

    def agrees(stride, padding):
        wanted = F.conv2d(image, weights, stride=stride, padding=padding)[0, 0]
        found = numbers(page)
        assert found["size"] == len(wanted)
        assert found["output"] == wanted[found["row"], found["column"]]
        return found["row"], found["column"]

    assert agrees(1, 0) == (1, 0)
    press(page, "Padding", "ArrowRight", 2)
    press(page, "Window", "End")
    assert agrees(1, 2) == (8, 8)
    point(page, "Stride", 0.5)
    agrees(2, 2)
    box = page.locator(".live svg").bounding_box()
    page.mouse.move(box["x"] + 200, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] + 60, box["y"] + 70)
    page.mouse.up()
    assert agrees(2, 2) == (0, 0)


def test_the_moved_histogram_is_batchnorm_s(play):
    data = playable.norm()
    page = play("01-norm")
    press(page, "gamma", "ArrowLeft", 5)
    press(page, "beta", "ArrowRight", 10)
    point(page, "mu", 0.5)
    values = [0.5, 1.0, 0.0, float(page.get_by_label("sigma").input_value())]
    gamma, beta, mu, sigma = (torch.tensor([value]) for value in values)
    z = F.batch_norm(data["y"][:, None], mu, sigma**2, gamma, beta, eps=data["eps"])
    found = numbers(page)
    assert found["mean"] == pytest.approx(z.mean().item(), abs=1e-5)
    assert found["deviation"] == pytest.approx(z.std(correction=0).item(), abs=1e-5)
    assert found["a"] * 2 + found["c"] == pytest.approx(
        F.batch_norm(torch.full((1, 1), 2.0), mu, sigma**2, gamma, beta, eps=data["eps"]).item()
    )
    page.get_by_label("ReLU behind it").check()
    assert numbers(page)["mean"] == pytest.approx(z.relu().mean().item(), abs=1e-5)


def test_a_group_costs_what_pruning_it_saves(play):
    network, _ = playable.networks()
    example = torch.zeros(1, 3, 32, 32)
    page = play("06-channels")

    def agrees(share):
        found = numbers(page)
        small = pruning.prune(network, example, scope="all", allocation={found["group"]: share})
        assert found["params"] == metrics.count_parameters(small)
        assert found["macs"] == metrics.count_macs(small, example)
        return found["group"]

    assert agrees(0.5) == "features.4.conv.2"
    press(page, "Group", "ArrowRight", 1)
    point(page, "Remove", 1)
    assert agrees(0.9) == "features.5.conv.0.0"
    box = page.locator(".live svg").bounding_box()
    page.mouse.click(box["x"] + 2, box["y"] + 100)
    assert agrees(0.9) == "features.0.0"
    press(page, "Group", "End")
    assert "They stay" in page.locator(".say").inner_text()
    assert numbers(page)["params"] == metrics.count_parameters(network)
