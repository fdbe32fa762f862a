"""The list of recordings in, rows of the accuracy study out: identity and measured pairs.

The list is data (`traces/study.toml`). A recording that is not there is named, never skipped
silently; one that cannot be replayed is a row with its problem.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from foretrace.errors import ForetraceError, TraceError, TransformError
from foretrace.graph.build import build
from foretrace.graph.model import DEVICE_KINDS
from foretrace.predict import has_device, identity, measured_step
from foretrace.progress import stage
from foretrace.tracer.files import load
from foretrace.tracer.measure import drift, trimmed_mean
from foretrace.tracer.pairs import read_pairs
from foretrace.transforms import apply, parse_scenario
from foretrace.transforms.paper import paper
from foretrace.transforms.scenario import names
from foretrace.validate import compare

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from foretrace.graph.model import Graph
    from foretrace.tracer.pairs import Pair
    from foretrace.transforms.scenario import Scenario

NOISE_LIMIT = 0.02
"""Repeats of a recorded pair that differ by more make it inconclusive (share)."""


@dataclass(frozen=True)
class IdentityRow:
    """One recording replayed unchanged; ``problem`` says why there are no numbers."""

    trace: str
    cause: str | None
    measured_ns: float = 0.0
    replayed_ns: float = 0.0
    steps: int = 0
    problem: str | None = None

    @property
    def error(self) -> float:
        """Signed relative error."""
        return self.replayed_ns / self.measured_ns - 1


@dataclass(frozen=True)
class PairRow:
    """One measured pair beside its prediction and the null models. Times in ns."""

    name: str
    change: str
    hardware: str
    transforms: tuple[str, ...]
    measure: str
    before_ns: float
    after_ns: float
    predicted_ns: float
    paper_ns: float | None
    step_interval: tuple[float, float]
    noise: float | None = None
    tuned_on: bool = False

    @property
    def error(self) -> float:
        """Signed relative error of the prediction."""
        return self.predicted_ns / self.after_ns - 1

    @property
    def null_error(self) -> float:
        """Signed relative error of "nothing changes"."""
        return self.before_ns / self.after_ns - 1

    @property
    def paper_error(self) -> float | None:
        """Signed relative error of the paper's constants."""
        return None if self.paper_ns is None else self.paper_ns / self.after_ns - 1

    @property
    def is_conclusive(self) -> bool:
        """Whether the pair's own repeats agree well enough to judge a prediction."""
        return self.noise is None or abs(self.noise) <= NOISE_LIMIT


@dataclass(frozen=True)
class Study:
    """All rows; ``absent`` are recordings that are listed but not on this machine."""

    identities: tuple[IdentityRow, ...] = ()
    pairs: tuple[PairRow, ...] = ()
    problems: dict[str, str] = field(default_factory=dict)
    absent: tuple[str, ...] = ()


def read_list(path: Path) -> dict[str, Any]:
    """Read the list of recordings, pairs and archives."""
    return tomllib.loads(path.read_text("utf-8"))


def run_study(listed: dict[str, Any], folder: Path) -> Study:
    """Replay and predict everything that *listed* names; its archives lie in *folder*."""
    study = _Collector(folder.parent / listed["shared"])
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

    def __init__(self, shared: Path) -> None:
        self._shared = shared
        self._graphs: dict[str, Graph] = {}
        self._identities: list[IdentityRow] = []
        self._pairs: list[PairRow] = []
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
            row = IdentityRow(trace, cause, problem=str(error))
        self._identities.append(row)

    def pair(self, entry: dict[str, Any]) -> None:
        if not all([self._is_present(entry["before"]), self._is_present(entry["after"])]):
            return
        try:
            before = _with_truth(self._graph(entry["before"]), entry.get("before_ms"))
            after = _with_truth(self._graph(entry["after"]), entry.get("after_ms"))
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
                self._pairs.append(row)
                self._identities.append(unchanged)

    def result(self) -> Study:
        return Study(
            tuple(self._identities), tuple(self._pairs), self._problems, tuple(self._absent)
        )

    def _is_present(self, trace: str) -> bool:
        if (self._shared / trace).is_file():
            return True
        self._absent[trace] = None
        return False

    def _graph(self, trace: str) -> Graph:
        if trace not in self._graphs:
            with stage(f"reading {trace}"):
                self._graphs[trace] = build(load(self._shared / trace))
        return self._graphs[trace]


def identity_row(trace: str, graph: Graph, cause: str | None = None) -> IdentityRow:
    """Replay *graph* unchanged."""
    found = identity(graph)
    return IdentityRow(trace, cause, found.measured.step_ns, found.replayed_ns, graph.steps)


def recorded_rows(pair: Pair) -> tuple[PairRow, IdentityRow]:
    """Predict one recorded pair, and replay its recording unchanged."""
    recorded = build(pair.before)
    before = _with_truth(recorded, pair.before_ns / 1e6)
    scenario = parse_scenario([pair.scenario])
    found = compare(before, scenario, pair.after_ns, "unprofiled")
    row = PairRow(
        name=pair.name,
        change=pair.scenario,
        hardware=_hardware(before),
        transforms=names(scenario),
        measure="step",
        before_ns=pair.before_ns,
        after_ns=pair.after_ns,
        predicted_ns=found.prediction.predicted_ns,
        paper_ns=found.null_paper_ns,
        step_interval=found.prediction.step_interval,
        noise=pair.noise,
    )
    return row, identity_row(pair.name, recorded, _unrest(recorded.meta.unprofiled_step_ns))


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


def _public_row(entry: dict[str, Any], before: Graph, after: Graph) -> PairRow:
    scenario = parse_scenario(entry["scenario"])
    measure = entry.get("measure", "step")
    common = {
        "name": entry["id"],
        "change": entry["change"],
        "hardware": _hardware(before),
        "transforms": names(scenario),
        "measure": measure,
        "tuned_on": entry.get("tuned_on", False),
    }
    if measure == "optimizer":
        return PairRow(
            **common,
            before_ns=optimizer_ns(before),
            after_ns=optimizer_ns(after),
            predicted_ns=optimizer_ns(apply(before, scenario)),
            paper_ns=_paper_optimizer_ns(before, scenario),
            step_interval=(1.0, 1.0),
        )
    truth = measured_step(after)
    found = compare(before, scenario, truth.step_ns, truth.source)
    return PairRow(
        **common,
        before_ns=found.prediction.measured.step_ns,
        after_ns=truth.step_ns,
        predicted_ns=found.prediction.predicted_ns,
        paper_ns=found.null_paper_ns,
        step_interval=found.prediction.step_interval,
    )


def optimizer_ns(graph: Graph) -> float:
    """Return the device time of the optimizer phase per step."""
    tasks = graph.tasks
    where = (tasks["phase"] == "optimizer") & tasks["kind"].isin(DEVICE_KINDS)
    if not where.any():
        raise TraceError(f"{graph.meta.source}: no device task is known to be of the optimizer")
    return float(tasks["work_ns"][where].sum() / graph.steps)


def _paper_optimizer_ns(before: Graph, scenario: Scenario) -> float | None:
    try:
        return optimizer_ns(apply(before, paper(scenario)))
    except TransformError:
        return None


def _with_truth(graph: Graph, step_ms: float | None) -> Graph:
    """Return *graph* with the step time that was measured without the profiler, where known.

    The variation of the steps that the recording brings along is kept.
    """
    if step_ms is None:
        return graph
    known = graph.meta.unprofiled_step_ns
    factor = step_ms * 1e6 / trimmed_mean(known) if known else 1.0
    samples = tuple(round(ns * factor) for ns in known) or (round(step_ms * 1e6),)
    return replace(graph, meta=replace(graph.meta, unprofiled_step_ns=samples))


def _hardware(graph: Graph) -> str:
    return "gpu" if has_device(graph) else "cpu"


def every_transform(pairs: tuple[PairRow, ...]) -> Iterator[tuple[str, str]]:
    """Yield each (hardware, transform) that *pairs* test alone, in order, once."""
    yield from dict.fromkeys((p.hardware, p.transforms[0]) for p in pairs if len(p.transforms) == 1)
