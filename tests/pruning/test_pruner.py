"""`prune` as a whole, on the course's own network: counts in closed form, files, ONNX, and
refusals.
"""

import copy
import functools

import numpy as np
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers import metrics, models, pruning
from helpers.metrics import count_parameters as parameters
from helpers.pruning.allocation import cost_of
from helpers.pruning.groups import PruneError
from tests.pruning.zoo import Auxiliary, ToyMobile, build, conv, net

IMAGE = torch.zeros(1, 3, 32, 32)
EXAMPLE = torch.zeros(1, 3, 8, 8)
macs = functools.partial(metrics.count_macs, example_input=IMAGE)


@functools.cache
def mobilenet() -> nn.Module:
    torch.manual_seed(0)
    return models.mobilenet_v2().eval()


COUNTS = {  # parameters and multiply-adds in closed form: hidden widths cut, and all of them
    0: ((2_236_682, 87_976_448), (2_236_682, 87_976_448)),
    0.37: ((1_568_560, 58_550_240), (918_830, 37_278_630)),
    0.5: ((1_333_226, 48_123_392), (587_178, 23_688_448)),
    0.8: ((792_041, 24_335_616), (108_496, 4_783_232)),
}


@pytest.mark.parametrize("ratio", COUNTS)
def test_any_ratio_and_both_scopes(ratio):
    small = (
        pruning.prune(mobilenet(), IMAGE, ratio=ratio, scope=scope) for scope in ("hidden", "all")
    )
    assert tuple((parameters(one), macs(one)) for one in small) == COUNTS[ratio]


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"
)
def test_exported_to_onnx_it_is_the_same(tmp_path):
    x, half = torch.randn(2, 3, 32, 32), pruning.prune(mobilenet(), IMAGE, ratio=0.5)
    torch.onnx.export(half, (x,), tmp_path / "small.onnx", dynamo=False, input_names=["x"])
    session = onnxruntime.InferenceSession(tmp_path / "small.onnx")
    with torch.no_grad():
        np.testing.assert_allclose(
            session.run(None, {"x": x.numpy()})[0], half(x).numpy(), rtol=1e-3, atol=1e-5
        )


def test_groups_of_one_size_go_one_after_the_other_to_meet_a_target():
    """At any one ratio all eight lose the same number of channels, which is a step of a tenth of
    the parameters.
    """
    model = nn.Sequential(
        nn.Linear(16, 16), *[nn.Sequential(nn.ReLU(), nn.Linear(16, 16)) for _ in range(8)]
    ).eval()
    small = pruning.prune(model, torch.zeros(1, 16), target_params=0.65, tolerance=0.02)
    assert parameters(small) == pytest.approx(0.65 * parameters(model), rel=0.02)


def test_layers_that_only_training_calls_cost_parameters_and_no_multiplications():
    model = build(Auxiliary)
    costs = [
        cost_of(model, EXAMPLE, pruning.channel_groups(model, EXAMPLE), what)({})
        for what in ("params", "macs")
    ]
    assert costs == [parameters(model), 3 * 8 * 9 * 64 + 8 * 5]


@pytest.mark.parametrize(("allocation", "target"), [("uniform", 0.5), ("global", 0.75)])
def test_targets_are_met_within_one_percent(allocation, target):
    model = mobilenet()
    small = pruning.prune(model, IMAGE, target_params=target, allocation=allocation, scope="all")
    assert parameters(small) == pytest.approx(target * parameters(model), rel=0.01)
    small = pruning.prune(
        model, IMAGE, target_macs=target * macs(model), allocation=allocation, scope="all"
    )
    assert macs(small) == pytest.approx(target * macs(model), rel=0.01)


@pytest.mark.parametrize("allocation", ["uniform", "global"])
def test_trunk_and_hidden_widths_are_multiples(allocation):
    """Or whole: a group of 24 channels keeps 16 or 24.

    Layers that add to one trunk agree, or it would not run.
    """
    model = mobilenet()
    small = pruning.prune(model, IMAGE, ratio=0.6, scope="all", allocation=allocation, round_to=16)
    before, after = (
        [m.out_channels for m in n.modules() if isinstance(m, nn.Conv2d)] for n in (model, small)
    )
    assert all(now % 16 == 0 or now == was for was, now in zip(before, after, strict=True))
    assert sum(after) < 0.55 * sum(before)
    assert small(IMAGE).shape == (1, 10)


def test_a_network_without_specification_gets_none():
    small = pruning.prune(build(ToyMobile), EXAMPLE)
    with pytest.raises(models.ModelError, match="carries no specification"):
        models.save(small, "nowhere")


def slopes() -> nn.Module:
    return nn.Sequential(conv(3, 8), nn.PReLU(8), conv(8, 5))


def tied() -> nn.Module:
    made = nn.Sequential(conv(3, 8), conv(8, 8), conv(8, 8), conv(8, 5))
    made[2].weight = made[1].weight
    return made


def named_twice() -> nn.Module:
    made = nn.Sequential(conv(3, 8), nn.ReLU(), conv(8, 5))
    made[1].same = made[0]
    return made


@pytest.mark.parametrize("make", [slopes, tied, named_twice])
def test_what_layers_have_beside_plain_weights_survives_a_file(make, tmp_path):
    small = pruning.prune(models.build(make).eval(), EXAMPLE, ratio=0.5, scope="all")
    loaded, x = (
        models.load(models.save(small, tmp_path / "small.safetensors"), make),
        torch.randn(2, 3, 8, 8),
    )
    assert (
        loaded[0].out_channels == 4
        and repr(loaded) == repr(small)
        and torch.equal(loaded(x), small(x))
    )


@pytest.mark.parametrize("count", [1, 16])
def test_a_target_of_multiply_adds_is_for_one_image_with_tensors_that_are_no_buffers(count):
    model = build(net(lambda s, x: s.b(s.a(x - s.mean).relu()), a=conv(3, 32), b=conv(32, 5)))
    model.mean = torch.ones(1, 3, 1, 1)
    small = pruning.prune(
        model, EXAMPLE.expand(count, -1, -1, -1), target_macs=20_000, tolerance=0.1
    )
    assert abs(metrics.count_macs(small, EXAMPLE) - 20_000) <= 2_000


def test_a_forward_that_decides_by_a_width_is_not_cut_to_where_it_decides_otherwise():
    """One channel, which the trial cut leaves, is an odd number like nine; only the cut itself
    shows what eight do.
    """

    def forward(self, x):
        y = self.n(self.a(x))
        return self.b(torch.tanh(y) if self.a.out_channels % 2 else y)

    model = build(net(forward, a=conv(3, 9), n=nn.BatchNorm2d(9), b=conv(9, 5, 1)))
    assert pruning.prune(model, EXAMPLE, ratio=2 / 9, scope="all").a.out_channels == 7
    with pytest.raises(
        PruneError, match=r"tanh: the forward decides by a number .* choose another ratio"
    ):
        pruning.prune(model, EXAMPLE, ratio=1 / 9, scope="all")
    model.a.weight.data[1], model.n.running_mean[1], model.n.running_var[1] = (
        0,
        model.a.bias.data[1],
        0,
    )  # a dead one
    assert pruning.remove_dead_channels(model, EXAMPLE)[1] == {}


REFUSALS = [
    *(
        ({"ratio": r}, f"ratio is {r!r}; expected 0 <= r")
        for r in (1, -0.1, float("nan"), "0.5", True)
    ),
    *(({"target_params": t}, f"target_params is {t!r}") for t in (0.0, float("nan"), True)),
    *(({"target_params": t}, "more than the") for t in (float("inf"), 10**9)),
    *(({"target_macs": 0.5, "tolerance": t}, f"tolerance is {t!r}") for t in (float("nan"), -0.1)),
    *(
        ({name: "magic"}, f"unknown {name} 'magic'")
        for name in ("importance", "allocation", "scope")
    ),
    *(({"round_to": n}, f"round_to is {n!r}; expected a whole") for n in (0, -1, 1.5, None, True)),
    ({"allocation": {"c": 0.5}}, "names 'c'"),
    ({"allocation": {"blocks.0.expand": 1}}, r"allocation\['blocks.0.expand'\] is 1"),
    ({"importance": "taylor"}, "got 0 images"),
    ({"target_params": 0.5, "target_macs": 0.5}, "give one target"),
    ({"target_params": 0.5, "ratio": 0.9}, "a target says how much stays: leave out ratio"),
    *(
        ({"allocation": {}, name: 0.4}, "leave out ratio, target_params and")
        for name in ("ratio", "target_macs")
    ),
    ({"target_macs": 2.4e5}, "target_macs 240,000 is more than the .* macs that"),
    (
        {"target_params": 2},
        r"cannot be met within 1%: the nearest is .* params \(try scope='all' or more tolerance\)",
    ),
    *(({"round_to": n}, "no group has more than 24 units to keep") for n in (24, 25)),
]


def bare():
    return net(lambda s, x: s.b(s.a(x) * s.w), w=nn.Parameter(torch.ones(8, 1, 1)))()


def test_a_network_that_no_file_can_note_says_so_where_it_is_cut():
    model = models.build(bare)
    with pytest.warns(UserWarning, match=r"Net holds a parameter that was cut, .* in these sizes"):
        small = pruning.prune(model.eval(), torch.zeros(1, 3, 8, 8))
    assert models.spec_of(small) is None


@pytest.mark.parametrize(("arguments", "message"), REFUSALS)
def test_refusals_leave_the_model_as_it_was(arguments, message):
    model = build(ToyMobile)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(PruneError, match=message):
        pruning.prune(model, EXAMPLE, **arguments)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    ("layer", "why"), [(nn.Linear(3, 4), "is an output"), (nn.ReLU(), "no layer makes channels")]
)
def test_a_network_without_anything_to_prune_is_refused(layer, why):
    with pytest.raises(PruneError, match=rf"nothing can be pruned .*{why}"):
        pruning.prune(nn.Sequential(layer).eval(), torch.zeros(1, 3))


def test_what_is_kept_is_what_scored_highest():
    """With the filters of one hidden channel made tiny, that channel goes first."""
    model = build(ToyMobile)
    block = model.blocks[0]
    for layer in (block.expand, block.depthwise):
        layer.weight.data[17] *= 1e-3
    small = pruning.prune(model, EXAMPLE, allocation={"blocks.0.expand": 1 / 24})
    assert torch.equal(
        small.blocks[0].expand.weight,
        torch.cat([block.expand.weight[:17], block.expand.weight[18:]]),
    )


@pytest.mark.parametrize("own", [3, conv(3, 8)])
def test_a_network_may_call_something_spec_and_is_told_so_when_it_is_saved(own, tmp_path):
    model = net(lambda s, x: s.b(F.relu(s.a(x))))()
    model.spec = own
    small = pruning.prune(model.eval(), EXAMPLE, scope="all")
    assert small.a.out_channels == 4 and str(small.spec) == str(own)
    with pytest.raises(models.ModelError, match="declare_builder"):
        models.save(small, tmp_path / "small.safetensors")
    with pytest.raises(models.ModelError, match=r"calls something `spec`.* rename it"):
        models.declare_builder(small, lambda: copy.deepcopy(model))
