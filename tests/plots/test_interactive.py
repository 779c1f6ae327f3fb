"""Figures to play with: drawn without errors and requests, moved by mouse and keyboard, light, dark
and narrow; what they show is what Python computes.
"""

import itertools
import json
import math
import sys
from fractions import Fraction

import nbformat
import pytest
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F

from course.publish import report, slides
from helpers import metrics, pruning
from helpers.graphs.tracing import trace
from helpers.plots import subplots
from helpers.plots.graphs import CHANGED, MADE, REMOVED, Box, compare
from helpers.plots.interactive import FOLDER, interactive
from helpers.quantization import affine
from tests.course.publish import chromium
from tests.course.publish.chromium import opened
from tests.plots import playable
from tests.plots.playable import FIGURES, numbers

pytestmark = chromium.NEEDED


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
def test_a_figure_shows_what_its_picture_shows_is_read_aloud_and_large_enough_to_touch(play, name):
    page = play(name)
    page.set_viewport_size({"width": playable.WIDTH + 24, "height": 900})
    about = {key: json.loads(text) for key, text in Image.open(FOLDER / f"{name}.png").text.items()}
    for key, value in numbers(page).items():
        assert value == pytest.approx(about["numbers"][key]), f"take it again: {playable.__doc__}"
    assert playable.words(page) == about["words"], f"take it again: {playable.__doc__}"
    for width in (760, 390):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.locator(".live svg > *").count() > 5
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.locator("p[aria-live=polite]").inner_text().endswith(".")
    assert len(page.locator("img").get_attribute("alt")) > 60
    assert page.locator("output:not([aria-live=off])").count() == 0  # the sentence alone is read
    unnamed = "all => all.filter((one) => !one.labels.length).length"
    assert page.locator("input, select").evaluate_all(unnamed) == 0
    heights = "all => all.map((one) => one.getBoundingClientRect().height)"
    assert min(page.locator("label, button, select").evaluate_all(heights)) >= 44


def test_colours_follow_the_page(play):
    page = play("01-window")
    ink = "getComputedStyle(document.querySelector('.live svg text')).fill"
    for media in ("dark", "light"):
        page.emulate_media(color_scheme=media)
        state = "attached" if media == "dark" else "detached"
        page.wait_for_selector(".course-figure[data-dark]", state=state)
    for attribute, light, dark in (("data-theme", "light", "dark"), ("class", "light", "dark")):
        for value in (dark, light):
            page.evaluate(f"document.documentElement.setAttribute('{attribute}', '{value}')")
            page.wait_for_selector(
                "[data-dark]", state=("attached" if value == dark else "detached")
            )
        page.evaluate(f"document.documentElement.removeAttribute('{attribute}')")
    for kind in ("vscode-high-contrast", "vscode-high-contrast-light"):
        page.evaluate(f"document.body.dataset.vscodeThemeKind = '{kind}'")
        state = "detached" if kind.endswith("light") else "attached"
        page.wait_for_selector("[data-dark]", state=state)
    page.evaluate("delete document.body.dataset.vscodeThemeKind")
    page.evaluate("document.body.style.background = 'oklch(0.985 0.001 106.4)'")
    page.wait_for_selector("[data-dark]", state="detached")
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
    with pytest.raises(ValueError, match=r"there is no .*nothing.js"):
        interactive("08-nothing", {}, "A figure.")
    with pytest.raises(ValueError, match=r"08-weights-mine.*pass one as still"):
        interactive("08-weights-mine", {}, "A figure.")
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


def rounded(weight, bits, axis, alive):
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
        places = torch.arange(wanted.numel()).reshape(wanted.shape)
        assert found["total"] == (wanted * places).sum()
        assert found["output"] == wanted[found["row"], found["column"]]
        terms = page.locator(".say").inner_text().partition("add up to")[2].partition("=")[0]
        signed = "".join(terms.split()).replace("+", " ").replace("\N{MINUS SIGN}", " -")
        assert sum(map(int, signed.rstrip(".").split())) == found["output"]
        return found["row"], found["column"]

    assert agrees(1, 0) == (1, 0)
    press(page, "Padding", "ArrowRight", 2)
    press(page, "Window", "End")
    assert agrees(1, 2) == (8, 8)
    point(page, "Stride", 0.5)
    agrees(2, 2)
    press(page, "Stride", "End")
    agrees(3, 2)
    assert "the last zeros are never seen" in page.locator(".say").inner_text()
    press(page, "Padding", "ArrowLeft", 2)
    assert "the last pixels are never seen" in page.locator(".say").inner_text()
    press(page, "Padding", "End")
    press(page, "Stride", "ArrowLeft")
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
    page.get_by_label("ReLU after it").check()
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


def test_a_pass_shows_what_it_removed_and_made(play):
    steps = playable.graph()["steps"]
    page = play("02-graph")
    for before, after in itertools.pairwise(steps):
        page.get_by_role("button", name="Next").click()
        old, new = ([Box(**box) for box in step["boxes"]] for step in (before, after))
        went, came = compare(old, new)
        removed = {name for name, kind in went.items() if kind == REMOVED}
        made = {name for name, kind in came.items() if kind == MADE}
        changed = sum(kind == CHANGED for kind in came.values())
        found = numbers(page)
        assert found["nodes"] == len(new)
        assert found["removed"] == len(removed - made)
        assert found["made"] == len(made - removed)
        assert found["changed"] == changed + len(removed & made)  # of one name, but another kind
    assert page.get_by_role("button", name="Next").is_disabled()
    assert page.locator("input:focus").count() == 1  # not lost with the button
    press(page, "Step", "Home")
    assert numbers(page)["nodes"] == len(steps[0]["boxes"])


def test_a_trap_shows_what_else_needs_the_convolution(play):
    page = play("03-graph-traps")
    probe = torch.randn(4, 4, 8, 8)
    for name, network in playable.ZOO.items():
        nodes = list(trace(network.eval(), (probe,), "fx").graph.nodes)
        calls = [node for node in nodes if node.target == "conv"]
        weights = [node for node in nodes if node.op == "get_attr"]
        users = [user for user in calls[0].users if user.target not in ("norm", "conv")]
        norm = next(node for node in nodes if node.target == "norm")
        others = len(calls) - 1 + len(weights) + len(users)
        found = numbers(page)
        assert page.locator(".live svg text").first.text_content() == name
        assert found["bad"] == (others if norm.args[0] in calls else 0)
        press(page, "Network", "ArrowRight")
    assert "no convolution right before" in page.locator(".say").inner_text()


def test_the_costs_of_convolutions_are_those_of_the_layers(play):
    page = play("05-separable")

    def agrees(channels, kernel, side):
        shape = torch.zeros(1, channels, side, side)
        pad = kernel // 2
        full = nn.Conv2d(channels, channels, kernel, padding=pad, bias=False)
        depthwise = nn.Conv2d(channels, channels, kernel, padding=pad, groups=channels, bias=False)
        split = nn.Sequential(depthwise, nn.Conv2d(channels, channels, 1, bias=False))
        assert numbers(page) == {
            "full": metrics.count_macs(full, shape),
            "split": metrics.count_macs(split, shape),
            "fullWeights": metrics.count_parameters(full),
            "splitWeights": metrics.count_parameters(split),
        }

    agrees(64, 3, 32)
    press(page, "Window", "ArrowRight")
    press(page, "Channels", "ArrowLeft", 5)
    agrees(24, 5, 32)
    point(page, "Image", 0)
    agrees(24, 5, 4)


def test_the_staircase_is_python_s(play):
    page = play("08-staircase")

    def agrees(scale, zero, bits):
        found = numbers(page)
        x = torch.tensor(found["x"], dtype=torch.float64)
        code = (torch.round(x / scale) + zero).clamp(0, 2**bits - 1)
        assert found["code"] == code
        assert found["value"] == pytest.approx(float(scale * (code - zero)))
        assert found["error"] == pytest.approx(float(scale * (code - zero) - x))
        assert found["low"] == pytest.approx(-scale * zero)
        assert found["high"] == pytest.approx(scale * (2**bits - 1 - zero))
        return page.locator(".say").inner_text()

    assert "half a step, 0.50" in agrees(1.0, 1, 2)
    box = page.locator(".live svg").bounding_box()
    page.mouse.click(box["x"] + box["width"] - 20, box["y"] + 100)
    assert numbers(page)["x"] > 3.8 and "beyond the last mark" in agrees(1.0, 1, 2)
    press(page, "Bits", "ArrowRight", 2)
    press(page, "Scale", "ArrowLeft", 6)
    press(page, "Zero point", "ArrowRight", 9)
    agrees(0.4, 10, 4)
    press(page, "Bits", "ArrowLeft", 1)  # 10 is no code of 3 bits
    agrees(0.4, 7, 3)
    press(page, "x", "ArrowLeft", 57)
    agrees(0.4, 7, 3)


def test_clipping_and_rounding_errors_are_python_s(play):
    x = playable.clipping()["values"].double()
    page = play("08-clipping")

    def errors(t, bits):
        step = t / (2**bits - 1)
        cut = x.clamp(max=t)
        rounded = step * torch.round(cut / step)
        return ((rounded - cut)[x <= t].square().sum() / len(x), (cut - x).square().mean())

    def agrees(bits):
        found = numbers(page)
        rounding, clipping = errors(found["t"], bits)
        assert found["rounding"] == pytest.approx(float(rounding))
        assert found["clipping"] == pytest.approx(float(clipping))
        ends = [float(x.max()) * (i + 1) / 80 for i in range(80)]
        assert found["best"] == pytest.approx(min(ends, key=lambda t: sum(errors(t, bits))))
        return found["t"]

    assert agrees(4) == pytest.approx(float(x.max()))
    press(page, "Clip at t", "ArrowLeft", 40)
    agrees(4)
    press(page, "Bits", "ArrowRight", 2)
    box = page.locator(".live svg").bounding_box()
    page.mouse.click(box["x"] + 44, box["y"] + 200)
    assert agrees(6) < 0.3


def test_halves_go_where_python_sends_them(play):
    data = playable.rounding()
    page = play("09-rounding")
    for expected in (4, 12, 20):
        value = Fraction(expected * data["multiplier"], 2 ** data["shift"])
        assert value.denominator == 2
        found = numbers(page)
        wanted = [math.floor(value), math.floor(value + Fraction(1, 2)), round(value)]
        assert [found["down"], found["up"], found["even"]] == wanted
        assert found["value"] == float(value)
        page.get_by_role("button", name="Next exact half").click()
    sums = range(-data["reach"], data["reach"] + 1)
    exact = [Fraction(s * data["multiplier"], 2 ** data["shift"]) for s in sums]
    rules = (math.floor, lambda value: math.floor(value + Fraction(1, 2)), round)
    for rule, found in zip(rules, numbers(page)["bias"], strict=True):
        assert found == pytest.approx(float(sum(rule(v) - v for v in exact) / len(exact)))
    point(page, "Sum", 0)
    press(page, "Sum", "ArrowRight", 3)
    assert numbers(page)["even"] == round(exact[3])


def test_the_best_corner_is_the_one_with_the_least_error(play):
    data = playable.corners()
    page = play("09b-corners")

    def agrees(weights, correlation):
        covariance = torch.tensor([[1, correlation], [correlation, 1]], dtype=torch.float64)
        w = torch.tensor(weights, dtype=torch.float64)
        corners = torch.tensor([[0, 0], [1, 0], [0, 1], [1, 1]])
        errors = {tuple(c.tolist()): float((c - w) @ covariance @ (c - w)) for c in corners}
        found = numbers(page)
        assert found["best"] == pytest.approx(min(errors.values()))
        assert found["nearest"] == pytest.approx(errors[tuple(w.round().int().tolist())])
        return found["ratio"]

    assert agrees(data["weights"], 0.9) > 3
    press(page, "First weight", "ArrowRight", 10)
    agrees([0.64, data["weights"][1]], 0.9)
    point(page, "Correlation of the inputs", 0.5)
    assert agrees([0.64, data["weights"][1]], 0) == 1
    press(page, "First weight", "ArrowLeft", 7)
    assert "0.50" in page.locator("output").nth(1).inner_text()
    assert "The nearest corner is the best one." in page.locator(".say").inner_text()  # in a tie
    press(page, "First weight", "ArrowRight", 7)
    box = page.locator(".live rect[stroke-dasharray]").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 4, box["y"] + box["height"] / 4)
    found = [
        float(page.get_by_label(name).input_value()) for name in ("First weight", "Second weight")
    ]
    assert found == pytest.approx([0.25, 0.75], abs=0.02)
    agrees(found, 0)


def test_the_roofline_is_the_least_of_three_rates(play):
    data = playable.roofline()
    page = play("04-roofline")

    def agrees(batch):
        total = dict.fromkeys(("compute", "memory", "overhead"), 0)
        for layer in data["layers"]:
            operations = batch * layer["operations"]
            moved = layer["weights"] + batch * layer["maps"]
            times = [operations / data["peak"], moved / data["bandwidth"], data["overhead"]]
            total[[*total][times.index(max(times))]] += max(times)
        found = numbers(page)
        seconds = sum(total.values())
        assert found["seconds"] == pytest.approx(seconds)
        for bound, its in total.items():
            assert found[bound] == pytest.approx(its / seconds)
        return found["overhead"]

    first = agrees(1)
    press(page, "Batch", "ArrowRight", 3)
    agrees(8)
    point(page, "Batch", 1)
    assert agrees(256) < first
    circle = page.locator(".live svg circle").nth(20).bounding_box()
    page.mouse.move(circle["x"] + circle["width"] / 2, circle["y"] + circle["height"] / 2)
    assert numbers(page)["layer"] != data["layers"][0]["name"]
    wanted = next(one for one in data["layers"] if one["name"] == numbers(page)["layer"])
    moved = wanted["weights"] + 256 * wanted["maps"]
    assert numbers(page)["intensity"] == pytest.approx(256 * wanted["operations"] / moved)


def test_the_best_network_below_a_budget(play):
    networks = playable.shipped()["networks"]
    page = play("10-networks")

    def agrees():
        found = numbers(page)
        within = [one for one in networks if one["bytes"] <= found["bytes"]]
        best = max(within, key=lambda one: one["accuracy"])
        smaller = [one for one in within if one["bytes"] < best["bytes"]]
        assert found["best"] == best["name"]
        assert found["equal"] == sum(one["high"] >= best["low"] for one in smaller)
        return best["name"]

    agrees()
    press(page, "Budget", "ArrowLeft", 40)
    small = agrees()
    point(page, "Budget", 1)
    assert agrees() != small
    press(page, "Look at", "ArrowRight", 2)
    assert numbers(page)["shown"] == networks[1]["name"]
    drawing = page.locator(".live svg").bounding_box()
    page.mouse.move(drawing["x"] + 100, drawing["y"] + drawing["height"] - 60)
    assert numbers(page)["shown"] == networks[1]["name"]  # the mouse has touched no dot
    circle = page.locator(".live svg circle").nth(3).bounding_box()
    page.mouse.move(circle["x"] + circle["width"] / 2, circle["y"] + circle["height"] / 2)
    assert numbers(page)["shown"] == networks[3]["name"]
    page.get_by_label("Your size in MB").fill("0.4")
    page.get_by_label("Your accuracy in %").fill("93.5")
    assert page.locator(".live svg").get_by_text("yours").is_visible()
    said = page.locator(".say")
    within = [one for one in networks if one["bytes"] <= 0.4e6]
    better = max(within, key=lambda one: one["accuracy"])
    assert f"Yours: {better['name']} is" in said.inner_text()
    page.get_by_label("Your accuracy in %").fill(str(100 * better["accuracy"] + 1))
    assert "Yours: no other" in said.inner_text()


def test_a_reader_s_own_networks_have_a_colour_of_their_own(browser, monkeypatch):
    networks = playable.shipped()["networks"]
    data = {"networks": [*networks, networks[-1] | {"name": "yours, tiny", "yours": True}]}
    monkeypatch.setitem(playable.FIGURES, "10-networks", (lambda: data, "Networks"))
    playable.html.cache_clear()
    page = browser.new_page()
    try:
        page.set_content(playable.document("10-networks"))
        circles = page.locator(".live svg circle").all()
        colours = [circle.get_attribute("stroke") for circle in circles]
    finally:
        playable.html.cache_clear()
        page.close()
    assert colours[-1] == "var(--bad)" and colours.count("var(--bad)") == 1


@pytest.mark.slow
@pytest.mark.ci
def test_slides_show_the_living_figure_and_the_report_its_picture(browser, tmp_path):
    name = "01-window"
    shown = nbformat.v4.new_output(
        "display_data",
        {"text/html": playable.html(name), "text/plain": FIGURES[name][1]},
        metadata={"figure": name},
    )
    cell = nbformat.v4.new_code_cell(
        outputs=[shown], metadata={"slideshow": {"slide_type": "slide"}}
    )
    slide = {"slideshow": {"slide_type": "slide"}}
    end = nbformat.v4.new_markdown_cell("# The end", metadata=slide)
    cells = [nbformat.v4.new_markdown_cell("# A lesson"), cell, end]
    path = tmp_path / "01_lesson.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    deck = slides.write_deck(path, tmp_path / "deck.html")
    with opened(deck.as_uri(), browser) as (page, problems):
        page.locator("[data-live]").wait_for()
        inputs = page.locator(".figure-inputs").bounding_box()
        drawing = page.locator(".live svg").bounding_box()
        assert inputs["y"] + inputs["height"] <= drawing["y"]  # reveal.js has classes, too
        press(page, "Padding", "ArrowRight")
        assert numbers(page)["size"] == 7
        assert page.locator(".shown img").count() == 1
        assert page.locator(".course-figure").get_attribute("data-prevent-swipe") == ""
        press(page, "Padding", "PageDown")  # a presenter's remote
        assert page.evaluate("Reveal.getIndices().h") == 1 and numbers(page)["size"] == 7
        assert problems == []
    written = report.write_report([path], tmp_path / "report.html")
    with opened(written.as_uri(), browser) as (page, problems):
        assert page.locator("[data-live]").count() == 0
        picture = page.locator(f"figure[id='{name}'] img")
        assert picture.evaluate("one => one.naturalWidth") > 300
        assert problems == []
    assert (tmp_path / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
