"""Seconds per epoch of each batch size: what was known beforehand and what epochs showed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MISFIT = 1.4
"""Costs of two batch sizes off by ratios further apart than this do not fit the job."""
DRIFT = 0.1
"""Change of pace within a regime, as a share, beyond which nothing is predicted from it."""
ENOUGH = 6
"""Epochs of a regime from which its pace can be judged."""
FEW_EPOCHS_NOISE = 0.02
"""Spread of epochs, as a share, where fewer than three were seen (prior)."""


@dataclass(frozen=True)
class Cost:
    """What an epoch takes.

    ``seconds`` is its mean, ``doubt`` the standard deviation of that mean and ``noise`` that of
    single epochs, both as shares of it. ``seen`` counts the epochs behind it.
    """

    seconds: float
    doubt: float = 0.03
    noise: float = FEW_EPOCHS_NOISE
    seen: int = 0


def learned(
    sizes: Sequence[int],
    seconds: Sequence[float],
    known: Mapping[int, Cost],
    modes: Sequence[int],
) -> dict[int, Cost]:
    """Return the cost of each of *modes*.

    A size that was seen costs what its epochs took; any other what was *known*, at the pace of
    the sizes that were seen. The first epoch of a job starts it up: it counts only where there
    are fewer than two more of its kind.

    Raises
    ------
    RefusedError
        A mode was neither seen nor known, the known costs do not fit, or the pace drifts.
    """
    seen = {size: _epochs_of(size, sizes, seconds) for size in dict.fromkeys(sizes)}
    shown = {size: _shown(size, epochs) for size, epochs in seen.items() if len(epochs)}
    pace = _pace(shown, known)
    missing = [size for size in modes if size not in shown and size not in known]
    if missing:
        raise RefusedError(
            f"what an epoch of {missing[0]} samples per step takes is not known; give its cost"
        )
    return {size: shown[size] if size in shown else _paced(known[size], pace) for size in modes}


def _epochs_of(size: int, sizes: Sequence[int], seconds: Sequence[float]) -> np.ndarray:
    """Return the seconds of the finished epochs of *size* that show its pace."""
    finished = np.array(sizes[: len(seconds)])
    found = np.array(seconds)[finished == size]
    starts_up = len(finished) > 0 and finished[0] == size and len(found) > 2  # noqa: PLR2004
    return found[1:] if starts_up else found


def _shown(size: int, epochs: np.ndarray) -> Cost:
    count, mean = len(epochs), float(epochs.mean())
    _refuse_drift(size, epochs)
    noise = FEW_EPOCHS_NOISE if count < 3 else float(epochs.std(ddof=1)) / mean  # noqa: PLR2004
    return Cost(mean, noise / np.sqrt(count), noise, count)


def _refuse_drift(size: int, epochs: np.ndarray) -> None:
    """Refuse a pace that changes steadily: neither its mean nor its last value would last."""
    if len(epochs) < ENOUGH:
        return
    third = len(epochs) // 3
    first, last = epochs[:third], epochs[-third:]
    change = last.mean() / first.mean() - 1
    if abs(change) > DRIFT and (min(last) > max(first) or max(last) < min(first)):
        raise RefusedError(
            f"epochs of {size} samples per step drift: the last third is {change:+.0%} off the "
            "first; find out why, or give later epochs only"
        )


def _pace(shown: Mapping[int, Cost], known: Mapping[int, Cost]) -> float:
    """Return by which factor this job is slower than the costs known beforehand."""
    ratios = {
        size: cost.seconds / known[size].seconds for size, cost in shown.items() if size in known
    }
    if not ratios:
        return 1.0
    slow, fast = max(ratios, key=ratios.__getitem__), min(ratios, key=ratios.__getitem__)
    if ratios[slow] > MISFIT * ratios[fast]:
        raise RefusedError(
            f"the costs do not fit: epochs of {slow} samples per step take {ratios[slow]:.2f} "
            f"times what was given, those of {fast} {ratios[fast]:.2f} times"
        )
    return float(np.exp(np.average(np.log(list(ratios.values())))))


def _paced(cost: Cost, pace: float) -> Cost:
    return Cost(cost.seconds * pace, cost.doubt, cost.noise)
