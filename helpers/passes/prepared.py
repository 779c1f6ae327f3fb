"""Calls that were prepared for one weight: a cache beside the network, never a part of it.

A kernel wants its weight packed in the order in which it reads it, for one input shape. A packed tensor cannot be
copied, cast or saved, so the network keeps the dense weights as its state, and what was prepared is found here by the
weight it was made from. It is made again when that weight has changed, and goes when the weight goes.
"""

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

CALLS_PER_WEIGHT = 4  # a call is prepared for one input shape; more than this push the oldest out


@dataclass
class _Entry:
    """What was prepared for one weight, as it was then."""

    owner: weakref.ref
    version: int
    address: int
    calls: dict[Any, Any] = field(default_factory=dict)


_ENTRIES: dict[int, _Entry] = {}


def prepared(weight: Tensor, key: Any, prepare: Callable[[], Any]) -> Any:
    """What `prepare` made for this weight and key, made anew when it is missing or the weight has changed since.

    A weight that is written to counts up its version, and one that is moved or cast changes its address. What is
    prepared must not hold on to the weight itself, only to its storage (`weight.detach()`).
    """
    entry = _ENTRIES.get(id(weight))
    if (
        entry is None
        or entry.version != weight._version
        or entry.address != weight.data_ptr()
        or entry.owner() is not weight
    ):
        entry = _remember(weight)
    call = entry.calls.get(key)
    if call is None:
        if len(entry.calls) == CALLS_PER_WEIGHT:
            del entry.calls[next(iter(entry.calls))]
        call = entry.calls[key] = prepare()
    return call


def _remember(weight: Tensor) -> _Entry:
    identity = id(weight)
    owner = weakref.ref(weight, lambda _: _ENTRIES.pop(identity, None))
    entry = _ENTRIES[identity] = _Entry(owner, weight._version, weight.data_ptr())
    return entry
