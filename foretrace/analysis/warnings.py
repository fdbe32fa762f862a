"""An experiment in, remarks out: what is true of a prediction and good to know.

What may be wrong in this very answer is a doubt, see `foretrace.analysis.unchanged.doubts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.analysis.evidence.validation_scope import HALF, host_share
from foretrace.graph.infer.steps.window import RUNS_AHEAD
from foretrace.tracer.calibration.file import KNOWN
from foretrace.tracer.data_issues import sentences
from foretrace.transforms.costs.peak_memory import memory_warnings
from foretrace.transforms.edit.provenance import RULE, applied, warnings
from foretrace.transforms.edit.select import has_device
from foretrace.transforms.measured.calibration import calibration_of

if TYPE_CHECKING:
    from foretrace.analysis.evidence.validated_errors import ValidatedError
    from foretrace.analysis.unchanged.baseline import Experiment
    from foretrace.graph.model import Graph

NO_GAIN = 0.005


def warn(experiment: Experiment, error: ValidatedError) -> tuple[str, ...]:
    """Return what is true and good to know of a prediction from *experiment*, or was not tested."""
    graph, changed = experiment.baseline.graph, experiment.changed
    activations = experiment.baseline.activations if changed.state.kept_activations else None
    told_before = warnings(graph)
    return (
        *_warn_of_pace(experiment),
        *(text for text in warnings(changed) if text not in told_before),
        *_warn_of_evidence(experiment, error),
        *memory_warnings(graph, changed, activations),
        *_warn_of_rules(experiment),
        *_warn_of_faults(graph),
    )


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


def _warn_of_evidence(experiment: Experiment, error: ValidatedError) -> tuple[str, ...]:
    """Say what was measured too little for this prediction."""
    notes = []
    if experiment.baseline.measured.source == "profiled":
        notes.append("the step was measured under the profiler only, which slows the host down")
    if error.missing:
        wrong = f"as much as other rules missed, {error.missed:.0%} of the change, may be wrong"
        given = "the new cost is your own figure, which the interval takes as it is"
        network = " and network" if experiment.changed.state.workers else ""
        notes.append(
            f"no pair of measurements has validated {', '.join(error.missing)} on this kind of "
            f"hardware{network}: {wrong if error.missed else given}"
        )
    return tuple(notes)


def _warn_of_faults(graph: Graph) -> tuple[str, ...]:
    """Say that the recorded job fetches memory in every step: what it allocates decides."""
    faults = {name: n for name, n in graph.meta.warnings.items() if name == "page_faults"}
    return tuple(f"{text}; after a change it may be more or less" for text in sentences(faults))


def _warn_of_rules(experiment: Experiment) -> tuple[str, ...]:
    """Say that a calibration was given and told nothing of a what-if that can be calibrated."""
    changed = experiment.changed
    new = applied(changed)[len(applied(experiment.baseline.graph)) :]
    missing = dict.fromkeys(each.text for each in new if each.name in KNOWN and each.source == RULE)
    if calibration_of(changed) is None or not missing:
        return ()
    text = f"the calibration does not cover {', '.join(missing)}: rules were used"
    return (f"{text}; foretrace calibrate measures it",)
