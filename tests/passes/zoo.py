"""The trap zoo: small networks at which a folding pass can go wrong, as data.

Each case says what must happen: FOLD (with the number of operations that are left), DECLINE (with
words of the reason that must be given) or EITHER (right answers are enough). A `trap` is set for
the fold without a question asked; the tests show that it is caught.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

FOLD, DECLINE, EITHER = "must-fold", "must-decline", "either"
BOTH, FX, EXPORT = ("fx", "export"), ("fx",), ("export",)


@dataclass(frozen=True)
class Case:
    """One trap."""

    name: str  # what is special about it
    build: Callable[[], nn.Module]  # makes the network; its parameters are random
    shape: tuple[int, ...] = (2, 3, 6, 6)  # of the input
    verdict: str = FOLD  # or DECLINE or EITHER
    left: int | None = None  # the number of operations in the optimised graph
    reason: str = ""  # words that the reported reason contains
    # to fold every norm into the layer before it, without a question asked, gives a wrong answer
    trap: bool = False
    dtype: torch.dtype = torch.float64  # of parameters and input
    routes: tuple[str, ...] = BOTH  # the tracers that can trace it and for which `left` holds


def Net(forward: Callable[..., Any], **parts: Any) -> nn.Module:
    """A module whose forward is `forward(net, x, ...)`, with modules, lists of them and buffers
    hung on it.
    """
    net = type("Net", (nn.Module,), {"forward": forward})()
    for name, part in parts.items():
        is_buffer = isinstance(part, torch.Tensor) and not isinstance(part, nn.Parameter)
        setattr(
            net,
            name,
            (
                nn.Buffer(part)
                if is_buffer
                else nn.ModuleList(part)
                if isinstance(part, list)
                else part
            ),
        )
    return net


NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
CONVS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}


def norm(channels: int, dimensions: int = 2, **settings: Any) -> nn.Module:
    """A batch norm with random statistics; about half of the factors are negative."""
    made = NORMS[dimensions](channels, **settings)
    for name, tensor in made.state_dict().items():
        if tensor.is_floating_point():
            tensor.uniform_(0.5, 2) if name == "running_var" else tensor.normal_()
    return made


def conv(
    inside: int = 3, out: int = 4, kernel: Any = 3, dimensions: int = 2, **settings: Any
) -> nn.Module:
    return CONVS[dimensions](inside, out, kernel, **settings)


def up(
    inside: int = 3, out: int = 4, kernel: Any = 3, dimensions: int = 2, **settings: Any
) -> nn.Module:
    return TRANSPOSED[dimensions](inside, out, kernel, **settings)


def conv_norm(layer: Callable[..., nn.Module] = conv, **settings: Any) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(
        layer(**settings), norm(settings.get("out", 4), settings.get("dimensions", 2))
    )


def changed(change: Callable[[nn.Sequential], Any]) -> Callable[[], nn.Module]:
    """A convolution and its norm after a change."""

    def make() -> nn.Module:
        model = conv_norm()()
        change(model)
        return model

    return make


def alone(run: Callable[..., Any], **parts: Callable[[], Any]) -> Callable[[], nn.Module]:
    return lambda: Net(run, **{name: make() for name, make in parts.items()})


def with_conv(run: Callable[..., Any], **parts: Callable[[], Any]) -> Callable[[], nn.Module]:
    """A network with `conv`, `bn` and further parts."""
    made = {"conv": conv, "bn": lambda: norm(4)} | parts
    return lambda: Net(run, **{name: make() for name, make in made.items()})


def z(*shape: int, **settings: Any) -> Callable[[], torch.Tensor]:
    return lambda: torch.randn(*shape, **settings)


class OwnConv(nn.Conv2d):
    """A subclass that computes something else."""

    def forward(self, x):
        return super().forward(x).abs()


def hooked(layer: nn.Module, change: Callable[[torch.Tensor], Any] = torch.abs) -> nn.Module:
    """The layer with a hook that changes its result, or only looks at it."""
    layer.register_forward_hook(lambda module, args, result: change(result))
    return layer


def two_names() -> nn.Module:
    model = Net(lambda m, x: m.bn(m.conv(x)) + m.again(x), conv=conv(), bn=norm(4))
    model.again = model.conv
    return model


def tied(*names: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        model = Net(
            lambda m, x: m.bn(m.conv(x)) + m.other(x), conv=conv(), other=conv(), bn=norm(4)
        )
        for name in names:
            setattr(model.other, name, getattr(model.conv, name))
        return model

    return make


def one_norm_two_widths() -> nn.Module:
    shared = nn.Parameter(torch.randn(4))
    model = Net(
        lambda m, x: m.bn(m.conv(x)) + m.other(m.wide(x)),
        conv=conv(),
        wide=conv(out=4, kernel=5, padding=1),
        bn=norm(4),
        other=norm(4),
    )
    model.conv.bias = model.wide.bias = shared
    return model


def as_buffer(layer: nn.Module) -> None:
    """Its weight is kept as a buffer."""
    weight = layer.weight.detach()
    del layer.weight
    layer.register_buffer("weight", weight)


@torch.no_grad()
def overflow(model: nn.Sequential) -> None:
    model[0].weight.mul_(100)
    model[1].running_var.fill_(0.0)
    model[1].weight.fill_(60000.0)
    model.half()


def functional_norm(training: Any) -> Callable[[], nn.Module]:
    def run(m, x):
        return F.batch_norm(m.conv(x), m.mean, m.var, m.gamma, m.beta, training, 0.1, 1e-3)

    parts = {"mean": z(4), "var": lambda: torch.rand(4) + 0.5, "gamma": z(4), "beta": z(4)}
    return with_conv(run, **parts)


def training_from_input(m, x):
    return F.batch_norm(
        m.conv(x), m.bn.running_mean, m.bn.running_var, m.bn.weight, m.bn.bias, x.shape[2] > 3
    )


NORM_CASES = [
    Case("plain", conv_norm(), left=1),
    Case("without bias", conv_norm(bias=False), left=1),
    Case("grouped", conv_norm(inside=4, out=4, groups=2), (2, 4, 6, 6), left=1),
    Case("depthwise", conv_norm(inside=3, out=6, groups=3), left=1),
    Case("1-D", conv_norm(dimensions=1), (2, 3, 9), left=1),
    Case("3-D", conv_norm(dimensions=3), (2, 3, 4, 5, 4), left=1),
    Case("'same' padding", conv_norm(padding="same", dilation=2), left=1),
    Case("reflected padding", conv_norm(padding=1, padding_mode="reflect"), left=1, routes=FX),
    Case(
        "reflected padding, exported",
        conv_norm(padding=1, padding_mode="reflect"),
        left=2,
        routes=EXPORT,
    ),
    Case("strided and dilated", conv_norm(stride=2, dilation=2, padding=2), left=1),
    Case("transposed", conv_norm(up), left=1),
    Case("transposed, Cin == Cout", conv_norm(up, inside=4, out=4), (2, 4, 5, 5), left=1),
    Case("transposed, 2 groups", conv_norm(up, inside=4, out=6, groups=2), (2, 4, 5, 5), left=1),
    Case(
        "transposed, 2 groups, Cin == Cout",
        conv_norm(up, inside=4, out=4, groups=2),
        (2, 4, 5, 5),
        left=1,
    ),
    Case("transposed, depthwise", conv_norm(up, inside=4, out=4, groups=4), (2, 4, 5, 5), left=1),
    Case(
        "transposed, 1-D", conv_norm(up, inside=4, out=6, groups=2, dimensions=1), (2, 4, 5), left=1
    ),
    Case(
        "transposed, 3-D",
        conv_norm(up, inside=4, out=2, groups=2, dimensions=3),
        (1, 4, 3, 3, 3),
        left=1,
    ),
    Case("transposed, output_padding", conv_norm(up, stride=2, output_padding=1), left=1),
    Case(
        "transposed, output_size by keyword",
        with_conv(lambda m, x: m.bn(m.conv(x, output_size=[14, 13])), conv=lambda: up(stride=2)),
        left=1,
    ),
    Case("affine=False", lambda: nn.Sequential(conv(), norm(4, affine=False)), left=1),
    Case("keyword arguments", with_conv(lambda m, x: m.bn(input=m.conv(input=x))), left=1),
    Case(
        "functional convolution",
        with_conv(lambda m, x: m.bn(F.conv2d(x, m.conv.weight, m.conv.bias, padding=(1, 1)))),
        left=1,
    ),
    Case(
        "functional, keywords only",
        with_conv(lambda m, x: m.bn(F.conv2d(input=x, weight=m.conv.weight, bias=None, stride=2))),
        left=1,
    ),
    Case("functional norm, literal False", functional_norm(False), left=1),
    Case(
        "functional norm, weight but no bias",
        with_conv(
            lambda m, x: F.batch_norm(m.conv(x), m.bn.running_mean, m.bn.running_var, m.bn.weight)
        ),
        left=1,
    ),
    Case("two norms in a row", lambda: nn.Sequential(conv(), norm(4), norm(4)), left=1),
    Case("negative factors before ReLU", lambda: nn.Sequential(conv(), norm(4), nn.ReLU()), left=2),
    Case(
        "hardswish, SiLU, ReLU6",
        lambda: nn.Sequential(
            conv(),
            norm(4),
            nn.Hardswish(),
            conv(4, 5),
            norm(5),
            nn.SiLU(),
            conv(5, 4, 1),
            norm(4),
            nn.ReLU6(),
        ),
        left=6,
    ),
    Case("variance near 0", changed(lambda model: model[1].running_var.fill_(1e-12)), left=1),
    Case("eps is an int", lambda: nn.Sequential(conv(), norm(4, eps=1)), left=1),
    Case("momentum None", lambda: nn.Sequential(conv(), norm(4, momentum=None)), left=1),
    Case("weight is a buffer", changed(lambda model: as_buffer(model[0])), left=1),
    Case(
        "weight is not contiguous",
        changed(
            lambda model: setattr(model[0].weight, "data", model[0].weight.data.transpose(2, 3))
        ),
        left=1,
    ),
    Case("empty batch", conv_norm(), (0, 3, 6, 6), left=1),
    Case(
        "identity between",
        lambda: nn.Sequential(conv(), nn.Identity(), nn.Dropout(), norm(4)),
        left=1,
    ),
    Case("norm is the output twice", with_conv(lambda m, x: [m.bn(m.conv(x))] * 2), left=1),
    Case(
        "one conv, norm on one path",
        with_conv(lambda m, x: (m.bn(m.conv(x)), m.conv(x))),
        left=2,
        trap=True,
    ),
    Case(
        "one conv twice, same norm",
        with_conv(lambda m, x: m.bn(m.conv(x)) - m.bn(m.conv(2 * x))),
        left=4,
        trap=True,
    ),
    Case(
        "one conv twice, two norms",
        with_conv(lambda m, x: m.bn(m.conv(x)) + m.other(m.conv(x)), other=lambda: norm(4)),
        left=3,
        trap=True,
    ),
    Case(
        "one norm after two convs",
        with_conv(lambda m, x: m.bn(m.conv(x)) + m.bn(m.second(x)), second=conv),
        left=3,
    ),
    Case("tied weights", tied("weight", "bias"), left=3, trap=True),
    Case("one module under two names", two_names, left=3, trap=True),
    Case(
        "weight read elsewhere",
        with_conv(lambda m, x: m.bn(m.conv(x)) * m.conv.weight.sum()),
        left=1,
        trap=True,
    ),
    Case("bias shared by two convs", one_norm_two_widths, left=3, trap=True),
    Case(
        "input written between",
        with_conv(lambda m, x: (y := m.conv(z := x * 2), z.add_(1), m.bn(y) + z.mean())[2]),
        verdict=EITHER,
    ),
    Case(
        "residual sum",
        with_conv(
            lambda m, x: m.bn(m.conv(x)) + m.other(m.second(x)), second=conv, other=lambda: norm(4)
        ),
        left=3,
    ),
    Case(
        "norm with f32 statistics after f16",
        lambda: nn.Sequential(conv().half(), norm(4)),
        dtype=torch.float16,
        verdict=EITHER,
    ),
    Case("bf16", conv_norm(), dtype=torch.bfloat16, verdict=EITHER),
    Case("linear and norm", lambda: nn.Sequential(nn.Linear(5, 4), norm(4, 1)), (3, 5), left=1),
    Case(
        "linear and norm, affine=False",
        lambda: nn.Sequential(nn.Linear(5, 4), norm(4, 1, affine=False)),
        (3, 5),
        left=1,
    ),
    Case(
        "conv output used twice",
        with_conv(lambda m, x: m.bn(y := m.conv(x)) + y),
        verdict=DECLINE,
        left=3,
        reason="also used by",
        trap=True,
    ),
    Case(
        "conv output returned",
        with_conv(lambda m, x: (m.bn(y := m.conv(x)), y)),
        verdict=DECLINE,
        left=2,
        reason="also returned",
        trap=True,
    ),
    Case(
        "conv output written, then normalised",
        with_conv(lambda m, x: ((y := m.conv(x)).add_(x.mean()), m.bn(y))[1]),
        verdict=EITHER,
        trap=True,
    ),
    Case(
        "conv output written afterwards",
        with_conv(lambda m, x: (m.bn(y := m.conv(x)), y.mul_(2), y)[::2]),
        verdict=DECLINE,
        reason="also",
        trap=True,
    ),
    Case(
        "view in between", with_conv(lambda m, x: m.bn(m.conv(x).transpose(2, 3))), verdict=EITHER
    ),
    Case(
        "norm without statistics",
        lambda: nn.Sequential(conv(), norm(4, track_running_stats=False)),
        verdict=DECLINE,
        reason="of the batch",
        trap=True,
    ),
    Case(
        "training norm in an eval model",
        changed(lambda model: model.eval()[1].train()),
        verdict=DECLINE,
        reason="statistics",
        trap=True,
    ),
    Case(
        "functional norm, literal True",
        functional_norm(True),
        verdict=DECLINE,
        reason="statistics of the batch",
        trap=True,
    ),
    Case(
        "functional norm, flag is a node",
        with_conv(training_from_input),
        verdict=DECLINE,
        reason="training is computed by the graph",
        trap=True,
        routes=FX,
    ),
    Case(
        "hook on the conv",
        lambda: nn.Sequential(hooked(conv()), norm(4)),
        verdict=DECLINE,
        reason="hooks",
        trap=True,
        routes=FX,
    ),
    Case(
        "hook on the norm",
        changed(lambda model: model[1].register_forward_pre_hook(lambda _, args: args[0].abs())),
        verdict=DECLINE,
        reason="hooks",
        trap=True,
        routes=FX,
    ),
    Case(
        "forward replaced on the instance",
        changed(
            lambda model: setattr(
                model[1], "forward", lambda x, right=model[1].forward: right(x.abs())
            )
        ),
        verdict=DECLINE,
        reason="replaced",
        trap=True,
        routes=FX,
    ),
    Case("subclass", lambda: nn.Sequential(OwnConv(3, 4, 3), norm(4)), verdict=EITHER),
    Case(
        "parametrised",
        lambda: nn.Sequential(parametrizations.weight_norm(conv()), norm(4)),
        verdict=DECLINE,
        reason="parametrised",
        routes=FX,
    ),
    Case(
        "weight is a plain tensor",
        changed(
            lambda model: model[0].__dict__.update(
                weight=model[0]._parameters.pop("weight").double().detach()
            )
        ),
        verdict=DECLINE,
        reason="replaced",
        routes=FX,
    ),
    Case(
        "linear and norm on (N, L, C), L == C",
        lambda: nn.Sequential(nn.Linear(5, 4), norm(4, 1)),
        (2, 4, 5),
        verdict=DECLINE,
        reason="does not count its channels",
        trap=True,
    ),
    Case(
        "1-D without batch, L == C",
        lambda: nn.Sequential(conv(3, 4, 3, 1), norm(4, 1)),
        (3, 6),
        verdict=DECLINE,
        reason="does not count its channels",
        trap=True,
    ),
    Case(
        "weight written by the graph",
        with_conv(lambda m, x: (m.conv.weight.add_(0.5), m.bn(m.conv(x)))[1]),
        verdict=DECLINE,
        reason="writes to the weights",
        routes=FX,
        trap=True,
    ),
    Case(
        "norm before a padded conv",
        lambda: nn.Sequential(norm(3), conv(padding=1)),
        verdict=EITHER,
        left=2,
    ),
    Case(
        "ReLU in between", lambda: nn.Sequential(conv(), nn.ReLU(), norm(4)), verdict=EITHER, left=3
    ),
    Case(
        "folded weights overflow",
        changed(overflow),
        verdict=DECLINE,
        reason="not finite",
        dtype=torch.float16,
    ),
    Case(
        "weight computed from the input",
        with_conv(lambda m, x: m.bn(F.conv2d(x, m.conv.weight * x.mean()))),
        verdict=DECLINE,
        reason="weight is computed by the graph",
        left=4,
        routes=FX,
    ),
]


def plus(constant: Callable[[], Any], **parts: Any) -> Callable[[], nn.Module]:
    return with_conv(lambda m, x: m.conv(x) + m.z, z=constant, **parts)


def scalar(value: Any) -> Callable[[], nn.Module]:
    return with_conv(lambda m, x: m.conv(x) * value + value)


PER_CHANNEL = z(4, 1, 1)
CONSTANT_CASES = [
    Case("conv + z", plus(PER_CHANNEL), left=1),
    Case("z + conv", with_conv(lambda m, x: m.z + m.conv(x), z=PER_CHANNEL), left=1),
    Case("conv - z", with_conv(lambda m, x: m.conv(x) - m.z, z=PER_CHANNEL), left=1),
    Case("z - conv", with_conv(lambda m, x: m.z - m.conv(x), z=PER_CHANNEL), left=1),
    Case("conv * z", with_conv(lambda m, x: m.conv(x) * m.z, z=PER_CHANNEL), left=1),
    Case("conv / z", with_conv(lambda m, x: m.conv(x) / m.z, z=PER_CHANNEL), left=1),
    Case(
        "alpha", with_conv(lambda m, x: torch.add(m.conv(x), m.z, alpha=2), z=PER_CHANNEL), left=1
    ),
    Case(
        "alpha, subtracted",
        with_conv(lambda m, x: torch.sub(m.conv(x), m.z, alpha=2), z=PER_CHANNEL),
        left=1,
    ),
    Case(
        "alpha, later written",
        with_conv(lambda m, x: (torch.add(m.conv(x), m.z, alpha=2), m.z.add_(1))[0], z=PER_CHANNEL),
        verdict=EITHER,
        left=3,
        routes=FX,
    ),
    Case("rsub", with_conv(lambda m, x: torch.rsub(m.conv(x), 2.5), z=PER_CHANNEL), left=1),
    Case("method add_", with_conv(lambda m, x: m.conv(x).add_(m.z), z=PER_CHANNEL), left=1),
    Case(
        "keyword other",
        with_conv(lambda m, x: torch.mul(m.conv(x), other=m.z), z=PER_CHANNEL),
        left=1,
    ),
    Case("z of rank 4", plus(z(1, 4, 1, 1)), left=1),
    Case("z has one element", plus(z(1)), left=1),
    Case(
        "z is 0-dim f64, network f32", plus(lambda: torch.tensor(0.3, dtype=torch.float64)), left=1
    ),
    Case(
        "computed constant",
        with_conv(lambda m, x: m.conv(x) + m.z.exp() * 2, z=PER_CHANNEL),
        left=1,
    ),
    Case("scalar int", scalar(3), left=1),
    Case("scalar float", scalar(-0.3), left=1),
    Case("scalar bool", scalar(True), left=1),
    Case("integer z", plus(lambda: torch.randint(-5, 5, (4, 1, 1))), left=1),
    Case(
        "transposed, Cin == Cout, * z",
        lambda: Net(lambda m, x: m.conv(x) * m.z, conv=up(3, 3), z=torch.randn(3, 1, 1)),
        left=1,
    ),
    Case("without batch", plus(PER_CHANNEL), (3, 6, 6), left=1),
    Case(
        "bn, add, mul, relu",
        with_conv(lambda m, x: torch.relu((m.bn(m.conv(x)) + m.z) * 3 - 1), z=PER_CHANNEL),
        left=2,
    ),
    Case(
        "mul, bn, div, bn",
        with_conv(lambda m, x: m.bn(m.bn(m.conv(x) * 2) / m.z), z=PER_CHANNEL),
        left=1,
    ),
    Case(
        "one conv twice, z on one path",
        with_conv(lambda m, x: (m.conv(x) + m.z, m.conv(x)), z=PER_CHANNEL),
        left=2,
    ),
    Case(
        "linear * z + y",
        lambda: Net(lambda m, x: m.fc(x) * m.z + 2, fc=nn.Linear(5, 4), z=torch.randn(4)),
        (2, 3, 5),
        left=1,
    ),
    Case(
        "matmul * z + y",
        lambda: Net(
            lambda m, x: (x @ m.w) * m.z + m.y,
            w=torch.randn(5, 4),
            z=torch.randn(4),
            y=torch.randn(4),
        ),
        (2, 3, 5),
        left=1,
    ),
    Case(
        "addmm",
        lambda: Net(lambda m, x: torch.addmm(m.y, x, m.w), w=torch.randn(5, 4), y=torch.randn(4)),
        (3, 5),
        left=1,
    ),
    Case(
        "complex weights",
        lambda: Net(
            lambda m, x: m.conv(x.to(torch.complex128)) + m.z,
            conv=conv(dtype=torch.complex128),
            z=torch.randn(4, 1, 1, dtype=torch.complex128),
        ),
        left=2,
        routes=FX,
    ),
    Case(
        "grouped / z",
        with_conv(lambda m, x: m.conv(x) / m.z, conv=lambda: conv(4, 6, groups=2), z=z(6, 1, 1)),
        (2, 4, 6, 6),
        left=1,
    ),
    Case(
        "transposed, 2 groups, z *",
        with_conv(lambda m, x: m.z * m.conv(x), conv=lambda: up(4, 6, groups=2), z=z(6, 1, 1)),
        (2, 4, 5, 5),
        left=1,
    ),
    Case(
        "transposed, z - conv",
        with_conv(lambda m, x: m.z - m.conv(x), conv=up, z=PER_CHANNEL),
        left=1,
    ),
    Case(
        "2 - (conv + 3), no bias",
        with_conv(lambda m, x: 2 - (m.conv(x) + 3), conv=lambda: conv(bias=False)),
        left=1,
    ),
    Case(
        "factor computed from the input",
        with_conv(lambda m, x: m.conv(x) * x.mean()),
        verdict=DECLINE,
        left=3,
        reason="is not a constant",
    ),
    Case(
        "linear / z, then norm",
        lambda: Net(
            lambda m, x: m.bn(m.fc(x) / m.z), fc=nn.Linear(5, 4), bn=norm(4, 1), z=torch.randn(4)
        ),
        (6, 5),
        left=1,
    ),
    Case(
        "matmul of two computed",
        alone(lambda m, x: x @ x.transpose(0, 1)),
        (3, 5),
        verdict=EITHER,
        left=2,
    ),
    Case(
        "matmul, weight first",
        alone(lambda m, x: m.w @ x, w=z(5, 4)),
        (4, 3),
        verdict=DECLINE,
        left=1,
        reason="is not a constant",
    ),
    Case(
        "matmul with a batch of matrices",
        alone(lambda m, x: x @ m.w, w=z(1, 5, 4)),
        (2, 3, 5),
        verdict=DECLINE,
        left=1,
        reason="is not a matrix",
    ),
    Case(
        "addmm, a bias per row",
        alone(lambda m, x: torch.addmm(m.y, x, m.w), w=z(5, 4), y=z(3, 4)),
        (3, 5),
        verdict=DECLINE,
        left=1,
        reason="one number per output feature",
    ),
    Case(
        "matmul, weight written",
        alone(lambda m, x: (x @ m.w, m.w.add_(1))[0], w=z(5, 4)),
        (3, 5),
        verdict=DECLINE,
        reason="written to",
        routes=FX,
    ),
    Case("spatial z", plus(z(4, 4, 4)), verdict=DECLINE, left=2, reason="an axis other"),
    Case("z of shape (C,), W == C", plus(z(4)), verdict=DECLINE, left=2, reason="an axis other"),
    Case("z with a batch", plus(z(2, 4, 1, 1)), verdict=DECLINE, left=2, reason="an axis other"),
    Case("z of rank 5", plus(z(1, 1, 4, 1, 1)), verdict=DECLINE, left=2, reason="different shapes"),
    Case(
        "Cout = 1, z enlarges the shape",
        lambda: Net(lambda m, x: m.conv(x) + m.z, conv=conv(3, 1), z=torch.randn(4, 1, 1)),
        verdict=DECLINE,
        left=2,
        reason="different shapes",
    ),
    Case(
        "without batch, z of rank 4",
        plus(z(1, 4, 1, 1)),
        (3, 6, 6),
        verdict=DECLINE,
        left=2,
        reason="different shapes",
    ),
    Case(
        "f64 z, f32 network",
        lambda: Net(lambda m, x: m.conv(x) + m.z.double(), conv=conv(), z=torch.randn(4, 1, 1)),
        verdict=DECLINE,
        left=2,
        reason="different dtypes",
        dtype=torch.float32,
        routes=FX,
    ),
    Case(
        "complex z",
        plus(z(4, 1, 1, dtype=torch.complex64)),
        verdict=DECLINE,
        left=2,
        reason="different dtypes",
    ),
    Case(
        "z / conv",
        with_conv(lambda m, x: m.z / m.conv(x), z=PER_CHANNEL),
        verdict=DECLINE,
        left=2,
        reason="not an affine map",
    ),
    Case(
        "conv / 0",
        with_conv(lambda m, x: m.conv(x) / 0),
        verdict=DECLINE,
        left=2,
        reason="not finite",
    ),
    Case(
        "conv + conv",
        with_conv(lambda m, x: m.conv(x) + m.second(x), second=conv),
        verdict=EITHER,
        left=3,
    ),
    Case(
        "sum used twice",
        with_conv(lambda m, x: (y := m.conv(x)) + 1 + y),
        verdict=DECLINE,
        left=3,
        reason="also used by",
    ),
    Case(
        "z written by the graph",
        with_conv(lambda m, x: m.conv(x) + m.z.add_(1), z=PER_CHANNEL),
        verdict=DECLINE,
        reason="is not a constant",
        left=3,
    ),
    Case(
        "linear on (N, L, C), z along L",
        lambda: Net(lambda m, x: m.fc(x) + m.z, fc=nn.Linear(5, 4), z=torch.randn(4, 1)),
        (2, 4, 5),
        verdict=DECLINE,
        left=2,
        reason="an axis other",
    ),
]


CLEAN_UP_CASES = [
    Case("x + 0", alone(lambda m, x: torch.relu(x + 0)), left=1),
    Case("0 + x, x * 1, x / 1, x - 0", alone(lambda m, x: torch.relu((0 + x) * 1 / 1 - 0)), left=1),
    Case(
        "views that change nothing",
        alone(lambda m, x: torch.relu(x.view(x.shape).flatten(3).to(x.dtype))),
        verdict=EITHER,
        routes=FX,
    ),
    Case("dropout in eval mode", alone(lambda m, x: torch.relu(F.dropout(x, 0.5, False))), left=1),
    Case(
        "a subgraph of constants",
        alone(lambda m, x: x * (m.w @ m.w.T).softmax(0).sum(), w=z(3, 3)),
        left=1,
    ),
    Case(
        "a mask of constants",
        alone(lambda m, x: x * ((m.w > 0) & (m.w < 1) | (m.w > 2)), w=z(3, 1, 1)),
        left=1,
    ),
    Case(
        "x + zeros(4, 3) of another shape",
        alone(lambda m, x: x + torch.zeros(4, 3)),
        (3,),
        verdict=EITHER,
        left=1,
    ),
    Case(
        "int * 1.0",
        alone(lambda m, x: x * 1.0),
        (4,),
        verdict=DECLINE,
        left=1,
        reason="different dtypes",
        dtype=torch.int64,
    ),
    Case(
        "copy, then written",
        alone(lambda m, x: ((w := (y := x * 2) + 0).view(-1).add_(1), y, w)[1:]),
        verdict=DECLINE,
        left=4,
        reason="writes into it",
        routes=FX,
    ),
    Case(
        "a copy of the input returned",
        alone(lambda m, x: x + 0),
        verdict=DECLINE,
        left=1,
        reason="a copy of x",
    ),
    Case(
        "a copy of its view returned",
        alone(lambda m, x: x.flatten() * 1),
        verdict=DECLINE,
        left=2,
        reason="copy of",
    ),
    Case(
        "a copy of a copy, of which a view is returned",
        alone(lambda m, x: ((y := x.exp() * 1) * 1, y.flatten(1))),
        verdict=DECLINE,
        left=3,
        reason="a copy of exp",
    ),
    Case(
        "random numbers in place",
        alone(lambda m, x: x + torch.empty(3, 1, 1).normal_()),
        verdict=DECLINE,
        left=2,
        reason="random",
        routes=FX,
    ),
    Case(
        "random numbers",
        alone(lambda m, x: x + torch.rand(3, 1, 1)),
        verdict=DECLINE,
        left=2,
        reason="random",
    ),
    Case(
        "training dropout of a constant",
        alone(lambda m, x: x + F.dropout(m.w, 0.5, True), w=z(6)),
        verdict=DECLINE,
        left=2,
        reason="random",
    ),
    Case(
        "buffer that counts",
        alone(lambda m, x: (m.count.add_(1), x * m.count)[1], count=z(1)),
        verdict=DECLINE,
        left=2,
        reason="has a side effect",
        routes=FX,
    ),
    Case(
        "fill_ whose result is not used",
        alone(lambda m, x: ((y := x * 2).fill_(3.0), x + y)[1]),
        verdict=EITHER,
        left=3,
        routes=FX,
    ),
    Case("dead code goes", alone(lambda m, x: (x.exp(), torch.relu(x))[1]), left=1, routes=FX),
    Case(
        "sizes of parameters",
        alone(lambda m, x: x.reshape(-1, m.w.shape[0]) @ m.w, w=z(6, 4)),
        left=2,
    ),
    Case(
        "channels of a conv",
        with_conv(lambda m, x: (y := m.conv(x)).view(y.size(0), y.shape[1], -1).relu()),
        left=4,
        routes=FX,
    ),
    Case(
        "pad before a conv",
        lambda: nn.Sequential(nn.ZeroPad2d(2), conv(padding=1)),
        verdict=EITHER,
        left=2,
        routes=FX,
    ),
    Case(
        "functional pad before a conv",
        with_conv(lambda m, x: m.conv(F.pad(x, (1, 1, 2, 2)))),
        verdict=EITHER,
        left=2,
    ),
    Case(
        "constant pad",
        with_conv(lambda m, x: m.conv(torch.constant_pad_nd(x, [1] * 4, 0))),
        verdict=EITHER,
        left=2,
    ),
    Case(
        "uneven pad", with_conv(lambda m, x: m.conv(F.pad(x, (0, 1, 0, 1)))), verdict=EITHER, left=2
    ),
    Case(
        "pad by ones",
        with_conv(lambda m, x: m.conv(F.pad(x, (1, 1, 1, 1), value=1.0))),
        verdict=EITHER,
        left=2,
    ),
    Case(
        "pad of the channels",
        with_conv(lambda m, x: m.conv(F.pad(x, (0, 0, 0, 0, 1, 1))), conv=lambda: conv(5)),
        verdict=EITHER,
        left=2,
    ),
]


def in_place(write: Callable[[torch.Tensor], Any] | type) -> Callable[[], nn.Module]:
    """A conv whose result is written into; the result is read through a name from before, and so is
    a view of it.
    """

    def run(m, x):
        y = m.conv(x)
        view = y[:, 1:]
        returned = m.write(y) if isinstance(write, type) else write(y)
        return m.bn(y), view + 1, returned * 2

    return with_conv(
        run, write=(lambda: write(inplace=True)) if isinstance(write, type) else nn.Identity
    )


def augmented(m, x):
    y = m.conv(x)
    alias = y
    alias += 1
    alias *= x.mean()
    return m.bn(y) + alias


def masked(m, x):
    here = x > 0
    alias = here
    here &= x < 1
    return m.bn(m.conv(x * alias))


def item_set(m, x):
    y = m.conv(x)
    before = m.bn(y)
    y[:, 0] = x.mean()
    return before, y.sum()


def count(m, x):
    m.count += 1
    return m.bn(m.conv(x)) * m.count


def reshaped_in_place(m, x):
    y = m.conv(x).relu()
    kept = y.relu()
    y.unsqueeze_(2)
    return m.bn(kept.view(kept.shape[0], -1, 4, 4)) + y.shape[1], y.dim() * kept


def rows_of(x):
    rows = x.shape[0]
    rows *= 2
    return rows


def frozen() -> nn.Module:
    with torch.inference_mode():
        return conv_norm()()


IN_PLACE = {
    "relu_": torch.relu_,
    "F.relu(inplace=True)": lambda y: F.relu(y, inplace=True),
    "F.relu6, inplace by position": lambda y: F.relu6(y, True),
    "nn.ReLU(inplace=True)": nn.ReLU,
    "nn.SiLU(inplace=True)": nn.SiLU,
    "nn.ELU(inplace=True)": nn.ELU,
    "sigmoid_": torch.sigmoid_,
    "tanh_": lambda y: y.tanh_(),
    "hardtanh_": lambda y: F.hardtanh_(y, -0.5, 0.5),
    "leaky_relu_": lambda y: F.leaky_relu_(y, 0.3),
    "clamp_": lambda y: y.clamp_(min=0),
    "add_": lambda y: y.add_(1.5),
    "sub_": lambda y: y.sub_(1.5, alpha=2),
    "mul_": lambda y: y.mul_(3),
    "div_": lambda y: y.div_(3),
    "zero_": lambda y: y.zero_(),
    "copy_": lambda y: y.copy_(y.flip(1)),
}
WRITE_CASES = [
    *(
        Case(f"{name}, seen by others", in_place(write), verdict=EITHER)
        for name, write in IN_PLACE.items()
    ),
    Case(
        "out=, seen by others",
        in_place(lambda y: torch.add(y, 1, out=y)),
        verdict=EITHER,
        routes=FX,
    ),
    Case(
        "a part of added tuples written",
        with_conv(lambda m, x: ((y := m.conv(x)) + 0, (y.split(4, 1) + (x,))[0].add_(1))[0] + y),
        verdict=EITHER,
        routes=FX,
    ),
    Case("sigmoid_ of the input", alone(lambda m, x: (x.sigmoid_(), x * 2)[1]), verdict=EITHER),
    Case("y += 1 under another name", with_conv(augmented), verdict=EITHER),
    Case("mask &= under another name", with_conv(masked), verdict=EITHER),
    Case("y[:, 0] = z", with_conv(item_set), verdict=EITHER),
    Case("self.count += 1", with_conv(count, count=lambda: torch.zeros(())), verdict=EITHER),
    Case(
        "statistics written by the graph",
        with_conv(lambda m, x: (m.bn.running_mean.add_(1), m.bn(m.conv(x)))[1]),
        verdict=DECLINE,
        reason="writes to its statistics",
        trap=True,
        routes=FX,
    ),
    Case(
        "norms that write statistics",
        alone(
            lambda m, x: (
                F.batch_norm(x, m.u, m.v, training=True),
                F.instance_norm(x, m.v, m.u),
                x * m.u.exp().sum(),
            )[2],
            u=z(3),
            v=z(3),
        ),
        verdict=EITHER,
    ),
    Case(
        "embedding that shortens its rows",
        alone(
            lambda m, x: (
                F.embedding(x[0, 0, 0].long().abs(), m.w, max_norm=1),
                x * m.w.exp().sum(),
            )[1],
            w=z(9, 4),
        ),
        verdict=EITHER,
        routes=FX,
    ),
    Case("shape changed in place", with_conv(reshaped_in_place), verdict=EITHER),
    Case("weight tied, biases apart", tied("weight"), left=3, trap=True),
    Case(
        "an optional argument that is not given",
        with_conv(lambda m, x, shift=None: m.bn(m.conv(x)) if shift is None else x + shift),
        left=1,
    ),
    Case("tensors of inference mode", frozen, left=1, dtype=torch.float32),
    Case(
        "a size that is counted up",
        with_conv(lambda m, x: m.bn(m.conv(x)).reshape(rows_of(x), -1)),
        left=4,
        routes=FX,
    ),
]

ZOO = [*NORM_CASES, *CONSTANT_CASES, *CLEAN_UP_CASES, *WRITE_CASES]
