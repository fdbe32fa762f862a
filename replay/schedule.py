"""What an engine returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foretrace.replay.order import Prepared
    from foretrace.replay.program import Ints, Longs


@dataclass(frozen=True)
class Schedule:
    """When every task of a program starts and ends."""

    moments: Longs  # start of every task, then the end of every task
    holder: Ints  # the task whose end let this one have the resource; -1: it did not wait for one
    order: Ints  # moments (see `order`) so that each follows what determined it
    prepared: Prepared

    @property
    def start_ns(self) -> Longs:
        """Start of each task."""
        return self.moments[: len(self.holder)]

    @property
    def end_ns(self) -> Longs:
        """End of each task."""
        return self.moments[len(self.holder) :]
