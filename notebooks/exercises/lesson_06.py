"""Lesson 06.

The oracles look at what the network computes once the unwanted channels are held at zero.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from exercise_inputs import between, normal
from torch import nn
from torch.nn import functional as F
from torchvision.models.mobilenetv2 import InvertedResidual

from helpers.checks.compare import Tolerance
from helpers.checks.specification import Case, Item, Mistake


def weakest_cases(rng: torch.Generator) -> list[Case]:
    """Filters of many sizes: the smallest sum holds the largest weight, and a large sum has
    negative weights alone.
    """
    cases = []
    for _ in range(3):
        channels = between(rng, 6, 12)
        W = normal(rng, channels, 4, 3, 3) * torch.empty(channels, 1, 1, 1).uniform_(
            0.5, 0.8, generator=rng
        )
        W[0], W[1] = 0.0, -1.2
        W[0, 0, 0, 0] = 7.0
        cases.append(Case(f"{channels} filters", {"W": W, "count": between(rng, 2, channels - 2)}))
    return cases


def weakest_oracle(inputs: dict, probe: dict) -> list[str]:
    """In plain Python: add up, sort, take the first ones."""
    sizes = [
        (sum(abs(w) for w in filters.flatten().tolist()), o)
        for o, filters in enumerate(inputs["W"])
    ]
    return as_set([o for _, o in sorted(sizes)[: inputs["count"]]], probe)


def as_set(answer: object, probe: dict) -> list[str]:
    """Channel numbers in any order and any container; as names, because their distance means
    nothing.
    """
    return [f"channel {one}" for one in sorted(map(int, answer))]


def change_cases(rng: torch.Generator) -> list[Case]:
    """A layer of a small network and a batch of images: what its weights are worth shows at its
    output.
    """
    W, reads = normal(rng, between(rng, 4, 7), 3, 3, 3), {"x": normal(rng, 6, 3, 5, 5)}
    reads |= {"reader": normal(rng, 4, len(W)), "labels": torch.randint(4, (6,), generator=rng)}
    others = [
        reads | {"labels": (reads["labels"] + k) % 4} for k in range(4)
    ]  # some slope is negative, so abs counts
    return [Case(f"{len(W)} filters", {"W": W} | one) for one in others]


def loss_of(W: torch.Tensor, inputs: dict) -> torch.Tensor:
    """The loss of the small network with the weights W."""
    maps = F.conv2d(inputs["x"], W).sigmoid().mean((2, 3))
    return F.cross_entropy(maps @ inputs["reader"].T, inputs["labels"])


def run_change(student: Mapping[str, Any], inputs: dict) -> dict:
    """Hand over weights and a function; look at the numbers, and whether the weights are still the
    same.
    """
    found = student["loss_change"](
        W := inputs["W"].clone(), lambda weights: loss_of(weights, inputs)
    )
    return {"importance": found, "W is as it was": torch.equal(W, inputs["W"])}


def change_oracle(inputs: dict, probe: dict) -> dict:
    """No gradient: each filter is made a little larger and a little smaller, and the loss looked
    at.
    """
    W, step = inputs["W"], 1e-4
    larger = 1 + step * torch.eye(len(W), dtype=W.dtype)[..., None, None, None]
    slopes = [
        (loss_of(W * s, inputs) - loss_of(W * (2 - s), inputs)).abs() / (2 * step) for s in larger
    ]
    return {"importance": torch.stack(slopes), "W is as it was": True}


def real_block(inputs: dict) -> nn.Module:
    """A block of MobileNetV2 from its seed, whose BatchNorms have seen something."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(inputs["seed"])
        block = InvertedResidual(inputs["c_in"], inputs["c_out"], inputs["stride"], 2)
        for norm in block.modules():
            if isinstance(norm, nn.BatchNorm2d):
                for vector in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
                    vector.data.uniform_(0.3, 1.5)
        return block.eval()


def cut_cases(rng: torch.Generator) -> list[Case]:
    """Blocks with and without a shortcut; the first channel never stays, so that each that stays
    moves.
    """
    cases = []
    for label, stride in (("a block with a shortcut", 1), ("a block that halves the map", 2)):
        c_in = between(rng, 4, 6)
        keep = 1 + torch.randperm(2 * c_in - 2, generator=rng)[: c_in - 1].sort().values
        inputs = {
            "c_in": c_in,
            "c_out": c_in + stride - 1,
            "stride": stride,
            "seed": between(rng, 0, 10**6),
        }
        cases.append(
            Case(label, inputs | {"keep": torch.cat([keep, torch.tensor([2 * c_in - 1])])})
        )
    return cases


def run_cut(student: Mapping[str, Any], inputs: dict) -> dict:
    """Hand over a block; look at what the small one computes and stores, and whether the old one is
    still whole.
    """
    block = real_block(inputs)
    before = deepcopy(block.state_dict())
    with torch.random.fork_rng(devices=[]):
        small = student["cut_block"](block, inputs["keep"])
    x = torch.linspace(-2, 2, 2 * inputs["c_in"] * 36).reshape(2, inputs["c_in"], 6, 6)
    try:
        output = small.eval()(x).detach()
    except Exception as problem:
        raise ValueError(f"your small block does not run: {problem}") from None
    whole = before.keys() == block.state_dict().keys()
    return {
        "output": output,
        "numbers stored": sum(tensor.numel() for tensor in small.state_dict().values()),
        "its layers know their sizes": all(map(knows_its_size, small.modules())),
        "the old block is as it was": (
            whole and all(map(torch.equal, before.values(), block.state_dict().values()))
        ),
    }


def knows_its_size(layer: nn.Module) -> bool:
    """Whether a layer's own numbers are those of its tensors; a patched one has old numbers."""
    if isinstance(layer, nn.BatchNorm2d):
        return layer.num_features == len(layer.running_mean)
    if not isinstance(layer, nn.Conv2d):
        return True
    inputs = layer.in_channels // layer.groups
    return tuple(layer.weight.shape) == (layer.out_channels, inputs, *layer.kernel_size)


def cut_oracle(inputs: dict, probe: dict) -> dict:
    """The whole block, in which the output of the depthwise part is held at zero; and what is
    stored per channel.
    """
    block, hidden, kept = real_block(inputs), 2 * inputs["c_in"], len(inputs["keep"])
    alive = torch.zeros(hidden)
    alive[inputs["keep"]] = 1
    block.conv[1].register_forward_hook(lambda layer, given, y: y * alive[:, None, None])
    x = torch.linspace(-2, 2, 2 * inputs["c_in"] * 36).reshape(2, inputs["c_in"], 6, 6)
    per_channel = inputs["c_in"] + inputs["c_out"] + 9 + 2 * 4
    stored = (
        sum(tensor.numel() for tensor in block.state_dict().values())
        - (hidden - kept) * per_channel
    )
    return {
        "output": block(x).detach(),
        "numbers stored": stored,
        "its layers know their sizes": True,
        "the old block is as it was": True,
    }


def tie_cases(rng: torch.Generator) -> list[Case]:
    """Blocks in a row whose additions reach back by any number of blocks; layers are named in no
    order.
    """
    cases = []
    for label, shortcuts in (
        ("no shortcut", 0),
        ("one shortcut", 1),
        ("shortcuts in a row", 4),
        ("many blocks", 7),
    ):
        steps, values = (
            [("x", "image", []), ("stem", "conv", ["x"]), ("stem norm", "same", ["stem"])],
            ["stem norm"],
        )
        numbers = torch.randperm(40, generator=rng).tolist()
        for block in range(shortcuts + 1):
            for kind in ("conv", "same", "depthwise", "same", "conv")[2 * between(rng, 0, 1) :]:
                steps.append((f"layer {numbers.pop()}", kind, [steps[-1][0]]))
            if block < shortcuts:
                other = values[between(rng, 0, len(values) - 1)]
                pair = [steps[-1][0], other] if between(rng, 0, 1) else [other, steps[-1][0]]
                steps.append((f"sum {block}", "add", pair))
            values.append(steps[-1][0])
        steps.append(("classifier", "conv", [steps[-1][0]]))
        cases.append(Case(label, {"steps": steps}))
    # As an nn.Sequential names it.
    late = [("input", "image", []), *((name, "conv", ["input"]) for name in "abcd")]
    late += [
        ("ab", "add", ["a", "b"]),
        ("cd", "add", ["c", "d"]),
        ("bc", "add", ["b", "c"]),
        ("end", "conv", ["bc"]),
    ]
    return [*cases, Case("two sums that are tied later", {"steps": late})]


def tie_oracle(inputs: dict, probe: dict) -> list:
    """Powers of the matrix of direct ties say what reaches what; no group is ever joined to
    another.
    """
    steps = inputs["steps"]
    place = {name: i for i, (name, _, _) in enumerate(steps)}
    tied = torch.eye(len(steps), dtype=torch.float64)
    for name, kind, sources in steps:
        for source in sources if kind in ("depthwise", "same", "add") else ():
            tied[place[name], place[source]] = tied[place[source], place[name]] = 1
    for _ in range(len(steps).bit_length()):
        tied = (tied @ tied).clamp(max=1)
    groups = []
    for row in tied.unique(dim=0):
        inside = {name for name, i in place.items() if row[i]}
        writers = [
            name for name, kind, _ in steps if name in inside and kind in ("conv", "depthwise")
        ]
        readers = [name for name, kind, sources in steps if kind == "conv" and sources[0] in inside]
        groups.append((writers, readers))
    return as_groups([group for group in groups if group[0]], probe)


def as_groups(answer: list, probe: dict) -> list:
    """Pairs of names, in one order."""
    return sorted([sorted(writers), sorted(readers)] for writers, readers in answer)


ITEMS = (
    Item(
        "weakest_channels",
        weakest_cases,
        weakest_oracle,
        view=as_set,
        minutes=5,
        dots=1,
        nudge="One number per filter first; then sort.",
        hint="Add up the absolute values of all weights of a filter W[o], then take the smallest "
        "sums.",
        mistakes=(
            Mistake(
                "You add up weights with their signs, so they cancel. Add up absolute values.",
                wrong="",
                right=".abs()",
            ),
            Mistake(
                "You return the strongest filters. Return the weakest, those with the smallest "
                "sums.",
                wrong="argsort(descending=True)",
                right="argsort()",
            ),
            Mistake(
                "Your sums run over the filters. The first axis of W counts them, and each "
                "filter needs a sum of its own.",
                wrong="(0, 2, 3)",
                right="(1, 2, 3)",
            ),
            Mistake(
                "Yours is the L2 norm, which squares the weights. The L1 norm adds up their "
                "absolute values.",
                wrong=".square()",
                right=".abs()",
            ),
        ),
    ),
    Item(
        "loss_change",
        change_cases,
        change_oracle,
        run=run_change,
        tolerance=Tolerance(1e-5, 1e-8),
        minutes=10,
        dots=2,
        nudge="torch.autograd.grad(loss(W), W) gives one slope per weight, if W is a tensor that "
        "requires a gradient.",
        hint="Multiply weights and slopes, add up over each filter (all axes but the first), and "
        "only then take abs.",
        mistakes=(
            Mistake(
                "You take absolute values before you add up. Within a filter, changes of "
                "opposite sign cancel: add up first.",
                wrong="(W * slopes).abs().sum((1, 2, 3))",
                right="(W * slopes).sum((1, 2, 3)).abs()",
            ),
            Mistake(
                "Some of your numbers are negative. A channel matters as much when the loss "
                "falls: take the absolute value of each sum.",
                wrong="",
                right=".abs()",
            ),
            Mistake(
                "You add up slopes. Removing a weight moves it by its own value, so multiply each "
                "slope by its weight.",
                wrong="slopes",
                right="W * slopes",
            ),
            Mistake(
                "You take the mean over a filter. The changes that its weights make add up.",
                wrong=".mean(",
                right=".sum(",
            ),
        ),
    ),
    Item(
        "cut_block",
        cut_cases,
        cut_oracle,
        run=run_cut,
        tolerance=Tolerance(1e-5, 1e-5),
        minutes=10,
        dots=2,
        nudge="Five layers change, and the last BatchNorm does not: what it normalises are the "
        "block's outputs.",
        hint="Copy the block; then set small.conv[0][0], [0][1], [1][0], [1][1] and small.conv[2], "
        "each from the layer of the original: rows for the first two convolutions, columns for the "
        "last.",
        mistakes=(
            Mistake(
                "You cut the block that you were given. Work on a copy.",
                wrong="block",
                right="copy.deepcopy(block)",
            ),
            Mistake(
                "Your BatchNorms are new, without what the old ones have learned. Take over "
                "weights, biases and statistics of the channels that stay.",
                wrong="dict({",
                right="small.load_state_dict({",
            ),
            Mistake(
                "The hidden channels are what the projection reads. In its weight they are "
                "columns, not rows.",
                wrong="rows=keep)",
                right="columns=keep)",
            ),
            Mistake(
                "The shapes fit, but the projection reads other channels than those that you "
                "kept. Cut the columns with keep as well.",
                wrong="columns=torch.arange(len(keep)))",
                right="columns=keep)",
            ),
            Mistake(
                "One BatchNorm in your block still has all the hidden channels. The ones behind "
                "the first and the second convolution must both be cut.",
                wrong="depthwise_norm\n",
                right="cut_norm(depthwise_norm, keep)\n",
            ),
        ),
    ),
    Item(
        "tie_channels",
        tie_cases,
        tie_oracle,
        view=as_groups,
        minutes=20,
        dots=3,
        nudge="root(name) follows the parents until a name is its own parent. Tie roots, never the "
        "names themselves.",
        hint="Go through the steps twice. First tie: parent[root(source)] = root(name) for each "
        "source of a depthwise, same or add step. Then collect: a step writes into the group of "
        "its own root, and a conv reads from that of its input.",
        mistakes=(
            Mistake(
                "You tie the names themselves, and an earlier tie of the same name is lost. Tie "
                "their roots.",
                wrong="parent[source] = name",
                right="parent[root(source)] = root(name)",
            ),
            Mistake(
                "A sum ties all of its inputs. You look at the first one only.",
                wrong="for source in inputs[:1] if",
                right="for source in inputs if",
            ),
            Mistake(
                "A depthwise convolution works on each channel alone, so its output is tied to "
                "its input.",
                wrong='("same", "add")',
                right='("depthwise", "same", "add")',
            ),
            Mistake(
                "A convolution's columns belong to the channels that it reads: to the group of "
                "its input, not to its own.",
                wrong="root(name)",
                right="root(inputs[0])",
            ),
            Mistake(
                "You list depthwise steps as readers. They only pass channels on; readers are "
                "conv steps.",
                wrong='if kind in ("conv", "depthwise"):\n            groups[root(inputs',
                right='if kind == "conv":\n            groups[root(inputs',
            ),
            Mistake(
                "One of your sets has no writers. Leave out channels that no layer makes, such "
                "as those of the image.",
                wrong="",
                right=" if group[0]",
            ),
        ),
    ),
)
