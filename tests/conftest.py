"""What holds for every test."""

import pytest
import torch


def pytest_collectstart(collector):
    """What a test file draws while it is read does not depend on the files read before it."""
    if isinstance(collector, pytest.Module):
        torch.manual_seed(0)


@pytest.fixture(autouse=True)
def the_same_random_numbers():
    """Each test draws the same numbers, whichever tests run before it."""
    torch.manual_seed(0)
