"""The result of a replay: one settled repetition of the window, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from foretrace.replaying.critical_path import (
    REASONS,
    WORK,
    sum_time_by,
    trace_critical_path,
    trace_limiting_cycle,
)
from foretrace.replaying.slack import compute_slack
from foretrace.util.html_card import card

if TYPE_CHECKING:
    from foretrace.graph.model import Graph
    from foretrace.replaying.critical_path import CausalChain
    from foretrace.replaying.engine.program import Longs
    from foretrace.replaying.incremental import Lowered
    from foretrace.replaying.steady_state import Steady

UNKNOWN = "unknown"
"""What a breakdown calls time whose phase or module the recording does not tell."""


@dataclass(frozen=True)
class Timeline:
    """Start and end of every task of *graph* in one repetition of the steady state.

    ``start_ns`` and ``end_ns`` follow the rows of ``graph.tasks``; 0 is the first start. The
    rest is computed on first use.
    """

    lowered: Lowered
    steady: Steady
    start_ns: Longs
    end_ns: Longs

    @property
    def graph(self) -> Graph:
        """The graph that was replayed."""
        return self.lowered.graph

    @property
    def period_ns(self) -> float:
        """Length of one repetition of the window, ``graph.steps`` steps."""
        return self.steady.period_ns

    @property
    def step_ns(self) -> float:
        """Length of a step on the slowest lane: the pace of the job."""
        return self.steady.period_ns / self.graph.steps

    @property
    def host_step_ns(self) -> float | None:
        """Length of a step on the host; ``None`` without host tasks."""
        return self._per_step(self.steady.host_period_ns)

    @property
    def device_step_ns(self) -> float | None:
        """Length of a step on the devices; ``None`` without device tasks."""
        return self._per_step(self.steady.device_period_ns)

    @property
    def fill_ns(self) -> int:
        """Time until the first repetition that keeps the steady pace."""
        return self.steady.fill_ns

    @property
    def settled(self) -> bool:
        """Whether the period stopped changing."""
        return self.steady.settled

    @property
    def throughput(self) -> float | None:
        """Samples per second and rank; ``None`` while the batch size is unknown."""
        batch = self.graph.meta.batch_size
        return None if batch is None else batch / (self.step_ns * 1e-9)

    @cached_property
    def critical_path(self) -> pd.DataFrame:
        """Segments of the critical path in order of time.

        Columns: ``task``, ``from_ns``, ``to_ns``, ``why`` (``"work"``, an edge kind: the time
        between two tasks, ``"resource"``, an empty segment after which the holder of a resource
        follows, ``"shared link"`` and ``"contention"``, by which the task took longer because of
        others), and ``kind``, ``phase``, ``module``, ``lane`` of the task. The lengths
        add up to `cycle` periods.
        """
        return self._tabulate(self.path)

    @cached_property
    def path(self) -> CausalChain:
        """The critical path as the engine knows it, latest segment first."""
        return trace_critical_path(self.steady)

    @cached_property
    def limiting_cycle(self) -> pd.DataFrame:
        """Segments of the chain that closes on itself: the bottleneck, as `critical_path`."""
        return self._tabulate(trace_limiting_cycle(self.steady))

    @property
    def bottleneck(self) -> str:
        """Which lanes the limiting cycle runs through: ``"host"``, ``"device"``, or both."""
        cycle = self.limiting_cycle
        lanes = self.graph.lanes
        names = np.where(lanes["kind"] == "stream", "device", lanes["kind"].astype(str))
        names[names == "thread"] = "host"
        return " and ".join(sorted(set(names[cycle["lane"].unique()]))) or UNKNOWN

    def breakdown(self, by: str = "kind") -> dict[str, float]:
        """Return the ns of a step on the critical path by cause, longest first.

        Parameters
        ----------
        by
            ``"kind"``: kinds of tasks that work, and kinds of edges between them (the idle
            reasons); ``"phase"`` or ``"module"``: of the task that works or waits to start.
        """
        cause = self.graph.tasks[by].array
        names = [*cause.categories.astype(str), UNKNOWN]
        code = np.where(cause.codes < 0, len(names) - 1, cause.codes)
        spent = sum_time_by(self.path, code, len(names)) / (self.steady.cycle * self.graph.steps)
        if by == "kind":
            gaps = spent.sum(axis=0)
            gaps[WORK] = 0
            names += [f"{reason} gap" for reason in REASONS]
            sums = np.concatenate((spent[:, WORK], gaps))
        else:
            sums = spent.sum(axis=1)
        longest = np.argsort(-sums, kind="stable")
        return {names[at]: float(sums[at]) for at in longest if sums[at] > 0}

    @cached_property
    def slack_ns(self) -> Longs:
        """How much later each task could start without making the run longer."""
        return compute_slack(self.steady)

    @cached_property
    def lanes(self) -> pd.DataFrame:
        """Time per repetition and lane: ``work_ns``, ``waiting_ns`` and ``idle_ns``.

        Waiting is inside calls, and what sharing adds to transfers and to what they slow.
        """
        tasks, count = self.graph.tasks, len(self.graph.lanes)
        lane = tasks["lane"].to_numpy()
        work = np.bincount(lane, tasks["work_ns"], count)
        taken = np.bincount(lane, self.end_ns - self.start_ns, count)
        idle = np.maximum(self.period_ns - taken, 0.0)
        return pd.DataFrame({"work_ns": work, "waiting_ns": taken - work, "idle_ns": idle})

    def __repr__(self) -> str:
        """Return what a prompt shows: how long a step takes and took, and what sets its pace."""
        lengths = (("host", self.host_step_ns), ("device", self.device_step_ns))
        each = ", ".join(f"{name} {ns / 1e6:.3f} ms" for name, ns in lengths if ns is not None)
        return (
            f"<Timeline of {self.graph.meta.source}: step {self.step_ns / 1e6:.3f} ms,"
            f" measured {self.graph.measured_step_ns / 1e6:.3f} ms\n"
            f" pace set by {self.bottleneck} ({each}), {'' if self.settled else 'not '}settled>"
        )

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the step, what it consists of, and what its lanes do."""
        facts = {
            "step, ms": self.step_ns / 1e6,
            "set by": self.bottleneck,
            "steps in the window": self.graph.steps,
            "samples per second": self.throughput,
            "settled": "yes" if self.settled else "no",
        }
        path = {f"{cause}, on the path": (ns / 1e6,) for cause, ns in self.breakdown().items()}
        return card("Timeline", facts, path)

    def _per_step(self, period_ns: float | None) -> float | None:
        return None if period_ns is None else period_ns / self.graph.steps

    def _tabulate(self, chain: CausalChain) -> pd.DataFrame:
        """Return *chain* as a frame, moved into the repetition that the timeline shows."""
        steady, tasks = self.steady, self.graph.tasks
        row = chain.task[::-1] % steady.program.tasks
        begin = int(chain.from_ns.min(initial=np.iinfo(np.int64).max))
        moved = int(self.start_ns[steady.pace]) - begin
        columns: dict[str, Any] = {
            "task": row.astype(np.int32),
            "from_ns": chain.from_ns[::-1] + moved,
            "to_ns": chain.to_ns[::-1] + moved,
            "why": pd.Categorical.from_codes(chain.why[::-1], categories=pd.Index(REASONS)),
        }
        for name in ("kind", "phase", "module", "lane"):
            columns[name] = tasks[name].take(row).array
        return pd.DataFrame(columns)


def cut_timeline(lowered: Lowered, steady: Steady) -> Timeline:
    """Cut the settled repetition out of *steady*."""
    start, end = (block[steady.window] for block in (steady.schedule.starts, steady.schedule.ends))
    return Timeline(lowered, steady, start - start.min(), end - start.min())
