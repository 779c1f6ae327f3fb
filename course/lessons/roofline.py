"""What bounds a layer: arithmetic or memory? The rate of each layer of a network, on one thread.

    intensity = operations / bytes moved         rate = operations / seconds
    rate <= min(peak, memory rate * intensity)   the roof

A multiply-add counts as two operations. Bytes are those of input, weights and output, each moved
once.
"""

from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, fx, nn

from helpers import plots
from helpers.allocator import kept_memory
from helpers.metrics import clock


@dataclass(frozen=True)
class Measured:
    """One layer on one input."""

    name: str
    kind: str
    operations: int
    bytes: int
    seconds: float

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.operations / self.bytes

    @property
    def rate(self) -> float:
        """Operations per second."""
        return self.operations / self.seconds


@torch.no_grad()
def measure_layers(model: nn.Module, x: Tensor, repeats: int = 10) -> list[Measured]:
    """Time every convolution of a network in eval mode alone, on the input that it gets, and a
    ReLU6 on the largest.
    """
    calls: list[tuple[str, nn.Module, Tensor]] = []
    hooks = [
        module.register_forward_hook(
            lambda module, args, _, name=name: calls.append((name, module, args[0]))
        )
        for name, module in model.named_modules()
        if isinstance(module, nn.Conv2d)
    ]
    try:
        model(x)
    finally:
        for hook in hooks:
            hook.remove()
    measured = []
    with kept_memory():
        for name, module, given in calls:
            out = module(given)
            seconds = shortest(module, given, repeats)
            operations = 2 * out.numel() * module.weight[0].numel()
            moved = given.nbytes + module.weight.nbytes + out.nbytes
            measured.append(Measured(name, kind_of(module), operations, moved, seconds))
        wide = max((given for _, _, given in calls), key=Tensor.numel)
        seconds = shortest(nn.ReLU6(), wide, repeats)
    return [*measured, Measured("ReLU6", "ReLU6 alone", 2 * wide.numel(), 2 * wide.nbytes, seconds)]


def shortest(module: nn.Module, x: Tensor, repeats: int) -> float:
    """Seconds of processor time of the fastest run, so that other programs do not count."""
    taken = []
    for _ in range(repeats + 1):  # one more, since the first fetches the numbers into the caches
        start = clock()
        module(x)
        taken.append(clock() - start)
    return min(taken)


def bytes_moved(graph_module: fx.GraphModule) -> int:
    """Bytes of the maps, not weights, that all nodes read and write; they know their shapes after
    `passes.optimize`.
    """
    calls = [node for node in graph_module.graph.nodes if node.op.startswith("call")]
    values = [
        value for node in calls for value in (node, *node.all_input_nodes) if value.op != "get_attr"
    ]
    return sum(value.meta["val"].nbytes for value in values)


def kind_of(conv: nn.Conv2d) -> str:
    """What a legend calls it."""
    if conv.groups == conv.in_channels > 1:
        return "depthwise 3x3"
    return "pointwise 1x1" if conv.kernel_size == (1, 1) else "ordinary 3x3"


def picture(layers: list[dict], peak: float, bandwidth: float, overhead: float) -> Figure:
    """The roof of a machine, and each layer below it as the model places it for one image."""
    # A small file: it stands in for the figure where no script runs.
    figure = Figure(figsize=(6.6, 3.9), dpi=72, layout="constrained")
    ax = figure.subplots()
    roof = np.geomspace(0.25, 128, 200)  # operations per byte
    billions = np.minimum(peak, bandwidth * roof) / 1e9
    label = f"roof: {peak / 1e9:.0f} billion operations/s, {bandwidth / 1e9:.1f} GB/s"
    ax.plot(roof, billions, color="black", label=label)
    bounds = ("compute-bound", "memory-bound", "overhead-bound")
    points = {bound: [] for bound in bounds}
    for layer in layers:
        size = layer["maps"] + layer["weights"]
        times = (layer["operations"] / peak, size / bandwidth, overhead)
        bound = bounds[times.index(max(times))]
        points[bound].append((layer["operations"] / size, layer["operations"] / max(times) / 1e9))
    for position, (bound, found) in enumerate(points.items()):
        look = plots.line(position) | {"linestyle": "none"}
        ax.plot(*np.array(found).reshape(-1, 2).T, **look, label=f"{bound}: {len(found)}")
    ax.set(xscale="log", yscale="log", title="one image")
    ax.set(xlabel="operations per byte", ylabel="billion operations/s")
    ax.set(ylim=(peak / 1e12, 2 * peak / 1e9))  # the lowest decade is for the legend
    ax.legend(loc="lower right", fontsize=10)
    return figure
