import pytest
import torch
from torch import nn

from helpers.graphs.matching import attribute, find
from helpers.graphs.patterns import Constant, Op, Value
from tests.passes.graphs import graph_of

PATTERN = Op([torch.mul], (Op([torch.exp], (Value("x"),), name="inner"), Constant("z")), name="outer")


def match_in(function, **parts):
    (match,) = find(graph_of(function, **parts), PATTERN).matches
    return match


def test_nodes_are_found_by_the_names_of_the_pattern():
    match = match_in(lambda net, x: torch.mul(torch.exp(x), 3))
    assert (str(match["outer"]), str(match["inner"]), str(match["x"])) == ("mul", "exp", "x")
    assert match.anchor is match["outer"] and match.vanishing == (match["outer"], match["inner"])
    assert match.returning == (match.anchor,) and match.placeholders[1] == 3
    with pytest.raises(KeyError, match="has no node 'y'; it has"):
        match["y"]


@pytest.mark.parametrize("z", [torch.randn(3), 2.5])
def test_a_constant_is_given_as_its_value(z):
    parts = {"z": z} if isinstance(z, torch.Tensor) else {}
    match = match_in(lambda net, x: torch.mul(torch.exp(x), net.z if parts else z), **parts)
    found = match.constant("z")
    assert torch.equal(found, z) if parts else found == z


def test_dotted_paths():
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2)))
    assert attribute(model, "0.0.weight") is model[0][0].weight
