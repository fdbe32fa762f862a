"""How far the mean of a sample may be from that of the values to come.

In: values in order. Out: shares of their mean.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

BLOCKS = 5
"""Of a sample: so long that what happens in one says little of the next, and just enough of them to
compare."""
FREEDOM = 1.5 * (BLOCKS - 1)
"""Degrees of freedom of the variance of the means of overlapping blocks (Meketon and Schmeiser,
Winter Simulation Conference 1984)."""
RESAMPLES = 2_000
SEED = 20_260_101


def relative_interval(values: Floats, to_come: float, level: float = 0.9) -> tuple[float, float]:
    """Return by which shares the mean of the *to_come* next values may be below and above.

    Blocks of a fifth of the sample, also around its ends, are drawn again and again (circular block
    bootstrap of Politis and Romano, 1992). Quantiles of so few are too narrow: they are widened by
    ``sqrt(n / (n - 1))`` for *n* blocks, and by the ratio of the quantiles of Student and Gauss
    (Hesterberg, The American Statistician 69, 2015). Values to come vary as those of the sample.

    >>> low, high = relative_interval(np.tile([1.0, 1.0, 1.0, 1.3], 25), 1000)
    >>> round(low, 3), round(high, 3)
    (0.0, 0.0)
    """
    means = _block_means(values)
    picks = np.random.default_rng(SEED).integers(0, len(means), (RESAMPLES, BLOCKS))
    tail = (1 - level) / 2
    low, high = np.quantile(means[picks].mean(axis=1), [tail, 1 - tail]) / means.mean() - 1
    wider = math.sqrt(BLOCKS / (BLOCKS - 1)) * stats.t.isf(tail, FREEDOM) / stats.norm.isf(tail)
    wider *= math.sqrt(1 + len(values) / to_come) if to_come else 0.0
    return float(max(-low, 0.0) * wider), float(max(high, 0.0) * wider)


def between_periods(values: Floats) -> float:
    """Return by which share of the mean the level of one block differs from that of the next.

    That is the standard deviation between blocks beyond what the values inside them explain (the
    variance component of a one-way analysis of variance). No larger sample averages it away: what
    comes has levels of its own.

    >>> between_periods(np.array([1.0, 1.1] * 25))
    0.0
    >>> round(between_periods(np.repeat([1.0, 1.2, 1.0, 1.2, 1.1], 10)), 3)
    0.091
    """
    blocks = np.array_split(values, BLOCKS)
    between = np.var([block.mean() for block in blocks], ddof=1)
    inside = np.mean([block.var(ddof=1) / len(block) for block in blocks])
    return math.sqrt(max(between - inside, 0.0)) / float(values.mean())


def _block_means(values: Floats) -> Floats:
    """Return the mean of each block, one beginning at every value."""
    length = len(values) // BLOCKS
    sums = np.cumsum(np.concatenate([[0.0], values, values[: length - 1]]))
    means: Floats = (sums[length:] - sums[:-length]) / length
    return means
