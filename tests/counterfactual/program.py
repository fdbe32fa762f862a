"""A training program as data: what its threads do in every step, and the machine that it runs on.

A program says what is *asked* of CUDA and PyTorch; `simulate` says when it happens. A step is a
tuple of operations of the main thread, in order; operations within `Backward` run on the autograd
thread while the main thread waits. Times are integers in ns.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

MAIN_STREAM = 7
"""What CUPTI calls the legacy default stream of a process."""


@dataclass(frozen=True, slots=True)
class HostWork:
    """The thread is busy, or waits for something that no profiler sees."""

    ns: int
    key: int = 0


@dataclass(frozen=True, slots=True)
class Launch:
    """Launch a kernel; one that *fills* the device keeps others waiting.

    One of *exact* time takes as long on a slow rank.
    """

    name: str
    ns: int
    stream: int = MAIN_STREAM
    fills: bool = True
    key: int = 0
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Memset:
    """Fill memory of the device."""

    ns: int
    stream: int = MAIN_STREAM
    key: int = 0
    name: str = "Memset (Device)"


@dataclass(frozen=True, slots=True)
class Collective:
    """Launch an all-reduce: it begins alone, and transfers once all ranks have come."""

    size: int
    latency_ns: int
    transfer_ns: int
    stream: int
    key: int = 0
    name: str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy *size* bytes up or down (`HtoD`, `DtoH`), from pageable or from pinned memory."""

    direction: str
    size: int
    ns: int
    pageable: bool
    stream: int = MAIN_STREAM
    key: int = 0

    @property
    def name(self) -> str:
        """What CUPTI calls it."""
        memory = "Pageable" if self.pageable else "Pinned"
        ends = f"{memory} -> Device" if self.direction == "HtoD" else f"Device -> {memory}"
        return f"Memcpy {self.direction} ({ends})"


@dataclass(frozen=True, slots=True)
class Node:
    """A kernel of a graph, on one of its branches, after the nodes numbered in *after*."""

    name: str
    ns: int
    branch: int = 0
    after: tuple[int, ...] = ()
    key: int = 0
    exact: bool = False


@dataclass(frozen=True, slots=True)
class GraphLaunch:
    """Launch a CUDA graph: one call, kernels on several branches."""

    nodes: tuple[Node, ...]
    stream: int = MAIN_STREAM
    key: int = 0


@dataclass(frozen=True, slots=True)
class DeviceIdle:
    """The stream does nothing for *ns*, and nothing recorded says why."""

    ns: int
    stream: int = MAIN_STREAM
    key: int = 0


@dataclass(frozen=True, slots=True)
class RecordEvent:
    """Mark the work so far on *stream*."""

    event: int
    stream: int = MAIN_STREAM
    key: int = 0


@dataclass(frozen=True, slots=True)
class WaitEvent:
    """Let *stream* wait for the latest mark of *event*."""

    event: int
    stream: int
    key: int = 0


@dataclass(frozen=True, slots=True)
class SyncEvent:
    """Let the thread wait for the latest mark of *event*."""

    event: int
    key: int = 0


@dataclass(frozen=True, slots=True)
class SyncStream:
    """Let the thread wait for everything on *stream*."""

    stream: int = MAIN_STREAM
    key: int = 0


@dataclass(frozen=True, slots=True)
class SyncDevice:
    """Let the thread wait for everything on the device."""

    key: int = 0


@dataclass(frozen=True, slots=True)
class NextBatch:
    """Take the next batch from the loader."""

    key: int = 0


@dataclass(frozen=True, slots=True)
class Range:
    """Operations under a name that the profiler records: an operator or an annotation."""

    name: str
    body: tuple[Operation, ...]
    category: str = "cpu_op"
    sequence: int = -1


@dataclass(frozen=True, slots=True)
class Backward:
    """Operations of the autograd thread, for which the main thread waits."""

    body: tuple[Operation, ...]
    key: int = 0


Operation = (
    HostWork
    | Launch
    | Memset
    | Collective
    | Copy
    | GraphLaunch
    | DeviceIdle
    | RecordEvent
    | WaitEvent
    | SyncEvent
    | SyncStream
    | SyncDevice
    | NextBatch
    | Range
    | Backward
)


@dataclass(frozen=True, slots=True)
class Loader:
    """A `DataLoader`: a batch takes a worker *batch_ns*; taking it over takes *handover_ns*."""

    workers: int
    batch_ns: int
    handover_ns: int
    prefetch: int = 2


@dataclass(frozen=True, slots=True)
class Machine:
    """What calls cost and how the device answers, in ns.

    ``latency_ns`` runs from the start of a launch call to the earliest start of its work;
    ``queue`` launches may wait on a stream, and one more runs. Large pageable uploads are staged
    for ``copy_head_ns`` before they start, and return ``copy_tail_ns`` before they end.
    """

    launch_ns: int = 6_000
    graph_launch_ns: int = 25_000
    copy_call_ns: int = 7_000
    event_call_ns: int = 2_000
    sync_call_ns: int = 2_500
    latency_ns: int = 6_600
    graph_latency_ns: int = 18_000
    gap_ns: int = 1_200
    graph_gap_ns: int = 700
    event_lag_ns: int = 1_500
    sync_lag_ns: int = 4_000
    copy_lag_ns: int = 4_000
    copy_head_ns: int = 80_000
    copy_tail_ns: int = 50_000
    small_copy: int = 65_536
    stage_bytes_per_us: int = 10_000
    fork_ns: int = 20_000
    join_ns: int = 15_000
    between_steps_ns: int = 30_000
    queue: int = 1_023


@dataclass(frozen=True, slots=True)
class Program:
    """A training job: the same step over and over, on one or several equal ranks.

    ``slowness`` says how many times as long the kernels of each rank take; ``host_jitter`` and
    ``device_jitter`` are the spread (of the logarithm) of every single time around its mean.
    """

    step: tuple[Operation, ...]
    machine: Machine = field(default_factory=Machine)
    loader: Loader | None = None
    slowness: tuple[float, ...] = (1.0,)
    host_jitter: float = 0.0
    device_jitter: float = 0.0
    seed: int = 0

    @property
    def ranks(self) -> int:
        """Number of processes."""
        return len(self.slowness)


def program(*step: Operation, **settings: Any) -> Program:
    """Return the program of *step*, every operation with a key of its own.

    Jitter is drawn by step and key, so that what a change leaves alone takes as long as before.
    """
    keys = iter(range(1, 1_000_000))
    return Program(tuple(_numbered(operation, keys) for operation in step), **settings)


def item(stream: int = MAIN_STREAM) -> Range:
    """Return what ``tensor.item()`` does: download four bytes and wait."""
    down = Copy("DtoH", 4, 1_600, pageable=True, stream=stream)
    inner = Range("aten::_local_scalar_dense", (HostWork(4_500), down, SyncStream(stream)))
    return Range("aten::item", (HostWork(2_000), inner, HostWork(1_000)))


def walk(step: tuple[Any, ...]) -> Iterator[Any]:
    """Yield every operation, those of ranges and graphs included."""
    for operation in step:
        yield operation
        inside = getattr(operation, "body", ()) or getattr(operation, "nodes", ())
        yield from walk(inside)


def streams_of_filling_kernels(program: Program) -> set[int]:
    """Return the streams whose kernels want the whole device."""
    return {one.stream for one in walk(program.step) if isinstance(one, Launch) and one.fills}


def _numbered(operation: Any, keys: Iterator[int]) -> Any:
    inner = {
        part.name: tuple(_numbered(each, keys) for each in value)
        for part in fields(operation)
        if isinstance(value := getattr(operation, part.name), tuple)
        and all(is_dataclass(each) for each in value)
    }
    own = {"key": next(keys)} if hasattr(operation, "key") else {}
    return replace(operation, **inner, **own)
