"""Waiting separated from work in API calls.

In: host and device tasks of one rank. Out: what each call costs when nothing blocks it, and
what it waits for. Each blocked call gets exactly one cause, looked for in this order:
synchronisation, its own blocking copy, a full launch queue, the driver lock; else its length stays.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from foretrace.graph.infer.api_calls import NONE, Calls, Waits, survey
from foretrace.graph.infer.blocking_copies import blocking_copies
from foretrace.graph.infer.driver_lock import driver_lock
from foretrace.graph.infer.syncs import synchronisations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.graph.infer.device_tasks import Devices
    from foretrace.graph.infer.events import Events
    from foretrace.graph.infer.host_tasks import Host
    from foretrace.graph.model import Rules
    from foretrace.tracer.trace import Device

QUEUE_LIMIT = 1_023
"""NVIDIA: launches outstanding on one stream. Others went beyond 1,800."""
_OTHER_MAKERS = re.compile(r"\bAMD\b|Instinct|Radeon|\bMI\d|\bgfx\d|Intel|Gaudi", re.IGNORECASE)
_HIP = re.compile("^hip")
QUEUE_NEARLY = 900
"""A call that is long with so many outstanding waited for a free slot."""


def split_waiting(
    events: Events,
    host: Host,
    devices: Devices,
    rules: Rules,
    makers: Sequence[Device] = (),
) -> Waits:
    """Find the unblocked cost and the wait of every host task of one rank.

    Parameters
    ----------
    makers
        The recording's devices by name: the launch queue is imposed on NVIDIA's only.
    """
    waits = Waits.none(host)
    if not len(host) or not len(devices):
        return waits
    calls = survey(events, host, devices)
    most = calls.outstanding.max()
    if most <= QUEUE_LIMIT + 1 and _is_nvidia(events, host, makers):
        waits.queue_depth = QUEUE_LIMIT
    if not rules.split_waiting:
        return waits
    synchronisations(events, host, devices, calls, waits)
    blocking_copies(events, host, devices, calls, waits)
    _full_queue(calls, waits)
    driver_lock(events, host, calls, waits)
    left = calls.is_long & (waits.wait == NONE) & ~waits.queued & ~waits.locked
    waits.counts["long calls kept as work"] = int(left.sum())
    waits.counts["long calls kept as work, us"] = int(waits.work_ns[left].sum() // 1000)
    return waits


def _is_nvidia(events: Events, host: Host, makers: Sequence[Device]) -> bool:
    """Tell by the devices' names and the API; a recording may lack the names."""
    is_hip = host.is_call & events.named(_HIP, host.event)
    return not is_hip.any() and not any(_OTHER_MAKERS.search(each.name) for each in makers)


def _full_queue(calls: Calls, waits: Waits) -> None:
    if waits.queue_depth is None:
        return
    waits.queued = calls.is_long & (calls.outstanding >= QUEUE_NEARLY) & (waits.wait == NONE)
    waits.work_ns[waits.queued] = calls.usual_ns[waits.queued]
    waits.counts["launches blocked by a full queue"] = int(waits.queued.sum())
