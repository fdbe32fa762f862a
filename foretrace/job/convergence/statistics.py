"""Rows of a log as statistics need them: noise, bins, weights, the level around a step.

In: times (steps since the beginning, rising) and losses as arrays of one length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Rows = npt.NDArray[np.intp]

BINS, EARLY_BINS = 60, 20
LATE = 2.5
"""Weights rise by exp(LATE) from the first to the last step: forms need hold only where the loss
is going. Optimus' own weights rise by 256."""
TOLERANCE = 0.01
"""A form may miss a bin by this part of what the loss fell by lately."""
TINY = 1e-300


def noise(losses: Floats) -> Floats:
    """Return the standard deviation of each row's noise, from how losses differ from neighbours.

    Second differences of independent noise have six times its variance, and no trend.

    >>> bool(noise(np.array([3.0, 2.0, 1.0, 0.0])).max() < 1e-9)
    True
    """
    squares = np.diff(losses, 2) ** 2 / 6
    squares = np.concatenate([squares[:1], squares, squares[-1:]])
    return np.sqrt(moving_mean(squares, max(3, len(losses) // 10))) + TINY


def moving_mean(values: Floats, width: int) -> Floats:
    """Return the mean of the *width* values around each; at the ends, of those there are.

    >>> moving_mean(np.array([1.0, 2.0, 6.0]), 3)
    array([1.5, 3. , 4. ])
    """
    ones = np.ones(width)
    counts = np.convolve(np.ones(len(values)), ones, "same")
    return np.convolve(values, ones, "same")[: len(values)] / counts[: len(values)]


def trailing_mean(values: Floats, width: int) -> Floats:
    """Return the means of each *width* consecutive values.

    >>> trailing_mean(np.array([1.0, 2.0, 6.0]), 2)
    array([1.5, 4. ])
    """
    sums = np.cumsum(np.append(0.0, values))
    return (sums[width:] - sums[:-width]) / width


def bins(times: Floats) -> Rows:
    """Return the rows at which bins begin: short ones at first, then equally long ones."""
    last, quarter = times[-1], times[-1] / 4
    early = np.geomspace(min(times[0], quarter), quarter, EARLY_BINS)[1:]
    later = np.linspace(max(quarter, times[0]), last, BINS + 1)[1:-1]
    starts = np.unique(np.append(0, np.searchsorted(times, np.append(early, later))))
    return starts[starts < len(times)]


def in_bins(values: Floats, starts: Rows) -> Floats:
    """Return the means of bins along the last axis."""
    counts = np.diff(np.append(starts, values.shape[-1]))
    return np.add.reduceat(values, starts, axis=-1) / counts


def weights(times: Floats, losses: Floats, starts: Rows) -> Floats:
    """Return a weight for each bin: its certainty, and more of it the later it is."""
    counts = np.diff(np.append(starts, len(times)))
    variances = in_bins(noise(losses) ** 2, starts) / counts
    half, some = len(losses) // 2, max(1, len(losses) // 5)
    fell = losses[half - min(some, half) : half].mean() - losses[-some:].mean()
    late = np.exp(LATE * in_bins(times, starts) / times[-1])
    return late / (variances + (TOLERANCE * fell) ** 2 + TINY)


def level(times: Floats, losses: Floats, until: float, width: float) -> tuple[float, float]:
    """Return the expected loss at *until* and its standard error.

    From the line through the rows of the last *width* (a part of *until*), three at least.
    """
    before = np.flatnonzero(times <= until * (1 + 1e-9))
    near = before[times[before] > until * (1 - width)]
    near = near if len(near) > 2 else before[-3:]  # noqa: PLR2004 - a line and its error
    line = np.stack([np.ones(len(near)), times[near] - until], axis=1)
    fitted, *_ = np.linalg.lstsq(line, losses[near], rcond=None)
    left = losses[near] - line @ fitted
    variance = left @ left / max(1, len(near) - 2)
    return float(fitted[0]), float(np.sqrt(np.linalg.pinv(line.T @ line)[0, 0] * variance))


def falls(times: Floats, losses: Floats) -> tuple[float, float]:
    """Return by how much the loss changes per step, and the standard error of that."""
    from_mean = times - times.mean()
    slope = from_mean @ losses / (from_mean @ from_mean)
    left = losses - losses.mean() - slope * from_mean
    return float(slope), float(
        np.sqrt(left @ left / max(1, len(times) - 2) / (from_mean @ from_mean))
    )
