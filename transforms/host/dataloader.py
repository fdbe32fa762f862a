"""Loader workers: batches are made in other processes and handed over."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.errors import TransformError
from foretrace.graph.state import Doubt
from foretrace.transforms.costs.assumed import Assumed
from foretrace.transforms.edit.columns import is_in, pad
from foretrace.transforms.edit.parameters import whole
from foretrace.transforms.edit.primitives import insert
from foretrace.transforms.edit.provenance import add_doubt, add_note, mark_measured
from foretrace.transforms.edit.remove import remove
from foretrace.transforms.edit.select import has_device
from foretrace.transforms.host.loader_processes import add_workers
from foretrace.transforms.host.recorded_loading import find_loading
from foretrace.transforms.measured.segments import any_segment_ns

if TYPE_CHECKING:
    from foretrace.graph.model import Graph
    from foretrace.transforms.edit.columns import Rows
    from foretrace.transforms.host.recorded_loading import Loading

HANDOVER_NS = 1_400_000
"""Taking a finished batch from a worker on a GPU server (public ResNet-50 traces, 4 workers)."""

HANDOVER_CPU_NS = 2_500_000
"""The same where main and workers share caches and cores (constant data set, 2-core machine)."""

TOUCH_NS_PER_BYTE = 0.12
"""Reading memory that a worker shared for the first time: its pages are mapped one by one. A batch
of 4 MB took 0.6 ms, one of 16 MB 1.9, one of 64 MB 6.3 (two tensors, torch 2, an EPYC)."""

CROWDING = Assumed(
    "how much longer a batch takes beside more workers: power of their number over the recorded",
    *(0.0, 0.0, 0.6),
    "workers share cores, memory and disks: published loaders of 16 workers are 2.8 times as fast "
    "as of 2, or no faster than of 8 (NERSC deep-learning tutorials of 2022 and 2021)",
    ("T003", "T017"),
    more_is_longer=True,
)
HANDOVER_ASSUMED = "loader-handover-assumed"
TAKE_OVER = "take a batch from a worker (predicted)"
"""Name of the task that does, where the recording has none."""
LOADED = "load a batch (predicted)"
"""Name of the task by which the training process loads."""


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
    Assumes: a batch takes a worker as long as it took alone (where more of them get into each
    other's way, up to the interval's end); workers take turns; the training
    process only takes over the finished batch, as recorded where it did; else 1.4 ms, or on a CPU
    job 2.5 ms and 0.12 ms per MB of the batch, unless a calibration timed it. Workers that were
    never waited for do not show what a
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
    [['host', 8000000], ['host', 2500000], ['load', 4500000]]
    """
    whole("workers", workers, 0)
    whole("prefetch", prefetch, 1)
    loading = find_loading(graph, recorded_workers)
    batch_ns = loading.batch_ns
    if batch_ns is None:
        return _keep_pace(graph, workers, loading.workers)
    if workers == 0:
        return graph if loading.workers == 0 else _inline(graph, loading, batch_ns)
    changed, consumers, gone = graph, loading.consumers, loading.tasks
    if loading.workers == 0:
        changed, consumers = _hand_over(graph, consumers, batch_ns)
    elif not is_in(graph.tasks["kind"], "load").any():  # recorded calls take over the batches
        gone = np.zeros(len(graph.tasks), bool)
    crowded_ns = batch_ns * _crowding(workers, loading.workers or 1)
    changed = add_workers(changed, consumers, crowded_ns, workers, prefetch)
    changed = remove(changed, pad(gone, len(changed.tasks)), gaps="drop")
    meta = replace(
        graph.meta,
        loader={**(graph.meta.loader or {}), "workers": workers, "prefetch": prefetch},
    )
    return add_note(
        replace(changed, meta=meta),
        f"dataloader: a batch takes {batch_ns / 1e6:.1f} ms in one of {workers} workers",
    )


def _crowding(workers: int, recorded: int) -> float:
    """Return how many times as long a batch takes one of more workers than were recorded."""
    return (workers / recorded) ** CROWDING.now() if workers > recorded else 1.0


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


def _inline(graph: Graph, loading: Loading, batch_ns: float) -> Graph:
    """Put loading back into the training process."""
    graph, _ = insert(
        graph,
        loading.consumers,
        place="before",
        name=LOADED,
        kind="host",
        phase="load",
        work_ns=round(batch_ns),
        cost="roofline",
    )
    gone = pad(loading.tasks, len(graph.tasks))
    return add_note(remove(graph, gone), "dataloader: batches are loaded in the training process")


def _hand_over(graph: Graph, consumers: Rows, batch_ns: float) -> tuple[Graph, Rows]:
    """Replace the training process' own loading by taking over finished batches."""
    measured = any_segment_ns(graph, "handover")
    if measured is not None:
        graph, handover = mark_measured(graph), round(measured)
    else:
        handover = HANDOVER_NS if has_device(graph) else _handover_on_cpu(graph)
        text = (
            f"taking over a batch from a worker is assumed to take {handover / 1e6:.1f} ms: no"
            " recorded call shows it; record with one worker, or calibrate"
        )
        graph = add_doubt(graph, Doubt(HANDOVER_ASSUMED, text, "next()"))
    return insert(
        graph,
        consumers,
        place="before",
        name=TAKE_OVER,
        kind="host",
        phase="load",
        work_ns=handover + round(_contention(graph, batch_ns)),
        cost="prior" if measured is None else "measured",
    )


def _handover_on_cpu(graph: Graph) -> int:
    """Return what taking over a batch costs a CPU job, its first reading included."""
    size = (graph.meta.loader or {}).get("batch_bytes")
    known = size if isinstance(size, (int, float)) and size > 0 else 0
    return HANDOVER_CPU_NS + round(TOUCH_NS_PER_BYTE * known)


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
