"""A number about a whole job, with how sure it is."""

from __future__ import annotations

import math
from dataclasses import dataclass

from foretrace.analysis.evidence.evidence import UNVALIDATED, VALIDATED, worst_of


@dataclass(frozen=True)
class Answer:
    """What was asked, between which bounds it lies, and whether that was ever checked.

    ``low`` and ``high`` hold the true value in a share ``level`` of all cases.
    ``unit`` is "s", "steps", "samples/s", a currency, or "" for a ratio.

    Raises
    ------
    ValueError
        The value is no number, or lies outside its own interval.
    """

    value: float
    low: float
    high: float
    unit: str
    level: float = 0.9
    status: str = UNVALIDATED

    def __post_init__(self) -> None:
        """Check that the value is inside its interval."""
        if not (math.isfinite(self.value) and self.low <= self.value <= self.high):
            raise ValueError(f"{self.value} is not inside {self.low} … {self.high}")

    def scale(self, factor: float, unit: str) -> Answer:
        """Return the answer times a positive *factor* that is known exactly.

        >>> Answer(2.0, 1.0, 4.0, "s").scale(60, "USD").high
        240.0
        """
        ends = (self.value * factor, self.low * factor, self.high * factor)
        return Answer(*ends, unit, self.level, self.status)

    def times(self, other: Answer, unit: str) -> Answer:
        """Return the product of two answers that err independently, of positive values.

        What each may be off, relative to its value, is joined in quadrature.

        >>> steps, step = Answer(100.0, 60.0, 140.0, "steps"), Answer(2.0, 1.4, 2.6, "s")
        >>> total = steps.times(step, "s")
        >>> round(total.low, 6), total.value, round(total.high, 6)
        (100.0, 200.0, 300.0)
        """
        value = self.value * other.value
        below = math.hypot(1 - self.low / self.value, 1 - other.low / other.value)
        above = math.hypot(self.high / self.value - 1, other.high / other.value - 1)
        status = worst_of([self.status, other.status])
        ends = (value * max(1 - below, 0.0), value * (1 + above))
        return Answer(value, *ends, unit, min(self.level, other.level), status)


def exactly(value: float, unit: str) -> Answer:
    """Return what is known exactly, such as a number of steps that the user gives."""
    return Answer(value, value, value, unit, status=VALIDATED)
