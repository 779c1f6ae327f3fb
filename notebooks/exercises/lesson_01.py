"""Lesson 01. The oracles run torch's own layers and read the answers off their outputs."""

import operator
from collections.abc import Mapping
from typing import Any

import torch
from exercise_inputs import between, layer_of, normal, statistics
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from helpers.checks.compare import Tolerance
from helpers.checks.specification import Case, Item, Mistake

CLOSE = Tolerance(relative=1e-5, absolute=1e-6)  # an answer in float32 is right as well


# output_size -------------------------------------------------------------------------------------


def output_size_cases(rng: torch.Generator) -> list[Case]:
    """Sizes that leave one pixel over, or two, of three, and sizes that leave none."""
    exact = {
        "size": 2 * between(rng, 2, 20) + 1,
        "kernel": 3,
        "stride": 2,
        "padding": between(rng, 0, 3),
    }
    left_over = {
        "size": 2 * between(rng, 2, 20),
        "kernel": 3,
        "stride": 2,
        "padding": between(rng, 0, 3),
    }
    padded = {"size": between(rng, 5, 20), "kernel": 3, "stride": 1, "padding": between(rng, 2, 3)}
    two_of_three = {"size": 3 * between(rng, 0, 8) + 5, "kernel": 3, "stride": 3, "padding": 0}
    chosen = [left_over, padded, two_of_three, exact]
    for _ in range(6):
        kernel = between(rng, 1, 5)
        inputs = {"size": between(rng, kernel, 40), "kernel": kernel}
        chosen.append(inputs | {"stride": between(rng, 1, 4), "padding": between(rng, 0, 3)})
    return [
        Case(", ".join(f"{name} {value}" for name, value in inputs.items()), inputs)
        for inputs in chosen
    ]


def output_size_oracle(inputs: dict, probe: dict) -> int:
    """Let torch do the convolution and look."""
    row, filters = torch.zeros(1, 1, inputs["size"]), torch.zeros(1, 1, inputs["kernel"])
    return F.conv1d(row, filters, stride=inputs["stride"], padding=inputs["padding"]).shape[-1]


def whole(answer: int, probe: dict) -> int:
    """A number that can be a size, of any library; a float cannot, even where it is whole."""
    return operator.index(answer)


# convolve ----------------------------------------------------------------------------------------


def convolve_cases(rng: torch.Generator) -> list[Case]:
    """An image that is not square; with and without bias, stride and padding."""
    cases = []
    for stride, padding in (
        (1, 0),
        (1, between(rng, 1, 3)),
        (between(rng, 2, 3), 0),
        (2, between(rng, 1, 2)),
    ):
        rows = between(rng, 6, 9)
        inputs = {
            "x": normal(rng, rows, rows + between(rng, 1, 3)),
            "W": normal(rng, *[between(rng, 2, 4)] * 2),
        }
        inputs |= {"b": normal(rng, 1).item(), "stride": stride, "padding": padding}
        cases.append(Case(f"stride {stride}, padding {padding}", inputs))
    return cases


class WithoutConvolutions(TorchDispatchMode):
    """Refuses torch's own convolutions: the exercise is to write one."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Every operation on tensors passes here."""
        if "conv" in func.__name__:
            raise ValueError(
                "this is torch's own convolution; write the sums yourself, in two loops"
            )
        return func(*args, **kwargs or {})


def run_convolve(student: Mapping[str, Any], inputs: dict) -> torch.Tensor:
    """The answer, computed without torch's convolutions."""
    with WithoutConvolutions():
        return student["convolve"](**inputs)


def convolve_oracle(inputs: dict, probe: dict) -> torch.Tensor:
    """torch's convolution; it knows no flipping of the window either."""
    x, weight = inputs["x"][None, None], inputs["W"][None, None]
    return (
        F.conv2d(x, weight, stride=inputs["stride"], padding=inputs["padding"])[0, 0] + inputs["b"]
    )


# update_statistics -------------------------------------------------------------------------------


def statistics_cases(rng: torch.Generator) -> list[Case]:
    """Small batches, for which it matters whether one divides by n or by n - 1."""
    cases = []
    for images in (2, between(rng, 3, 5)):
        channels = between(rng, 2, 4)
        inputs = {"mu": normal(rng, channels), "variance": normal(rng, channels).abs() + 0.1}
        inputs |= {
            "y": 3 * normal(rng, images, channels, 2, 3) + 1,
            "momentum": between(rng, 2, 4) / 10,  # never PyTorch's 0.1
        }
        cases.append(Case(f"{images} images of 2 x 3 pixels", inputs))
    return cases


def statistics_oracle(inputs: dict, probe: dict) -> list[torch.Tensor]:
    """Let torch's layer see the batch in training mode."""
    mu, variance = inputs["mu"].clone(), inputs["variance"].clone()
    F.batch_norm(inputs["y"], mu, variance, training=True, momentum=inputs["momentum"])
    return [mu, variance]


# scale_and_shift ---------------------------------------------------------------------------------


def scale_and_shift_cases(rng: torch.Generator) -> list[Case]:
    """Ordinary statistics, and a single channel."""
    return [
        Case(f"{channels} channels", statistics(rng, channels))
        for channels in (between(rng, 2, 9), 1)
    ]


def scale_and_shift_oracle(inputs: dict, probe: dict) -> list[torch.Tensor]:
    """What BatchNorm makes of 0 is c; what it makes of 1 is a + c."""
    zero, one = (
        batch_norm(torch.full((1, len(inputs["mu"])), value).double(), inputs)[0]
        for value in (0.0, 1.0)
    )
    return [one - zero, zero]


def batch_norm(y: torch.Tensor, inputs: dict) -> torch.Tensor:
    """torch's BatchNorm in inference."""
    gamma, beta = inputs["gamma"], inputs["beta"]
    return F.batch_norm(
        y, inputs["mu"].clone(), inputs["variance"].clone(), gamma, beta, eps=inputs["eps"]
    )


# fold_into_convolution ---------------------------------------------------------------------------


def fold_cases(rng: torch.Generator) -> list[Case]:
    """With a bias and without; square weights, where a wrong axis goes unnoticed, and others."""
    cases = []
    for label, has_bias, more in (
        ("with a bias", True, 0),
        ("without a bias", False, 0),
        ("with C_in > C_out", False, 2),
    ):
        channels = between(rng, 3, 6)
        layer = {
            "W": normal(rng, channels, channels + more, 3, 3),
            "b": normal(rng, channels) if has_bias else None,
        }
        probe = {"x": normal(rng, 2, channels + more, 6, 6)}
        cases.append(Case(f"a convolution {label}", layer | statistics(rng, channels), probe))
    return cases


def fold_oracle(inputs: dict, probe: dict) -> dict:
    """What the two layers compute, one after the other."""
    return {
        "output with W' and b'": batch_norm(
            F.conv2d(probe["x"], inputs["W"], inputs["b"], padding=1), inputs
        )
    }


def fold_view(answer: list, probe: dict) -> dict:
    """What the folded convolution computes."""
    folded = layer_of(answer)
    if any(part.dtype != probe["x"].dtype for part in answer):
        raise ValueError("W' and b' should keep the dtype of W, float64 here, for a later cell")
    return {"output with W' and b'": F.conv2d(probe["x"], *folded, padding=1)}


# fold_conv_bn ------------------------------------------------------------------------------------

LAYERS = {
    "a plain convolution": {},
    "a bias, stride 2 and padding": {"bias": True, "stride": 2, "padding": 1},
    "groups and dilation": {"out_channels": 6, "groups": 2, "dilation": 2, "bias": True},
    "a depthwise convolution": {"groups": 4, "padding": 1},
    "circular padding": {"padding": 2, "padding_mode": "circular"},
}


def fold_layer_cases(rng: torch.Generator) -> list[Case]:
    """Layers of all kinds, and three that must be refused."""
    kinds = [(label, settings, "eval") for label, settings in LAYERS.items()]
    kinds += [("BatchNorm without gamma and beta", {}, "affine=False")]
    kinds += [
        (f"BatchNorm {state}", {}, state) for state in ("in training mode", "without statistics")
    ]
    kinds += [("a BatchNorm of another number of channels", {}, "wider")]
    cases = []
    for label, settings, state in kinds:
        seed = between(rng, 0, 2**30)
        settings = {"out_channels": 4, "bias": False} | settings
        cases.append(
            Case(
                label,
                {"settings": settings, "state": state, "seed": seed, "x": normal(rng, 2, 4, 7, 7)},
            )
        )
    return cases


def two_layers(inputs: dict) -> tuple[nn.Conv2d, nn.BatchNorm2d]:
    """The convolution and the BatchNorm of a case."""
    rng, state = torch.Generator().manual_seed(inputs["seed"]), inputs["state"]
    conv = nn.Conv2d(4, kernel_size=3, dtype=torch.float64, **inputs["settings"]).eval()
    kept = {"affine": state != "affine=False", "track_running_stats": state != "without statistics"}
    norm = nn.BatchNorm2d(
        conv.out_channels + (state == "wider"), eps=1e-2, dtype=torch.float64, **kept
    )
    norm.train(state == "in training mode")
    for tensor in (*conv.parameters(), *norm.parameters(), *norm.buffers()):
        if tensor.is_floating_point():
            tensor.data = normal(rng, *tensor.shape)
    if norm.running_var is not None:
        norm.running_var.abs_().mul_(0.1)
    return conv, norm


def run_fold_layers(student: dict, inputs: dict) -> dict:
    """What the folded layer makes of x, or that it was refused; and whether the old layers are as
    they were.
    """
    conv, norm = two_layers(inputs)
    before = [tensor.clone() for layer in (conv, norm) for tensor in layer.state_dict().values()]
    try:
        layer = student["fold_conv_bn"](conv, norm)
    except ValueError:
        return {
            "a ValueError was raised": True,
            "output of the new layer": None,
            "old layers changed": False,
        }
    except (AttributeError, TypeError) as problem:
        if norm.affine or "NoneType" not in str(problem):
            raise
        # One message for all that can be done with None, so that the mistake is recognised.
        same = TypeError("something is None here that should be a tensor")
        raise same.with_traceback(problem.__traceback__) from None
    if not isinstance(layer, nn.Conv2d):
        raise TypeError(
            "fold_conv_bn must return an nn.Conv2d or raise a ValueError; this is a"
            f" {type(layer).__name__}"
        )
    for name, part in layer.named_parameters():
        if part.dtype == conv.weight.dtype:
            continue
        raise TypeError(
            f"the new layer should hold numbers of conv's type, {conv.weight.dtype}; its {name}"
            f" holds {part.dtype}"
        )
    after = [tensor for layer in (conv, norm) for tensor in layer.state_dict().values()]
    changed = not all(map(torch.equal, before, after))
    output = layer.double()(inputs["x"])
    return {
        "a ValueError was raised": False,
        "output of the new layer": output,
        "old layers changed": changed,
    }


def fold_layers_oracle(inputs: dict, probe: dict) -> dict:
    """Run the two layers one after the other, where that is allowed."""
    conv, norm = two_layers(inputs)
    refused = inputs["state"] in ("in training mode", "without statistics", "wider")
    y = None if refused else norm(conv(inputs["x"])).detach()
    return {
        "a ValueError was raised": refused,
        "output of the new layer": y,
        "old layers changed": False,
    }


ITEMS = (
    Item(
        "output_size",
        output_size_cases,
        output_size_oracle,
        view=whole,
        minutes=5,
        dots=1,
        nudge="How far can the left edge of the window travel along the padded row?",
        hint="Add the padding on both sides, count the steps that fit, round down, and do not "
        "forget the first position.",
        mistakes=(
            Mistake(
                "You count the padding once. It is added on both sides of the row.",
                wrong="padding",
                right="2 * padding",
            ),
            Mistake(
                "You count the steps that the window makes. It also has a first position, before "
                "any step.",
                wrong="",
                right=" + 1",
            ),
            Mistake(
                "You round up. The window stays where it is when its next step would not fit, so "
                "round down.",
                wrong="return -(-(size + 2 * padding - kernel) // stride) + 1",
                right="return (size + 2 * padding - kernel) // stride + 1",
            ),
            Mistake(
                "Your 1 is divided by the stride, too. It stands for the first position, which "
                "counts in full.",
                wrong=" + 1) // stride",
                right=") // stride + 1",
            ),
        ),
    ),
    Item(
        "convolve",
        convolve_cases,
        convolve_oracle,
        run=run_convolve,
        tolerance=CLOSE,
        minutes=10,
        dots=2,
        nudge="Where in the padded image does the window of output (i, j) begin?",
        hint="F.pad(x, (padding,) * 4) puts zeros on all four sides. Then output (i, j) begins at "
        "row i * stride and column j * stride. Add b once.",
        mistakes=(
            Mistake(
                "Your window moves by one pixel each time. How far apart are two neighbouring "
                "outputs when the stride is 2?",
                wrong="top, left = i, j",
                right="top, left = i * stride, j * stride",
            ),
            Mistake(
                "The bias b is missing from your sums.",
                wrong="(W",
                right="b + (W",
            ),
            Mistake(
                "You flip the window before you multiply, as mathematicians do. The convolution "
                "of a network takes W as it stands.",
                wrong="W.flip(0, 1) * x[",
                right="W * x[",
            ),
            Mistake(
                "You add b to every product of the window. It belongs to their sum, once.",
                wrong="(b + W * x",
                right="b + (W * x",
            ),
        ),
    ),
    Item(
        "update_statistics",
        statistics_cases,
        statistics_oracle,
        tolerance=CLOSE,
        minutes=6,
        dots=2,
        nudge="The first number is the mean, the second the variance. Which variance is stored, "
        "and how much of the old value stays?",
        hint="Mean and var over axes (0, 2, 3), var with n - 1; "
        "then (1 - momentum) * old + momentum * new.",
        mistakes=(
            Mistake(
                "Your variance divides by n. BatchNorm stores the unbiased variance, which "
                "divides by n - 1.",
                wrong="unbiased=False",
                right="unbiased=True",
            ),
            Mistake(
                "You have the two shares the wrong way round: momentum is the share of the new "
                "batch, and the rest is that of the old value.",
                wrong="mean, spread = y.mean((0, 2, 3)), y.var((0, 2, 3))\n"
                "new = 1 - momentum\n"
                "return momentum * mu + new * mean, momentum * variance + new * spread",
            ),
            Mistake(
                "You store the standard deviation, which is the root of the variance. Part 1 is "
                "a variance.",
                wrong="y.std((0, 2, 3))",
                right="y.var((0, 2, 3), unbiased=True)",
            ),
        ),
    ),
    Item(
        "scale_and_shift",
        scale_and_shift_cases,
        scale_and_shift_oracle,
        tolerance=CLOSE,
        minutes=4,
        dots=1,
        nudge="Read steps 3 and 5 of the derivation again, with the square root around the whole "
        "sum.",
        hint="a is gamma over the square root of (variance + eps); "
        "c is what is left when y is zero.",
        mistakes=(
            Mistake(
                "You leave out eps. It is added to the variance before the root is taken.",
                wrong="variance",
                right="variance + eps",
            ),
            Mistake(
                "You divide by the variance. BatchNorm divides by its square root.",
                wrong="(variance + eps)",
                right="torch.sqrt(variance + eps)",
            ),
            Mistake(
                "The mean enters your c with a plus sign. BatchNorm subtracts it.",
                wrong="beta + a",
                right="beta - a",
            ),
            Mistake(
                "You add eps to the root. It belongs under the root, added to the variance.",
                wrong="(torch.sqrt(variance) + eps)",
                right="torch.sqrt(variance + eps)",
            ),
        ),
    ),
    Item(
        "fold_into_convolution",
        fold_cases,
        fold_oracle,
        view=fold_view,
        tolerance=CLOSE,
        minutes=6,
        dots=2,
        nudge="Which axis of W counts the output channels?",
        hint="W has the shape (C_out, C_in, K, K): scale its first axis. A missing b counts as "
        "zero.",
        mistakes=(
            Mistake(
                "You scale the input channels. a has one number per output channel, and W counts "
                "those on its first axis.",
                wrong="a[None, :, None, None]",
                right="a[:, None, None, None]",
            ),
            Mistake(
                "The bias b goes into your b' as it is. BatchNorm comes after it, so it is "
                "scaled like everything else.",
                wrong="b + beta",
                right="a * b + beta",
            ),
            Mistake(
                "The convolution's own bias b is lost. It must appear in b'.",
                wrong="beta",
                right="a * b + beta",
            ),
            Mistake(
                "b is None where the convolution has no bias. Treat that as zeros.",
                wrong="pass",
                right="if b is None:\n        b = torch.zeros_like(mu)",
            ),
        ),
    ),
    Item(
        "fold_conv_bn",
        fold_layer_cases,
        fold_layers_oracle,
        run=run_fold_layers,
        tolerance=CLOSE,
        minutes=15,
        dots=3,
        nudge="First refuse what cannot be folded, then use your fold_into_convolution.",
        hint="copy.deepcopy(conv) keeps its settings; "
        "give it new weight and bias. None stands for gamma 1, beta 0.",
        mistakes=(
            Mistake(
                "You change the convolution that you were given. Build the new layer from a copy "
                "of it.",
                wrong="conv",
                right="copy.deepcopy(conv)",
            ),
            Mistake(
                "In training mode, BatchNorm takes its statistics from each batch, so it cannot "
                "be folded. Refuse it with a ValueError.",
                wrong="",
                right="bn.training or ",
            ),
            Mistake(
                "Your new layer has lost settings of the old one. Look at stride, padding, "
                "dilation, groups and padding_mode.",
                wrong="nn.Conv2d(conv.in_channels, conv.out_channels, conv.kernel_size)",
                right="copy.deepcopy(conv)",
            ),
            Mistake(
                "A BatchNorm with affine=False has None for weight and bias. Which numbers, in "
                "their place, change nothing?",
                wrong="bn.weight",
                right="torch.ones_like(mu) if bn.weight is None else bn.weight",
            ),
        ),
    ),
)
