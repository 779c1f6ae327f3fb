import os
import subprocess
import sys

import pytest
import torch

from helpers import allocator
from helpers.allocator import kept_memory


@pytest.mark.skipif(allocator.libc is None, reason="needs glibc")
@pytest.mark.parametrize(
    "environment", [{}, allocator.WHOLE_PROCESS], ids=["a block", "the whole process"]
)
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


@pytest.mark.skipif(allocator.libc is None, reason="needs glibc")
def test_after_a_block_memory_is_asked_for_no_more_often_than_before():
    told = subprocess.run(
        [sys.executable, "-c", AFTERWARDS], capture_output=True, text=True, check=True
    ).stdout
    assert float(told) < 3000


AFTERWARDS = """
from resource import RUSAGE_SELF, getrusage
from helpers.allocator import kept_memory

def faults():
    start = getrusage(RUSAGE_SELF).ru_minflt
    return [len(b"x" * 8_000_000) for _ in range(20)] and getrusage(RUSAGE_SELF).ru_minflt - start

_, before = faults(), faults()  # thresholds grow with use
with kept_memory(): faults()
print(faults() - before)
"""


def test_other_c_libraries_are_left_alone(monkeypatch):
    monkeypatch.setattr(allocator, "libc", None)
    with kept_memory():
        assert torch.ones(3).sum() == 3
