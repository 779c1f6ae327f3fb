"""Small networks, one for each way in which channels hang together, and what is to be found in
them.
"""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

from helpers.metrics import randomize_batchnorm
from tests.passes.zoo import Net


def conv(cin: int, cout: int, kernel: int = 3, **options) -> nn.Conv2d:
    return nn.Conv2d(cin, cout, kernel, padding=kernel // 2, **options)


class Block(nn.Module):
    """A residual block with an expansion, in a class so that 'hidden' means something."""

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.expand, self.bn1 = conv(width, hidden, 1, bias=False), nn.BatchNorm2d(hidden)
        self.depthwise, self.bn2 = (
            conv(hidden, hidden, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
        )
        self.project, self.bn3 = conv(hidden, width, 1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x):
        y = F.relu6(self.bn1(self.expand(x)))
        return x + self.bn3(self.project(F.relu6(self.bn2(self.depthwise(y)))))


class ToyMobile(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.blocks, self.head = (
            conv(3, 8),
            nn.Sequential(Block(8, 24), Block(8, 16)),
            nn.Linear(8, 5),
        )

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class Noisy(nn.Module):
    """A linear layer with noise on its weights while it is trained."""

    def __init__(self, cin, cout):
        super().__init__()
        self.mu, self.sigma = (nn.Parameter(torch.randn(cout, cin)) for _ in range(2))

    def forward(self, x):
        return F.linear(x, self.mu + self.sigma * torch.randn(()) if self.training else self.mu)


class Auxiliary(nn.Module):
    """A second head that only training runs."""

    def __init__(self):
        super().__init__()
        self.stem, self.head, self.aux = conv(3, 8), nn.Linear(8, 5), nn.Linear(8, 5)

    def forward(self, x):
        x = self.stem(x).relu().mean((2, 3))
        return (self.head(x), self.aux(x)) if self.training else self.head(x)


# What most networks below are made of; a row names what is different.
LAYERS = {"a": conv(3, 8), "b": conv(8, 5)}
LAST = {"a": nn.Linear(8, 8), "b": nn.Linear(8, 5)}  # the channels are on the last axis
FLAT = {"a": conv(3, 6), "b": nn.Linear(384, 5)}
CHAIN = {"b": conv(8, 6), "c": conv(6, 5)}
WIDER = {"b": conv(8, 12), "c": conv(12, 5)}
PARTS = {"a": conv(3, 6), "b": conv(3, 6), "c": conv(3, 6), "d": conv(6, 5)}
GROUPED = {"a": conv(3, 8), "b": conv(8, 12, 1, groups=4), "c": conv(12, 5)}
PAIR = {"a": conv(3, 6), "b": conv(3, 10), "n": nn.BatchNorm2d(16), "c": conv(16, 4)}
EVEN = {"b": conv(3, 8), "c": conv(16, 5)}
LINEAR = {"a": nn.Linear(3, 9), "b": nn.Linear(9, 5)}
TOP = {"a": nn.Linear(8, 12), "b": nn.Linear(6, 5)}


def fresh(model):
    """Makes the same network, each time with layers of its own and other weights."""

    def maker():
        made = copy.deepcopy(model)
        for module in made.modules():
            getattr(module, "reset_parameters", lambda: None)()
        return made

    return maker


def net(forward, **layers):
    return fresh(Net(forward, **LAYERS | layers))


def longer_if_narrow(y):
    for _ in range(64 // y.shape[1]):
        y = y.relu()
    return y[:, : y.shape[1] - 4]


def between(step, **layers):
    """Something that happens between two layers."""
    return net(lambda s, x: s.b(s.step(s.a(x))), step=step, **layers)


def chain(*layers):
    return fresh(nn.Sequential(*layers))


def shuffled(net, x):
    x = net.b(F.relu(net.a(x)))
    n, c, h, w = x.shape
    return net.c(x.view(n, 4, c // 4, h, w).transpose(1, 2).contiguous().view(n, c, h, w))


def excited(net, x):
    y = F.relu(net.a(x))
    return net.b(y * torch.sigmoid(net.up(F.relu(net.down(y.mean((2, 3), keepdim=True))))))


def padded_shortcut(net, x):
    x = net.a(x)
    return net.c(F.pad(x, (0, 0, 0, 0, 4, 4)) + net.b(x))


def functional(net, x):
    x = F.batch_norm(
        F.conv2d(x, net.a.weight, net.a.bias, padding=1), net.n.running_mean, net.n.running_var
    )
    return F.linear(F.leaky_relu(x).flatten(1), net.b.weight, net.b.bias)


class Blur(nn.Module):
    """A filter that is not learned, one for each channel: BlurPool."""

    def __init__(self, channels, columns, groups=None):
        super().__init__()
        self.groups = groups
        self.register_buffer("filters", torch.rand(channels, columns, 3, 3))

    def forward(self, x):
        return F.conv2d(x, self.filters, padding=1, groups=self.groups or x.shape[1])


def spelled(y):
    y = 1 + torch.add(y, 1).add(1)
    y.add_(1)
    y += 1
    y -= 1
    y /= 2
    y **= 2
    return 2 * y * y.mul_(2)


def transposed_in_place(y):
    y.transpose_(1, 3)
    return y.relu().transpose(1, 3)


def asking(s, x):
    assert x.dtype is torch.float32 or x.dtype is torch.float64
    assert x.is_contiguous() and x.shape[2:].numel() == 64 and divmod(x.shape[1], 2) == (1, 1)
    assert int(torch.arange(4).reshape(2, 2).sum()) == 6
    return s.b(sum(s.a(row[None]) for row in x for _ in range(x.shape[1] - 2)).to(x.device))


def remembering(s, x):
    if not hasattr(s, "kept"):
        s.kept = 2 * s.w
    return s.b(s.a(x) + s.kept)


def newly_shaped_gate(net, x):
    y = net.a(x)[:, :, ..., 1:]
    return net.b(y * net.g(y.mean((-2, -1)))[..., None, None].softmax(2))


# name -> (network, {group: units}); every other group must be unprunable, and the output always is.
PRUNABLE = {
    "chain": (
        chain(conv(3, 8), nn.BatchNorm2d(8), nn.ReLU(), conv(8, 6), conv(6, 4)),
        {"0": 8, "3": 6},
    ),
    "mobile": (ToyMobile, {"stem": 8, "blocks.0.expand": 24, "blocks.1.expand": 16}),
    "flatten": (chain(conv(3, 8), nn.Tanh(), nn.Flatten(), nn.Linear(8 * 64, 5)), {"0": 8}),
    "concatenation": (
        net(lambda s, x: s.c(s.n(torch.cat([s.a(x), s.b(x)], 1))), **PAIR),
        {"a": 6, "b": 10},
    ),
    "squeeze and excitation": (
        net(excited, down=conv(8, 4, 1), up=conv(4, 8, 1)),
        {"a": 8, "down": 4},
    ),
    "channel shuffle": (net(shuffled, b=conv(8, 16, groups=2), c=conv(16, 5)), {"a": 4, "b": 4}),
    "shuffle of two": (
        net(lambda s, x: s.c(F.channel_shuffle(torch.cat([s.a(x), s.b(x)], 1), 2)), **EVEN),
        {"a": 8},
    ),
    "shuffle of whole groups": (
        chain(conv(3, 8), conv(8, 16, groups=8), nn.ChannelShuffle(2), conv(16, 5)),
        {"0": 4},
    ),
    "whole groups": (chain(conv(3, 12), nn.ReLU(), conv(12, 24, groups=6), conv(24, 5)), {"0": 6}),
    "inside groups": (
        chain(conv(3, 12), nn.ReLU(), conv(12, 8, groups=2), conv(8, 5)),
        {"0": 6, "2": 4},
    ),
    "instance norm": (
        chain(conv(3, 8), nn.InstanceNorm2d(8, affine=True), nn.ReLU(), conv(8, 5)),
        {"0": 8},
    ),
    "norm over space": (
        chain(conv(3, 8), nn.LayerNorm([8, 8]), nn.ReLU(), conv(8, 5)),
        {"0": 8},
    ),
    "norm over space, as a function": (
        between(lambda y: F.layer_norm(y, y.shape[2:])),
        {"a": 8},
    ),
    "a filter for each channel by itself": (
        net(
            lambda s, x: s.b(
                F.conv2d(s.a(x).reshape(-1, 1, 8, 8), s.w, padding=1).view(len(x), -1, 8, 8)
            ),
            w=nn.Parameter(torch.randn(1, 1, 3, 3)),
        ),
        {"a": 8},
    ),
    "a slope for each": (chain(conv(3, 6), nn.PReLU(6), conv(6, 5)), {"0": 6}),
    "shared module": (
        net(lambda s, x: s.c(s.b(F.relu(s.b(s.a(x))))), b=conv(8, 8), c=conv(8, 4)),
        {"a": 8},
    ),
    "transposed": (
        chain(conv(3, 6), nn.ConvTranspose2d(6, 8, 2, stride=2), nn.ReLU(), conv(8, 5)),
        {"0": 6, "1": 8},
    ),
    "called": (
        net(lambda s, x: s.c(F.conv2d(s.a(x), s.b.weight, s.b.bias, 1, 0, 1, 4)), **GROUPED),
        {"a": 2, "b": 3},
    ),
    "halves that change places": (
        between(lambda y: torch.cat(y.chunk(2, 1)[::-1], 1), b=conv(8, 5)),
        {"a": 4},
    ),
    "halves of the last axis": (between(lambda y: torch.mul(*y.chunk(2, -1)), **TOP), {"a": 6}),
    "slices that follow": (
        between(lambda y: y[:, : (n := y.shape[1] // 2)] + y[:, n:], b=conv(4, 5)),
        {"a": 4},
    ),
    "bare parameter": (
        net(lambda s, x: s.b(s.a(x) * s.w), w=nn.Parameter(torch.randn(8, 1, 1))),
        {"a": 8},
    ),
    "bare parameter, resized": (
        net(
            lambda s, x: s.b(s.a(x) + F.interpolate(s.w, size=(8, 8))),
            w=nn.Parameter(torch.randn(1, 8, 4, 4)),
        ),
        {"a": 8},
    ),
    "zeros like it": (between(lambda y: torch.where(y > 0, y, torch.zeros_like(y))), {"a": 8}),
    "filled by a mask": (between(lambda y: y.masked_fill(y < 0, 0.1)), {"a": 8}),
    "constant padding": (chain(conv(3, 8), nn.ConstantPad2d(1, 0.5), conv(8, 5)), {"0": 8}),
    "permuted linear": (
        net(lambda s, x: s.b(F.gelu(s.a(x.permute(0, 2, 3, 1)))), **LINEAR),
        {"a": 9},
    ),
    "functional": (net(functional, n=nn.BatchNorm2d(6), **FLAT), {"a": 6}),
    "auxiliary head": (Auxiliary, {"stem": 8}),
    "zero padded shortcut": (net(padded_shortcut, b=conv(8, 16), c=conv(16, 5)), {"a": 8}),
    "channels padded on": (
        between(lambda y: F.pad(y, (2, 1), value=3.0), **LAST | {"b": nn.Linear(11, 5)}),
        {"a": 8},
    ),
    "slope": (
        net(
            lambda s, x: s.b(F.prelu(s.p(s.a(x)), s.w)),
            p=nn.PReLU(),
            w=nn.Parameter(torch.ones(())),
        ),
        {"a": 8},
    ),
    "shuffle of another axis": (
        between(nn.ChannelShuffle(3), a=nn.Linear(8, 10), b=nn.Linear(10, 5)),
        {"a": 10},
    ),
    "channels last, flattened": (
        between(lambda y: y.permute(dims=(0, 2, -1, 1)).flatten(1), **FLAT),
        {"a": 6},
    ),
    "sizes by name": (
        between(lambda y: torch.reshape(y, shape=(len(y), -1)).expand(size=(-1, -1)), **FLAT),
        {"a": 6},
    ),
    "a size of -1": (
        between(lambda y: y.view(y.size(0), 4, -1, 8, 8).amax(1), a=conv(3, 12), b=conv(3, 5)),
        {"a": 3},
    ),
    "parts beside each other": (
        net(lambda s, x: s.d(torch.cat([s.a(x), s.b(x), s.c(x)], -1)), **PARTS),
        {"a": 6},
    ),
    "one of three values": (
        net(lambda s, x: s.d(torch.where(s.a(x) > 0, s.b(x), s.c(x))), **PARTS),
        {"a": 6},
    ),
    "an empty part": (net(lambda s, x: s.b(torch.cat([x.new_empty(0), s.a(x)], 1))), {"a": 8}),
    "gate with new axes": (net(newly_shaped_gate, g=nn.Linear(8, 8)), {"a": 8}),
    "mask that comes first": (
        net(lambda s, x: s.b(s.n.running_mean * s.a(x)), n=nn.BatchNorm1d(8), **LAST),
        {"a": 8},
    ),
    "softmax over space": (between(nn.Softmax(3)), {"a": 8}),
    "a value that is no number": (
        between(lambda y: torch.where(y.sum(3, True) > 9, float("nan"), y)),
        {"a": 8},
    ),
    "moved in other ways": (
        between(
            lambda y: y[True, 0].repeat(1, 2, 1, 1).flip(-1).unflatten(1, (2, -1)).flatten(1, 2),
            b=conv(16, 5),
        ),
        {"a": 8},
    ),
    "a fixed number inside": (
        between(
            lambda y: y.unflatten(1, (-1, 4)).transpose(1, 2).flatten(1, 2),
            a=conv(3, 12),
            b=conv(12, 5),
        ),
        {"a": 3},
    ),
    "pixel shuffle": (between(nn.PixelShuffle(2), b=conv(2, 5)), {"a": 2}),
    "pixel unshuffle": (between(nn.PixelUnshuffle(2), b=conv(32, 5)), {"a": 8}),
    "patches": (
        between(lambda y: F.unfold(y, 2).transpose(1, 2), b=nn.Linear(32, 5)),
        {"a": 8},
    ),
    "layers made in forward": (
        between(lambda y: nn.Sequential(nn.ReLU(), nn.MaxPool2d(2))(y)),
        {"a": 8},
    ),
    "kept on self": (net(remembering, w=nn.Parameter(torch.randn(8, 1, 1))), {"w": 8}),
    "sum by axis": (between(lambda y: y * y.sum(axis=2, keepdims=True)), {"a": 8}),
    "axes swapped by name": (
        between(lambda y: y.swapaxes(axis0=1, axis1=2).mean(1), **LAST),
        {"a": 8},
    ),
    "places of the largest": (
        net(lambda s, x: s.b(s.m(s.a(x))[0]), m=nn.MaxPool2d(2, return_indices=True)),
        {"a": 8},
    ),
    "every spelling": (between(spelled), {"a": 8}),
    "asks and decides": (net(asking), {"a": 8}),
    "stacked": (
        net(lambda s, x: s.d(torch.stack([s.a(x), s.b(x), s.c(x)]).sum(0)), **PARTS),
        {"a": 6},
    ),
    "stacked between": (
        net(lambda s, x: s.d(torch.stack([s.a(x), s.b(x)], dim=-1).flatten(3)), **PARTS),
        {"a": 6},
    ),
    "as large as another": (
        between(lambda y: y * y.mean((2, 3), True).expand_as(y)),
        {"a": 8},
    ),
    "the larger of two": (net(lambda s, x: s.d(torch.max(s.a(x), s.b(x))), **PARTS), {"a": 6}),
    "largest and smallest": (
        between(lambda y: y * y.max(3, keepdim=True)[0] + torch.min(y, dim=2).values[..., None]),
        {"a": 8},
    ),
    "where the largest is": (between(lambda y: y * y.argmax(2, keepdim=True)), {"a": 8}),
    "deviation": (
        between(lambda y: y * y.std((2, 3), keepdim=True) + y.var(3, True)[..., None]),
        {"a": 8},
    ),
    "half is the gate": (between(nn.GLU(1), a=conv(3, 12), b=conv(6, 5)), {"a": 6}),
    "half is the gate, last axis": (between(F.glu, **TOP), {"a": 6}),
    "half of the places are the gate": (
        net(lambda s, x: s.b(F.glu(s.a(x), dim=2))),
        {"a": 8},
    ),
    "halves and a sigmoid": (
        between(
            lambda y: (lambda p, q: p * q.sigmoid())(*y.chunk(2, 1)), a=conv(3, 12), b=conv(6, 5)
        ),
        {"a": 6},
    ),
    # The channels of `a` lie on the last axis, and each channel of the norm has stored statistics.
    "stored statistics": (between(nn.BatchNorm2d(3), **LAST), {"a": 8}),
    "filters that are not learned": (
        chain(conv(3, 8), Blur(8, 1, 8), conv(8, 6), conv(6, 5)),
        {"2": 6},
    ),
    "grouped filters, not learned": (
        chain(conv(3, 8), Blur(6, 4, 2), conv(6, 6), conv(6, 5)),
        {"0": 4, "2": 6},
    ),
}


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


def width_of_a(use):
    """A network in which the width of `a` is used elsewhere."""
    return net(lambda s, x: (lambda y: s.b(y) + use(x, y.shape[1]))(s.a(x)))


def table_summed_up(s, x):
    total = s.n.running_var.sum()
    return s.b(s.a(x) * s.n.running_var / total)


def decides(how):
    """The network takes one of two ways, by what this says of the layers and of `a`'s output."""
    return net(lambda s, x: (lambda y: s.b(torch.tanh(y) if how(s, y) else y))(s.a(x)))


def quarter(y):
    return y.shape[1] // 4


def outer_product(s, x):
    y = s.a(x.mean((1, 2)))
    return s.b((y[:, None] * y[:, :, None]).flatten(1))


def gated_by_a_scale(s, x, first):
    """The length of a layer norm's weight is stored a second time, as the shape that is normalised
    over.
    """
    steps = [lambda: s.a(x) * s.n.weight, lambda: F.layer_norm(s.c(x), (8,), s.n.weight).sum()]
    return s.b(sum(step() for step in (steps if first else steps[::-1])))


def grouped_weight_that_stays(groups):
    forward = lambda s, x: torch.linalg.vector_norm(s.c.weight) * s.b(s.c(s.a(x)))  # noqa: E731
    return net(forward, c=conv(8, 8, groups=groups))


NORMED = LAST | {"c": nn.Linear(8, 8), "n": nn.LayerNorm(8)}
W = {"w": nn.Parameter(torch.randn(5, 8)), "v": nn.Parameter(torch.randn(8))}
# Part of the reason -> the networks for which it keeps a group. The group is `a`; where it is
# another one, and where the network holds more than a step between `a` and `b`, the row says so.
REFUSED = {
    "fixed size": {
        "view": between(lambda y: y.view(-1, 8, 64).mean(2), b=nn.Linear(8, 5)),
        "expand": between(lambda y: y.expand(1, 8, 8, 8)),
        "split": between(lambda y: y.split(4, 1)[0], b=conv(4, 5)),
        "a split of unequal pieces": between(lambda y: y.split([2, 6], 1)[1], b=conv(6, 5)),
        "half a split": between(lambda y: y.split([y.shape[1] // 2, 4], 1)[0], b=conv(4, 5)),
        "b: zero padded shortcut": net(padded_shortcut, b=conv(8, 16), c=conv(16, 5)),
    },
    "fixed numbers": {
        "slice": between(lambda y: y[:, :4], b=conv(4, 5)),
        "every second": between(lambda y: y[:, ::2], b=conv(4, 5)),
        "all but three": between(lambda y: y[:, : y.shape[1] - 3], b=conv(5, 5)),
        "from the middle": between(lambda y: y[:, quarter(y) : -quarter(y)], b=conv(4, 5)),
        "one": between(lambda y: y[:, 2].unsqueeze(1), b=conv(1, 5)),
        "a list": between(lambda y: y[:, [1, 2]], b=conv(2, 5)),
        "c: a width as the size of other channels": net(
            lambda s, x: s.b(s.c(x)[:, : s.a(x).shape[1]]), a=conv(3, 4), c=conv(3, 8), b=conv(4, 5)
        ),
    },
    "a trial cut fails": {
        "all but four of eight": between(lambda y: y[:, : y.shape[1] - 4], b=conv(4, 5)),
        "in place": between(transposed_in_place, b=nn.Linear(8, 5)),
        "after more steps than before": between(longer_if_narrow, b=conv(4, 5)),
        "squeeze": between(lambda y: y.mean((2, 3), keepdim=True).squeeze(), b=nn.Linear(8, 5)),
    },
    "a trial cut gave another shape": {
        "a width as the length of another axis": between(lambda y: y[:, :, : y.shape[1]])
    },
    "normalises over all channels": {
        "one group": between(nn.GroupNorm(1, 8)),
        "layer norm": between(nn.LayerNorm(8), **LAST),
        "layer norm as a function": between(lambda y: F.layer_norm(y, (8, 8, 8))),
        "groups": between(nn.GroupNorm(4, 8)),
        "a gate as well": net(lambda s, x: gated_by_a_scale(s, x, first=True), **NORMED),
        "no statistics": between(nn.BatchNorm2d(3, track_running_stats=False), **LAST),
        "a function, by name": between(
            lambda y: F.batch_norm(y, None, None, training=True), **LAST
        ),
    },
    "mixes the channels": {
        "softmax": between(lambda y: y.softmax(-3)),
        "if a tensor": between(
            lambda y: y.softmax(1) if torch.is_tensor(y) and isinstance(y.size(1), int) else y
        ),
        "softmax over an axis that is not said": between(nn.Softmax(None)),
    },
    "how many channels": {
        "mean": between(lambda y: y.mean(-3, keepdim=True), b=conv(1, 5)),
        "sum": between(lambda y: y * torch.sum(y)),
        "largest": between(lambda y: y * y.max()),
        "largest channel": between(lambda y: y * y.max(1, keepdim=True)[0]),
        "deviation": between(lambda y: y / y.std(1, keepdim=True)),
        "deviation of all": between(lambda y: y / y.std(False)),
        "the first channel that is largest": between(lambda y: y * y.argmax(-3, keepdim=True)),
    },
    "getitem): this operation": {
        "a tensor": between(lambda y: y[:, 0:8, torch.zeros(1).long()]),
        "none of the channels": between(lambda y: torch.cat([y, y[:, :0]], 1)),
        "no rows": between(lambda y: torch.cat([y, torch.empty_like(y[:, :, :0])], 2)),
    },
    "split): this operation": {
        "nothing in a part": between(lambda y: torch.cat(y.split([4, 4, 0], 2), 2))
    },
    "tensor): this operation": {
        "a width": between(lambda y: y / torch.tensor(y.shape[1], dtype=y.dtype))
    },
    "roll): this operation is not understood": {
        "function": between(lambda y: torch.roll(input=y, shifts=1, dims=1))
    },
    "is_same_size): this operation": {"two tensors": decides(lambda s, y: y.is_same_size(y + 1))},
    "matmul): this operation": {"two axes": between(lambda y: y.matmul(y.transpose(2, 3)))},
    "bmm): this operation": {
        "scores": between(lambda y: torch.bmm(y[0], y[0].transpose(1, 2))[None] + y, **LAST)
    },
    "reshape_as): this operation": {"like another": between(lambda y: y + (1 * y).reshape_as(y))},
    "unfold): this operation": {
        "padded": between(lambda y: F.unfold(y, 3, padding=1).transpose(1, 2), b=nn.Linear(72, 5))
    },
    "view): this operation": {
        "another type": between(lambda y: y.view(torch.int32).view(torch.float32))
    },
    "cat): this operation": {
        "written elsewhere": between(
            lambda y: torch.cat([y, y], 1, out=y.new_empty(0)), b=conv(16, 5)
        )
    },
    "conv2d): this operation": {
        "computed weight": between(
            lambda y: F.conv2d(y, y.mean((2, 3))[:, :, None, None]), b=conv(1, 5)
        )
    },
    "linear): this operation": {
        "computed weight": net(lambda s, x: F.linear(s.a(x), s.w * 2) + s.b(s.a(x)), **LAST, **W),
        "noise that only training reads": fresh(
            Net(lambda s, x: s.b(s.a(x)), a=Noisy(8, 8), b=LAST["b"])
        ),
        "a vector": net(lambda s, x: F.linear(s.a(x), s.v).mean() + s.b(s.a(x)), **LAST, **W),
    },
    "ConvTranspose2d): this operation": {
        "in groups": net(
            lambda s, x: s.c(s.b(s.a(x))), b=nn.ConvTranspose2d(8, 16, 2, groups=4), c=conv(16, 5)
        )
    },
    "conv_transpose2d): this operation": {
        "function": net(
            lambda s, x: s.c(F.conv_transpose2d(s.a(x), s.b.weight)), b=conv(8, 8), c=conv(8, 5)
        )
    },
    "meets an axis that cannot be": {
        "constants": between(lambda y: y * torch.arange(8.0), **LAST),
        "a rolled weight": net(
            lambda s, x: s.w.roll(1, 1).sum() + F.linear(s.a(x), s.w) + s.b(s.a(x)), **LAST, **W
        ),
        "a grouped weight": grouped_weight_that_stays(2),
        "a depthwise weight": grouped_weight_that_stays(8),
        "a gate that is a scale as well": net(
            lambda s, x: gated_by_a_scale(s, x, first=False), **NORMED
        ),
        "a table that is summed up before": net(table_summed_up, n=nn.BatchNorm1d(8), **LAST),
    },
    "merges two axes": {"outer product": net(outer_product, **LAST | {"b": nn.Linear(64, 5)})},
    "across this axis": {
        "convolution": between(nn.Conv2d(3, 3, 3, padding=1), **LAST),
        "pooling": between(lambda y: F.max_pool2d(y, 2), **LAST | {"b": nn.Linear(4, 5)}),
    },
    "pad): this operation": {
        "a circle": between(
            lambda y: F.pad(y[0], (1, 1), mode="circular"), **LAST | {"b": nn.Linear(10, 5)}
        ),
        "cut off": between(lambda y: F.pad(y, (-1, -1)), **LAST | {"b": nn.Linear(6, 5)}),
    },
    "another axis": {
        "slice": width_of_a(lambda x, width: x[:, :, :width].mean()),
        "expansion": width_of_a(lambda x, width: x[:, :1, :1, :1].expand(-1, 5, width, 8)),
        "view": width_of_a(lambda x, width: x.view(-1, 3, width, 8).mean()),
    },
    "computes with the number of channels": {
        "a factor": between(lambda y: y * y.shape[1] ** -0.5),
        "which axis": between(lambda y: y * y.size(y.shape[1] - 7)),
        "padding": between(lambda y: F.pad(y, (0, y.shape[1] // 8))),
        "padded to fit, here": net(padded_to_fit, **WIDER),
        "b: padded to fit, there": net(padded_to_fit, **WIDER),
        "as many groups": net(lambda s, x: s.b(s.blur(s.a(x))), blur=Blur(8, 1)),
        "two widths, the first": net(widths_added, **CHAIN),
        "b: two widths, the second": net(widths_added, **CHAIN),
    },
    "decides by a number of channels, or computes with a stored one": {
        "rounded": between(lambda y: y * round(y.shape[1] / 3, 1)),
        "its size": decides(lambda s, y: y.shape[1] > 4),
        "a bit": decides(lambda s, y: y.shape[1] & 1),
        "one of a set": decides(lambda s, y: y.shape[1] in {8, 16}),
        "a key": decides(lambda s, y: {8: True}.get(y.shape[1], False)),
        "a division with remainder": decides(lambda s, y: divmod(y.shape[1], 8)[0]),
        "its logarithm": decides(lambda s, y: math.log2(y.shape[1]) > 2),
        "how often a loop runs": decides(lambda s, y: [1 for _ in range(y.shape[1] // 8)]),
        "decides": decides(lambda s, y: s.a.out_channels > 4),
        "a factor": net(lambda s, x: s.b(s.a(x) * s.a.out_channels)),
        "of two": net(lambda s, x: s.b(s.a(x) * s.a.out_channels), a=conv(3, 2), b=conv(2, 5)),
        "in a tensor": net(
            lambda s, x: s.b(s.a(x) / torch.tensor([float(s.a.out_channels)]).sqrt())
        ),
        "kept": net(
            lambda s, x: (
                setattr(s, "one", torch.full((), 1 / s.a.out_channels)) or s.b(s.a(x) * s.one)
            )
        ),
        "b: widths that happen to agree": net(shortcut_if_equal, **CHAIN),
    },
    "reads channels that cannot be cut, one each": {
        "d: behind what is not understood": net(
            lambda s, x: s.b(s.d(torch.roll(s.a(x), 1, 1))), d=conv(8, 8, groups=8)
        ),
    },
    "all its channels are tied into one": {
        "a reversal": between(lambda y: torch.cat(y.chunk(8, 1)[::-1], 1))
    },
}
UNPRUNABLE = {
    f"{reason}: {name}": (maker, name.partition(": ")[0] if ": " in name else "a", reason)
    for reason, rows in REFUSED.items()
    for name, maker in rows.items()
}


def build(maker, seed: int = 0) -> nn.Module:
    """The network in eval mode, with BatchNorm statistics and weights that are all different."""
    torch.manual_seed(seed)
    return randomize_batchnorm(maker(), seed).eval()
