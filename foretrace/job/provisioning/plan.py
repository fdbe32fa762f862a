"""Which machines to rent for a job that must end in time: the cheapest that do.

In: ways to run the job, each with its price and its predicted step. Out: what the whole takes and
costs on each, how likely it ends in time, and the cheapest that does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from scipy.special import ndtr, ndtri

from foretrace.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.graph.state import Doubt
    from foretrace.job.answer import Answer

HOUR = 3_600.0
UNITS = (("d", 86_400.0), ("h", HOUR), ("min", 60.0), ("s", 0.0))
TIME = re.compile(r"^(\d+(?:\.\d*)?|\.\d+)\s*(s|min|h|d|days?)")
IN_SECONDS = {"s": 1.0, "m": 60.0, "h": HOUR, "d": 86_400.0}


class Fleet(NamedTuple):
    """A way to run the job: so many machines of a kind, and servers where there are any.

    ``mode`` is "ddp" (all-reduce), "bsp" (parameter servers, workers in step) or "asp" (the same,
    at their own pace). ``price_per_hour`` is that of all machines together.
    """

    machine: str
    machines: int
    workers: int
    mode: str
    price_per_hour: float
    server: str = ""
    servers: int = 0

    def __str__(self) -> str:
        """Say what is rented."""
        served = f" + {self.servers} x {self.server}" if self.servers else ""
        return f"{self.machines} x {self.machine}{served}, {self.mode}"


@dataclass(frozen=True)
class OfferForecast:
    """What the job takes on a candidate: a worker's step and the whole, and what that costs.

    ``in_time`` is the probability that it ends before the deadline, ``closed_form_s`` what a closed
    form says of the whole, where it can. ``assumptions``, ``warnings`` and ``doubts``
    are those of the step.
    """

    fleet: Fleet
    step: Answer
    time: Answer
    cost: Answer
    in_time: float
    closed_form_s: float | None = None
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    doubts: tuple[Doubt, ...] = ()

    @property
    def closed_form_cost(self) -> float | None:
        """What the whole costs if the closed form is right."""
        if self.closed_form_s is None:
            return None
        return self.closed_form_s * self.fleet.price_per_hour / HOUR


@dataclass(frozen=True)
class Choice:
    """The cheapest ways to be in time: expected to, and with the whole interval (None: no such)."""

    expected: OfferForecast
    safe: OfferForecast | None


def forecast_offer(
    fleet: Fleet,
    step: Answer,
    steps: Answer,
    *,
    deadline_s: float,
    currency: str = "USD",
    closed_form_step_s: float | None = None,
) -> OfferForecast:
    """Return what *steps* steps, each of the length *step* in seconds, take on *candidate*.

    Examples
    --------
    >>> from foretrace.job.answer import Answer, exactly
    >>> rented = Fleet("gpu", 2, 2, "ddp", price_per_hour=3.0)
    >>> step = Answer(0.5, 0.4, 0.6, "s")
    >>> offer = forecast_offer(rented, step, exactly(7_200, "steps"), deadline_s=3_600)
    >>> offer.time.value, offer.cost.value, offer.in_time
    (3600.0, 3.0, 0.5)
    """
    time = step.times(steps, "s")
    cost = time.scale(fleet.price_per_hour / HOUR, currency)
    form_s = None if closed_form_step_s is None else steps.value * closed_form_step_s
    return OfferForecast(fleet, step, time, cost, probability_below(time, deadline_s), form_s)


def probability_below(answer: Answer, limit: float) -> float:
    """Return how likely the true value is at most *limit*: normal on either side of the value.

    Examples
    --------
    >>> from foretrace.job.answer import Answer
    >>> round(probability_below(Answer(10, 8, 14, "s", level=0.9), 14), 3)
    0.95
    """
    end = answer.high if limit > answer.value else answer.low
    sigma = abs(end - answer.value) / ndtri((1 + answer.level) / 2)
    return float(ndtr((limit - answer.value) / sigma) if sigma else answer.value <= limit)


def choose(forecasts: Sequence[OfferForecast], deadline_s: float) -> Choice:
    """Return the cheapest of *forecasts* that end before the deadline.

    Raises
    ------
    RefusedError
        None is expected to.
    """
    by_cost = sorted(forecasts, key=lambda each: (each.cost.value, each.time.value))
    expected = next((each for each in by_cost if each.time.value <= deadline_s), None)
    safe = next((each for each in by_cost if each.time.high <= deadline_s), None)
    if expected is None:
        fastest = min(by_cost, key=lambda each: each.time.value)
        raise RefusedError(
            f"no plan meets the deadline of {format_duration(deadline_s)}: the fastest, "
            f"{fastest.fleet}, takes {format_duration(fastest.time.value)} and costs "
            f"{fastest.cost.value:,.2f} {fastest.cost.unit}; allow more time or other machines"
        )
    return Choice(expected, safe)


def parse_duration(text: str) -> float:
    """Return a time such as "90min", "2h" or "1.5 days" in seconds.

    Raises
    ------
    RefusedError
        It is no time above 0.

    Examples
    --------
    >>> parse_duration("90min"), parse_duration("1.5 d"), parse_duration("20s")
    (5400.0, 129600.0, 20.0)
    """
    match = TIME.fullmatch(text.strip())
    value = float(match[1]) * IN_SECONDS[match[2][0]] if match else 0.0
    if value <= 0:
        raise RefusedError(f"{text!r} is no time above 0; write one as in 90min, 2h or 1.5d")
    return value


def format_duration(seconds: float) -> str:
    """Return *seconds* in the unit that suits them.

    Examples
    --------
    >>> format_duration(5_400), format_duration(90), format_duration(0.5), format_duration(200_000)
    ('1.5 h', '1.5 min', '0.5 s', '2.31 d')
    """
    unit, size = next((unit, size) for unit, size in UNITS if seconds >= size)
    return f"{seconds / (size or 1):.3g} {unit}"


class Parts(NamedTuple):
    """What a closed form knows: seconds and bytes of a step, and bytes per second of a link."""

    compute_s: float
    gradient_bytes: float
    bytes_per_s: float


def closed_form_step(fleet: Fleet, parts: Parts) -> float:
    """Return the seconds of a worker's step on *candidate* by Cynthia's closed form.

    In step, what takes longer of computing and transfers hides the other; at one's own pace they
    follow each other, until a server's link is busy all the time. Without servers, machines send
    what a ring all-reduce sends.

    Source: Cynthia (ICPP 2019), reconstructed; the ring is ours.

    Examples
    --------
    >>> job = Parts(compute_s=1.0, gradient_bytes=100.0, bytes_per_s=200.0)
    >>> served = Fleet("m", 4, 4, "bsp", 1.0, "s", 1)
    >>> [closed_form_step(served._replace(mode=mode), job) for mode in ("bsp", "asp", "ddp")]
    [4.0, 2.0, 1.0]
    """
    mode, machines, servers = fleet.mode, fleet.machines, fleet.servers
    alone = parts.gradient_bytes / parts.bytes_per_s
    if mode == "ddp":
        half = alone * (machines - 1) / machines
        return max(parts.compute_s, 2 * half)
    if mode == "bsp":
        together = alone * max(fleet.workers / servers, 1.0)
        return max(parts.compute_s, 2 * together)
    return max(parts.compute_s + alone + alone, fleet.workers * (alone / servers))
