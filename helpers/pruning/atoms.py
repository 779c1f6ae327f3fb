"""Channel atoms: the bookkeeping behind "these channels can only be cut together".

Every index of every axis that holds channels carries the number of an *atom*. Two indices that must
be cut together have their atoms *tied*; an atom that must stay is *pinned*, with the reason. Ties
are only noted down while the network is read, and resolved once at the end, so that a network of a
hundred thousand channels takes milliseconds.
"""

from collections import defaultdict

import numpy as np

Labels = np.ndarray  # one atom per index of an axis


class Atoms:
    """Hands out atoms, notes ties and pins, and resolves them.

    Example:
        >>> atoms = Atoms()
        >>> first, second = atoms.fresh(3), atoms.fresh(3)
        >>> atoms.tie(first, second)
        >>> atoms.roots().tolist()
        [0, 1, 2, 0, 1, 2]
    """

    def __init__(self) -> None:
        self.count = 0
        self.ties: list[tuple[Labels, Labels]] = []
        self.pins: dict[str, list[Labels]] = defaultdict(list)

    def fresh(self, size: int, pinned: str = "") -> Labels:
        """New atoms for an axis that nobody has labelled yet; pinned if there is a reason."""
        self.count += size
        labels = np.arange(self.count - size, self.count)
        self.pin(labels if pinned else None, pinned)
        return labels

    def tie(self, first: Labels, second: Labels) -> None:
        """From now on first[i] and second[i] can only be cut together."""
        if first is not second:
            self.ties.append((first, second))

    def in_step(self, first: Labels, second: Labels) -> bool:
        """Whether the two always lose the same share: by the ties so far, they hold the same atoms
        equally often.
        """
        roots = self.roots()
        often, as_often = (
            np.bincount(roots[labels], minlength=self.count) for labels in (first, second)
        )
        return np.array_equal(often * len(second), as_often * len(first))

    def pin(self, labels: Labels | None, reason: str) -> None:
        """These atoms stay, for this reason. None, an axis without channels, is left alone."""
        if labels is not None:
            self.pins[reason].append(labels)

    def roots(self) -> Labels:
        """For each atom the smallest atom it is tied to, directly or along a chain.

        Each round hooks the larger root of every tie under the smaller one and flattens the trees
        again; whole arrays at a time, and a handful of rounds even for long chains.
        """
        root, none = np.arange(self.count), np.arange(0)
        first, second = (
            np.concatenate(side) for side in zip((none, none), *self.ties, strict=True)
        )
        while True:
            one, other = root[first], root[second]
            low, high = np.minimum(one, other), np.maximum(one, other)
            if np.array_equal(low, high):
                return root
            np.minimum.at(root, high, low)
            while not np.array_equal(root, shorter := root[root]):
                root = shorter

    def pinned(self, roots: Labels) -> dict[str, np.ndarray]:
        """The roots that must stay, once the ties are resolved: a mask for each reason, in the
        order of discovery.
        """
        found = {reason: roots[np.concatenate(labels)] for reason, labels in self.pins.items()}
        return {
            reason: np.bincount(labels, minlength=self.count) > 0
            for reason, labels in found.items()
        }
