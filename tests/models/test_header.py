"""A header that somebody changed ends in one named error, before anything large is built, or
changes nothing.
"""

import copy
import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from course.__main__ import main
from helpers import models, pruning, quantization
from helpers.models.header import Budget, ModelError

SHIPPED = sorted(path.stem for path in models.CHECKPOINTS.glob("*.safetensors"))
VALUES = (
    "x",
    -1,
    0,
    None,
    [],
    {},
    1.5,
    True,
    10**9,
    10**40,
    float("nan"),
    {"step": "exec"},
    [2**16] * 4,
)


def opened(path):
    """The header of a file, parsed, and its tensors."""
    with safe_open(path, "pt") as file:
        stored = {part: json.loads(text) for part, text in file.metadata().items()}
        return stored, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def tables(value, at=""):
    """Every table and list in a nest of them, with where it is; layers of one kind are at the same
    place.
    """
    if isinstance(value, dict | list):
        yield at, value
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from tables(one, f"{at}.{'*' if isinstance(key, int) or '.' in key else key}")


def changes(header):
    """Put another value in each place in turn, take it out, and put something beside it; yields
    what was done where.
    """
    for at, table in list(tables(header)):
        kept = copy.copy(table)
        for key in list(kept) if isinstance(kept, dict) else range(len(kept)):
            for value in VALUES:
                table[key] = value
                yield f"{at}.{'*' if isinstance(key, int) or '.' in key else key} = {value!r:.9}"
            if isinstance(kept, dict):
                del table[key]
                yield f"{at} without {'one' if '.' in key else key}"
            table[key] = kept[key]
        if isinstance(kept, dict):
            table["more"] = 1
            yield f"{at} with more"
            del table["more"]
        else:
            for value in (1, "more"):
                table.append(value)
                yield f"{at} longer by {value!r}"
                table.pop()


def written(header):
    return {part: json.dumps(value) for part, value in header.items()}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A small file with all that ours have: a block less, pruned and quantized, with bits of its
    own for a layer.
    """
    small = models.bypass(
        pruning.prune(models.pretrained("tiny"), torch.zeros(1, 3, 32, 32)), ["block1"]
    ).eval()
    recipe = quantization.Recipe(weight_bits=4, layer_bits={"classifier": 8}, observer="minmax")
    quantized = quantization.quantize(small, torch.randn(8, 3, 32, 32), recipe)
    return models.save(
        quantized,
        tmp_path_factory.mktemp("made") / "made.safetensors",
        metrics={"test_accuracy": 0.5},
    )


def test_bypass_keeps_the_mode_and_leaves_a_network_whole_if_a_name_is_wrong():
    network = models.build("tiny").eval()
    before = repr(network)
    with pytest.raises(AttributeError, match="nowhere"):
        models.bypass(network, ["block1", "nowhere"])
    assert repr(network) == before and not network.spec.steps
    assert not models.bypass(network, ["block1"]).block1.training


@pytest.mark.parametrize(
    "name", ["made", *(pytest.param(name, marks=pytest.mark.slow) for name in SHIPPED)]
)
def test_a_change_in_one_place_of_each_kind_is_refused_or_changes_nothing(name, made, tmp_path):
    header, tensors = opened(
        models.CHECKPOINTS / f"{name}.safetensors" if name in SHIPPED else made
    )
    original, x = copy.deepcopy(header["spec"]), torch.randn(2, 3, 32, 32)
    file, tried = tmp_path / "m.safetensors", set()
    save_file(tensors, file, written(header))
    expected = models.load(file)(x)
    for what in changes(header):
        if what in tried or (header.get("spec") == original and "metadata" not in what):
            continue
        tried.add(what)
        save_file(tensors, file, written(header))
        try:
            assert torch.equal(models.load(file)(x), expected), what
        except ModelError as error:
            assert "\n" not in str(error), what
    assert len(tried) > 100


def test_nothing_large_is_made_on_the_way():
    with Budget(10_000), pytest.raises(ModelError, match="has more numbers than such a file"):
        torch.empty(100, 101)
    with Budget(10_000), pytest.raises(ModelError):
        torch.nn.Conv2d(1000, 1000, 3)
    with Budget(10_000):
        torch.nn.Linear(70, 70)
    with Budget(10**6), pytest.raises(ModelError):  # whose modules take much more than numbers
        torch.nn.Sequential(*(torch.nn.BatchNorm2d(1) for _ in range(1000)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_classes": 60_000, "width_mult": 100}, "has more numbers than such a file"),
        ({"num_classes": 10**9}, "a whole number from 1 to"),
    ],
)
def test_huge_widths_are_refused(change, message, tmp_path):
    header, tensors = opened(models.CHECKPOINTS / "tenth-mixed.safetensors")
    header["spec"]["arguments"] |= change
    save_file(tensors, tmp_path / "m.safetensors", written(header))
    with pytest.raises(ModelError, match=message):
        models.load(tmp_path / "m.safetensors")


def test_the_command_line_says_it_in_one_line(tmp_path, capsys):
    header, tensors = opened(models.CHECKPOINTS / "tiny.safetensors")
    deep = {
        "step": "optimize",
        "level": "fold",
        "route": "fx",
        "shapes": json.loads("[" * 300 + "]" * 300),
    }
    spec = [
        {"builder": 3},
        *(header["spec"] | {"steps": [step]} for step in ({}, deep, {"step": "exec"})),
    ]
    for place, value in (("metadata", [1]), *(("spec", one) for one in spec)):
        save_file(tensors, tmp_path / "m.safetensors", written(header | {place: value}))
        assert main(["evaluate", str(tmp_path / "m.safetensors"), "--data", "sample"]) == 1
        assert capsys.readouterr().err.count("\n") == 1
