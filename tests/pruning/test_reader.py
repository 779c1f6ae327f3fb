"""What a network does is written down: every operation, with its inputs, its constants and its real shape."""

import operator

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers.pruning.reader import TraceError, name_of, on_meta, operation, read
from tests.pruning.zoo import PRUNABLE, Net, ToyMobile, build, conv

EXAMPLE = torch.zeros(2, 3, 8, 8)


def recorded(model):
    return read(on_meta(model), EXAMPLE)


def steps(nodes):
    return [name_of(n) for n in nodes if n.op in ("call_module", "call_function", "call_method")]


def a_forward(forward, **layers):
    return recorded(build(lambda: Net(forward, **layers)))


@pytest.mark.parametrize("name", PRUNABLE)
def test_every_layer_has_the_shape_that_a_real_run_gives(name):
    model, found, real = build(PRUNABLE[name][0]), {}, {}
    for node in recorded(model):
        if node.op == "call_module":
            found.setdefault(node.target, []).append(node.meta["value"].shape)
    for path, module in model.named_modules():
        module.register_forward_hook(lambda m, args, out, path=path: real.setdefault(path, []).append(out.shape))
    model(EXAMPLE)
    assert found == {path: shapes for path, shapes in real.items() if path in found}
    assert found or name == "functional"


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

    names = ["add"] * 6 + ["sub", "truediv", "pow"] + ["mul"] * 3
    assert [operation(n) for n in a_forward(forward) if n.op.startswith("call")] == names


def test_what_is_written_in_place_is_the_new_value_from_then_on():
    def forward(net, x):
        y = net.a(x)
        y.transpose_(2, 3)
        return net.act(y) + y

    nodes = {name_of(n): n for n in a_forward(forward, a=conv(3, 4), act=nn.Identity())}
    assert [name_of(n) for n in nodes["add"].args] == ["act", "transpose_"]


def test_sizes_are_followed_through_arithmetic():
    def forward(net, x):
        n, c, *_ = x.shape
        return x.view(n, -(-c // 2) + 2 * c - 2, -1)

    nodes = a_forward(forward)
    names = [n.name for n in nodes if n.op.startswith("call") and n.target is not operator.getitem]
    assert names == ["getattr_1", "neg", "floordiv", "neg_1", "mul", "add", "sub", "view"]
    assert [n.meta["value"] for n in nodes[-2].args[1:3]] == [2, 6]


def test_a_forward_may_ask_and_decide():
    def forward(net, x):
        assert x.dtype is torch.float32
        assert x.is_contiguous()
        assert len(x) == 2
        assert divmod(x.shape[1], 2) == (1, 1)
        table = torch.arange(4).reshape(2, 2)
        assert int(table.sum()) == 6
        rows = [row for row in x]  # noqa: C416
        return torch.stack([row.relu() for row in rows for _ in range(x.shape[1] - 2)]).to(x.device)[..., table]

    nodes = a_forward(forward)
    assert [operation(n) for n in nodes].count("relu") == 2
    assert nodes[-1].args[0].meta["value"].shape == (2, 3, 8, 2, 2)


def test_a_table_that_is_made_as_large_as_a_tensor_goes_on_without_content():
    nodes = a_forward(lambda net, x: torch.cat([x, torch.zeros(x.shape[0], 4, *x.shape[2:])], 1))
    assert nodes[-1].args[0].meta["value"].shape == (2, 7, 8, 8)
    assert nodes[-1].args[0].meta["value"].is_meta


def test_each_part_of_a_result_is_a_node():
    nodes = a_forward(lambda net, x: net.a(x).chunk(2, 1)[1], a=conv(3, 4))
    assert nodes[-1].args[0].args[0].name == "chunk"
    assert nodes[-1].args[0].args[1] == 1


def test_the_network_is_as_it_was():
    model = on_meta(build(ToyMobile))
    model.blocks[0].forward = lambda x: x
    before = [dict(vars(m)) for m in model.modules()]
    read(model, EXAMPLE)
    assert before == [dict(vars(m)) for m in model.modules()]
    with pytest.raises(TraceError):
        read(model, torch.zeros(1, 4, 8, 8))
    assert before == [dict(vars(m)) for m in model.modules()]


def test_a_shared_module_is_called_twice():
    shared = build(PRUNABLE["shared module"][0])
    assert steps(recorded(shared)) == ["a", "relu", "b", "relu_1", "b", "c"]


def test_a_layer_with_a_forward_of_its_own_is_looked_into():
    model = nn.Sequential(conv(3, 4), conv(4, 4)).eval()
    model[1].forward = lambda x: x.flip(1)
    assert steps(recorded(model)) == ["0", "flip"]


def test_what_layers_do_inside_is_their_own_business():
    encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    nodes = a_forward(lambda net, x: net.a(F.relu(x.flatten(1, 2))), a=encoder)
    assert steps(nodes) == ["flatten", "relu", "a"]


def test_the_meta_copy_shares_what_the_original_shares():
    model = build(PRUNABLE["chain"][0])
    model[4].weight = nn.Parameter(torch.zeros(4, 6, 3, 3))
    model.twin = model.requires_grad_(False)[4]
    copied = on_meta(model)
    assert copied.twin is copied[4]
    assert {t.device.type for t in [*copied.parameters(), *copied.buffers()]} == {"meta"}
    assert {t.device.type for t in [*model.parameters(), *model.buffers()]} == {"cpu"}
    assert all(type(p) is nn.Parameter and not p.requires_grad for p in copied.parameters())


def test_the_error_knows_the_node():
    with pytest.raises(TraceError, match="at node stem") as caught:
        read(on_meta(build(ToyMobile)), torch.zeros(1, 5, 8, 8))
    assert caught.value.position == 1
    assert "\n" not in caught.value.cause


def test_inputs_have_to_be_tensors():
    with pytest.raises(TraceError, match="example_inputs: expected one tensor"):
        read(on_meta(build(ToyMobile)), ())
