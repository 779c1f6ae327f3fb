"""The classification networks of torchvision go through both tracers with their answers unchanged."""

import gc
import hashlib

import pytest
import torch
import torchvision
from torch import nn
from torch.fx.experimental.optimization import fuse

from helpers import passes
from helpers.passes.errors import UnsupportedCase
from tests.passes.equivalence import differences

ALL = torchvision.models.list_models(module=torchvision.models)
TINY = ("mobilenet_v2", "mobilenet_v3_small", "resnet18", "shufflenet_v2_x0_5", "squeezenet1_1", "mnasnet0_5")
SHARE = ("alexnet", "convnext_tiny", "densenet121", "densenet169", "efficientnet_b0", "efficientnet_b1",
    "efficientnet_v2_s", "googlenet", "inception_v3", "mnasnet1_3", "mobilenet_v3_large", "regnet_x_400mf",
    "regnet_y_400mf", "regnet_y_1_6gf", "resnet34", "resnet50", "resnext50_32x4d", "shufflenet_v2_x1_0",
    "shufflenet_v2_x2_0", "squeezenet1_0", "swin_t", "vit_b_32", "wide_resnet50_2", "maxvit_t")  # fmt: skip
# The side of the smallest images that the network accepts; 64 for all others.
SIDES = {"inception_v3": 96, "googlenet": 64, "maxvit_t": 224, "alexnet": 80} | {
    name: 224 for name in ALL if name.startswith("vit_")
}
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def build(name: str) -> nn.Module:
    """The network with random weights and batch-norm statistics that are far from 0 and 1."""
    torch.manual_seed(0)
    settings = {"init_weights": False, "aux_logits": False} if name in ("googlenet", "inception_v3") else {}
    model = torchvision.models.get_model(name, weights=None, **settings).eval()
    for module in model.modules():
        if isinstance(module, NORMS):
            nn.init.normal_(module.running_mean, 0, 0.1)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0, 0.1)
    return model


def norms_left(model: nn.Module) -> int:
    """Calls of batch norms in a traced network."""
    return sum(
        node.op == "call_module" and isinstance(model.get_submodule(node.target), NORMS) for node in model.graph.nodes
    )


def goes_through(name: str, route: str) -> None:
    gc.collect()  # a graph refers to itself, so the gigabytes of the network before are still here
    model = build(name).double()
    side = SIDES.get(name, 64)
    x = torch.randn(1, 3, side, side, dtype=torch.float64)
    before = digests(model)
    try:
        folded, _ = passes.optimize(model, x, route=route)
    except UnsupportedCase as error:
        pytest.skip(f"cannot be traced, and says so: {error}"[:200])
    assert differences(model, folded, x, calls=1) == []
    assert digests(model) == before
    assert passes.Passer(passes.PIPELINES["fold"]).run(folded).changed == []
    if route == "fx":  # without numbers, of which the largest networks have 5 GB
        assert norms_left(folded) <= norms_left(fuse(model.to("meta")))


def digests(model: nn.Module) -> dict[str, str]:
    """What says whether a tensor has changed, without a copy of it."""
    return {name: hashlib.blake2b(tensor.numpy()).hexdigest() for name, tensor in model.state_dict().items()}


def marked(name: str, route: str):
    quick = name in TINY and (route == "fx" or name == "mobilenet_v2")
    marks = [] if quick else [pytest.mark.slow] + ([pytest.mark.ci] if name in (*SHARE, *TINY) else [])
    return pytest.param(name, route, marks=marks)


@pytest.mark.parametrize(("name", "route"), [marked(name, route) for name in ALL for route in ("fx", "export")])
def test_every_network(name, route):
    goes_through(name, route)
