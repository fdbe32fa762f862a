"""Why two recorded steps differ: each replayed with the times of groups as in the other.

In: the baselines of two recordings. Out: a part per group, which add up to what the replays differ
by. Which tasks there are, and what waits for what, is a group of its own: with it the second job is
replayed, without it the first, each with the times of the others as the set of groups says.

A change explained by exchanging its causes one by one, averaged over orders, is that of Budhathoki,
Janzing, Bloebaum and Ng, "Why did the distribution change?" (AISTATS 2021), here with a replay in
place of a causal model of distributions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analysis.difference.shapley import shapley_values
from foretrace.analysis.error.prediction_interval import LEVEL, RESAMPLES, SEED
from foretrace.replaying.replay import replay
from foretrace.transforms.measured.exchange import GROUPS, Counterparts, exchange, match

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretrace.analysis.unchanged.baseline import Baseline
    from foretrace.replaying.timeline import Timeline

    Floats = npt.NDArray[np.float64]

WORK = "work"
UNTESTED = 0.10
"""Share of all parts together by which one may be off although both recordings replay well: 9 in 10
are within it where the cause is known (docs/accuracy-diff.md)."""
CAUSES = {**GROUPS, WORK: "operators, calls and kernels that only one of the recordings has"}
"""What the difference of two steps is parted into, and what is meant by it."""


@dataclass(frozen=True)
class Part:
    """What one group of causes adds to the step, in ns; more is slower.

    ``alone_ns`` is what the first step takes longer with this group alone as it is in the second,
    ``undone_ns`` what the second takes longer than with this group as it was in the first.
    """

    cause: str
    ns: float
    interval_ns: tuple[float, float]
    alone_ns: float
    undone_ns: float


@dataclass(frozen=True)
class Exchanges:
    """The replays of two recordings with their groups exchanged; each is done once."""

    before: Baseline
    after: Baseline

    @cached_property
    def forward(self) -> Counterparts:
        """The tasks of the first recording, with those of the second."""
        return match(self.before.graph, self.after.graph)

    @cached_property
    def backward(self) -> Counterparts:
        """The tasks of the second recording, with those of the first."""
        return match(self.after.graph, self.before.graph)

    @cached_property
    def steps_ns(self) -> dict[frozenset[str], float]:
        """The replayed steps by the causes that are as in the second recording."""
        return {
            frozenset(): self.before.timeline.step_ns,
            self.present: self.after.timeline.step_ns,
        }

    @cached_property
    def present(self) -> frozenset[str]:
        """The causes of which there is anything in either recording."""
        pairs = self.forward, self.backward
        return frozenset({WORK, *(name for name in GROUPS if any(p.has(name) for p in pairs))})

    def step_ns(self, causes: frozenset[str]) -> float:
        """Return the replayed step with *causes* as in the second recording, others as before."""
        causes &= self.present
        if causes not in self.steps_ns:
            second = WORK in causes
            taken = frozenset(GROUPS) - causes if second else causes
            pair, like = (self.backward, self.after) if second else (self.forward, self.before)
            changed = replay(exchange(pair, taken), like=like.timeline)
            self.steps_ns[causes] = changed.step_ns
        return self.steps_ns[causes]


def explain_parts(exchanges: Exchanges, unexplained_ns: float) -> tuple[Part, ...]:
    """Return the part of every cause, largest first.

    An interval joins in quadrature how the steps of both recordings vary, what their replays miss,
    and what replays miss after a change; *unexplained_ns*, which may belong to any part, is added.
    """
    values = shapley_values([*CAUSES], exchanges.step_ns)
    varied, baselines = _vary(exchanges), (exchanges.before, exchanges.after)
    missed = max(abs(each.timeline.step_ns / each.measured.step_ns - 1) for each in baselines)
    untested = UNTESTED * sum(map(abs, values.values()))
    none, every = frozenset[str](), frozenset(CAUSES)
    parts = []
    for cause, ns in values.items():
        wrong = float(np.hypot(missed * ns, untested)) if ns else 0.0
        below, above = (np.hypot(each, wrong) + abs(unexplained_ns) for each in varied[cause])
        parts.append(
            Part(
                cause=cause,
                ns=ns,
                interval_ns=(float(ns - below), float(ns + above)),
                alone_ns=exchanges.step_ns(none | {cause}) - exchanges.step_ns(none),
                undone_ns=exchanges.step_ns(every) - exchanges.step_ns(every - {cause}),
            )
        )
    return tuple(sorted(parts, key=lambda part: -abs(part.ns)))


def _vary(exchanges: Exchanges) -> dict[str, tuple[float, float]]:
    """Return by how much each part may differ because steps do, in ns (bootstrap over the steps).

    To first order: what a group takes in a step counts as far as it lies on the critical path.
    """
    resampled = {cause: np.zeros(RESAMPLES) for cause in CAUSES}
    random = np.random.default_rng(SEED)
    for baseline, pair, sign in (
        (exchanges.before, exchanges.forward, -1.0),
        (exchanges.after, exchanges.backward, 1.0),
    ):
        spent, weight = _spend_by_step(pair), _weigh(pair, baseline.timeline)
        picks = random.integers(0, spent.shape[1], (RESAMPLES, spent.shape[1]))
        for at, cause in enumerate(CAUSES):
            drawn = spent[at][picks].mean(axis=1) - spent[at].mean()
            resampled[cause] += sign * weight[at] * drawn
    tail = (1 - LEVEL) / 2
    return {
        cause: (min(float(low), 0.0), max(float(high), 0.0))
        for cause, drawn in resampled.items()
        for low, high in [np.quantile(drawn, [tail, 1 - tail])]
    }


def _spend_by_step(pair: Counterparts) -> Floats:
    """Return the ns that each cause, a row, takes in each step of the graph, on all lanes."""
    graph = pair.graph
    of_task, of_edge = _causes_of(pair)
    step = np.maximum(graph.tasks["step"].to_numpy(), 0)
    ends = step[graph.edges["dst"].to_numpy()]
    work, lag = graph.tasks["work_ns"].to_numpy(), graph.edges["lag_ns"].to_numpy()
    size = len(CAUSES) * graph.steps
    on_tasks = np.bincount(of_task * graph.steps + step, work, size)
    on_edges = np.bincount(of_edge * graph.steps + ends, lag, size)
    spent: Floats = (on_tasks + on_edges).astype(np.float64)
    return spent.reshape(len(CAUSES), graph.steps)


def _causes_of(pair: Counterparts) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the cause of each task and of each edge; what has no counterpart is work."""
    alone = pair.is_alone
    work = [*CAUSES].index(WORK)
    return (
        np.where(alone, work, pair.task_groups),
        np.where(alone[pair.graph.edges["dst"].to_numpy()], work, pair.edge_groups),
    )


def _weigh(pair: Counterparts, timeline: Timeline) -> Floats:
    """Return which share of the time of each cause lies on the critical path; 1 at most."""
    of_task, _ = _causes_of(pair)
    path = timeline.critical_path
    task = path["task"].to_numpy()
    names = [*CAUSES]
    reason = path["why"].astype(str).map(_REASONS).fillna("").to_numpy()
    by_edge = np.array([names.index(each) if each else -1 for each in reason], np.int64)
    cause = np.where((by_edge < 0) | (of_task[task] == names.index(WORK)), of_task[task], by_edge)
    length = (path["to_ns"] - path["from_ns"]).to_numpy()
    on_path = np.bincount(cause, length, len(names)) / timeline.steady.cycle
    spent = _spend_by_step(pair).sum(axis=1)
    return np.minimum(np.divide(on_path, spent, out=np.zeros(len(names)), where=spent > 0), 1.0)


_REASONS = {
    **dict.fromkeys(("thread", "fork", "join"), "host"),
    **dict.fromkeys(("stream", "launch", "return", "event", "queue"), "latencies"),
    "data": "loader",
    "collective": "communication",
}
"""Causes of the time between two tasks, by the kind of the edge."""
