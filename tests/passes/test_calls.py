"""Folding one batch norm stays a walk that one can follow: few calls of few functions."""

import sys
from collections import Counter
from pathlib import Path

import torch
from torch import nn

import helpers
from helpers.graphs.tracing import trace
from helpers.passes import Passer

HELPERS = Path(helpers.__file__).parent
CALLS = 300  # 296 measured; a newer Python, which has no calls for comprehensions, makes fewer
FILES = 12


def calls_of_helpers(action):
    """What an action returns, and how often each function of helpers is called for it."""
    calls = Counter()

    def note(frame, event, argument):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(HELPERS):
            calls[path.relative_to(HELPERS).as_posix(), frame.f_code.co_qualname] += 1

    sys.setprofile(note)
    try:
        result = action()
    finally:
        sys.setprofile(None)
    return result, calls


def test_one_batch_norm_is_folded_in_few_calls_of_functions_in_few_files():
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3)]
    network = nn.Sequential(*layers).eval()
    x = torch.zeros(1, 3, 8, 8)

    def fold():
        return Passer(["conv_bn_folding"]).run(trace(network, (x,)))

    fold()  # what is found out once and then remembered does not count
    report, calls = calls_of_helpers(fold)
    assert len(report.changed) == 1
    most = "\n".join(f"{count:4} {file}: {name}" for (file, name), count in calls.most_common(20))
    files = {file for file, _ in calls}
    assert sum(calls.values()) <= CALLS, f"{sum(calls.values())} calls, most often\n{most}"
    assert len(files) <= FILES, f"{len(files)} files: {', '.join(sorted(files))}"
