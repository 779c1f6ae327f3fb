import os
import subprocess
import sys

import pytest
import torch

from helpers import distributed
from tests.tiny_training import tiny_model

SCRIPT = """
import sys, torch
from helpers import distributed, training
from tests.tiny_training import tiny_cifar, tiny_model
distributed.start()
model = tiny_model()
model[4].p = 0.0
config = training.Config(epochs=2, batch_size=20, lr=0.1)
training.train(model, tiny_cifar(), config, sys.argv[1], progress=False)
torch.save([p.detach() for p in model.parameters()], f"{sys.argv[1]}.{torch.distributed.get_rank()}")
distributed.stop()
"""


def test_alone_nothing_happens():
    model = tiny_model()
    model[0].weight.grad = torch.ones_like(model[0].weight)
    distributed.average_gradients(model)
    distributed.wait()
    indices = torch.arange(7)
    assert torch.equal(distributed.share_of(indices), indices)
    assert distributed.is_first()
    assert bool((model[0].weight.grad == 1).all())


def test_two_processes_take_the_same_steps(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=0", "--standalone"]
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": os.getcwd(), "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [*command, str(tmp_path / "script.py"), str(tmp_path / "state")], check=True, env=environment, timeout=120
    )
    first, second = (torch.load(tmp_path / f"state.{rank}", weights_only=True) for rank in (0, 1))
    for mine, theirs, untrained in zip(first, second, tiny_model().parameters(), strict=True):
        assert torch.equal(mine, theirs)
        assert not torch.equal(mine, untrained)
    assert (tmp_path / "state").exists()


@pytest.mark.parametrize(("world", "sizes"), [(2, [4, 3]), (3, [3, 2, 2])])
def test_shares_cover_a_batch_once(world, sizes, monkeypatch):
    monkeypatch.setattr(distributed.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed.dist, "get_world_size", lambda: world)
    shares = []
    for rank in range(world):
        monkeypatch.setattr(distributed.dist, "get_rank", lambda: rank)  # noqa: B023
        shares.append(distributed.share_of(torch.arange(7)))
    assert [len(s) for s in shares] == sizes
    assert torch.equal(torch.cat(shares), torch.arange(7))
