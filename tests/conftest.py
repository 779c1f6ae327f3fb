"""What holds for every test."""

import pytest
import torch

torch.manual_seed(
    0
)  # for what test files draw while they are read, in an order that is always the same


@pytest.fixture(autouse=True)
def the_same_random_numbers():
    """Each test draws the same numbers, whichever tests run before it."""
    torch.manual_seed(0)
