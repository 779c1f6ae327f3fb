import pytest
import torch

from course.publish import steps
from helpers import models
from tests.course.publish import chromium
from tests.course.publish.chromium import opened


@pytest.fixture(scope="module")
def found():
    torch.manual_seed(0)
    return {stage["name"]: stage for stage in steps.stages(models.pretrained(), torch.randn(2, 3, 32, 32))}


def boxes(stage, side, status):
    return {box["name"]: box["note"] for box in stage[side]["boxes"] if box["status"] == status}


def test_each_pass_shows_what_it_removed_made_and_declined_and_differences_of_rounding(found):
    folding, addition, fusion = (found[name] for name in ("conv_bn_folding", "conv_add_folding", "fusion"))
    removed = boxes(folding, "before", "removed")
    assert len(removed) == folding["changed"] == 52
    assert removed["features_0_1"] == "folded into features_0_0"
    assert "features_0_0" in boxes(folding, "after", "changed")
    declined = boxes(addition, "before", "declined")
    assert len(declined) == addition["declined"] == 10 and addition["after"] is None
    assert declined["add"] == "features_3_conv_2 is not a constant"
    assert len(boxes(fusion, "after", "made") | boxes(fusion, "after", "changed")) == fusion["changed"] == 52
    assert found["canonicalize"]["difference"] == 0
    assert 0 < found["conv_bn_folding"]["difference"] < 1e-3


@pytest.mark.browser
@pytest.mark.skipif(not chromium.CHROMIUM.exists(), reason="needs Chromium")
def test_a_box_tells_what_happened_to_it(tmp_path):
    torch.manual_seed(0)
    page_file = steps.write_steps(tmp_path / "passes.html", models.pretrained(), torch.randn(1, 3, 32, 32))
    with opened(page_file.as_uri()) as (page, problems):
        page.click("text=conv_bn_folding")
        page.focus("#box-features_1_conv_0_1")
        page.keyboard.press("Enter")
        assert page.inner_text("#boxTitle") == "features_1_conv_0_1"
        assert page.inner_text("#box").endswith("This pass: removed. folded into features_1_conv_0_0")
        page.click("#sides button:last-child")
        assert page.locator("#box-features_1_conv_0_1").count() == 0
    assert problems == []
