"""Calibrate: time the operators of a job as they are and as a change would make them.

The job runs two steps as it is; the changed job is built and stepped without data (`fake`), which
says which operators it would run. Each distinct operator is then timed alone (`operator_times`),
an optimizer's update as a whole (`segment_times`).
"""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map

from foretrace.errors import RecordError
from foretrace.tracer.alignment import NONE, aligned
from foretrace.tracer.calibration_file import AFTER, BEFORE, SEGMENT, Row, Where
from foretrace.tracer.fake import without_data
from foretrace.tracer.job import Job
from foretrace.tracer.operator_log import Call, Operand, logged_step
from foretrace.tracer.operator_times import Key, Stopwatch, Timing
from foretrace.tracer.probe import probe
from foretrace.tracer.segment_times import checkpoint_times, update_times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

REPLACED = ("amp", "batch_size", "channels_last", "tf32")
"""Changes that put other operators in the place of the job's own."""
REPEATED = "gradient_accumulation"
UPDATED = "fused_optimizer"
CHECKPOINTED = ("activation_checkpoint", "activation_checkpointing")
KNOWN = (*REPLACED, REPEATED, UPDATED, *CHECKPOINTED)
SECONDS = 12.0
NORM_BACKWARD, STATISTICS = "aten::native_batch_norm_backward", 5
"""Without data torch says that the saved statistics, from this operand on, have the type of the
input; in reality they keep their own."""


@dataclass(frozen=True)
class Change:
    """A what-if: its name, parameters, and what builds the job as it would be."""

    name: str
    parameters: Mapping[str, Any]
    build: Callable[[], Job]

    @classmethod
    def of(cls, text: str, build: Callable[[], Job]) -> Change:
        """Return the change with the canonical *text*.

        >>> Change.of("gradient_accumulation(k=2)", Job).parameters
        {'k': 2}
        """
        call = ast.parse(text, mode="eval").body
        assert isinstance(call, ast.Call)
        assert isinstance(call.func, ast.Name)
        given = {str(part.arg): ast.literal_eval(part.value) for part in call.keywords}
        return cls(call.func.id, given, build)

    @property
    def text(self) -> str:
        """The canonical text, such as ``amp(dtype="bf16")``."""
        given = (f"{name}={_quoted(value)}" for name, value in self.parameters.items())
        return f"{self.name}({', '.join(given)})"


def _quoted(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


@dataclass
class Calibration:
    """What was found out: rows of the file, operator times by key, and in words what is missing."""

    where: Where
    rows: list[Row] = field(default_factory=list)
    timings: dict[Key, Timing] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Placed:
    """An operator after a change, and the position of the one before that it replaces."""

    call: Call
    of: int


def calibrate(
    job: Job,
    build: Callable[[], Job],
    changes: Sequence[Change],
    *,
    seconds: float = SECONDS,
    known: Mapping[Key, Timing] | None = None,
    stopwatch: Callable[[Stopwatch, float], None] = Stopwatch.run,
) -> Calibration:
    """Return the times of *job*'s operators before and after *changes*.

    Parameters
    ----------
    job
        The job as it is; two steps of it are run.
    build
        Builds the same job anew; called without data.
    changes
        What is to be predicted.
    seconds
        How long operators are timed, for each change; the biggest changed ones come first.
    known
        Times that need not be taken again.
    stopwatch
        Runs the clock; replaced to show progress.

    Raises
    ------
    RecordError
        A step of the job failed.
    """
    found = Calibration(_where(job))
    before = logged_step(job, is_real=True)
    after = {c.text: _after(c, before, build, found) for c in changes if c.name != UPDATED}
    calls = _by_need(before, after.values()) if any(after.values()) else {}
    timings = dict(known or {})
    clock = Stopwatch({key: call for key, call in calls.items() if key not in timings})
    try:
        stopwatch(clock, seconds * sum(map(bool, after.values())))
    finally:
        found.timings = {key: timing for key, timing in clock.timings.items() if timing.is_known}
    timings.update(clock.timings)
    found.left_out += _what_is_missing(clock)
    found.rows += _rows("", BEFORE, [_Placed(call, NONE) for call in before], timings)
    for text, placed in after.items():
        found.rows += _rows(text, AFTER, placed, timings)
    _time_segments(job, changes, found)
    return found


def _where(job: Job) -> Where:
    is_cuda = job.uses_cuda
    device = torch.cuda.get_device_name() if is_cuda else str(probe()["cpu"])
    return Where(device, torch.get_num_threads(), torch.__version__, job.name)


def _after(
    change: Change, before: Sequence[Call], build: Callable[[], Job], found: Calibration
) -> list[_Placed]:
    """Return the operators after *change*; none, with the reason noted, where it cannot be built.

    The job as it is, is built without data too: in what both lack or have in excess over a real
    run, the change has no part.
    """
    if change.name in CHECKPOINTED:
        return []
    try:
        with without_data():
            twin = logged_step(build(), is_real=False)
            after = logged_step(change.build(), is_real=False)
    except Exception as error:  # noqa: BLE001 - whatever the job's code and torch may raise
        reason = (str(error).splitlines() or [""])[0]
        found.left_out.append(f"{change.text}: {type(error).__name__}: {reason}")
        return []
    if change.name == REPEATED:
        return _added(twin, after, int(change.parameters["k"]))
    to_real = aligned(before, twin)
    placed = []
    for call, of_twin in zip(after, aligned(twin, after), strict=True):
        if of_twin == NONE:
            placed.append(_Placed(call, NONE))
        elif (of := to_real[of_twin]) != NONE:
            placed.append(_Placed(_with_values(call, before[of]), of))
    return placed


def _added(before: Sequence[Call], after: Sequence[Call], times: int) -> list[_Placed]:
    """Return the operators *after* that are not those *before*, run *times* times.

    Gradients are accumulated in place, which the log cannot show.
    """
    left = Counter({key: times * number for key, number in Counter(map(_key, before)).items()})
    added = []
    for call in after:
        left[_key(call)] -= 1
        if left[_key(call)] < 0:
            is_sum = call.operator == "aten::add" and call.phase == "backward"
            in_place = replace(call, function=torch.ops.aten.add_.Tensor) if is_sum else call
            added.append(_Placed(in_place, NONE))
    return added


def _key(call: Call) -> Key:
    return call.operator, call.text


def _with_values(call: Call, original: Call) -> Call:
    """Return *call* with the recorded values of the *original*'s operands in the same places."""
    theirs = original.operands
    if len(theirs) != len(call.operands):
        return call
    keeps_fp32 = call.operator == NORM_BACKWARD
    number = count()

    def filled(value: Any) -> Any:
        if not isinstance(value, Operand):
            return value
        place = next(number)
        recorded = theirs[place]
        dtype = recorded.dtype if keeps_fp32 and place >= STATISTICS else value.dtype
        return replace(value, dtype=dtype, values=recorded.values)

    return replace(call, arguments=tree_map(filled, call.arguments))


def _by_need(before: Sequence[Call], afters: Iterable[Sequence[_Placed]]) -> dict[Key, Call]:
    """Return each distinct call once: changed ones first, biggest first, then the rest."""
    old = {_key(call): call for call in before}
    wanted: dict[Key, float] = {}
    calls = dict(old)
    for placed in afters:
        for one in placed:
            key = _key(one.call)
            if key in old:
                continue
            calls[key] = one.call
            size = wanted.get(key, 0.0) + _bytes(one.call)
            wanted[key] = size
            if one.of != NONE:
                partner = _key(before[one.of])
                wanted[partner] = max(wanted.get(partner, 0.0), size)
    first = sorted(wanted, key=lambda key: -wanted[key])
    return {key: calls[key] for key in (*first, *calls)}


def _bytes(call: Call) -> float:
    return sum(
        operand.dtype.itemsize * torch.Size(operand.shape).numel() for operand in call.operands
    )


def _what_is_missing(clock: Stopwatch) -> list[str]:
    failures = clock.failures
    missing = [f"{operator}: {why}" for (operator, _), why in failures.items()]
    late = sum(not t.is_known for key, t in clock.timings.items() if key not in failures)
    return missing + ([f"no time for {late} distinct operator(s); allow more seconds"] if late else [])


def _rows(
    change: str, name: str, placed: Sequence[_Placed], timings: Mapping[Key, Timing]
) -> list[Row]:
    rows = []
    for position, one in enumerate(placed):
        timing = timings.get(_key(one.call), Timing())
        rows.append(
            Row(
                change,
                name,
                position,
                *_key(one.call),
                one.call.phase,
                one.of,
                *(timing.ns, timing.device_ns, timing.spread),
            )
        )
    return rows


def _time_segments(job: Job, changes: Sequence[Change], found: Calibration) -> None:
    """Add the times of updates and of checkpoints, for those changes that have them."""
    updates = {str(c.parameters.get("kind", "fused")): c for c in changes if c.name == UPDATED}
    try:
        times = update_times(job, list(updates)) if updates else {}
    except (RecordError, RuntimeError, TypeError, ValueError) as error:
        found.left_out += [f"{change.text}: {error}" for change in updates.values()]
        times = {}
    for kind, timing in times.items():
        text = updates[kind].text if kind else ""
        found.rows.append(_segment(text, "optimizer", timing))
    for change in changes:
        if change.name in CHECKPOINTED:
            device = "cuda" if job.uses_cuda else "cpu"
            found.rows.append(_segment(change.text, "checkpoint", checkpoint_times(device)))


def _segment(change: str, operator: str, timing: Timing) -> Row:
    times = {"ns": timing.ns, "device_ns": timing.device_ns, "spread": timing.spread}
    return Row(change, SEGMENT, 0, operator, "{}", "", **times)
