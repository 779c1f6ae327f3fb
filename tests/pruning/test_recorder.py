"""What a network does is written down: every operation, with its inputs, its constants and its real shape."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers.pruning.recorder import Recorder
from helpers.pruning.tracing import on_meta
from tests.pruning.zoo import PRUNABLE, Block, Net, ToyMobile, build, conv

EXAMPLE = torch.zeros(2, 3, 8, 8)


def recorded(model, *inputs):
    recorder = Recorder(on_meta(model))
    recorder.run(inputs or (EXAMPLE,))
    return recorder.nodes


def steps(nodes):
    return [node.name for node in nodes if node.kind in ("layer", "function")]


def a_forward(forward, **layers):
    return recorded(build(lambda: Net(forward, **layers)))


@pytest.mark.parametrize("name", PRUNABLE)
def test_every_layer_has_the_shape_that_a_real_run_gives(name):
    model, found, real = build(PRUNABLE[name][0]), {}, {}
    for node in recorded(model):
        if node.kind == "layer":
            found.setdefault(node.name, []).append(node.value.shape)
    for path, module in model.named_modules():
        module.register_forward_hook(lambda m, args, out, path=path: real.setdefault(path, []).append(out.shape))
    model(EXAMPLE)
    assert found == {path: shapes for path, shapes in real.items() if path in found}
    assert found or name == "functional"


def test_inputs_are_the_nodes_they_come_from():
    nodes = {node.name: node for node in recorded(build(ToyMobile))}
    join = nodes["add"]
    assert [a.name for a in join.args] == ["stem", "blocks.0.bn3"]
    assert nodes["relu6"].args[0] is nodes["blocks.0.bn1"]
    assert join.inside is Block
    assert nodes["mean"].inside is ToyMobile


def test_all_spellings_of_an_operation_have_one_name():
    def forward(net, x):
        y = x + 1
        y = torch.add(y, 1)
        y = y.add(1)
        y.add_(1)
        y += 1
        y = 1 + y
        y -= 1
        y /= 1
        y **= 2
        return 2 * y * y.mul_(2)

    names = ["add"] * 6 + ["sub", "div", "pow"] + ["mul"] * 3
    assert [n.op for n in a_forward(forward) if n.kind == "function"] == names


def test_what_is_written_in_place_is_the_new_value_from_then_on():
    nodes = a_forward(lambda net, x: F.relu(net.a(x).mul_(2)) + 1, a=conv(3, 4))
    assert [n.args[0].name for n in nodes if n.op in ("mul", "relu", "add")] == ["a", "mul", "relu"]


def test_a_layer_in_place_keeps_its_input_apart():
    nodes = a_forward(lambda net, x: (lambda y: net.act(y) + y)(net.a(x)), a=conv(3, 4), act=nn.Identity())
    assert [a.name for a in nodes[-2].args] == ["act", "a"]


def test_parameters_buffers_and_constants_are_told_apart():
    def forward(net, x):
        return x * net.scale + net.shift + torch.ones(3, 1, 1)

    model = build(lambda: Net(forward, scale=nn.Parameter(torch.ones(3, 1, 1))))
    model.register_buffer("shift", torch.zeros(3, 1, 1))
    found = [(n.kind, n.name) for n in recorded(model) if n.kind in ("stored", "constant")]
    assert found == [("stored", "scale"), ("stored", "shift"), ("constant", "constant")]


def test_what_depends_on_nothing_is_computed_and_no_node():
    def forward(net, x):
        table = torch.arange(4).reshape(2, 2)
        assert int(table.sum()) == 6
        return x.view(2, 3, 64)[..., table] + table

    assert steps(recorded(build(lambda: Net(forward)))) == ["view", "getitem", "add"]


def test_a_table_that_is_made_as_large_as_a_tensor_goes_on_without_content():
    nodes = a_forward(lambda net, x: torch.cat([x, torch.zeros(x.shape[0], 4, *x.shape[2:])], 1))
    assert nodes[-1].args[0].value.shape == (2, 7, 8, 8)
    assert nodes[-1].args[0].value.is_meta


def test_questions_about_a_tensor_are_no_nodes():
    def forward(net, x):
        assert x.dtype is torch.float32
        assert x.is_contiguous()
        return x.to(x.device)

    assert steps(a_forward(forward)) == ["to"]


def test_sizes_are_followed_through_arithmetic():
    def forward(net, x):
        n, c, *_ = x.shape
        return x.view(n, -(-c // 2) + 2 * c - 2, -1)

    nodes = a_forward(forward)
    names = [n.name for n in nodes if n.kind == "function" and not n.name.startswith("getitem")]
    assert names == ["shape", "neg", "floordiv", "neg_1", "mul", "add", "sub", "view"]
    view = nodes[-2]
    assert (view.args[1].value, view.args[2].value, view.args[3]) == (2, 6, -1)


def test_each_part_of_a_result_is_a_node():
    nodes = a_forward(lambda net, x: net.a(x).chunk(2, 1)[1], a=conv(3, 4))
    assert nodes[-1].args[0].args[0].name == "chunk"
    assert nodes[-1].args[0].args[1] == 1


def test_a_layer_without_a_formula_runs_without_content():
    nodes = a_forward(lambda net, x: net.a(*[x.flatten(0, 1)] * 3)[0], a=nn.MultiheadAttention(8, 2))
    assert steps(nodes) == ["flatten", "a", "getitem", "getitem_1"]
    assert [tuple(t.shape) for t in nodes[-4].value] == [(6, 8, 8), (8, 6, 6)]


def test_the_network_is_as_it_was():
    model = on_meta(build(ToyMobile))
    model.blocks[0].forward = lambda x: x
    before = [dict(vars(m)) for m in model.modules()]
    Recorder(model).run((EXAMPLE,))
    assert before == [dict(vars(m)) for m in model.modules()]
    with pytest.raises(RuntimeError):
        Recorder(model).run((torch.zeros(1, 4, 8, 8),))
    assert before == [dict(vars(m)) for m in model.modules()]


def test_a_shared_module_is_called_twice():
    shared = build(PRUNABLE["shared module"][0])
    assert steps(recorded(shared)) == ["a", "relu", "b", "relu_1", "b", "c"]


def test_a_layer_with_a_forward_of_its_own_is_looked_into():
    model = nn.Sequential(conv(3, 4), conv(4, 4)).eval()
    model[1].forward = lambda x: x.flip(1)
    assert steps(recorded(model)) == ["0", "flip"]
