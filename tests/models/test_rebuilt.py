"""Saved is what was given: an edited network is refused by name, or comes back as it is."""

import copy
import functools
import time
from collections import OrderedDict

import numpy
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn.utils import parametrize
from torch.optim.swa_utils import AveragedModel

from helpers import models, passes, pruning, quantization
from helpers.dataset import Normalization
from helpers.models import ModelError
from helpers.models.rebuilt import _where_unlike


def network():
    """A network in which each kind of edit finds a layer; the same weights each time."""
    torch.manual_seed(0)
    layers = OrderedDict(
        conv=nn.Conv2d(3, 8, 3, padding=1),
        norm=nn.BatchNorm2d(8),
        act=nn.ReLU(),
        pool=nn.MaxPool2d(3, 1, 1),
        deep=nn.Conv2d(8, 8, 3, padding=1),
        drop=nn.Dropout(0.5),
        mean=nn.AdaptiveAvgPool2d(1),
        flat=nn.Flatten(),
        head=nn.Linear(8, 5),
    )
    return nn.Sequential(layers)


def replace(name, layer):
    return lambda net: net.set_submodule(name, layer())


def change(name, **values):
    return lambda net: vars(net.get_submodule(name)).update(values)


def hook(name):
    return lambda net: net.get_submodule(name).register_forward_hook(_twice)


def hook_before(name):
    return lambda net: net.get_submodule(name).register_forward_pre_hook(_twice_before)


def _twice(module, inputs, output):
    return 2 * output


def _twice_before(module, inputs):
    return tuple(2 * x for x in inputs)


def override(name, method):
    """Set a method on one module alone."""

    def edit(net):
        module = net.get_submodule(name)
        setattr(module, method, functools.partial(_negated, getattr(type(module), method), module))

    return edit


def _negated(function, *arguments):
    return -function(*arguments)


class Doubled(nn.Module):
    def forward(self, weight):
        return 2 * weight


# Each kind of edit, with the module that the error must name.
EDITS = {
    **{
        f"{name} becomes {layer.__name__}": (name, replace(name, layer))
        for name in ("act", "pool", "norm", "drop")
        for layer in (nn.Identity, nn.SiLU, nn.Sigmoid)
        if (name, layer) != ("drop", nn.Identity)
    },
    **{
        f"{name}.{attribute} = {value}": (name, change(name, **{attribute: value}))
        for name, attribute, value in [
            ("conv", "stride", (2, 2)),
            ("deep", "stride", (2, 2)),
            ("conv", "dilation", (2, 2)),
            ("conv", "padding", (0, 0)),
            ("conv", "_reversed_padding_repeated_twice", (2, 2, 2, 2)),
            ("norm", "eps", 0.5),
            ("pool", "kernel_size", 5),
            ("pool", "stride", 2),
            ("pool", "ceil_mode", True),
            ("mean", "output_size", (1, 1)),
            ("flat", "start_dim", 2),
        ]
    },
    "conv pads otherwise": ("conv", change("conv", padding_mode="circular")),
    **{f"a hook on {name or 'all'}": (name, hook(name)) for name in ("", "norm", "head")},
    **{f"a hook before {name}": (name, hook_before(name)) for name in ("conv", "head")},
    "a forward of its own": ("act", override("act", "forward")),
    "another _conv_forward": ("conv", override("conv", "_conv_forward")),
    "a parametrization": (
        "head",
        lambda net: parametrize.register_parametrization(net.head, "weight", Doubled()),
    ),
    "a layer more": ("more", lambda net: net.add_module("more", nn.ReLU())),
    "a layer less": ("act", lambda net: delattr(net, "act")),
    "other classes": ("head", replace("head", lambda: nn.Linear(8, 3))),
    "half of it in half": ("deep", lambda net: net.deep.half()),
    "a lazy tensor": ("conv", lambda net: net.conv.register_buffer("late", torch.ones(1))),
}


# What is made of these holds no trace of the edit, or holds it in full.
STILL_SAVED = {
    *("norm becomes Identity", "norm.eps = 0.5", "mean.output_size = (1, 1)"),
    *("a hook on all", "a hook on norm", "a lazy tensor"),
    "conv._reversed_padding_repeated_twice = (2, 2, 2, 2)",
}


def edited(name):
    net = network()
    EDITS[name][1](net)
    return net


def stages(net, x):
    """The network and what is made from it, where that is possible."""
    yield net
    for make in (
        lambda: pruning.prune(net, x, ratio=0.5, scope="all"),
        lambda: passes.optimize(net, x)[0],
        lambda: quantization.quantize(net, torch.randn(8, 3, 8, 8)),
    ):
        try:
            yield make()
        except (ValueError, RuntimeError):
            continue


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_network_is_refused_or_saved_as_it_is(name, tmp_path):
    net, x, file = edited(name).eval(), torch.randn(2, 3, 8, 8), tmp_path / "m.safetensors"
    net.spec = models.Spec(f"{__name__}:network", {}, make=network)
    with pytest.raises(ModelError) as caught:
        models.save(net, file)
    assert EDITS[name][0] in str(caught.value) and "declare_builder" in str(caught.value)
    saved = 0
    for made in stages(net, x):
        try:
            models.save(made, file)
        except ModelError:
            continue
        saved += 1
        assert torch.equal(models.load(file, network)(x), made(x))
    assert (saved > 0) == (name in STILL_SAVED)


@pytest.mark.parametrize("name", EDITS)
def test_the_remedy_works(name, tmp_path):
    factory, x, file = functools.partial(edited, name), torch.randn(2, 3, 8, 8), tmp_path / "m"
    factory.__module__, factory.__qualname__ = __name__, "factory"
    net = models.declare_builder(edited(name).eval(), factory)
    models.save(net, file)
    if name not in ("flat.start_dim = 2", "half of it in half"):  # which do not run
        assert torch.equal(models.load(file, factory)(x), net(x))


class Counting(nn.Module):
    """Remembers in its attributes what it has seen, as networks with a cache do."""

    def __init__(self):
        super().__init__()
        self.layers = network()
        self.calls, self.last, self.cache, self.scale = 0, None, {}, 1.0

    def forward(self, x):
        self.calls, self.last = self.calls + 1, x
        self.cache[x.shape] = torch.ones(x.shape[2:])
        return self.scale * self.layers(x * self.cache[x.shape])


class OnWindows:
    """An object whose default text has its address in capitals there."""

    def __repr__(self):
        return f"<thing at 0x{id(self):016X}>"


HARMLESS = {
    "nothing": lambda net: net,
    "trained": lambda net: net.train(),
    "dropout": change("layers.drop", p=0.9),
    "momentum": change("layers.norm", momentum=None),
    "in place": change("layers.act", inplace=True),
    "frozen": lambda net: net.requires_grad_(False),
    "run before": lambda net: net(torch.randn(2, 3, 8, 8)),
    "a note": lambda net: setattr(net.layers.conv, "note", "mine"),
    "an address on Windows": lambda net: setattr(net, "thing", OnWindows()),
    "channels_last": lambda net: net.to(memory_format=torch.channels_last),
    "half": lambda net: net.half(),
    "compiled in place": lambda net: net.compile(backend="eager"),
    "a matrix of whole numbers": lambda net: net,
}


class Indexed(Counting):
    """Its first matrix is a table of places."""

    def __init__(self):
        super().__init__()
        places = nn.Parameter(torch.arange(16).view(4, 4), requires_grad=False)
        self._parameters = {"places": places} | self._parameters


def assert_saved(model, path):
    """The file holds the network's own tensors."""
    expected = model.state_dict()
    found = load_file(path)
    assert found.keys() == expected.keys() and len(found) > 0
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


@pytest.mark.parametrize("name", HARMLESS)
def test_what_makes_no_difference_is_saved(name, tmp_path):
    net = models.build(Indexed if "matrix" in name else Counting).eval()
    HARMLESS[name](net)
    assert_saved(net, models.save(net, tmp_path / "m.safetensors"))


def test_a_network_in_half_can_be_declared_and_a_partial_makes_one(tmp_path):
    net = models.declare_builder(Counting().half().eval(), Counting)
    assert_saved(net, models.save(net, tmp_path / "m.safetensors"))
    make = functools.partial(nn.Linear, 3, 2)
    again = models.load(models.save(models.build(make), tmp_path / "p.safetensors"), factory=make)
    assert isinstance(again, nn.Linear)


class Turning(nn.Module):
    """With complex numbers, as for rotary positions, which `half` leaves as they are."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)
        self.register_buffer("turn", torch.full((4, 1, 1), 1j))

    def forward(self, x):
        return self.conv(x) * self.turn.imag.to(x.dtype)


def test_in_half_precision_complex_numbers_stay_whole(tmp_path):
    net = models.build(Turning).half().eval()
    found = models.load(models.save(net, tmp_path / "m.safetensors"), Turning)
    assert torch.equal(found.turn, net.turn) and found.conv.weight.dtype == torch.float16


def test_an_int8_network_is_saved_in_each_mode(tmp_path):
    x = torch.randn(2, 3, 8, 8)
    net = models.build(network).eval()
    quantized = quantization.quantize(net, torch.randn(8, 3, 8, 8))
    for mode in (*quantization.MODES, "integer", "simulated"):
        quantized.mode = mode
        quantized(x)  # which keeps what it has prepared
        assert_saved(quantized, models.save(quantized, tmp_path / "m.safetensors"))


def test_answers_decide_about_attributes_of_own_classes(tmp_path):
    net = models.build(Counting).eval()
    net.scale = 3.0
    with pytest.raises(ModelError, match=r"scale is 3\.0, and 1\.0 in what .*Counting"):
        models.save(net, tmp_path / "m.safetensors")


class Own(nn.Module):
    """A class of one's own, whose attributes may show only for other inputs than `save` tries."""

    shared = 1.0

    def __init__(self, kind="images"):
        super().__init__()
        self.first = nn.Embedding(9, 8) if kind == "tokens" else nn.Conv2d(3, 8, 1)
        self.limit, self.mode, self.p, self.momentum = 1e3, "nearest", 3.0, 0.1
        self.inplace, self.dropout, self._mode, self.names = False, 0.0, "a", ("a", "b")
        self.scale, self.held, self.table = times(1.0), Held(), numpy.ones(5000, numpy.float32)

    def forward(self, x, *more):
        x = self.first(x).flatten(2).mean(2) * self.held.value * float(self.table[2500])
        for other in more:
            x = x + self.first(other).flatten(2).mean(2)
        if len(x) > 100:
            x = x.abs().pow(self.p) * self.shared
        return self.scale(x).clamp(max=self.limit)


class OfTwo(Own):
    def forward(self, x, y):
        return super().forward(x, y)


class Held:
    value = 1.0


def times(factor):
    return lambda x: factor * x


OWN = {
    "images": (Own, torch.randn(2, 3, 8, 8)),
    "tokens": (functools.partial(Own, "tokens"), torch.randint(9, (2, 5))),
    "two": (OfTwo, torch.randn(2, 3, 8, 8), torch.randn(2, 3, 8, 8)),
}
# What `repr` does not show.
HIDDEN = {
    "a closure": lambda net: setattr(net, "scale", times(2.0)),
    "an object": lambda net: setattr(net.held, "value", 2.0),
    "a large array": lambda net: net.table.__setitem__(2500, 2.0),
}


def own(kind):
    factory, *inputs = OWN[kind]
    factory = functools.partial(factory)
    factory.__module__, factory.__qualname__ = __name__, f"own_{kind}"
    return models.build(factory).eval(), factory, inputs


OTHER_VALUES = {float: 2.5, str: "b", bool: True, tuple: ()}
SETTINGS = [name for name, value in vars(Own()).items() if type(value) in OTHER_VALUES]
SETTINGS.remove("training")


@pytest.mark.parametrize("kind", OWN)
@pytest.mark.parametrize("name", [*SETTINGS, "shared"])
def test_an_attribute_decides_that_the_example_does_not_show(kind, name, tmp_path):
    net, _, inputs = own(kind)
    before = net(*inputs)
    setattr(net, name, OTHER_VALUES[type(getattr(net, name))])
    assert torch.equal(before, net(*inputs))
    with pytest.raises(ModelError, match=rf"^{name} is "):
        models.save(net, tmp_path / "m.safetensors")


@pytest.mark.parametrize("kind", OWN)
@pytest.mark.parametrize("name", HIDDEN)
def test_answers_show_what_no_text_shows(kind, name, tmp_path):
    net, factory, inputs = own(kind)
    file = models.save(net, tmp_path / "m.safetensors")
    assert torch.equal(models.load(file, factory)(*inputs), net(*inputs))
    HIDDEN[name](net)
    with pytest.raises(ModelError, match="answers differently"):
        models.save(net, file)


def test_a_part_in_train_mode_would_come_back_in_eval_mode(tmp_path):
    net = models.build(network).eval()
    net.norm.train()
    with pytest.raises(ModelError, match=r"norm\.training is True.*model\.eval\(\)"):
        models.save(net, tmp_path / "m.safetensors")
    models.save(net.eval(), tmp_path / "m.safetensors")
    net.train().norm.eval()  # as networks with frozen statistics are trained
    models.save(net, tmp_path / "m.safetensors")


class Remembering(nn.Linear):
    def get_extra_state(self):
        return {"calls": 3}

    def set_extra_state(self, state):
        pass


@pytest.mark.parametrize(
    "layer", [nn.LazyLinear(3), Remembering(3, 3), nn.Linear(3, 3, device="meta")]
)
def test_what_has_no_numbers_is_named(layer, tmp_path):
    net = nn.Sequential(layer)
    net.spec = models.Spec("tiny", {})
    with pytest.raises(ModelError, match=r"^0\.(weight|_extra_state) has no numbers"):
        models.save(net, tmp_path / "m.safetensors")


def test_code_is_shown_where_it_differs(tmp_path):
    net = models.build(network).eval()
    net.act = nn.SiLU()
    folded, _ = passes.optimize(net, torch.randn(2, 3, 8, 8))
    with pytest.raises(ModelError, match=r"(?s)code is (.*silu.*), and (.*relu.*) in what"):
        models.save(folded, tmp_path / "m.safetensors")


@pytest.mark.parametrize(
    "change",
    [
        nn.utils.spectral_norm,
        nn.utils.parametrizations.spectral_norm,
        pytest.param(
            nn.utils.weight_norm,
            marks=pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated"),
        ),
    ],
)
@pytest.mark.parametrize("gradients", [False, True])
def test_a_weight_that_each_call_computes_is_no_setting(change, gradients, tmp_path):
    def factory():
        net = network()
        change(net.deep)
        return net.eval()

    net, x = models.build(factory), torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn(parameter.shape))
    with torch.set_grad_enabled(gradients):  # as at the end of a training
        net(x)
    file = models.save(net, tmp_path / "m.safetensors")
    assert torch.equal(models.load(file, factory)(x), net(x))


@pytest.mark.parametrize("route", ["fx", "export"])
def test_a_copied_graph_is_saved_and_fed_like_the_graph(route, tmp_path):
    net, x = models.build(network).eval(), torch.randn(2, 3, 8, 8)
    net.input_normalization = Normalization((0.1,) * 3, (0.2,) * 3)
    folded, _ = passes.optimize(net, x, route=route)
    copied = copy.deepcopy(copy.deepcopy(folded))
    assert copied.input_normalization == net.input_normalization
    file = models.save(copied, tmp_path / "m.safetensors")
    assert torch.equal(models.load(file, network)(x), folded(x))
    folded.compile(backend="eager")  # which is bound to this one
    copied = copy.deepcopy(folded)
    next(copied.parameters()).data.zero_()
    assert not torch.equal(copied(x), folded(x))


def emptied(widths):
    return nn.Sequential(nn.Linear(3, widths.pop()), nn.Linear(2, widths.pop(0)))


def test_a_builder_may_change_its_arguments(tmp_path):
    widths, x = [4, 2], torch.randn(5, 3)
    net = models.build(emptied, widths=widths).eval()
    assert widths == [4, 2] == net.spec.arguments["widths"]
    file = models.save(net, tmp_path / "m.safetensors")
    assert torch.equal(models.load(file, emptied)(x), net(x))


def with_bias(dtype=torch.float32):
    return nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU()).to(dtype)


def in_double():
    return with_bias(torch.float64)


@pytest.mark.parametrize("factory", [with_bias, in_double])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_an_optimised_network_of_another_type_is_saved(factory, dtype, tmp_path):
    network, x = models.build(factory).to(dtype).eval(), torch.randn(2, 3, 8, 8, dtype=dtype)
    file = models.save(passes.optimize(network, x)[0], tmp_path / "m.safetensors")
    torch.testing.assert_close(models.load(file, factory)(x), network(x))


@pytest.mark.parametrize(
    "wrap",
    [functools.partial(torch.compile, backend="eager"), nn.DataParallel, AveragedModel],
)
def test_of_a_wrapper_the_network_inside_is_saved(wrap, tmp_path):
    net = models.build(network).eval()
    with pytest.raises(ModelError, match=r"carries no specification.*save the network itself"):
        models.save(wrap(net), tmp_path / "m.safetensors")


def quickest(work):
    """The least processor time of three calls."""
    times = []
    for _ in range(3):
        before = time.process_time()
        work()
        times.append(time.process_time() - before)
    return min(times)


def test_saving_is_quick_and_leaves_random_numbers_alone(tmp_path):
    building = quickest(models.mobilenet_v2)
    model = models.mobilenet_v2().eval()
    state = torch.get_rng_state()
    saving = quickest(lambda: models.save(model, tmp_path / "m.safetensors"))
    assert saving < 20 * building  # on whatever machine
    assert torch.equal(state, torch.get_rng_state())


def test_a_difference_is_shown_where_it_is():
    same = "x" * 100
    for first, second in ((f"{same}a", f"{same}b"), (same, f"{same}tail"), (f"{same}tail", same)):
        assert _where_unlike(first, second) == 60
    assert _where_unlike("a", "b") == 0
