"""What a worker does: some items of one recording in, a row for each out, never an error."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from foretrace.analysis.evidence.measured_pair import with_measured_step
from foretrace.analysis.null_models import predict_by_paper
from foretrace.analysis.prediction import predict_from
from foretrace.analysis.unchanged.baseline import replay_baseline, replay_scenario
from foretrace.analysis.unchanged.measured_step import measured_step
from foretrace.batch.items import check_unchanged, read_members, scenario_of, version
from foretrace.batch.rows import Row
from foretrace.errors import ForetraceError, TraceError
from foretrace.graph.build import build
from foretrace.tracer.lab.pairs.read_archive import read_pair
from foretrace.tracer.readers.load import load
from foretrace.tracer.step_stats import drift
from foretrace.transforms.edit.select import has_device
from foretrace.transforms.measured.calibration import calibration_path, read_calibration
from foretrace.util.import_target import first_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.analysis.unchanged.baseline import Baseline
    from foretrace.batch.items import Item, Recording
    from foretrace.graph.model import Graph
    from foretrace.transforms.measured.calibration import Calibration


def evaluate(items: Sequence[Item]) -> list[Row]:
    """Return the row of each of *items*, which are all of one recording."""
    if (wanted := items[0].version) != version():
        error = f"its worker has Foretrace {version()}, the batch is of {wanted}"
        return [failed_row(item, error) for item in items]
    try:
        job = open_recording(items[0].recording)
    except Exception as error:  # noqa: BLE001 - whatever a file may do to its reader
        return [failed_row(item, _text(error)) for item in items]
    return [_row(item, job) for item in items]


def failed_row(item: Item, error: str, *, is_final: bool = False) -> Row:
    """Return the row of an item that has no prediction."""
    return Row(
        key=item.key,
        version=item.version,
        recording=item.recording.name,
        model=item.recording.model,
        scenario=" + ".join(item.scenario),
        transforms=item.names,
        error=error,
        is_final=is_final,
    )


@dataclass(frozen=True)
class Opened:
    """A recording, read: its graph, and what was measured of the job. Times in ns."""

    graph: Graph
    calibration: Calibration | None = None
    after_ns: float | None = None
    noise: float | None = None

    @cached_property
    def plain(self) -> Baseline:
        """The job without its calibration, as null models see it."""
        return replay_baseline(self.graph)

    @cached_property
    def calibrated(self) -> Baseline:
        """The job with its calibration."""
        return self.plain if self.calibration is None else self.plain.attach(self.calibration)


@lru_cache(maxsize=1)
def open_recording(recording: Recording) -> Opened:
    """Return *recording*, read and built.

    Raises
    ------
    ForetraceError
        It is gone, not what it was, or unusable.
    """
    if recording.problem is not None:
        raise TraceError(recording.problem)
    check_unchanged(recording)
    if recording.pair is not None:
        return _open_pair(recording)
    files = recording.files
    graph = build(load(files if len(files) > 1 else files[0]), step_pattern=recording.step)
    beside = calibration_path(files[0])
    calibration = read_calibration(beside) if beside.is_file() else None
    if recording.after is None:
        return Opened(graph, calibration)
    steps = [measured_step(each) for each in (graph, build(load(recording.after)))]
    drifts = [drift(each.samples_ns) for each in steps if each.source == "unprofiled"]
    return Opened(graph, calibration, steps[1].step_ns, max(drifts, default=None))


def _open_pair(recording: Recording) -> Opened:
    where = recording.files[0]
    pair = read_pair(read_members(where), str(recording.pair), where)
    graph = with_measured_step(build(pair.before), pair.before_ns)
    calibration = None if pair.calibration is None else read_calibration(pair.calibration)
    return Opened(graph, calibration, pair.after_ns, pair.noise)


def _row(item: Item, job: Opened) -> Row:
    try:
        return _predict(item, job)
    except ForetraceError as error:
        return failed_row(item, str(error), is_final=True)
    except Exception as error:  # noqa: BLE001 - one item of many, which the others survive
        return failed_row(item, _text(error))


def _predict(item: Item, job: Opened) -> Row:
    scenario = scenario_of(item)
    prediction = predict_from(replay_scenario(job.calibrated, scenario))
    after_ns = job.after_ns if item.after_ns is None else item.after_ns
    low, high = prediction.interval_ns
    return replace(
        failed_row(item, ""),
        hardware="gpu" if has_device(job.graph) else "cpu",
        before_ns=prediction.measured.step_ns,
        replayed_ns=prediction.replayed_before_ns,
        predicted_ns=prediction.predicted_ns,
        low_ns=low,
        high_ns=high,
        samples=prediction.samples,
        status=prediction.status,
        after_ns=after_ns,
        paper_ns=None if after_ns is None else predict_by_paper(job.plain, scenario),
        noise=job.noise,
        doubts=json.dumps([doubt.keys for doubt in prediction.doubts]),
        evidence="\n".join(prediction.evidence),
        error=None,
        is_final=True,
    )


def _text(error: Exception) -> str:
    if isinstance(error, ForetraceError):
        return str(error)
    return f"{type(error).__name__}: {first_line(error)}"
