"""Small networks for the tests of the pattern tools."""

import torch
from torch import fx, nn


def network(function, **parts):
    """A module in eval mode whose forward is `function(net, x, ...)`, with the given modules and buffers hung on it."""
    net = type("Net", (nn.Module,), {"forward": function})()
    for name, part in parts.items():
        setattr(net, name, nn.Buffer(part) if isinstance(part, torch.Tensor) else part)
    return net.eval()


def graph_of(function, **parts):
    """That network, traced."""
    return fx.symbolic_trace(network(function, **parts))
