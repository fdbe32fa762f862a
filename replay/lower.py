"""Graph to program: symbolic waits and the launch queue become edges, shared things resources.

Everything here is worked out on the edited graph, so that an inserted kernel is waited for and
counted, and a removed one is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit

from foretrace.graph.model import EDGE_KINDS, WAITS
from foretrace.replay.contests import Columns, codes_of, columns_of, resources
from foretrace.replay.program import END_END, END_START, START_START, Program

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    """Calls and the device tasks they launch, in host order (recorded start, then row)."""

    call: Longs
    task: Longs
    lane: Longs

    def on(self, lane: int) -> _Launches:
        """Return those of one stream."""
        here = self.lane == lane
        return _Launches(self.call[here], self.task[here], self.lane[here])


def lower(graph: Graph, repetitions: int) -> Program:
    """Return the program of *repetitions* of the window of *graph*, with every wait resolved."""
    columns = columns_of(graph)
    edges = _edges(graph, columns)
    launched = edges.kind == _LAUNCH
    resource, holds = resources(graph, columns, edges.src[launched], edges.dst[launched])
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
    )


def _edges(graph: Graph, tasks: Columns) -> _Edges:
    edges = graph.edges
    recorded = _Edges(
        src=edges["src"].to_numpy(np.int64),
        dst=edges["dst"].to_numpy(np.int64),
        lag_ns=edges["lag_ns"].to_numpy(np.int64),
        shift=edges["shift"].to_numpy(np.int64),
        kind=codes_of(edges["kind"], tuple(_KINDS)),
    )
    launches = _launches(recorded, tasks)
    parts = [recorded, _own_waits(recorded, tasks), *_symbolic_waits(graph, launches, tasks)]
    depth = graph.platform.queue_depth
    if graph.rules.launch_queue and depth is not None:
        lanes = np.unique(launches.lane).tolist()
        parts.extend(_queue(launches.on(lane), depth) for lane in lanes)
    return _Edges(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _launches(edges: _Edges, tasks: Columns) -> _Launches:
    launch = edges.kind == _LAUNCH
    call, task = edges.src[launch], edges.dst[launch]
    order = np.lexsort((task, call, tasks.start_ns[call]))
    call, task = call[order], task[order]
    return _Launches(call, task, tasks.lane[task])


def _own_waits(edges: _Edges, tasks: Columns) -> _Edges:
    """Let a blocking call return after the work it launched."""
    own = (edges.kind == _LAUNCH) & (tasks.wait[edges.src] == WAITS.index("own"))
    call, task = edges.src[own], edges.dst[own]
    return _made(task, call, tasks.return_ns[call], 0, _RETURN)


def _made(src: Longs, dst: Longs, lag_ns: Longs | int, shift: Longs | int, kind: int) -> _Edges:
    values = (src, dst, lag_ns, shift, kind)
    return _Edges(*(np.broadcast_to(np.asarray(v, np.int64), len(src)) for v in values))


def _symbolic_waits(graph: Graph, launches: _Launches, tasks: Columns) -> Iterator[_Edges]:
    """Let a synchronisation return after the last task launched before it on what it waits for.

    Where that was launched in the repetition before, the edge comes from there.
    """
    of_stream, of_device = (
        np.flatnonzero(tasks.wait == WAITS.index(scope)) for scope in ("stream", "device")
    )
    rank = graph.lanes["rank"].to_numpy(np.int64)
    for lane in np.unique(launches.lane).tolist():
        launched = launches.on(lane)
        for calls in (
            of_stream[tasks.wait_lane[of_stream] == lane],
            of_device[tasks.rank[of_device] == rank[lane]],
        ):
            slot = _last_before(tasks.start_ns, launched.call, calls)
            shift = (slot < 0).astype(np.int64)
            yield _made(launched.task[slot], calls, tasks.return_ns[calls], shift, _RETURN)


@njit(cache=True)
def _last_before(start: Longs, call: Longs, here: Longs) -> Longs:
    """Index of the last of *call* that comes before each of *here* in host order; −1: none."""
    found = np.empty(len(here), np.int64)
    for i in range(len(here)):
        row, low, high = here[i], 0, len(call)
        while low < high:
            middle = (low + high) // 2
            other = call[middle]
            if start[other] < start[row] or (start[other] == start[row] and other <= row):
                low = middle + 1
            else:
                high = middle
        found[i] = low - 1
    return found


def _queue(launches: _Launches, depth: int) -> _Edges:
    """Let a launch wait for the start of the task *depth* launches before it on its stream.

    A call that launches more than that at once, such as a CUDA graph's, does not wait for itself.
    """
    count = len(launches.task)
    before = np.arange(count) - depth
    source, shift = before % count, -(before // count)
    is_other = (launches.call[source] != launches.call) | (shift > 0)
    source, call, shift = source[is_other], launches.call[is_other], shift[is_other]
    return _made(launches.task[source], call, 0, shift, _QUEUE)
