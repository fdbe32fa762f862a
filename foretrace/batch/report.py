"""Forms of the reports about many jobs: a batch, and how it compares."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from foretrace.batch.compare import Comparison, as_pair, doubt
from foretrace.batch.run import Batch
from foretrace.graph.state import Doubt
from foretrace.report.dispatch import json_keys, text_blocks
from foretrace.report.number_format import duration, ms, percent, places
from foretrace.report.text_layout import (
    BAD,
    CAUTION,
    GOOD,
    Blocks,
    aside,
    gain_text,
    heading,
    note_list,
    table,
    text,
)
from foretrace.util.short_name import short

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.text import Text

    from foretrace.batch.compare import Errors
    from foretrace.batch.rows import Row

LISTED = 20
"""Items that failed, or are in doubt, that a text names; the table has all."""
SHOWN = 500
"""Predictions that a text shows; the table has all."""
_LEFT_OUT = ("inconclusive", "unforeseen", "unmeasured", "failed")
_HEADS = ("what-if", "recording", "measured", "predicted", "90 % interval", "speed-up", "status")
_COLUMNS = ("items", "mean", "median", "p90", "worst", "inside", "no change", "paper")


@json_keys.register(Batch)
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
        "doubts": _read_doubts(row),
        "measured_step_ms": ms(row.before_ns),
        "predicted_step_ms": ms(row.predicted_ns),
        "speedup": _speedup(row),
        "interval_ms": interval,
        "measured_after_ms": ms(row.after_ns),
        "status": row.status,
        "evidence": (row.evidence or "").splitlines(),
        "error": row.error,
    }


def _read_doubts(row: Row) -> list[dict[str, str]]:
    """Return the doubts of a row, in their JSON form."""
    doubts: list[dict[str, str]] = json.loads(row.doubts or "[]")
    return doubts


def _list_evidence(rows: Iterable[Row]) -> list[str]:
    """Return every line about the pairs behind a status, once."""
    return list(dict.fromkeys(line for row in rows for line in (row.evidence or "").splitlines()))


def _list_doubts(rows: Iterable[Row]) -> list[str]:
    """Return every doubt once, with the recording, and the what-if where not all share it."""
    said: dict[tuple[str, str], list[str]] = {}
    asked: Counter[str] = Counter()
    for row in rows:
        asked[row.recording] += 1
        for each in _read_doubts(row):
            written = str(Doubt(each["code"], each["text"], each["place"]))
            said.setdefault((row.recording, written), []).append(row.scenario)
    return [
        f"{recording}{'' if len(of) == asked[recording] else ', ' + short(of[0], 50)}: {doubt}"
        for (recording, doubt), of in said.items()
    ]


def _speedup(row: Row) -> float | None:
    if row.predicted_ns is None or row.before_ns is None or row.samples is None:
        return None
    return round(row.samples * row.before_ns / row.predicted_ns, 6)


def _failures(report: Batch) -> list[Row]:
    return [row for row in report.rows if row.error is not None]


@text_blocks.register(Batch)
def _batch_blocks(report: Batch) -> Blocks:
    failures = _failures(report)
    predicted = [row for row in report.rows if row.error is None]
    counts = f"{len(report.rows)} items: {len(predicted)} predicted"
    counts += f", {len(failures)} failed, {report.known} known from before"
    named = [f"{row.recording}, {row.scenario}: {short(str(row.error), 200)}" for row in failures]
    return [
        heading(counts),
        *note_list("Doubts", _listed(_list_doubts(predicted)), CAUTION),
        table("llrrrrl", map(_row, predicted[:SHOWN]), _HEADS),
        *([aside(f"{len(predicted) - SHOWN} more in the table")] if len(predicted) > SHOWN else []),
        *note_list("Tested by", _listed(_list_evidence(predicted))),
        *note_list("Failed", _listed(named), BAD),
        text(f"wrote {report.table}"),
    ]


def _listed(items: Iterable[str]) -> list[str]:
    """Return the first of *items*, and how many more there are."""
    every = list(items)
    return every[:LISTED] + ([f"{len(every) - LISTED} more"] if len(every) > LISTED else [])


def _row(row: Row) -> list[str | Text]:
    speedup, decimals = _speedup(row), places(row.before_ns or 0)
    before, after = (duration(ns, decimals) for ns in (row.before_ns, row.predicted_ns))
    return [
        short(row.scenario, 50),
        short(row.recording, 50),
        before,
        after,
        " … ".join(duration(ns, decimals) for ns in (row.low_ns, row.high_ns)),
        "unknown" if speedup is None else gain_text(speedup),
        ", ".join([str(row.status), *dict.fromkeys(each["code"] for each in _read_doubts(row))]),
    ]


@json_keys.register(Comparison)
def _comparison_keys(report: Comparison) -> dict[str, Any]:
    return {
        "all": _errors_keys(report.total),
        "transforms": [_errors_keys(group) for group in report.by_transform],
        "models": [_errors_keys(group) for group in report.by_model],
        **{name: len(getattr(report, name)) for name in _LEFT_OUT},
        "doubts": [_doubt(row) for row in report.inconclusive],
        "worse": None if report.worse is None else list(report.worse),
    }


def _errors_keys(errors: Errors) -> dict[str, Any]:
    shares = ("mean", "median", "p90", "worst", "no_change", "paper")
    plain = {name: value for name, value in asdict(errors).items() if name not in shares}
    values = {name: getattr(errors, name) for name in shares}
    return plain | {
        f"{name}_pct": None if share is None else percent(share) for name, share in values.items()
    }


@text_blocks.register(Comparison)
def _comparison_blocks(report: Comparison) -> Blocks:
    rows = [
        _errors(report.total),
        _section("by what-if"),
        *map(_errors, report.by_transform),
        _section("by model"),
        *map(_errors, report.by_model),
    ]
    return [
        heading(f"{report.total.items} items judged; {report.left_out}"),
        table("l" + "r" * len(_COLUMNS), rows, ("|error| of measured, %", *_COLUMNS)),
        *note_list("Inconclusive", _listed(map(_doubt, report.inconclusive)), CAUTION),
        *_verdict(report.worse),
    ]


def _section(title: str) -> list[str | Text]:
    return [heading(title), *[""] * len(_COLUMNS)]


def _errors(errors: Errors) -> list[str | Text]:
    shares = (errors.mean, errors.median, errors.p90, errors.worst)
    cells = [f"{errors.items}", *(f"{100 * share:.1f}" for share in shares)]
    cells += [f"{errors.inside / errors.items:.0%}", f"{100 * errors.no_change:.1f}"]
    cells += ["" if errors.paper is None else f"{100 * errors.paper:.1f}"]
    return [short(errors.group, 50), *cells]


def _doubt(row: Row) -> str:
    off = f"prediction off by {as_pair(row).error:+.1%}"
    return f"{row.recording}, {short(row.scenario, 50)}: {doubt(row)}; {off}"


def _verdict(worse: tuple[str, ...] | None) -> Blocks:
    if worse is None:
        return []
    return note_list("Worse than the reference", worse, BAD) or [
        text("Not worse than the reference", GOOD)
    ]
