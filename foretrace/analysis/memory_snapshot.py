"""What a snapshot of the allocator says: alone, or as the totals of a recording of the same job."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.tracer.readers.memory_snapshot import DeviceHistory
    from foretrace.tracer.trace import Trace


@dataclass(frozen=True)
class DevicePeak:
    """One device of a snapshot, in bytes: ``reserved`` at the same moment as the peak.

    ``least`` is what was held all along: parameters, states, and what else never left.
    """

    device: int
    allocated: int
    reserved: int
    most_reserved: int
    least: int
    changes: int

    @property
    def fragmentation(self) -> int:
        """What was reserved at the peak and not handed out."""
        return max(self.reserved - self.allocated, 0)


@dataclass(frozen=True)
class SnapshotReport:
    """The peaks of every device in a snapshot."""

    source: str
    devices: tuple[DevicePeak, ...]


def report_snapshot(histories: Sequence[DeviceHistory], source: str) -> SnapshotReport:
    """Return the peak of each device."""
    return SnapshotReport(source, tuple(map(_peak, histories)))


def _peak(history: DeviceHistory) -> DevicePeak:
    at = history.peak
    return DevicePeak(
        device=history.device,
        allocated=int(history.allocated[at]),
        reserved=int(history.reserved[at]),
        most_reserved=int(history.reserved.max()),
        least=int(history.allocated.min()),
        changes=len(history.allocated) - 1,
    )


def with_totals(trace: Trace, histories: Sequence[DeviceHistory]) -> Trace:
    """Return *trace* with the totals of the device of *histories* that holds most.

    Memory events of the recording itself stay: they say who holds what.
    """
    most = max(histories, key=lambda history: history.allocated.max())
    peak = _peak(most)
    known = trace.meta.extra.get("memory") or {}
    totals = {
        **known,
        "device": peak.device,
        "allocated_bytes": peak.allocated,
        "reserved_bytes": peak.most_reserved,
        "swing_bytes": int(np.ptp(most.allocated)),
    }
    extra = {**trace.meta.extra, "memory": totals}
    return replace(trace, meta=replace(trace.meta, extra=extra))
