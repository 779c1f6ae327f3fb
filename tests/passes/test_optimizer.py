"""What `optimize` does, and that whatever a pass gets wrong raises an error that names it."""

import copy
import operator

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from helpers import models, passes
from helpers.equivalence import ExpectedAnswers
from helpers.graphs.editing import Editor
from helpers.graphs.errors import GraphMismatch, UnsupportedCase, WrongAnswer
from helpers.graphs.rewriting import Outcome
from helpers.passes import conv_bn_folding, optimizer
from helpers.passes.base import Pass
from tests.passes.graphs import differences
from tests.passes.zoo import Net, as_buffer, conv, norm


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        conv(), norm(4), nn.ReLU6(), conv(4, 5), norm(5), nn.Flatten(), nn.Linear(20, 3)
    ).eval()


X = torch.randn(2, 3, 6, 6)


@pytest.mark.parametrize("route", ["fx", "export"])
def test_folds_a_copy_and_leaves_the_model_alone(route):
    model = small()
    state, text = copy.deepcopy(model.state_dict()), repr(model)
    folded, report = passes.optimize(model, X, route=route)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in folded.modules())
    assert differences(model, folded, X) == []
    for parameter in folded.parameters():
        parameter.data.fill_(7.0)
    assert repr(model) == text and all(
        torch.equal(state[key], value) for key, value in model.state_dict().items()
    )
    table = report.table()
    assert {"pass", "nodes_before", "nodes_after", "changed", "declined", "ms"} <= {*table.columns}
    # Those of modules that nothing reads any more are counted as gone.
    assert table["params_after"].iloc[-1] == sum(map(torch.Tensor.numel, folded.parameters()))


def test_the_worked_example_bit_for_bit():
    """Y = [[3, 7], [2, 1]]; gamma 3, beta -1, mu 2, var + eps = 4: a = 1.5, shift = -4."""
    eps = 2.0**-20  # 4 - eps is a float32; torch 2.10 and 2.11 refuse eps = 0
    layer = nn.Conv2d(1, 1, 2, bias=False)
    layer.weight.data = torch.tensor([[[[1.0, 0.0], [0.0, 1.0]]]])
    image = torch.tensor([[1.0, 6.0, 0.0], [1.0, 2.0, 1.0], [0.0, 1.0, -1.0]]).reshape(1, 1, 3, 3)
    bn = nn.BatchNorm2d(1, eps=eps)
    bn.weight.data, bn.bias.data = torch.tensor([3.0]), torch.tensor([-1.0])
    bn.running_mean, bn.running_var = torch.tensor([2.0]), torch.tensor([4.0 - eps])
    model = nn.Sequential(layer, bn).eval()
    assert layer(image).tolist() == [[[[3.0, 7.0], [2.0, 1.0]]]]
    folded, _ = passes.optimize(model, image)
    new = folded.get_submodule("0")
    assert torch.equal(new.weight, 1.5 * layer.weight) and new.bias.item() == -4.0
    assert model(image).tolist() == [[[[0.5, 6.5], [-1.0, -2.5]]]]
    assert torch.equal(folded(image), model(image))


def nested() -> nn.Module:
    return Net(lambda m, x: m.conv(x["images"][0]) + x["shift"], conv=conv())


def test_a_network_whose_input_is_a_table_is_saved_and_loaded(tmp_path):
    x = {"images": (X,), "shift": torch.ones(())}
    folded, _ = passes.optimize(models.build(nested).eval(), (x,))
    again = models.load(models.save(folded, tmp_path / "nested.safetensors"), nested)
    assert torch.equal(again(x), folded(x))


def on_gpu(kind: str) -> torch.Tensor:
    """A tensor without data that says it lies there."""
    with FakeTensorMode():
        return torch.empty(2, 3, 6, 6, device=kind)


BAD = {
    "train mode": (lambda: small().train(), X, UnsupportedCase, r"train mode: call model.eval\(\)"),
    "wrong shape": (
        small,
        torch.randn(2, 4, 6, 6),
        GraphMismatch,
        "node '_0'.*does not accept.*Check the example",
    ),
    "wrong dtype": (
        small,
        X.double(),
        GraphMismatch,
        "node '_0'.*does not accept.*dtypes and devices agree",
    ),
    "half network": (lambda: small().half(), X, GraphMismatch, "node '_0'.*does not accept"),
    "mixed network": (
        lambda: nn.Sequential(conv(), conv(4, 2).double()).eval(),
        X,
        GraphMismatch,
        "'_1'.*not accept",
    ),
    "mixed devices": (
        lambda: nn.Sequential(conv(), conv(4, 2).to("meta")).eval(),
        X,
        GraphMismatch,
        "1.weight has no",
    ),
    "Apple's GPU": (small, on_gpu("mps"), UnsupportedCase, "float64, in which.*move all to the C"),
    "Intel's GPU": (small, on_gpu("xpu"), UnsupportedCase, "float64, in which.*move all to the C"),
    "layer code": (
        lambda: Net(lambda m, x: m.code(x), code=conv()).eval(),
        X,
        UnsupportedCase,
        "a 'code' of its own",
    ),
    "hidden write": (
        lambda: Net(lambda m, x: m._buffers["n"].add_(1), n=X * 1).eval(),
        X,
        UnsupportedCase,
        "self.n",
        {"route": "fx"},
    ),
    "too many inputs": (
        small,
        (X, X),
        GraphMismatch,
        r"\(self, input\) got 2 example inputs: too many",
    ),
    "three for two": (
        lambda: nn.Bilinear(6, 6, 2).eval(),
        (X, X, X),
        GraphMismatch,
        "got 3 example inputs: too many",
    ),
    "too few inputs": (
        lambda: nn.Bilinear(6, 6, 2).eval(),
        X,
        GraphMismatch,
        "got 1 example inputs: missing a required argument: 'input2'",
    ),
    "no input": (small, (), GraphMismatch, "must hold a tensor, got none"),
    "None": (small, None, GraphMismatch, "the example inputs must hold a tensor, got NoneType"),
    "an array": (small, X.numpy(), GraphMismatch, "must hold a tensor, got ndarray"),
    "unknown level": (small, X, ValueError, r"'folds': did you mean fold\?", {"level": "folds"}),
    "unknown route": (
        small,
        X,
        ValueError,
        "route 'onnx': choose one of fx, export",
        {"route": "onnx"},
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_named(what):
    build, inputs, error, message, *options = BAD[what]
    before = copy.deepcopy(model := build())
    with pytest.raises(error, match=f"(?s){message}"):
        passes.optimize(model, inputs, **dict(*options))
    assert all(map(torch.equal, before.buffers(), model.buffers()))


def test_what_the_forward_function_does_to_the_model_happens_to_the_copy():
    def run(m, x):
        m.last = m.seen.append(1), m.requires_grad_(False)
        return m.conv(x)

    model = Net(run, conv=conv()).eval()
    model.seen = []
    passes.optimize(model, X)
    assert model.seen == [] and not hasattr(model, "last") and model.conv.weight.requires_grad


def test_a_traced_network_may_be_optimised_too():
    model = small()
    folded, _ = passes.optimize(nn.Sequential(fx.symbolic_trace(model)).eval(), X)
    assert differences(model, folded, X) == [] and len(folded.graph.nodes) == 7
    assert passes.optimize(folded, X)[1].changed == []


def test_inside_inference_mode_the_result_is_the_same_as_outside():
    """A tensor of inference mode does not count its changes: no kernel can be prepared for it."""
    with torch.inference_mode():
        inside, _ = passes.optimize(small(), X, level="inference")
        assert not any(parameter.is_inference() for parameter in inside.parameters())
        assert differences(small(), inside, X) == []


class Wrong(Pass):
    """Does something once to the first node that calls `target`."""

    name = "wrong"

    def __init__(self, target, act):
        self.target, self.act = target, act

    def run(self, graph_module):
        result = Outcome()
        for node in [node for node in graph_module.graph.nodes if node.target == self.target][:1]:
            self.act(node, Editor(graph_module))
            result.change(node, "was made wrong")
        return result


def counting(m, x):
    m.count.add_(1)
    return m.bn(m.conv(x)) + m.count


def to_number(node, editor):
    node.replace_all_uses_with(2)
    editor.erase(node)


WRONG = {
    "another operation": (
        lambda m, x: m.conv(x) + x.mean(),
        operator.add,
        lambda node, _: setattr(node, "target", operator.sub),
    ),
    "a forgotten effect": (
        counting,
        "add_",
        lambda node, editor: editor.replace(node, node.args[0]),
    ),
    "a batch size as a number": (lambda m, x: m.conv(x).reshape(x.size(0), -1), "size", to_number),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_pass_is_named(what, monkeypatch):
    run, target, act = WRONG[what]
    model = Net(run, conv=conv(), bn=norm(4), count=torch.zeros(())).eval()
    assert passes.optimize(model, X)[0] is not None
    monkeypatch.setitem(
        optimizer.PIPELINES, "fold", [*passes.PIPELINES["fold"], Wrong(target, act), "dead_code"]
    )
    with pytest.raises(
        WrongAnswer, match=r"^wrong: the network answers differently .*verify=False"
    ) as caught:
        passes.optimize(model, X)
    assert caught.value.pass_name == "wrong" and model.count == 0
    passes.optimize(model, X, verify=False)


@pytest.mark.parametrize("factor", [1.001, -1.0])
@pytest.mark.parametrize("level", ["fold", "inference"])
def test_wrong_maths_is_blamed_on_the_fold(level, factor, monkeypatch):
    right = conv_bn_folding.folded
    monkeypatch.setattr(
        conv_bn_folding, "folded", lambda layer, a, z: right(layer, torch.as_tensor(a) * factor, z)
    )
    with pytest.raises(WrongAnswer, match=r"^conv_bn_folding: "):
        passes.optimize(nn.Sequential(conv(), norm(4), nn.ReLU()).eval(), X, level)


UNSEEN = {
    "a hook": lambda model: model.register_forward_hook(lambda module, args, result: 2 * result),
    "a hook before": lambda model: model.register_forward_pre_hook(
        lambda module, args: (args[0] + 1,)
    ),
    "another forward": lambda model: setattr(model, "forward", lambda x: x.mean()),
}


@pytest.mark.parametrize("what", UNSEEN)
def test_what_the_tracer_does_not_see_is_blamed_on_it(what):
    model = nn.Sequential(conv(), nn.ReLU()).eval()
    UNSEEN[what](model)
    with pytest.raises(
        WrongAnswer, match=r"^tracing: .*leaves out hooks and a forward .*other route"
    ):
        passes.optimize(model, X, route="fx")


@pytest.mark.parametrize("route", ["fx", "export"])
def test_what_holds_in_one_memory_format_alone_is_refused(route):
    def straight(
        m, x
    ):  # a copy of what comes in channels_last memory, and otherwise the convolution's own result
        y = m.conv(x)
        y.contiguous().add_(1)
        return y

    with pytest.raises(
        WrongAnswer, match=r"in call 2, with inputs of shape .* in channels_last memory"
    ):
        passes.optimize(Net(straight, conv=conv()).eval(), X, "inference", route)


def noisy(m, x):
    return m.bn(m.conv(F.dropout(x, 0.5, training=True))) + torch.rand(4, 1, 1)


RIGHT = {
    "random numbers": (noisy, X),
    "half precision": (lambda m, x: m.bn(m.conv(x)), X.bfloat16()),
    "float64 of float32": (lambda m, x: m.bn(m.conv(x)).double() + 1, X),
    "whole numbers": (
        lambda m, x: m.conv(x.float() / 9).argmax(1),
        torch.randint(0, 255, (2, 3, 6, 6)),
    ),
    "whole numbers that nearly tie": (
        lambda m, x: torch.stack([y := m.bn(m.conv(x)), y + 1e-7 * y.flip(2)], 1).argmax(1),
        torch.randn(2, 3, 64, 64),
    ),
    "several results": (lambda m, x: {"a": m.bn(m.conv(x)), "b": (x.shape[1], None, x > 0)}, X),
    "an input that is written to": (lambda m, x: m.bn(m.conv(x.add_(1))), X),
    "another result in each call": (counting, X),
    "only this batch size": (lambda m, x: m.conv(x).reshape(2, -1), X),
    "numbers that cancel out": (lambda m, x: 1e4 + (y := m.bn(m.conv(x))) - 1e4 - y + 1e-7 * y, X),
    "a sparse constant": (
        lambda m, x: torch.sparse.mm(m.sparse, m.bn(m.conv(x)).sum((0, 2, 3))[:, None]),
        X,
    ),
    "contiguous images alone": (lambda m, x: m.conv(x.add_(1)).view(x.shape[0], -1), X),
    "no finite answer": (lambda m, x: (m.bn(m.conv(x)) - 9).log(), X),
    "a weight that is written to": (
        lambda m, x: (y := m.conv(x), m.conv.weight.add_(1), F.relu(y))[-1],
        X,
    ),
    "statistics of the batch": (lambda m, x: (m.counts(x), x * m.counts.running_mean.sum())[-1], X),
    "rows cut to a norm": (lambda m, x: (m.rows(m.amounts), x * m.rows.weight.sum())[-1], X),
    "a factor in another type": (lambda m, x: torch.add(m.conv(x), m.bytes, alpha=2), X),
    "whole numbers shifted in place": (
        lambda m, x: (y := (9 * x).int(), z := y, operator.ilshift(y, 1), z)[-1],
        X,
    ),
    "a size before a reshape": (
        lambda m, x: (s := (y := x + 1).size(), y.unsqueeze_(0), y * s[0])[-1],
        X,
    ),
    "a size before a turn": (
        lambda m, x: (s := (y := x[0, 0, :, :5] + 1).size(), y.t_(), y * s[0])[-1],
        X,
    ),
    "a size of a buffer that is turned": (
        lambda m, x: (m.bytes.transpose_(0, 1), x * m.bytes.shape[0])[-1],
        X,
    ),
    "a layer that counts inside": (
        lambda m, x: (m.inside(x.flatten(2)), x * m.inside.norm1.running_mean.sum())[-1],
        X,
    ),
    "padded by computed amounts": (lambda m, x: m.conv(F.pad(x, m.amounts.tolist())), X),
}


@pytest.mark.parametrize("what", RIGHT)
def test_there_is_no_false_alarm(what):
    run, x = RIGHT[what]
    parts = {
        "counts": nn.BatchNorm2d(3),
        "rows": nn.Embedding(3, 3, max_norm=0.1),
        "amounts": torch.ones(4).int(),
    }
    parts |= {
        "count": torch.zeros(()),
        "sparse": torch.eye(4).to_sparse(),
        "bytes": torch.full((4, 1, 1), 200).byte(),
    }
    parts["inside"] = nn.TransformerEncoderLayer(36, 2, 8, activation=F.silu)
    parts["inside"].norm1 = nn.BatchNorm1d(3)
    model = Net(run, conv=conv(), bn=norm(4), **parts).eval()
    model.counts.train(), model.inside.norm1.train()
    for level in ("fold", "inference"):
        assert (
            passes.optimize(model.bfloat16() if x.dtype == torch.bfloat16 else model, x, level)[0]
            is not None
        )


def test_dropout_in_training_is_told_by_the_right_argument():
    graph = fx.Graph()
    graph.output(graph.call_function(F.dropout, (graph.placeholder("x"), 0.5, True, False)))
    for node in graph.nodes:
        node.meta["val"] = X
    assert not passes.Passer(["elim_identity"]).run(fx.GraphModule(nn.Module(), graph)).changed


@pytest.mark.parametrize("images", [1, 2, 5])
def test_it_costs_at_most_eight_forward_passes_of_the_example(images):
    seen = []
    model = Net(lambda m, x: (m.conv(x), seen.append(len(x)))[0], conv=conv()).eval()
    answers = ExpectedAnswers(model, (X[:1].expand(images, -1, -1, -1),))
    assert answers.difference(model) is None
    assert sum(seen) <= 8 * images


def test_an_exported_graph_may_refuse_other_sizes_but_must_not_answer_them_wrongly():
    model = nn.Sequential(conv(), nn.Flatten(0)).eval()
    fixed = Net(lambda m, x: m.conv(x).reshape(2 * 4 * 16)).eval()
    fixed.conv = model[0]
    assert "does not run" in ExpectedAnswers(model, (X,)).difference(fixed)
    assert ExpectedAnswers(model, (X,), any_batch=False).difference(fixed) is None


def test_a_file_gets_the_folded_weight_of_a_layer_whose_weight_was_a_buffer():
    model = nn.Sequential(conv(bias=False), norm(4)).eval()
    as_buffer(model[0])
    folded, _ = passes.optimize(model, X)
    layer = folded.get_submodule("0")
    assert torch.equal(folded.state_dict()["0.weight"], layer.weight)
    assert not torch.equal(layer.weight, model[0].weight)


def by_hook():
    model = small()
    model[3].register_forward_hook(lambda module, args, result: 2 * result)
    return model


def only_export():
    """Decides by a size, which fx refuses."""
    return Net(lambda m, x: m.bn(m.conv(x)) * (2 if x.size(2) > 3 else 1), conv=conv(), bn=norm(4))


def export_folds_more():
    """A size of the layer's result is read in between, which export knows as a number."""

    def run(m, x):
        y = m.conv(x)
        return m.bn(y).reshape(y.shape[0], -1, y.shape[2] * y.shape[3])

    return Net(run, conv=conv(), bn=norm(4))


ROUTE_TAKEN = {small: "fx", by_hook: "export", only_export: "export", export_folds_more: "export"}


@pytest.mark.parametrize("build", ROUTE_TAKEN)
def test_without_a_route_the_better_one_is_taken(build, tmp_path):
    model = build().eval()
    folded, report = passes.optimize(model, X)
    assert report.route == ROUTE_TAKEN[build] and differences(model, folded, X) == []
    assert not any(isinstance(module, nn.BatchNorm2d) for module in folded.modules())


def written_into_zeros(m, x):
    means = torch.zeros(4)
    means[:3] = x.mean((0, 2, 3))
    return m.fc(means)


def written_into_a_map(m, x):
    out = torch.zeros(2, 4, 8, 8)
    out[:, :, 1:7, 1:7] = m.conv(x)
    return F.relu(out)


def a_part_times_one(m, x):
    a, b = x.chunk(2, dim=-1)
    return torch.relu((a * 1.0).view(x.size(0), -1)) + b.mean()


@pytest.mark.parametrize("run", [written_into_zeros, written_into_a_map, a_part_times_one])
def test_what_forward_writes_into_a_tensor_of_its_own_and_how_it_lies_in_memory_stays(run):
    model, x = Net(run, conv=conv(), fc=nn.Linear(4, 2)).eval(), torch.randn(2, 3, 8, 8)
    folded, _ = passes.optimize(model, x)
    torch.testing.assert_close(folded(x + 1), model(x + 1))


def test_a_filter_that_is_a_buffer_is_fused():
    blur = nn.Conv2d(3, 3, 3, groups=3, bias=False)
    kernel = blur.weight.detach()
    del blur.weight
    blur.register_buffer("weight", kernel)
    model, x = nn.Sequential(blur, nn.ReLU()).eval(), torch.randn(2, 3, 8, 8)
    fused, _ = passes.optimize(model, x, level="inference")
    torch.testing.assert_close(fused(x), model(x))
    assert not any(parameter.requires_grad for parameter in fused.parameters())


def test_a_network_that_no_route_takes_is_refused_with_both_reasons_and_nothing_else(
    capsys, caplog
):
    decides = Net(
        lambda s, x: s.a(x) if x.mean() > 0 else s.b(x), a=conv(3, 4), b=conv(3, 4)
    ).eval()
    with pytest.raises(UnsupportedCase, match="control flow") as caught:
        passes.optimize(decides, torch.randn(2, 3, 8, 8))
    (note,) = caught.value.__notes__
    assert note.startswith("and by the other route: tracing: Net cannot be traced")
    assert capsys.readouterr() == ("", "")
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []
