"""Trace in, dependency graph out: the pipeline, one named stage after another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import GraphError
from foretrace.graph.assemble import Parts, assemble
from foretrace.graph.check import check
from foretrace.graph.device import device_tasks
from foretrace.graph.host import host_tasks, kind_is
from foretrace.graph.labels import modules, phases
from foretrace.graph.loaders import fetch_waits, find_units, marker_waits, unit_chains
from foretrace.graph.merge import merge_ranks
from foretrace.graph.model import Graph, Rules
from foretrace.graph.steps import Steps, find_steps
from foretrace.graph.streams import event_edges, kernel_gaps, launch_lags, stream_lags
from foretrace.graph.threads import thread_roles
from foretrace.graph.waits import split_waiting
from foretrace.graph.window import choose_window

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from foretrace.graph.host import Host
    from foretrace.tracer.trace import Trace


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
    graphs = [
        _one_rank(trace, rank, rules, step_pattern) for rank in sorted(set(trace.events["rank"]))
    ]
    if not graphs:
        raise GraphError(f"{trace.meta.source}: the trace is empty, there is nothing to replay")
    graph = graphs[0] if len(graphs) == 1 else merge_ranks(graphs)
    check(graph)
    return graph


def _one_rank(trace: Trace, rank: int, rules: Rules, step_pattern: str | None) -> Graph:
    events = trace.events
    if len(trace.meta.ranks) > 1:
        events = events[events["rank"] == rank].reset_index(drop=True)
    steps = find_steps(_annotations(events), step_pattern)
    host = host_tasks(events, steps.rows if steps else np.empty(0, np.int64))
    devices = device_tasks(events, host)
    if not len(host) and not len(devices):
        raise GraphError(f"{trace.meta.source}: rank {rank} has neither host nor device work")
    launches = np.zeros(len(host), bool)
    launches[devices.launch[devices.launch >= 0]] = True
    main = steps.thread if steps else _busiest_thread(host, launches)
    stages = find_units(host, events) if rules.loader_edges else {}
    loaders = tuple(dict.fromkeys(int(host.thread[u.first[0]]) for u in stages.values()))
    threads = thread_roles(host, main, loaders, launches, fork_join=rules.fork_join)
    waits = split_waiting(events, host, devices, rules)
    gaps = kernel_gaps(devices, host) if rules.kernel_gap else {}
    latency, plain_latency = launch_lags(
        events, devices, host, waits, from_start=rules.launch_from_start
    )
    markers = _markers(host, steps)
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
        event_edges=event_edges(events, devices, host, threads.group) if rules.event_edges else None,
        chains=unit_chains(host, stages, markers),
        loads=_loads(events, host, main, steps, markers, stages=bool(stages)) if rules.loader_edges else None,
        phase=phases(events, host, threads),
        module=module,
        module_names=module_names,
    )
    return assemble(parts, trace.meta, rank, rules)


def _annotations(events: pd.DataFrame) -> pd.DataFrame:
    """Host ranges that group work; old recordings keep them among the operators."""
    kind = kind_is(events, "annotation", "op")
    return events.loc[kind & (events["thread"].to_numpy() != -1), ["name", "thread", "start_ns", "duration_ns"]]


def _busiest_thread(host: Host, launches: NDArray[np.bool_]) -> int:
    threads = host.thread[launches] if launches.any() else host.thread
    if not len(threads):
        return -1
    value, count = np.unique(threads, return_counts=True)
    return int(value[np.argmax(count)])


def _markers(host: Host, steps: Steps | None) -> NDArray[np.int64]:
    """Host tasks of length 0 at which steps begin, in order."""
    if steps is None:
        return np.empty(0, np.int64)
    return np.flatnonzero(np.isin(host.event, steps.rows) & (host.start_ns == host.end_ns))


def _loads(
    events: pd.DataFrame,
    host: Host,
    main: int,
    steps: Steps | None,
    markers: NDArray[np.int64],
    *,
    stages: bool,
):  # type: ignore[no-untyped-def]  # noqa: ANN202
    """Batches the main thread waited for: seen as a fetch, else as idle time between step ranges."""
    if stages or steps is None or steps.single:
        return None
    seen = fetch_waits(events, host, main)
    if seen is not None or steps.source != "step range":
        return seen
    rows = host.event[markers]
    ends = events["start_ns"].to_numpy()[rows] + events["duration_ns"].to_numpy()[rows]
    return marker_waits(host, markers, ends)
