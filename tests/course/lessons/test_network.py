from functools import partial

import torch

from course import lessons
from helpers import data, models


def test_without_a_checkpoint_the_statistics_are_real_and_the_reader_is_told(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(models, "CHECKPOINTS", tmp_path)
    monkeypatch.setattr(models, "mobilenet_v2", partial(models.mobilenet_v2, width_mult=0.1))
    model = lessons.baseline(data.load_cifar10("sample"))
    assert "random weights" in capsys.readouterr().out
    norms = [m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    assert not model.training
    assert all((norm.running_var - 1).abs().max() > 0.01 for norm in norms)
