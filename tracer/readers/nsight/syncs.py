"""What synchronisation records of Nsight Systems wait for: their names, and the events recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretrace.tracer.readers.nsight.database import ACTIVITY

if TYPE_CHECKING:
    from foretrace.tracer.readers.nsight.database import Database

NO_EVENT = 2**32 - 1


def name_sync(call: str, stream: int) -> str:
    """Return what a synchronisation is called, by the call that made it and the stream it names."""
    for part, name in (
        ("StreamWaitEvent", "Stream Wait Event"),
        ("EventSynchronize", "Event Sync"),
        ("EventQuery", "Event Query"),
    ):
        if part in call:
            return name
    return "Context Sync" if stream < 0 else "Stream Sync"


def find_recorded_events(
    database: Database, syncs: dict[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the stream and the correlation of the latest record of the event each sync names."""
    t = database.integers(ACTIVITY + "CUDA_EVENT", "streamId", "correlationId", "eventId")
    stream = np.full(len(syncs["start"]), -1, np.int64)
    record = stream.copy()
    order = np.lexsort((t["correlationId"], t["eventId"]))
    for sync in np.flatnonzero((syncs["eventId"] >= 0) & (syncs["eventId"] != NO_EVENT)).tolist():
        same = order[t["eventId"][order] == syncs["eventId"][sync]]
        at = np.searchsorted(t["correlationId"][same], syncs["correlationId"][sync]) - 1
        if at >= 0:
            stream[sync] = t["streamId"][same[at]]
            record[sync] = t["correlationId"][same[at]]
    return stream, record
