"""BatchNorm re-estimation: plain averages over the batches, everything else untouched."""

import pytest
import torch
from torch import nn

from helpers.pruning.groups import PruneError
from helpers.pruning.recovery import reestimate_batchnorm
from tests.pruning.zoo import Net, ToyMobile, build


def test_statistics_are_averages_over_the_batches():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4, momentum=0.3)).eval()
    batches = [torch.randn(9, 3, 5, 5) * scale for scale in (1.0, 2.0)]
    reestimate_batchnorm(model, [(batch, None) for batch in batches])  # pairs, as prune takes them
    with torch.no_grad():
        outputs = [model[0](x).transpose(0, 1).flatten(1) for x in batches]
    torch.testing.assert_close(model[1].running_mean, sum(y.mean(1) for y in outputs) / 2)
    torch.testing.assert_close(model[1].running_var, sum(y.var(1) for y in outputs) / 2)
    assert model[1].momentum == 0.3


def test_dropout_does_not_change_what_is_measured():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Dropout(0.9), nn.BatchNorm2d(4)).train()
    x = torch.randn(32, 3, 5, 5)
    reestimate_batchnorm(model, [x])
    assert model[1].training
    torch.testing.assert_close(model[2].running_mean, model[0](x).mean((0, 2, 3)))


def test_later_layers_see_normalised_inputs():
    model = build(ToyMobile)
    x = torch.randn(32, 3, 8, 8)
    reestimate_batchnorm(model, [x])
    with torch.no_grad():
        estimated = model(x)
        trained = model.train()(x)
    torch.testing.assert_close(estimated, trained, rtol=2e-2, atol=2e-2)


def test_weights_and_modes_stay():
    model = build(ToyMobile)
    model.blocks[1].bn2.train()
    modes = [m.training for m in model.modules()]
    weights = [p.clone() for p in model.parameters()]
    reestimate_batchnorm(model, [torch.randn(16, 3, 8, 8)])
    assert modes == [m.training for m in model.modules()]
    assert all(torch.equal(a, b) for a, b in zip(weights, model.parameters(), strict=True))


@pytest.mark.parametrize(
    "batches", [[], [torch.randn(15, 3, 8, 8)], [torch.randn(20, 3, 8, 8), torch.randn(1, 3, 8, 8)]]
)
def test_too_few_images_are_refused(batches):
    with pytest.raises(PruneError, match="16 images or more"):
        reestimate_batchnorm(build(ToyMobile), batches)


def interrupted(model, inputs):
    """A Ctrl-C in the second batch."""
    if inputs[0].mean() > 0.5:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("second", "error"),
    [
        (torch.zeros(16, 4, 8, 8), RuntimeError),
        (torch.ones(16, 3, 8, 8), KeyboardInterrupt),
        (torch.full((16, 3, 8, 8), float("nan")), PruneError),
    ],
)
def test_a_failure_leaves_the_statistics_as_they_were(second, error):
    model = build(ToyMobile)
    model.register_forward_pre_hook(interrupted)
    before = {name: b.clone() for name, b in model.named_buffers()}
    with pytest.raises(error):
        reestimate_batchnorm(model, [torch.zeros(16, 3, 8, 8), second])
    assert all(torch.equal(before[name], b) for name, b in model.named_buffers())
    assert model.blocks[0].bn1.momentum == 0.1
    assert not any(m.training for m in model.modules())


def test_a_norm_that_is_not_called_keeps_its_statistics():
    forward = lambda s, x: s.auxiliary(s.norm(x)) if s.training else s.norm(x)  # noqa: E731
    model = Net(forward, norm=nn.BatchNorm2d(3), auxiliary=nn.BatchNorm2d(3)).train()
    model(torch.randn(16, 3, 4, 4) + 2)
    before = {name: b.clone() for name, b in model.auxiliary.named_buffers()}
    reestimate_batchnorm(model.eval(), [torch.randn(16, 3, 4, 4) + 1])
    assert all(torch.equal(before[name], b) for name, b in model.auxiliary.named_buffers())
    assert model.norm.running_mean.min() > 0.5
