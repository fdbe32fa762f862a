"""Which calls put work on a device, by their names.

In: events and host tasks of one rank. Out: flags, and the launches whose work is not recorded.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from foretrace.tracer.readers.links import is_launch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.infer.events import Events
    from foretrace.graph.infer.tasks.host_tasks import HostTasks

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

_FILL = re.compile(r"mem(ory)?(set|fill)|USMFill", re.IGNORECASE)
"""A fill of no bytes is a call without work; recordings are full of them."""
_CAPTURE = re.compile(r"Stream(Begin|End)Capture")
_BEGIN = re.compile("Begin")


def is_launch_task(events: Events, host: HostTasks) -> Flags:
    """Tell the calls that put a kernel or a copy on a device."""
    names = [is_launch(name) and not _FILL.search(name) for name in events.names]
    return host.is_call & np.array([*names, False])[events.name[host.event]]


def find_unanswered(events: Events, host: HostTasks, launching: Ints) -> Ints:
    """Return the launches that are not among *launching*: their work was not recorded.

    What is captured into a CUDA graph is not launched.
    """
    launches = np.flatnonzero(is_launch_task(events, host))
    launches = launches[~_is_captured(events, host, launches)]
    return launches[~np.isin(launches, launching)]


def _is_captured(events: Events, host: HostTasks, calls: Ints) -> Flags:
    """Tell which *calls* only record a CUDA graph: made between begin and end of a capture."""
    marks = np.flatnonzero(host.is_call & events.named(_CAPTURE, host.event))
    captured = np.zeros(len(calls), bool)
    if not len(marks):
        return captured
    change = np.where(events.named(_BEGIN, host.event[marks]), 1, -1)
    for thread in np.unique(host.thread[marks]).tolist():
        own = host.thread[marks] == thread
        depth = np.concatenate([[0], np.cumsum(change[own])])
        before = np.searchsorted(host.start_ns[marks[own]], host.start_ns[calls])
        captured |= (depth[before] > 0) & (host.thread[calls] == thread)
    return captured
