"""`python -m course prune` from a checkpoint to a checkpoint."""

import shlex

import pytest

from course.__main__ import main
from helpers import models
from helpers.metrics import count_parameters as parameters

TAYLOR = (
    "--target-params 0.6 --importance taylor --allocation global --data sample --images 32"
    " --scope all"
)
COARSE = "--target-params 0.5 --round-to 64"


def width(model, block):
    return model.features[block].conv[0][0].out_channels


# options, and what is refused or what is to be true of the network before and after
COMMANDS = [
    ("--ratio 0.5", lambda dense, small: parameters(small) < 0.7 * parameters(dense)),
    (
        TAYLOR,
        lambda dense, small: parameters(small) == pytest.approx(0.6 * parameters(dense), rel=0.01),
    ),
    (COARSE, "cannot be met within 1%"),
    (f"{COARSE} --tolerance 0.5", lambda dense, small: parameters(small) < parameters(dense)),
    (
        "--allocation {}",
        lambda dense, small: (
            width(small, 17) * 2 == width(dense, 17) and width(small, 16) == width(dense, 16)
        ),
    ),
]


@pytest.mark.parametrize(("options", "right"), COMMANDS)
def test_writes_a_network_that_loads_or_says_what_cannot_be(
    options, right, tmp_path, capsys, monkeypatch
):
    dense, ratios = models.mobilenet_v2(width_mult=0.35), tmp_path / "ratios.json"
    ratios.write_text('{"features.17.conv.0.0": 0.5}')
    small = tmp_path / "small.safetensors"
    words = ["prune", str(models.save(dense, tmp_path / "dense.safetensors"))]
    words += ["--output", str(small)]
    status, told = main([*words, *options.format(ratios).split()]), capsys.readouterr()
    if isinstance(right, str):
        assert status == 1 and right in told.err
        return
    loaded = models.load(small)
    assert status == 0 and right(dense, loaded)
    assert f"parameters {parameters(dense):,} -> {parameters(loaded):,}" in told.out
    asked = []
    monkeypatch.setattr("course.commands.finetune.run", asked.append)
    assert main(shlex.split(told.out.split("fine-tune it with: python -m course")[1])) == 0
    assert (asked[0].checkpoint, [str(path) for path in asked[0].teacher]) == (small, words[1:2])
