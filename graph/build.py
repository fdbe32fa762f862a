"""Trace in, dependency graph out: the pipeline, one named stage after another."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import GraphError
from foretrace.graph.assemble.assemble import assemble
from foretrace.graph.assemble.rank_parts import Parts
from foretrace.graph.check import check
from foretrace.graph.infer.device_tasks import device_tasks
from foretrace.graph.infer.events import events_of
from foretrace.graph.infer.host_tasks import host_tasks
from foretrace.graph.infer.loaders import fetch_waits, find_units, marker_waits, unit_chains
from foretrace.graph.infer.phases_modules import modules, phases
from foretrace.graph.infer.steps import find_steps
from foretrace.graph.infer.stream_events import event_edges
from foretrace.graph.infer.stream_gaps import kernel_gaps, launch_lags, stream_lags
from foretrace.graph.infer.threads import thread_roles
from foretrace.graph.infer.waits import split_waiting
from foretrace.graph.infer.window import choose_window
from foretrace.graph.model import Graph, Rules
from foretrace.graph.operation_timeline.build import build_timeline
from foretrace.graph.ranks.merge import merge_ranks
from foretrace.tracer.readers.operation_timeline import SHAPE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.infer.device_tasks import Devices
    from foretrace.graph.infer.events import Events
    from foretrace.graph.infer.host_tasks import Host
    from foretrace.graph.infer.loaders import Loads, Units
    from foretrace.graph.infer.steps import Steps
    from foretrace.graph.infer.threads import Threads
    from foretrace.tracer.trace import Trace

ENGINE = re.compile(r"^autograd::engine")
"""Operators under which autograd runs a node of the backward pass."""


def build(trace: Trace, *, rules: Rules | None = None, step_pattern: str | None = None) -> Graph:
    """Build the dependency graph of the whole steps in *trace*.

    Parameters
    ----------
    trace
        A recording of one or several ranks.
    rules
        Which inferences are on; all of them by default.
    step_pattern
        Regular expression of the annotation that begins a step, where guessing goes wrong.

    Raises
    ------
    GraphError
        When the recording holds no work to build from, or *step_pattern* matches too little.
    """
    rules = rules or Rules()
    if SHAPE in trace.meta.extra:
        return check(build_timeline(trace, rules))
    ranks = np.unique(trace.events["rank"].to_numpy()).tolist()
    graphs = [_one_rank(trace, rank, rules, step_pattern) for rank in ranks]
    if not graphs:
        raise GraphError(f"{trace.meta.source}: the trace is empty, there is nothing to replay")
    graph = graphs[0] if len(graphs) == 1 else merge_ranks(graphs)
    check(graph)
    return graph


def _one_rank(trace: Trace, rank: int, rules: Rules, step_pattern: str | None) -> Graph:
    events = events_of(trace.events, rank if len(trace.meta.ranks) > 1 else None)
    steps = find_steps(events, step_pattern)
    host = host_tasks(events, steps.rows if steps else np.empty(0, np.int64))
    devices = device_tasks(events, host)
    if not len(host) and not len(devices):
        raise GraphError(f"{trace.meta.source}: rank {rank} has neither host nor device work")
    main = steps.thread if steps else _busiest_thread(events, host, devices)
    markers = _markers(host, steps)
    stages = find_units(events, host) if rules.loader_edges else []
    threads = _threads(host, devices, main, stages, rules)
    waits = split_waiting(events, host, devices, rules, trace.meta.devices)
    gaps = kernel_gaps(devices, host) if rules.kernel_gap else {}
    from_start = rules.launch_from_start
    latency, plain_latency = launch_lags(events, devices, host, waits, from_start=from_start)
    module, module_names = modules(events, host)
    parts = Parts(
        events=events,
        host=host,
        devices=devices,
        threads=threads,
        waits=waits,
        window=choose_window(steps, host, devices),
        markers=markers,
        gaps=gaps,
        stream_lags=stream_lags(devices, gaps),
        launch_lags=latency,
        plain_latency=plain_latency,
        event_edges=(
            event_edges(events, devices, host, threads.group) if rules.event_edges else None
        ),
        chains=unit_chains(host, stages, markers),
        loads=_loads(events, host, steps, markers) if rules.loader_edges and not stages else None,
        phase=phases(events, host, threads),
        module=module,
        module_names=module_names,
    )
    return assemble(parts, trace.meta, rank, rules)


def _busiest_thread(events: Events, host: Host, devices: Devices) -> int:
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


def _markers(host: Host, steps: Steps | None) -> NDArray[np.int64]:
    """Host tasks of length 0 at which steps begin, in order."""
    if steps is None:
        return np.empty(0, np.int64)
    return np.flatnonzero(np.isin(host.event, steps.rows) & (host.start_ns == host.end_ns))


def _threads(host: Host, devices: Devices, main: int, stages: list[Units], rules: Rules) -> Threads:
    loaders = tuple(dict.fromkeys(int(host.thread[stage.first[0]]) for stage in stages))
    launches = np.zeros(len(host), bool)
    launches[devices.launching] = True
    return thread_roles(host, main, loaders, launches, fork_join=rules.fork_join)


def _loads(
    events: Events, host: Host, steps: Steps | None, markers: NDArray[np.int64]
) -> Loads | None:
    """Find the batches the main thread waited for: in a fetch, else between step ranges."""
    if steps is None or steps.single:
        return None
    seen = fetch_waits(events, host, steps.thread)
    if seen is not None or steps.source != "step range":
        return seen
    rows = host.event[markers]
    return marker_waits(host, markers, events.start_ns[rows] + events.duration_ns[rows])
