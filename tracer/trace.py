"""The trace table: what was recorded, never changed afterwards.

A `Trace` is one row per recorded interval plus `TraceMeta`. Every reader returns one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from foretrace.util.html_card import card
from foretrace.util.schema import Column

if TYPE_CHECKING:
    import pandas as pd

EVENT_KINDS = (
    "op",  # framework operator on a host thread (aten::mm, autograd::engine::...)
    "annotation",  # host range that groups work: ProfilerStep#3, NVTX, "##module"
    "runtime",  # CUDA/HIP runtime or driver call on a host thread
    "kernel",  # device
    "memcpy",  # device; name normalised to "Memcpy HtoD (Pageable -> Device)"
    "memset",  # device
    "sync",  # cuda_sync record or Nsight synchronisation record (no work)
    "gpu_annotation",  # device copy of an annotation
    "python",  # python_function stack frame
    "memory",  # allocator instant, duration 0
    "overhead",  # profiler overhead
)

EVENT_COLUMNS = (
    Column("name", "category", "", "what ran, as recorded"),
    Column("kind", "category", "", "one of EVENT_KINDS"),
    Column("rank", "int16", "", "process of the job; 0 when there is one"),
    Column("device", "int16", "", "device index; -1 on the host"),
    Column("stream", "int64", "", "device stream; -1 on the host (0 is a legal stream)"),
    Column("thread", "int64", "", "host thread; -1 on a device"),
    Column(
        "start_ns",
        "int64",
        "ns",
        "start since the first event of the trace (one origin for all ranks)",
    ),
    Column("duration_ns", "int64", "ns", "length; 0 is legal"),
    Column(
        "correlation",
        "int64",
        "",
        "joins a runtime call with what it put on a device, within a rank; address of a memory"
        " event",
    ),
    Column(
        "external_id", "int64", "", "joins an op with the runtime calls and device work under it"
    ),
    Column(
        "sequence",
        "int64",
        "",
        "autograd sequence number of an op; in a timeline the place among its kind, or the step",
    ),
    Column(
        "forward_thread", "int64", "", "thread of the forward op that this backward op belongs to"
    ),
    Column("shapes", "category", "", "input shapes of an op, compact JSON: [[32,3,224,224],[]]"),
    Column("dtypes", "category", "", 'input dtypes of an op, compact JSON: ["float",""]'),
    Column(
        "bytes",
        "float64",
        "B",
        "moved by a memcpy, memset or collective; taken by a memory event, below 0 if given back",
    ),
    Column("flops", "float64", "FLOP", "of an op, as the profiler counted it"),
    Column("blocks", "int64", "", "thread blocks in a kernel's grid"),
    Column("block_threads", "int32", "", "threads in a block"),
    Column(
        "blocks_per_sm",
        "float64",
        "",
        "resident blocks per SM that registers and shared memory allow",
    ),
    Column("graph_node", "int64", "", "node of a CUDA graph; -1 outside graphs"),
    Column("wait_stream", "int64", "", "sync: the stream waited for; -1 when the whole device"),
    Column("wait_event", "int64", "", "sync: correlation of the event record waited for"),
    Column(
        "group",
        "category",
        "",
        "collective: process group; of a send or receive with its peer: pp ->3",
    ),
    Column("group_size", "int32", "", "collective: number of ranks"),
)
"""Columns of `Trace.events`, sorted by (rank, start_ns, -duration_ns, row as read)."""


@dataclass(frozen=True)
class Device:
    """One accelerator, as the recording names it."""

    index: int
    name: str
    sm_count: int | None = None
    memory_bytes: int | None = None
    threads_per_sm: int | None = None


@dataclass(frozen=True)
class TraceMeta:
    """Everything about a recording that is not an event. Unknown is ``None`` or empty.

    ``format`` is "kineto", "nsight", "timeline" or "foretrace"; ``source`` the file name, for
    messages. ``batch_size`` counts samples per step and rank. ``optimizer``, ``loader`` and
    ``machine`` are what the recorder found out: {"name": "Adam", "kind": "loop", "parameters": n,
    "bytes": b}, {"workers": 0, "prefetch": 2, "load_ns": t, "cpu_share": x}, and the probe's
    {"cores": 2, "fp32_gflops": x, "bf16_gflops": y, "copy_gbps": z}.
    ``unprofiled_step_ns`` were measured without the profiler, in order: the truth;
    ``profiled_step_ns`` are the same steps under the profiler, interleaved. ``warnings`` counts
    issues by name (tracer/data_issues.py). ``extra`` holds anything else that is JSON-able.
    """

    format: str
    source: str = ""
    devices: tuple[Device, ...] = ()
    ranks: tuple[int, ...] = (0,)
    world_size: int | None = None
    framework: str | None = None
    command: str | None = None
    batch_size: int | None = None
    optimizer: dict[str, Any] | None = None
    loader: dict[str, Any] | None = None
    machine: dict[str, Any] | None = None
    unprofiled_step_ns: tuple[int, ...] = ()
    profiled_step_ns: tuple[int, ...] = ()
    warnings: dict[str, int] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Trace:
    """A recording: ``events`` has `EVENT_COLUMNS`; ``meta`` says where it came from."""

    events: pd.DataFrame
    meta: TraceMeta

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        meta, counts = self.meta, self.events["kind"].value_counts(sort=False)
        facts = {
            "source": meta.source,
            "format": meta.format,
            "devices": ", ".join(dict.fromkeys(device.name for device in meta.devices)),
            "framework": meta.framework,
            "ranks": len(meta.ranks),
            "batch size": meta.batch_size,
            "events": len(self.events),
        }
        return card("Trace", facts | {f"{kind} events": int(n) for kind, n in counts.items() if n})
