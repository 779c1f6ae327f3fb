"""Weights in the order in which a kernel reads them: a cache beside the network, never a part of it.

A packed tensor cannot be copied, cast or saved. So the network keeps the dense weights as its state, and the packed
ones are found here by the weight they were made from. They are made again when that weight has changed, and go with it.
"""

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

FORMS_PER_WEIGHT = 4  # a form is made for one input shape; more than this push the oldest out


@dataclass
class _Packed:
    """The packed forms of one weight, as it was when they were made."""

    owner: weakref.ref
    state: tuple[int, int]
    forms: dict[Any, Tensor] = field(default_factory=dict)


_PACKED: dict[int, _Packed] = {}


def packed(weight: Tensor, key: Any, pack: Callable[[], Tensor]) -> Tensor:
    """The packed form of a weight, made by `pack` when it is new or the weight has changed since.

    A weight that is written to counts up its version, and one that is moved or cast changes its address.
    """
    identity, state = id(weight), (weight._version, weight.data_ptr())
    entry = _PACKED.get(identity)
    if entry is None or entry.state != state or entry.owner() is not weight:
        entry = _Packed(weakref.ref(weight, lambda _: _PACKED.pop(identity, None)), state)
        _PACKED[identity] = entry
    form = entry.forms.get(key)
    if form is None:
        if len(entry.forms) == FORMS_PER_WEIGHT:
            del entry.forms[next(iter(entry.forms))]
        form = entry.forms[key] = pack()
    return form
