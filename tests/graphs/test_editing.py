import torch
from torch import fx, nn

from helpers.graphs.editing import Editor, with_tensors
from tests.passes.graphs import graph_of


def nodes(graph_module: fx.GraphModule) -> dict[str, fx.Node]:
    return {node.name: node for node in graph_module.graph.nodes}


def two_calls() -> fx.GraphModule:
    block = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    return graph_of(lambda net, x: torch.tanh(net.block(x)) + net.block(x + 1), block=block)


def test_a_module_that_is_called_twice_keeps_its_name_for_the_other_call():
    graph_module = two_calls()
    editor = Editor(graph_module)
    first, second = graph_module.graph.find_nodes(op="call_module", target="block.0")
    old, new, newer = graph_module.get_submodule("block.0"), nn.Linear(3, 3), nn.Linear(3, 3)
    editor.swap_module(first, new)
    assert first.target == "block.0_1" and second.target == "block.0"
    assert graph_module.get_submodule("block.0") is old and editor.module(first) is new
    editor.swap_module(second, newer)  # now it is the only one
    assert second.target == "block.0" and graph_module.get_submodule("block.0") is newer


def test_a_module_whose_weight_is_read_keeps_its_name():
    graph_module = graph_of(lambda net, x: net.fc(x) + net.fc.weight.sum(), fc=nn.Linear(3, 3))
    editor, node = Editor(graph_module), nodes(graph_module)["fc"]
    editor.swap_module(node, nn.Linear(3, 3))
    assert node.target == "fc_1"


def test_a_layer_inside_a_block_that_is_called_as_a_whole_keeps_its_name():
    graph_module = graph_of(lambda net, x: net.block(x), block=nn.Sequential(nn.Linear(3, 3)))
    node = nodes(graph_module)["block_0"]
    with graph_module.graph.inserting_after(node):
        whole = graph_module.graph.call_module("block", (node,))
    graph_module.graph.output_node().args = (whole,)
    Editor(graph_module).swap_module(node, nn.Linear(3, 3))
    assert node.target == "block.0_1"


def test_constants_appear_and_go_with_their_last_reader():
    graph_module = graph_of(lambda net, x: torch.relu(x) + 1)
    editor, by_name = Editor(graph_module), nodes(graph_module)
    graph_module.put = 1
    constant = editor.put_tensor(torch.ones(3), "put", before=by_name["add"])
    assert constant.target == "put_1" and torch.equal(editor.tensor(constant), torch.ones(3))
    assert constant.meta["val"].shape == (3,) and editor.tensor(by_name["relu"]) is None
    by_name["add"].args = (by_name["relu"], constant)
    editor.replace(by_name["add"], by_name["relu"])
    assert [node.name for node in graph_module.graph.nodes] == ["x", "relu", "output"]


def test_new_tensors_do_not_touch_the_old_module():
    old = nn.Conv2d(3, 4, 1, bias=False).requires_grad_(False)
    weight = old.weight.clone()
    new = with_tensors(old, weight=2 * weight, bias=torch.ones(4))
    assert torch.equal(old.weight, weight) and old.bias is None
    assert torch.equal(new.weight, 2 * weight) and not new.bias.requires_grad and new.stride == old.stride
    new.register_forward_hook(print)
    assert len(old._forward_hooks) == 0
