"""Replays and a changed graph in, sentences out: why not to believe a prediction blindly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.graph.infer.window import RUNS_AHEAD
from foretrace.tracer.calibration.file import KNOWN
from foretrace.tracer.data_issues import disturbances, sentences
from foretrace.tracer.step_stats import drift
from foretrace.transforms.edit.provenance import RULE, applied, warnings
from foretrace.transforms.edit.select import has_device
from foretrace.transforms.measured.calibration import calibration_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from foretrace.analysis.prediction import Measured
    from foretrace.analysis.validated_errors import ValidatedError
    from foretrace.graph.model import Graph
    from foretrace.replaying.timeline import Timeline

DOUBTFUL = 0.05
"""Where the unchanged replay misses the measured step, that step drifts, or others had the machine,
by more than this share, nothing predicted from the recording counts as validated."""
MANY_TIMES = 10.0
"""A gain or loss larger than this is named with what a step then consists of: it may be a slip."""
SHOWN = 3
HALF = 0.5
NO_GAIN = 0.005
OF_HOST = (
    *("host", "launch", "sync", "load", "data gap"),
    *("thread gap", "fork gap", "join gap", "launch gap", "return gap"),
)
"""Causes on a critical path that only a faster host or loader would shorten."""


def doubts(measured: Measured, unchanged: Timeline) -> tuple[str, ...]:
    """Say why a recording is not to be trusted: its replay misses, steps drift, others ran, too."""
    found = []
    off = unchanged.step_ns / measured.step_ns - 1
    if abs(off) > DOUBTFUL:
        found.append(
            f"the replay of the unchanged job is {off:+.1%} off the measured step: "
            "record again on a quiet machine before trusting a prediction"
        )
    busy = disturbances(unchanged.graph.meta.warnings)
    strong = {name: percent for name, percent in busy.items() if percent > 100 * DOUBTFUL}
    return (*found, *of_measurement(measured), *sentences(strong))


def of_measurement(measured: Measured) -> tuple[str, ...]:
    """Say that the steps of a recording drift, so that no one length is theirs."""
    wandered = drift(measured.samples_ns) if measured.source == "unprofiled" else 0.0
    if wandered <= DOUBTFUL:
        return ()
    text = f"the steps measured without the profiler drift by {wandered:.1%}"
    return (f"{text}: the machine was not quiet",)


def of_replay(timeline: Timeline) -> tuple[str, ...]:
    """Say what was found odd while a recording was replayed unchanged."""
    if timeline.settled:
        return ()
    return ("the replay did not settle on one period; its last repetitions are reported",)


def of_pace(
    graph: Graph, before: Mapping[str, float], after: Mapping[str, float], ratio: float
) -> tuple[str, ...]:
    """Return what was odd of the recording and still holds, and who is too slow after a change.

    *before* and *after* are critical paths by cause, *ratio* is the step after over before.
    """
    share, was = host_share(after), host_share(before)
    if share <= HALF or not has_device(graph):
        return graph.notes
    kept = tuple(note for note in graph.notes if note != RUNS_AHEAD)
    if was > HALF and share <= was and abs(1 - ratio) > NO_GAIN:
        return kept
    since = "after the change" if was <= HALF else "before and after the change"
    return (*kept, f"the host sets the pace {since}: {share:.0%} of the critical path is its own")


def host_share(path: Mapping[str, float]) -> float:
    """Return the share of a critical path that the host is the cause of.

    >>> host_share({"kernel": 3.0, "thread gap": 1.0})
    0.25
    """
    return sum(path.get(cause, 0.0) for cause in OF_HOST) / sum(path.values())


def of_change(graph: Graph, after: Timeline, ratio: float, samples: float) -> tuple[str, ...]:
    """Say what the what-ifs warned of, and what a step consists of where they change it too much.

    *ratio* is the step after over before, *samples* by how many times its samples grew. More
    workers may well be as many times as fast.
    """
    known = warnings(graph)
    found = [text for text in warnings(after.graph) if text not in known]
    gain = samples / ratio
    workers = max(1.0, (after.graph.meta.world_size or 1) / (graph.meta.world_size or 1))
    if not 1 / MANY_TIMES <= gain <= MANY_TIMES * workers:
        parts = [*after.breakdown("kind").items()][:SHOWN]
        named = ", ".join(f"{cause} {ns / after.step_ns:.0%}" for cause, ns in parts)
        found.append(
            f"{gain:,.3g} times as fast: check that the change says what you mean; a step then "
            f"takes {ratio:,.3g} times as long ({named})"
        )
    return tuple(found)


def of_prediction(measured: Measured, after: Timeline, error: ValidatedError) -> tuple[str, ...]:
    """Say what was measured too little for this prediction."""
    notes = []
    if measured.source == "profiled":
        notes.append("the step was measured under the profiler only, which slows the host down")
    if not after.settled:
        notes.append("the replay after the change did not settle on one period")
    if error.missing:
        wrong = f"as much as other rules missed, {error.missed:.0%} of the change, may be wrong"
        steps = "the interval covers the variation of the recorded steps only"
        network = " and network" if after.graph.state.workers else ""
        notes.append(
            f"no pair of measurements has validated {', '.join(error.missing)} on this kind of "
            f"hardware{network}: {wrong if error.missed else steps}"
        )
    return tuple(notes)


def uncovered(graph: Graph, changed: Graph) -> tuple[str, ...]:
    """Say that a calibration was given and told nothing of a what-if that can be calibrated."""
    new = applied(changed)[len(applied(graph)) :]
    missing = dict.fromkeys(each.text for each in new if each.name in KNOWN and each.source == RULE)
    if calibration_of(changed) is None or not missing:
        return ()
    text = f"the calibration does not cover {', '.join(missing)}: rules were used"
    return (f"{text}; foretrace calibrate measures it",)
