"""Copies that block their caller until they are done.

In: host and device tasks of one rank. Out: entries of `Waits`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from foretrace.graph.infer.api_calls import OWN, RETURN_NS, SLACK_NS, SYNC_WORK_NS
from foretrace.graph.infer.device_tasks import MEMCPY
from foretrace.graph.infer.events import matching_codes

if TYPE_CHECKING:
    from foretrace.graph.infer.api_calls import Calls, Waits
    from foretrace.graph.infer.device_tasks import Devices
    from foretrace.graph.infer.events import Events
    from foretrace.graph.infer.host_tasks import Host

STAGING_NS = 300_000
"""A pageable upload returns within this of its copy's end, before or after."""
PAGEABLE_BYTES = 64 * 1024
"""Smaller pageable uploads are staged and return at once."""
MOST = 0.5
"""Share of a class that must return with its copy for the class to count as blocking."""
_DOWNLOADS = re.compile("DtoH")
_UPLOADS = re.compile(r"HtoD(?! \(Pinned)")
"""From pinned memory an upload never waits; a short one only looks as if it did."""


def blocking_copies(
    events: Events, host: Host, devices: Devices, calls: Calls, waits: Waits
) -> None:
    """Find blocking copies class by class: API, kind of copy, large or small.

    Where most of a class return with their copy, all of it waits for its own work; a member that
    took another time costs what its API usually does. Downloads hold the driver's lock meanwhile.
    """
    copies = np.flatnonzero((devices.kind == MEMCPY) & (devices.launch >= 0))
    if not len(copies):
        return
    call = devices.launch[copies]
    event = devices.event[copies]
    name, api = events.name[event], events.name[host.event[call]]
    is_large = np.nan_to_num(events.column("bytes")[event], nan=0) > PAGEABLE_BYTES
    is_download = matching_codes(events.names, _DOWNLOADS)[name]
    is_upload = matching_codes(events.names, _UPLOADS)[name]
    late = host.end_ns[call] - devices.end_ns[copies]
    returns = np.where(
        is_download, (late >= -SLACK_NS) & (late <= RETURN_NS), np.abs(late) <= STAGING_NS
    )
    returns &= is_download | (is_upload & is_large)
    group = np.stack([api.astype(np.int64), name, is_large])
    for key in np.unique(group, axis=1).T:
        same = (group == key[:, None]).all(axis=0)
        if returns[same].mean() <= MOST:
            continue
        waited, strange = returns & same, same & ~returns
        waits.wait[call[same]] = OWN
        waits.return_ns[call[same]] = int(np.median(late[waited]))
        for members, cost in ((waited, SYNC_WORK_NS), (strange, calls.usual_ns[call[strange]])):
            waits.work_ns[call[members]] = np.minimum(waits.work_ns[call[members]], cost)
        if is_download[same].all():
            waits.holds_lock[call[same]] = True
    waits.counts["blocking copies"] = int((waits.wait == OWN).sum())
