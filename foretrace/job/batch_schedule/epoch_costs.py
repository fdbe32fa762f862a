"""Seconds per epoch of each batch size: what was known beforehand and what epochs showed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from foretrace.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

MISFIT = 1.4
"""Costs of two batch sizes off by ratios further apart than this do not fit the job."""
DRIFT, FALSE_ALARMS = 0.1, 0.01
"""A pace drifts if it changes by this share over a regime, and would seem to in so few cases."""
MOST_COMPARED = 1000
"""Of more epochs, means of neighbouring ones are compared: every one is, with every other."""
LEAST_DOUBT = 1e-3
"""No mean is taken to be known better, even where all epochs took equally long."""
NOISE = 0.02
"""Spread of epochs, as a share, where too few were seen to tell (prior)."""


@dataclass(frozen=True)
class EpochCost:
    """What an epoch takes.

    ``seconds`` is its mean, ``doubt`` the standard deviation of that mean and ``noise`` that of
    single epochs, both as shares of it. ``seen`` counts the epochs behind it.
    """

    seconds: float
    doubt: float = 0.03
    noise: float = NOISE
    seen: int = 0


def learn_costs(
    sizes: Sequence[int],
    seconds: Sequence[float],
    given: Mapping[int, EpochCost],
    to_come: Sequence[int],
) -> dict[int, EpochCost]:
    """Return the cost of each batch size *to_come*.

    A size that was seen costs what its epochs took; any other what was *given*, at the pace of
    the nearest size that was seen. Where both can be said they are averaged by what is certain.
    The first epoch of a regime sets it up: it counts only where fewer than two more follow.

    Raises
    ------
    RefusedError
        A size was neither seen nor given, the known costs do not fit, or the pace drifts.
    """
    seen = _epochs_by_size(sizes, seconds)
    noise = _noise(seen.values())
    shown = {
        size: EpochCost(float(epochs.mean()), noise / len(epochs) ** 0.5, noise, len(epochs))
        for size, epochs in seen.items()
    }
    paces = {size: c.seconds / given[size].seconds for size, c in shown.items() if size in given}
    for size in to_come:
        _refuse_drift(size, seen.get(size, np.empty(0)))
    return {size: _best(size, shown, given, paces) for size in to_come}


def _epochs_by_size(sizes: Sequence[int], seconds: Sequence[float]) -> dict[int, Floats]:
    """Return the seconds of the finished epochs that show the pace of each size."""
    finished = zip(sizes, seconds, strict=False)
    by_size: dict[int, list[float]] = {}
    for size, regime in groupby(finished, key=lambda epoch: epoch[0]):
        epochs = [took for _size, took in regime]
        by_size.setdefault(size, []).extend(epochs[1:] if len(epochs) > 2 else epochs)  # noqa: PLR2004
    return {size: np.array(epochs) for size, epochs in by_size.items()}


def _noise(regimes: Iterable[Floats]) -> float:
    """Return the spread of epochs around the mean of their size, as a share."""
    relative = [epochs / epochs.mean() - 1 for epochs in regimes]
    free = sum(len(each) - 1 for each in relative)
    if free < 2:  # noqa: PLR2004 - one difference says little
        return NOISE
    return float(np.sqrt(sum((each**2).sum() for each in relative) / free))


def _refuse_drift(size: int, epochs: Floats) -> None:
    """Refuse a pace that changes steadily: neither its mean nor its last value would last."""
    if len(epochs) < 3:  # noqa: PLR2004 - nothing is steady yet
        return
    parts = np.array_split(epochs, min(len(epochs), MOST_COMPARED))
    means = np.array([part.mean() for part in parts])
    line = stats.theilslopes(means)[0] * (len(means) - 1) / epochs.mean()
    is_certain = stats.kendalltau(np.arange(len(epochs)), epochs).pvalue < FALSE_ALARMS
    if abs(line) > DRIFT and is_certain:
        raise RefusedError(
            f"epochs of {size} samples per step drift by {line:+.0%} from the first to the last; "
            "find out why, or give later epochs only"
        )


def _best(
    size: int,
    shown: Mapping[int, EpochCost],
    given: Mapping[int, EpochCost],
    paces: Mapping[int, float],
) -> EpochCost:
    """Return what was shown of *size*, what was given, or the mean of both."""
    if size not in shown:
        return _adjust_given(size, given, paces)
    others = {other: pace for other, pace in paces.items() if other != size}
    if size not in given or not others or not _agree(others):
        return shown[size]
    return _average(shown[size], _adjust_given(size, given, others))


def _average(shown: EpochCost, foreseen: EpochCost) -> EpochCost:
    """Return the mean of two costs, each weighed by how certain it is."""
    weights = [max(cost.doubt, LEAST_DOUBT) ** -2 for cost in (shown, foreseen)]
    seconds = np.average([np.log(shown.seconds), np.log(foreseen.seconds)], weights=weights)
    return replace(shown, seconds=float(np.exp(seconds)), doubt=float(sum(weights) ** -0.5))


def _adjust_given(
    size: int, given: Mapping[int, EpochCost], paces: Mapping[int, float]
) -> EpochCost:
    """Return the known cost of *size* at the pace of its nearest neighbour.

    *paces* are the factors by which sizes that were seen are slower than known; by how much these
    disagree is doubt about the next one.
    """
    if size not in given:
        raise RefusedError(
            f"what an epoch of {size} samples per step takes is not known; give its cost"
        )
    if not paces:
        return given[size]
    slow, fast = _extremes(paces)
    if not _agree(paces):
        raise RefusedError(
            f"the costs do not fit: epochs of {slow} samples per step take {paces[slow]:.2f} "
            f"times what was given, those of {fast} {paces[fast]:.2f} times; measure that of {size}"
        )
    nearest = min(paces, key=lambda other: abs(np.log(other / size)))
    spread = float(np.log(paces[slow] / paces[fast])) / 2
    cost = given[size]
    return replace(
        cost, seconds=cost.seconds * paces[nearest], doubt=float(np.hypot(cost.doubt, spread))
    )


def _extremes(paces: Mapping[int, float]) -> tuple[int, int]:
    """Return the sizes that are the slowest and the fastest beside what was known."""
    return max(paces, key=paces.__getitem__), min(paces, key=paces.__getitem__)


def _agree(paces: Mapping[int, float]) -> bool:
    slow, fast = _extremes(paces)
    return paces[slow] <= MISFIT * paces[fast]
