"""What a network does is written down: every operation, with its inputs, its constants and its real shape."""

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_map

from helpers.pruning.reader import TraceError, name_of, on_meta, operation, read
from tests.pruning.zoo import PRUNABLE, Net, ToyMobile, build, conv

EXAMPLE = torch.zeros(2, 3, 8, 8)


def recorded(model):
    return read(on_meta(model), EXAMPLE)


def steps(nodes):
    return [name_of(n) for n in nodes if n.op in ("call_module", "call_function", "call_method")]


def a_forward(forward, **layers):
    return recorded(build(lambda: Net(forward, **layers)))


def shapes(value):
    return tree_map(lambda tensor: tensor.shape, value)


@pytest.mark.parametrize("name", PRUNABLE)
def test_every_layer_has_the_shape_that_a_real_run_gives(name):
    model, found, real = build(PRUNABLE[name][0]), {}, {}
    for node in recorded(model):
        if node.op == "call_module":
            found.setdefault(node.target, []).append(shapes(node.meta["value"]))
    for path, module in model.named_modules():
        module.register_forward_hook(lambda m, args, out, path=path: real.setdefault(path, []).append(shapes(out)))
    model(EXAMPLE)
    assert found == {path: seen for path, seen in real.items() if path in found}
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


def test_the_network_is_as_it_was():
    model = on_meta(build(ToyMobile))
    model.blocks[0].forward = lambda x: x
    before = [dict(vars(m)) for m in model.modules()]
    read(model, EXAMPLE)
    assert before == [dict(vars(m)) for m in model.modules()]
    with pytest.raises(TraceError):
        read(model, torch.zeros(1, 4, 8, 8))
    assert before == [dict(vars(m)) for m in model.modules()]


def test_a_layer_with_a_forward_of_its_own_is_looked_into():
    model = nn.Sequential(conv(3, 4), conv(4, 4)).eval()
    model[1].forward = lambda x: x.flip(1)
    assert steps(recorded(model)) == ["0", "flip"]


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
