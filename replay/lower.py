"""Graph to program: symbolic waits and the launch queue become edges, shared things resources.

Everything here is worked out on the edited graph, so that an inserted kernel is waited for and
counted, and a removed one is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.graph.host import matching_names
from foretrace.graph.model import EDGE_KINDS
from foretrace.replay.program import END_END, END_START, START_START, Program

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.model import Graph

    Ints = NDArray[np.int64]

_KINDS = list(EDGE_KINDS)
_ANCHOR = np.array([{"launch": START_START, "return": END_END}.get(k, END_START) for k in _KINDS])
_COPIES = ("DtoH", "HtoD")


class Launches(NamedTuple):
    """The launches of one stream in the order the host makes them."""

    call: Ints
    task: Ints


@dataclass(frozen=True)
class Template:
    """Edges of one repetition; ``shift`` says how many repetitions later ``dst`` lies."""

    src: Ints
    dst: Ints
    lag_ns: Ints
    shift: Ints
    kind: Ints
    anchor: Ints
    resource: Ints
    holds: NDArray[np.bool_]


def lower(graph: Graph, repetitions: int) -> Program:
    """Unroll *graph* into *repetitions* of its window, with every wait resolved."""
    template = _template(graph)
    tasks = len(graph.tasks)
    offset = np.repeat(np.arange(repetitions) * tasks, len(template.src))
    into = offset + np.tile(template.shift * tasks, repetitions)
    dst = np.tile(template.dst, repetitions) + into
    keep = dst < repetitions * tasks

    def all_repetitions(values: Ints, dtype: type) -> NDArray[np.generic]:
        return np.tile(values, repetitions)[keep].astype(dtype)

    return Program(
        work_ns=np.tile(graph.tasks["work_ns"].to_numpy(np.int64), repetitions),
        lane=np.tile(graph.tasks["lane"].to_numpy(np.int32), repetitions),
        resource=np.tile(template.resource, repetitions).astype(np.int32),
        holds=np.tile(template.holds, repetitions),
        src=(np.tile(template.src, repetitions) + offset)[keep].astype(np.int32),
        dst=dst[keep].astype(np.int32),
        lag_ns=all_repetitions(template.lag_ns, np.int64),
        anchor=all_repetitions(template.anchor, np.int8),
        kind=all_repetitions(template.kind, np.int8),
        tasks=tasks,
        repetitions=repetitions,
        release_ns=np.zeros(tasks * repetitions, np.int64),
    )


def _template(graph: Graph) -> Template:
    edges = graph.edges
    kind = edges["kind"].cat.set_categories(_KINDS).cat.codes.to_numpy().astype(np.int64)
    columns = [edges[c].to_numpy(np.int64) for c in ("src", "dst", "lag_ns", "shift")]
    parts = [(*columns, kind)]
    launches = _launches(graph, kind)
    parts.append(_own_waits(graph, kind))
    parts.extend(_symbolic_waits(graph, launches))
    if graph.rules.launch_queue and graph.platform.queue_depth is not None:
        parts.extend(_queue(launch, graph.platform.queue_depth) for launch in launches.values())
    src, dst, lag, shift, kinds = (
        np.concatenate(p).astype(np.int64) for p in zip(*parts, strict=True)
    )
    resource, holds = _resources(graph, kind)
    anchor = np.where(kinds == _KINDS.index("queue"), START_START, _ANCHOR[kinds])
    return Template(src, dst, lag, shift, kinds, anchor, resource, holds)


def _launches(graph: Graph, kind: Ints) -> dict[int, Launches]:
    """Per stream: calls and device tasks in host order (recorded start, then row)."""
    launch = kind == _KINDS.index("launch")
    call = graph.edges["src"].to_numpy(np.int64)[launch]
    task = graph.edges["dst"].to_numpy(np.int64)[launch]
    lane = graph.tasks["lane"].to_numpy()[task]
    order = np.lexsort((task, call, graph.tasks["start_ns"].to_numpy()[call]))
    call, task, lane = call[order], task[order], lane[order]
    return {
        int(value): Launches(call[lane == value], task[lane == value]) for value in np.unique(lane)
    }


def _edge_part(src: Ints, dst: Ints, lag: Ints, shift: Ints, kind: str) -> tuple[Ints, ...]:
    return src, dst, lag, shift, np.full(len(src), _KINDS.index(kind))


def _own_waits(graph: Graph, kind: Ints) -> tuple[Ints, ...]:
    """A blocking call returns after the work it launched."""
    launch = kind == _KINDS.index("launch")
    call = graph.edges["src"].to_numpy(np.int64)[launch]
    task = graph.edges["dst"].to_numpy(np.int64)[launch]
    own = (graph.tasks["wait"] == "own").to_numpy()[call]
    call, task = call[own], task[own]
    lag = graph.tasks["return_ns"].to_numpy(np.int64)[call]
    return _edge_part(task, call, lag, np.zeros(len(call), np.int64), "return")


def _symbolic_waits(graph: Graph, launches: dict[int, Launches]) -> list[tuple[Ints, ...]]:
    """A synchronisation returns after the last task launched before it on what it waits for.

    Where that was launched in the repetition before, the edge comes from there.
    """
    tasks = graph.tasks
    wait = tasks["wait"].to_numpy(dtype=str)
    start = tasks["start_ns"].to_numpy()
    rank = graph.lanes["rank"].to_numpy()
    parts = []
    for scope in ("stream", "device"):
        calls = np.flatnonzero(wait == scope)
        for lane, launch in launches.items():
            if scope == "stream":
                here = calls[tasks["wait_lane"].to_numpy()[calls] == lane]
            else:
                here = calls[rank[tasks["lane"].to_numpy()[calls]] == rank[lane]]
            slot = _position(start, launch.call, here)
            lag = tasks["return_ns"].to_numpy(np.int64)[here]
            parts.append(
                _edge_part(launch.task[slot], here, lag, (slot < 0).astype(np.int64), "return")
            )
    return parts


def _position(start: Ints, call: Ints, here: Ints) -> Ints:
    """Index of the last of *call* that comes before each of *here* in host order; −1: none."""
    slot = np.searchsorted(start[call], start[here], side="right") - 1
    for index, row in enumerate(here):
        at = slot[index]
        while at >= 0 and start[call[at]] == start[row] and call[at] > row:
            at -= 1
        slot[index] = at
    return slot


def _queue(launch: Launches, depth: int) -> tuple[Ints, ...]:
    """A launch waits for the start of the task *depth* launches before it on its stream."""
    count = len(launch.task)
    before = np.arange(count) - depth
    shift = -(before // count)
    return _edge_part(
        launch.task[before % count], launch.call, np.zeros(count, np.int64), shift, "queue"
    )


def _resources(graph: Graph, kind: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """Number the resources that tasks of different lanes compete for, and who occupies them."""
    resource = np.full(len(graph.tasks), -1, np.int64)
    holds = np.zeros(len(graph.tasks), bool)
    used = 0
    for users, holders in (*_locks(graph, kind), *_engines(graph), *_saturated(graph)):
        if holders.any() and len(np.unique(graph.tasks["lane"].to_numpy()[users])) > 1:
            resource[users] = used
            holds[holders] = True
            used += 1
    return resource, holds


def _locks(graph: Graph, kind: Ints) -> list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """Blocking downloads hold their process' driver lock; launches and copies wait for it."""
    if not graph.rules.driver_lock:
        return []
    tasks = graph.tasks
    launch = np.flatnonzero(kind == _KINDS.index("launch"))
    copies = np.zeros(len(tasks), bool)
    download = matching_names(tasks["name"], "DtoH")
    call, task = (graph.edges[c].to_numpy(np.int64)[launch] for c in ("src", "dst"))
    copies[call[download[task]]] = True
    lock = tasks["lock"].to_numpy()
    launches = (tasks["kind"] == "launch").to_numpy()
    blocking = copies & (tasks["wait"] == "own").to_numpy()
    holders = (lock == 2) | ((lock < 0) & blocking)  # noqa: PLR2004
    users = holders | (lock == 1) | ((lock < 0) & launches)
    rank = graph.lanes["rank"].to_numpy()[tasks["lane"].to_numpy()]
    return [(users & (rank == value), holders & (rank == value)) for value in np.unique(rank)]


def _engines(graph: Graph) -> list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """A device copies one thing at a time in each direction."""
    if not graph.rules.copy_engines:
        return []
    copies = (graph.tasks["kind"] == "memcpy").to_numpy()
    found = []
    for direction in _COPIES:
        one_way = copies & matching_names(graph.tasks["name"], direction)
        found.extend((one_way & here, one_way & here) for here in _per_device(graph))
    return found


def _saturated(graph: Graph) -> list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """While a kernel fills the device, kernels of other streams wait for it to drain."""
    if not graph.rules.sm_contention:
        return []
    kernels = (graph.tasks["kind"] == "kernel").to_numpy()
    full = kernels & (np.nan_to_num(graph.tasks["fill"].to_numpy(), nan=0) >= 1)
    return [(kernels & here, full & here) for here in _per_device(graph)]


def _per_device(graph: Graph) -> list[NDArray[np.bool_]]:
    rank, device = (graph.lanes[c].to_numpy(np.int64) for c in ("rank", "device"))
    key = np.where(device >= 0, rank * 1_000 + device, -1)
    of_task = key[graph.tasks["lane"].to_numpy()]
    return [of_task == value for value in np.unique(key[key >= 0])]
