"""Channel atoms: the bookkeeping behind "these channels can only be cut together".

Every index of every axis that holds channels carries the number of an *atom*. Two indices that must be cut together
have their atoms *tied*; an atom that must stay is *pinned*, with the reason. Ties are only noted down while the
network is read, and resolved once at the end, so that a network of a hundred thousand channels takes milliseconds.
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
        if pinned:
            self.pin(labels, pinned)
        return labels

    def tie(self, first: Labels, second: Labels) -> None:
        """From now on first[i] and second[i] can only be cut together."""
        if first is not second:
            self.ties.append((first, second))

    def in_step(self, first: Labels, second: Labels) -> bool:
        """Whether the two always lose the same share: by the ties so far, they hold the same atoms equally often."""
        roots = self.roots()
        atoms, often = np.unique(roots[first], return_counts=True)
        others, as_often = np.unique(roots[second], return_counts=True)
        return np.array_equal(atoms, others) and np.array_equal(often * len(second), as_often * len(first))

    def pin(self, labels: Labels | None, reason: str) -> None:
        """These atoms stay, for this reason. None, an axis without channels, is left alone."""
        if labels is not None:
            self.pins[reason].append(labels)

    def roots(self) -> Labels:
        """For each atom the smallest atom it is tied to, directly or along a chain."""
        if not self.ties:
            return np.arange(self.count)
        first, second = (np.concatenate(side) for side in zip(*self.ties, strict=True))
        return connected(self.count, first, second)

    def pinned(self, roots: Labels) -> dict[str, np.ndarray]:
        """The roots that must stay, once the ties are resolved: a mask for each reason, in the order of discovery."""
        masks = {reason: np.zeros(self.count, dtype=bool) for reason in self.pins}
        for reason, labels in self.pins.items():
            masks[reason][roots[np.concatenate(labels)]] = True
        return masks


def connected(count: int, first: Labels, second: Labels) -> Labels:
    """Connected components of a graph with `count` nodes and edges first[i] - second[i], named by their smallest node.

    Each round hooks the larger root of every edge under the smaller one and flattens the trees again; whole arrays
    at a time, and a handful of rounds even for long chains.
    """
    root = np.arange(count)
    while True:
        one, other = root[first], root[second]
        low, high = np.minimum(one, other), np.maximum(one, other)
        open_edges = low != high
        if not open_edges.any():
            return root
        np.minimum.at(root, high[open_edges], low[open_edges])
        while not np.array_equal(root, shorter := root[root]):
            root = shorter
