"""What the accuracy study finds, row by row: recordings replayed, pairs predicted.

Nothing is computed from recordings here; `study` does that, `error_table` and `page` read it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foretrace.analysis.measured_pair import MeasuredPair


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


@dataclass(frozen=True)
class AccuracyStudy:
    """All rows; ``absent`` are recordings that are listed but not on this machine."""

    identities: tuple[IdentityRow, ...] = ()
    pairs: tuple[MeasuredPair, ...] = ()
    problems: dict[str, str] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
