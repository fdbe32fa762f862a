"""A graph is launched into one stream, and all of its branches are work of that stream.

In: host and device tasks of one rank. Out: who waits for the branches that run on other streams:
what is launched next into that stream, and calls that wait for the stream.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.graph.infer.cuda_graphs.graph_branches import TOGETHER_NS
from foretrace.graph.infer.tasks.api_calls import SLACK_NS, STREAM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from foretrace.graph.infer.tasks.api_calls import Waits
    from foretrace.graph.infer.tasks.device_tasks import DeviceTasks
    from foretrace.graph.infer.tasks.host_tasks import HostTasks

    Ints = NDArray[np.int64]


class Launch(NamedTuple):
    """One launch into a stream: its call, and its first and last task on every stream it uses."""

    call: int
    heads: Ints
    tails: Ints


def list_launches_with_graphs(
    devices: DeviceTasks, host: HostTasks, among: Ints
) -> dict[int, list[Launch]]:
    """Return, per stream into which graphs of several streams are launched, its launches in order.

    Only launches of the tasks *among*. A graph's stream is the one on which it begins.
    """
    tasks = among[devices.launch[among] >= 0]
    tasks = tasks[np.lexsort((tasks, devices.launch[tasks]))]
    first = np.flatnonzero(np.diff(devices.launch[tasks], prepend=-1))
    calls_on = np.bincount(
        devices.lane[tasks[_begins(devices.launch[tasks], devices.lane[tasks])]],
        minlength=devices.lanes,
    )
    on_lane: dict[int, list[Launch]] = {}
    with_graphs = set()
    for mine in np.split(tasks, first[1:]) if len(tasks) else []:
        lane = devices.lane[mine]
        head = np.flatnonzero(np.diff(lane, prepend=-1))
        heads, tails = mine[head], mine[np.append(head[1:], len(mine)) - 1]
        main = _find_main_lane(devices, heads, calls_on)
        launch = Launch(int(devices.launch[mine[0]]), heads, tails)
        on_lane.setdefault(main, []).append(launch)
        if len(heads) > 1:
            with_graphs.add(main)
    return {
        lane: sorted(on_lane[lane], key=lambda launch: int(host.start_ns[launch.call]))
        for lane in sorted(with_graphs)
    }


def _begins(*columns: Ints) -> NDArray[np.bool_]:
    """Tell which rows begin a run of equal rows."""
    changes = [np.diff(column, prepend=-1) != 0 for column in columns]
    return np.logical_or.reduce(changes)


def _find_main_lane(devices: DeviceTasks, heads: Ints, calls_on: Ints) -> int:
    """Return the stream on which a launch begins; of several, that of most launches."""
    if len(heads) == 1:
        return int(devices.lane[heads[0]])
    start = devices.start_ns[heads]
    early = heads[start <= start.min() + TOGETHER_NS]
    early = early[np.argsort(devices.start_ns[early], kind="stable")]
    return int(devices.lane[early[np.argmax(calls_on[devices.lane[early]])]])


def pair_launches(devices: DeviceTasks, launches: list[Launch]) -> Iterator[tuple[int, int, int]]:
    """Yield source, destination and shift between consecutive launches into one stream.

    The last launch of the window comes before the first one, a repetition later. Pairs that the
    recording contradicts are left out, and so are tasks of the same stream: they are in order.
    """
    for before, after, shift in [
        *((a, b, 0) for a, b in pairwise(launches)),
        (launches[-1], launches[0], 1),
    ]:
        reached = devices.end_ns[before.tails].max()
        if shift or reached <= devices.start_ns[after.heads].min() + SLACK_NS:
            for tail in before.tails.tolist():
                for head in after.heads.tolist():
                    if devices.lane[tail] != devices.lane[head]:
                        yield tail, head, shift


def find_late_returns(
    devices: DeviceTasks, host: HostTasks, waits: Waits, lane: int, launches: list[Launch]
) -> Iterator[tuple[int, int]]:
    """Yield branches of a graph and the calls that wait for the stream it was launched into."""
    called = host.start_ns[[launch.call for launch in launches]]
    for call in np.flatnonzero((waits.wait == STREAM) & (waits.wait_lane == lane)).tolist():
        slot = int(np.searchsorted(called, host.start_ns[call])) - 1
        if slot < 0:
            continue
        tails = launches[slot].tails
        tails = tails[devices.lane[tails] != lane]
        if (devices.end_ns[tails] <= host.end_ns[call] + SLACK_NS).all():
            yield from ((tail, call) for tail in tails.tolist())


def measure_returns_from_branches(devices: DeviceTasks, host: HostTasks, waits: Waits) -> None:
    """Let calls that waited for a graph's stream return after the last of its branches."""
    everything = np.arange(len(devices))
    for lane, launches in list_launches_with_graphs(devices, host, everything).items():
        for tail, call in find_late_returns(devices, host, waits, lane, launches):
            late = int(host.end_ns[call] - devices.end_ns[tail])
            waits.return_ns[call] = min(int(waits.return_ns[call]), max(late, 0))
