import pytest

from course.grading.forbidden import used

NAMES = ("fuse_conv_bn", "fusion", "torch.ao")


@pytest.mark.parametrize(
    "source",
    [
        "from torch.nn.utils import fuse_conv_bn_eval",
        "import torch.nn.utils.fusion as f",
        "getattr(torch.nn.utils, 'fuse_conv_bn_weights')",
        "x = 1\n  fuse_conv_bn_eval(  # broken indentation and bracket",
        "%load fusion",
        "q = torch . ao.quantization",
        "f = '''fuse_conv_bn'''",
    ],
)
def test_a_use_is_found(source):
    assert used(["a = 1", source], NAMES)


@pytest.mark.parametrize(
    "source",
    [
        "# I did not use fuse_conv_bn_eval",
        'def f():\n    """Not fuse_conv_bn."""\n',
        "fuse = conv_bn = 1",
        "",
    ],
)
def test_mentions_and_other_names_are_not_uses(source):
    assert used([source], NAMES) == []


def test_deep_nesting_does_not_hurt():
    assert used(["(" * 100_000 + "fusion"], NAMES) == ["fusion"]
