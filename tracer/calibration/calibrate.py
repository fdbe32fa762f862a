"""Calibrate: time the operators of a job as they are and as a change would make them.

The job runs two steps as it is; the changed job is built and stepped without data (`fake`), which
says which operators it would run. Each distinct operator is then timed alone (`operator_times`).
Where the operators stay, only segments are timed, as an optimizer's update (`segment_times`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch

from foretrace.errors import RecordError
from foretrace.tracer.calibration.align_calls import NONE
from foretrace.tracer.calibration.fake_run import PlacedCall, operators_after
from foretrace.tracer.calibration.file import (
    AFTER,
    BEFORE,
    CHECKPOINTED,
    HANDED_OVER,
    SEGMENT,
    SEGMENTS,
    UPDATED,
    CalibrationRow,
    Timing,
    Where,
)
from foretrace.tracer.calibration.loader_handoff import handover_time
from foretrace.tracer.calibration.operator_log import log_step
from foretrace.tracer.calibration.operator_timer import Stopwatch
from foretrace.tracer.calibration.segment_timer import checkpoint_times, update_times
from foretrace.tracer.recording.job_metadata import (
    describe_optimizer,
    describe_parameters,
    parameter_bytes,
)
from foretrace.tracer.recording.machine_probe import cpu_name
from foretrace.util.import_target import first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from foretrace.tracer.calibration.fake_run import JobChange
    from foretrace.tracer.calibration.operator_call import Call, Key
    from foretrace.tracer.job import Job
    from foretrace.tracer.trace import Trace

SECONDS = 12.0


@dataclass
class CalibrationResult:
    """What was found out: rows of the file, and in words what is missing."""

    where: Where
    rows: list[CalibrationRow] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def calibrate(
    job: Job,
    build: Callable[[], Job],
    changes: Sequence[JobChange],
    *,
    seconds: float = SECONDS,
    earlier: Mapping[Key, Timing] | None = None,
    keep: Callable[[dict[Key, Timing]], None] = lambda _timings: None,
) -> CalibrationResult:
    """Return the times of *job*'s operators before and after *changes*.

    Parameters
    ----------
    job
        The job as it is; two steps of it are run where its operators are timed.
    build
        Builds the same job anew; called without data.
    changes
        What is to be predicted.
    seconds
        How long operators are timed, for each change; the biggest changed ones come first.
    earlier
        Times that need not be taken again, unless that of the other form has to be taken.
    keep
        Is given the times that were taken, also when an interrupt ends this early.

    Raises
    ------
    RecordError
        A step of the job failed.
    """
    result = CalibrationResult(where(job))
    replacing = [change for change in changes if change.name not in SEGMENTS]
    before = log_step(job, is_real=True) if replacing else []
    after = {change.text: _log_after(change, before, build, result) for change in replacing}
    calls = _sort_by_need(before, after.values()) if any(after.values()) else {}
    timings = _usable(earlier or {}, before, after.values())
    clock = Stopwatch({key: call for key, call in calls.items() if key not in timings})
    try:
        clock.run(seconds * sum(map(bool, after.values())))
    finally:
        keep({key: timing for key, timing in clock.timings.items() if timing.is_known})
    timings.update(clock.timings)
    result.left_out += _list_missing(clock)
    result.rows += _rows("", BEFORE, [PlacedCall(call, NONE) for call in before], timings)
    for text, placed in after.items():
        result.rows += _rows(text, AFTER, placed, timings)
    _time_segments(job, changes, result)
    return result


def _usable(
    earlier: Mapping[Key, Timing], before: Sequence[Call], afters: Iterable[Sequence[PlacedCall]]
) -> dict[Key, Timing]:
    """Return the *earlier* times of both forms: a ratio of times taken on different days drifts."""
    usable = dict(earlier)
    for placed in afters:
        for one in placed:
            forms = {one.call.key, *([before[one.of].key] if one.of != NONE else [])}
            if len(forms) > 1 and not forms <= earlier.keys():
                for key in forms:
                    usable.pop(key, None)
    return usable


def use_threads_of(trace: Trace) -> None:
    """Let torch use as many threads here as it did when *trace* was recorded."""
    threads = (trace.meta.machine or {}).get("threads")
    if threads:
        torch.set_num_threads(int(threads))


def where(job: Job) -> Where:
    """Return on what *job* runs here."""
    is_cuda = job.uses_cuda
    device = torch.cuda.get_device_name() if is_cuda else cpu_name()
    optimizer = describe_optimizer(job.optimizer) or {}
    model = parameter_bytes(describe_parameters(job.model))
    sizes = {"optimizer": optimizer.get("bytes"), "model": model}
    by_owner = {owner: size for owner, size in sizes.items() if size}
    return Where(device, torch.get_num_threads(), torch.__version__, job.name, by_owner)


def _log_after(
    change: JobChange, before: Sequence[Call], build: Callable[[], Job], result: CalibrationResult
) -> list[PlacedCall]:
    """Return the operators after *change*; none, and the reason noted, if it cannot be built."""
    try:
        return operators_after(change, before, build)
    except RecordError as error:
        result.left_out.append(f"{change.text}: {error}")
        return []
    except Exception as error:  # noqa: BLE001 - whatever the job's code and torch may raise
        result.left_out.append(f"{change.text}: {type(error).__name__}: {first_line(error)}")
        return []


def _sort_by_need(
    before: Sequence[Call], afters: Iterable[Sequence[PlacedCall]]
) -> dict[Key, Call]:
    """Return each distinct call once: changed ones first, biggest first, then the rest."""
    old = {call.key: call for call in before}
    wanted: dict[Key, float] = {}
    calls = dict(old)
    for placed in afters:
        for one in placed:
            key = one.call.key
            if key in old:
                continue
            calls[key] = one.call
            size = wanted.get(key, 0.0) + _bytes(one.call)
            wanted[key] = size
            if one.of != NONE:
                partner = before[one.of].key
                wanted[partner] = max(wanted.get(partner, 0.0), size)
    first = sorted(wanted, key=lambda key: -wanted[key])
    return {key: calls[key] for key in (*first, *calls)}


def _bytes(call: Call) -> float:
    return sum(
        operand.dtype.itemsize * torch.Size(operand.shape).numel() for operand in call.operands
    )


def _list_missing(clock: Stopwatch) -> list[str]:
    failures = clock.failures
    missing = Counter(f"{operator}: {why}" for (operator, _), why in failures.items())
    late = sum(not t.is_known for key, t in clock.timings.items() if key not in failures)
    return [f"{text} ({count} times)" if count > 1 else text for text, count in missing.items()] + (
        [f"no time for {late} distinct operator(s); allow more seconds"] if late else []
    )


def _rows(
    change: str, name: str, placed: Sequence[PlacedCall], timings: Mapping[Key, Timing]
) -> list[CalibrationRow]:
    rows = []
    for position, one in enumerate(placed):
        operator, arguments = one.call.key
        row = CalibrationRow(change, name, position, operator, arguments, one.call.phase, one.of)
        rows.append(_add_timing(row, timings.get(one.call.key, Timing())))
    return rows


def _time_segments(job: Job, changes: Sequence[JobChange], result: CalibrationResult) -> None:
    """Add the times of updates and of checkpoints, for those changes that have them."""
    updates = {str(c.parameters.get("kind", "fused")): c for c in changes if c.name == UPDATED}
    try:
        times = update_times(job, list(updates)) if updates else {}
    except (RecordError, RuntimeError, TypeError, ValueError) as error:
        result.left_out += [f"{change.text}: {error}" for change in updates.values()]
        times = {}
    for kind, timing in times.items():
        text = updates[kind].text if kind else ""
        result.rows.append(_segment(text, "optimizer", timing))
    for change in changes:
        if change.name == CHECKPOINTED:
            device = "cuda" if job.uses_cuda else "cpu"
            result.rows.append(_segment(change.text, "checkpoint", checkpoint_times(device)))
        if change.name == HANDED_OVER:
            _time_handover(job, change, result)


def _time_handover(job: Job, change: JobChange, result: CalibrationResult) -> None:
    try:
        timing = handover_time(job, int(change.parameters.get("workers", 1)))
    except RecordError as error:
        result.left_out.append(f"{change.text}: {error}")
    else:
        result.rows.append(_segment(change.text, "handover", timing))


def _segment(change: str, operator: str, timing: Timing) -> CalibrationRow:
    return _add_timing(CalibrationRow(change, SEGMENT, 0, operator, "{}", ""), timing)


def _add_timing(row: CalibrationRow, timing: Timing) -> CalibrationRow:
    return replace(row, ns=timing.ns, device_ns=timing.device_ns, spread=timing.spread)
