"""Which pieces become a fused layer, that it computes what they did, and that nobody notices its
memory format.
"""

import copy
import io
import re

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from helpers import metrics, models
from helpers.graphs.tracing import trace
from helpers.passes import PIPELINES, Passer, optimize
from helpers.passes.fused_layer import Activation, FusedLayer
from tests.marks import IN_CI
from tests.passes.graphs import differences, network
from tests.passes.zoo import hooked, norm, with_conv

IMAGES = (2, 4, 8, 8)


def conv(outside=4, kernel=3, **settings):
    """Keeps the shape of IMAGES."""
    return nn.Conv2d(4, outside, kernel, padding=settings.pop("padding", kernel // 2), **settings)


def fused(graph_module):
    """The endings of the fused nodes: what is added, and the activation."""
    modules = dict(graph_module.named_modules())
    calls = [
        node
        for node in graph_module.graph.nodes
        if isinstance(modules.get(node.target), FusedLayer)
    ]
    found = [
        ("other" if len(node.args) == 2 else "", modules[node.target].activation) for node in calls
    ]
    return [
        (other, "none" if activation is None else activation.name) for other, activation in found
    ]


def check(net, x, route="fx"):
    """Fuse, compare in float64 (composition) and float32 (kernel), and give back the graph and the
    reasons.
    """
    graph_module, report = optimize(copy.deepcopy(net), x.clone(), level="inference", route=route)
    with torch.no_grad():
        exact = copy.deepcopy(net).double()(x.double())
        own = (net(x.clone()) - exact).abs().max() / exact.abs().max()
        error = (graph_module(x.clone()) - exact).abs().max() / exact.abs().max()
        assert error <= max(1e-5, 4 * own)
        result = copy.deepcopy(graph_module).double()(x.double())
        torch.testing.assert_close(result, exact, rtol=1e-10, atol=1e-10 * exact.abs().max().item())
    return graph_module, [reason for name, _, reason in report.declined if name == "fusion"]


MUST_FUSE = {
    "relu": (lambda net, x: F.relu(net.conv(x)), "relu"),
    "relu_ method": (lambda net, x: net.conv(x).relu_(), "relu"),
    "relu6 module in place": (lambda net, x: net.relu6(net.conv(x)), "hardtanh"),
    "hardtanh with other limits": (lambda net, x: F.hardtanh(net.conv(x), -0.5, 0.25), "hardtanh"),
    "leaky relu": (lambda net, x: F.leaky_relu(net.conv(x), 0.3), "leaky_relu"),
    "hardswish": (lambda net, x: F.hardswish(net.conv(x)), "hardswish"),
    "silu": (lambda net, x: F.silu(net.conv(x)), "silu"),
    "sigmoid": (lambda net, x: torch.sigmoid(net.conv(x)), "sigmoid"),
    "tanh": (lambda net, x: torch.tanh(net.conv(x)), "tanh"),
    "gelu": (lambda net, x: F.gelu(net.conv(x)), "gelu"),
    "padding by name": (lambda net, x: F.relu(net.same(x)), "relu"),
    "no padding, by name": (lambda net, x: F.relu(net.valid(x)), "relu"),
}


def branch_write(net, x):
    y = net.conv(x)
    x.mul_(2)
    return F.relu(y) + x


def relu(net, x):
    return F.relu(net.conv(x))


MUST_DECLINE = {
    "used twice": (
        lambda net, x: (lambda y: F.relu(y) * y)(net.conv(x)),
        {},
        "is also used by mul",
    ),
    "in place": (
        lambda net, x: (lambda y: torch.cat([F.relu_(y), y]))(net.conv(x)),
        {},
        "is also used by cat",
    ),
    "a limit that is computed": (
        lambda net, x: F.hardtanh(net.conv(x), 0, x.shape[0]),
        {},
        "known beforehand",
    ),
    "tanh gelu": (lambda net, x: F.gelu(net.conv(x), approximate="tanh"), {}, "approximate='tanh'"),
    "a hook": (relu, {"conv": hooked(conv(), lambda _: None)}, "hooks"),
    "reflect": (relu, {"conv": conv(padding_mode="reflect")}, "padding_mode='reflect'"),
    "transposed": (relu, {"conv": nn.ConvTranspose2d(4, 4, 3)}, "no fused form of ConvTranspose2d"),
    "one dimension": (
        lambda net, x: F.relu(net.conv(x[0])),
        {"conv": nn.Conv1d(8, 4, 3)},
        "no fused form of Conv1d",
    ),
    "no batch": (lambda net, x: net.conv(x[0]), {}, "4 dimensions"),
    "uneven same": (
        relu,
        {"conv": conv(kernel=2, padding="same")},
        "left and right by different amounts",
    ),
    "input written in between": (branch_write, {}, "mul_, which stands in between, may write"),
    "added to itself": (lambda net, x: (lambda y: y + y)(net.conv(x)), {}, "is added to itself"),
    "broadcast": (lambda net, x: net.conv(x) + x[:, :, :1, :1], {}, "have different shapes"),
    "broadcast of the batch": (lambda net, x: net.conv(x) + x[:1], {}, "have different shapes"),
    "another dtype": (lambda net, x: net.conv(x) + x.double(), {}, "have different dtypes"),
    "alpha": (lambda net, x: torch.add(net.conv(x), x, alpha=2), {}, "alpha"),
    "sum used twice": (
        lambda net, x: (lambda y: (x + y) * y)(net.conv(x)),
        {},
        "is also used by mul",
    ),
    "sum in place": (
        lambda net, x: (z := x.exp()).view_as(z) * z.add_(net.conv(x)),
        {},
        "writes into exp",
    ),
}


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("case", MUST_DECLINE)
def test_what_must_stay_is_declined_with_the_reason(case):
    forward, parts, expected = MUST_DECLINE[case]
    graph_module, reasons = check(
        network(forward, **({"conv": conv()} | parts)), torch.randn(IMAGES)
    )
    assert all(ending == ("", "none") for ending in fused(graph_module))
    assert any(expected in reason for reason in reasons), reasons


ADDITIONS = {
    "x + conv": (lambda net, x: (lambda x: x + net.two(x))(net.one(x).exp()), [("other", "none")]),
    "conv + x": (lambda net, x: (lambda x: net.two(x) + x)(net.one(x).exp()), [("other", "none")]),
    "input needed later": (lambda net, x: (x + net.two(x)) * x.exp() - x, [("other", "none")]),
    "in place": (lambda net, x: (lambda y: y.add_(x))(net.two(x)), [("other", "none")]),
    "two convolutions": (lambda net, x: net.one(x) + net.two(x), [("other", "none")]),
    "then relu": (lambda net, x: F.relu(x + net.two(x)), [("other", "relu")]),
    "then relu6": (lambda net, x: F.relu6(x + net.two(x)), [("other", "none")]),
    "relu, then added": (lambda net, x: x + F.relu(net.two(x)), [("", "relu")]),
    "both": (
        lambda net, x: x + net.two(F.relu6(net.one(x))),
        [("", "hardtanh"), ("other", "none")],
    ),
    "called twice": (
        lambda net, x: F.relu(net.one(F.relu6(net.one(x)))),
        [("", "hardtanh"), ("", "relu")],
    ),
}


@pytest.mark.parametrize("route", ["fx", "export"])
@pytest.mark.parametrize("case", [*MUST_FUSE, *ADDITIONS])
def test_an_activation_or_a_residual_becomes_part_of_the_convolution(case, route):
    forward, expected = (MUST_FUSE | ADDITIONS)[case]
    parts = {"conv": conv(), "relu6": nn.ReLU6(inplace=True), "one": conv(), "two": conv(kernel=1)}
    parts |= {"same": conv(padding="same", dilation=2), "valid": conv(padding="valid")}
    x = 3 * torch.randn(IMAGES)
    before = x.clone()
    graph_module, reasons = check(network(forward, **parts), x, route)
    with torch.no_grad():
        graph_module(x)
    assert torch.equal(x, before)
    endings = fused(graph_module)
    if case in MUST_FUSE:
        assert (endings, reasons) == ([("", expected)], [])
    else:
        assert [ending for ending in endings if ending != ("", "none")] == expected


GROWING = [
    (
        (1, 4, 8, 8),
        lambda net, x: net.conv(x) + net.table,
    ),  # with one image the shapes agree; later it is broadcast
    ((3, 4, 1, 1), lambda net, x: (y := net.conv(x), y.flatten(1).clamp_(0, 1))[0]),
]


@pytest.mark.parametrize(("example", "run"), GROWING)
@torch.no_grad()
def test_a_batch_of_one_and_a_map_of_one_pixel_may_grow_later(example, run):
    net, x = network(run, conv=conv(), table=torch.randn(1, 4, 8, 8)), torch.randn(3, 4, 8, 8)
    graph_module, _ = optimize(net, torch.randn(example), level="inference")
    torch.testing.assert_close(graph_module(x), net(x), rtol=1e-4, atol=1e-5)


CONVOLUTIONS = {
    "dense": nn.Conv2d(5, 7, 3, padding=1),
    "strided": nn.Conv2d(3, 8, 3, 2, 1),
    "depthwise": nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False),
    "depthwise strided": nn.Conv2d(12, 12, 5, 2, 2, groups=12),
    "grouped": nn.Conv2d(8, 12, 3, groups=4),
    "pointwise": nn.Conv2d(6, 10, 1),
    "pointwise, no bias": nn.Conv2d(6, 10, 1, bias=False),
    "uneven": nn.Conv2d(4, 6, (3, 5), (1, 2), (2, 0), (2, 1), 2),
}
RELU, RELU6 = Activation("relu"), Activation("hardtanh", (0.0, 6.0))
COMPOSED = [
    (layer, *end) for layer in CONVOLUTIONS for end in ((None, None), (RELU6, None), (RELU, 4))
]
COMPOSED += [
    (layer, a, batch) for layer in ("dense", "pointwise") for a in (None, RELU) for batch in (1, 4)
]


@pytest.mark.parametrize(("layer", "activation", "batch"), COMPOSED)
@torch.no_grad()
def test_a_kernel_computes_the_composition(layer, activation, batch):
    """As exact as float32 can be, judged by float64 and by the composition's own error; a batch
    stands for a sum.
    """
    layer = CONVOLUTIONS[layer]
    inputs = [3 * torch.randn(batch or 3, layer.in_channels, 11, 9)]
    inputs += [] if batch is None else [torch.randn_like(layer(inputs[0]))]
    fused, before = FusedLayer(layer, activation), [value.clone() for value in inputs]
    assert fused.why_no_kernel(*inputs) is None
    result = fused(*inputs)
    assert torch.equal(fused(*inputs), result)  # nothing was used up
    assert all(torch.equal(one, other) for one, other in zip(inputs, before, strict=True))
    exact = copy.deepcopy(fused).double().composition(*(value.double() for value in inputs))
    scale = exact.abs().max()
    error, own = (
        (result - exact).abs().max() / scale,
        (fused.composition(*inputs) - exact).abs().max() / scale,
    )
    assert result.shape == exact.shape and error <= max(1e-5, 4 * own)
    last = fused(*(value.contiguous(memory_format=torch.channels_last) for value in inputs))
    torch.testing.assert_close(last, result, rtol=1e-5, atol=1e-5)


def pointwise(activation=RELU6):
    return FusedLayer(nn.Conv2d(6, 4, 1), activation).requires_grad_(False)


X = torch.randn(2, 6, 5, 7)
NO_KERNEL = [
    (lambda: pointwise().double(), (X.double(),), "torch.float64, torch.float64"),
    (lambda: pointwise().half(), (X,), "torch.float32, torch.float16"),
    (pointwise, (X[0],), "4 dimensions.*'cpu', 3"),
    (lambda: pointwise().to("meta"), (X.to("meta"),), "CPU.*'meta', 4"),
    (pointwise, (X, torch.randn(1, 4, 1, 1)), r"\(1, 4, 1, 1\)"),
    (pointwise, (X, torch.randn(3, 1, 4, 5, 7)), r"\(3, 1, 4, 5, 7\)"),
    (pointwise, (X, torch.randn(2, 4, 5, 7).double()), "torch.float64"),
    (pointwise, (X[..., :1, :1], torch.randn(2, 4, 1, 1)), "a single channel or a single pixel"),
    (lambda: FusedLayer(nn.Conv2d(6, 1, 1)), (X, torch.randn(2, 1, 5, 7)), "a single channel"),
    (pointwise, (X[:0],), "nothing to compute"),
    (pointwise, (X,), "no oneDNN"),
]


@pytest.mark.parametrize(("build", "inputs", "reason"), NO_KERNEL)
def test_where_no_kernel_can_run_the_composition_does(build, inputs, reason, monkeypatch):
    fused = build()
    if "oneDNN" in reason:
        monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert re.search(reason, fused.why_no_kernel(*inputs))
    if fused.weight.dtype == inputs[0].dtype:
        result = fused(*inputs)
        assert result.device.type == "meta" or torch.equal(result, fused.composition(*inputs))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # which torch itself calls
@pytest.mark.parametrize("wanted", ["x", "weight", "bias"])
def test_gradients_are_those_of_the_composition(wanted):
    fused, x = pointwise(), X.clone()
    tensor = x if wanted == "x" else getattr(fused, wanted)
    tensor.requires_grad_()
    gradients = []
    for run in (fused, fused.composition):
        tensor.grad = None
        run(x).square().sum().backward()
        gradients.append(tensor.grad)
    fused.requires_grad_(False)
    along = [torch.func.jvp(run, (X,), (X,))[1] for run in (fused, fused.composition)]
    assert all(pair[0].abs().max() > 0 and torch.equal(*pair) for pair in (gradients, along))


def test_autocast_and_tracers_see_the_composition():
    fused, batch = pointwise().eval(), torch.export.Dim("batch", min=2, max=64)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        result, expected = fused(X), F.relu6(F.conv2d(X, fused.weight, fused.bias))
    assert result.dtype == torch.bfloat16 and torch.equal(result, expected)
    with FakeTensorMode(), torch.no_grad():
        assert FusedLayer(nn.Conv2d(6, 4, 1))(torch.empty(2, 6, 5, 7)).shape == (2, 4, 5, 7)
    exported = torch.export.export(fused, (X,), dynamic_shapes=({0: batch},))
    file, larger = io.BytesIO(), torch.randn(7, 6, 5, 7)
    torch.export.save(exported, file)
    file.seek(0)
    for network_again in (
        exported.module(),
        torch.export.load(file).module(),
        fx.symbolic_trace(nn.Sequential(fused)),
    ):
        torch.testing.assert_close(network_again(larger), fused(larger))


def test_the_network_can_be_copied_cast_and_saved_after_it_ran():
    fused, other = pointwise(), pointwise()
    expected = fused(X)
    assert torch.equal(copy.deepcopy(fused)(X), expected) and fused.state_dict().keys() == {
        "weight",
        "bias",
    }
    file = io.BytesIO()
    torch.save(fused, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(X), expected)
    other(X)
    other.load_state_dict(fused.state_dict())
    assert torch.equal(other(X), expected)
    double = copy.deepcopy(fused).double()
    torch.testing.assert_close(double(X.double()).float(), expected)
    assert torch.equal(double.float()(X), expected)
    for batch in (1, 3, 1, 2, 3):  # shapes take turns
        torch.testing.assert_close(
            fused(X[:1].repeat(batch, 1, 1, 1))[-1:], fused.composition(X[:1])
        )


IN_PLACE, OTHER_DATA = (lambda w: w.mul_(-1)), (lambda w: setattr(w, "data", -w.data))


@pytest.mark.parametrize("change", [IN_PLACE, OTHER_DATA])
def test_a_new_weight_is_noticed_but_a_change_through_data_needs_a_copy(change):
    """PyTorch does not count it.

    The day the second assertion fails, the docstring of fused_layer.py can say so.
    """
    fused = pointwise()
    fused(X)
    change(fused.weight)
    before = fused(X)
    torch.testing.assert_close(before, fused.composition(X))
    fused.weight.data.mul_(-1)
    assert torch.equal(fused(X), before)
    torch.testing.assert_close(copy.deepcopy(fused)(X), fused.composition(X))


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_a_step_of_a_fused_optimizer_is_noticed_although_pytorch_does_not_count_it(optimizer):
    """With a look at the network between the gradient and the step, as a training loop has it."""
    fused = FusedLayer(nn.Conv2d(6, 4, 1), RELU6)
    step = optimizer(fused.parameters(), lr=0.1, fused=True)
    fused(X).sum().backward()
    with torch.no_grad():
        before = fused(X)
        version = fused.weight._version
        step.step()
        step.zero_grad()
        assert fused.weight._version == version  # the day this fails, fused_layer.py need not count
        torch.testing.assert_close(fused(X), fused.composition(X))
        assert not torch.allclose(fused(X), before)


class Kernels(TorchDispatchMode):
    """Counts the calls of fused kernels."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.calls += function.name().startswith("mkldnn::_convolution_pointwise")
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("route", "batch"), [("fx", 1), ("fx", 3), pytest.param("export", 2, marks=IN_CI)]
)
@torch.inference_mode()
def test_mobilenet_runs_on_kernels_throughout_and_comes_back_fused(route, batch, tmp_path):
    with torch.inference_mode(False):
        model, x = (
            metrics.randomize_batchnorm(models.mobilenet_v2()).eval(),
            torch.randn(batch, 3, 32, 32),
        )
    graph_module, _ = optimize(model, x, level="inference", route=route)
    exact = copy.deepcopy(model).double()(x.double())
    own = (model(x) - exact).abs().max()
    with Kernels() as kernels:
        result = graph_module(x)
    assert (result - exact).abs().max() <= max(
        1e-5 * exact.abs().max(), 4 * own
    ) and kernels.calls == 52
    many = torch.randn(5, 3, 32, 32)  # another batch than it was optimised for
    torch.testing.assert_close(graph_module(many), model(many), rtol=1e-4, atol=1e-4)
    models.save(graph_module, tmp_path / "fused.safetensors")
    loaded = models.load(tmp_path / "fused.safetensors")
    assert sum(isinstance(module, FusedLayer) for module in loaded.modules()) == 52 and torch.equal(
        loaded(x), result
    )


IMAGE = torch.randn(2, 3, 6, 6)


def flattened():
    """Its map is flattened, which depends on the order in memory."""
    convolutions = nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 1)
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(8 * 36, 4))


def grey_and_flattened():
    return nn.Sequential(nn.Conv2d(1, 3, 1), *flattened())


def pointwise_and_flattened():
    return nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 4))


@pytest.mark.parametrize(
    ("how", "make"),
    [
        ("images in channels_last", flattened),
        ("images in channels_last", pointwise_and_flattened),
        ("filters in channels_last", flattened),
        ("filters in channels_last", grey_and_flattened),
        ("bfloat16", flattened),
    ],
)
def test_what_was_optimised_for_another_order_or_dtype_can_be_saved(how, make, tmp_path):
    model = models.build(make).eval()
    x = torch.randn(2, model[0].in_channels, 8, 8)
    if how.startswith("images"):
        x = x.contiguous(memory_format=torch.channels_last)
    elif "filters" in how:
        model.to(memory_format=torch.channels_last)
    else:
        model, x = model.bfloat16(), x.bfloat16()
    fast, _ = optimize(model, x, level="inference")
    again = models.load(models.save(fast, tmp_path / "m.safetensors"), factory=make)
    assert fast.code == again.code and torch.equal(fast(x), again(x))


def test_the_structure_does_not_depend_on_the_device():
    fused_one = FusedLayer(nn.Conv2d(3, 4, 1)).to("meta")
    assert fused_one.why_no_kernel(X[:, :3], device="cpu") is None
    assert fused_one.why_no_kernel(X[:, :3]) is not None


def test_a_stride_may_be_a_number_and_many_networks_may_run_at_once():
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=2), nn.ReLU()).eval()
    x = torch.randn(2, 3, 8, 8)
    model[0].stride = model[0].dilation = 2
    fused_one, _ = optimize(model, x, level="inference")
    assert isinstance(fused_one.get_submodule("0"), FusedLayer)
    torch.testing.assert_close(fused_one(x), model(x))
    weights = torch.stack([model[0].weight, 2 * model[0].weight]).detach()

    def with_weight(network, weight):
        return torch.func.functional_call(network, {"0.weight": weight}, (x,))

    with torch.no_grad():
        found = torch.func.vmap(lambda weight: with_weight(fused_one, weight))(weights)
        expected = torch.stack([with_weight(model, weight) for weight in weights])
    torch.testing.assert_close(found, expected)


def written(name, *arguments):
    """A view by this method, written into before the convolution's result is read."""

    def run(m, x):
        y = m.conv(x)
        getattr(y, name)(*arguments).add_(1)
        return m.bn(y)

    return run


def written_view(m, x):
    y = m.conv(x)
    view = y.flatten(1)
    y.add_(2)
    return view + 1


COUNTS_ON_IT = {
    "view": lambda m, x: (y := torch.relu(m.bn(m.conv(x)))).view(y.size(0), -1),
    "view of all": lambda m, x: m.bn(m.conv(x)).view(-1),
    "view of a flattened one": lambda m, x: m.conv(x).flatten(2).view(8, -1),
    "view after an elementwise step": lambda m, x: m.conv(x).flatten(2).relu().view(8, -1),
    "view_as": lambda m, x: m.conv(x).view_as(x.new_empty(2, 64)),
    "as_strided": lambda m, x: m.conv(x).as_strided((2, 3), (5, 1)),
    "flatten, then written": written_view,
    "contiguous, then written": written("contiguous"),
    "reshape, then written": written("reshape", -1),
    "ravel, then written": written("ravel"),
    "stride": lambda m, x: (y := m.conv(x)).abs().sum() * y.stride(1),
    "is_contiguous": lambda m, x: (y := m.conv(x)).abs().sum() * y.is_contiguous(),
    "a table in another order": lambda m, x: (m.conv(x) + m.table.permute(0, 3, 1, 2)).view(2, -1),
}


@pytest.mark.parametrize("what", COUNTS_ON_IT)
def test_the_answers_stay_the_same_and_would_not_without_the_pass(what, monkeypatch):
    table = lambda: nn.Parameter(torch.randn(1, 4, 4, 4))  # noqa: E731
    model = with_conv(COUNTS_ON_IT[what], table=table)().eval()
    assert (
        Passer(["contiguity"]).run(trace(model, (IMAGE,))).changed == []
    )  # without a fused convolution
    for route in ("fx", "export"):
        # Verified, those would be refused whose answers are others in channels_last memory.
        fast, report = optimize(model, IMAGE, level="inference", route=route, verify=False)
        assert any(name == "fusion" for name, _, _ in report.changed)
        assert differences(model, fast, IMAGE) == []
        assert Passer(PIPELINES["inference"]).run(fast).changed == []
    monkeypatch.setitem(PIPELINES, "inference", ["fusion"])
    careless, _ = optimize(model, IMAGE, level="inference", route="fx", verify=False)
    assert differences(model, careless, IMAGE)


@torch.no_grad()
def test_a_result_comes_in_the_memory_format_that_the_network_gave():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), norm(4)).eval()
    straight, _ = optimize(model, IMAGE, level="inference")
    assert straight(IMAGE).is_contiguous() and straight(IMAGE).view(2, -1).shape == (2, 64)
    last = IMAGE.to(memory_format=torch.channels_last)
    model = model.to(memory_format=torch.channels_last)
    kept, report = optimize(model, last, level="inference")
    assert kept(last).is_contiguous(memory_format=torch.channels_last)
    assert not any(name == "contiguity" for name, _, _ in report.changed)


UNNOTICED = {
    "a matrix": lambda m, x: m.fc(m.conv(x).mean((2, 3))).view(2, 2, 2),
    "one pixel": lambda m, x: F.adaptive_avg_pool2d(m.conv(x), 1).view(2, 4),
    "in its own order": lambda m, x: m.conv(x).contiguous(memory_format=torch.channels_last).tanh(),
    "never contiguous": lambda m, x: m.conv(x).flatten(2).transpose(1, 2).tanh(),
    "as another dtype": lambda m, x: m.conv(x).view(torch.int32),
}


@pytest.mark.parametrize("what", UNNOTICED)
def test_results_keep_their_order_where_the_network_gives_it(what):
    model = with_conv(UNNOTICED[what], fc=lambda: nn.Linear(4, 4))().eval()
    fast, report = optimize(model, IMAGE, level="inference")
    assert any(name == "fusion" for name, _, _ in report.changed)
    if list(UNNOTICED).index(what) < 3:
        assert not any(name == "contiguity" for name, _, _ in report.changed)
    with torch.no_grad():  # where gradients are wanted, no kernel runs
        got, expected = fast(IMAGE), model(IMAGE)
    assert (got.dtype, got.stride()) == (expected.dtype, expected.stride())
    assert got.dtype == torch.int32 or differences(model, fast, IMAGE) == []
