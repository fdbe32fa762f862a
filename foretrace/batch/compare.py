"""Results of a batch in, errors by what-if and model out; with a reference, what got worse.

Errors are shares of the measured step. Inconclusive measurements are counted and judge nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analysis.evidence.measured_pair import RECORDING_LIMIT, MeasuredPair
from foretrace.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from foretrace.batch.rows import Row

TOLERANCE = 0.005
"""By how much a mean, median or 90th percentile may grow before that counts as worse (share)."""
LISTED = 20
"""Sentences about single items, at most."""

Name = tuple[str, str, int]
"""How an item is found again in other results: recording, scenario, which one of that name."""


@dataclass(frozen=True)
class Errors:
    """What predictions are off by, in some group: |error| as shares; ``inside`` counts intervals.

    ``no_change`` and ``paper`` are medians of the null models; of the latter over the items that
    the paper's constants cover, None where it is none.
    """

    group: str
    items: int
    mean: float
    median: float
    p90: float
    worst: float
    inside: int
    no_change: float
    paper: float | None


@dataclass(frozen=True)
class Comparison:
    """Errors over all judged items, by what-ifs and by model; and what judges nothing, and why.

    ``inconclusive`` are noisy, ``unforeseen`` are what-ifs that generate code, ``unmeasured``
    have no truth, ``failed`` no prediction. ``worse`` says what got worse than in the reference;
    None without one.
    """

    total: Errors
    by_transform: tuple[Errors, ...]
    by_model: tuple[Errors, ...]
    judged: tuple[Row, ...]
    inconclusive: tuple[Row, ...]
    unforeseen: tuple[Row, ...]
    unmeasured: tuple[Row, ...]
    failed: tuple[Row, ...]
    worse: tuple[str, ...] | None = None

    @property
    def tables(self) -> tuple[Errors, ...]:
        """All groups."""
        return (self.total, *self.by_transform, *self.by_model)

    @property
    def left_out(self) -> str:
        """How many items judge nothing, in words."""
        counts = {
            "inconclusive": self.inconclusive,
            "not foreseeable": self.unforeseen,
            "not measured": self.unmeasured,
            "failed": self.failed,
        }
        return ", ".join(f"{len(rows)} {what}" for what, rows in counts.items())


def judge(
    rows: Sequence[Row], reference: Sequence[Row] | None = None, *, tolerance: float = TOLERANCE
) -> Comparison:
    """Judge *rows* by what was measured, and by an earlier table of the same study.

    Raises
    ------
    TraceError
        Nothing was measured after the change, so there is nothing to judge by.
    """
    judged = tuple(row for row in rows if is_judged(row))
    measured = [row for row in rows if _is_measured(row)]
    if not judged:
        raise TraceError(_nothing_to_judge(measured))
    total, by_transform, by_model = _tables(judged)
    return Comparison(
        total=total,
        by_transform=by_transform,
        by_model=by_model,
        judged=judged,
        inconclusive=tuple(row for row in measured if not as_pair(row).is_conclusive),
        unforeseen=tuple(row for row in measured if _is_unforeseen(as_pair(row))),
        unmeasured=tuple(row for row in rows if row.error is None and row.after_ns is None),
        failed=tuple(row for row in rows if row.error is not None),
        worse=None if reference is None else tuple(list_worse(rows, reference, tolerance)),
    )


def list_worse(rows: Sequence[Row], reference: Sequence[Row], tolerance: float) -> Iterator[str]:
    """Yield what got worse than in *reference*: items that are lost, errors that grew.

    Errors are compared over the items that both have judged.
    """
    new, old, there = _select_judged(rows), _select_judged(reference), _number_names(rows)
    lost = {name: why for name in old if (why := _explain_lost(there.get(name)))}
    for recording, scenario, number in list(lost)[:LISTED]:
        why = lost[recording, scenario, number]
        yield f"{recording} {scenario}: judges nothing any more: {why}"
    if len(lost) > LISTED:
        yield f"{len(lost) - LISTED} more items judge nothing any more"
    both = [name for name in old if name in new]
    if both:
        now, then = ([rows_of[name] for name in both] for rows_of in (new, old))
        yield from _list_grown(now, then, tolerance)
    else:
        yield "no item is judged in both"


def is_judged(row: Row) -> bool:
    """Whether the row's measurement is one that judges a prediction."""
    return _is_measured(row) and as_pair(row).is_conclusive and as_pair(row).is_foreseen


def doubt(row: Row) -> str:
    """Say why the measurement of an inconclusive *row* judges nothing."""
    return _explain_astray(row) or f"its repeats drift by {abs(row.noise or 0):.1%}"


def as_pair(row: Row) -> MeasuredPair:
    """Return a measured *row* as a measured pair, which knows what errors are."""
    assert row.before_ns is not None
    assert row.after_ns is not None
    assert row.predicted_ns is not None
    assert row.replayed_ns is not None
    return MeasuredPair(
        name=row.recording,
        model=row.model,
        change=row.scenario,
        hardware=row.hardware or "",
        transforms=tuple(row.transforms.split(" + ")),
        measure="step",
        before_ns=row.before_ns,
        after_ns=row.after_ns,
        rule_ns=row.predicted_ns,
        paper_ns=row.paper_ns,
        replay_error=row.replayed_ns / row.before_ns - 1,
        noise=row.noise,
    )


def _explain_lost(row: Row | None) -> str | None:
    """Say why *row* has nothing to judge, if that is no matter of a noisy measurement."""
    if row is None:
        return "it is not among the results"
    if not _is_measured(row):
        return row.error or "its step after the change is not known"
    return _explain_astray(row)


def _explain_astray(row: Row) -> str | None:
    off = as_pair(row).replay_error
    is_off = row.noise is not None and abs(off) > RECORDING_LIMIT
    return f"its replay without any change is off by {off:+.1%}" if is_off else None


def _list_grown(new: Sequence[Row], old: Sequence[Row], tolerance: float) -> Iterator[str]:
    now, then = _groups(new), _groups(old)
    for group, before in then.items():
        for what in ("mean", "median", "p90"):
            was, is_ = getattr(before, what), getattr(now[group], what)
            if is_ > was + tolerance:
                yield f"{group}: {what} |error| {was:.2%} -> {is_:.2%} over {before.items} items"


def _select_judged(rows: Sequence[Row]) -> dict[Name, Row]:
    return {name: row for name, row in _number_names(rows).items() if is_judged(row)}


def _number_names(rows: Sequence[Row]) -> dict[Name, Row]:
    named: dict[Name, Row] = {}
    seen: Counter[tuple[str, str]] = Counter()
    for row in rows:
        what = row.recording, row.scenario
        seen[what] += 1
        named[(*what, seen[what])] = row
    return named


def _is_unforeseen(pair: MeasuredPair) -> bool:
    return pair.is_conclusive and not pair.is_foreseen


def _nothing_to_judge(measured: Sequence[Row]) -> str:
    if not measured:
        return (
            "no item has a measured step after the change: use pairs, archives or changes of "
            "models in the study"
        )
    foreseen = [row for row in measured if not _is_unforeseen(as_pair(row))]
    reasons = [doubt(row) for row in foreseen] or ["generated code cannot be foreseen"]
    why = ", ".join(sorted(set(reasons))[:LISTED])
    return f"none of {len(measured)} measurements judges anything: {why}"


def _is_measured(row: Row) -> bool:
    return row.error is None and row.after_ns is not None


def _tables(rows: Sequence[Row]) -> tuple[Errors, tuple[Errors, ...], tuple[Errors, ...]]:
    """Return the errors of all *rows*, by what-ifs, and by model."""
    return (
        _errors("all", rows),
        tuple(
            _errors(n, [r for r in rows if r.transforms == n]) for n in _each(rows, "transforms")
        ),
        tuple(_errors(n, [r for r in rows if r.model == n]) for n in _each(rows, "model")),
    )


def _groups(rows: Sequence[Row]) -> dict[str, Errors]:
    total, by_transform, by_model = _tables(rows)
    named = {f"what-if {errors.group}": errors for errors in by_transform}
    return {"all": total, **named, **{f"model {errors.group}": errors for errors in by_model}}


def _each(rows: Sequence[Row], column: str) -> list[str]:
    return sorted({getattr(row, column) for row in rows})


def _errors(group: str, rows: Sequence[Row]) -> Errors:
    pairs = [as_pair(row) for row in rows]
    off = np.abs([pair.error for pair in pairs])
    paper = [abs(pair.paper_error) for pair in pairs if pair.paper_error is not None]
    return Errors(
        group=group,
        items=len(pairs),
        mean=float(off.mean()),
        median=float(np.median(off)),
        p90=float(np.quantile(off, 0.9)),
        worst=float(off.max()),
        inside=sum(_is_inside(row) for row in rows),
        no_change=float(np.median(np.abs([pair.null_error for pair in pairs]))),
        paper=float(np.median(paper)) if paper else None,
    )


def _is_inside(row: Row) -> bool:
    assert row.low_ns is not None
    assert row.after_ns is not None
    assert row.high_ns is not None
    return row.low_ns <= row.after_ns <= row.high_ns
