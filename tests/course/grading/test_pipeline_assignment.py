"""Assignment 5: a network is data, is computed where no student code runs, and every byte of it
counts.
"""

import base64
import json
import pickle
import random
import zipfile

import nbformat
import pytest
import safetensors.torch
import torch
from torch import nn

from course.grading import answers, course, judge
from course.grading.answers import fill
from course.grading.box import Limits
from course.grading.intake import Submission, read
from course.grading.job import Place
from course.reference import measuring
from helpers import models, passes
from tests.cifar_fixtures import Boom
from tests.course.grading.conftest import skeleton_of
from tests.course.grading.trying import handed_in, item_of

A5 = course.load("a5")
DRIVER = A5.load_driver()
SOLVED = answers.solution_cells(A5)
NETWORK_TOOLS = answers.execute(SOLVED)


@pytest.fixture(scope="module")
def skeleton(released):
    return skeleton_of(released, "a5")


@pytest.fixture(scope="module")
def sheet():
    return [s for s in judge.prepare(A5, "secret of the tests") if s.item.name == "network"]


@pytest.fixture
def grade_network(skeleton, sheet):
    def grade(sources, files=None, wall_seconds=60):
        submission = Submission(
            fill(skeleton, sources), files=handed_in(A5) if files is None else files
        )
        return judge.grade(A5, [submission], sheet, Limits(wall_seconds=wall_seconds))[0]["items"][
            "network"
        ]

    return grade


def test_points_are_fixed_and_reward_accuracy_and_few_bytes_together():
    low, high, most, least = (
        DRIVER.TARGET_ACCURACY,
        DRIVER.FULL_ACCURACY,
        DRIVER.TARGET_BYTES,
        DRIVER.FULL_BYTES,
    )
    assert (
        DRIVER.earned(low - 1e-9, 1)
        == DRIVER.earned(1.0, most + 1)
        == DRIVER.earned(float("nan"), 1)
        == 0
    )
    for accuracy, size, share in ((low, least, 0.2), (1, most, 0.2), (high, least, 1), (1, 0, 1)):
        assert DRIVER.earned(accuracy, size) == pytest.approx(share)
    halved = [DRIVER.earned(high, size) for size in (most, 0.8 * most, 0.64 * most)]
    assert halved[1] - halved[0] == pytest.approx(halved[2] - halved[1], abs=1e-3)


def _packed_as_hard_as_can_be(layers, bits):
    """Layers as the file holds them, and the bytes of levels coded at their entropy; no plan, no
    header, no code.
    """
    size, packed = 0.0, []
    for layer in layers:
        if "weight" in layer:
            levels, scales = NETWORK_TOOLS["squeeze_weight"](layer["weight"], bits)
            count = torch.bincount(
                NETWORK_TOOLS["unpack_bits"](levels, bits, layer["weight"].numel())
            ).double()
            share = count[count > 0] / count.sum()
            size += -(share.log2() * share).sum().item() * count.sum().item() / 8 + 4 * len(scales)
            restored = NETWORK_TOOLS["restore_weight"](
                levels, scales, list(layer["weight"].shape), bits
            )
            layer = layer | {"weight": restored}
        packed.append(layer)
    return packed, size


def test_tiny_without_training_earns_a_third_at_most_with_any_bits():
    folded, _ = passes.optimize(models.pretrained("tiny"), torch.zeros(1, 3, 32, 32))
    network = item_of(A5.assignment, "network")
    probe = network.make_cases("untrained", hidden=True)[0].probe
    packed = {
        bits: _packed_as_hard_as_can_be(DRIVER.layers_of(folded), bits) for bits in range(2, 9)
    }
    shares = {bits: DRIVER.earned(1.0, size) for bits, (_, size) in packed.items()}
    doubtful = [
        bits for bits, share in shares.items() if share >= 1 / 3
    ]  # unless it is accurate, which takes time
    for bits in doubtful:
        right = DRIVER.predict(packed[bits][0], probe["images"]) == network.oracle({}, probe)
        shares[bits] = DRIVER.earned(right.double().mean().item(), packed[bits][1])
    assert doubtful and 0 < max(shares.values()) < 1 / 3, shares


def test_every_other_network_of_the_course_is_too_large_even_with_one_bit_for_each_weight():
    names = [path.name for path in models.CHECKPOINTS.glob("*.safetensors") if path.stem != "tiny"]
    assert len(names) > 5
    for name in names:
        model = measuring.float_structure(models.CHECKPOINTS / name)
        shapes = [
            module.weight.shape
            for module in model.modules()
            if isinstance(module, nn.Conv2d | nn.Linear)
        ]
        # A bit for each weight, and for each output channel its scale and its bias in float16.
        size = sum(shape.numel() / 8 + 4 * shape[0] for shape in shapes)
        assert sum(shape.numel() for shape in shapes) > 0.95 * sum(
            p.numel() for p in model.parameters()
        )  # all of it
        assert size > DRIVER.TARGET_BYTES, (name, size)


def test_the_notebook_states_the_rule_of_the_driver_and_targets_are_just_fulfilled():
    text = "".join(cell.source for cell in nbformat.read(A5.notebook, as_version=4).cells)
    low, high = 100 * DRIVER.TARGET_ACCURACY, 100 * DRIVER.FULL_ACCURACY
    assert f"accuracy of {low:g} %" in text and f"up to {high:g} %" in text
    assert (
        f"target size of {DRIVER.TARGET_BYTES:,} bytes" in text
        and f"down to {DRIVER.FULL_BYTES:,} bytes" in text
    )
    make_network = course._import(A5.folder / "make_network.py", "make_network")
    rule = {
        "TARGET_ACCURACY": 0.8,
        "FULL_ACCURACY": 0.9,
        "TARGET_BYTES": 223_000,
        "FULL_BYTES": 124_000,
    }
    assert make_network.targets(0.9399, 123_456) == rule


def test_a_network_that_was_read_stays_when_its_file_is_overwritten(tmp_path, monkeypatch):
    monkeypatch.setattr(DRIVER, "FILE", tmp_path / "network")
    files = [safetensors.torch.save({"x": torch.full((9,), value)}) for value in (1.0, 0.0)]
    first, _ = [
        DRIVER.FILE.write_bytes(file) and DRIVER.run_network({"restore": dict}, {})
        for file in files
    ]
    assert first["x"].sum() == 9


def test_images_are_disturbed_each_in_its_own_way():
    image = torch.randint(
        0, 256, (1, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)
    )
    seen = DRIVER.disturb(image.expand(300, -1, -1, -1), torch.Generator().manual_seed(2))
    assert seen.dtype == torch.uint8 and len({bytes(one.flatten().tolist()) for one in seen}) == 300
    moved = [image.roll((down, right), (2, 3)) for down in range(-3, 4) for right in range(-3, 4)]
    moved = torch.cat([*moved, *(one.flip(-1) for one in moved)])
    seen, moved = (images[:, :, 8:24, 8:24].float() for images in (seen, moved))
    closest = (seen[:, None] - moved).abs().mean((2, 3, 4)).min(1)
    assert (
        closest.values.max() < 4 and len(set(closest.indices.tolist())) > 90
    )  # of 98: 7 x 7 shifts, mirrored or not


def test_every_byte_that_reaches_the_students_code_counts(skeleton, tmp_path):
    def weigh(notebook, files=(), released=None):
        nbformat.write(notebook, tmp_path / "a5.ipynb")
        for name in files:
            (tmp_path / name).write_bytes(b"12345")
        return read(tmp_path, "a5.ipynb", skeleton, released).submitted_bytes

    bare = weigh(fill(skeleton, {}))
    hidden = base64.b85encode(random.Random(0).randbytes(4000)).decode()
    for cell in (
        "own",
        "network_solution",
        "setup",
        "network",
    ):  # what stood in locked cells runs, too
        assert 4000 < weigh(fill(skeleton, {cell: f"weights = {hidden!r}"})) - bare < 5000
    assert weigh(fill(skeleton, {"own": "# what this does\n" * 100})) < bare + 100
    heavy = fill(skeleton, {"choice_answer": hidden})
    heavy.metadata["hidden"] = hidden
    heavy.cells[1].outputs = [nbformat.v4.new_output("stream", text=hidden)]
    assert weigh(heavy) == bare
    assert weigh(fill(skeleton, {}), ["network.safetensors"]) == bare + 5 + len(
        "network.safetensors"
    )
    for content, most in (
        (b"x = 1  # what this does\n" * 200, 100),
        (random.Random(1).randbytes(4000), 5500),
    ):
        (tmp_path / "tools.py").write_bytes(
            content
        )  # code in a file weighs what it weighs in a cell
        assert (
            4000 * (most > 4000)
            < weigh(fill(skeleton, {})) - bare - 5 - len("network.safetensors")
            < most
        )
    (tmp_path / "tools.py").unlink()
    released = tmp_path.with_name(f"{tmp_path.name} released")
    released.mkdir()
    (released / "network.safetensors").write_bytes(b"of a teacher who tried it")
    for name, more in (("tools.py", 5 + len("network.safetensors")), ("network.safetensors", 0)):
        with zipfile.ZipFile(released.with_suffix(".zip"), "a") as archive:
            archive.writestr(f"a5/{name}", b"of a later release")  # which never enters the box
        assert weigh(fill(skeleton, {}), released=released) == bare + more


def test_layers_of_a_model_compute_the_same():
    x = torch.randn(3, 3, 32, 32)
    for model in (models.mobilenet_v2(width_mult=0.25).eval(), models.tiny().eval()):
        folded, _ = passes.optimize(model, torch.zeros(2, 3, 32, 32))
        with torch.no_grad():
            torch.testing.assert_close(
                DRIVER.execute(DRIVER.layers_of(folded), x), model(x), rtol=1e-3, atol=1e-4
            )
    with pytest.raises(ValueError, match="fold the network first"):
        DRIVER.layers_of(torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.BatchNorm2d(3))))


def test_the_students_code_sees_no_image_and_the_second_box_no_such_code_and_no_label(
    skeleton, sheet, tmp_path
):
    ((item, cases, inputs, expected),) = [(s.item, s.cases, s.inputs, s.expected) for s in sheet]
    students, other = tmp_path / "students" / "job", tmp_path / "other" / "job"
    students.mkdir(parents=True), other.mkdir(parents=True)
    Place(A5, Limits(), boxed=True).build(
        students, Submission(skeleton), {"network": (item, inputs)}
    )
    assert judge.wire.decode((students.parent / "inputs").read_bytes()) == [{}, {}]
    assert sum(path.stat().st_size for path in students.rglob("*") if path.is_file()) < 100_000
    pairs = judge.wire.encode([{"answer": [], "probe": case.probe} for case in cases])
    Place(A5, Limits(), boxed=True).build(
        other, judge.NOBODY, {"network 0": (item, pairs)}, view=True
    )
    assert json.loads((other / "job.json").read_text())["cells"] == [] and not list(
        (other / "files").iterdir()
    )
    for case, labels in zip(cases, expected, strict=True):
        assert not any(
            torch.equal(value, labels)
            for value in case.probe.values()
            if isinstance(value, torch.Tensor)
        )


def bomb(channels, padding, repeats):
    return f"""
def restore(tensors):
    import torch
    conv = {{"kind": "conv", "weight": torch.zeros(1, 3, 1, 1).expand({channels}, 3, 1, 1),
            "bias": torch.zeros({channels}), "stride": 1, "padding": {padding}, "groups": 1}}
    return [conv] + [{{"kind": "relu"}}] * {repeats}
"""


HOSTILE = {  # code instead of the solution's, or a file (None: none), and what is said of it
    "takes all memory": (bomb(60_000, 0, 0), None, "RuntimeError"),
    "grows at the border": (bomb(1, 100_000, 0), None, "RuntimeError"),
    "never ends": (bomb(300, 0, 3000), None, "No answer"),
    "nothing": ("", None, "is not beside the notebook"),
    "an empty file": ("", b"", "SafetensorError"),
    "a pickle": ("", pickle.dumps(Boom()), "SafetensorError"),
    "noise": ("", b"\xff" * 1000, "SafetensorError"),
    "no plan": (
        "",
        safetensors.torch.save({"plan": torch.zeros(3, dtype=torch.uint8)}),
        "JSONDecodeError",
    ),
    "another tensor": ("", safetensors.torch.save({"other": torch.zeros(3)}), "KeyError"),
}


@pytest.mark.box
@pytest.mark.slow
def test_a_patched_driver_reaches_only_the_students_own_box(grade_network, skeleton):
    patch = (
        "import driver\ndriver.predict = driver.execute = None\ndriver.VIEWS['network'] = lambda"
        " *a, **k: 1 / 0\n"
    )
    patch += "driver.earned = lambda *a: 1.0\ndriver.SCORES['network'] = lambda *a: (1.0, '', {})"
    sources = SOLVED | {"own": patch}
    sent = Submission(fill(skeleton, sources), files=handed_in(A5)).submitted_bytes
    # Its bytes count as the network's do, and its own `earned` would give all 30 points.
    points = round(30 * DRIVER.earned(DRIVER.FULL_ACCURACY, sent), 2)
    assert grade_network(sources)["points"] == points < 30


@pytest.mark.box
@pytest.mark.slow
@pytest.mark.parametrize("label", HOSTILE)
def test_a_hostile_network_and_a_file_that_is_none_earn_nothing_and_are_explained(
    label, grade_network
):
    code, content, says = HOSTILE[label]
    files = None if code else {} if content is None else {"network.safetensors": content}
    result = grade_network(
        SOLVED | ({"network_solution": code} if code else {}), files, wall_seconds=15
    )
    assert result["points"] == 0 and says in result["message"], result


def test_the_network_is_computed_in_float32_whatever_the_default_type_is():
    layers = NETWORK_TOOLS["restore"](safetensors.torch.load(handed_in(A5)["network.safetensors"]))
    images = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8)
    expected = DRIVER.predict(layers, images)
    try:
        torch.set_default_dtype(torch.float64)
        found = DRIVER.predict(layers, images)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(found, expected)


FAULTS = {
    "an output that is not there": ({"kind": "add", "with": 7}, "the output of layer 7 is not"),
    "other channels": (
        {"kind": "linear", "weight": torch.ones(2, 9), "bias": torch.ones(2)},
        "shapes cannot be multiplied",
    ),
    "no bias": ({"kind": "linear", "weight": torch.ones(2, 3), "bias": None}, "'NoneType' object"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_layer_that_cannot_be_computed_is_named(fault):
    layer, says = FAULTS[fault]
    with pytest.raises(ValueError, match=rf"^layer 1 \({layer['kind']}\): \w+: .*{says}"):
        DRIVER.execute([{"kind": "pool"}, layer], torch.ones(1, 3, 2, 2))
