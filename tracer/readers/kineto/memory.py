"""What the profiler's memory events say: the most that was allocated on a device.

In: the memory events of a Kineto recording. Out: a few numbers for `TraceMeta.extra`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.tracer.readers.columns import integers
from foretrace.tracer.readers.kineto.decode import Arguments

if TYPE_CHECKING:
    from foretrace.tracer.data_issues import Tally
    from foretrace.tracer.readers.kineto.decode import KinetoFile

MEMORY = Arguments(
    single=(
        ("bytes", "Bytes"),
        ("device", "Device Id"),
        ("allocated", "Total Allocated"),
        ("reserved", "Total Reserved"),
    )
)


def peak_allocation(
    recording: KinetoFile, rows: np.ndarray, start_ns: np.ndarray, tally: Tally
) -> dict[str, Any] | None:
    """Return the peak over the recording in bytes, of the device where it is highest.

    Parameters
    ----------
    recording
        The file.
    rows
        Its memory events.
    start_ns
        When each of them was.

    Returns
    -------
    dict or None
        ``device``, ``allocated_bytes`` and ``reserved_bytes`` at most (``None`` where the events
        carry no totals, as until 2021), ``before_bytes``, those allocated when the first event came
        (``None`` likewise), and ``swing_bytes``, what came and went in between: the highest less
        the lowest point. ``None`` without any event of a device.
    """
    fields = recording.arguments(rows, MEMORY)
    device = integers(fields["device"], tally)
    peaks = []
    for index in np.unique(device[device >= 0]).tolist():
        here = device == index
        order = np.argsort(start_ns[here], kind="stable")
        change, allocated, reserved = (
            integers(fields[name], tally)[here] for name in ("bytes", "allocated", "reserved")
        )
        level = np.cumsum(change[order])
        has_totals = bool(allocated.max() > 0)
        peaks.append(
            {
                "device": index,
                "allocated_bytes": int(allocated.max()) if has_totals else None,
                "reserved_bytes": int(reserved.max()) if reserved.max() > 0 else None,
                "before_bytes": max(int(allocated[order[0]] - level[0]), 0) if has_totals else None,
                "swing_bytes": int(max(level.max(), 0) - min(level.min(), 0)),
            }
        )
    return max(peaks, key=lambda peak: peak["allocated_bytes"] or peak["swing_bytes"], default=None)
