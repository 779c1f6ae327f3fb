"""Lesson 03. The oracles run the layers as they stand; the answers are run in their place."""

import copy
import itertools
from collections.abc import Mapping
from typing import Any

import torch
from exercise_inputs import between, layer_of, normal, statistics
from torch import fx, nn
from torch.nn import functional as F

from helpers.checks.compare import Tolerance
from helpers.checks.specification import Case, Item, Mistake

CLOSE = Tolerance(relative=1e-5, absolute=1e-6)  # an answer in float32 is right as well
OUTPUT = "output with W' and b'"


def addition_cases(rng: torch.Generator) -> list[Case]:
    """A constant per channel, as (C, 1, 1) and as a number, with and without a bias."""
    cases = []
    for has_bias, is_number in itertools.product((True, False), repeat=2):
        channels = between(rng, 3, 6)
        d = float(normal(rng, 1)) if is_number else normal(rng, channels, 1, 1)
        label = (
            f"d {'a number' if is_number else 'of shape (C, 1, 1)'}, {'a' if has_bias else 'no'}"
            " bias"
        )
        inputs = {
            "W": normal(rng, channels, 3, 3, 3),
            "b": normal(rng, channels) if has_bias else None,
            "d": d,
        }
        cases.append(Case(label, inputs, {"x": normal(rng, 2, 3, channels + 2, channels + 2)}))
    return cases


def addition_oracle(inputs: dict, probe: dict) -> dict:
    """Convolve, then add."""
    return {OUTPUT: F.conv2d(probe["x"], inputs["W"], inputs["b"]) + inputs["d"]}


def convolved(answer: list, probe: dict) -> dict:
    """What the folded convolution computes."""
    return {OUTPUT: F.conv2d(probe["x"], *layer_of(answer))}


def linear_cases(rng: torch.Generator) -> list[Case]:
    """Square weights, so that the wrong axis goes unnoticed."""
    size = between(rng, 3, 7)
    layer = {"W": normal(rng, size, size), "b": normal(rng, size)}
    return [Case("a square layer", layer | statistics(rng, size), {"x": normal(rng, 5, size)})]


def linear_oracle(inputs: dict, probe: dict) -> dict:
    """torch's two layers, one after the other."""
    y = F.linear(probe["x"], inputs["W"], inputs["b"])
    mean, var = inputs["mu"].clone(), inputs["variance"].clone()
    return {OUTPUT: F.batch_norm(y, mean, var, inputs["gamma"], inputs["beta"], eps=inputs["eps"])}


def applied(answer: list, probe: dict) -> dict:
    """What the folded layer computes."""
    return {OUTPUT: F.linear(probe["x"], *layer_of(answer))}


def transposed_cases(rng: torch.Generator) -> list[Case]:
    """As many input as output channels, in one group and in two; then more of the latter."""
    cases = []
    for label, groups, more in (
        ("one group", 1, 0),
        ("two groups", 2, 0),
        ("two groups, C_in < C_out", 2, 4),
    ):
        channels = 2 * between(rng, 2, 3)
        W, a = (
            normal(rng, channels, (channels + more) // groups, 2, 2),
            normal(rng, channels + more),
        )
        probe = {"x": normal(rng, 2, channels, 4, 4), "groups": groups}
        cases.append(Case(label, {"W": W, "a": a, "groups": groups}, probe))
    return cases


def transposed_oracle(inputs: dict, probe: dict) -> dict:
    """Convolve, then multiply."""
    y = F.conv_transpose2d(probe["x"], inputs["W"], groups=inputs["groups"])
    return {"output with your weights": y * inputs["a"][:, None, None]}


def transposed(answer: torch.Tensor, probe: dict) -> dict:
    """What the scaled weights compute."""
    return {
        "output with your weights": F.conv_transpose2d(
            probe["x"], answer.double(), groups=probe["groups"]
        )
    }


class Net(nn.Module):
    """A convolution, a BatchNorm, and one of several ways to use them."""

    def __init__(self, way: str, groups: int, bias: bool):
        super().__init__()
        conv = nn.ConvTranspose2d if way == "transposed" else nn.Conv2d
        self.conv, self.way = conv(4, 4, 3, padding=1, groups=groups, bias=bias), way
        statistics = {
            "affine": way != "no gamma and beta",
            "track_running_stats": way != "no stored statistics",
        }
        self.norm = nn.BatchNorm2d(4, **statistics)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Convolve and normalise, in this network's way."""
        y = self.conv(x)
        if self.way == "convolution called twice":
            y = self.conv(y)
        if self.way == "output used twice":
            return y + self.norm(y)
        if self.way == "normalised twice":
            y = self.norm(y)
        if self.way == "a method called norm":
            return self.norm(x) / y.norm()
        if self.way == "bias used elsewhere":
            return self.norm(y) * self.conv.bias.abs().mean()
        return self.norm(y) * (
            self.conv.weight.abs().mean() if self.way == "weight used elsewhere" else 1.0
        )


MUST_FOLD = ("straight", "no gamma and beta", "layers of a block")
WAYS = (
    *MUST_FOLD,
    *(
        "output used twice",
        "convolution called twice",
        "normalised twice",
        "weight used elsewhere",
        "bias used elsewhere",
        "transposed",
        "no stored statistics",
    ),
    *(
        "a method called norm",
        "norm in training mode",
        "convolution with a hook",
        "norm with a hook",
        "norm with a hook before it",
    ),
)


def fold_cases(rng: torch.Generator) -> list[Case]:
    """Each way to use the two layers; the harmless one with groups and without a bias too."""
    settings = [(way, 1, True) for way in WAYS] + [
        ("straight", 2, True),
        ("straight", 1, False),
        ("transposed", 2, True),
    ]
    return [
        Case(
            f"{way}{', 2 groups' * (groups == 2)}{', no bias' * (not bias)}",
            {
                "way": way,
                "groups": groups,
                "bias": bias,
                "seed": between(rng, 0, 10**6),
                "x": normal(rng, 2, 4, 6, 6),
            },
        )
        for way, groups, bias in settings
    ]


def network_of(inputs: dict) -> nn.Module:
    """The network of a case, with weights and statistics from its seed, in float64."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(inputs["seed"])
        net = Net(inputs["way"], inputs["groups"], inputs["bias"]).double().eval()
        for name, tensor in net.norm.state_dict().items():
            if tensor.is_floating_point():
                tensor.uniform_(0.5, 2) if name.endswith(("var", "weight")) else tensor.normal_()
    if inputs["way"] == "layers of a block":
        net = nn.Sequential(net)  # they are called "0.conv" and "0.norm" then
    if inputs["way"] == "norm in training mode":
        net.norm.train()
    if inputs["way"] == "norm with a hook before it":
        net.norm.register_forward_pre_hook(_halve_before)
    elif inputs["way"].endswith("with a hook"):
        (net.norm if inputs["way"].startswith("norm") else net.conv).register_forward_hook(_halve)
    return net


def _halve_before(module: nn.Module, inputs: tuple) -> tuple:
    return (inputs[0] / 2,)


def _halve(module: nn.Module, inputs: tuple, output: torch.Tensor) -> torch.Tensor:
    return output / 2


def run_fold(student: Mapping[str, Any], inputs: dict) -> dict:
    """Fold, run the result, look whether the argument was left alone and how many BatchNorms are
    still called.
    """
    net = network_of(inputs)
    before = copy.deepcopy(net.state_dict())
    folded = student["careful_fold"](net)
    kept = all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    if not isinstance(folded, fx.GraphModule):
        raise TypeError(
            f"careful_fold must return a graph module, and this is a {type(folded).__name__}"
        )
    modules = dict(folded.named_modules())
    norms = sum(
        isinstance(modules.get(str(node.target)), nn.BatchNorm2d) for node in folded.graph.nodes
    )
    return {
        "the argument was left alone": kept,
        "no BatchNorm is left": norms == 0 if inputs["way"] in MUST_FOLD else True,
        "output": folded(inputs["x"]).detach(),
    }


def fold_oracle(inputs: dict, probe: dict) -> dict:
    """The network as it is."""
    output = network_of(inputs)(inputs["x"]).detach()
    return {"the argument was left alone": True, "no BatchNorm is left": True, "output": output}


ITEMS = (
    Item(
        "fold_addition",
        addition_cases,
        addition_oracle,
        view=convolved,
        tolerance=CLOSE,
        minutes=5,
        dots=1,
        nudge="What shape does a bias have, and what shape does d have?",
        hint="The new bias has one number per output channel: bring d to the shape (C,) first, "
        "then add.",
        mistakes=(
            Mistake(
                "b is None where the convolution has no bias. Treat that as zeros.",
                wrong="pass",
                right="if b is None:\n        b = torch.zeros(len(W), dtype=W.dtype)",
            ),
            Mistake(
                "You add d to the weights W, which are multiplied with the image. A constant "
                "belongs in the bias.",
                wrong="if b is None:\n    b = torch.zeros(len(W), dtype=W.dtype)\nreturn W + d, b",
            ),
            Mistake(
                "The old bias b is lost. Add d to it.",
                wrong="d.expand(len(W))",
                right="b + d",
            ),
        ),
    ),
    Item(
        "fold_into_linear",
        linear_cases,
        linear_oracle,
        view=applied,
        tolerance=CLOSE,
        minutes=5,
        dots=1,
        nudge="Which axis of W counts the outputs?",
        hint="A linear layer's W has the shape (out, in): a multiplies the first axis.",
        mistakes=(
            Mistake(
                "You scale the columns of W, which belong to the inputs. Each output is a row, "
                "so a runs along the first axis.",
                wrong="a",
                right="a[:, None]",
            ),
            Mistake(
                "The bias b goes in as it is. BatchNorm comes after it, so it is scaled as well.",
                wrong="b - a * mu",
                right="a * (b - mu)",
            ),
            Mistake(
                "You leave out eps. It is added to the variance before the root is taken.",
                wrong="variance",
                right="variance + eps",
            ),
        ),
    ),
    Item(
        "scale_transposed",
        transposed_cases,
        transposed_oracle,
        view=transposed,
        tolerance=CLOSE,
        minutes=10,
        dots=3,
        nudge="Take one group first; with several, each group has its own piece of a.",
        hint="W is (C_in, C_out / groups, K, K). Input channels of group g make the output "
        "channels of group g.",
        mistakes=(
            Mistake(
                "You scale the input channels. In a transposed convolution the first axis of W "
                "counts those, and the second the output channels of a group.",
                wrong="return W * a[:, None, None, None]",
            ),
            Mistake(
                "Each group gets the same piece of a. The outputs of the second group need the "
                "piece that comes after it.",
                wrong="return W * a[None, : W.shape[1], None, None]",
            ),
        ),
    ),
    Item(
        "careful_fold",
        fold_cases,
        fold_oracle,
        run=run_fold,
        tolerance=CLOSE,
        minutes=20,
        dots=3,
        nudge="Look at the name of the case: it says what the network does with its two layers.",
        hint="Work on copy.deepcopy(model). Fold only if both nodes call a module, the "
        "convolution's node has one user, its target is called once, no get_attr reads its weight "
        "or bias, the norm is in eval mode with statistics, and neither has hooks.",
        mistakes=(
            Mistake(
                "Something else reads the output of the convolution as well, and would now get "
                "the normalised one. Fold only if it has one user.",
                wrong="",
                right="output_shared or ",
            ),
            Mistake(
                "A convolution that is called twice is still one module. Folding it for one call "
                "changes the other call, too.",
                wrong="",
                right="layer_shared or ",
            ),
            Mistake(
                "A hook runs whenever its layer is called, and can change what comes out. Leave "
                "layers with hooks as they are.",
                wrong="weight_read:",
                right="weight_read or hooked:",
            ),
            Mistake(
                "The network also reads the weight or the bias of the convolution, in a get_attr "
                "node. Folding would change what it reads.",
                wrong="",
                right="weight_read or ",
            ),
        ),
    ),
)
