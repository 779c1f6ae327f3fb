"""Small networks, one for each way in which channels hang together, and what is to be found in them."""

import copy

import torch
import torch.nn.functional as F
from torch import nn


def conv(cin: int, cout: int, kernel: int = 3, **options) -> nn.Conv2d:
    return nn.Conv2d(cin, cout, kernel, padding=kernel // 2, **options)


class Net(nn.Module):
    """Layers by name and a forward: `Net(forward, a=conv(3, 8), ...)`."""

    def __init__(self, forward, **layers):
        super().__init__()
        self.function = forward
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x):
        return self.function(self, x)


class Block(nn.Module):
    """A residual block with an expansion, as a class of its own so that 'hidden' means something."""

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.expand, self.bn1 = conv(width, hidden, 1, bias=False), nn.BatchNorm2d(hidden)
        self.depthwise, self.bn2 = conv(hidden, hidden, groups=hidden, bias=False), nn.BatchNorm2d(hidden)
        self.project, self.bn3 = conv(hidden, width, 1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x):
        y = F.relu6(self.bn1(self.expand(x)))
        return x + self.bn3(self.project(F.relu6(self.bn2(self.depthwise(y)))))


class ToyMobile(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.blocks, self.head = conv(3, 8), nn.Sequential(Block(8, 24), Block(8, 16)), nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class Auxiliary(nn.Module):
    """A second head that only training runs."""

    def __init__(self):
        super().__init__()
        self.stem, self.head, self.aux = conv(3, 8), nn.Linear(8, 5), nn.Linear(8, 5)

    def forward(self, x):
        x = self.stem(x).relu().mean((2, 3))
        return (self.head(x), self.aux(x)) if self.training else self.head(x)


def shuffled(net, x):
    x = net.b(F.relu(net.a(x)))
    n, c, h, w = x.shape
    x = x.view(n, 4, c // 4, h, w).transpose(1, 2).contiguous().view(n, c, h, w)
    return net.c(x)


def gated(net, x):
    first, second = net.a(x).chunk(2, dim=1)
    return net.b(first * torch.sigmoid(second))


def sliced(net, x):
    x = net.a(x)
    half = x.shape[1] // 2
    return net.b(x[:, :half] + x[:, half:])


def excited(net, x):
    y = F.relu(net.a(x))
    return net.b(y * torch.sigmoid(net.up(F.relu(net.down(y.mean((2, 3), keepdim=True))))))


def padded_shortcut(net, x):
    x = net.a(x)
    return net.c(F.pad(x, (0, 0, 0, 0, 4, 4)) + net.b(x))


def functional(net, x):
    x = F.batch_norm(F.conv2d(x, net.a.weight, net.a.bias, padding=1), net.n.running_mean, net.n.running_var)
    return F.linear(F.leaky_relu(x).flatten(1), net.b.weight, net.b.bias)


def fresh(model):
    """Makes the same network, each time with layers of its own and other weights."""

    def maker():
        made = copy.deepcopy(model)
        for module in made.modules():
            getattr(module, "reset_parameters", lambda: None)()
        return made

    return maker


def net(forward, **layers):
    return fresh(Net(forward, **layers))


def chain(*layers):
    return fresh(nn.Sequential(*layers))


THREE = {"a": conv(3, 6), "b": conv(3, 6), "c": conv(3, 6), "d": conv(6, 5)}
LINEAR = {"a": conv(3, 6), "b": nn.Linear(384, 5)}
# name -> (network, {group: units}); every other group must be unprunable, and the output always is.
PRUNABLE = {
    "chain": (chain(conv(3, 8), nn.BatchNorm2d(8), nn.ReLU(), conv(8, 6), conv(6, 4)), {"0": 8, "3": 6}),
    "mobile": (ToyMobile, {"stem": 8, "blocks.0.expand": 24, "blocks.1.expand": 16}),
    "flatten": (chain(conv(3, 8), nn.Tanh(), nn.Flatten(), nn.Linear(8 * 64, 5)), {"0": 8}),
    "concatenation": (
        net(
            lambda s, x: s.c(s.n(torch.cat([s.a(x), s.b(x)], 1))),
            **{"a": conv(3, 6), "b": conv(3, 10), "n": nn.BatchNorm2d(16), "c": conv(16, 4)},
        ),
        {"a": 6, "b": 10},
    ),
    "squeeze and excitation": (
        net(excited, a=conv(3, 8), down=conv(8, 4, 1), up=conv(4, 8, 1), b=conv(8, 5)),
        {"a": 8, "down": 4},
    ),
    "channel shuffle": (net(shuffled, a=conv(3, 8), b=conv(8, 16, groups=2), c=conv(16, 5)), {"a": 4, "b": 4}),
    "shuffle layer": (chain(conv(3, 12), nn.ChannelShuffle(3), conv(12, 5)), {"0": 4}),
    "whole groups": (chain(conv(3, 12), nn.ReLU(), conv(12, 24, groups=6), conv(24, 5)), {"0": 6}),
    "inside groups": (chain(conv(3, 12), nn.ReLU(), conv(12, 8, groups=2), conv(8, 5)), {"0": 6, "2": 4}),
    "depthwise multiplier": (chain(conv(3, 6), conv(6, 18, groups=6), conv(18, 5)), {"0": 6}),
    "group norm": (chain(conv(3, 12), nn.GroupNorm(4, 12), nn.ReLU(), conv(12, 5)), {"0": 4}),
    "instance norm": (chain(conv(3, 6), nn.InstanceNorm2d(6, affine=True), nn.PReLU(6), conv(6, 5)), {"0": 6}),
    "shared module": (
        net(lambda s, x: s.c(s.b(F.relu(s.b(F.relu(s.a(x)))))), a=conv(3, 7), b=conv(7, 7), c=conv(7, 4)),
        {"a": 7},
    ),
    "transposed": (
        chain(conv(3, 6), nn.ConvTranspose2d(6, 8, 2, stride=2), nn.ReLU(), conv(8, 5)),
        {"0": 6, "1": 8},
    ),
    "grouped transposed": (
        chain(conv(3, 8), nn.ConvTranspose2d(8, 16, 2, stride=2, groups=4), conv(16, 5)),
        {"0": 4},
    ),
    "inside grouped transposed": (
        chain(conv(3, 12), nn.ConvTranspose2d(12, 8, 2, stride=2, groups=2), conv(8, 5)),
        {"0": 6, "1": 4},
    ),
    "chunk": (net(gated, a=conv(3, 12), b=conv(6, 5)), {"a": 6}),
    "halves that change places": (
        net(lambda s, x: s.b(torch.cat(s.a(x).chunk(2, 1)[::-1], 1)), a=conv(3, 12), b=conv(12, 5)),
        {"a": 6},
    ),
    "slices that follow": (net(sliced, a=conv(3, 12), b=conv(6, 5)), {"a": 6}),
    "bare parameter": (
        net(lambda s, x: s.b(s.a(x) * s.w), a=conv(3, 8), b=conv(8, 5), w=nn.Parameter(torch.randn(8, 1, 1))),
        {"a": 8},
    ),
    "permuted linear": (
        net(lambda s, x: s.b(F.gelu(s.a(x.permute(0, 2, 3, 1)))), a=nn.Linear(3, 9), b=nn.Linear(9, 5)),
        {"a": 9},
    ),
    "functional": (net(functional, a=conv(3, 6), n=nn.BatchNorm2d(6), b=nn.Linear(6 * 64, 5)), {"a": 6}),
    "auxiliary head": (Auxiliary, {"stem": 8}),
    "zero padded shortcut": (net(padded_shortcut, a=conv(3, 8), b=conv(8, 16), c=conv(16, 5)), {"a": 8}),
    "inside a grouped function": (
        net(
            lambda s, x: s.c(F.conv2d(s.a(x), s.b.weight, s.b.bias, 1, 0, 1, 4)),
            **{"a": conv(3, 8), "b": conv(8, 12, 1, groups=4), "c": conv(12, 5)},
        ),
        {"a": 2, "b": 3},
    ),
    "one slope for all": (chain(conv(3, 8), nn.PReLU(), conv(8, 5)), {"0": 8}),
    "channels last, flattened": (
        net(lambda s, x: s.b(s.a(x).permute(dims=(0, 2, -1, 1)).flatten(1)), **LINEAR),
        {"a": 6},
    ),
    "sizes by name": (
        net(lambda s, x: s.b(torch.reshape(s.a(x), shape=(x.size(0), -1)).expand(size=(-1, -1))), **LINEAR),
        {"a": 6},
    ),
    "rows of a size to be worked out": (
        net(lambda s, x: s.b(s.a(x).view(x.size(0), 4, -1, 8, 8).amax(1)), a=conv(3, 12), b=conv(3, 5)),
        {"a": 3},
    ),
    "three parts beside each other": (
        net(lambda s, x: s.d(torch.cat([s.a(x), s.b(x), s.c(x)], dim=-1)), **THREE),
        {"a": 6},
    ),
    "one of three values": (net(lambda s, x: s.d(torch.where(s.a(x) > 0, s.b(x), s.c(x))), **THREE), {"a": 6}),
    "chunk of the last axis": (
        net(lambda s, x: (lambda p, q: s.b(p * q))(*s.a(x).chunk(2, -1)), a=nn.Linear(8, 12), b=nn.Linear(6, 5)),
        {"a": 6},
    ),
    "gate with new axes": (
        net(
            lambda s, x: (lambda y: s.b(y * s.g(y.mean((-2, -1)))[..., None, None].softmax(2)))(s.a(x)[:, :, ..., 1:]),
            **{"a": conv(3, 8), "g": nn.Linear(8, 8), "b": conv(8, 5)},
        ),
        {"a": 8},
    ),
    "mask that comes first": (
        net(lambda s, x: s.b(s.n.running_mean * s.a(x)), a=nn.Linear(8, 6), n=nn.BatchNorm1d(6), b=nn.Linear(6, 5)),
        {"a": 6},
    ),
    "softmax over space": (chain(conv(3, 8), nn.Softmax(3), conv(8, 5)), {"0": 8}),
    "shuffle function": (net(lambda s, x: s.b(F.channel_shuffle(s.a(x), 3)), a=conv(3, 12), b=conv(12, 5)), {"a": 4}),
    "a value that is no number": (
        net(lambda s, x: s.b(torch.where(x.sum() > 1e9, float("nan"), s.a(x))), a=conv(3, 8), b=conv(8, 5)),
        {"a": 8},
    ),
    "an empty part": (
        net(lambda s, x: s.b(torch.cat([x.new_empty(0), s.a(x)], 1)), a=conv(3, 8), b=conv(8, 5)),
        {"a": 8},
    ),
    "mean by axis": (net(lambda s, x: s.b(s.a(x).mean(axis=(2, 3))), a=conv(3, 8), b=nn.Linear(8, 5)), {"a": 8}),
    "sum by axis": (
        net(lambda s, x: s.b(s.a(x) * s.a(x).sum(axis=2, keepdims=True)), a=conv(3, 8), b=conv(8, 5)),
        {"a": 8},
    ),
    "cat axis": (
        net(lambda s, x: s.b(torch.cat([s.a(x), -s.a(x)], axis=-3)), a=conv(3, 8), b=conv(16, 5)),
        {"a": 8},
    ),
    "axes swapped by name": (
        net(lambda s, x: s.b(s.a(x).swapaxes(axis0=1, axis1=2).mean(1)), a=nn.Linear(8, 8), b=nn.Linear(8, 5)),
        {"a": 8},
    ),
    "places of the largest values": (
        net(lambda s, x: s.b(s.m(s.a(x))[0]), a=conv(3, 8), m=nn.MaxPool2d(2, return_indices=True), b=conv(8, 5)),
        {"a": 8},
    ),
    "channels padded on": (
        net(lambda s, x: s.b(F.pad(s.a(x), (2, 1), value=3.0)), a=nn.Linear(8, 8), b=nn.Linear(11, 5)),
        {"a": 8},
    ),
    "conv1d": (
        net(lambda s, x: s.b(F.relu(s.a(x.flatten(2)))), a=nn.Conv1d(3, 7, 3), b=nn.Conv1d(7, 5, 3)),
        {"a": 7},
    ),
}


def build(maker, seed: int = 0) -> nn.Module:
    """The network in eval mode, with BatchNorm statistics and weights that are all different."""
    torch.manual_seed(seed)
    model = maker().eval()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.InstanceNorm2d | nn.GroupNorm):
                for tensor in (module.weight, module.bias):
                    tensor.normal_(1, 0.5)
                if getattr(module, "running_mean", None) is not None:
                    module.running_mean.normal_()
                    module.running_var.uniform_(0.5, 2)
    return model
