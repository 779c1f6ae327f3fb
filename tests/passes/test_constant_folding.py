import pytest
import torch
from torch import fx, nn

from helpers.passes import Passer
from tests.passes.folding import calls, fold, reasons
from tests.passes.zoo import alone, z


def test_a_whole_subgraph_collapses():
    model = alone(lambda m, x: x + ((m.w @ m.w.T).softmax(0) * 2).sum(1), w=z(6, 3))()
    graph_module, report = fold("constant_folding", model, torch.randn(2, 6))
    assert len(calls(graph_module)) == 1 and len(report.changed) == 5
    (constant,) = [node for node in graph_module.graph.nodes if node.op == "get_attr"]
    w = model.w.double()
    expected = (torch.exp(w @ w.T) / torch.exp(w @ w.T).sum(0) * 2).sum(1)
    torch.testing.assert_close(getattr(graph_module, constant.target), expected, rtol=1e-12, atol=0)


STAYS = {
    "returned": (lambda m, x: (x, m.w * 2), "the network returns it"),
    "read before a write": (lambda m, x: (x + m.w * 2, m.w.add_(1))[0], "writes into it"),
    "a view that is written": (lambda m, x: ((v := m.w.view(6)).add_(1), x + v)[1], "writes into it"),
    "not a tensor": (lambda m, x: x * m.w.sum().item(), "is a float"),
}


@pytest.mark.parametrize("what", STAYS)
def test_what_is_not_the_same_each_time_stays(what):
    run, reason = STAYS[what]
    _, report = fold("constant_folding", alone(run, w=z(6))(), torch.randn(2, 6))
    assert any(reason in given for given in reasons(report)), report.declined


def test_the_value_is_a_copy_and_not_a_view_of_a_parameter():
    graph_module, _ = fold("constant_folding", alone(lambda m, x: x + m.w.view(6), w=z(6, 1))(), torch.randn(2, 6))
    (name,) = [node.target for node in graph_module.graph.nodes if node.op == "get_attr"]
    before = getattr(graph_module, name).clone()
    with torch.no_grad():
        graph_module.w.fill_(7.0)
    assert name != "w" and torch.equal(getattr(graph_module, name), before)


def draws_inside(w):
    return w * torch.rand(6, dtype=w.dtype)


draws_inside.__module__ = "torch"  # as a function of torch whose name does not tell that it draws


def test_random_numbers_deep_inside_a_function_are_seen():
    graph = fx.Graph()
    x, w = graph.placeholder("x"), graph.get_attr("w")
    graph.output(graph.call_function(torch.add, (x, graph.call_function(draws_inside, (w,)))))
    root = nn.Module()
    root.register_buffer("w", torch.ones(6))
    graph_module = fx.GraphModule(root, graph)
    report = Passer(["constant_folding"]).run(graph_module)
    assert report.changed == [] and "draws random numbers" in reasons(report)[0]
