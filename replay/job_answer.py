"""A number about a whole job, with how sure it is."""

from __future__ import annotations

import math
from dataclasses import dataclass

VALIDATED, UNVALIDATED = "validated", "unvalidated"


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
        if not (math.isfinite(self.value) and self.low <= self.value <= self.high):
            raise ValueError(f"{self.value} is not inside {self.low} … {self.high}")

    def scaled(self, factor: float, unit: str) -> Answer:
        """Return the answer times a positive *factor* that is known exactly.

        >>> Answer(2.0, 1.0, 4.0, "s").scaled(60, "USD").high
        240.0
        """
        ends = (self.value * factor, self.low * factor, self.high * factor)
        return Answer(*ends, unit, self.level, self.status)
