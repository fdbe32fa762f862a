"""How much is measured of a job, and about how long that takes on a quiet machine."""

from __future__ import annotations

from statistics import stdev
from typing import TYPE_CHECKING

from benchmarks.truth.spec import sides_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.truth.spec import DrawnJob, Side

PROCESSES = 3
"""Times that each side is built and measured in a process of its own."""
BLOCKS = 2
"""Turns of each side in such a process, at least."""
NOISE, MORE = 0.025, 2
"""A process goes on until two standard errors of each ratio are less, over the rounds of as many
processes, or until it took as many times as long as on a quiet machine."""
BLOCK_SECONDS, FEWEST, MOST = 0.3, 1, 5
"""A turn is as many steps as take about so long, within limits."""
WARMUP = 2
"""Steps of a process before anything is timed."""
COLD_SECONDS = 0.4
"""Shorter steps go once before each turn, untimed: others had the caches meanwhile."""

IMPORTS = {"transformers": 3.0, "vision": 2.0, "loop": 2.0}
BUILDING = 0.2
RECORDING, RECORDED_STEPS = 3.0, 55
CALIBRATING, CALIBRATED_CHANGE = 2.0, 1.5
PREDICTING = 1.5


def steps_a_turn(step: float) -> int:
    """Return how many steps of *step* seconds are timed at once.

    >>> steps_a_turn(0.05), steps_a_turn(0.15), steps_a_turn(1.0)
    (5, 2, 1)
    """
    return min(max(round(BLOCK_SECONDS / step), FEWEST), MOST)


def steps_before(step: float) -> int:
    """Return how many steps of *step* seconds go before those that are timed."""
    return int(step < COLD_SECONDS)


def turns(names: list[str], block: int, base: str) -> list[str]:
    """Return the order of one round: the base first, last, and between every three others.

    >>> turns(["base", "a", "b", "c", "d"], 1, "base")
    ['base', 'd', 'c', 'b', 'base', 'a', 'base']
    """
    others = [name for name in names if name != base]
    if block % 2:
        others.reverse()
    order = [base]
    for first in range(0, len(others), 3):
        order += [*others[first : first + 3], base]
    return order


def seconds_of(job: DrawnJob) -> float:
    """Return about how long everything of *job* takes."""
    step = _step(job)
    sides = {side.name: step * _factor(side, job) for side in sides_of(job)}
    plain = PROCESSES * (
        timed_seconds(job) + sum(WARMUP * each + BUILDING for each in sides.values())
    )
    recorded = RECORDING + RECORDED_STEPS * sides["base"]
    calibrated = CALIBRATING + CALIBRATED_CHANGE * len(job.changes)
    imports = (PROCESSES + 2) * IMPORTS[job.family]
    return imports + plain + recorded + calibrated + PREDICTING


def timed_seconds(job: DrawnJob) -> float:
    """Return about how long the rounds of one process take on a quiet machine."""
    sides = {side.name: _step(job) * _factor(side, job) for side in sides_of(job)}
    return sum(
        sides[name] * (steps_before(sides[name]) + steps_a_turn(sides[name]))
        for block in range(BLOCKS)
        for name in turns(list(sides), block, "base")
    )


def is_settled(ratios: Iterable[Sequence[float]]) -> bool:
    """Tell whether the log ratios that one process measured leave little open, of every side.

    >>> is_settled([[0.5, 0.52]]), is_settled([[0.5, 0.6]]), is_settled([[0.5]])
    (True, False, False)
    """
    return all(
        len(each) > 1 and 2 * stdev(each) / (PROCESSES * len(each)) ** 0.5 <= NOISE
        for each in ratios
    )


def _step(job: DrawnJob) -> float:
    return float(job.sizes.more.get("seconds", 0.15))


def _factor(side: Side, job: DrawnJob) -> float:
    """Return about how many times as long a step of *side* takes as one that loads nothing."""
    loading = job.batch_size * (job.load_us + 50 * job.load_rounds) / 1e6
    share = loading / _step(job)
    amp, threads = (1.4 if side.amp else 1.0), (0.6 if job.threads > 1 or side.threads else 1.0)
    again = 1.3 if side.checkpointing else 1.0
    computing = side.batch_factor * side.accumulation * amp * threads * again
    return computing + (0.0 if side.workers else share * side.batch_factor * side.accumulation)
