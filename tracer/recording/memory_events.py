"""Memory events of one step, put into the recording of another one that was timed without them.

In: a timed step and the step that was recorded with memory events, operators paired. Out: those
events at the times that they would have had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MEMORY_EVENT = "[memory]"

Pair = tuple[dict[str, Any], dict[str, Any] | None]


def move_memory_events(
    events: Sequence[dict[str, Any]], pairs: Sequence[Pair]
) -> Iterator[dict[str, Any]]:
    """Yield the memory events among *events* that fall into the recorded step of *pairs*.

    *pairs* are operators of the timed step, each with its twin, and the ranges of both steps.
    Between their starts and ends times are interpolated, thread by thread.
    """
    for thread, (there, here) in _clocks(pairs).items():
        for event in events:
            inside = there[0] <= event.get("ts", -1.0) <= there[-1]
            if event.get("name") == MEMORY_EVENT and event.get("tid") == thread and inside:
                yield {**event, "ts": float(np.interp(event["ts"], there, here))}


def _clocks(pairs: Sequence[Pair]) -> dict[Any, tuple[np.ndarray, np.ndarray]]:
    """Return, per thread of the recorded step, times in it and the same ones in the timed step."""
    stamps: dict[Any, list[tuple[float, float]]] = {}
    for event, twin in pairs:
        if twin is not None:
            ends = (twin["ts"] + twin["dur"], event["ts"] + event["dur"])
            stamps.setdefault(twin.get("tid"), []).extend([(twin["ts"], event["ts"]), ends])
    clocks = {}
    for thread, both in stamps.items():
        there, here = (np.sort(np.array(times)) for times in zip(*both, strict=True))
        clocks[thread] = (there, here)
    return clocks
