from torch import fx

from helpers.passes.errors import PassError, source_line

TRACE = '  File "/home/me/net.py", line 7, in forward\n    y = x + 1\n  File "/lib/torch/nn/modules/module.py", line 99'


def node_with(trace: str | None) -> fx.Node:
    node = fx.Graph().placeholder("x")
    node.stack_trace = trace
    return node


def test_the_line_of_the_reader_is_found():
    assert source_line(node_with(TRACE)) == "/home/me/net.py:7"
    assert source_line(node_with(TRACE.splitlines()[2])) == "/lib/torch/nn/modules/module.py:99"
    assert source_line(node_with(None)) is None


def test_the_message_names_pass_node_line_and_reason():
    error = PassError("fold", "cannot", node_with(TRACE))
    assert str(error) == "fold at node 'x' (/home/me/net.py:7): cannot"
    assert (error.pass_name, error.node, error.reason) == ("fold", "x", "cannot")
    assert str(PassError("fold", "cannot", "y")) == "fold at node 'y': cannot"
    assert str(PassError("fold", "cannot")) == "fold: cannot" and PassError("fold", "cannot").node is None
