"""Labels, and which of them are tied: the bookkeeping behind "these channels can only go together".

Every index of every axis that holds channels carries a label, which is a number. Two channels that
can only go together have their labels *tied*; a label that must stay is *pinned*, with the reason.
Ties are only noted down while the network is read. `units` resolves all of them at once, so that a
network of a hundred thousand channels takes milliseconds.
"""

from collections import defaultdict

import numpy as np

Labels = np.ndarray  # one label for each index of an axis
NONE = np.arange(0)  # no labels


class Ties:
    """Hands out labels, notes which are tied and pinned, and finds the units.

    Example:
        >>> ties = Ties()
        >>> first = ties.fresh(3)
        >>> second = ties.fresh(3)
        >>> ties.tie(first, second)
        >>> ties.units().tolist()
        [0, 1, 2, 0, 1, 2]
    """

    def __init__(self) -> None:
        self.count = 0
        self.pairs: list[tuple[Labels, Labels]] = []
        self.pins: dict[str, list[Labels]] = defaultdict(list)

    def fresh(self, size: int, reason_to_pin: str = "") -> Labels:
        """New labels for an axis that has none yet; pinned if there is a reason."""
        labels = np.arange(self.count, self.count + size)
        self.count += size
        if reason_to_pin:
            self.pin(labels, reason_to_pin)
        return labels

    def tie(self, first: Labels, second: Labels) -> None:
        """From now on first[i] and second[i] can only be cut together."""
        if first is not second:
            self.pairs.append((first, second))

    def shrink_equally(self, first: Labels, second: Labels) -> bool:
        """Whether two axes always lose the same share: each unit has the same share of both."""
        units = self.units()
        on_first = np.bincount(units[first], minlength=self.count)
        on_second = np.bincount(units[second], minlength=self.count)
        return np.array_equal(on_first * len(second), on_second * len(first))

    def pin(self, labels: Labels, reason: str) -> None:
        """These labels stay, for this reason."""
        self.pins[reason].append(labels)

    def units(self) -> Labels:
        """For each label its unit: the smallest label that it is tied to, directly or along a
        chain.

        Each round ties the larger unit of every pair to the smaller one, and follows the chains to
        their ends; whole arrays at a time, and a handful of rounds even for long chains.
        """
        unit = np.arange(self.count)
        first, second = map(np.concatenate, zip((NONE, NONE), *self.pairs, strict=True))
        while True:
            low = np.minimum(unit[first], unit[second])
            high = np.maximum(unit[first], unit[second])
            if np.array_equal(low, high):
                return unit
            np.minimum.at(unit, high, low)
            while not np.array_equal(unit, shorter := unit[unit]):
                unit = shorter

    def pinned(self, unit_of: Labels) -> dict[str, np.ndarray]:
        """For each reason, in the order of discovery, a mask of the units that must stay."""
        masks = {}
        for reason, labels in self.pins.items():
            masks[reason] = np.zeros(self.count, dtype=bool)
            masks[reason][unit_of[np.concatenate(labels)]] = True
        return masks
