"""An experiment in, sentences out: why not to believe a prediction blindly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.graph.infer.window import RUNS_AHEAD
from foretrace.tracer.calibration.file import KNOWN
from foretrace.tracer.data_issues import disturbances, sentences
from foretrace.tracer.step_stats import drift
from foretrace.transforms.costs.peak_memory import memory_warnings
from foretrace.transforms.edit.provenance import RULE, applied, warnings
from foretrace.transforms.edit.select import has_device
from foretrace.transforms.measured.calibration import calibration_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from foretrace.analysis.baseline import Baseline, Experiment, Measured
    from foretrace.analysis.validated_errors import ValidatedError
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


def warn(experiment: Experiment, error: ValidatedError) -> tuple[str, ...]:
    """Say why a prediction from *experiment*, with *error* as validated, may be wrong."""
    baseline = experiment.baseline
    graph, changed = baseline.graph, experiment.changed
    activations = baseline.activations if changed.state.kept_activations else None
    return (
        *doubt(baseline),
        *_warn_unsettled(baseline.timeline),
        *_warn_of_pace(experiment),
        *_warn_of_change(experiment),
        *_warn_of_evidence(experiment, error),
        *memory_warnings(graph, changed, activations),
        *_warn_of_rules(experiment),
    )


def doubt(baseline: Baseline) -> tuple[str, ...]:
    """Say why a recording is not to be trusted: its replay misses, steps drift, others ran, too."""
    misses = []
    off = baseline.timeline.step_ns / baseline.measured.step_ns - 1
    if abs(off) > DOUBTFUL:
        misses.append(
            f"the replay of the unchanged job is {off:+.1%} off the measured step: "
            "record again on a quiet machine before trusting a prediction"
        )
    busy = disturbances(baseline.graph.meta.warnings)
    strong = {name: percent for name, percent in busy.items() if percent > 100 * DOUBTFUL}
    return (*misses, *warn_of_drift(baseline.measured), *sentences(strong))


def doubt_replay(baseline: Baseline) -> tuple[str, ...]:
    """Say what was odd about a recording and its unchanged replay."""
    return (*baseline.graph.notes, *_warn_unsettled(baseline.timeline), *doubt(baseline))


def warn_of_drift(measured: Measured) -> tuple[str, ...]:
    """Say that the steps of a recording drift, so that no one length is theirs."""
    share = drift(measured.samples_ns) if measured.source == "unprofiled" else 0.0
    if share <= DOUBTFUL:
        return ()
    text = f"the steps measured without the profiler drift by {share:.1%}"
    return (f"{text}: the machine was not quiet",)


def host_share(path: Mapping[str, float]) -> float:
    """Return the share of a critical path that the host is the cause of.

    >>> host_share({"kernel": 3.0, "thread gap": 1.0})
    0.25
    """
    return sum(path.get(cause, 0.0) for cause in OF_HOST) / sum(path.values())


def _warn_unsettled(timeline: Timeline) -> tuple[str, ...]:
    """Say that the unchanged replay found no period."""
    if timeline.settled:
        return ()
    return ("the replay did not settle on one period; its last repetitions are reported",)


def _warn_of_pace(experiment: Experiment) -> tuple[str, ...]:
    """Return what was odd of the recording and still holds, and who is too slow after a change."""
    graph = experiment.baseline.graph
    was, share = (
        host_share(path) for path in (experiment.baseline.critical_path, experiment.critical_path)
    )
    if share <= HALF or not has_device(graph):
        return graph.notes
    notes = tuple(note for note in graph.notes if note != RUNS_AHEAD)
    if was > HALF and share <= was and abs(1 - experiment.ratio) > NO_GAIN:
        return notes
    since = "after the change" if was <= HALF else "before and after the change"
    return (*notes, f"the host sets the pace {since}: {share:.0%} of the critical path is its own")


def _warn_of_change(experiment: Experiment) -> tuple[str, ...]:
    """Say what the what-ifs warned of, and what a step consists of where they change it too much.

    More workers may well be as many times as fast.
    """
    graph, changed = experiment.baseline.graph, experiment.changed
    told_before = warnings(graph)
    texts = [text for text in warnings(changed) if text not in told_before]
    gain = experiment.samples / experiment.ratio
    workers = max(1.0, (changed.meta.world_size or 1) / (graph.meta.world_size or 1))
    if not 1 / MANY_TIMES <= gain <= MANY_TIMES * workers:
        parts = [*experiment.critical_path.items()][:SHOWN]
        named = ", ".join(f"{cause} {ns / experiment.after.step_ns:.0%}" for cause, ns in parts)
        texts.append(
            f"{gain:,.3g} times as fast: check that the change says what you mean; a step then "
            f"takes {experiment.ratio:,.3g} times as long ({named})"
        )
    return tuple(texts)


def _warn_of_evidence(experiment: Experiment, error: ValidatedError) -> tuple[str, ...]:
    """Say what was measured too little for this prediction."""
    notes = []
    if experiment.baseline.measured.source == "profiled":
        notes.append("the step was measured under the profiler only, which slows the host down")
    if not experiment.after.settled:
        notes.append("the replay after the change did not settle on one period")
    if error.missing:
        wrong = f"as much as other rules missed, {error.missed:.0%} of the change, may be wrong"
        steps = "the interval covers the variation of the recorded steps only"
        network = " and network" if experiment.changed.state.workers else ""
        notes.append(
            f"no pair of measurements has validated {', '.join(error.missing)} on this kind of "
            f"hardware{network}: {wrong if error.missed else steps}"
        )
    return tuple(notes)


def _warn_of_rules(experiment: Experiment) -> tuple[str, ...]:
    """Say that a calibration was given and told nothing of a what-if that can be calibrated."""
    changed = experiment.changed
    new = applied(changed)[len(applied(experiment.baseline.graph)) :]
    missing = dict.fromkeys(each.text for each in new if each.name in KNOWN and each.source == RULE)
    if calibration_of(changed) is None or not missing:
        return ()
    text = f"the calibration does not cover {', '.join(missing)}: rules were used"
    return (f"{text}; foretrace calibrate measures it",)
