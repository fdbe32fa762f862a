"""A snapshot of torch's CUDA allocator in, what was allocated and reserved over time out.

Snapshots are what ``torch.cuda.memory._dump_snapshot`` writes: segments as they are at the end, and
the last changes before it. Levels are reckoned backwards from the end, so that a history cut short
still gives true ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from foretrace.errors import TraceError
from foretrace.util.limits import OBJECTS, UNPACKED
from foretrace.util.plain_pickle import load_plain

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]

FIRST_BYTE = b"\x80"
"""How a pickle begins, of protocol 2 and later."""
MOST = 2**53
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
CHANGES = {
    "alloc": (1, 0),
    "free_completed": (-1, 0),
    "segment_alloc": (0, 1),
    "segment_map": (0, 1),
    "segment_free": (0, -1),
    "segment_unmap": (0, -1),
}
"""Sign of what is allocated and of what is reserved, by action."""


class Segment(msgspec.Struct):
    """Memory that the allocator took from the driver."""

    total_size: Count
    allocated_size: Count
    device: Annotated[int, msgspec.Meta(ge=0, le=2**15 - 1)] = 0


class Change(msgspec.Struct):
    """One entry of an allocator's history."""

    action: str
    size: Count = 0
    time_us: Count | None = None


class Stored(msgspec.Struct):
    """What is read of a snapshot."""

    segments: list[Segment]
    device_traces: list[list[Change]] = []


@dataclass(frozen=True)
class DeviceHistory:
    """Bytes of one device behind each change, oldest first; ``time_ns`` is −1 where unknown."""

    device: int
    time_ns: Ints
    allocated: Ints
    reserved: Ints

    @property
    def peak(self) -> int:
        """The change behind which most is allocated."""
        return int(np.argmax(self.allocated))


def is_snapshot(path: Path) -> bool:
    """Tell whether the file at *path* is a pickle, by its first byte."""
    try:
        with path.open("rb") as file:
            return file.read(1) == FIRST_BYTE
    except OSError:
        return False


def read_snapshot(path: Path) -> tuple[DeviceHistory, ...]:
    """Return the history of every device that holds memory, in order.

    Raises
    ------
    TraceError
        The file cannot be read, is too large, or is no snapshot of plain containers.
    """
    where = path.name
    try:
        if not path.is_file():
            raise TraceError(f"{where}: no regular file")
        UNPACKED.check(path.stat().st_size, where, TraceError, on_disk=path.stat().st_size)
        raw = path.read_bytes()
    except OSError as failed:
        raise TraceError(f"{where}: cannot be read ({failed.strerror})") from None
    plain = load_plain(raw, where, TraceError, OBJECTS)
    OBJECTS.check(_count_entries(plain), where, TraceError, on_disk=len(raw))
    try:
        stored = msgspec.convert(plain, Stored)
    except (msgspec.ValidationError, RecursionError) as failed:
        raise TraceError(f"{where}: no snapshot of torch's allocator ({failed})") from None
    devices = {segment.device for segment in stored.segments}
    devices.update(at for at, trace in enumerate(stored.device_traces) if trace)
    if not devices:
        raise TraceError(f"{where}: the snapshot holds no memory; take it while the job runs")
    return tuple(_history(stored, device) for device in sorted(devices))


def _count_entries(plain: Any) -> int:
    """Return how many entries all histories have: one that is stored once may stand in many."""
    traces = plain.get("device_traces") if isinstance(plain, dict) else None
    return (
        sum(len(each) for each in traces if isinstance(each, list))
        if isinstance(traces, list)
        else 0
    )


def _history(stored: Stored, device: int) -> DeviceHistory:
    """Return the levels of *device*, reckoned backwards from the segments at the end."""
    mine = [segment for segment in stored.segments if segment.device == device]
    traces = stored.device_traces
    changes = traces[device] if device < len(traces) else []
    signs = np.array([CHANGES.get(c.action, (0, 0)) for c in changes], np.int64).reshape(-1, 2)
    steps = signs * np.array([c.size for c in changes], np.int64).reshape(-1, 1)
    end = np.array([sum(s.allocated_size for s in mine), sum(s.total_size for s in mine)], np.int64)
    levels = end - np.concatenate(
        [np.cumsum(steps[::-1], axis=0)[::-1], np.zeros((1, 2), np.int64)]
    )
    times = [-1 if c.time_us is None else 1000 * c.time_us for c in changes]
    return DeviceHistory(
        device=device,
        time_ns=np.array([times[0] if times else -1, *times], np.int64),
        allocated=np.maximum(levels[:, 0], 0),
        reserved=np.maximum(levels[:, 1], 0),
    )
