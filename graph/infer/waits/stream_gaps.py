"""What a device adds on its own: gaps between tasks, and latency of launches.

In: host and device tasks of one rank with blocked calls known. Out: estimates.
Nothing here is kept per task: a device lane copies no recorded start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretrace.graph.infer.cuda_graphs.graph_branches import count_together
from foretrace.graph.infer.tasks.device_tasks import KERNEL, MEMCPY, MEMSET
from foretrace.graph.infer.waits.stream_events import BACK_TO_BACK_NS
from foretrace.graph.model import DEVICE_KINDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.infer.events import Events
    from foretrace.graph.infer.tasks.api_calls import Waits
    from foretrace.graph.infer.tasks.device_tasks import DeviceTasks
    from foretrace.graph.infer.tasks.host_tasks import HostTasks
    from foretrace.graph.infer.waits.stream_events import StreamEdges

    Ints = NDArray[np.int64]

GAP_LIMIT_NS = 20_000
"""A longer pause between two queued tasks has another cause."""
GAP_PRIOR_NS, GAP_LEAST_NS, GAP_MOST_NS = 1_400, 900, 2_500
"""Of NVIDIA's devices: the mean gap between kernels in 40 public recordings, T4 to H100, is 1.4 us
in the middle one, 1.1 to 2.5 us in nine of ten. AMD's show none."""
CLOSEST = 0.05
"""Share of the pauses between kernels that may be shorter than a gap: clocks and overlap."""
DEFAULT_LATENCY_NS = 8_000
"""Where no launch ever met an idle stream."""
LATENCY_LIMIT_NS = 1_000_000
"""A later start has another cause than the launch."""
FEW, FAR_ABOVE, NOISE_NS = 0.1, 4, 10_000
"""Of launches, this share shows what is possible; those so many times as late, and some more, met
an obstacle."""
LARGE_COPY_BYTES = 64 * 1024
_KINDS = len(DEVICE_KINDS)
KERNEL_KIND = DEVICE_KINDS[KERNEL]
_SLOWER = {*DEVICE_KINDS} - {KERNEL_KIND, DEVICE_KINDS[MEMSET]}
"""Next to these the gap is longer than between kernels."""


def estimate_kernel_gaps(devices: DeviceTasks, host: HostTasks) -> dict[tuple[str, str], int]:
    """Mean pause between back-to-back tasks of one stream, by kind before and after, in ns.

    Only pairs count whose second task was launched well before the first one ended, while no
    other stream of the device was at work (where there are such pairs at all).
    """
    before = devices.before()
    later = np.flatnonzero((before >= 0) & (devices.launch >= 0))
    pause = devices.start_ns[later] - devices.end_ns[before[later]]
    waiting = host.end_ns[devices.launch[later]] + BACK_TO_BACK_NS < devices.end_ns[before[later]]
    keep = waiting & (pause >= 0) & (pause < GAP_LIMIT_NS)
    alone = ~_is_shared(devices)[later]
    keep &= alone if (keep & alone).any() else keep
    pair = _number_pairs(devices, before)[later[keep]]
    count = np.bincount(pair, minlength=_KINDS**2)
    total = np.bincount(pair, weights=pause[keep], minlength=_KINDS**2)
    return {
        (DEVICE_KINDS[each // _KINDS], DEVICE_KINDS[each % _KINDS]): int(total[each] / count[each])
        for each in np.flatnonzero(count).tolist()
    }


def assume_kernel_gap(
    devices: DeviceTasks, gaps: dict[tuple[str, str], int]
) -> tuple[float, float] | None:
    """Enter a prior for the gap between kernels into *gaps* where none was recorded.

    None was where every kernel was launched when the one before it had ended, or nearly. The gap is
    no longer than the pauses that were. Return the least and most that it may be, over the prior;
    ``None`` where the recording shows it.
    """
    if any(KERNEL_KIND in pair and not _SLOWER & {*pair} for pair in gaps):
        return None
    before = devices.before()
    later = np.flatnonzero((before >= 0) & (devices.kind == KERNEL))
    later = later[devices.kind[before[later]] == KERNEL]
    if not len(later):
        return None
    pause = devices.start_ns[later] - devices.end_ns[before[later]]
    longest = max(int(np.quantile(pause, CLOSEST)), 0)
    least, gap, most = (min(ns, longest) for ns in (GAP_LEAST_NS, GAP_PRIOR_NS, GAP_MOST_NS))
    if not gap:
        return None
    gaps[KERNEL_KIND, KERNEL_KIND] = gap
    return least / gap, most / gap


def _number_pairs(devices: DeviceTasks, before: Ints) -> Ints:
    """Return one number for the kinds of each task's predecessor and of the task."""
    pairs: Ints = devices.kind[before] * _KINDS + devices.kind
    return pairs


def _is_shared(devices: DeviceTasks) -> NDArray[np.bool_]:
    """Tell per task whether a kernel of another stream was running when it started."""
    shared = np.zeros(len(devices), bool)
    kernels = np.flatnonzero(devices.kind != MEMCPY)
    kernels = kernels[np.argsort(devices.start_ns[kernels], kind="stable")]
    for lane in np.unique(devices.lane[kernels]):
        others = kernels[devices.lane[kernels] != lane]
        if not len(others):
            continue
        mine = np.flatnonzero(devices.lane == lane)
        reached = np.maximum.accumulate(devices.end_ns[others])
        slot = np.searchsorted(devices.start_ns[others], devices.start_ns[mine]) - 1
        shared[mine] = (slot >= 0) & (reached[slot] > devices.start_ns[mine] - GAP_LIMIT_NS)
    return shared


def assign_stream_lags(devices: DeviceTasks, gaps: dict[tuple[str, str], int]) -> Ints:
    """Per device task: the gap after the task before it on its stream (0 for the first)."""
    fallback = int(np.median(list(gaps.values()))) if gaps else 0
    gap = [gaps.get((a, b), fallback) for a in DEVICE_KINDS for b in DEVICE_KINDS]
    before = devices.before()
    return np.where(before >= 0, np.array(gap, np.int64)[_number_pairs(devices, before)], 0)


def estimate_launch_lags(
    events: Events,
    devices: DeviceTasks,
    host: HostTasks,
    waits: Waits,
    gates: StreamEdges | None = None,
    *,
    from_start: bool,
) -> tuple[Ints, int]:
    """Per device task: call start to earliest start, and the usual of plain kernels, in ns.

    Estimated per class of work from launches that met an idle stream, were not blocked, and were
    not held back by one of the *gates*; where there are such, from those that had the device to
    themselves. With ``from_start`` off, the call's own length is added: the launch would happen at
    its end.
    """
    linked = devices.launch >= 0
    call = np.where(linked, devices.launch, 0)
    if not len(host):
        return np.full(len(devices), DEFAULT_LATENCY_NS, np.int64), DEFAULT_LATENCY_NS
    latency = devices.start_ns - host.start_ns[call]
    usable = _met_idle_stream(devices, host) & ~_is_gated(devices, host, gates)
    usable &= ~(waits.locked[call] | waits.queued[call])
    usable &= (latency >= 0) & (latency < LATENCY_LIMIT_NS)
    group = _classify_launches(events, devices)
    alone = ~_is_shared(devices)
    usual = {
        int(value): _find_usual_latency(latency[best if best.any() else some])
        for value in np.unique(group[usable])
        if (some := usable & (group == value)).any()
        for best in [some & alone]
    }
    overall = usual.get(_PLAIN, DEFAULT_LATENCY_NS)
    lags = np.full(len(devices), overall, np.int64)
    for value, lag in usual.items():
        lags[group == value] = lag
    if not from_start:
        lags = lags + np.where(linked, waits.work_ns[call], 0)
    return lags, overall


def _met_idle_stream(devices: DeviceTasks, host: HostTasks) -> NDArray[np.bool_]:
    """Tell which tasks were launched when their stream was done; of a graph, the first to start.

    Where several branches start together, all their streams must have been done: one of them is
    that into which the graph was launched, and no branch starts before it is.
    """
    before = devices.before()
    linked = devices.launch >= 0
    call = np.where(linked, devices.launch, 0)
    idle = (before < 0) | (devices.end_ns[before] < host.start_ns[call])
    first = np.full(len(host), np.iinfo(np.int64).max)
    np.minimum.at(first, call[linked], devices.start_ns[linked])
    is_first = linked & (devices.start_ns == first[call])
    held = np.zeros(len(host), bool)
    held[call[is_first & ~idle]] = True
    return is_first & ~held[call] & ~devices.is_repeated


def _is_gated(
    devices: DeviceTasks, host: HostTasks, gates: StreamEdges | None
) -> NDArray[np.bool_]:
    """Tell which tasks waited for another stream's work that was not done when they were launched.

    So do those behind a wait for something that cannot be told.
    """
    gated = np.zeros(len(devices), bool)
    if gates is not None:
        gated[gates.unknown] = True
        late = devices.end_ns[gates.src] > host.start_ns[devices.launch[gates.dst]]
        gated[gates.dst[late]] = True
    return gated


def _find_usual_latency(latency: Ints) -> int:
    """Return the median, without those which others held back in a way that was not recorded."""
    limit = FAR_ABOVE * np.quantile(latency, FEW) + NOISE_NS
    return int(np.median(latency[latency <= limit]))


_PLAIN, _FILL, _GRAPH = -1, -2, -3


def _classify_launches(events: Events, devices: DeviceTasks) -> Ints:
    """Tell apart copies by name and size, memory fills, whole graphs, and everything else."""
    size = np.nan_to_num(events.column("bytes")[devices.event], nan=0)
    name = events.name[devices.event].astype(np.int64)
    of_copy = 2 * name + (size > LARGE_COPY_BYTES)
    classes = np.where(devices.kind == MEMCPY, of_copy, _PLAIN)
    classes = np.where(devices.kind == MEMSET, _FILL, classes)
    return np.where(count_together(devices) > 1, _GRAPH, classes)
