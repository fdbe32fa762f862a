"""What the accuracy study finds, row by row: recordings replayed, pairs predicted.

Nothing is computed from recordings here; `study` does that, `error_table` and `page` read it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foretrace.analysis.evidence.measured_pair import MeasuredPair


@dataclass(frozen=True)
class IdentityRow:
    """One recording replayed unchanged; ``problem`` says why there are no numbers."""

    trace: str
    cause: str | None
    measured_ns: float = 0.0
    replayed_ns: float = 0.0
    steps: int = 0
    problem: str | None = None

    @property
    def error(self) -> float:
        """Signed relative error."""
        return self.replayed_ns / self.measured_ns - 1


Answers = tuple[float, ...]


@dataclass(frozen=True)
class PartRow:
    """What a part of a recording answers to some what-ifs. Times in ns of one step.

    ``dropped`` are the steps left out at the beginning and at the end. ``whole`` is what the whole
    recording answers, ``same_steps`` what it does of the steps that the part keeps, ``part`` the
    part's own answers, and ``doubts`` the codes of why they may be wrong. ``problem`` says why
    there are none.
    """

    trace: str
    dropped: tuple[int, int]
    whole: Answers = ()
    same_steps: Answers = ()
    part: Answers = ()
    doubts: tuple[str, ...] = ()
    problem: str = ""

    @property
    def off(self) -> float:
        """By how much the part's answers differ from those of the same steps, at most."""
        return _differ(self.part, self.same_steps)

    @property
    def off_whole(self) -> float:
        """By how much the part's answers differ from those of all steps, at most."""
        return _differ(self.part, self.whole)


def _differ(some: Answers, other: Answers) -> float:
    """Return the largest relative difference of answers that both have.

    >>> _differ((1.0, 3.0, math.nan), (1.0, 2.0, 5.0))
    0.5
    """
    ratios = [one / two for one, two in zip(some, other, strict=True)]
    return max((abs(ratio - 1) for ratio in ratios if math.isfinite(ratio)), default=0.0)


@dataclass(frozen=True)
class AccuracyStudy:
    """All rows; ``absent`` are recordings that are listed but not on this machine."""

    identities: tuple[IdentityRow, ...] = ()
    pairs: tuple[MeasuredPair, ...] = ()
    problems: dict[str, str] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    parts: tuple[PartRow, ...] = ()
