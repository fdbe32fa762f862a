"""Forms of the answers about a whole job: the same for every method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foretrace.report.dispatch import json_keys, text_blocks
from foretrace.report.text_layout import (
    CAUTION,
    Blocks,
    doubt_keys,
    doubt_list,
    heading,
    note_list,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from foretrace.graph.state import Doubt
    from foretrace.job.answer import Answer

Cell = str | float | int | None


@dataclass(frozen=True)
class Table:
    """Rows under named columns; a cell that is None is unknown."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class JobReport:
    """What a command of ``foretrace job`` answers."""

    title: str
    answers: Mapping[str, Answer]
    tables: Sequence[Table] = ()
    assumptions: Sequence[str] = ()
    warnings: Sequence[str] = ()
    doubts: Sequence[Doubt] = ()


@json_keys.register(JobReport)
def _keys(report: JobReport) -> dict[str, Any]:
    return {
        "title": report.title,
        "doubts": doubt_keys(report.doubts),
        "answers": {name: _answer(answer) for name, answer in report.answers.items()},
        "tables": [
            {"title": t.title, "rows": [dict(zip(t.columns, row, strict=True)) for row in t.rows]}
            for t in report.tables
        ],
        "assumptions": list(report.assumptions),
        "warnings": list(report.warnings),
    }


def _answer(answer: Answer) -> dict[str, Any]:
    return {
        "value": answer.value,
        "interval": [answer.low, answer.high],
        "unit": answer.unit,
        "level": answer.level,
        "status": answer.status,
    }


@text_blocks.register(JobReport)
def _blocks(report: JobReport) -> Blocks:
    return [
        heading(report.title),
        *doubt_list(report.doubts),
        table("ll", [(name, in_words(answer)) for name, answer in report.answers.items()]),
        *(block for each in report.tables for block in _table(each)),
        *note_list("Assumes", report.assumptions),
        *note_list("Warnings", report.warnings, CAUTION),
    ]


def in_words(answer: Answer) -> str:
    """Return *answer* with its interval and status."""
    low, value, high = (number(x) for x in (answer.low, answer.value, answer.high))
    unit = f" {answer.unit}" if answer.unit else ""
    if answer.low == answer.high:
        return f"{value}{unit}   exactly"
    return f"{value}{unit}   {low} … {high} in {answer.level:.0%} of cases ({answer.status})"


def number(value: Cell) -> str:
    """Return *value* to four digits that count.

    >>> [number(v) for v in (1234567.8, 12.3456, 0.00123, 5, None)]
    ['1,234,568', '12.35', '0.00123', '5', '-']
    """
    if value is None or isinstance(value, str):
        return value or "-"
    if isinstance(value, int) or abs(value) >= 1000:  # noqa: PLR2004 - four digits
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _table(each: Table) -> Blocks:
    rows = [[number(cell) for cell in row] for row in each.rows]
    return [heading(each.title), table("r" * len(each.columns), rows, each.columns)]
