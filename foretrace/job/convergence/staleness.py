"""Closed forms of the loss of workers with parameter servers, and of the steps to a loss.

In: fitted parameters, steps, numbers of workers. Out: a loss, or steps. Workers that do not wait
for each other compute with parameters that are out of date, which costs steps: as the root of their
number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from foretrace.errors import RefusedError


@dataclass(frozen=True)
class CynthiaLoss:
    """The loss b0 / steps + b1 of workers in step; b0 times the root of the workers otherwise.

    Source: Cynthia (ICPP 2019), reconstructed.
    """

    b0: float
    b1: float

    def at(self, steps: float, workers: int = 1, *, in_step: bool = True) -> float:
        """Return the loss after *steps* of all workers together.

        >>> CynthiaLoss(100.0, 0.5).at(200, workers=4, in_step=False)
        1.5
        """
        return self.b0 * _staleness(workers, in_step=in_step) / steps + self.b1

    def steps_to(self, loss: float, workers: int = 1, *, in_step: bool = True) -> float:
        """Return after how many steps of all workers together *loss* is reached.

        >>> CynthiaLoss(100.0, 0.5).steps_to(1.5), CynthiaLoss(100.0, 0.5).steps_to(
        ...     1.5, workers=4, in_step=False)
        (100.0, 200.0)

        Raises
        ------
        RefusedError
            The loss is not above where this form levels off.
        """
        return self.b0 * _staleness(workers, in_step=in_step) / _above(loss, self.b1)


@dataclass(frozen=True)
class SpotDnnLoss:
    """The loss (r2 b + r3) sqrt(n) / (steps + r1) + r5 of n workers with batches of b samples.

    Source: spotDNN, the successor of Cynthia, for workers that do not wait for each other; its
    term for workers of different speed is left out.
    """

    r1: float
    r2: float
    r3: float
    r5: float

    def at(self, steps: float, workers: int, batch: float) -> float:
        """Return the loss after *steps* of all workers together."""
        return self._scale(workers, batch) / (steps + self.r1) + self.r5

    def steps_to(self, loss: float, workers: int, batch: float) -> float:
        """Return after how many steps of all workers together *loss* is reached; 0 at least.

        >>> round(SpotDnnLoss(876.5, -0.2, 2507.6, 0.5).steps_to(0.8, workers=4, batch=1024), 1)
        14475.5

        Raises
        ------
        RefusedError
            The loss is not above where this form levels off, or the batch is larger than the form
            holds for.
        """
        return max(0.0, self._scale(workers, batch) / _above(loss, self.r5) - self.r1)

    def _scale(self, workers: int, batch: float) -> float:
        per_worker = self.r2 * batch + self.r3
        if per_worker <= 0:
            raise RefusedError(
                f"a batch of {batch:g} is out of the range of this loss: {self.r2:g} times it, "
                f"plus {self.r3:g}, is not above 0; fit it again with such batches"
            )
        return per_worker * math.sqrt(workers)


def _staleness(workers: int, *, in_step: bool) -> float:
    return 1.0 if in_step else math.sqrt(workers)


def _above(loss: float, asymptote: float) -> float:
    if not loss > asymptote:
        raise RefusedError(
            f"a loss of {loss:g} is never reached: this form levels off at {asymptote:g}"
        )
    return loss - asymptote
