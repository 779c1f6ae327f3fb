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


def widths_added(s, x):
    first = s.a(x)
    second = s.b(first)
    return s.c(second) * (first.shape[1] + second.shape[1])


def padded_to_fit(s, x):
    """The shortcut of a PyramidNet: as many zeros as the wider layer has more."""
    narrow = s.a(x)
    wide = s.b(narrow)
    return s.c(wide + F.pad(narrow, (0, 0, 0, 0, 0, wide.shape[1] - narrow.shape[1])))


def middle(y):
    quarter = y.shape[1] // 4
    return y[:, quarter:-quarter]


CHAIN = {"b": conv(8, 6), "c": conv(6, 5)}
WIDER = {"b": conv(8, 12), "c": conv(12, 5)}
# Between a convolution `a` with 8 channels and `b`: name -> (part of the reason, what is done, b).
BETWEEN = {
    "fixed view": ("fixed size", lambda y: y.view(-1, 8, 64).mean(2), nn.Linear(8, 5)),
    "fixed slice": ("fixed numbers", lambda y: y[:, :4], conv(4, 5)),
    "picked channel": ("fixed numbers", lambda y: y[:, 2:3], conv(1, 5)),
    "layer norm over maps": ("over all channels", lambda y: F.layer_norm(y, (8, 8, 8)), conv(8, 5)),
    "one group": ("over all channels", nn.GroupNorm(1, 8), conv(8, 5)),
    "softmax over channels": ("mixes the channels", lambda y: y.softmax(1), conv(8, 5)),
    "softmax from the end": ("mixes the channels", lambda y: y.softmax(-3), conv(8, 5)),
    "mean over channels": ("how many channels", lambda y: y.mean(1, keepdim=True), conv(1, 5)),
    "mean from the end": ("how many channels", lambda y: y.mean(-3, keepdim=True), conv(1, 5)),
    "unknown operation": ("roll): this operation", lambda y: torch.roll(y, 1, 1), conv(8, 5)),
    "arguments by name": ("roll): this operation", lambda y: torch.roll(input=y, shifts=1, dims=1), conv(8, 5)),
    "the width as a factor": ("computes with the number", lambda y: y * y.shape[1] ** -0.5, conv(8, 5)),
    "merged axes": ("matmul): this operation", lambda y: y.matmul(y.transpose(2, 3)), conv(8, 5)),
    "unequal pieces": ("pieces are not equal", lambda y: y.split([2, 6], 1)[1], conv(6, 5)),
    "fixed reshape": ("fixed size", lambda y: y.reshape(-1, 8, 64).mean(2), nn.Linear(8, 5)),
    "fixed expand": ("fixed size", lambda y: y.expand(1, 8, 8, 8), conv(8, 5)),
    "fixed split": ("fixed size", lambda y: y.split(4, 1)[0], conv(4, 5)),
    "half fixed split": ("fixed size", lambda y: y.split([y.shape[1] // 2, 4], 1)[0], conv(4, 5)),
    "another type": ("view): this operation", lambda y: y.view(torch.int32).view(torch.float32), conv(8, 5)),
    "every second channel": ("fixed numbers", lambda y: y[:, ::2], conv(4, 5)),
    "all but three channels": ("fixed numbers", lambda y: y[:, : y.shape[1] - 3], conv(5, 5)),
    "all but four of eight": ("a trial cut fails", lambda y: y[:, : y.shape[1] - 4], conv(4, 5)),
    "channels from the middle": ("fixed numbers", middle, conv(4, 5)),
    "no channel at all": ("fixed numbers", lambda y: torch.cat([y, y[:, :0]], 1), conv(8, 5)),
    "one channel": ("picks one channel", lambda y: y[:, 2].unsqueeze(1), conv(1, 5)),
    "squeezed": ("take away a lone channel", lambda y: y.mean((2, 3), keepdim=True).squeeze(), nn.Linear(8, 5)),
    "written elsewhere": ("cat): this operation", lambda y: torch.cat([y, y], 1, out=y.new_empty(0)), conv(16, 5)),
    "a sum of all": ("how many channels", lambda y: y * torch.sum(y), conv(8, 5)),
    "a sum over no axis": ("how many channels", lambda y: y * torch.sum(y, dim=()), conv(8, 5)),
    "a sum over None": ("how many channels", lambda y: y * torch.sum(y, dim=None), conv(8, 5)),
    "a list as an index": ("only slices and fixed numbers", lambda y: y[:, [1, 2]], conv(2, 5)),
    "a truth as an index": ("only slices and fixed numbers", lambda y: y[True, 0], conv(8, 5)),
    "a tensor as an index": ("only slices and fixed", lambda y: y[:, 0:8, torch.zeros(1).long()], conv(8, 5)),
    "a width as a slice": ("another axis", lambda y: y[:, :, : y.shape[1]], conv(8, 5)),
    "a width as padding": ("another axis", lambda y: F.pad(y, (0, y.shape[1] // 8)), conv(8, 5)),
}
# The same where `a` is a linear layer, so that the channels are on the last axis.
BETWEEN_LAST = {
    "layer norm": ("normalises over all channels", nn.LayerNorm(8), nn.Linear(8, 5)),
    "layer norm as a function": ("over all channels", lambda y: F.layer_norm(y, (8,)), nn.Linear(8, 5)),
    "outer product": ("merges two axes", lambda y: (y[:, None] * y[:, :, None]).flatten(1), nn.Linear(64, 5)),
    "convolution across channels": ("across this axis", nn.Conv1d(1, 4, 3, padding=1), nn.Linear(8, 5)),
    "pooling across channels": ("works across this axis", lambda y: F.max_pool2d(y, 2), nn.Linear(4, 5)),
    "padded in a circle": ("constant channels", lambda y: F.pad(y[0], (1, 1), mode="circular"), nn.Linear(10, 5)),
    "padded by reflection": ("constant channels", lambda y: F.pad(y[0], (1, 1), mode="reflect"), nn.Linear(10, 5)),
    "padded by replication": ("constant channels", lambda y: F.pad(y[0], (1, 1), mode="replicate"), nn.Linear(10, 5)),
    "channels cut off": ("constant channels", lambda y: F.pad(y, (-1, -1)), nn.Linear(6, 5)),
    "table of constants": ("meets an axis that cannot be", lambda y: y * torch.arange(8.0), nn.Linear(8, 5)),
}
SHAPES = {"outer product": lambda x: x.mean((1, 2)), "convolution across channels": lambda x: x.mean((1, 2))[:, None]}
# The network takes one of two ways, by what this says of the layers and of `a`'s output.
DECISIONS = {
    "its size": ("decides by the number", lambda s, y: y.shape[1] > 4),
    "a bit": ("decides by the number", lambda s, y: y.shape[1] & 1),
    "a shift": ("decides by the number", lambda s, y: y.shape[1] >> 3),
    "its length in bits": ("decides by the number", lambda s, y: y.shape[1].bit_length() > 3),
    "a division with remainder": ("decides by the number", lambda s, y: divmod(y.shape[1], 8)[0]),
    "its logarithm": ("decides by the number", lambda s, y: math.log2(y.shape[1]) > 2),
    "a common divisor": ("decides by the number", lambda s, y: math.gcd(y.shape[1], 4) > 1),
    "how often a loop runs": ("decides by the number", lambda s, y: [1 for _ in range(y.shape[1] // 8)]),
    "what a layer states": ("stored number", lambda s, y: s.a.out_channels > 4),
    "the sizes of two tensors": ("the answer may depend", lambda s, y: y.is_same_size(y + 1)),
}
# name -> (group, part of the reason, forward, layers)
OTHERS = {
    "stored width": ("a", "stored number", lambda s, x: s.b(s.a(x) * s.a.out_channels), {"b": conv(8, 5)}),
    "a group of two": (
        *("a", "stored number", lambda s, x: s.b(s.a(x) * s.a.out_channels)),
        {"a": conv(3, 2), "b": conv(2, 5)},
    ),
    "a number from two widths, the first": ("a", "computes with the number of channels", widths_added, CHAIN),
    "a number from two widths, the second": ("b", "computes with the number of channels", widths_added, CHAIN),
    "zeros for the channels that are missing, here": ("a", "constant channels", padded_to_fit, WIDER),
    "zeros for the channels that are missing, there": ("b", "constant channels", padded_to_fit, WIDER),
    "a width as a number of pieces": (
        *("a", "another axis", lambda s, x: (lambda y: s.b(y) + x.chunk(y.shape[1] // 8, 2)[0].mean())(s.a(x))),
        {"b": conv(8, 5)},
    ),
    "a width as an expansion": (
        *("a", "another axis", lambda s, x: (lambda y: s.b(y) + x[:, :1, :1, :1].expand(-1, 5, y.shape[1], 8))(s.a(x))),
        {"b": conv(8, 5)},
    ),
    "a width in a view": (
        *("a", "another axis", lambda s, x: (lambda y: s.b(y) + x.view(-1, 3, y.shape[1], 8).mean())(s.a(x))),
        {"b": conv(8, 5)},
    ),
    "weight that is computed": (
        *("a", "conv2d): this operation is not understood", lambda s, x: s.b(F.conv2d(s.a(x), s.w * 2))),
        {"w": nn.Parameter(torch.randn(6, 8, 1, 1)), "b": conv(6, 5)},
    ),
    "matrix that is computed": (
        *("a", "linear): this operation is not understood", lambda s, x: F.linear(s.a(x), s.w * 2)),
        {"a": nn.Linear(8, 8), "w": nn.Parameter(torch.randn(5, 8))},
    ),
    "transposed convolution as a function": (
        *("a", "conv_transpose2d): this operation", lambda s, x: s.c(F.conv_transpose2d(s.a(x), s.b.weight))),
        {"b": conv(8, 8), "c": conv(8, 5)},
    ),
    "weight that was rolled before": (
        *("a", "meets an axis that cannot be cut", lambda s, x: s.w.roll(1, 1).sum() + F.linear(s.a(x), s.w)),
        {"a": nn.Linear(8, 8), "w": nn.Parameter(torch.randn(5, 8))},
    ),
    "a table that is summed up before it is used": (
        *(
            "a",
            "cannot be cut",
            lambda s, x: (lambda total: s.b(s.a(x) * s.n.running_var / total))(s.n.running_var.sum()),
        ),
        {"a": nn.Linear(8, 8), "n": nn.BatchNorm1d(8), "b": nn.Linear(8, 5)},
    ),
    "zero padded shortcut": ("b", "has a fixed size", padded_shortcut, {"b": conv(8, 16), "c": conv(16, 5)}),
    "widths that happen to agree": ("b", "stored number", shortcut_if_equal, {"b": conv(8, 6), "c": conv(6, 5)}),
    "a width as the size of other channels": (
        *("c", "fixed numbers", lambda s, x: s.b(s.c(x)[:, : s.a(x).shape[1]])),
        {"a": conv(3, 4), "c": conv(3, 8), "b": conv(4, 5)},
    ),
    "all tied into one": (
        *("a", "all its channels are tied into one", lambda s, x: s.b(F.channel_shuffle(s.a(x), 4))),
        {"a": conv(3, 4), "b": conv(4, 5)},
    ),
}


def rows():
    for name, (reason, step, b) in (BETWEEN | BETWEEN_LAST).items():
        shaped = SHAPES.get(name, lambda x: x)
        forward = lambda s, x, shaped=shaped: s.b(s.step(s.a(shaped(x))))  # noqa: E731
        a = {"a": nn.Linear(8, 8)} if name in BETWEEN_LAST else {}
        yield name, "a", reason, forward, {"step": step, "b": b} | a
    for name, (reason, decide) in DECISIONS.items():
        forward = lambda s, x, d=decide: (lambda y: s.b(torch.tanh(y) if d(s, y) else y))(s.a(x))  # noqa: E731
        yield f"decides by {name}", "a", reason, forward, {"b": conv(8, 5)}
    for name, row in OTHERS.items():
        yield name, *row


# name -> (network, group, part of the reason)
UNPRUNABLE = {
    name: (lambda forward=forward, layers=layers: Net(forward, **{"a": conv(3, 8)} | layers), group, reason)
    for name, group, reason, forward, layers in rows()
}
