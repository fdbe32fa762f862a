"""What tasks of different lanes compete for: driver lock, copy engines, multiprocessors.

In: the columns of an edited graph. Out: the resource of each task, and who occupies it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.graph.model import TASK_KINDS, WAITS
from foretrace.util.schema import matches

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    from numpy.typing import NDArray

    from foretrace.graph.model import Graph

    Longs = NDArray[np.int64]
    Flags = NDArray[np.bool_]

_DOWNLOAD, _UPLOAD = re.compile("DtoH"), re.compile("HtoD")
_BY_KIND, _TAKES, _HOLDS = -1, 1, 2
"""Values of the column ``lock``; 0 ignores it."""
DRAINED_NS = 10_000
"""A kernel that starts so little after one that filled the device may have waited for it."""


class _Contention(NamedTuple):
    """Tasks that need one shared thing, and those of them that occupy it."""

    users: Longs
    holders: Longs


@dataclass(frozen=True)
class Columns:
    """The task columns that lowering reads; categories as codes of the model's tuples."""

    lane: Longs
    start_ns: Longs
    duration_ns: Longs
    work_ns: Longs
    return_ns: Longs
    kind: Longs
    wait: Longs
    wait_lane: Longs
    lock: Longs
    fill: NDArray[np.float64]
    rank: Longs
    device: Longs


def read_columns(graph: Graph) -> Columns:
    """Return the task columns of *graph* as arrays."""
    tasks, lanes = graph.tasks, graph.lanes
    lane = tasks["lane"].to_numpy(np.int64)
    device = lanes["device"].to_numpy(np.int64)
    rank = lanes["rank"].to_numpy(np.int64)
    _, which = np.unique(np.stack([rank, device]), axis=1, return_inverse=True)
    return Columns(
        lane=lane,
        start_ns=tasks["start_ns"].to_numpy(np.int64),
        duration_ns=tasks["duration_ns"].to_numpy(np.int64),
        work_ns=tasks["work_ns"].to_numpy(np.int64),
        return_ns=tasks["return_ns"].to_numpy(np.int64),
        kind=read_codes(tasks["kind"], TASK_KINDS),
        wait=read_codes(tasks["wait"], WAITS),
        wait_lane=tasks["wait_lane"].to_numpy(np.int64),
        lock=tasks["lock"].to_numpy(np.int64),
        fill=np.nan_to_num(tasks["fill"].to_numpy(np.float64), nan=0),
        rank=rank[lane],
        device=np.where(device >= 0, which, -1)[lane],
    )


def read_codes(column: pd.Series, values: tuple[str, ...]) -> Longs:
    """Return the column as positions in *values*; −1 where it is missing."""
    positions = [values.index(each) if each in values else -1 for each in column.array.categories]
    return np.array([*positions, -1], np.int64)[column.array.codes]


def assign_resources(
    graph: Graph, tasks: Columns, call: Longs, task: Longs
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Give a number to what tasks of different lanes compete for, and tell who occupies it.

    Parameters
    ----------
    call, task
        What each call launches on a device.
    """
    resource = np.full(len(tasks.lane), -1, np.int32)
    holds = np.zeros(len(tasks.lane), bool)
    used = 0
    for users, holders in _find_contention(graph, tasks, call, task):
        if len(holders) and np.ptp(tasks.lane[users]) > 0:
            resource[users] = used
            holds[holders] = True
            used += 1
    return resource, holds


def _find_contention(
    graph: Graph, tasks: Columns, call: Longs, task: Longs
) -> Iterator[_Contention]:
    if graph.rules.driver_lock:
        yield from _contend_for_lock(graph, tasks, call, task)
    if graph.rules.copy_engines:
        yield from _contend_for_copy_engines(graph, tasks)
    if graph.rules.sm_contention:
        yield from _contend_for_full_devices(tasks)


def _contend_for_lock(
    graph: Graph, tasks: Columns, call: Longs, task: Longs
) -> Iterator[_Contention]:
    """Blocking downloads hold their process' driver lock; launches and copies wait for it."""
    downloads = np.zeros(len(tasks.lane), bool)
    downloads[call[matches(graph.tasks["name"], _DOWNLOAD)[task]]] = True
    by_kind = tasks.lock == _BY_KIND
    blocking = downloads & (tasks.wait == WAITS.index("own"))
    holds = (tasks.lock == _HOLDS) | (by_kind & blocking)
    takes = (tasks.lock == _TAKES) | (by_kind & (tasks.kind == TASK_KINDS.index("launch")))
    yield from _split_by_place(np.flatnonzero(holds | takes), holds, tasks.rank)


def _contend_for_copy_engines(graph: Graph, tasks: Columns) -> Iterator[_Contention]:
    """Let a device copy one thing at a time in each direction."""
    copies = np.flatnonzero(tasks.kind == TASK_KINDS.index("memcpy"))
    everyone = np.ones(len(tasks.lane), bool)
    for direction in (_DOWNLOAD, _UPLOAD):
        one_way = copies[matches(graph.tasks["name"], direction)[copies]]
        yield from _split_by_place(one_way, everyone, tasks.device)


def _contend_for_full_devices(tasks: Columns) -> Iterator[_Contention]:
    """Let kernels of other streams wait for one that fills the device to drain.

    Not those streams whose small kernels were seen to run beside: they find room.
    """
    kernels = np.flatnonzero(tasks.kind == TASK_KINDS.index("kernel"))
    fills = tasks.fill >= 1
    if fills[kernels].any() and np.ptp(tasks.lane[kernels]) > 0:
        kernels = kernels[fills[kernels] | ~_find_room(tasks, kernels, fills)]
    yield from _split_by_place(kernels, fills, tasks.device)


def _find_room(tasks: Columns, kernels: Longs, fills: Flags) -> Flags:
    """Tell which *kernels* are of a stream whose small ones mostly start beside a filling one.

    That is before half of it has passed; in its second half it may be about to drain.
    """
    full = kernels[fills[kernels]]
    full = full[np.argsort(tasks.start_ns[full], kind="stable")]
    beside, held = np.zeros((2, int(tasks.lane.max()) + 1), np.int64)
    for device in np.unique(tasks.device[full]):
        here = full[tasks.device[full] == device]
        small = kernels[(tasks.device[kernels] == device) & ~fills[kernels]]
        small = small[tasks.duration_ns[small] > 0]
        last = here[np.searchsorted(tasks.start_ns[here], tasks.start_ns[small], "right") - 1]
        passed = tasks.start_ns[small] - tasks.start_ns[last]
        others = (passed >= 0) & (tasks.lane[last] != tasks.lane[small])
        early = others & (2 * passed < tasks.duration_ns[last])
        np.add.at(beside, tasks.lane[small[early]], 1)
        ended = passed - tasks.duration_ns[last]
        np.add.at(held, tasks.lane[small[others & ~early & (ended < DRAINED_NS)]], 1)
    return (beside > held)[tasks.lane[kernels]]


def _split_by_place(users: Longs, holds: Flags, place: Longs) -> Iterator[_Contention]:
    """Split one kind of contention by where it takes place: a process or a device."""
    users = users[place[users] >= 0]
    users = users[np.argsort(place[users], kind="stable")]
    _, begin = np.unique(place[users], return_index=True)
    for mine in np.split(users, begin[1:]):
        yield _Contention(mine, mine[holds[mine]])


def match_pairs(one: Longs, other: Longs) -> tuple[Longs, Longs]:
    """Return the positions of all pairs of equal entries of *one* and *other*.

    >>> [column.tolist() for column in match_pairs(np.array([7, 5]), np.array([5, 7, 5]))]
    [[0, 1, 1], [1, 0, 2]]
    """
    order = np.argsort(other, kind="stable")
    low, high = (np.searchsorted(other[order], one, side=side) for side in ("left", "right"))
    count = high - low
    first = np.repeat(np.arange(len(one)), count)
    nth = np.arange(len(first)) - np.repeat(np.cumsum(count) - count, count)
    return first, order[np.repeat(low, count) + nth]
