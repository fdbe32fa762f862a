"""Clocks of ranks whose collectives cannot be told apart, or that only send and receive.

In: when the transfers of each rank end, on its clock. Out: an offset per rank at which most of them
end with one of another rank. It does not matter which: partners end together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

TOGETHER_NS = 20_000
"""Partners end so little apart."""
MOST = 0.5
"""Share of a rank's transfers that must end with others for its clock to count as known."""
BETTER = 0.1
"""By which that share must grow for other offsets to be taken."""
TRIED = 400
"""Transfers per rank that are tried against each other."""


def align_by_coincidence(ends: list[Floats], given: Floats) -> tuple[Floats, Floats]:
    """Return offsets, and per rank the share of its transfers that end with one of another rank.

    None, unless the *given* ones, or those found rank by rank, are clearly better: steps repeat, so
    that an offset of a whole step fits nearly as well.
    """
    best = np.zeros(len(ends))
    shares = _share_together(ends, best)
    for offsets in (given, _chain(ends)):
        others = _share_together(ends, offsets)
        if others.mean() > shares.mean() + BETTER:
            best, shares = offsets, others
    return best, shares


def _share_together(ends: list[Floats], offsets: Floats) -> Floats:
    """Return per rank the share of its ends that another rank has, too."""
    moved = [one + offset for one, offset in zip(ends, offsets, strict=True)]
    shares = np.zeros(len(ends))
    for rank, own in enumerate(moved):
        others = [one for number, one in enumerate(moved) if number != rank]
        shares[rank] = _find_near(own, np.sort(np.concatenate(others))).mean() if len(own) else 0
    return shares


def _find_near(own: Floats, others: Floats) -> NDArray[np.bool_]:
    low, high = (np.searchsorted(others, own + side * TOGETHER_NS) for side in (-1, 1))
    near: NDArray[np.bool_] = high > low
    return near


def _chain(ends: list[Floats]) -> Floats:
    """Return offsets found rank by rank: always that which fits best to those already known."""
    offsets = np.zeros(len(ends))
    known = [0]
    left = [rank for rank in range(1, len(ends)) if len(ends[rank])]
    while left and len(ends[0]):
        placed = np.concatenate([ends[rank][:TRIED] + offsets[rank] for rank in known])
        fits = {rank: _find_offset(ends[rank][:TRIED], placed) for rank in left}
        rank = max(left, key=lambda each: (fits[each][1], -each))
        offsets[rank] = fits[rank][0]
        known.append(rank)
        left.remove(rank)
    return offsets


def _find_offset(own: Floats, placed: Floats) -> tuple[float, float]:
    """Return the offset at which most of *own* end with one of *placed*, and their share."""
    apart = np.sort((placed[:, None] - own).ravel())
    upto = np.searchsorted(apart, apart + TOGETHER_NS, side="right")
    count = upto - np.arange(len(apart))
    best = np.flatnonzero(count == count.max())
    middle = apart[best + (count[best] - 1) // 2]
    return float(middle[np.argmin(np.abs(middle))]), float(count.max() / len(own))
