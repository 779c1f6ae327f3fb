import pytest
from torch import fx, nn

from helpers.passes import registry
from helpers.passes.folder import Pass


def test_a_pass_without_run_says_what_is_missing():
    class Lazy(Pass):
        name = "lazy"

    graph_module = fx.symbolic_trace(nn.ReLU())
    lazy = Lazy()
    lazy.requires(graph_module)
    lazy.ensures(graph_module)
    with pytest.raises(NotImplementedError, match=r"pass Lazy has no run\(\)"):
        lazy.run(graph_module)
    assert repr(lazy) == "<pass lazy>"


def test_every_registered_pass_says_what_it_is():
    names = list(registry._PASSES)
    for name in names:
        a_pass = registry.get(name)
        assert a_pass.name == name and type(a_pass).__doc__
    assert {"canonicalize", "conv_bn_folding", "contiguity"} <= set(names)
