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
    event, made = t["eventId"][order], t["correlationId"][order]
    named = np.flatnonzero((syncs["eventId"] >= 0) & (syncs["eventId"] != NO_EVENT))
    first = np.searchsorted(event, syncs["eventId"][named]).tolist()
    last = np.searchsorted(event, syncs["eventId"][named], side="right").tolist()
    for sync, begin, end in zip(named.tolist(), first, last, strict=True):
        at = begin + int(np.searchsorted(made[begin:end], syncs["correlationId"][sync])) - 1
        if at >= begin:
            stream[sync] = t["streamId"][order[at]]
            record[sync] = made[at]
    return stream, record
