import pytest
import torch

from helpers.grading.record import plain_points


@pytest.mark.parametrize(
    ("value", "points"),
    [(0, 0.0), (3, 3.0), (4, 4.0), (5, 4.0), (-1, 0.0), (float("nan"), 0.0), (float("inf"), 0.0), (True, 1.0)],
)
def test_points_are_plain_and_clamped(value, points):
    assert repr(plain_points(value, 4)) == repr(points)
    assert repr(plain_points(torch.tensor(float(value)), 4)) == repr(points)
