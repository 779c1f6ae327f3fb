import torch
from torch import nn

from helpers.committee import Committee


def test_the_answer_is_the_mean_of_the_members():
    first, second = nn.Linear(3, 2), nn.Linear(3, 2)
    x = torch.randn(4, 3)
    torch.testing.assert_close(Committee([first, second])(x), (first(x) + second(x)) / 2)


def test_members_follow_into_evaluation():
    members = [nn.Dropout(0.5), nn.BatchNorm1d(3)]
    Committee(members).eval()
    assert not any(member.training for member in members)
