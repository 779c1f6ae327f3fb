"""Small networks of the kinds that people write, drawn from a seed: tomorrow's networks are new
ones.

`draw(seed)` takes a kind in turn and fills in widths, depths, activations, ways of writing a sum
and settings of the norms at random. `Drawn.foldable` counts the batch norms that stand right behind
a layer whose output nobody else reads.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.passes.zoo import CONVS, Net, norm


@dataclass(frozen=True)
class Drawn:
    """One network in eval mode, with random weights and statistics."""

    kind: str
    seed: int
    model: nn.Module
    inputs: tuple[Tensor, ...]
    foldable: int

    def __str__(self) -> str:
        return f"{self.kind} (seed {self.seed})"


class Draw(random.Random):
    """Random choices, and the parts that networks are made of; counts the batch norms that can be
    folded.
    """

    foldable = 0

    def width(self) -> int:
        return self.choice([3, 4, 6, 8, 12, 16])

    def activation(self) -> nn.Module:
        make = self.choice(
            [
                nn.ReLU,
                nn.ReLU6,
                nn.SiLU,
                nn.Hardswish,
                nn.LeakyReLU,
                nn.GELU,
                nn.Sigmoid,
                nn.Identity,
            ]
        )
        in_place = make not in (nn.GELU, nn.Sigmoid, nn.Identity) and self.random() < 0.3
        return make(inplace=True) if in_place else make()

    def conv(
        self,
        before: int,
        after: int,
        size: int = 3,
        dims: int = 2,
        bias: bool | None = None,
        **options,
    ) -> Any:
        bias = self.random() < 0.3 if bias is None else bias
        options.setdefault("padding", size // 2)
        return CONVS[dims](before, after, size, bias=bias, **options)

    def norm(self, channels: int, dims: int = 2) -> nn.Module:
        return norm(channels, dims, affine=self.random() < 0.9, eps=self.choice([1e-5, 1e-3]))

    def conv_norm(
        self, before: int, after: int, size: int = 3, dims: int = 2, act: bool = True, **options
    ) -> Any:
        """A convolution whose norm can be folded."""
        self.foldable += 1
        layers = [self.conv(before, after, size, dims, **options), self.norm(after, dims)]
        return nn.Sequential(*layers, *([self.activation()] if act else []))

    def add(self) -> Callable[[Tensor, Tensor], Tensor]:
        return self.choice(
            [lambda a, b: a + b, torch.add, lambda a, b: torch.add(b, a), lambda a, b: a.add(b)]
        )


def image(d: Draw, channels: int = 3, side: int = 12, batch: int = 2) -> tuple[Tensor, ...]:
    return (torch.randn(batch, channels, side, side),)


def unet(d: Draw):
    a, b, c = d.width(), d.width(), d.width()
    up = d.choice(
        [
            nn.ConvTranspose2d(c, b, 2, 2),
            nn.Sequential(nn.Upsample(scale_factor=2), d.conv(c, b, 1)),
        ]
    )

    def forward(s, x):
        first = s.down1(x)
        second = s.bottom(s.pool(first))
        return s.head(s.up_block(torch.cat([s.up(second), first], 1)))

    parts = {
        "down1": d.conv_norm(3, a),
        "pool": d.choice([nn.MaxPool2d(2), nn.AvgPool2d(2)]),
        "up": up,
    }
    parts |= {
        "bottom": d.conv_norm(a, c),
        "up_block": d.conv_norm(a + b, b),
        "head": nn.Conv2d(b, 2, 1),
    }
    return Net(forward, **parts), image(d)


def yolo_head(d: Draw):
    w, anchors, classes = d.width(), 2, 3

    def forward(s, x):
        x = s.stem(x)
        y = s.pred(x)
        n, _, h, width = y.shape
        y = y.view(n, anchors, classes + 5, h, width).permute(0, 1, 3, 4, 2)
        return torch.cat([y[..., :2].sigmoid(), y[..., 2:4].exp(), y[..., 4:].sigmoid()], -1)

    return Net(
        forward, stem=d.conv_norm(3, w, stride=2), pred=nn.Conv2d(w, anchors * (classes + 5), 1)
    ), image(d)


def vae(d: Draw):
    w, z = d.width(), 4

    def forward(s, x):
        mean, log_variance = s.encode(x).flatten(1).chunk(2, 1)
        half = mean + 0.5 * (0.5 * log_variance).exp()
        return s.decode(s.widen(half).view(-1, w, 3, 3)), mean

    encode = nn.Sequential(
        d.conv_norm(3, w, stride=2), d.conv_norm(w, 2 * z, stride=2), nn.AdaptiveAvgPool2d(1)
    )
    decode = nn.Sequential(nn.Upsample(scale_factor=2), d.conv_norm(w, 3), nn.Tanh())
    return Net(forward, encode=encode, widen=nn.Linear(z, w * 9), decode=decode), image(d)


def generator(d: Draw):
    w = d.width()
    d.foldable += 1
    up = nn.ConvTranspose2d(w, w, 4, 2, 1, bias=False, groups=d.choice([1, 1, w]))

    def forward(s, z):
        x = F.relu(s.norm1(s.up(s.fc(z).reshape(z.size(0), w, 3, 3))))
        return torch.tanh(s.last(x))

    parts = {
        "fc": nn.Linear(5, 9 * w),
        "up": up,
        "norm1": d.norm(w),
        "last": nn.Conv2d(w, 3, 3, 1, 1),
    }
    return Net(forward, **parts), (torch.randn(2, 5),)


def dense_block(d: Draw):
    w, grow = d.width(), d.choice([4, 8])
    widths = [w + i * grow for i in range(d.choice([2, 3]))]
    layers = [nn.Sequential(d.norm(width), nn.ReLU(), d.conv(width, grow)) for width in widths]

    def forward(s, x):
        kept = [s.stem(x)]
        for layer in s.layers:
            kept.append(layer(torch.cat(kept, 1)))
        return torch.cat(kept, dim=1).mean((2, 3))

    return Net(forward, stem=d.conv_norm(3, w), layers=layers), image(d)


def ghost(d: Draw):
    w = d.width()
    cheap = d.conv_norm(w, w, groups=w)

    def forward(s, x):
        primary = s.primary(x)
        return s.out(torch.cat((primary, s.cheap(primary)), dim=1))

    return Net(
        forward, primary=d.conv_norm(3, w, 1), cheap=cheap, out=d.conv_norm(2 * w, 5, 1, act=False)
    ), image(d)


def rep_vgg(d: Draw):
    w, add = d.width(), d.add()
    parts = {
        "identity": d.norm(w),
        "three": d.conv_norm(w, w, act=False),
        "one": d.conv_norm(w, w, 1, act=False),
    }
    block = Net(lambda s, x: F.relu(add(add(s.three(x), s.one(x)), s.identity(x))), **parts)
    return nn.Sequential(d.conv_norm(3, w), block, nn.Flatten(), nn.Linear(w * 144, 4)), image(d)


def conv_mixer(d: Draw):
    w = d.width()

    def layer(before, size, **options):  # The norm stands behind the activation: nothing to fold.
        return nn.Sequential(d.conv(before, w, size, **options), nn.GELU(), d.norm(w))

    parts = [{"depth": layer(w, 5, groups=w), "point": layer(w, 1)} for _ in range(2)]
    blocks = [Net(lambda s, x: s.point(x + s.depth(x)), **its) for its in parts]
    return nn.Sequential(*layer(3, 2, stride=2, padding=0), *blocks), image(d)


def inverted_residual(d: Draw):
    w, hidden, add = d.width(), d.width() * 2, d.add()
    body = nn.Sequential(
        d.conv_norm(w, hidden, 1),
        d.conv_norm(hidden, hidden, groups=hidden),
        d.conv_norm(hidden, w, 1, act=False),
    )
    block = Net(lambda s, x: add(x, s.body(x)), body=body)
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(w, 4)]
    return nn.Sequential(d.conv_norm(3, w, stride=2), block, *head), image(d)


def squeeze_excite(d: Draw):
    w, gate = d.width(), d.choice([torch.sigmoid, F.hardsigmoid])
    parts = {"reduce": nn.Conv2d(w, 2, 1), "expand": nn.Conv2d(2, w, 1)}
    gated = Net(
        lambda s, x: x * gate(s.expand(F.relu(s.reduce(F.adaptive_avg_pool2d(x, 1))))), **parts
    )
    return nn.Sequential(d.conv_norm(3, w), gated, d.conv_norm(w, w, act=False)), image(d)


def shuffle(d: Draw):
    w = d.choice([4, 8, 12])

    def forward(s, x):
        one, two = s.stem(x).chunk(2, dim=1)
        y = torch.cat((one, s.branch(two)), 1)
        n, c, h, v = y.shape
        return s.last(y.reshape(n, 2, c // 2, h, v).transpose(1, 2).reshape(n, c, h, v))

    branch = nn.Sequential(d.conv_norm(w, w, 1), d.conv_norm(w, w, groups=w, act=False))
    return Net(
        forward, stem=d.conv_norm(3, 2 * w), branch=branch, last=nn.Conv2d(2 * w, 2, 1)
    ), image(d)


def inception(d: Draw):
    w, v = d.width(), d.width()
    parts = {"a": d.conv_norm(3, w, 1), "b": nn.Sequential(d.conv_norm(3, v, 1), d.conv_norm(v, v))}
    parts |= {"c": d.conv_norm(3, w, 1), "head": nn.Linear(2 * w + v, 3)}

    def branches(s, x):
        return torch.cat([s.a(x), s.b(x), s.c(F.max_pool2d(x, 3, 1, 1))], 1)

    return Net(lambda s, x: s.head(branches(s, x).mean([2, 3])), **parts), image(d)


def wave(d: Draw):
    """One-dimensional, dilated, gated."""
    w = d.width()

    def layer(dilation):
        options = {"padding": dilation, "dilation": dilation, "dims": 1, "act": False}
        parts = {
            "f": d.conv_norm(w, w, **options),
            "g": d.conv_norm(w, w, **options),
            "mix": nn.Conv1d(w, w, 1),
        }
        return Net(lambda s, x: x + s.mix(torch.tanh(s.f(x)) * torch.sigmoid(s.g(x))), **parts)

    return nn.Sequential(d.conv_norm(2, w, 1, dims=1), layer(1), layer(2), nn.Conv1d(w, 3, 1)), (
        torch.randn(2, 2, 20),
    )


def volume(d: Draw):
    w, v = d.width(), d.width()
    layers = [
        d.conv_norm(1, w, dims=3),
        nn.MaxPool3d(2),
        d.conv_norm(w, v, dims=3),
        nn.AdaptiveAvgPool3d(1),
    ]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(v, 3)), (torch.randn(2, 1, 6, 6, 6),)


def point_net(d: Draw):
    w, v = d.width(), 2 * d.width()
    d.foldable += 1

    def forward(s, x):
        features = s.shared(x).max(dim=2).values
        return s.head(F.relu(s.norm(s.fc(features))))

    parts = {"shared": nn.Sequential(d.conv_norm(3, w, 1, dims=1), d.conv_norm(w, v, 1, dims=1))}
    parts |= {"fc": nn.Linear(v, w), "norm": d.norm(w, 1), "head": nn.Linear(w, 3)}
    return Net(forward, **parts), (torch.randn(3, 3, 15),)


def attention(d: Draw):
    w, heads = d.choice([8, 16]), 2

    def forward(s, x):
        tokens = s.patch(x).flatten(2).transpose(1, 2)
        n, t, _ = tokens.shape
        q, k, v = s.qkv(s.norm(tokens)).reshape(n, t, 3, heads, w // heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, w)
        tokens = tokens + s.out(mixed)
        return s.head(tokens.mean(1))

    parts = {"patch": nn.Conv2d(3, w, 4, 4), "norm": nn.LayerNorm(w), "qkv": nn.Linear(w, 3 * w)}
    return Net(forward, **parts, out=nn.Linear(w, w), head=nn.Linear(w, 4)), image(d)


def lstm_head(d: Draw):
    w = d.width()

    def forward(s, x):
        sequence, _ = s.lstm(s.conv(x).transpose(1, 2))
        return s.head(sequence[:, -1])

    conv = d.conv_norm(3, w, dims=1)
    return Net(forward, conv=conv, lstm=nn.LSTM(w, 5, batch_first=True), head=nn.Linear(5, 2)), (
        torch.randn(2, 3, 9),
    )


def mlp_mixer(d: Draw):
    w = d.choice([6, 8])

    def forward(s, x):
        x = s.embed(x).flatten(2)
        x = x + s.tokens(x)
        return (x.transpose(1, 2) + s.channels(x.transpose(1, 2))).mean(dim=1)

    tokens = nn.Sequential(nn.Linear(9, 7), d.activation(), nn.Linear(7, 9))
    channels = nn.Sequential(nn.LayerNorm(w), nn.Linear(w, 10), nn.GELU(), nn.Linear(10, w))
    return Net(forward, embed=nn.Conv2d(3, w, 4, 4), tokens=tokens, channels=channels), image(d)


def siamese(d: Draw):
    """The same layers called twice."""
    w = d.width()

    def forward(s, x, y):
        one, two = s.net(x), s.net(y)
        return s.head((one - two).abs()), F.cosine_similarity(one, two, dim=1)

    net = nn.Sequential(d.conv_norm(3, w), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return Net(forward, net=net, head=nn.Linear(w, 1)), (*image(d), *image(d))


def scaled(d: Draw):
    """Learned scales and constants around the layers, written in many ways."""
    w = d.width()
    shape = d.choice([(1, w, 1, 1), (w, 1, 1)])

    def forward(s, x):
        y = s.conv(x) * s.gain + s.shift
        y = d_tail(s.second(y))
        return y.flatten(1).mean(1)

    d_tail = d.choice(
        [
            lambda y: y / 6,
            lambda y: 1 - y,
            lambda y: y.clamp(0, 6),
            lambda y: y * 0.5 + 3,
            lambda y: -y,
        ]
    )
    parts = {"conv": d.conv(3, w), "second": d.conv_norm(w, 4, act=False)}
    parts |= {"gain": nn.Parameter(torch.randn(shape)), "shift": torch.randn(shape)}
    return Net(forward, **parts), image(d)


def functional(d: Draw):
    """No layer objects: parameters, and torch.nn.functional."""
    w = d.width()
    d.foldable += 1

    def forward(s, x):
        y = F.conv2d(x, s.weight, None, stride=2, padding=1)
        y = F.batch_norm(y, s.mean, s.var, s.gamma, s.beta, training=False)
        return F.linear(F.adaptive_avg_pool2d(F.relu6(y), (1, 1)).flatten(1), s.out)

    shapes = {"weight": (w, 3, 3, 3), "gamma": (w,), "beta": (w,), "out": (4, w)}
    parts = {name: nn.Parameter(torch.randn(shape)) for name, shape in shapes.items()}
    return Net(forward, **parts, mean=torch.randn(w), var=torch.rand(w) + 0.5), image(d)


def in_place(d: Draw):
    """Writes to tensors: activations, sums, slices."""
    w = d.width()
    write = d.choice(["iadd", "slice", "clamp", "mul", "masked"])

    def forward(s, x):
        y = s.one(x)
        z = s.two(y)
        if write == "iadd":
            z += y
        elif write == "slice":
            z[:, :2] = y[:, :2]
        elif write == "clamp":
            z.clamp_(-1, 1)
        elif write == "mul":
            z.mul_(0.5)
        else:
            z.masked_fill_(z < 0, 0.25)
        return s.head(z).sum((2, 3)) + y.mean()

    return Net(
        forward, one=d.conv_norm(3, w), two=d.conv_norm(w, w), head=d.conv_norm(w, 3, 1, act=False)
    ), image(d)


def batch_one(d: Draw):
    """Views that do nothing at batch 1."""
    w = d.width()

    def forward(s, x):
        token = s.token.expand(x.shape[0], -1, -1)
        tokens = torch.cat([token, s.patch(x).flatten(2).transpose(1, 2)], dim=1)
        return s.head(tokens.reshape(x.shape[0], -1))

    parts = {"patch": d.conv_norm(3, w, 4, stride=4, padding=0), "head": nn.Linear(10 * w, 3)}
    return Net(forward, **parts, token=nn.Parameter(torch.randn(1, 1, w))), image(d, batch=1)


def by_batch(d: Draw):
    """Decides by the number of images."""
    w, most = d.width(), d.choice([3, 4, 6])
    parts = {"conv": d.conv_norm(3, w), "head": nn.Conv2d(w, 4, 1)}
    return Net(lambda s, x: s.head(s.conv(x)) * (2 if x.shape[0] > most else 1), **parts), image(d)


def counting(d: Draw):
    """Buffers that change in each call: numbers, and parts of each other."""

    def forward(s, x):
        s.some.add_(1)
        return s.head(s.conv(x)) * s.others.sum()

    w, whole = d.width(), torch.ones(6)
    parts = {"conv": d.conv_norm(3, w), "head": nn.Conv2d(w, 4, 1), "some": whole[:4]}
    return Net(forward, **parts, others=whole[2 : d.choice([4, 6])]), image(d)


KINDS = (
    *(
        unet,
        yolo_head,
        vae,
        generator,
        dense_block,
        ghost,
        rep_vgg,
        conv_mixer,
        inverted_residual,
        squeeze_excite,
    ),
    *(
        shuffle,
        inception,
        wave,
        volume,
        point_net,
        attention,
        lstm_head,
        mlp_mixer,
        siamese,
        scaled,
        functional,
    ),
    *(in_place, batch_one, by_batch, counting),
)


def draw(seed: int) -> Drawn:
    """The network of a seed; the kinds come in turn."""
    d, kind = Draw(seed), KINDS[seed % len(KINDS)]
    torch.manual_seed(seed)
    model, inputs = kind(d)
    return Drawn(kind.__name__, seed, model.eval(), inputs, d.foldable)
