"""Loader workers: batches are made in other processes and handed over."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.errors import TransformError
from foretrace.graph.state import Doubt
from foretrace.transforms.edit.columns import Mask, Rows, append, is_in, pad
from foretrace.transforms.edit.parameters import reconcile, whole
from foretrace.transforms.edit.primitives import edge_rows, insert
from foretrace.transforms.edit.provenance import add_doubt, add_note, mark_measured
from foretrace.transforms.edit.remove import remove
from foretrace.transforms.edit.select import first_per_step, has_device
from foretrace.transforms.measured.segments import any_segment_ns

if TYPE_CHECKING:
    import pandas as pd

    from foretrace.graph.model import Graph

HANDOVER_NS = 1_400_000
"""Taking a finished batch from a worker on a GPU server (public ResNet-50 traces, 4 workers)."""

HANDOVER_CPU_NS = 2_500_000
"""The same where main and workers share caches and cores (constant data set, 2-core machine)."""

VISIBLE = 0.001
"""Loading below this share of a step is no loading that workers could take over."""

MATTERS = 0.1
"""Share of a step from which an assumed cost is doubted."""


@dataclass(frozen=True)
class _Loading:
    """How the recording loads: which tasks do it, who takes each step's batch, and the cost.

    ``workers`` is 0 where the training process loads, and ``None`` where nobody counted them;
    ``batch_ns`` is what a batch takes one process, ``None`` where nothing shows it.
    """

    tasks: Mask
    consumers: Rows
    batch_ns: float | None
    workers: int | None = 0


def dataloader(
    graph: Graph, *, workers: int, prefetch: int = 2, recorded_workers: int | None = None
) -> Graph:
    """Load batches in *workers* processes, or in the training process with 0.

    Parameters
    ----------
    graph
        The job.
    workers
        Loader processes after the change.
    prefetch
        Batches each worker may be ahead.
    recorded_workers
        Loader processes in the recording; needed where the trace has some but does not say how
        many.

    Notes
    -----
    Assumes: a batch takes a worker as long as it took alone; workers take turns; the training
    process only takes over the finished batch, as recorded where it did; else 1.4 ms, or 2.5 ms on
    a CPU job, unless a calibration timed it. Workers that were never waited for do not show what a
    batch costs: more of them change nothing, fewer may. Where the machine has too few cores for
    all, a step takes at least the processor time of everybody divided by the cores.
    Unknown: disks and memory that the workers share; a slower host while they run (5 to 10 % seen).
    Source: public ResNet-50 pairs, and pairs measured on CPUs (docs/accuracy.md).

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> graph = literal([("next", "host", 0, 9_000_000, "load"),
    ...                  ("train", "host", 0, 8_000_000, "forward")])
    >>> dataloader(graph, workers=2).tasks[["kind", "work_ns"]].values.tolist()
    [['host', 8000000], ['host', 2500000], ['load', 9000000]]
    """
    whole("workers", workers, 0)
    whole("prefetch", prefetch, 1)
    loading = _find(graph, recorded_workers)
    batch_ns = loading.batch_ns
    if batch_ns is None:
        return _keep_pace(graph, workers, loading.workers)
    if workers == 0:
        return graph if loading.workers == 0 else _inline(graph, loading, batch_ns)
    changed, consumers, gone = graph, loading.consumers, loading.tasks
    if loading.workers == 0:
        changed, consumers = _hand_over(graph, consumers, batch_ns, workers)
    elif not is_in(graph.tasks["kind"], "load").any():  # recorded calls take over the batches
        gone = np.zeros(len(graph.tasks), bool)
    changed = _add_workers(changed, consumers, batch_ns, workers, prefetch)
    changed = remove(changed, pad(gone, len(changed.tasks)), gaps="drop")
    meta = replace(
        graph.meta,
        loader={**(graph.meta.loader or {}), "workers": workers, "prefetch": prefetch},
    )
    return add_note(
        replace(changed, meta=meta),
        f"dataloader: a batch takes {batch_ns / 1e6:.1f} ms in one of {workers} workers",
    )


def _find(graph: Graph, recorded_workers: int | None) -> _Loading:
    """Find what loads in the recording, and what one batch costs one process."""
    tasks = graph.tasks
    loads = is_in(tasks["kind"], "load")
    loader = graph.meta.loader or {}
    seen = graph.state.loader
    if loads.any():
        old = reconcile("recorded_workers", recorded_workers, loader.get("workers"), "workers")
        if not old:
            raise TransformError(
                "the trace does not say how many workers it ran; give recorded_workers=..."
            )
        per_step = tasks["work_ns"].to_numpy()[loads].sum() / graph.steps
        if seen and seen.burst_ns:
            per_step = seen.others_ns + seen.burst_ns / old
        return _Loading(
            loads, _consumers(graph, loads), float(loader.get("load_ns") or per_step * old), old
        )
    lane = tasks["lane"].to_numpy()
    if (is_in(graph.lanes["role"], "loader")[lane] & is_in(tasks["kind"], "host")).any():
        raise TransformError(
            "the recording loads in threads of its own (such as DALI's); "
            "this what-if is about loader worker processes"
        )
    role = is_in(graph.lanes["role"], "main")[lane]
    own = role & is_in(tasks["phase"], "load") & is_in(tasks["kind"], "host")
    if (seen or loader.get("workers")) and own.any():
        old = reconcile("recorded_workers", recorded_workers, loader.get("workers"), "workers")
        cost = float(loader["load_ns"]) if loader.get("load_ns") else None
        return _Loading(own, first_per_step(graph, own), cost, old)
    work = tasks["work_ns"].to_numpy()[own].sum() / graph.steps
    if work < VISIBLE * graph.measured_step_ns or not own.any():
        raise TransformError(
            "nothing to change: the training process spends no visible time on loading"
        )
    return _Loading(own, first_per_step(graph, own), float(work))


def _keep_pace(graph: Graph, workers: int, recorded: int | None) -> Graph:
    """Return *graph* as it is, for workers that were never waited for; fewer of them are doubted.

    A batch takes one of them at most as many steps as there are workers.
    """
    if workers == 0:
        raise TransformError(
            "the recorded loader workers were never waited for, so that nothing shows what a batch"
            " costs; record the job with workers=0"
        )
    if recorded and workers >= recorded:
        return graph
    step = graph.measured_step_ns / 1e6
    text = "no call of next() waited for the recorded loader workers: nothing shows what a batch "
    if recorded:
        most = step * recorded
        text += (
            f"costs but that one of {recorded} workers takes {most:.3f} ms at most; with {workers}"
            f" a step takes between {step:.3f} and {most / workers:.3f} ms"
        )
    else:
        text += f"costs, nor whether {workers} are fewer than there were: give recorded_workers=..."
    text += "; record with fewer workers"
    return add_doubt(graph, Doubt("loader-cost-hidden", text, "next()"))


def _consumers(graph: Graph, loads: Mask) -> Rows:
    """Return the task of each step that takes the batch: the one that waited, else the first."""
    edges = graph.edges
    src, dst = edges["src"].to_numpy(), edges["dst"].to_numpy().astype(np.int64)
    waited = dst[is_in(edges["kind"], "data") & loads[src]]
    tasks = graph.tasks
    main = is_in(graph.lanes["role"], "main")[tasks["lane"].to_numpy()]
    first = first_per_step(graph, main)
    step = tasks["step"].to_numpy()
    by_step = dict(zip(step[first].tolist(), first.tolist(), strict=True))
    by_step.update(zip(step[waited].tolist(), waited.tolist(), strict=True))
    return np.array([by_step[key] for key in sorted(by_step)], np.int64)


def _inline(graph: Graph, loading: _Loading, batch_ns: float) -> Graph:
    """Put loading back into the training process."""
    graph, _ = insert(
        graph,
        loading.consumers,
        place="before",
        name="load a batch (predicted)",
        kind="host",
        phase="load",
        work_ns=round(batch_ns),
        cost="roofline",
    )
    gone = pad(loading.tasks, len(graph.tasks))
    return add_note(remove(graph, gone), "dataloader: batches are loaded in the training process")


def _hand_over(graph: Graph, consumers: Rows, batch_ns: float, workers: int) -> tuple[Graph, Rows]:
    """Replace the training process' own loading by taking over finished batches."""
    measured = any_segment_ns(graph, "handover")
    if measured is not None:
        graph, handover = mark_measured(graph), round(measured)
    else:
        handover = HANDOVER_NS if has_device(graph) else HANDOVER_CPU_NS
        graph = _doubt_handover(graph, handover, batch_ns, workers)
    return insert(
        graph,
        consumers,
        place="before",
        name="take a batch from a worker (predicted)",
        kind="host",
        phase="load",
        work_ns=handover + round(_contention(graph, batch_ns)),
        cost="prior" if measured is None else "measured",
    )


def _doubt_handover(graph: Graph, handover: int, batch_ns: float, workers: int) -> Graph:
    """Doubt what taking over a batch is assumed to take where that is much of a step."""
    left = max(graph.measured_step_ns - batch_ns, 0.0) + handover
    share = handover / max(left, batch_ns / workers)
    if share <= MATTERS:
        return graph
    text = (
        f"taking over a batch from a worker is assumed to take {handover / 1e6:.1f} ms, {share:.0%}"
        " of a step: no recorded call shows it; record with one worker, or calibrate"
    )
    return add_doubt(graph, Doubt("loader-handover-assumed", text, "next()"))


def _contention(graph: Graph, batch_ns: float) -> float:
    """Return how much longer a step gets because everybody shares the recorded machine's cores."""
    machine, loader = graph.meta.machine or {}, graph.meta.loader or {}
    cores = machine.get("cores")
    if not cores:
        return 0.0
    threads = machine.get("threads") or 1
    compute = max(graph.measured_step_ns - batch_ns, 0.0)
    demand = min(threads, cores) * compute + batch_ns - _waiting(loader, batch_ns)
    return max(0.0, demand / cores - compute)


def _waiting(loader: dict[str, Any], batch_ns: float) -> float:
    """Return how long a fetch waits; that does not change where the machine computes slower."""
    alone, share = loader.get("load_ns"), loader.get("cpu_share")
    return 0.0 if share is None else min((alone or batch_ns) * (1 - share), batch_ns)


def _add_workers(
    graph: Graph, consumers: Rows, batch_ns: float, workers: int, prefetch: int
) -> Graph:
    """Add one load per step; worker w makes batches w, w + workers, … and may run ahead."""
    count = len(consumers)
    lane = len(graph.lanes)
    first = np.zeros(1, np.int64)
    lanes = append(
        graph.lanes, first, {"kind": "loader", "role": "loader", "device": -1, "id": lane}
    )
    loads = len(graph.tasks) + np.arange(count)
    values = {
        "name": "load a batch in a worker (predicted)",
        "kind": "load",
        "lane": lane,
        "duration_ns": 0,
        "work_ns": round(batch_ns),
        "phase": "load",
        "operator": -1,
        "bytes": np.nan,
        "flops": np.nan,
        "wait": "none",
        "wait_lane": -1,
        "return_ns": 0,
        "lock": -1,
        "cost": "roofline",
    }
    tasks = append(graph.tasks, consumers, values)
    edges = edge_rows(graph.edges, loads, consumers, "data", 0)
    edges = _ahead(edges, loads, loads, workers, "thread")
    edges = _ahead(edges, consumers, loads, workers * prefetch, "data")
    return replace(graph, tasks=tasks, edges=edges, lanes=lanes)


def _ahead(edges: pd.DataFrame, src: Rows, dst: Rows, by: int, kind: str) -> pd.DataFrame:
    """Add edges from each step's *src* to the *dst* that lies *by* steps later."""
    later = np.arange(len(src)) + by
    return edge_rows(edges, src, dst[later % len(dst)], kind, 0, later // len(dst))
