"""The list of recordings in, rows of the accuracy study out: identity and measured pairs.

The list is data (`traces/study.toml`). A recording that is not there is named, never skipped
silently; one that cannot be replayed is a row with its problem.
"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmarks.accuracy.rows import AccuracyStudy, IdentityRow
from benchmarks.accuracy.window_start import compare_parts
from foretrace.analysis.error.difficulty import NONE
from foretrace.analysis.evidence.measured_pair import MeasuredPair, with_measured_step
from foretrace.analysis.null_models import apply_paper_constants
from foretrace.analysis.prediction import predict
from foretrace.analysis.unchanged.identity import identity
from foretrace.analysis.unchanged.measured_step import measured_step
from foretrace.analysis.validation import compare
from foretrace.errors import ForetraceError, TraceError, TransformError
from foretrace.graph.build import build
from foretrace.graph.model import DEVICE_KINDS
from foretrace.tracer.lab.pairs.read_archive import read_pairs
from foretrace.tracer.readers.load import load
from foretrace.tracer.step_stats import NOISE_LIMIT, drift
from foretrace.transforms.costs.roofline import kernel_time_ns
from foretrace.transforms.edit.provenance import MEASURED
from foretrace.transforms.edit.select import has_device
from foretrace.transforms.foreign_scenario import parse_foreign_scenario
from foretrace.transforms.measured.calibration import read_calibration
from foretrace.transforms.scenario import apply, names, parse_scenario
from foretrace.util.progress import stage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from benchmarks.accuracy.rows import PartRow
    from foretrace.analysis.prediction import Prediction
    from foretrace.analysis.validation import Validation
    from foretrace.graph.model import Graph
    from foretrace.tracer.lab.pairs.read_archive import Pair
    from foretrace.transforms.scenario import Scenario


def read_list(path: Path) -> dict[str, Any]:
    """Read the list of recordings, pairs and archives."""
    return tomllib.loads(path.read_text("utf-8"))


def run_study(listed: dict[str, Any], folder: Path) -> AccuracyStudy:
    """Replay and predict everything that *listed* names; its archives lie in *folder*."""
    study = _Collector(
        folder.parent / listed["shared"], listed.get("held_out", ()), listed.get("tuned_on", ())
    )
    for entry in listed.get("identity", ()):
        study.identity(entry)
    for entry in listed.get("pair", ()):
        study.pair(entry)
    for pattern in listed["archives"]:
        for archive in sorted(folder.glob(pattern)):
            study.archive(archive)
    return study.result()


class _Collector:
    """Gathers rows; keeps each graph of the public set, since pairs share recordings."""

    def __init__(self, shared: Path, held_out: Collection[str], tuned_on: Collection[str]) -> None:
        self._shared = shared
        self._held_out, self._tuned_on = held_out, tuned_on
        self._graphs: dict[str, Graph] = {}
        self._identities: list[IdentityRow] = []
        self._parts: list[PartRow] = []
        self._pairs: list[MeasuredPair] = []
        self._problems: dict[str, str] = {}
        self._absent: dict[str, None] = {}

    def identity(self, entry: dict[str, Any]) -> None:
        trace, cause = entry["trace"], entry.get("cause")
        if not self._is_present(trace):
            return
        try:
            graph = self._graph(trace)
            with stage(f"replaying {trace}"):
                row = identity_row(trace, graph, cause)
        except ForetraceError as error:
            self._identities.append(IdentityRow(trace, cause, problem=str(error)))
            return
        self._identities.append(row)
        with stage(f"opening {trace} elsewhere"):
            self._parts += compare_parts(trace, load(self._shared / trace))

    def pair(self, entry: dict[str, Any]) -> None:
        if not all([self._is_present(entry["before"]), self._is_present(entry["after"])]):
            return
        try:
            before = self._measured(entry, "before")
            after = self._measured(entry, "after")
            with stage(f"predicting {entry['id']}"):
                self._pairs.append(_public_row(entry, before, after))
        except ForetraceError as error:
            self._problems[entry["id"]] = str(error)

    def archive(self, archive: Path) -> None:
        for pair in read_pairs(archive):
            try:
                with stage(f"predicting {pair.name}"):
                    row, unchanged = recorded_rows(pair)
            except ForetraceError as error:
                self._problems[pair.name] = str(error)
            else:
                name = self._new_name(row.name)
                held_out, tuned = (pair.model in of for of in (self._held_out, self._tuned_on))
                self._pairs.append(replace(row, name=name, held_out=held_out, tuned_on=tuned))
                self._identities.append(replace(unchanged, trace=name))

    def _new_name(self, name: str) -> str:
        """Return *name*, marked where an earlier archive has a pair of that name."""
        while any(pair.name == name for pair in self._pairs):
            name += " again"
        return name

    def result(self) -> AccuracyStudy:
        return AccuracyStudy(
            tuple(self._identities),
            tuple(self._pairs),
            self._problems,
            tuple(self._absent),
            tuple(self._parts),
        )

    def _is_present(self, trace: str) -> bool:
        if (self._shared / trace).is_file():
            return True
        self._absent[trace] = None
        return False

    def _measured(self, entry: dict[str, Any], side: str) -> Graph:
        """Return the graph of one side, with the step measured without the profiler if listed."""
        graph, step_ms = self._graph(entry[side]), entry.get(f"{side}_ms")
        return graph if step_ms is None else with_measured_step(graph, step_ms * 1e6)

    def _graph(self, trace: str) -> Graph:
        if trace not in self._graphs:
            with stage(f"reading {trace}"):
                self._graphs[trace] = build(load(self._shared / trace))
        return self._graphs[trace]


def identity_row(trace: str, graph: Graph, cause: str | None = None) -> IdentityRow:
    """Replay *graph* unchanged."""
    replayed = identity(graph)
    measured_ns = replayed.measured.step_ns
    return IdentityRow(trace, cause, measured_ns, replayed.replayed_ns, graph.steps)


def recorded_rows(pair: Pair) -> tuple[MeasuredPair, IdentityRow]:
    """Predict one recorded pair with and without its calibration, from a replay of its recording.

    The recording was made on its own; the pair's step times were measured interleaved.
    """
    recorded = build(pair.before)
    before = with_measured_step(recorded, pair.before_ns)
    scenario = parse_foreign_scenario([pair.scenario])
    validation = compare(before, scenario, pair.after_ns, "unprofiled")
    calibrated = _calibrated(pair, before, scenario)
    row = replace(
        _step_row(validation, before, scenario),
        name=pair.name,
        model=pair.model,
        change=pair.scenario,
        before_ns=pair.before_ns,
        calibrated_ns=calibrated.predicted_ns if calibrated else None,
        calibrated_difficulty=calibrated.difficulty if calibrated else NONE,
        noise=pair.noise,
    )
    unchanged = IdentityRow(
        pair.name,
        _unrest(recorded.meta.unprofiled_step_ns),
        measured_step(recorded).step_ns,
        validation.prediction.replayed_before_ns,
        recorded.steps,
    )
    return row, unchanged


def _step_row(validation: Validation, before: Graph, scenario: Scenario) -> MeasuredPair:
    """Return a row about whole steps, its name and origin left open."""
    prediction = validation.prediction
    return MeasuredPair(
        name="",
        model="",
        change="",
        hardware=_hardware(before),
        transforms=names(scenario),
        measure="step",
        before_ns=prediction.measured.step_ns,
        after_ns=validation.measured_after_ns,
        rule_ns=prediction.predicted_ns,
        paper_ns=validation.null_paper_ns,
        step_interval=prediction.step_interval,
        rule_difficulty=prediction.difficulty,
        place=prediction.place,
        replay_error=prediction.replayed_before_ns / prediction.measured.step_ns - 1,
    )


def _calibrated(pair: Pair, before: Graph, scenario: Scenario) -> Prediction | None:
    """Predict *pair* with its calibration; ``None`` without one, or where it tells nothing."""
    if pair.calibration is None:
        return None
    prediction = predict(before, scenario, read_calibration(pair.calibration))
    return prediction if prediction.costs.get(MEASURED) else None


def _unrest(steps_ns: tuple[int, ...]) -> str | None:
    """Say when the steps without the profiler drift by more than a recording may be off.

    >>> _unrest((100, 100, 100, 101))
    >>> _unrest((100, 100, 110, 110))
    'not quiet: its steps without the profiler drift by 10.0%'
    """
    off = drift(steps_ns)
    if off <= NOISE_LIMIT:
        return None
    return f"not quiet: its steps without the profiler drift by {off:.1%}"


def _public_row(entry: dict[str, Any], before: Graph, after: Graph) -> MeasuredPair:
    scenario = parse_scenario(entry["scenario"])
    measure = entry.get("measure", "step")
    if measure == "step":
        truth = measured_step(after)
        row = _step_row(compare(before, scenario, truth.step_ns, truth.source), before, scenario)
    else:
        row = _part_row(measure, before, after, scenario)
    return replace(
        row,
        name=entry["id"],
        model=entry.get("model", entry["id"]),
        change=entry["change"],
        tuned_on=entry.get("tuned_on", False),
    )


def _part_row(measure: str, before: Graph, after: Graph, scenario: Scenario) -> MeasuredPair:
    """Return a row about a part of the device time, as `MEASURES` takes it from a graph."""
    part_ns, prediction = MEASURES[measure], predict(before, scenario)
    place = prediction.place
    return MeasuredPair(
        name="",
        model="",
        change="",
        hardware=_hardware(before),
        transforms=names(scenario),
        measure=measure,
        before_ns=part_ns(before),
        after_ns=part_ns(after),
        rule_ns=part_ns(apply(before, scenario)),
        paper_ns=_paper_ns(part_ns, before, scenario),
        rule_difficulty=prediction.difficulty,
        place=place._replace(measure=measure) if place else None,
        step_ns=prediction.predicted_ns if measure == "optimizer" else None,
    )


def optimizer_ns(graph: Graph) -> float:
    """Return the device time of the optimizer phase per step."""
    tasks = graph.tasks
    where = (tasks["phase"] == "optimizer") & tasks["kind"].isin(DEVICE_KINDS)
    if not where.any():
        raise TraceError(f"{graph.meta.source}: no device task is known to be of the optimizer")
    return float(tasks["work_ns"][where].sum() / graph.steps)


MEASURES: dict[str, Callable[[Graph], float]] = {
    "optimizer": optimizer_ns,
    "kernels": kernel_time_ns,
}
"""What else than a step can be compared, and how a graph tells it in ns per step."""


def _paper_ns(part_ns: Callable[[Graph], float], before: Graph, scenario: Scenario) -> float | None:
    try:
        return part_ns(apply(before, apply_paper_constants(scenario)))
    except TransformError:
        return None


def _hardware(graph: Graph) -> str:
    return "gpu" if has_device(graph) else "cpu"
