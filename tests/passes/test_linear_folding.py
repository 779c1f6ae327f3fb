import pytest
import torch
from torch import nn

from tests.passes.folding import calls, fold, reasons
from tests.passes.zoo import Net, norm

PASSES = "linear_folding conv_bn_folding conv_add_folding conv_mul_folding"
FOLDS = {
    "matmul": (lambda m, x: x @ m.w, (2, 3, 5)),
    "matmul, sum, product": (lambda m, x: (x @ m.w + m.z) * m.z - 1, (2, 5)),
    "addmm": (lambda m, x: torch.addmm(m.z, x, m.w), (3, 5)),
    "linear, sum, product": (lambda m, x: m.z - m.fc(x) * 2, (2, 3, 5)),
    "linear and norm": (lambda m, x: m.bn(m.fc(x)), (6, 5)),
    "linear, product, norm": (lambda m, x: m.bn(m.fc(x) / m.z), (6, 5)),
}


def network(run) -> nn.Module:
    torch.manual_seed(0)
    return Net(run, fc=nn.Linear(5, 4), bn=norm(4, 1), w=torch.randn(5, 4), z=torch.randn(4), rows=torch.randn(3, 4))


@pytest.mark.parametrize("route", ["fx", "export"])
@pytest.mark.parametrize("what", FOLDS)
def test_everything_becomes_one_layer(what, route):
    run, shape = FOLDS[what]
    graph_module, _ = fold(PASSES, network(run), torch.randn(shape), route)
    assert calls(graph_module) == [nn.Linear]


STAYS = {
    "both factors computed": (lambda m, x: x @ x.transpose(0, 1), (3, 5), ""),
    "weight first": (lambda m, x: m.w @ x, (4, 3), "is not a constant"),
    "a batch of matrices": (lambda m, x: x @ m.w[None], (2, 3, 5), ""),
    "a bias per row": (lambda m, x: torch.addmm(m.rows, x, m.w), (3, 5), "one number per output feature"),
    "norm over 3-D": (lambda m, x: m.bn(m.fc(x)), (2, 4, 5), "does not count its channels"),
    "the weight is written": (lambda m, x: (x @ m.w, m.w.add_(1))[0], (3, 5), "written to"),
}


@pytest.mark.parametrize("what", STAYS)
def test_what_is_no_fully_connected_layer_stays(what):
    run, shape, reason = STAYS[what]
    graph_module, report = fold(PASSES, network(run), torch.randn(shape))
    assert report.changed == [] and len(calls(graph_module)) > 0
    assert not reason or any(reason in given for given in reasons(report)), report.declined
