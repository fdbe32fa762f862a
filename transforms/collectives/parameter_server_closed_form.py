"""Closed forms of how fast a job with parameter servers runs, as cross-checks of the replay.

In: times of the parts of a step, bytes and rates. Out: times and rates. Nothing here looks at a
graph; times are in one unit throughout.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def in_step_time(compute: float, push: float, pull: float) -> float:
    """Return the step of workers that wait for each other and overlap nothing.

    *push* and *pull* are the times that all workers together take: their bytes over the servers'
    links, or those of one worker over its own, whichever is longer.
    """
    return compute + push + pull


def overlapped_time(compute: float, push: float, pull: float) -> float:
    """Return Cynthia's step of workers in step: all communication hides, or all computation does.

    Source: Cynthia (ICPP 2019), reconstructed: the fluid limit of `in_step_time`.
    """
    return max(compute, push + pull)


def own_pace_time(compute: float, push: float, pull: float, workers: int, serving: float) -> float:
    """Return the step of one of *workers* that do not wait for each other.

    Alone it takes its parts one after the other; *serving* is how long a server's busiest link is
    occupied per step of one worker: more than one worker in that time is not served.

    Examples
    --------
    >>> own_pace_time(10, 7, 7, workers=2, serving=7), own_pace_time(10, 7, 7, workers=4, serving=7)
    (24, 28)
    """
    return max(compute + push + pull, workers * serving)


def fair_share_times(alone: float, shared: Sequence[float], workers: int) -> list[float]:
    """Return how long one of *workers* spends at each shared link, which it uses in every step.

    Without anybody else a step takes *alone*, and the links *shared* times of their own. Workers do
    not wait for each other, meet at the links at random, and share them evenly: mean value analysis
    of a closed network, exact for links that serve all at once whatever their times look like
    (Baskett, Chandy, Muntz and Palacios, 1975). Slower than `own_pace_time`, faster than all at
    once.

    Examples
    --------
    >>> fair_share_times(10, [10], workers=1), fair_share_times(10, [10], workers=2)
    ([10.0], [15.0])
    """
    waiting = [0.0] * len(shared)
    times: list[float] = []
    for present in range(1, workers + 1):
        times = [own * (1 + queue) for own, queue in zip(shared, waiting, strict=True)]
        rate = present / (alone + sum(times))
        waiting = [rate * time for time in times]
    return times


def time_in_step(steps: int, step: float) -> float:
    """Return Cynthia's training time of workers in step."""
    return steps * step


def time_at_own_pace(steps: int, worker_steps: Sequence[float]) -> float:
    """Return Cynthia's training time of workers that each take a step of their own length.

    Examples
    --------
    >>> time_at_own_pace(30, [1.0, 2.0])
    20.0
    """
    return steps / sum(1 / step for step in worker_steps)


def meeting_share(workers: int, *, slope: float, offset: float) -> float:
    """Return spotDNN's probability P(n) that workers at their own pace meet at the servers.

    It grows with the root of their number, and is a probability: the published code lets it fall
    below 0 for few workers.

    Source: spotDNN (IWQoS 2023).

    Examples
    --------
    >>> round(meeting_share(9, slope=0.8, offset=1.92), 2), meeting_share(4, slope=0.8, offset=1.92)
    (0.48, 0.0)
    """
    return min(max(slope * math.sqrt(workers) - offset, 0.0), 1.0)


def worker_bandwidth(wanted: float, supply: float, workers: int, meeting: float) -> float:
    """Return spotDNN's bandwidth B_i of one of *workers*: what it wants, or less when they meet.

    *wanted* is what it would use alone, *supply* what the servers have for all, *meeting* the share
    of time in which all workers want it at once.

    Source: spotDNN (IWQoS 2023).

    Examples
    --------
    >>> worker_bandwidth(4.0, 18.0, workers=9, meeting=0.48)
    3.04
    >>> worker_bandwidth(1.0, 18.0, workers=9, meeting=0.48)
    1.0
    """
    even = supply / workers
    return meeting * even + (1 - meeting) * wanted if wanted > even else wanted
