"""A case and its changes in, a verdict each: what was predicted, what is true, what was said."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import foretrace
from tests.counterfactual.draw import features
from tests.counterfactual.simulate import MEASURED, WARM_UP, simulate
from tests.counterfactual.write_kineto import write_recordings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.counterfactual.changes import Change
    from tests.counterfactual.draw import Case
    from tests.counterfactual.simulate import Run

RIGHT, ROUGH = 0.03, 0.10
"""Relative errors up to which an answer is right, or roughly right."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One prediction against the truth; times in ns of one step.

    ``measured_ns`` is what the recording says of the unchanged step, ``replayed_ns`` what its
    replay gives: they tell where an error begins.
    """

    what_if: str
    outcome: str
    before_ns: float
    true_ns: float
    predicted_ns: float
    measured_ns: float
    replayed_ns: float
    error: float
    in_interval: bool
    doubts: tuple[str, ...]
    regime: str
    regime_after: str
    features: tuple[str, ...]

    @property
    def row(self) -> dict[str, Any]:
        """A row of a table."""
        return asdict(self)


def judge(case: Case, changes: Sequence[Change]) -> list[Verdict]:
    """Record *case*, ask for every change, and compare with the changed program."""
    base = simulate(case.program, recorded=case.style.window)
    with tempfile.TemporaryDirectory() as folder:
        paths = write_recordings(base, case.style, Path(folder))
        graph: foretrace.Graph | Exception
        try:
            graph = foretrace.build(foretrace.load(paths if len(paths) > 1 else paths[0]))
        except foretrace.ForetraceError as error:
            graph = error
    return [_verdict(case, base, graph, change) for change in changes]


def _verdict(case: Case, base: Run, graph: foretrace.Graph | Exception, change: Change) -> Verdict:
    changed = simulate(change.of(case.program))
    true = changed.period_ns()
    used = tuple(sorted(features(case.program) | _recorded_features(case, base)))
    times, regimes = (base.period_ns(), true), (regime(base), regime(changed))
    try:
        if isinstance(graph, Exception):
            raise graph
        prediction = foretrace.predict(graph, change.text)
    except foretrace.ForetraceError as error:
        reasons = (f"{type(error).__name__}: {error}",)
        nan = float("nan")
        unknown = (nan, nan, nan, nan)
        return Verdict(change.text, "refused", *times, *unknown, True, reasons, *regimes, used)
    off = prediction.predicted_ns / true - 1
    doubts = doubts_of(prediction)
    low, high = prediction.interval_ns
    return Verdict(
        change.text,
        _outcome(abs(off), doubted=bool(doubts)),
        *times,
        prediction.predicted_ns,
        prediction.measured.step_ns,
        prediction.replayed_before_ns,
        off,
        low * 0.999 <= true <= high * 1.001,
        doubts,
        *regimes,
        used,
    )


def doubts_of(prediction: foretrace.Prediction) -> tuple[str, ...]:
    """Return why this very answer may be wrong, as the tool says; warnings are true of any."""
    return tuple(str(doubt) for doubt in prediction.doubts)


def regime(run: Run) -> str:
    """Say what sets the pace of a run, by where time goes on its first rank."""
    host = run.hosts[0]
    period = run.period_ns()
    waited = {
        cause: (host.waited[cause] - host.step_waits[WARM_UP][cause]) / (MEASURED + 1) / period
        for cause in host.waited
    }
    busy: dict[int, int] = {}
    for task in host.tasks:
        if task.step >= WARM_UP:
            taken = task.end - task.start + run.program.machine.gap_ns
            busy[task.stream] = busy.get(task.stream, 0) + taken
    exposed = sum(stream.exposed for stream in host.streams.values()) / len(host.ends) / period
    if waited["loader"] > 0.15:
        return "loader"
    if exposed > 0.15:
        return "communication"
    if max(busy.values(), default=0) / (MEASURED + 1) / period > 0.9:
        return "device"
    return "sync" if waited["sync"] > 0.1 else "host"


def _outcome(error: float, *, doubted: bool) -> str:
    if error <= RIGHT:
        return "right"
    if error <= ROUGH:
        return "roughly right"
    return "doubted" if doubted else "silently wrong"


def _recorded_features(case: Case, base: Run) -> set[str]:
    """Say what of the recording itself may matter."""
    style, host = case.style, base.hosts[0]
    said = set()
    if host.waited["queue"] > 0:
        said.add("queue full")
    if any(task.step < style.first and task.end > host.begins[style.first] for task in host.tasks):
        said.add("work launched before the window")
    said |= {"no sync events"} if not style.sync_events else set()
    said |= {"whole µs"} if style.whole_us else set()
    said |= {"cut end"} if not style.drained else set()
    said |= {"one rank of several"} if style.first_rank_only and len(base.hosts) > 1 else set()
    return said
