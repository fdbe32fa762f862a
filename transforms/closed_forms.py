"""Closed forms of how fast a job with parameter servers runs, as cross-checks of the replay.

In: times of the parts of a step, or speeds that were measured. Out: times, speeds, or fitted
parameters. Nothing here looks at a graph; times are in one unit throughout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.errors import TransformError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

SYNC_TERMS, ASYNC_TERMS = 5, 4
"""Parameters of Optimus' two surfaces."""
WORST_CONDITION = 1e6
"""Beyond this the points do not tell the parameters apart: with one ratio of workers to servers
throughout, two columns are multiples of each other."""


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


class Surface(NamedTuple):
    """Optimus' speed over numbers of servers p and workers w: parameters, and if workers wait."""

    terms: tuple[float, ...]
    in_step: bool
    batch: float = 1.0

    def speed(self, servers: float, workers: float) -> float:
        """Return steps per unit of time; of workers at their own pace, of all of them together.

        In step: 1 / (a M/w + b + c w/p + d w + e p) with the global batch M. At their own pace:
        w / (a + b w/p + c w + d p).
        """
        columns = _columns(
            np.array([servers]), np.array([workers]), self.batch, in_step=self.in_step
        )
        return float((1.0 if self.in_step else workers) / (columns[0] @ np.array(self.terms)))


def fit_surface(
    servers: Sequence[float],
    workers: Sequence[float],
    speeds: Sequence[float],
    *,
    in_step: bool,
    batch: float = 1.0,
) -> Surface:
    """Fit Optimus' surface to *speeds* at some numbers of servers and workers; no term is negative.

    Source: Optimus (EuroSys 2018). Its own code measures only at as many servers as workers, from
    which the terms cannot be told apart.

    Raises
    ------
    TransformError
        There are too few points, or they do not tell the terms apart.

    Examples
    --------
    >>> points = [(p, w) for p in (1, 2, 4) for w in (1, 3, 5)]
    >>> true = Surface((3.0, 2.0, 0.5, 0.25), in_step=False)
    >>> p, w = zip(*points)
    >>> found = fit_surface(p, w, [true.speed(*point) for point in points], in_step=False)
    >>> [round(term, 6) for term in found.terms]
    [3.0, 2.0, 0.5, 0.25]
    """
    p, w, v = (np.asarray(values, np.float64) for values in (servers, workers, speeds))
    terms = SYNC_TERMS if in_step else ASYNC_TERMS
    columns = _columns(p, w, batch, in_step=in_step)
    scaled = columns * (v if in_step else v / w)[:, None]
    if len(v) < terms or np.linalg.cond(scaled / np.linalg.norm(scaled, axis=0)) > WORST_CONDITION:
        raise TransformError(
            f"{len(v)} points do not tell {terms} terms of the speed apart; measure at other "
            "ratios of workers to servers"
        )
    return Surface(tuple(_non_negative(scaled, np.ones(len(v))).tolist()), in_step, batch)


def _columns(servers: Floats, workers: Floats, batch: float, *, in_step: bool) -> Floats:
    one = np.ones_like(workers)
    both = (one, workers / servers, workers, servers)
    return np.column_stack((batch / workers, *both) if in_step else both)


def _non_negative(columns: Floats, wanted: Floats) -> Floats:
    """Return the least squares solution without negative terms: these are left out, one by one."""
    keep = np.ones(columns.shape[1], bool)
    while True:
        found = np.zeros(len(keep))
        found[keep] = np.linalg.lstsq(columns[:, keep], wanted, rcond=None)[0]
        if (found >= 0).all():
            return found
        keep[np.argmin(found)] = False
