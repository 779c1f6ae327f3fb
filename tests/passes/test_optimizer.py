import copy

import pytest
import torch
from torch import fx, nn

from helpers import passes
from helpers.graphs.tracing import UnknownChoice
from helpers.passes.errors import GraphMismatch, UnsupportedCase
from tests.passes.equivalence import differences
from tests.passes.zoo import Net, conv, norm


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(conv(), norm(4), nn.ReLU6(), conv(4, 5), norm(5), nn.Flatten(), nn.Linear(20, 3)).eval()


X = torch.randn(2, 3, 6, 6)


@pytest.mark.parametrize("route", ["fx", "export"])
def test_folds_a_copy_and_leaves_the_model_alone(route):
    model = small()
    state, text = copy.deepcopy(model.state_dict()), repr(model)
    folded, report = passes.optimize(model, X, route=route)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in folded.modules())
    assert differences(model, folded, X) == []
    with torch.no_grad():
        for parameter in folded.parameters():
            parameter.fill_(7.0)
    assert repr(model) == text and all(torch.equal(state[key], value) for key, value in model.state_dict().items())
    assert {"pass", "nodes_before", "nodes_after", "changed", "declined", "ms"} <= set(report.table().columns)


@pytest.mark.parametrize("route", ["fx", "export"])
def test_a_second_run_changes_nothing(route):
    folded, _ = passes.optimize(small(), (X,), route=route)
    code, state = folded.code, copy.deepcopy(folded.state_dict())
    again, report = passes.optimize(folded, X)
    assert report.changed == [] and folded.code == code
    assert [node.target for node in again.graph.nodes] == [node.target for node in folded.graph.nodes]
    assert all(torch.equal(state[key], value) for key, value in again.state_dict().items())


def test_the_worked_example_bit_for_bit():
    """Y = [[3, 7], [2, 1]]; gamma 3, beta -1, mu 2, var 4, eps 0: a = 1.5, shift = -4."""
    layer = nn.Conv2d(1, 1, 2, bias=False)
    layer.weight.data = torch.tensor([[[[1.0, 0.0], [0.0, 1.0]]]])
    image = torch.tensor([[1.0, 6.0, 0.0], [1.0, 2.0, 1.0], [0.0, 1.0, -1.0]]).reshape(1, 1, 3, 3)
    bn = nn.BatchNorm2d(1, eps=0.0)
    bn.weight.data, bn.bias.data = torch.tensor([3.0]), torch.tensor([-1.0])
    bn.running_mean, bn.running_var = torch.tensor([2.0]), torch.tensor([4.0])
    model = nn.Sequential(layer, bn).eval()
    assert layer(image).tolist() == [[[[3.0, 7.0], [2.0, 1.0]]]]
    folded, _ = passes.optimize(model, image)
    new = folded.get_submodule("0")
    assert torch.equal(new.weight, 1.5 * layer.weight) and new.bias.item() == -4.0
    assert model(image).tolist() == [[[[0.5, 6.5], [-1.0, -2.5]]]]
    assert torch.equal(folded(image), model(image))


BAD = {
    "train mode": (lambda: small().train(), X, UnsupportedCase, r"train mode: call model.eval\(\)"),
    "wrong shape": (small, torch.randn(2, 4, 6, 6), GraphMismatch, "node '_0'.*does not accept.*Check the example"),
    "wrong dtype": (small, X.double(), GraphMismatch, "node '_0'.*does not accept.*dtypes and devices agree"),
    "half network": (lambda: small().half(), X, GraphMismatch, "node '_0'.*does not accept"),
    "mixed network": (lambda: nn.Sequential(conv(), conv(4, 2).double()).eval(), X, GraphMismatch, "'_1'.*not accept"),
    "mixed devices": (lambda: nn.Sequential(conv(), conv(4, 2).to("meta")).eval(), X, GraphMismatch, "1.weight has no"),
    "too many inputs": (small, (X, X), GraphMismatch, "takes 1 input and got 2"),
    "too few inputs": (lambda: nn.Bilinear(6, 6, 2).eval(), X, GraphMismatch, "an input is missing"),
    "no input": (small, (), GraphMismatch, "must hold a tensor, got none"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_named(what):
    build, inputs, error, message = BAD[what]
    model = build()
    with pytest.raises(error, match=f"(?s){message}"):
        passes.optimize(model, inputs)


def test_unknown_level_and_route():
    with pytest.raises(UnknownChoice, match=r"'folds': did you mean fold\?"):
        passes.optimize(small(), X, level="folds")
    with pytest.raises(UnknownChoice, match="route 'onnx': choose one of fx, export"):
        passes.optimize(small(), X, route="onnx")


def test_what_the_forward_function_does_to_the_model_happens_to_the_copy():
    def run(m, x):
        m.seen.append(1)
        m.last = 1
        return m.conv(x)

    model = Net(run, conv=conv()).eval()
    model.seen = []
    passes.optimize(model, X)
    assert model.seen == [] and not hasattr(model, "last")


def test_a_traced_network_may_be_optimised_too():
    model = small()
    folded, _ = passes.optimize(fx.symbolic_trace(model), X)
    assert differences(model, folded, X) == [] and len(folded.graph.nodes) == 7


def test_inside_inference_mode_the_result_is_the_same_as_outside():
    """A tensor of inference mode does not count its changes, so no kernel could be prepared for it."""
    with torch.inference_mode():
        inside, _ = passes.optimize(small(), X, level="inference")
        assert not any(parameter.is_inference() for parameter in inside.parameters())
        assert differences(small(), inside, X) == []
