"""Forms of the reports about many jobs: a batch, and how it compares."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from foretrace.batch import Batch
from foretrace.compare import Comparison, doubt, pair_of
from foretrace.formats import bullets, ms, percent, short, time
from foretrace.report import keys, lines

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foretrace.batch_rows import Row
    from foretrace.compare import Errors

LISTED = 20
"""Items that failed, or are in doubt, that a text names; the table has all."""
_LEFT_OUT = ("inconclusive", "unforeseen", "unmeasured", "failed")
_COLUMNS = ("items", "mean", "median", "p90", "worst", "inside", "no change", "paper")


@keys.register(Batch)
def _batch_keys(report: Batch) -> dict[str, Any]:
    return {
        "table": str(report.table),
        "items": [_row_keys(row) for row in report.rows],
        "known": report.known,
        "failed": len(_failures(report)),
        "unwritten": report.unwritten,
    }


def _row_keys(row: Row) -> dict[str, Any]:
    interval = None if row.low_ns is None else [ms(row.low_ns), ms(row.high_ns)]
    return {
        "recording": row.recording,
        "model": row.model,
        "scenario": row.scenario,
        "measured_step_ms": ms(row.before_ns),
        "predicted_step_ms": ms(row.predicted_ns),
        "speedup": _speedup(row),
        "interval_ms": interval,
        "measured_after_ms": ms(row.after_ns),
        "status": row.status,
        "error": row.error,
    }


def _speedup(row: Row) -> float | None:
    if row.predicted_ns is None or row.before_ns is None or row.samples is None:
        return None
    return round(row.samples * row.before_ns / row.predicted_ns, 6)


def _failures(report: Batch) -> list[Row]:
    return [row for row in report.rows if row.error is not None]


@lines.register(Batch)
def _batch_lines(report: Batch) -> list[str]:
    failures = _failures(report)
    counts = f"{len(report.rows)} items: {len(report.rows) - len(failures)} predicted"
    counts += f", {len(failures)} failed, {report.known} known from before"
    named = [f"{row.recording}, {row.scenario}: {short(str(row.error), 200)}" for row in failures]
    return [
        counts,
        f"{'measured':>16}{'predicted':>14} {'speed-up':>9}  what-if, recording",
        *map(_row_line, (row for row in report.rows if row.error is None)),
        *bullets("Failed", _listed(named)),
        f"wrote {report.table}",
    ]


def _listed(items: Iterable[str]) -> list[str]:
    """Return the first of *items*, and how many more there are."""
    every = list(items)
    return every[:LISTED] + ([f"{len(every) - LISTED} more"] if len(every) > LISTED else [])


def _row_line(row: Row) -> str:
    name = f"{short(row.scenario, 50)}, {short(row.recording, 50)}"
    return f"   {time(row.before_ns)} {time(row.predicted_ns)} {_speedup(row):8.2f}x  {name}"


@keys.register(Comparison)
def _comparison_keys(report: Comparison) -> dict[str, Any]:
    return {
        "all": _errors_keys(report.total),
        "transforms": [_errors_keys(found) for found in report.by_transform],
        "models": [_errors_keys(found) for found in report.by_model],
        **{name: len(getattr(report, name)) for name in _LEFT_OUT},
        "doubts": [_doubt(row) for row in report.inconclusive],
        "worse": None if report.worse is None else list(report.worse),
    }


def _errors_keys(found: Errors) -> dict[str, Any]:
    shares = ("mean", "median", "p90", "worst", "no_change", "paper")
    plain = {name: value for name, value in asdict(found).items() if name not in shares}
    values = {name: getattr(found, name) for name in shares}
    return plain | {
        f"{name}_pct": None if share is None else percent(share) for name, share in values.items()
    }


@lines.register(Comparison)
def _comparison_lines(report: Comparison) -> list[str]:
    return [
        f"{report.total.items} items judged; {report.left_out}",
        f"{'|error| of measured, %':<32}" + "".join(f"{name:>10}" for name in _COLUMNS),
        _errors_line(report.total),
        "by what-if",
        *map(_errors_line, report.by_transform),
        "by model",
        *map(_errors_line, report.by_model),
        *bullets("Inconclusive", _listed(map(_doubt, report.inconclusive))),
        *_verdict(report.worse),
    ]


def _errors_line(found: Errors) -> str:
    shares = (found.mean, found.median, found.p90, found.worst)
    cells = [f"{found.items}", *(f"{100 * share:.1f}" for share in shares)]
    cells += [f"{found.inside / found.items:.0%}", f"{100 * found.no_change:.1f}"]
    cells += ["" if found.paper is None else f"{100 * found.paper:.1f}"]
    return f"  {short(found.group, 28):<30}" + "".join(f"{cell:>10}" for cell in cells)


def _doubt(row: Row) -> str:
    off = f"prediction off by {pair_of(row).error:+.1%}"
    return f"{row.recording}, {short(row.scenario, 50)}: {doubt(row)}; {off}"


def _verdict(worse: tuple[str, ...] | None) -> list[str]:
    if worse is None:
        return []
    return bullets("Worse than the reference", worse) or ["Not worse than the reference"]
