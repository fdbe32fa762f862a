"""Trace in, `Summary` out: what was recorded, and where the time of a step goes.

A recording without recognisable steps still has a summary; what needs steps is then absent
and ``steps_problem`` says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analysis.rank_pace import RankPace, rank_paces
from foretrace.analysis.unchanged.baseline import replay_baseline
from foretrace.analysis.unchanged.identity import Identity, identity_from
from foretrace.analysis.utilisation import Utilisation, utilise
from foretrace.errors import ForetraceError
from foretrace.graph.build import build
from foretrace.graph.model import DEVICE_KINDS
from foretrace.tracer.data_issues import sentences
from foretrace.transforms.costs.kernel_names import OTHER, classes
from foretrace.transforms.costs.peak_memory import Memory, capacity_bytes, peak_memory

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

    from foretrace.graph.model import Graph
    from foretrace.tracer.trace import Trace

DEVICE_EVENTS = ("kernel", "memcpy", "memset")


@dataclass(frozen=True)
class Steps:
    """What needs a graph: the replay of the window, and per step the time of each part.

    ``phases_ns`` is work on the host and on the device by phase; ``edges`` counts the
    dependencies by (kind, rule that inferred it). ``memory`` is the device memory at the peak,
    ``memory_bytes`` what the device has, ``utilisation`` how well it is used.
    ``paces`` tells of several ranks who waits for whom.
    """

    count: int
    identity: Identity
    phases_ns: dict[str, tuple[float, float]]
    edges: dict[tuple[str, str], int]
    queue_depth: int | None
    event_overhead_ns: float
    memory: Memory | None
    memory_bytes: float | None
    utilisation: Utilisation | None
    paces: tuple[RankPace, ...] = ()


@dataclass(frozen=True)
class Summary:
    """What is in a trace. Times in ns; ``kernels_ns`` is (time, count) over the whole recording.

    ``classes_ns`` holds the driver's copies and fills as "memcpy" and "memset", kernels whose class
    no rule knows as "other"; the longest of these are in ``unclassified_ns``.
    """

    source: str
    format: str
    devices: tuple[str, ...]
    ranks: tuple[int, ...]
    world_size: int | None
    framework: str | None
    batch_size: int | None
    span_ns: int
    events: dict[str, int]
    busy_ns: int
    classes_ns: dict[str, int]
    unclassified_ns: dict[str, int]
    kernels_ns: dict[str, tuple[int, int]]
    steps: Steps | None
    steps_problem: str | None
    warnings: tuple[str, ...]


def summarise(trace: Trace, *, step_pattern: str | None = None) -> Summary:
    """Summarise *trace*; *step_pattern* matches the range that marks one step.

    Raises
    ------
    GraphError
        No steps are found by *step_pattern*.
    """
    events, meta = trace.events, trace.meta
    device = events[events["kind"].isin(DEVICE_EVENTS)]
    steps, problem = _steps(trace, step_pattern)
    ends = events["start_ns"] + events["duration_ns"]
    return Summary(
        source=meta.source,
        format=meta.format,
        devices=tuple(device.name for device in meta.devices),
        ranks=meta.ranks,
        world_size=meta.world_size,
        framework=meta.framework,
        batch_size=meta.batch_size,
        span_ns=int(ends.max() - events["start_ns"].min()) if len(events) else 0,
        events=_counts(events["kind"]),
        busy_ns=int(device["duration_ns"].sum()),
        classes_ns=_sum_by(_classes(device), device),
        unclassified_ns=_unclassified(device),
        kernels_ns=_top_kernels(device),
        steps=steps,
        steps_problem=problem,
        warnings=tuple(sentences(meta.warnings)),
    )


def _steps(trace: Trace, pattern: str | None) -> tuple[Steps | None, str | None]:
    try:
        graph = build(trace, step_pattern=pattern)
        baseline = replay_baseline(graph)
    except ForetraceError as error:
        if pattern is not None:
            raise
        return None, str(error)
    return (
        Steps(
            count=graph.steps,
            identity=identity_from(baseline),
            phases_ns=_phases(graph),
            edges=_edges(graph),
            queue_depth=graph.platform.queue_depth,
            event_overhead_ns=graph.platform.event_overhead_ns,
            memory=peak_memory(graph),
            memory_bytes=capacity_bytes(graph),
            utilisation=utilise(graph, baseline.measured.step_ns),
            paces=rank_paces(baseline.timeline) if len(trace.meta.ranks) > 1 else (),
        ),
        None,
    )


def _counts(column: pd.Series) -> dict[str, int]:
    counts = column.value_counts(sort=False)
    return {str(name): int(count) for name, count in counts.items() if count}


def _classes(device: pd.DataFrame) -> npt.NDArray[np.str_]:
    """Return the class of each device event; what the driver copies and fills is of its kind."""
    kind = device["kind"].astype(str).to_numpy()
    return np.where(kind == "kernel", classes(device["name"]), kind)


def _unclassified(device: pd.DataFrame, count: int = 3) -> dict[str, int]:
    unknown = device[_classes(device) == OTHER]
    longest = _sum_by(unknown["name"].astype(str).to_numpy(), unknown)
    return dict(list(longest.items())[:count])


def _sum_by(key: npt.NDArray[np.str_], device: pd.DataFrame) -> dict[str, int]:
    """Return device time by *key*, longest first."""
    totals = device["duration_ns"].groupby(key).sum().to_dict()
    return {str(name): int(ns) for name, ns in sorted(totals.items(), key=lambda i: (-i[1], i[0]))}


def _top_kernels(device: pd.DataFrame, count: int = 10) -> dict[str, tuple[int, int]]:
    groups = device.groupby("name", observed=True)["duration_ns"].agg(["sum", "size"])
    top = groups.sort_values("sum", ascending=False, kind="stable").head(count)
    return {str(name): (int(row["sum"]), int(row["size"])) for name, row in top.iterrows()}


def _phases(graph: Graph) -> dict[str, tuple[float, float]]:
    tasks = graph.tasks
    on_device = tasks["kind"].isin(DEVICE_KINDS)
    phase = tasks["phase"].astype(object).where(tasks["phase"].notna(), "unknown")
    work = tasks["work_ns"].groupby([phase, on_device], observed=True).sum() / graph.steps
    return {
        str(name): (float(work.get((name, False), 0)), float(work.get((name, True), 0)))
        for name in sorted(set(phase))
    }


def _edges(graph: Graph) -> dict[tuple[str, str], int]:
    rule = graph.edges["rule"].astype(object).where(graph.edges["rule"].notna(), "")
    sizes = graph.edges.groupby([graph.edges["kind"], rule], observed=True).size()
    return {(str(kind), str(why)): int(size) for (kind, why), size in sizes.items()}
