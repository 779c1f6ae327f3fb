import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from course.lessons.onnx_float import operators, session
from helpers.quantization import QuantizationError, Recipe, quantize, to_onnx
from helpers.quantization.onnx.floats import Floats
from helpers.quantization.verify import agree
from tests.marks import IN_CI
from tests.passes.zoo import Net
from tests.quantization.networks import images, small


@pytest.fixture
def export(tmp_path):
    """Quantize and write a network; the file computes what the integer mode computes."""

    def run(recipe, model=None, **options):
        quantized = quantize(model or small(), images(64), recipe)
        quantized.mode = "integer"
        path = to_onnx(quantized, tmp_path / "model.onnx", **options)
        assert outputs_agree(quantized, path, images(5, seed=9))
        return quantized, path

    return run


def outputs_agree(quantized, path, x):
    run, batches = session(path, threads=1).run, (x[:1], x)  # the batch size is free
    found = torch.cat(
        [torch.from_numpy(run(None, {"input": batch.numpy()})[0]) for batch in batches]
    )
    expected = torch.cat([quantized(batch) for batch in batches])
    off = (found - expected).abs() / expected.std()
    return off.mean() < 0.01 and off.max() < 0.1  # a code may round the other way at a tie, no more


def begins_with(stored, own):
    """A constant in the file has the network's own numbers first; behind them may be channels that
    nobody reads.
    """
    same_kind = stored.dtype == own.dtype and stored.ndim == own.ndim
    return same_kind and np.array_equal(stored[tuple(map(slice, own.shape))], own)


@pytest.mark.parametrize("residual", ["separate", "fused"])
@pytest.mark.parametrize("options", [{"equalize": True}, {"weight_bits": 4, "activation_bits": 6}])
def test_onnx_runtime_computes_what_the_integer_mode_computes(export, residual, options):
    assert outputs_agree(*export(Recipe(residual=residual, **options)), images(9, seed=2))


@pytest.mark.parametrize(
    ("residual", "convolutions", "additions"), [("separate", 5, 1), ("fused", 4, 0)]
)
def test_every_layer_runs_in_an_int8_kernel(export, residual, convolutions, additions):
    _, path = export(Recipe(residual=residual))
    found = operators(path, "all")
    assert (found["QLinearConv"], found["QLinearAdd"]) == (convolutions, additions)
    assert found["Conv"] == 5 - convolutions
    assert found["QGemm"] == found["NhwcMaxPool"] == 1
    assert found["QLinearAveragePool"] + found["QLinearGlobalAveragePool"] == 1
    assert not {"Gemm", "MatMul", "Clip"} & found.keys()
    if residual == "separate":
        assert found["QuantizeLinear"] == 1, "only the input is quantized"
        assert not {"Add", "DequantizeLinear"} & found.keys()


@pytest.mark.parametrize(
    ("bits", "kind", "opset"),
    [(2, "INT2", 25), (3, "INT4", 21), (4, "INT4", 21), (5, "INT8", 18)],
)
def test_weights_of_few_bits_take_few_bits_in_the_file_and_the_same_kernels(
    export, bits, kind, opset
):
    quantized, path = export(Recipe(weight_bits=bits, residual="separate"))
    proto = onnx.load(path)
    assert [version.version for version in proto.opset_import] == [opset]
    stored = {tensor.name: tensor for tensor in proto.graph.initializer}
    layer = quantized.step("narrow")
    name = "narrow.weight.codes" + ("" if kind == "INT8" else ".packed")
    assert stored[name].data_type == getattr(onnx.TensorProto, kind)
    codes = onnx.numpy_helper.to_array(stored[name]).astype(np.int8)
    assert begins_with(codes, layer.codes.numpy())
    found = operators(path, "all")
    assert found["QLinearConv"] == 5 and "Cast" not in found


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_operations_in_float_are_written_for_the_opset_that_the_weights_ask_for(export, bits):
    """From opset 20 on, a sampling mode that opset 18 calls bilinear is called linear."""

    def sampled(m, x):
        y = m.first(x)
        return m.last(F.grid_sample(y, y[:, :2].movedim(1, -1).tanh(), align_corners=False))

    layers = {"first": nn.Conv2d(3, 4, 1), "last": nn.Conv2d(4, 5, 1)}
    quantized, _ = export(Recipe(weight_bits=bits), Net(sampled, **layers).eval())
    assert quantized.float_layers != []


def test_codes_in_the_file_are_the_models_own_and_uint8_where_they_could_saturate(export):
    model = small()
    with torch.no_grad():
        model.stem.weight.copy_(
            torch.tensor([1.0, 0.0, 1.0])[:, None, None]
        )  # ONNX Runtime pairs channels 2 and 0
        model.widen.weight.fill_(1.0)
    for block, stem in (
        (1, "uint8"),
        (16, "int8"),
    ):  # filled up, the image has a channel of zeros beside channel 2
        quantized, path = export(Recipe(residual="separate"), model, block=block)
        constants = [
            onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer
        ]
        assert quantized.step("widen").weight.abs().max() == 127
        for name, kind in (
            ("stem", stem),
            ("widen", "uint8"),
            ("narrow", "int8"),
            ("depthwise", "int8"),
        ):
            step = quantized.step(name)
            codes = (
                step.weight.numpy()
                if kind == "int8"
                else (step.weight.short() + 128).byte().numpy()
            )
            for tensor in (
                codes,
                step.weight_scale.numpy(),
                step.bias.numpy(),
                step.out_scale.numpy(),
            ):
                assert any(begins_with(one, tensor) for one in constants), name
        assert outputs_agree(quantized, path, 3 * images(8))


def floats(middle):
    """Operations without an integer form: first, last, side by side, and with several inputs."""

    def forward(self, x):
        y = self.pool(self.a(x.tanh()))
        y = torch.cat([y, F.silu(self.middle(y)) * y], 1)
        return self.b(y).softmax(1)

    parts = {"pool": nn.MaxPool2d(2, ceil_mode=True), "middle": middle}
    return Net(forward, a=nn.Conv2d(3, 4, 3), b=nn.Conv2d(8, 2, 1), **parts).eval()


@pytest.mark.slow
@pytest.mark.ci
def test_what_has_no_onnx_form_is_named_and_no_file_is_written(tmp_path):
    quantized = quantize(floats(torch.special.bessel_j0), images(8), Recipe())
    with pytest.raises(QuantizationError, match=r"special_bessel_j0.*has no ONNX form"):
        to_onnx(quantized, tmp_path / "model.onnx")
    with pytest.raises(QuantizationError, match="block=0: it is 1 or more"):
        to_onnx(quantized, tmp_path / "model.onnx", block=0)
    with pytest.raises(QuantizationError, match="quantize it first"):
        to_onnx(small(), tmp_path / "model.onnx")
    model = Net(
        lambda m, x: m.b(torch.sqrt(0.01 - m.a(x).var((2, 3)))),
        a=nn.Conv2d(3, 4, 1),
        b=nn.Linear(4, 2),
    ).eval()
    with pytest.raises(
        QuantizationError, match=r"not written: random.* sqrt: computes NaN.*in float: var, "
    ):
        to_onnx(
            quantize(model, images(8)[..., :1, :1].expand(-1, -1, 9, 9)), tmp_path / "model.onnx"
        )
    assert not list(tmp_path.iterdir())


def between(layer):
    """A layer between two convolutions, all with weights near 0.3: many more would saturate 16
    bits.
    """
    network = nn.Sequential(nn.Conv2d(3, 8, 1), layer, nn.Conv2d(8, 6, 1)).eval()
    for parameter in network.parameters():
        nn.init.uniform_(parameter, 0.3, 0.31)
    return network


def compared(y):
    leaky = torch.where(y > 0, y, 0.1 * y).masked_fill(y < -0.1, 0.25)
    return leaky * (y < 1) + y.int().float()


def centred(y):
    return (y - y.mean()) / (1 + y.square().mean(1, keepdim=True))


def stacked_in_place(y):
    """As SKNet stacks its branches."""
    return (y - 1).unsqueeze_(1).sum(1).exp_()


def resized(y):
    small = F.avg_pool2d(y, 3, 2, ceil_mode=True)
    return F.avg_pool2d(y, 3, 1, 1) + F.interpolate(small, 4)


def multiplied(y):
    """Keys times values, as in attention that is linear."""
    keys, values = y.flatten(2).unflatten(1, (2, -1)).transpose(0, 1)
    return (keys @ values.mT).reshape(-1, 4, 1, 1) + y


def repeated(y):
    """As often as there are windows in an image: GCViT's global queries."""
    windows = y.reshape(-1, 4, 4)
    queries = y.mean((2, 3))
    queries = queries.repeat_interleave(windows.shape[0] // queries.shape[0], dim=0)
    return (queries * windows[:, :, 0]).reshape(-1, 4, 4, 1) + y


def of_five_axes(y):
    """Attention within blocks, as NesT has it."""
    x = y.flatten(2).reshape(-1, 2, 1, 2, 16)
    return F.scaled_dot_product_attention(x, 2 * x, 3 * x).mT.reshape(y.shape) + y


REFLECTED = nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect")


@pytest.mark.parametrize(
    "layer", [nn.AvgPool2d(4, ceil_mode=True), nn.ConvTranspose2d(8, 8, 3), REFLECTED]
)
def test_onnx_runtime_makes_no_int8_of_what_stayed_in_float(export, layer):
    quantized, _ = export(Recipe(), between(layer))
    assert len(quantized.float_layers) == 1


@pytest.mark.parametrize(
    "middle",
    [
        nn.GELU(),
        pytest.param(compared, marks=IN_CI),
        pytest.param(centred, marks=IN_CI),
        stacked_in_place,
        pytest.param(resized, marks=IN_CI),
        pytest.param(multiplied, marks=IN_CI),
        pytest.param(repeated, marks=IN_CI),
        of_five_axes,
    ],
)
def test_what_stayed_in_float_is_written_in_float(export, middle):
    quantized, path = export(Recipe(), floats(middle))
    assert len(quantized.float_layers) >= 4 and operators(path, "all")["QLinearConv"] == 2


@pytest.mark.parametrize(
    ("most", "says"),
    [
        (0, "other numbers than the network.*middle"),
        pytest.param(2, "for 5 images", marks=IN_CI),
    ],
)
def test_a_file_that_onnx_runtime_would_compute_otherwise_is_not_written(
    tmp_path, monkeypatch, most, says
):
    def wrong(self, *inputs):  # for more images than these, as if the exporter were wrong
        return tuple(
            y - 9 * (torch.ones_like(inputs[0][:, 0, 0, 0]).sum() > most)
            for y in right(self, *inputs)
        )

    right, quantized = Floats.forward, quantize(floats(nn.GELU()), images(8), Recipe())
    monkeypatch.setattr(Floats, "forward", wrong)
    with pytest.raises(QuantizationError, match=says):
        to_onnx(quantized, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_equal_infinities_are_no_difference(tmp_path):
    model = Net(
        lambda m, x: torch.log(torch.softmax(1e6 * m.a(x).mean((2, 3)), 1)), a=nn.Conv2d(3, 5, 3)
    ).eval()
    to_onnx(quantized := quantize(model, images(64)), tmp_path / "model.onnx")
    found = quantized(images(64))
    assert found.isinf().any() and agree(found, found) and not agree(found.clamp(min=-99), found)
    assert not agree(torch.nan * found, torch.nan * found)


def test_a_network_may_begin_with_a_logarithm(tmp_path):
    model = nn.Sequential(Net(lambda m, x: (x + 1e-3).log()), nn.Conv2d(3, 4, 3)).eval()
    q = quantize(model, torch.rand(32, 3, 9, 9))
    assert to_onnx(q, tmp_path / "q.onnx").exists()


def test_a_layer_called_output_and_a_number_for_each_image_are_written_and_none_is_drawn(export):
    forward = lambda net, x: torch.relu(net.output(x).mean((1, 2, 3)))  # noqa: E731
    torch.manual_seed(1)
    quantized, path = export(Recipe(), Net(forward, output=nn.Conv2d(3, 4, 1)).eval())
    state = torch.get_rng_state()
    to_onnx(quantized, path)
    assert torch.equal(torch.get_rng_state(), state)


def flat_sum():
    def forward(net, x):
        flat = net.conv(x).relu().flatten(1)
        return net.head(flat + net.fc(flat))

    parts = {"conv": nn.Conv2d(3, 6, 3), "fc": nn.Linear(294, 294), "head": nn.Linear(294, 5)}
    return Net(forward, **parts).eval()


def rows(mean=False):
    """A mean straight into a linear layer, or linear layers on three dimensions."""

    def forward(self, x):
        x = self.pads(x)
        return self.head(x.mean((2, 3)) if mean else self.rows(x.flatten(2)).flatten(1))

    parts = {"rows": nn.Sequential(nn.Linear(25, 16), nn.ReLU(), nn.Linear(16, 4))}
    return Net(
        forward, pads=nn.Conv2d(3, 8, 3, 2, 1), head=nn.Linear(8 if mean else 32, 10), **parts
    ).eval()


@pytest.mark.parametrize("mean", [True, False])
def test_linear_layers_take_what_is_flat_already_and_what_has_more_dimensions(export, mean):
    _, path = export(Recipe(), rows(mean))
    assert operators(path, "all")["QGemm"] == (1 if mean else 3)


def fire():
    """Two branches that are joined, and a pool at the end."""

    def forward(self, x):
        joined = torch.cat([self.a(x).relu(), 9 * self.b(x)], 1)
        return self.last(joined).mean((2, 3), keepdim=True).flatten(1)

    return Net(
        forward, a=nn.Conv2d(3, 4, 1), b=nn.Conv2d(3, 6, 3, padding=1), last=nn.Conv2d(10, 7, 1)
    ).eval()


def test_joined_edges_have_the_same_codes_and_what_a_pool_gives_out_at_the_end_is_not_rounded(
    export,
):
    quantized, path = export(Recipe(), fire())
    edges = quantized.edges
    assert (
        quantized.float_layers == []
        and len({float(edges[name].scale) for name in ("a", "b", "cat")}) == 1
    )
    assert edges["mean"] is edges["flatten"] is None
    quantized.mode = "simulated"
    assert outputs_agree(quantized, path, images(5, seed=9))


def odd():
    """Widths that are no multiples of 16, through a shortcut, a depthwise layer, a pool and a
    flattening.
    """

    def forward(self, x):
        x = self.stem(x).relu()
        x = F.max_pool2d(x + self.narrow(F.relu6(self.depthwise(x))), 2)
        return self.head(self.hidden(x.flatten(1)).relu())

    parts = {"stem": nn.Conv2d(3, 6, 3), "depthwise": nn.Conv2d(6, 6, 3, padding=1, groups=6)}
    parts |= {"narrow": nn.Conv2d(6, 6, 1), "hidden": nn.Linear(54, 20), "head": nn.Linear(20, 5)}
    return Net(forward, **parts).eval()


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        (
            odd,
            {
                "stem": (16, 4, 3, 3),
                "depthwise": (16, 1, 3, 3),
                "narrow": (16, 16, 1, 1),
                "hidden": (144, 32),
            },
        ),
        # Two groups keep their input as it is, and with it the shortcut and both its ends.
        (
            small,
            {
                "stem": (8, 4, 3, 3),
                "widen": (32, 8, 1, 1),
                "narrow": (8, 32, 1, 1),
                "grouped": (12, 4, 3, 3),
            },
        ),
        (fire, {"a": (4, 4, 1, 1), "last": (7, 10, 1, 1)}),
        (
            lambda: Net(lambda net, x: net.conv(x) + x, conv=nn.Conv2d(3, 3, 1)).eval(),
            {"conv": (3, 3, 1, 1)},
        ),
        (rows, {"pads": (8, 4, 3, 3), "rows.0": (25, 16)}),
        # A flattened map grows by whole channels, and what is added to it would not.
        (flat_sum, {"conv": (6, 4, 3, 3), "fc": (294, 294)}),
    ],
)
def test_widths_are_rounded_up_where_they_may_be_and_no_output_changes(tmp_path, network, expected):
    model, x = network(), images(5, seed=9).numpy()
    for residual in ("fused", "separate"):
        quantized, logits = quantize(model, images(64), Recipe(residual=residual)), []
        for block in (1, 16):
            path = to_onnx(quantized, tmp_path / "model.onnx", block=block)
            logits.append(session(path, threads=1).run(None, {"input": x})[0])
        assert np.array_equal(*logits)
    shapes = {one.name: tuple(one.dims) for one in onnx.load(path).graph.initializer}
    assert {name: shapes[f"{name}.weight.codes"] for name in expected} == expected
