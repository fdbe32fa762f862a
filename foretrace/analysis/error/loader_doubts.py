"""An experiment in, what its answer owes to a loader that the recording does not fully show.

Worker processes are seen only by the calls of ``next()``: one that never waited tells that a batch
costs its workers no more than a step, and one that always waited hides what taking over costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.analysis.unchanged.loader_readings import SHORT_HANDOVER_NS
from foretrace.analysis.unchanged.other_readings import HANDOVER_HIDDEN
from foretrace.graph.state import Doubt
from foretrace.transforms.edit.columns import is_in
from foretrace.transforms.scenario import names

if TYPE_CHECKING:
    from foretrace.analysis.unchanged.baseline import Experiment
    from foretrace.transforms.scenario import Scenario

MATTERS = 0.1
"""Share of the predicted step that what is not seen must be worth before it is doubted."""
BINDS = 0.5
"""Share of the critical path that loading has where the loader sets the pace."""


def loader_bound_ns(experiment: Experiment) -> float:
    """Return what a step may take because of workers that were never waited for; 0 without such.

    They may have been just fast enough for the recorded step, whatever gets faster after that.
    Where the recorder timed a batch alone, that tells more.
    """
    graph = experiment.baseline.graph
    if graph.state.loader is None or graph.state.loader.waited:
        return 0.0
    if is_in(experiment.changed.tasks["kind"], "load").any():
        return 0.0
    loader = graph.meta.loader or {}
    bound = experiment.baseline.measured.step_ns
    if loader.get("load_ns") and loader.get("workers"):
        bound = min(bound, loader["load_ns"] / loader["workers"])
    return float(bound * experiment.samples / _gain_of_host(experiment.scenario))


def most_loading_ns(experiment: Experiment) -> float:
    """Return what a step takes at most if workers were just fast enough, fewer of them included."""
    fewer = 1.0
    for what_if in experiment.scenario:
        if what_if.name == "dataloader":
            fewer = (_count_recorded(experiment) or 1) / max(what_if.parameters["workers"], 1)
    return loader_bound_ns(experiment) * max(fewer, 1.0)


def _count_recorded(experiment: Experiment) -> int | None:
    """Return how many loader workers were recorded, as the recorder or whoever asks says."""
    counted = (experiment.baseline.graph.meta.loader or {}).get("workers")
    asked = (each.parameters.get("recorded_workers") for each in experiment.scenario)
    return counted or next((each for each in asked if each), None)


def _predict_ns(experiment: Experiment) -> float:
    return experiment.baseline.measured.step_ns * experiment.ratio


def doubt_loader(experiment: Experiment) -> tuple[Doubt, ...]:
    """Say where an answer rests on what the recording does not show of the loader's workers."""
    if experiment.baseline.graph.state.loader is None:
        return ()
    return _doubt_cost(experiment) or _doubt_handover(experiment, _predict_ns(experiment))


def _doubt_cost(experiment: Experiment) -> tuple[Doubt, ...]:
    """Say that a batch may cost workers that were never waited for as much as a step allows."""
    bound = loader_bound_ns(experiment)
    if bound > (1 + MATTERS) * _predict_ns(experiment):
        text = (
            "no call of next() waited for the loader's workers, so that nothing shows what a batch"
            f" costs them: if they are just fast enough today, a step takes {bound / 1e6:.3f} ms;"
            " record with fewer workers"
        )
        return (Doubt("loader-cost-hidden", text, "next()"),)
    return ()


def _doubt_handover(experiment: Experiment, predicted_ns: float) -> tuple[Doubt, ...]:
    """Say that what taking over a batch costs is not seen, where the answer rests on that."""
    seen = experiment.baseline.graph.state.loader
    off = 0.0
    takes_turns = (_count_recorded(experiment) or 1) > 1  # who waits for several does so in bursts
    if HANDOVER_HIDDEN in experiment.other_steps_ns:
        step_ns = experiment.after.step_ns
        others = experiment.other_steps_ns[HANDOVER_HIDDEN]
        off = max((abs(other / step_ns - 1) * predicted_ns for other in others), default=0.0)
    elif seen is None or not _waits_for_calls(experiment, seen.handover_ns):
        return ()
    elif not seen.waited and "dataloader" in names(experiment.scenario) and not takes_turns:
        off = float(seen.handover_ns - SHORT_HANDOVER_NS)
    if off <= MATTERS * predicted_ns:
        return ()
    text = (
        "every call of next() took about as long: what of it is waiting for the loader and what is"
        f" taking over a batch is not recorded; {off / 1e6:.3f} ms of the predicted step may be"
        " wrong; record with more workers"
    )
    return (Doubt(HANDOVER_HIDDEN, text, "next()"),)


def _waits_for_calls(experiment: Experiment, handover_ns: int) -> bool:
    """Tell whether calls of next() are on the critical path, other than by waiting for batches."""
    path = experiment.critical_path
    loading = path.get("load", 0.0)
    calling = experiment.after.breakdown("phase").get("load", 0.0) - loading
    return loading <= BINDS * sum(path.values()) and 2 * calling > handover_ns


def _gain_of_host(scenario: Scenario) -> float:
    """Return how many times as fast the whole host becomes, loader workers included."""
    gain = 1.0
    for what_if in scenario:
        if what_if.name == "faster_host":
            gain *= float(what_if.parameters["speedup"])
    return gain
