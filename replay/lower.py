"""Graph to program: symbolic waits and the launch queue become edges, shared things resources.

Everything here is worked out on the edited graph, so that an inserted kernel is waited for and
counted, and a removed one is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit

from foretrace.graph.model import EDGE_KINDS, WAITS
from foretrace.replaying.engine.program import END_END, END_START, START_START, Program
from foretrace.replaying.exclusive_resources import (
    Columns,
    assign_resources,
    match_pairs,
    read_codes,
    read_columns,
)
from foretrace.replaying.link_sharing import find_sharing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.model import Graph

    Longs = NDArray[np.int64]

_KINDS = list(EDGE_KINDS)
_LAUNCH, _RETURN, _QUEUE = (_KINDS.index(kind) for kind in ("launch", "return", "queue"))
_ANCHORS = {
    "launch": START_START,
    "collective": START_START,
    "queue": START_START,
    "return": END_END,
}
_ANCHOR = np.array([_ANCHORS.get(kind, END_START) for kind in _KINDS], np.int8)


class _Edges(NamedTuple):
    """Edges of one repetition; ``shift`` says how many repetitions later ``dst`` lies."""

    src: Longs
    dst: Longs
    lag_ns: Longs
    shift: Longs
    kind: Longs


class _Launches(NamedTuple):
    """Calls and what they launch, stream by stream in host order (recorded start, then row).

    Those on a lane are ``first[lane]`` to ``first[lane + 1]``.
    """

    call: Longs
    task: Longs
    lane: Longs
    first: Longs


def lower(graph: Graph, repetitions: int) -> Program:
    """Return the program of *repetitions* of the window of *graph*, with every wait resolved."""
    columns = read_columns(graph)
    edges = _collect_edges(graph, columns)
    launched = edges.kind == _LAUNCH
    resource, holds = assign_resources(graph, columns, edges.src[launched], edges.dst[launched])
    return Program(
        work_ns=columns.work_ns,
        lane=columns.lane.astype(np.int32),
        resource=resource,
        holds=holds,
        src=edges.src.astype(np.int32),
        dst=edges.dst.astype(np.int32),
        lag_ns=edges.lag_ns,
        anchor=_ANCHOR[edges.kind],
        kind=edges.kind.astype(np.int8),
        shift=edges.shift.astype(np.int32),
        release_ns=np.zeros(len(columns.lane), np.int64),
        repetitions=repetitions,
        sharing=find_sharing(graph, columns),
    )


def _collect_edges(graph: Graph, tasks: Columns) -> _Edges:
    edges = graph.edges
    recorded = _Edges(
        src=edges["src"].to_numpy(np.int64),
        dst=edges["dst"].to_numpy(np.int64),
        lag_ns=edges["lag_ns"].to_numpy(np.int64),
        shift=edges["shift"].to_numpy(np.int64),
        kind=read_codes(edges["kind"], tuple(_KINDS)),
    )
    launches = _sort_launches(recorded, tasks, len(graph.lanes))
    parts = [
        recorded,
        _resolve_own_waits(recorded, tasks),
        _resolve_symbolic_waits(graph, launches, tasks),
    ]
    depth = graph.platform.queue_depth
    if graph.rules.launch_queue and depth is not None:
        parts.append(_limit_queue(launches, depth))
    return _Edges(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _sort_launches(edges: _Edges, tasks: Columns, lanes: int) -> _Launches:
    launch = edges.kind == _LAUNCH
    call, task = edges.src[launch], edges.dst[launch]
    order = np.lexsort((task, call, tasks.start_ns[call], tasks.lane[task]))
    call, task = call[order], task[order]
    lane = tasks.lane[task]
    return _Launches(call, task, lane, np.searchsorted(lane, np.arange(lanes + 1)))


def _resolve_own_waits(edges: _Edges, tasks: Columns) -> _Edges:
    """Let a blocking call return after the work it launched."""
    own = (edges.kind == _LAUNCH) & (tasks.wait[edges.src] == WAITS.index("own"))
    call, task = edges.src[own], edges.dst[own]
    return _make_edges(task, call, tasks.return_ns[call], 0, _RETURN)


def _make_edges(
    src: Longs, dst: Longs, lag_ns: Longs | int, shift: Longs | int, kind: int
) -> _Edges:
    values = (src, dst, lag_ns, shift, kind)
    return _Edges(*(np.broadcast_to(np.asarray(v, np.int64), len(src)) for v in values))


def _resolve_symbolic_waits(graph: Graph, launches: _Launches, tasks: Columns) -> _Edges:
    """Let a synchronisation return after the last task launched before it on what it waits for.

    Where that was launched in the repetition before, the edge comes from there.
    """
    of_stream, of_device = (
        np.flatnonzero(tasks.wait == WAITS.index(scope)) for scope in ("stream", "device")
    )
    lanes = np.unique(launches.lane)
    by_stream, stream = match_pairs(tasks.wait_lane[of_stream], lanes)
    by_device, anyone = _match_devices(graph, tasks, of_device, lanes)
    calls = np.concatenate((of_stream[by_stream], of_device[by_device]))
    lane = lanes[np.concatenate((stream, anyone))]
    is_device = np.arange(len(calls)) >= len(stream)
    order = np.lexsort((calls, is_device, lane))
    calls, lane = calls[order], lane[order]
    slot = _find_last_before(tasks.start_ns, launches.call, launches.first, calls, lane)
    shift = slot < launches.first[lane]
    slot = np.where(shift, launches.first[lane + 1] - 1, slot)
    return _make_edges(launches.task[slot], calls, tasks.return_ns[calls], shift, _RETURN)


def _match_devices(graph: Graph, tasks: Columns, syncs: Longs, lanes: Longs) -> tuple[Longs, Longs]:
    """Return the pairs of a sync and a lane of the device that it waits for.

    Where it names none, by one of the lanes, it waits for all of its process.
    """
    rank, device = (graph.lanes[name].to_numpy(np.int64) for name in ("rank", "device"))
    sync, lane = match_pairs(tasks.rank[syncs], rank[lanes])
    named = tasks.wait_lane[syncs[sync]]
    awaited = (named < 0) | (device[named] == device[lanes[lane]])
    return sync[awaited], lane[awaited]


@njit(cache=True)
def _find_last_before(start: Longs, call: Longs, first: Longs, here: Longs, lane: Longs) -> Longs:
    """Index of the last call on *lane* that comes before each of *here* in host order.

    Where there is none, it is the one before the first on that lane.
    """
    last = np.empty(len(here), np.int64)
    for i in range(len(here)):
        row, low, high = here[i], first[lane[i]], first[lane[i] + 1]
        while low < high:
            middle = (low + high) // 2
            other = call[middle]
            if start[other] < start[row] or (start[other] == start[row] and other <= row):
                low = middle + 1
            else:
                high = middle
        last[i] = low - 1
    return last


def _limit_queue(launches: _Launches, depth: int) -> _Edges:
    """Let a launch wait for the start of what the call *depth* calls before it on its stream gave.

    A call that launches much at once, such as a CUDA graph's, takes one place of the queue.
    """
    is_first = np.ones(len(launches.call), bool)
    is_first[1:] = np.diff(launches.call) != 0
    is_first[1:] |= np.diff(launches.lane) != 0
    entry = np.flatnonzero(is_first)
    lane = launches.lane[entry]
    first = np.searchsorted(lane, lane)
    count = np.searchsorted(lane, lane, side="right") - first
    before = np.arange(len(entry)) - first - depth
    source, shift = entry[first + before % count], -(before // count)
    return _make_edges(launches.task[source], launches.call[entry], 0, shift, _QUEUE)
