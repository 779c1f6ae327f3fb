"""Small networks with channels that cannot be cut, and why."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from tests.pruning.zoo import Net, conv, padded_shortcut


def shortcut_if_equal(s, x):
    x = s.a(x)
    y = s.b(x)
    return s.c(y + x if s.b.in_channels == s.b.out_channels else y)


def summed_table() -> nn.Module:
    net = Net(lambda s, x: (lambda total: s.b(s.a(x) * s.table / total))(s.table.mean()), a=conv(3, 8), b=conv(8, 5))
    net.register_buffer("table", torch.rand(8, 1, 1) + 1)
    return net


# name -> (network, group, part of the reason why it is unprunable)
OUTER = {"a": nn.Linear(8, 6), "b": nn.Linear(36, 5)}
ROLLED = nn.Parameter(torch.randn(5, 8))
ACROSS = nn.Conv1d(1, 4, 3, padding=1)
UNPRUNABLE = {
    "zero padded shortcut": (
        lambda: Net(padded_shortcut, a=conv(3, 8), b=conv(8, 16), c=conv(16, 5)),
        "b",
        "this part of the result has a fixed size",
    ),
    "fixed view": (
        lambda: Net(lambda s, x: s.b(s.a(x).view(-1, 8, 64).mean(2)), a=conv(3, 8), b=nn.Linear(8, 5)),
        "a",
        "fixed size",
    ),
    "fixed slice": (lambda: Net(lambda s, x: s.b(s.a(x)[:, :4]), a=conv(3, 8), b=conv(4, 5)), "a", "fixed numbers"),
    "picked channel": (lambda: Net(lambda s, x: s.b(s.a(x)[:, 2:3]), a=conv(3, 8), b=conv(1, 5)), "a", "fixed numbers"),
    "layer norm": (
        lambda: Net(
            lambda s, x: s.b(s.n(s.a(x.mean((2, 3))))), a=nn.Linear(3, 8), n=nn.LayerNorm(8), b=nn.Linear(8, 5)
        ),
        "a",
        "normalises over all channels",
    ),
    "layer norm over maps": (
        lambda: nn.Sequential(conv(3, 8), nn.LayerNorm([8, 8, 8]), conv(8, 5)),
        "0",
        "over all channels",
    ),
    "layer norm as a function": (
        lambda: Net(lambda s, x: s.b(F.layer_norm(s.a(x), (8,))), a=nn.Linear(8, 8), b=nn.Linear(8, 5)),
        "a",
        "normalises over all channels",
    ),
    "one group": (
        lambda: nn.Sequential(conv(3, 8), nn.GroupNorm(1, 8), conv(8, 5)),
        "0",
        "normalises over all channels",
    ),
    "softmax over channels": (
        lambda: Net(lambda s, x: s.b(s.a(x).softmax(1)), a=conv(3, 8), b=conv(8, 5)),
        "a",
        "mixes the channels",
    ),
    "mean over channels": (
        lambda: Net(lambda s, x: s.b(s.a(x).mean(1, keepdim=True)), a=conv(3, 8), b=conv(1, 5)),
        "a",
        "how many channels",
    ),
    "unknown operation": (
        lambda: Net(lambda s, x: s.b(torch.roll(s.a(x), 1, 1)), a=conv(3, 8), b=conv(8, 5)),
        "a",
        "roll): this operation",
    ),
    "computes with the width": (
        lambda: Net(lambda s, x: (lambda y: s.b(y * y.shape[1] ** -0.5))(s.a(x)), a=conv(3, 8), b=conv(8, 5)),
        "a",
        "computes with the number of channels",
    ),
    "stored width": (
        lambda: Net(lambda s, x: s.b(s.a(x) * s.a.out_channels), a=conv(3, 8), b=conv(8, 5)),
        "a",
        "stored number",
    ),
    "merged axes": (
        lambda: Net(lambda s, x: (lambda y: s.b(y.matmul(y.transpose(2, 3))))(s.a(x)), a=conv(3, 8), b=conv(8, 5)),
        "a",
        "matmul): this operation",
    ),
    "unequal pieces": (
        lambda: Net(lambda s, x: s.b(s.a(x).split([2, 6], 1)[1]), a=conv(3, 8), b=conv(6, 5)),
        "a",
        "pieces are not equal",
    ),
    "fixed reshape": (
        lambda: Net(lambda s, x: s.b(s.a(x).reshape(-1, 8, 64).mean(2)), a=conv(3, 8), b=nn.Linear(8, 5)),
        "a",
        "fixed size",
    ),
    "fixed expand": (
        lambda: Net(lambda s, x: s.b(s.a(x).expand(1, 8, 8, 8)), a=conv(3, 8), b=conv(8, 5)),
        "a",
        "fixed size",
    ),
    "fixed split": (
        lambda: Net(lambda s, x: s.b(s.a(x).split(4, 1)[0]), a=conv(3, 8), b=conv(4, 5)),
        "a",
        "fixed size",
    ),
    "half fixed split": (
        lambda: Net(
            lambda s, x: (lambda y: s.b(y.split([y.shape[1] // 2, 4], 1)[0]))(s.a(x)), a=conv(3, 8), b=conv(4, 5)
        ),
        "a",
        "fixed size",
    ),
    "seen as another type": (
        lambda: Net(lambda s, x: s.b(s.a(x).view(torch.int32).view(torch.float32)), a=conv(3, 8), b=conv(8, 5)),
        "a",
        "view): this operation is not understood",
    ),
    "outer product": (
        lambda: Net(
            lambda s, x: (lambda y: s.b((y[:, None] * y[:, :, None]).flatten(1)))(s.a(x.mean((1, 2)))), **OUTER
        ),
        "a",
        "merges two axes",
    ),
    "every second channel": (
        lambda: Net(lambda s, x: s.b(s.a(x)[:, ::2]), a=conv(3, 8), b=conv(4, 5)),
        "a",
        "fixed numbers",
    ),
    "all but three channels": (
        lambda: Net(lambda s, x: (lambda y: s.b(y[:, : y.shape[1] - 3]))(s.a(x)), a=conv(3, 8), b=conv(5, 5)),
        "a",
        "fixed numbers",
    ),
    "all but four of eight channels": (
        lambda: Net(lambda s, x: (lambda y: s.b(y[:, : y.shape[1] - 4]))(s.a(x)), a=conv(3, 8), b=conv(4, 5)),
        "a",
        "a trial cut fails",
    ),
    "weight that is computed": (
        lambda: Net(
            lambda s, x: s.b(F.conv2d(s.a(x), s.w * 2)),
            a=conv(3, 8),
            w=nn.Parameter(torch.randn(6, 8, 1, 1)),
            b=conv(6, 5),
        ),
        "a",
        "conv2d): this operation is not understood",
    ),
    "matrix that is computed": (
        lambda: Net(lambda s, x: F.linear(s.a(x), s.w * 2), a=nn.Linear(8, 8), w=nn.Parameter(torch.randn(5, 8))),
        "a",
        "linear): this operation is not understood",
    ),
    "transposed convolution as a function": (
        lambda: Net(lambda s, x: s.c(F.conv_transpose2d(s.a(x), s.b.weight)), a=conv(3, 8), b=conv(8, 8), c=conv(8, 5)),
        "a",
        "conv_transpose2d): this operation is not understood",
    ),
    "channels from the middle": (
        lambda: Net(
            lambda s, x: (lambda y, q: s.b(y[:, q:-q]))(s.a(x), s.a(x).shape[1] // 4), a=conv(3, 8), b=conv(4, 5)
        ),
        "a",
        "fixed numbers",
    ),
    "no channel at all": (
        lambda: Net(lambda s, x: (lambda y: s.b(torch.cat([y, y[:, :0]], 1)))(s.a(x)), a=conv(3, 8), b=conv(8, 5)),
        "a",
        "fixed numbers",
    ),
    "one channel": (
        lambda: Net(lambda s, x: s.b(s.a(x)[:, 2].unsqueeze(1)), a=conv(3, 8), b=conv(1, 5)),
        "a",
        "picks one channel",
    ),
    "softmax over channels from the end": (
        lambda: Net(lambda s, x: s.b(s.a(x).softmax(-3)), a=conv(3, 8), b=conv(8, 5)),
        "a",
        "mixes the channels",
    ),
    "mean over channels from the end": (
        lambda: Net(lambda s, x: s.b(s.a(x).mean(-3, keepdim=True)), a=conv(3, 8), b=conv(1, 5)),
        "a",
        "how many channels",
    ),
    "arguments by name": (
        lambda: Net(lambda s, x: s.b(torch.roll(input=s.a(x), shifts=1, dims=1)), a=conv(3, 8), b=conv(8, 5)),
        "a",
        "roll): this operation",
    ),
    "convolution across channels": (
        lambda: Net(
            lambda s, x: s.b(s.k(s.a(x).mean((2, 3))[:, None]).mean(2)), a=conv(3, 8), k=ACROSS, b=nn.Linear(4, 5)
        ),
        "a",
        "works across this axis",
    ),
    "pooling across channels": (
        lambda: Net(lambda s, x: s.b(s.p(s.a(x)).mean(2)), a=nn.Linear(8, 8), p=nn.MaxPool2d(2), b=nn.Linear(4, 5)),
        "a",
        "works across this axis",
    ),
    "table of constants": (
        lambda: Net(lambda s, x: s.b(s.a(x) * torch.arange(8.0)), a=nn.Linear(8, 8), b=nn.Linear(8, 5)),
        "a",
        "meets an axis that cannot be cut",
    ),
    "weight that was rolled before": (
        lambda: Net(lambda s, x: s.w.roll(1, 1).sum() + F.linear(s.a(x), s.w), a=nn.Linear(8, 8), w=ROLLED),
        "a",
        "meets an axis that cannot be cut",
    ),
    "decides by the width": (
        lambda: Net(lambda s, x: (lambda y: s.b(y if y.shape[1] > 4 else -y))(s.a(x)), a=conv(3, 8), b=conv(8, 5)),
        "a",
        "decides by the number of channels",
    ),
    "all tied into one": (
        lambda: nn.Sequential(conv(3, 4), nn.ChannelShuffle(4), conv(4, 5)),
        "0",
        "all its channels are tied into one",
    ),
    **{
        f"decides by {name}": (
            lambda decide=decide: Net(
                lambda s, x: (lambda y: s.b(torch.tanh(y) if decide(s, y) else y))(s.a(x)), a=conv(3, 8), b=conv(8, 5)
            ),
            "a",
            reason,
        )
        for name, decide, reason in [
            ("a bit", lambda s, y: y.shape[1] & 1, "decides by the number"),
            ("a shift", lambda s, y: y.shape[1] >> 3, "decides by the number"),
            ("its length in bits", lambda s, y: y.shape[1].bit_length() > 3, "decides by the number"),
            ("a division with remainder", lambda s, y: divmod(y.shape[1], 8)[0], "decides by the number"),
            ("its logarithm", lambda s, y: math.log2(y.shape[1]) > 2, "decides by the number"),
            ("a common divisor", lambda s, y: math.gcd(y.shape[1], 4) > 1, "decides by the number"),
            ("how often a loop runs", lambda s, y: [1 for _ in range(y.shape[1] // 8)], "decides by the number"),
            ("what a layer states", lambda s, y: s.a.out_channels > 4, "stored number"),
            ("the sizes of two tensors", lambda s, y: y.is_same_size(y + 1), "the answer may depend"),
        ]
    },
    "a shortcut where widths happen to agree": (
        lambda: Net(shortcut_if_equal, a=conv(3, 8), b=conv(8, 6), c=conv(6, 5)),
        "b",
        "stored number",
    ),
    **{
        f"a width as a size: {name}": (lambda f=f: Net(f, a=conv(3, 8), b=conv(8, 5)), "a", "another axis")
        for name, f in [
            ("slice", lambda s, x: (lambda y: s.b(y[:, :, : y.shape[1]]))(s.a(x))),
            ("padding", lambda s, x: (lambda y: s.b(F.pad(y, (0, y.shape[1] // 8))))(s.a(x))),
            ("pieces", lambda s, x: (lambda y: s.b(y) + x.chunk(y.shape[1] // 8, 2)[0].mean())(s.a(x))),
            ("expansion", lambda s, x: (lambda y: s.b(y) + x[:, :1, :1, :1].expand(-1, 5, y.shape[1], 8))(s.a(x))),
            ("view", lambda s, x: (lambda y: s.b(y) + x.view(-1, 3, y.shape[1], 8).mean())(s.a(x))),
        ]
    },
    "a width as the size of other channels": (
        lambda: Net(lambda s, x: s.b(s.c(x)[:, : s.a(x).shape[1]]), a=conv(3, 4), c=conv(3, 8), b=conv(4, 5)),
        "c",
        "fixed numbers",
    ),
    "squeezed": (
        lambda: Net(lambda s, x: s.b(s.a(x).mean((2, 3), keepdim=True).squeeze()), a=conv(3, 8), b=nn.Linear(8, 5)),
        "a",
        "would take away a lone channel",
    ),
    "a table that is summed up before it is used": (
        lambda: summed_table(),
        "a",
        "cannot be cut",
    ),
    "written elsewhere": (
        lambda: Net(lambda s, x: s.b(torch.cat([s.a(x), s.a(x)], 1, out=x.new_empty(0))), a=conv(3, 8), b=conv(16, 5)),
        "a",
        "cat): this operation",
    ),
}
