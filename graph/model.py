"""The dependency graph: four tables and the rules under which it was built.

Row numbers are ids. Order on a lane stands in the edges ("thread", "stream"), never in row order.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from foretrace.graph.state import JobState
from foretrace.util.html_card import card
from foretrace.util.schema import Column

if TYPE_CHECKING:
    import pandas as pd

    from foretrace.tracer.trace import TraceMeta

TASK_KINDS = ("host", "launch", "sync", "kernel", "memcpy", "memset", "collective", "p2p", "load")
DEVICE_KINDS = ("kernel", "memcpy", "memset", "collective", "p2p")
PHASES = ("load", "forward", "backward", "optimizer", "communication", "other")
WAITS = ("none", "device", "stream", "event", "own")
COSTS = ("recorded", "unblocked", "measured", "table", "roofline", "prior", "user")

TASK_COLUMNS = (
    Column("name", "category", "", "API call, operator segment, kernel, copy or collective"),
    Column("kind", "category", "", "one of TASK_KINDS"),
    Column("lane", "int32", "", "row in lanes"),
    Column(
        "start_ns",
        "int64",
        "ns",
        "recorded start; an inserted task takes its neighbour's, for order only",
    ),
    Column("duration_ns", "int64", "ns", "as recorded, waiting included; 0 for an inserted task"),
    Column("work_ns", "int64", "ns", "what it costs when nothing blocks it; replay uses this"),
    Column("step", "int32", "", "iteration within the window, from 0"),
    Column("phase", "category", "", "one of PHASES; missing when unknown"),
    Column("module", "category", "", "module path; missing when unknown"),
    Column("operator", "int32", "", "innermost operator: row in operators"),
    Column("bytes", "float64", "B", "moved or communicated; NaN when unknown"),
    Column("flops", "float64", "FLOP", "NaN when unknown"),
    Column("blocks", "int64", "", "thread blocks of a kernel"),
    Column("block_threads", "int32", "", "threads in a block"),
    Column(
        "fill",
        "float64",
        "",
        "share of the device that a kernel's grid can occupy at once; >= 1 saturates it",
    ),
    Column(
        "wait",
        "category",
        "",
        "what a host task waits for before it returns: one of WAITS ('own': the work it launched)",
    ),
    Column(
        "wait_lane",
        "int32",
        "",
        "lane (stream) waited for; with wait 'device' one of the device, where a process has"
        " several",
    ),
    Column(
        "return_ns",
        "int64",
        "ns",
        "end of the awaited work to the return of the waiting call; may be negative",
    ),
    Column(
        "lock",
        "int8",
        "",
        "driver lock: 0 ignores it, 1 waits for it, 2 holds it; -1: as its kind does",
    ),
    Column("cost", "category", "", "where work_ns came from: one of COSTS"),
)

EDGE_KINDS = {
    "thread": "start after end of the task before it on a host thread; lag: untraced host time",
    "stream": "start after end of the task before it on a stream; lag: the device's gap",
    "launch": "device task starts no earlier than the *start* of its call plus the lag",
    "return": (
        "host call *ends* no earlier than the end of the device task plus the lag (may be negative)"
    ),
    "event": "stream waits for an event of another stream",
    "fork": "work handed to another thread",
    "join": "waiting for another thread",
    "data": "a batch handed from loader to consumer, or a free slot handed back",
    "collective": "a transfer starts no earlier than the *start* of every rank's collective",
    "queue": "a launch waits for a free slot in the launch queue (made when the graph is lowered)",
}

EDGE_COLUMNS = (
    Column("src", "int32", "", "row in tasks"),
    Column("dst", "int32", "", "row in tasks"),
    Column("kind", "category", "", "one of EDGE_KINDS"),
    Column("lag_ns", "int64", "ns", "time that must pass on top"),
    Column(
        "shift", "int32", "", "0: within the window; k: dst lies k repetitions of the window later"
    ),
    Column("rule", "category", "", "which inference produced it"),
)

LANE_KINDS = ("thread", "stream", "loader", "link")

LANE_COLUMNS = (
    Column("kind", "category", "", "one of LANE_KINDS"),
    Column("rank", "int16", "", "process of the job"),
    Column("device", "int16", "", "device index; -1 on the host"),
    Column("id", "int64", "", "thread or stream id as recorded"),
    Column("role", "category", "", "main, autograd, loader, compute, communication, copy, other"),
)

OPERATOR_COLUMNS = (
    Column("name", "category", "", "aten::mm ..."),
    Column("parent", "int32", "", "enclosing operator: row in operators"),
    Column("step", "int32", "", "iteration within the window"),
    Column("phase", "category", "", "one of PHASES"),
    Column("module", "category", "", "module path"),
    Column("shapes", "category", "", "input shapes, compact JSON"),
    Column("dtypes", "category", "", "input dtypes, compact JSON"),
    Column("flops", "float64", "FLOP", "as the profiler counted it"),
    Column("duration_ns", "int64", "ns", "as recorded, children included"),
)


@dataclass(frozen=True)
class Rules:
    """Which inferences and resources are on. Tests switch one off and watch an answer change."""

    split_waiting: bool = True  # design 4.2
    launch_queue: bool = True  # 4.3
    launch_from_start: bool = True  # 4.4
    kernel_gap: bool = True  # 4.5
    event_edges: bool = True  # 4.6
    graph_branches: bool = True  # 4.6
    untraced_waits: bool = True  # 4.6
    fork_join: bool = True  # 4.8
    loader_edges: bool = True  # 4.8
    driver_lock: bool = True  # 5
    sm_contention: bool = True  # 5
    copy_engines: bool = True  # 5
    deflate: bool = True  # 4.10


@dataclass(frozen=True)
class Platform:
    """What was estimated once from the whole recording, and what inserted tasks take as cost."""

    queue_depth: int | None = None  # launches that may be outstanding; None: not imposed
    launch_ns: int = 6_000  # unblocked host cost of one launch call
    launch_latency_ns: int = 6_000  # call start to earliest kernel start on an idle stream
    sync_ns: int = 5_000  # unblocked host cost of a sync call
    return_lag_ns: int = 10_000  # device end to return of the call that waits for it
    gap_ns: dict[tuple[str, str], int] = field(
        default_factory=dict
    )  # (kind before, kind after) on a stream
    event_overhead_ns: float = 0.0  # profiler cost per host event, taken out of host tasks
    locks: bool = False  # blocking copies hold the driver lock
    queue_counts: dict[str, int] = field(default_factory=dict)  # diagnostics, printed by summary


@dataclass(frozen=True)
class Graph:
    """Tasks, edges, lanes and operators of a window of whole steps. Never changed in place.

    ``measured_step_ns`` is the period the window shows on the lane that sets the pace;
    ``step_samples_ns`` are the single recorded steps.
    """

    tasks: pd.DataFrame
    edges: pd.DataFrame
    lanes: pd.DataFrame
    operators: pd.DataFrame
    meta: TraceMeta
    steps: int
    measured_step_ns: float
    step_samples_ns: tuple[int, ...] = ()
    rules: Rules = Rules()
    platform: Platform = Platform()
    notes: tuple[str, ...] = ()  # assumptions and warnings, carried into every prediction
    state: JobState = field(default_factory=JobState)

    def with_state(self, **changes: Any) -> Graph:
        """Return the graph with fields of its `JobState` changed."""
        return replace(self, state=replace(self.state, **changes))

    def __repr__(self) -> str:
        """Return what a prompt shows: where the graph is from, how long a step took, its size."""
        kinds = self.lanes["kind"].tolist()
        lanes = [_count(kinds.count(kind), kind) for kind in LANE_KINDS if kind in kinds]
        size = [_count(len(self.tasks), "task"), _count(len(self.edges), "edge"), *lanes]
        step_ms = self.measured_step_ns / 1e6
        return (
            f"<Graph of {self.meta.source}: {_count(self.steps, 'step')} of {step_ms:.3f} ms as"
            f" measured\n {', '.join(size)}>"
        )

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        work = self.tasks.groupby("kind", observed=True)["work_ns"].sum() / (1e6 * self.steps)
        facts = {
            "source": self.meta.source,
            "steps": self.steps,
            "measured step, ms": self.measured_step_ns / 1e6,
            "tasks": len(self.tasks),
            "edges": len(self.edges),
            "lanes": len(self.lanes),
        }
        bars = {f"{kind}, work of a step": (float(ms),) for kind, ms in work.items()}
        return card("Graph", facts, bars)


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"
