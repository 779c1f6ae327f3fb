"""Networks of torchvision in int8, ours beside ONNX Runtime's static quantizer: bytes, noise, file and export.

    python -m course.benchmarks.quantization_networks                 all of NETWORKS
    python -m course.benchmarks.quantization_networks resnet18 ...    some of them

Weights are random (nothing is downloaded); BatchNorm has the statistics of the calibration images, so that activations
have usual sizes. Images are those of CIFAR-10's sample, enlarged: some to calibrate with, others to measure on. SQNR is
the energy of the float logits over that of the error, in dB, of files that were written and opened again; ours runs in
int8 kernels, and as exported. Both calibrate by the smallest and largest value. Below 10 dB errors have grown with the
depth of a network that nobody trained, and a difference says little. One row for each network goes to
data/results/quantization_networks.csv as soon as it is known.
"""

import argparse
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course.benchmarks import quantization_rivals as rivals
from course.benchmarks.common import KnownRows
from helpers import data, models, quantization
from helpers.quantization.affine import sqnr

SIDE, IMAGES = 64, 128
NETWORKS = {
    **dict.fromkeys(("resnet18", "resnet50", "mobilenet_v3_small", "efficientnet_b0", "shufflenet_v2_x1_0"), SIDE),
    **dict.fromkeys(("squeezenet1_1", "googlenet", "densenet121", "regnet_y_400mf", "vgg11_bn", "mnasnet0_5"), SIDE),
    **{"convnext_tiny": SIDE, "vit_b_32": 224},
}


def built(name: str, images: Tensor) -> nn.Module:
    """A network with random weights, none of them zero, and with statistics that fit the images."""
    torch.manual_seed(0)
    model = models.build(name, **({"aux_logits": False} if name == "googlenet" else {}))
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.reset_running_stats()
            module.momentum = 1.0
        elif isinstance(module, nn.Dropout):
            module.p = 0.0
    for weight in (p for n, p in model.named_parameters() if n.endswith("weight") and p.ndim > 1 and not p.any()):
        nn.init.normal_(weight, 0, 0.02)  # the head of a new vision transformer
    with torch.no_grad():
        model.train()(images)
    return model.eval()


@torch.no_grad()
def measured(name: str, side: int, folder: Path) -> dict[str, object]:
    """The row of a network."""
    cifar = data.load_cifar10("sample")
    seen, unseen = (
        data.normalize(F.interpolate(part[:IMAGES].float(), side, mode="bicubic").clamp(0, 255).byte())
        for part in (cifar.train_images, cifar.test_images)
    )
    model = built(name, seen)
    expected = model(unseen)
    ours = quantization.quantize(model, seen, quantization.Recipe(residual="separate", observer="minmax"))
    before, after = models.save(model, folder / "float"), models.save(ours, folder / "int8")
    again, few = models.load(after), unseen[:8]
    for ours.mode in quantization.MODES:
        again.mode = ours.mode
        assert torch.equal(again(few), ours(few)), f"{name}: another network after loading"
    written = quantization.to_onnx(ours, folder / "ours.onnx")
    found = {"ours": again(unseen), "exported": rivals.run_onnx(written)(unseen)}
    theirs, note = rivals.onnx_runtime_static(model, seen, "MinMax", folder / "theirs.onnx"), ""
    try:
        found["onnx_runtime"] = rivals.run_onnx(theirs)(unseen)
    except Exception:  # ConvNeXt, DenseNet, ViT: a fusion replaces a constant that has been replaced
        found["onnx_runtime"] = rivals.run_onnx(theirs, fused=False)(unseen)
        note = "ONNX Runtime opens its own file only without its fusions"
    row = {"network": name, "side": side, "images": IMAGES, "in_float": len(ours.float_layers)}
    row |= {"float_bytes": before.stat().st_size, "int8_bytes": after.stat().st_size}
    row["share"] = round(row["int8_bytes"] / row["float_bytes"], 4)
    return row | {f"{key}_db": round(sqnr(expected, value), 2) for key, value in found.items()} | {"note": note}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=list(NETWORKS), help="torchvision names")
    table = KnownRows("quantization_networks")
    for name in parser.parse_args().networks:
        if not table.find(network=name):
            with tempfile.TemporaryDirectory() as folder:
                table.add(measured(name, NETWORKS.get(name, SIDE), Path(folder)))
    print(table.mine().to_string())


if __name__ == "__main__":
    main()
