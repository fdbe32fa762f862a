"""One rank of a recording in, everything that can be inferred about it out.

The order of the inferences stands here, and nowhere else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import GraphError
from foretrace.graph.infer.allocations import find_allocations
from foretrace.graph.infer.cuda_graphs.graph_branches import find_graph_branches
from foretrace.graph.infer.cuda_graphs.graph_launches import measure_returns_from_branches
from foretrace.graph.infer.events import select_events
from foretrace.graph.infer.loading.loader_pace import pace_window
from foretrace.graph.infer.loading.loader_workers import doubt_short_window, infer_loader_workers
from foretrace.graph.infer.loading.loaders import couple_units, find_marker_waits, find_units
from foretrace.graph.infer.modules.phases_modules import assign_modules, assign_phases
from foretrace.graph.infer.steps.common_steps import find_common_steps, intersect_spans
from foretrace.graph.infer.steps.earlier_work import repeat_earlier_work
from foretrace.graph.infer.steps.missing_work import advise, refuse_missing_work
from foretrace.graph.infer.steps.steps import find_steps
from foretrace.graph.infer.steps.window import choose_window, find_device_starts
from foretrace.graph.infer.tasks.device_tasks import collect_device_tasks
from foretrace.graph.infer.tasks.host_tasks import cut_host_tasks
from foretrace.graph.infer.tasks.launch_queue import is_nvidia
from foretrace.graph.infer.tasks.threads import infer_thread_roles
from foretrace.graph.infer.waits.stream_events import estimate_event_lag, find_event_edges
from foretrace.graph.infer.waits.stream_gaps import (
    assign_stream_lags,
    assume_kernel_gap,
    estimate_kernel_gaps,
    estimate_launch_lags,
)
from foretrace.graph.infer.waits.untraced_waits import find_untraced_waits, list_causes
from foretrace.graph.infer.waits.waits import split_waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from foretrace.graph.infer.cuda_graphs.graph_branches import GraphBranches
    from foretrace.graph.infer.events import Events
    from foretrace.graph.infer.loading.loader_workers import LoaderWorkers
    from foretrace.graph.infer.loading.loaders import Coupling, Loads, Units
    from foretrace.graph.infer.steps.steps import StepBounds
    from foretrace.graph.infer.steps.window import StepWindow
    from foretrace.graph.infer.tasks.api_calls import Waits
    from foretrace.graph.infer.tasks.device_tasks import DeviceTasks
    from foretrace.graph.infer.tasks.host_tasks import HostTasks
    from foretrace.graph.infer.tasks.threads import Threads
    from foretrace.graph.infer.waits.stream_events import StreamEdges
    from foretrace.graph.infer.waits.untraced_waits import UntracedWaits
    from foretrace.graph.model import Rules
    from foretrace.graph.state import Allocations
    from foretrace.tracer.trace import Trace

    Ints = NDArray[np.int64]

ENGINE = re.compile(r"^autograd::engine")
"""Operators under which autograd runs a node of the backward pass."""


@dataclass(frozen=True)
class InferredRank:
    """Everything about one rank; rows are host and device tasks of the whole recording.

    ``markers`` are host tasks of length 0 at which steps begin, in order. ``phase`` and ``module``
    are codes per host task; ``stream_lags`` and ``launch_lags`` ns per device task.
    """

    number: int
    events: Events
    host: HostTasks
    devices: DeviceTasks
    threads: Threads
    waits: Waits
    steps: StepBounds | None
    window: StepWindow
    markers: Ints
    gaps: dict[tuple[str, str], int]
    gap_range: tuple[float, float] | None
    stream_lags: Ints
    launch_lags: Ints
    plain_latency: int
    event_edges: StreamEdges | None
    event_lag: int
    branches: GraphBranches | None
    untraced: UntracedWaits | None
    couplings: list[Coupling]
    loads: Loads | None
    workers: LoaderWorkers | None
    phase: Ints
    module: Ints
    module_names: list[str]
    allocations: Allocations | None

    @property
    def waits_at_marker(self) -> NDArray[np.bool_]:
        """Per load: whether its consumer is the marker at which a step begins."""
        assert self.loads is not None
        consumer = self.loads.consumer
        return self.host.start_ns[consumer] == self.host.end_ns[consumer]


def infer_ranks(
    trace: Trace, numbers: Sequence[int], rules: Rules, step_pattern: str | None
) -> list[InferredRank]:
    """Infer several ranks of *trace*, all with the same steps as their window.

    Raises
    ------
    GraphError
        A rank has neither host nor device work, *step_pattern* matches too little, or no step was
        recorded on all ranks.
    """
    commons = find_common_steps(
        [find_steps(select_events(trace.events, number), step_pattern) for number in numbers]
    )
    ranks = [
        infer_rank(trace, number, rules, step_pattern, common)
        for number, common in zip(numbers, commons, strict=True)
    ]
    spans = [common for common in commons if common is not None]
    kept = [rank.window.kept for rank in ranks]
    if not spans:
        return ranks
    return [
        rank if span == rank.window.kept else _keep_steps(rank, span)
        for rank, span in zip(ranks, intersect_spans(spans, kept), strict=True)
    ]


def _keep_steps(rank: InferredRank, span: tuple[int, int]) -> InferredRank:
    """Return *rank* with the steps in *span* as its window."""
    window = choose_window(rank.steps, rank.host, rank.devices, span, 0, complete_only=False)
    if rank.steps and rank.workers and rank.workers.pace_ns:
        starts, pace = rank.steps.starts_ns, rank.workers.pace_ns
        window = pace_window(window, starts, rank.host, rank.devices, pace)
    return replace(rank, window=window)


def infer_rank(
    trace: Trace,
    number: int,
    rules: Rules,
    step_pattern: str | None,
    common: tuple[int, int] | None = None,
) -> InferredRank:
    """Infer what rank *number* of *trace* did and what its tasks waited for.

    Of several ranks, *common* are the first and one past the last of its steps that all recorded.

    Raises
    ------
    GraphError
        The rank has neither host nor device work, or *step_pattern* matches too little.
    """
    events = select_events(trace.events, number if len(trace.meta.ranks) > 1 else None)
    steps = find_steps(events, step_pattern)
    host = cut_host_tasks(events, steps.rows if steps else np.empty(0, np.int64))
    devices = repeat_earlier_work(events, host, collect_device_tasks(events, host), steps)
    if not len(host) and not len(devices):
        raise GraphError(
            f"{trace.meta.source}: rank {number} has neither host nor device work; "
            + advise(trace.meta)
        )
    refuse_missing_work(events, host, devices, trace.meta)
    main = steps.thread if steps else _find_busiest_thread(events, host, devices)
    markers = _find_markers(host, steps)
    stages = find_units(events, host) if rules.loader_edges else []
    threads = _infer_threads(host, devices, main, stages, rules)
    waits = split_waiting(events, host, devices, rules, trace.meta.devices)
    if rules.graph_branches:
        measure_returns_from_branches(devices, host, waits)
    gaps = estimate_kernel_gaps(devices, host) if rules.kernel_gap else {}
    makers = trace.meta.devices
    has_usual_gap = rules.kernel_gap and makers and is_nvidia(events, host, makers)
    gap_range = assume_kernel_gap(devices, gaps) if has_usual_gap else None
    from_start = rules.launch_from_start
    gates = find_event_edges(events, devices, host, threads.group) if rules.event_edges else None
    latency, plain_latency = estimate_launch_lags(
        events, devices, host, waits, gates, from_start=from_start
    )
    branches = find_graph_branches(events, devices) if rules.graph_branches else None
    if branches is not None:
        latency[branches.late] += branches.late_ns
    stream_lags = assign_stream_lags(devices, gaps)
    event_lag = estimate_event_lag(gates, devices, host, latency) if gates else 0
    untraced = None
    if rules.untraced_waits:
        causes = list_causes(devices, host, gates, event_lag, branches, stream_lags)
        untraced = find_untraced_waits(events, devices, host, waits, latency, stream_lags, causes)
    module, module_names = assign_modules(events, host)
    phase = assign_phases(events, host, threads)
    seen = rules.loader_edges and not stages
    workers = _infer_workers(trace, events, host, devices, steps) if seen else None
    cycle = workers.cycle if workers else 1
    window = choose_window(steps, host, devices, common, cycle=cycle)
    if steps and workers and workers.pace_ns:
        window = pace_window(window, steps.starts_ns, host, devices, workers.pace_ns)
    return InferredRank(
        number=number,
        events=events,
        host=host,
        devices=devices,
        threads=threads,
        waits=waits,
        steps=steps,
        window=window,
        markers=markers,
        gaps=gaps,
        gap_range=gap_range,
        stream_lags=stream_lags,
        launch_lags=latency,
        plain_latency=plain_latency,
        event_edges=gates,
        event_lag=event_lag,
        branches=branches,
        untraced=untraced,
        couplings=couple_units(host, stages, markers),
        loads=_find_loads(events, host, steps, markers, workers) if seen else None,
        workers=workers,
        phase=phase,
        module=module,
        module_names=module_names,
        allocations=find_allocations(events, host, phase, (module, module_names), trace.meta),
    )


def _find_busiest_thread(events: Events, host: HostTasks, devices: DeviceTasks) -> int:
    """Return the thread with most launches; with most tasks where nothing was launched.

    One that autograd runs its nodes on works for the training loop, unless there is no other.
    """
    linked = devices.launching
    threads, count = np.unique(
        host.thread[linked] if len(linked) else host.thread, return_counts=True
    )
    engine = np.unique(events.thread[events.is_kind("op") & events.named(ENGINE)])
    if not (serves := np.isin(threads, engine)).all():
        count = np.where(serves, 0, count)
    return int(threads[np.argmax(count)]) if len(threads) else -1


def _find_markers(host: HostTasks, steps: StepBounds | None) -> Ints:
    """Host tasks of length 0 at which steps begin, in order."""
    if steps is None:
        return np.empty(0, np.int64)
    return np.flatnonzero(np.isin(host.event, steps.rows) & (host.start_ns == host.end_ns))


def _infer_threads(
    host: HostTasks, devices: DeviceTasks, main: int, stages: list[Units], rules: Rules
) -> Threads:
    loaders = tuple(dict.fromkeys(int(host.thread[stage.first[0]]) for stage in stages))
    launches = np.zeros(len(host), bool)
    launches[devices.launching] = True
    return infer_thread_roles(host, main, loaders, launches, fork_join=rules.fork_join)


def _infer_workers(
    trace: Trace,
    events: Events,
    host: HostTasks,
    devices: DeviceTasks,
    steps: StepBounds | None,
) -> LoaderWorkers | None:
    """Infer what loader workers deliver, with what so few steps leave open of it."""
    counted = (trace.meta.loader or {}).get("workers") or None
    workers = infer_loader_workers(events, host, steps, counted)
    if steps is None or workers is None:
        return workers
    device_starts = find_device_starts(steps.starts_ns, host, devices)
    return doubt_short_window(workers, steps, device_starts, counted)


def _find_loads(
    events: Events,
    host: HostTasks,
    steps: StepBounds | None,
    markers: Ints,
    workers: LoaderWorkers | None,
) -> Loads | None:
    """Find the batches the main thread waited for: in a fetch, else between step ranges."""
    if steps is None or steps.single:
        return None
    if workers is not None or steps.source != "step range":
        return workers.loads if workers else None
    rows = host.event[markers]
    return find_marker_waits(host, markers, events.start_ns[rows] + events.duration_ns[rows])
