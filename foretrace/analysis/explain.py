"""Why a gain is what it is: what lay on the critical path before a change, and what does after.

The path is told apart by cause (kernel class, host, copies, waiting), by phase and by module.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analysis.prediction import Prediction, predict_from
from foretrace.analysis.rank_pace import pace_setter, rank_paces
from foretrace.analysis.unchanged.baseline import run_experiment
from foretrace.replaying.critical_path import REASONS, WORK, sum_time_by
from foretrace.replaying.replay import replay
from foretrace.replaying.timeline import UNKNOWN
from foretrace.transforms.costs.kernel_names import CLASSES, kernel_class
from foretrace.transforms.edit.columns import is_in, of_category

if TYPE_CHECKING:
    from foretrace.analysis.unchanged.baseline import Experiment
    from foretrace.graph.model import Graph
    from foretrace.replaying.timeline import Timeline
    from foretrace.transforms.edit.columns import Rows
    from foretrace.transforms.scenario import ScenarioLike

UNCHANGED = ("recorded", "unblocked")
"""Cost labels of tasks that no what-if has touched."""

KIND_CAUSES = {
    "memcpy": "memcpy",
    "memset": "memset",
    "collective": "communication",
    "p2p": "communication",
    "load": "data loading",
}
"""Cause of a task's work by its kind; a kernel's is its class, everything else is the host's."""

CAUSES = tuple(
    dict.fromkeys((*(c for c in CLASSES if c != "collective"), *KIND_CAUSES.values(), "host"))
)

WAIT_CAUSES = {
    "thread": "host",  # untraced host time between two calls
    "fork": "host",
    "join": "host",
    "stream": "gaps between kernels",
    "launch": "launch latency",
    "queue": "launch queue",
    "return": "return to the host",
    "event": "waiting for streams or ranks",
    "collective": "communication",
    "data": "data loading",
    "resource": "a shared resource",
    "release": "start of the window",
    "shared link": "communication",
    "contention": "a shared resource",
}
"""Cause of the time between two tasks by why the later one had to wait."""


@dataclass(frozen=True)
class Shift:
    """One part of a step before and after the change: its work and its share of the path, in ns."""

    part: str
    work_ns: tuple[float, float]
    path_ns: tuple[float, float]

    @property
    def moved_ns(self) -> float:
        """By how much its time on the critical path grew."""
        return self.path_ns[1] - self.path_ns[0]


@dataclass(frozen=True)
class Explanation:
    """Why the gain of a scenario is what it is. Times in ns of one step, as replayed.

    ``bound_ns`` is the step if all changed and added work cost nothing: no better estimate of
    their cost can gain more. ``saved_ns`` and ``added_ns`` sum up the work by cause that went
    and came; ``limits`` names the lanes of the chain that now sets the pace, before and after,
    ``paces`` the rank of several, in a sentence.
    """

    prediction: Prediction
    bound_ns: float
    saved_ns: float
    added_ns: float
    limits: tuple[str, str]
    paces: tuple[str | None, str | None]
    causes: tuple[Shift, ...]
    phases: tuple[Shift, ...]
    modules: tuple[Shift, ...]


def explain(graph: Graph, asked: ScenarioLike) -> Explanation:
    """Compare the critical paths of *graph* before and after what was *asked*.

    Raises
    ------
    TransformError
        As `foretrace.analysis.prediction.predict` does.
    """
    return explain_from(run_experiment(graph, asked))


def explain_from(experiment: Experiment) -> Explanation:
    """Compare the critical paths of *experiment* before and after.

    Raises
    ------
    TransformError
        As `foretrace.analysis.prediction.predict_from` does.
    """
    prediction = predict_from(experiment)
    before, after = experiment.baseline.timeline, experiment.after
    causes, phases, modules = (_shifts(before, after, by) for by in ("cause", "phase", "module"))
    differences = [shift.work_ns[1] - shift.work_ns[0] for shift in causes]
    return Explanation(
        prediction=prediction,
        bound_ns=_without_changed(after).step_ns,
        saved_ns=-sum(ns for ns in differences if ns < 0),
        added_ns=sum(ns for ns in differences if ns > 0),
        limits=(before.bottleneck, after.bottleneck),
        paces=(pace_setter(rank_paces(before)), pace_setter(rank_paces(after))),
        causes=causes,
        phases=phases,
        modules=modules,
    )


def sum_path_by_cause(timeline: Timeline) -> dict[str, float]:
    """Return the ns of a step on the critical path by cause, longest first."""
    return {cause: path for cause, (_, path) in _parts(timeline, "cause").items() if path > 0}


def task_causes(graph: Graph) -> Rows:
    """Return what each task's work counts as: a position in `CAUSES`."""
    kinds, names = graph.tasks["kind"].array, graph.tasks["name"]
    by_kind = [CAUSES.index(KIND_CAUSES.get(str(kind), "host")) for kind in kinds.categories]
    cause = np.array([*by_kind, CAUSES.index("host")])[kinds.codes]
    kernel = is_in(graph.tasks["kind"], "kernel")
    cause[kernel] = of_category(names, _cause_of_kernel, CAUSES.index("other"))[kernel]
    return cause


def _cause_of_kernel(name: str) -> int:
    cls = kernel_class(name)
    return CAUSES.index("communication" if cls == "collective" else cls)


def _shifts(before: Timeline, after: Timeline, by: str) -> tuple[Shift, ...]:
    """Return every part of a step, the one whose time on the path grew most first."""
    old, new = _parts(before, by), _parts(after, by)
    nothing = 0.0, 0.0
    pairs = [
        Shift(part, *zip(old.get(part, nothing), new.get(part, nothing), strict=True))
        for part in dict.fromkeys((*old, *new))
    ]
    return tuple(sorted(pairs, key=lambda shift: -shift.moved_ns))


def _parts(timeline: Timeline, by: str) -> dict[str, tuple[float, float]]:
    """Return work and critical path of a step in ns by part, longest path first."""
    names, code = _codes(timeline.graph, by)
    work = np.bincount(code, timeline.graph.tasks["work_ns"], len(names))
    spent = sum_time_by(timeline.path, code, len(names)) / timeline.steady.cycle
    path = spent[:, WORK] if by == "cause" else spent.sum(axis=1)
    total = dict(zip(names, zip(work.tolist(), path.tolist(), strict=True), strict=True))
    for at, reason in enumerate(REASONS):
        if by == "cause" and at != WORK:
            work_ns, path_ns = total.get(WAIT_CAUSES[reason], (0.0, 0.0))
            total[WAIT_CAUSES[reason]] = work_ns, path_ns + float(spent[:, at].sum())
    steps = timeline.graph.steps
    ordered = sorted(total.items(), key=lambda item: (-item[1][1], item[0]))
    return {part: (ns[0] / steps, ns[1] / steps) for part, ns in ordered if any(ns)}


def _codes(graph: Graph, by: str) -> tuple[list[str], Rows]:
    """Return the names of the parts, and per task the number of its own."""
    if by == "cause":
        return list(CAUSES), task_causes(graph)
    values = graph.tasks[by].array
    names = [*values.categories.astype(str), UNKNOWN]
    return names, np.where(values.codes < 0, len(names) - 1, values.codes)


def _without_changed(timeline: Timeline) -> Timeline:
    """Replay with everything that the change gave another cost for nothing."""
    tasks = timeline.graph.tasks
    changed = ~is_in(tasks["cost"], *UNCHANGED)
    if not changed.any():
        return timeline
    free = tasks.assign(work_ns=np.where(changed, 0, tasks["work_ns"]))
    return replay(replace(timeline.graph, tasks=free), like=timeline)
