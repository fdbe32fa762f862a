"""What runs inside one launch of a CUDA graph: which kernel of a branch waits for which other.

In: device tasks of one rank. Out: edges between tasks of one launch, and what is in doubt. The
dependencies of a graph are not recorded. A branch whose kernel starts when one of another branch
ends, in nearly every launch of that graph, waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from foretrace.graph.infer.events import Events
    from foretrace.graph.infer.tasks.device_tasks import DeviceTasks

    Ints = NDArray[np.int64]

TOGETHER_NS = 5_000
"""A kernel that starts so little after another one ended may have waited for it."""
SLACK_NS = 1_000
"""Timestamps of one device agree no better."""
NEARLY_ALL = 0.9
"""Share of a graph's launches in which a dependency must show."""


class GraphBranches(NamedTuple):
    """Edges within launches of graphs, and tasks whose delay after the launch nothing explains.

    ``late`` tasks begin a branch ``late_ns`` after the first task of their launch.
    """

    src: Ints
    dst: Ints
    lag_ns: Ints
    late: Ints
    late_ns: Ints


def count_together(devices: DeviceTasks) -> Ints:
    """Return per device task how many its call launched: several where it launched a graph."""
    count = np.bincount(devices.launching, minlength=int(devices.launch.max(initial=0)) + 1)
    return np.where(devices.launch >= 0, count[devices.launch], 0)


def find_graph_branches(events: Events, devices: DeviceTasks) -> GraphBranches:
    """Find what the branches of every graph that runs on several streams wait for."""
    edges: list[Ints] = []
    late: list[Ints] = []
    for launches in _list_graphs(events, devices):
        start, end = devices.start_ns[launches], devices.end_ns[launches]
        lane = devices.lane[launches[0]]
        for node in range(len(lane)):
            follows = node > 0 and lane[node - 1] == lane[node]
            free = end[:, node - 1] + TOGETHER_NS if follows else start.min(axis=1) + TOGETHER_NS
            waited = start[:, node] > free
            if waited.mean() <= 1 - NEARLY_ALL:
                continue
            source = _find_source(start[:, node], end, np.flatnonzero(lane != lane[node]), waited)
            lag = start[:, node] - (end[:, source] if source >= 0 else start.min(axis=1))
            usual = np.full(len(launches), max(int(np.median(lag[waited])), 0))
            if source >= 0:
                edges.append(np.stack([launches[:, source], launches[:, node], usual]))
            elif not follows:
                late.append(np.stack([launches[:, node], usual]))
    none = np.empty((3, 0), np.int64)
    src, dst, lag = np.concatenate([none, *edges], axis=1)
    return GraphBranches(src, dst, lag, *np.concatenate([none[:2], *late], axis=1))


def _list_graphs(events: Events, devices: DeviceTasks) -> Iterator[Ints]:
    """Yield per graph that runs on several streams its tasks, [launch, node].

    Launches that put the same names on the same streams are of the same graph. The nodes of a
    stream stand together, in order.
    """
    members = np.flatnonzero(count_together(devices) > 1)
    members = members[np.argsort(devices.launch[members], kind="stable")]
    first = np.flatnonzero(np.diff(devices.launch[members], prepend=-1))
    name = events.name[devices.event].astype(np.int64)
    alike: dict[bytes, list[Ints]] = {}
    for tasks in np.split(members, first[1:]) if len(members) else []:
        if devices.lane[tasks[0]] != devices.lane[tasks[-1]]:
            signature = np.concatenate([devices.lane[tasks], name[tasks]]).tobytes()
            alike.setdefault(signature, []).append(tasks)
    for launches in alike.values():
        yield np.stack(launches)


def _find_source(start: Ints, end: Ints, others: Ints, waited: NDArray[np.bool_]) -> int:
    """Return which of the *other* nodes always ends just before a node starts; −1: none does.

    It never ends later, and in nearly all launches in which the node *waited* nothing else delays.
    """
    lag = start[:, None] - end[:, others]
    fits = (lag >= -SLACK_NS).all(axis=0)
    explains = (np.abs(lag) <= TOGETHER_NS)[waited].mean(axis=0) * fits
    if not len(others) or explains.max() < NEARLY_ALL:
        return -1
    best = np.flatnonzero(explains == explains.max())
    return int(others[best[np.argmin(np.ptp(lag[:, best], axis=0) + lag[0, best])]])
