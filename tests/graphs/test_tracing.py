"""Both tracers give a graph of the same answers, with shapes, and lose nothing; functional calls
become layers.
"""

import copy
import inspect
import operator
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

from helpers import passes
from helpers.graphs.errors import GraphMismatch, UnsupportedCase
from helpers.graphs.layers import why_not_ordinary
from helpers.graphs.operations import AUGMENTED
from helpers.graphs.tracing import ROUTES, trace
from helpers.passes import Passer
from tests.passes.graphs import calls, differences, fold, network, reasons
from tests.passes.zoo import Net, conv, hooked, norm

X = torch.randn(2, 3, 6, 6)
fx.wrap("looks_into_it")


def looks_into_it(x):
    return x * 2 if x.sum().item() > 0 else x * 3


@pytest.mark.parametrize("route", ROUTES)
def test_the_same_answers_shapes_and_names_and_layers_of_both_are_modules(route):
    model = nn.Sequential(
        conv(stride=2), norm(4, momentum=0.3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)
    ).eval()
    graph_module = trace(model, (X,), route)
    assert differences(model, graph_module, X) == []
    assert graph_module.graph.output_node().args[0].meta["val"].shape == (2, 3)
    assert not graph_module.training
    theirs = {tensor.data_ptr() for tensor in model.state_dict().values()}
    assert theirs.isdisjoint(tensor.data_ptr() for tensor in graph_module.state_dict().values())
    for names in ([], ["canonicalize", "dead_code"]):
        Passer(names).run(graph_module)
        state = graph_module.state_dict()
        assert state.keys() == model.state_dict().keys()
        assert all(torch.equal(state[key], value) for key, value in model.state_dict().items())
    assert calls(graph_module) == [nn.Conv2d, nn.BatchNorm2d, F.relu, torch.flatten, nn.Linear]
    assert repr(graph_module.get_submodule("0")) == repr(model[0])
    assert graph_module.get_submodule("1").momentum == 0.3


@pytest.mark.parametrize("route", ROUTES)
def test_results_in_any_form_and_a_tensor_that_is_given_twice(route):
    def run(net, x, *rest):
        return {"a": net.conv(x), "b": [x, (x - rest[0] * rest[1]["y"], None)]}

    graph_module = trace(network(run, conv=conv()), (X, X, {"y": X}), route)
    one, two, three = (torch.randn_like(X) for _ in range(3))
    result = graph_module(one, two, {"y": three})
    assert result.keys() == {"a", "b"} and torch.equal(result["b"][0], one)
    assert torch.equal(result["b"][1][0], one - two * three) and result["b"][1][1] is None


def without_gradients(net, x):
    with torch.no_grad():
        one, two = net.norm(net.conv(x)).chunk(2, 1)
    return torch.relu(one).mean() + net.last(two)


@pytest.mark.parametrize("route", ROUTES)
def test_whether_gradients_are_computed_makes_no_difference(route):
    model = network(without_gradients, conv=conv(), norm=norm(4), last=conv(2, 2))
    folded, _ = passes.optimize(model, X, route=route)
    assert {name.split(".")[0] for name, _ in folded.named_modules()} == {"", "conv", "last"}
    assert differences(model, folded, X) == []


@pytest.mark.parametrize("inside", [torch.mul, F.linear])
@pytest.mark.parametrize("route", ["fx", "export"])
def test_the_inside_of_vmap_is_refused(route, inside):
    if route == "export" and inside is F.linear and torch.__version__ < (2, 13):
        pytest.skip("torch 2.10 to 2.12 cannot export a matrix product inside vmap")
    model = network(
        lambda net, x: torch.vmap(lambda one: inside(x[..., :3, :3], one))(net.last.weight[0]),
        last=conv(4, 2),
    )
    with pytest.raises(UnsupportedCase, match=r"vmap|torch\.func"):
        passes.optimize(model, X, route=route)


def test_what_runs_under_autocast_is_refused_or_declined():
    def run(net, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return net.norm(net.conv(x))

    model = network(run, conv=conv(), norm=norm(4))
    with pytest.raises(
        UnsupportedCase, match=r"py:\d+: it calls conv under torch\.autocast.*other route"
    ):
        trace(model, (X,))
    folded, report = passes.optimize(model, X, route="export")
    assert folded(X).dtype == torch.bfloat16 and torch.equal(folded(X), model(X))
    reason = "wrap_with_autocast runs a subgraph, into which no pass looks"
    assert [why for *_, why in report.declined] == [reason]
    with torch.autocast("cpu"):  # what counts is the difference to the outside
        assert calls(record(lambda net, x: x @ x)) == [operator.matmul]


def by_content(net, x):
    if x.sum() > 0:
        return x
    return -x


def raises(net, x):
    raise KeyError("no such block")


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("function", [by_content, raises])
def test_what_cannot_be_traced_is_named_with_the_line(function, route):
    number = inspect.getsourcelines(function)[1] + 1
    message = rf"(?s)Net cannot be traced at .*test_tracing\.py:{number}: .*other route"
    with pytest.raises(UnsupportedCase, match=message):
        trace(network(function), (X,), route)


@pytest.mark.parametrize("route", ROUTES)
def test_a_tensor_alone_is_the_input(route):
    model, x = nn.Sequential(conv(), norm(4), nn.ReLU()).eval(), torch.randn(1, 3, 6, 6)
    assert torch.allclose(trace(model, x, route)(X), model(X), atol=1e-6)


def test_a_norm_keeps_its_counter_on_the_route_export():
    model = network(lambda net, x: net.n(net.a(x)) * net.n.num_batches_tracked, a=conv(), n=norm(4))
    model.n.num_batches_tracked.fill_(7)
    optimized, _ = passes.optimize(model, X, route="export", verify=False)
    assert torch.allclose(optimized(X), model(X), atol=1e-5)


def test_an_exported_graph_takes_any_batch_and_refuses_other_sizes():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 2)).eval()
    graph_module = trace(model, (torch.randn(1, 3, 8, 8),), route="export")
    for again in (graph_module, copy.deepcopy(graph_module)):
        x = torch.randn(5, 3, 8, 8)
        assert torch.allclose(again(x), model(x), atol=1e-6)
        for call in (again, lambda x, graph_module=again: graph_module(input=x)):
            with pytest.raises(
                AssertionError,
                match=r"recorded for other inputs: .*size\(\)\[2\] == 8 .*by the route fx",
            ):
                call(torch.randn(5, 3, 9, 9))


@pytest.mark.parametrize("others", [(), (torch.ones(2, 3),), (torch.ones(2, 3),) * 2])
def test_a_forward_of_any_number_of_inputs_takes_any_batch_by_export(others):
    adding = network(lambda net, x, *rest: torch.stack([x, *rest]).sum(0))
    traced = trace(adding, (torch.ones(2, 3), *others), route="export")
    x = torch.randn(5, 3)
    assert torch.equal(traced(x, *(x for _ in others)), x * (1 + len(others)))


@pytest.mark.parametrize(
    ("example", "other"),
    [(2.0, 3.0), (True, False), (None, torch.ones(2, 3)), (torch.ones(2, 3), None)],
)
def test_a_number_or_flag_that_export_has_recorded_cannot_be_another(example, other):
    x, scaled = torch.randn(2, 3), network(lambda net, x, k=None: x if k is None else x * k)
    traced = trace(scaled, (x, example), route="export")
    assert torch.equal(traced(x, example), scaled(x, example))
    with pytest.raises(AssertionError, match="recorded for"):
        traced(x, other)


def record(function, inputs=(X,), **parts) -> fx.GraphModule:
    return trace(network(function, **parts), inputs)


@pytest.mark.parametrize("function", AUGMENTED)
def test_augmented_assignments_write(function):
    x = torch.tensor([3.0, 5.0] if function is operator.itruediv else [3, 5])
    recorded = record(lambda net, x: function(x, 2), (x,))
    assert calls(recorded) == [function]
    expected = AUGMENTED[function](x, 2)
    assert torch.equal(recorded(x), expected) and torch.equal(x, expected)


def by_a_method(net, x):
    net.count_ = net.count_.add_(1)
    net.count_ += 2
    net.count_ -= 2
    return x * net.count_


def test_a_buffer_may_be_counted_up_and_cannot_be_exchanged():
    traced = record(by_a_method, count_=torch.zeros(()))
    assert traced.count_ == 0
    assert [traced(torch.ones(())).item() for _ in range(3)] == [1, 2, 3]

    def run(net, x):
        net.mean = x.mean()
        return x - net.mean

    model = network(run, mean=torch.zeros(()))
    mean = model.mean
    with pytest.raises(
        UnsupportedCase, match=r"result of mean to its buffer mean.*self\.mean\.copy_"
    ):
        trace(model, (torch.ones(2),))
    assert model.mean is mean


def any_number(net, x, y=None, *rest, scale=2.0, **others):
    return (x if y is None else x - y) * scale + len(rest) + sum(rest) + len(others)


@pytest.mark.parametrize("given", [1, 2, 4])
def test_as_many_inputs_as_the_call_gives(given):
    inputs = [torch.randn(3) for _ in range(given)]
    recorded = record(any_number, inputs)
    names = [node.target for node in recorded.graph.find_nodes(op="placeholder")]
    assert names == ["x", "y", "rest_0", "rest_1"][:given]
    assert torch.equal(recorded(*inputs), any_number(None, *inputs))


def test_a_graph_that_was_saved_whole_does_the_same():
    def run(net, x, mask=None):
        net.count += 1
        x *= 2
        x[0] = torch.rand(())
        return x * mask + net.count

    inputs = (torch.ones(2), torch.full((2,), 3.0))
    loaded = pickle.loads(pickle.dumps(record(run, inputs, count=torch.zeros(()))))
    results = [loaded(inputs[0].clone(), inputs[1]) for _ in range(3)]
    assert [result[1].item() for result in results] == [7, 8, 9]
    assert len({result[0].item() % 1 for result in results}) == 3


def test_what_depends_on_numbers_is_called_for_real_on_a_copy():
    def run(net, x):
        net.count += 1
        return looks_into_it(x)[x > 0] * torch.rand(1)

    before, x = torch.get_rng_state(), torch.tensor([1.0, -1.0, 2.0])
    graph_module = record(run, (x,), count=torch.zeros(()))
    values = {
        node.name: node.meta["val"] for node in graph_module.graph.nodes if "val" in node.meta
    }
    assert values["getitem"].shape == (2,) and all(value.is_meta for value in values.values())
    assert (
        graph_module.count == 0
        and x.tolist() == [1, -1, 2]
        and torch.equal(before, torch.get_rng_state())
    )
    assert (
        "dropout2d("
        in record(lambda net, x: x * F.dropout2d(torch.ones(1, 1, 1, 1), 0.5, True)).code
    )  # not its mask


@pytest.mark.parametrize(
    ("run", "parts", "shape", "dtype"),
    [
        (
            lambda net, x: net.hooked(x),
            {"hooked": hooked(nn.ReLU(), torch.flatten)},
            (6,),
            torch.float32,
        ),
        (lambda net, x: x[:1] + x, {}, (2, 3), torch.float32),
        (lambda net, x: x + x.double(), {}, (2, 3), torch.float64),
        (lambda net, x: F.silu(x.double()), {}, (2, 3), torch.float64),
        (lambda net, x: torch.sigmoid(x.int()), {}, (2, 3), torch.float32),
        (lambda net, x: torch.nonzero(F.relu(-x.abs())), {}, (0, 2), torch.int64),
    ],
)
def test_the_short_cut_is_not_taken_where_it_would_be_wrong(run, parts, shape, dtype):
    graph_module = record(run, (torch.randn(2, 3),), **parts)
    value = graph_module.graph.output_node().args[0].meta["val"]
    assert (tuple(value.shape), value.dtype) == (shape, dtype)


@pytest.mark.parametrize(
    "norm_of_another_size",
    [nn.BatchNorm2d(3), nn.BatchNorm1d(4), nn.LayerNorm(7), nn.LayerNorm((4, 5, 4))],
)
def test_a_norm_of_another_size_is_refused_by_its_name(norm_of_another_size):
    model = nn.Sequential(conv(), norm_of_another_size, nn.ReLU()).eval()
    with pytest.raises(GraphMismatch, match="does not accept its inputs"):
        trace(model, (X,), route="fx")


W = {
    "w1": (4, 3, 3),
    "w2": (4, 3, 3, 2),
    "w3": (4, 3, 2, 2, 2),
    "t2": (3, 2, 3, 2),
    "g2": (4, 1, 3, 3),
}
W |= {"fc": (4, 6), "b": (4,), "mean": (3,), "scale": (3,), "vector": (6,)}
CALLS = {
    "conv1d": (lambda m, x: F.conv1d(x, m.w1, m.b, 2, 1), 3, nn.Conv1d),
    "conv2d, oblong": (lambda m, x: F.conv2d(x, m.w2, None, (1, 2), (2, 0), (1, 2)), 4, nn.Conv2d),
    "conv2d, same": (lambda m, x: F.conv2d(x, m.w2, m.b, padding="same"), 4, nn.Conv2d),
    "conv2d, grouped": (lambda m, x: F.conv2d(x[:, :2], m.g2, m.b, groups=2), 4, nn.Conv2d),
    "conv3d, by keyword": (lambda m, x: F.conv3d(weight=m.w3, input=x, stride=2), 5, nn.Conv3d),
    "transposed": (
        lambda m, x: F.conv_transpose2d(x, m.t2, None, 2, 1, (1, 0), 1, 2),
        4,
        nn.ConvTranspose2d,
    ),
    "transposed, grouped": (lambda m, x: F.conv_transpose2d(x, m.t2, m.b[:2]), 4, None),
    "linear": (lambda m, x: F.linear(x, m.fc, m.b), 3, nn.Linear),
    "torch.convolution": (
        lambda m, x: torch.convolution(x, m.w2, m.b, [1, 1], [0, 1], [1, 1], False, [0, 0], 1),
        4,
        nn.Conv2d,
    ),
    "F.batch_norm": (
        lambda m, x: F.batch_norm(x, m.mean, m.scale, m.scale, m.mean, eps=0.1),
        4,
        nn.BatchNorm2d,
    ),
    "F.batch_norm, no affine": (lambda m, x: F.batch_norm(x, m.mean, m.scale), 5, nn.BatchNorm3d),
    "torch.batch_norm": (
        lambda m, x: torch.batch_norm(x, m.scale, m.mean, m.mean, m.scale, False, 0.1, 0.2, False),
        3,
        nn.BatchNorm1d,
    ),
}


def functional(run) -> nn.Module:
    return Net(run, **{name: torch.rand(shape) + 0.1 for name, shape in W.items()})


def image(dimensions: int) -> torch.Tensor:
    return torch.randn(2, 3, *(6, 6, 5)[: dimensions - 2])


@pytest.mark.parametrize("route", ["fx", "export"])
@pytest.mark.parametrize("what", CALLS)
def test_functional_calls_become_modules_with_the_same_answers(what, route):
    run, dimensions, layer = CALLS[what]
    graph_module, _ = fold("canonicalize", functional(run), image(dimensions), route)
    assert layer is None or calls(graph_module)[-1] is layer


REFUSED = {
    "weight computed": (
        lambda m, x: F.conv2d(x, m.w2 * x.mean()),
        "weight is computed by the graph",
    ),
    "stride computed": (
        lambda m, x: F.conv2d(x, m.w2, stride=x.shape[0]),
        "stride is computed by the graph",
    ),
    "weight written": (lambda m, x: (F.conv2d(x, m.w2), m.w2.mul_(2))[0], "writes to its weight"),
    "training": (
        lambda m, x: F.batch_norm(x, m.mean, m.scale, training=True),
        "statistics of the batch",
    ),
    "no statistics": (
        lambda m, x: F.batch_norm(x, None, None, training=True),
        "statistics of the batch",
    ),
    "linear, computed": (lambda m, x: F.linear(x, m.b[:0].new_ones(6)), "weight is computed"),
    "linear with a vector": (lambda m, x: F.linear(x, m.vector), "its weight has 1 dimensions"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_call_that_is_no_layer_stays_with_the_reason(what):
    run, reason = REFUSED[what]
    report = Passer(["canonicalize"]).run(trace(functional(run).eval(), (image(4),)))
    assert any(reason in given for given in reasons(report)), report.declined


def test_equal_calls_share_a_module_and_other_settings_do_not():
    model = functional(
        lambda m, x: (
            F.conv2d(x, m.w2)
            + F.conv2d(x, m.w2)
            + F.conv2d(x, m.w2, dilation=(1, 2)).mean((2, 3), keepdim=True)
        )
    )
    graph_module, _ = fold("canonicalize", model, image(4))
    targets = [node.target for node in graph_module.graph.nodes if node.op == "call_module"]
    assert len(targets) == 3 and targets[0] == targets[1] != targets[2]


@pytest.mark.parametrize(
    "kind", ["forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook"]
)
def test_a_module_with_a_hook_may_compute_something_else(kind):
    layer = nn.ReLU()
    getattr(layer, f"register_{kind}")(lambda *args: None)
    assert (
        "it has hooks" in why_not_ordinary(layer) and why_not_ordinary(nn.Sequential(layer)) is None
    )  # only what is called itself counts


def new_data(net, x):
    y = net.conv(x)
    y.data = y.abs()
    return y


def augmented_view(net, x, name):
    y = net.conv(x)
    part = getattr(y, name)
    part += 1
    return net.norm(y)


@pytest.mark.parametrize("name", ["data", "T", "mT", "real"])
def test_what_is_written_through_a_property_is_recorded(name):
    parts = {"conv": conv(), "norm": norm(4)}
    x = X
    if name == "T":  # of a matrix
        parts = {"conv": nn.Linear(6, 4), "norm": norm(4, 1)}
        x = torch.randn(5, 6)
    model = network(lambda net, x: augmented_view(net, x, name), **parts)
    folded, _ = passes.optimize(model, x, route="fx", verify=False)
    assert differences(model, folded, x) == []


@pytest.mark.parametrize("route", [*ROUTES, None])
def test_data_that_is_exchanged_is_refused_unverified_too(route):
    with pytest.raises(UnsupportedCase, match=r"it sets \.data of a tensor, .*x\.copy_"):
        passes.optimize(network(new_data, conv=conv()), X, route=route, verify=False)


def test_a_method_that_was_replaced_on_a_layer_keeps_it_from_folding():
    model = nn.Sequential(conv(), norm(4)).eval()
    model[0]._conv_forward = lambda x, weight, bias: F.conv2d(x, weight, bias).relu()
    folded, report = passes.optimize(model, X, route="fx", verify=False)
    assert differences(model, folded, X) == []
    assert any("_conv_forward was replaced on the instance" in why for *_, why in report.declined)


def optimised_again(graph_module):
    return passes.optimize(graph_module, torch.randn(2, 3, 8, 8), route="fx")[0]


WAYS_ON = {
    "optimised again": optimised_again,
    "exported again": lambda made: trace(made, (torch.randn(2, 3, 8, 8),), "export"),
    "copied": copy.copy,
    "copied deeply": copy.deepcopy,
    "traced": fx.symbolic_trace,
    "pickled": lambda made: pickle.loads(pickle.dumps(made)),
    "a part of another": lambda made: fx.symbolic_trace(nn.Sequential(made, nn.ReLU())),
}


@pytest.mark.parametrize("way", WAYS_ON)
def test_the_guards_of_an_exported_graph_travel(way):
    """Pooled to a fixed size by numbers of the example: other sizes would be answered wrongly."""
    model = network(
        lambda net, x: F.avg_pool2d(net.conv(x), x.shape[-1] - 2).flatten(1), conv=conv()
    )
    made, _ = passes.optimize(model, torch.randn(2, 3, 8, 8), route="export")
    again = WAYS_ON[way](made)
    assert again(torch.randn(5, 3, 8, 8)).shape == (5, 4)
    with pytest.raises(AssertionError, match="recorded for other inputs"):
        again(torch.randn(2, 3, 12, 12))


class NormAndMore(nn.BatchNorm2d):
    """A batch norm that looks at its input first and does more with its output, as timm's."""

    def forward(self, x):
        torch._assert(x.ndim == 4, f"expected 4 dimensions, got {x.ndim}")
        x = F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False)
        return x.relu()


def test_an_assertion_on_dimensions_keeps_no_norm_from_folding():
    model = nn.Sequential(conv(), NormAndMore(4), conv(4, 4), NormAndMore(4)).eval()
    folded, _ = passes.optimize(model, X, route="fx")
    expected = [nn.Conv2d, F.relu, nn.Conv2d, F.relu]
    assert [call for call in calls(folded) if call in expected] == expected
    assert len(folded.graph.find_nodes(op="call_function", target=torch._assert)) == 1
    assert not any(isinstance(module, nn.BatchNorm2d) for module in folded.modules())
    for either in (model, folded):
        with pytest.raises(AssertionError):
            either(X[0])
