"""What an engine returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from foretrace.replaying.engine.program import Ints, Longs
    from foretrace.replaying.engine.topological import Prepared


def _nothing() -> Longs:
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class Schedule:
    """When every task of a program starts and ends.

    The last two have a row per task, as ``holder``, or none at all where nothing is shared.
    """

    moments: Longs  # numbered as in `program`
    holder: Ints  # the task whose end let this one have the resource; -1: it did not wait for one
    order: Ints  # moments so that each follows what determined it; of one repetition, or of all
    prepared: Prepared
    stretch_ns: Longs = field(default_factory=_nothing)  # what sharing added to the work of each
    link_ns: Longs = field(default_factory=_nothing)  # the part of it that shared links added

    @property
    def starts(self) -> Longs:
        """Start of each task: a row per repetition."""
        return self._block(0)

    @property
    def ends(self) -> Longs:
        """End of each task: a row per repetition."""
        return self._block(1)

    @property
    def start_ns(self) -> Longs:
        """Start of each task, repetition after repetition."""
        return self.starts.ravel()

    @property
    def end_ns(self) -> Longs:
        """End of each task, repetition after repetition."""
        return self.ends.ravel()

    @property
    def full_order(self) -> Ints:
        """``order`` of all repetitions."""
        program = self.prepared.program
        if len(self.order) > 2 * program.tasks or program.repetitions == 1:
            return self.order
        later = np.arange(program.repetitions, dtype=np.int32)[:, None] * (2 * program.tasks)
        every: Ints = (self.order + later).ravel()
        return every

    def _block(self, which: int) -> Longs:
        program = self.prepared.program
        block: Longs = self.moments.reshape(program.repetitions, 2, program.tasks)[:, which]
        return block
