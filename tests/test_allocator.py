import os
import subprocess
import sys

import pytest
import torch

from helpers import allocator
from helpers.allocator import kept_memory


@pytest.mark.skipif(allocator.libc is None, reason="needs glibc")
@pytest.mark.parametrize("environment", [{}, allocator.WHOLE_PROCESS], ids=["a block", "the whole process"])
def test_memory_is_kept_until_the_outermost_block_ends_or_the_process_does(environment):
    """In a process of its own, where nobody else's memory comes between."""
    command, told = [sys.executable, "-c", NESTED], os.environ | environment
    resident = subprocess.run(command, capture_output=True, text=True, check=True, env=told).stdout
    before, inside, between, after = map(int, resident.split())
    assert min(inside, between) > before + 150_000_000
    assert (after > before + 150_000_000) if environment else (after < before + 50_000_000)


NESTED = """
import os
from helpers.allocator import kept_memory

def use():
    blocks = [b"x" * 40_000_000 for _ in range(5)]

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

print(resident())
with kept_memory():
    with kept_memory():
        use()
        print(resident())
    print(resident())
print(resident())
"""


def test_other_c_libraries_are_left_alone(monkeypatch):
    monkeypatch.setattr(allocator, "libc", None)
    with kept_memory():
        assert torch.ones(3).sum() == 3
