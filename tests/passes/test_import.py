"""`import helpers.passes` is quick, and loads neither tables nor figures nor quantization."""

import subprocess
import sys

import helpers

SCRIPT = """
import gc, sys, time
import torch, torchvision
gc.disable()  # one collection of all that torch brings takes longer than the import
before, start = set(sys.modules), time.process_time()
import helpers.passes
print(time.process_time() - start, *sorted(set(sys.modules) - before))
"""


def test_importing_passes_is_quick_and_loads_nothing_else():
    root = helpers.__path__[0].removesuffix("/helpers")
    printed = subprocess.run([sys.executable, "-c", SCRIPT], cwd=root, capture_output=True, text=True, check=True)
    seconds, *modules = printed.stdout.split()
    assert "helpers.passes.optimizer" in modules
    assert not [name for name in modules if name.startswith(("pandas", "matplotlib", "helpers.quantization"))]
    assert float(seconds) < 0.3
