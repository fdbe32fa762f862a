"""Times that are no microseconds, as this format has them: told, never guessed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.errors import TraceError
from foretrace.tracer.trace import EVENT_KINDS

if TYPE_CHECKING:
    from foretrace.tracer.readers.kineto.decode import KinetoFile

LATEST_US = 1e17
"""The year 5138, in microseconds since 1970."""
SHORTEST_US = 1000
USUAL_US = 0.1
"""Reading the clock for an operator's start and end takes about as long."""
LEAST_EVENTS = 50


def refuse_nanoseconds(times: list[Any], source: str) -> None:
    """Refuse a file whose times, read as microseconds since 1970, lie in the far future.

    Raises
    ------
    TraceError
        Most of them do.
    """
    moments = [moment for time in times if (moment := _number(time)) is not None]
    if moments and np.median(moments) > LATEST_US:
        raise TraceError(
            f"{source}: its timestamps look like nanoseconds (such as {times[0]}), where this "
            "format has microseconds; divide every ts and dur by 1000"
        )


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def look_like_nanoseconds(recording: KinetoFile, kind: np.ndarray) -> bool:
    """Tell whether no operator or call of many is shorter than a millisecond, and all are whole.

    Some operator or call of every job takes a few microseconds.
    """
    lengths = _list_lengths(recording, kind)
    return (
        len(lengths) >= LEAST_EVENTS
        and all(type(each) is int for each in lengths)
        and min(lengths) >= SHORTEST_US
    )


def look_like_longer_units(recording: KinetoFile, kind: np.ndarray) -> bool:
    """Tell whether half of many operators and calls are shorter than any can be."""
    known = (_number(each) for each in _list_lengths(recording, kind))
    lengths = [each for each in known if each is not None]
    return len(lengths) >= LEAST_EVENTS and bool(np.median(lengths) < USUAL_US)


def _list_lengths(recording: KinetoFile, kind: np.ndarray) -> list[Any]:
    """Return how long operators and calls last, in the file's unit, but for those of length 0."""
    host = np.isin(kind, [EVENT_KINDS.index("op"), EVENT_KINDS.index("runtime")])
    return [each for each in recording.select("dur", np.flatnonzero(host)) if each]
