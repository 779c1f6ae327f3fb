import copy
import pickle
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from helpers.quantization import QuantizationError, QuantizedModel, Recipe, quantize, replay
from helpers.quantization import kernels as int8
from helpers.quantization.onnx.check import random_images
from tests.quantization import reference
from tests.quantization.networks import images, quantized, small

RECIPES = [
    Recipe(observer="minmax"),
    Recipe(observer="minmax", residual="separate"),
    Recipe(observer="minmax", weight_bits=3, activation_bits=5, per_channel=False),
    Recipe(observer="percentile", weight_observer="mse"),
    Recipe(observer="minmax", equalize=True),
]


def edges(model, mode, x):
    """Every edge's value in one mode."""
    model.mode, values = mode, {}
    model.run(x, lambda name, value: values.__setitem__(name, value.clone()))
    return values


def assert_the_reference(model, x):
    ours, expected = edges(model, "integer", x), reference.run_network(model, x.numpy())
    sums, units = expected.pop("fc")
    assert expected.keys() | {"fc"} == ours.keys()
    for name, codes in expected.items():
        assert np.array_equal(ours[name].numpy(), codes), name
    assert np.allclose(ours["fc"].numpy(), sums * np.array(units), rtol=1e-6)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("recipe", RECIPES)
def test_integer_is_the_reference_bit_for_bit(recipe, seed):
    extremes = [images(2, seed=5), torch.full((1, 3, 9, 9), 1e6), torch.full((1, 3, 9, 9), -1e6)]
    assert_the_reference(quantized(recipe, seed), torch.cat(extremes))


@pytest.mark.parametrize("seed", range(3))
def test_integer_is_the_reference_on_adversarial_parameters(seed):
    """Scales far apart, zero points at both ends, extreme weights and biases, factors that make
    many ties.
    """
    model = quantized(Recipe(observer="minmax", residual=("fused", "separate")[seed % 2]), seed)
    generator = torch.Generator().manual_seed(seed)
    state = model.state_dict()
    for name, tensor in state.items():
        if name.endswith("out_zero_point"):
            tensor.fill_([0, 255, 128][seed])
        elif name.endswith("weight"):
            tensor.copy_(torch.randint(0, 2, tensor.shape, generator=generator) * 254 - 127)
        elif name.endswith("bias"):
            tensor.copy_(torch.randint(-(2**30), 2**30, tensor.shape, generator=generator))
        elif name.endswith("scale"):
            tensor.copy_(2.0 ** torch.randint(-12, 0, tensor.shape, generator=generator))
    model.load_state_dict(state)
    assert_the_reference(model, images(2, seed=seed))


class NoFloats(TorchDispatchMode):
    """Collects the operations that make floating tensors."""

    made = ()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if any(
            isinstance(r, torch.Tensor) and r.is_floating_point()
            for r in torch.utils._pytree.tree_leaves(result)
        ):
            self.made += (str(func),)
        return result


@pytest.mark.parametrize("residual", ["fused", "separate"])
def test_integer_mode_makes_no_floating_tensor(residual):
    model = quantized(Recipe(residual=residual))
    values = edges(model, "integer", images(2))
    for step in list(model.steps.values())[:-1]:
        with NoFloats() as watcher:
            step.integer(*(values[name] for name in step.op.inputs))
        assert not watcher.made, f"{step.op.name}: {watcher.made}"
    with NoFloats() as watcher:
        model.step("pool").simulated(values[model.step("pool").op.inputs[0]])
    assert watcher.made  # the watcher does see floats


@pytest.mark.parametrize("bits", [8, 4, 3, 2])
def test_state_dict_round_trip_is_exact_and_packed(bits):
    recipe = Recipe(observer="minmax", weight_bits=bits)
    first, second = quantized(recipe, seed=0), quantized(recipe, seed=1)
    x = images(4)
    state = first.state_dict()
    packed = state["steps.stem.weight"]
    assert packed.numel() == -(-first.step("stem").codes.numel() * bits // 8)
    second.load_state_dict(state)
    for mode in ("simulated", "integer", "kernel"):
        first.mode = second.mode = mode
        assert torch.equal(first(x), second(x)), mode
        assert first(x[:0]).shape == (0, 5), mode


def test_copies_are_independent_even_with_packed_kernels():
    model = quantized()
    model.mode = "kernel"
    x = images(2)
    expected = model(x)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin(x), expected)
        twin.step("stem").weight.zero_()
        twin.derive_integers()
        assert torch.equal(model(x), expected) and not torch.equal(twin(x), expected)


def test_without_kernels_integers_take_over_and_say_so_and_an_unknown_mode_changes_nothing(
    monkeypatch,
):
    monkeypatch.setattr(int8, "available", lambda: False)
    model = quantized()
    with pytest.warns(UserWarning, match="integers are used instead"):
        model.mode = "kernel"
    with pytest.raises(QuantizationError, match="simulated"):
        model.mode = "int8"
    assert model.mode == "integer"


def test_a_layer_that_could_saturate_computes_in_integers(monkeypatch):
    monkeypatch.setattr(int8, "kernels_saturate", lambda: True)
    ran = Mock(side_effect=AssertionError("the kernel ran"))
    monkeypatch.setattr(int8.PackedConv, "__call__", ran)
    model, x = quantized(), images(4)
    ours = edges(model, "integer", x)["stem"]
    model.step("widen").weight[0, :2] = 127
    model.derive_integers()
    assert torch.equal(model.step("widen").kernel(ours), model.step("widen").integer(ours))


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_an_edge_has_the_bits_of_the_recipe_and_none_of_its_codes_is_larger(bits):
    recipe = Recipe(observer="minmax", activation_bits=bits)
    model, x = quantized(recipe), 9 * images(4)
    again = replay(small(), recipe.as_dict(), (3, 9, 9))
    again.load_state_dict(model.state_dict(), assign=True)
    assert torch.equal(again(x), model(x))
    for one in (model, again):
        assert {edge.bits for edge in one.edges.values() if edge} == {bits}
        coded = [codes for name, codes in edges(one, "integer", x).items() if one.edges[name]]
        assert max(int(codes.max()) for codes in coded) == 2**bits - 1


@pytest.mark.parametrize("bits", [4, 8])
def test_the_images_that_try_out_a_file_use_every_code_alike(bits):
    model = quantized(Recipe(observer="minmax", activation_bits=bits))
    with torch.random.fork_rng():
        codes = model.input.encode(random_images(model, 40)).flatten().long()
    share = codes.bincount(minlength=2**bits) / len(codes)
    assert len(share) == 2**bits and 0.4 / 2**bits < share.min() <= share.max() < 2 / 2**bits


def test_another_precision_is_refused_before_it_changes_an_answer():
    model, x = quantized(), images(4)
    expected = model(x)
    for change in (nn.Module.half, nn.Module.double, lambda m: m.to(torch.bfloat16)):
        with pytest.raises(QuantizationError, match=r"keeps its scales in float32, not torch"):
            change(model)
    with pytest.raises(QuantizationError, match=r"on the CPU, not on meta: leave \.to\(\) out"):
        model.to("meta")
    assert torch.equal(model.float().cpu()(x), expected)
    assert torch.equal(copy.deepcopy(model)(x.half()), model(x.half().float()))


def test_an_operation_in_float_takes_images_of_any_precision():
    model = nn.Sequential(nn.ConvTranspose2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1)).eval()
    made, x = quantize(model, images(), Recipe(observer="minmax")), images(4)
    for one in (x.half(), x.double()):
        assert torch.equal(made(one), made(one.float()))


def test_the_float_network_is_left_alone_and_close():
    model, x = small(), images(64)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    q = quantize(model, x, Recipe(observer="minmax"))
    assert isinstance(q, QuantizedModel) and not q.training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    expected = model(x)
    assert (q(x) - expected).abs().max() <= 0.03 * expected.abs().max()
