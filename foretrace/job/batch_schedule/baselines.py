"""Published rules for how long a training with changing batch sizes still takes.

In: the batch sizes of epochs so far and seconds per epoch of each size. Out: seconds.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def naive_remaining(last_seconds: float, left: int) -> float:
    """Return the remaining time if every epoch took as long as the last one.

    >>> naive_remaining(10.0, 6)
    60.0
    """
    return last_seconds * left


def dirichlet_remaining(sizes: Sequence[int], epochs: int, seconds: Mapping[int, float]) -> float:
    """Return Shockwave's forecast of the remaining time, from the running epoch on.

    Parameters
    ----------
    sizes
        Batch size of every epoch so far, the running one included.
    epochs
        Epochs of the whole job.
    seconds
        Seconds per epoch of every batch size that the job may use.

    Notes
    -----
    The prior gives each size the same share of the epochs, each epoch seen adds one to its size.
    What is expected of a size, less what was seen of it, remains; a fraction is kept.
    Source: Shockwave (NSDI 2023), as its code computes it, without the rounding of epoch times
    to whole seconds.

    Examples
    --------
    Ten epochs, the first of which runs with 32 samples:

    >>> round(dirichlet_remaining([32], 10, {32: 10.0, 64: 6.0}), 4)
    71.8182
    """
    seen = Counter(sizes)
    expected = {size: epochs / len(seconds) + seen[size] for size in seconds}
    total = sum(expected.values())
    rest = {size: _unseen(epochs * alpha / total, seen[size]) for size, alpha in expected.items()}
    left = epochs - len(sizes) + 1
    whole = math.floor(round(sum(rest.values()), 9)) + 1
    return sum(rest[size] * seconds[size] for size in seconds) * left / max(left, whole)


def _unseen(expected: float, seen: int) -> float:
    """Return *expected* epochs less those *seen*, one by one and never below zero."""
    return expected - min(seen, math.floor(expected))
