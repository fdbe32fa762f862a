"""Optimus' speed over numbers of workers and servers: the form, and a fitted surface.

A worker's step takes a constant, what it shares with the others, and what each of them costs. The
speed is that of the whole job in steps per unit of time.

Source: Optimus (EuroSys 2018).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import RefusedError
from foretrace.job.answer import Answer

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

SEED = 20_260_101
LEVEL = 0.9
"""Share of true speeds that an interval means to cover."""


RING = ("1 / workers", "1 - 1 / workers", "workers")
"""Terms of workers in a ring. The first two add up to a constant, which is none of its own."""


@dataclass(frozen=True)
class Form:
    """Which terms a step has.

    ``in_step``: workers wait for each other. ``has_servers``: parameter servers share the traffic.
    ``splits_batch``: the workers share one batch, and do not each train on a batch of the same
    size; workers that do not wait never share.

    Optimus knows no workers without servers. Without them its terms miss that each of n workers in
    a ring sends (n - 1) / n of the gradients, twice, and one worker nothing; ``is_published`` keeps
    to its terms all the same.
    """

    in_step: bool = True
    has_servers: bool = True
    splits_batch: bool = True
    is_published: bool = False

    @property
    def terms(self) -> tuple[str, ...]:
        """Name the terms with what each is multiplied by."""
        split = ("1 / workers",) if self.in_step and self.splits_batch else ()
        if self.has_servers:
            return (*split, "1", "workers / servers", "workers", "servers")
        return (*split, "1", "workers") if self.is_published else RING

    def columns(self, workers: Floats, servers: Floats) -> Floats:
        """Return what the terms are multiplied by at each point."""
        factors = {
            "1 / workers": 1 / workers,
            "1 - 1 / workers": 1 - 1 / workers,
            "1": np.ones_like(workers),
            "workers / servers": workers / servers,
            "workers": workers,
            "servers": servers,
        }
        return np.column_stack([factors[term] for term in self.terms])

    def steps(self, workers: Floats) -> Floats:
        """Return how many steps the job takes in the time of one worker's step."""
        return np.ones_like(workers) if self.in_step else workers

    def speeds(self, terms: Floats, workers: Floats, servers: Floats) -> Floats:
        """Return the speed that *terms* give each point; infinite where no term says anything.

        *terms* may be several sets, one per column.
        """
        times = self.columns(workers, servers) @ terms
        steps = self.steps(workers) if terms.ndim == 1 else self.steps(workers)[:, None]
        with np.errstate(divide="ignore"):
            return np.asarray(steps / times)


@dataclass(frozen=True)
class Surface:
    """A fitted form: the likeliest terms, other terms as the noise allows them, and that noise.

    ``drawn`` has one set of terms per row; ``noise`` is relative to a speed.

    Examples
    --------
    >>> terms = np.array([3.0, 2.0, 0.5, 0.25])
    >>> surface = Surface(Form(in_step=False), terms, terms[None], noise=0.0)
    >>> surface.speed(4, 2).value  # four steps in 3 + 2 * 4 / 2 + 0.5 * 4 + 0.25 * 2
    0.42105263157894735
    """

    form: Form
    terms: Floats
    drawn: Floats
    noise: float

    def blur(self, share: float) -> Surface:
        """Return the surface of speeds that may all be off by the same factor.

        *share* is the standard deviation of that factor's logarithm.
        """
        factors = np.exp(share * np.random.default_rng(SEED).standard_normal(len(self.drawn)))
        return replace(self, drawn=self.drawn * factors[:, None])

    def speeds(self, workers: Floats, servers: Floats) -> Floats:
        """Return speed and interval at each point: columns value, low, high."""
        value = self.form.speeds(self.terms, workers, servers)
        drawn = self.form.speeds(self.drawn.T, workers, servers)
        low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=1, method="nearest")
        return np.column_stack((value, np.minimum(low, value), np.maximum(high, value)))

    def speed(self, workers: float, servers: float = 1.0) -> Answer:
        """Return the speed at one point with its interval.

        Raises
        ------
        RefusedError
            What was measured leaves it open.
        """
        at = np.array([[workers], [servers]], np.float64)
        value, low, high = self.speeds(*at)[0].tolist()
        if not math.isfinite(high):
            raise RefusedError(
                f"the points leave the speed of {workers:g} workers and {servers:g} servers open; "
                "measure it there"
            )
        return Answer(value, low, high, "steps/s", LEVEL)
