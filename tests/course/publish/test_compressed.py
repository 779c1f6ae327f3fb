"""The page about a compressed network that keeps something in float; the usual case is with the command."""

import torch
from torch import nn

from course.publish import compressed
from helpers import data, pipeline


def test_a_layer_in_float_a_spared_trunk_and_a_stage_without_onnx_are_told(tmp_path, monkeypatch):
    def refuse(*_):
        raise RuntimeError("no such operator")

    monkeypatch.setattr(compressed.onnx_float, "export", refuse)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.gate, self.two = nn.Conv2d(8, 8, 3, 1, 1), nn.Sigmoid(), nn.Conv2d(8, 8, 3, 1, 1)

        def forward(self, x):
            return x + self.two(self.gate(self.one(x)))

    images = torch.randint(0, 256, (40, 1, 12, 12), dtype=torch.uint8)
    labels = torch.arange(40) % 4
    made = data.from_arrays(images, labels, images, labels)
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    model = nn.Sequential(nn.Conv2d(1, 8, 3), Block(), *head).eval()
    result = pipeline.compress(model, made, finetune_epochs=0, latency_runs=3, progress=False)
    text = compressed.write(result, made, tmp_path).read_text()
    assert "| `_1_gate` | `sigmoid` has no integer form here |" in text
    assert "| 0 | 8 | on the trunk, which blocks add to: only scope=all cuts here |" in text
    assert "`models.load(FILE, factory=FUNCTION)`, with a function that makes" in text
    lines = {line.split(" |")[0]: line for line in text.splitlines()}
    assert lines["| dense"].endswith("| - | no ONNX: no such operator |")
    assert int(lines["| quantized"].split("| ")[-1].split(" of 40")[0]) >= 38
    assert [path.name for path in tmp_path.glob("*.onnx")] == ["quantized.onnx"]
