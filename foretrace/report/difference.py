"""Text and JSON of what differs between two recordings; importing this registers them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foretrace.analysis.difference.difference import Difference
from foretrace.analysis.difference.parts import CAUSES
from foretrace.analysis.difference.side_by_side import add_rows
from foretrace.analysis.error.prediction_interval import LEVEL
from foretrace.report.dispatch import json_keys, text_blocks
from foretrace.report.number_format import MEASURED, duration, ms, number, places, share
from foretrace.report.prediction import measured_keys
from foretrace.report.text_layout import (
    Blocks,
    aside,
    change_text,
    doubt_keys,
    doubt_list,
    fact_table,
    heading,
    table,
)
from foretrace.util.short_name import short

if TYPE_CHECKING:
    from rich.text import Text

    from foretrace.analysis.difference.difference import Side
    from foretrace.analysis.difference.parts import Part
    from foretrace.analysis.difference.side_by_side import Row, Table

SHOWN_ROWS = 10
"""Rows of a table that text shows; the others are summed. JSON has them all."""
WIDTH = 60


@json_keys.register(Difference)
def _difference_keys(report: Difference) -> dict[str, Any]:
    return {
        "doubts": doubt_keys(report.doubts),
        "before": _side_keys(report.before),
        "after": _side_keys(report.after),
        "difference_ms": ms(report.difference_ns),
        "interval_ms": [ms(ns) for ns in report.interval_ns],
        "parts": [_part_keys(part) for part in report.parts],
        "unexplained_ms": ms(report.unexplained_ns),
        "tables": {each.by: [_row_keys(row) for row in each.rows] for each in report.tables},
    }


def _side_keys(side: Side) -> dict[str, Any]:
    return {
        "source": side.source,
        "devices": list(side.devices),
        "ranks": list(side.ranks),
        **measured_keys(side.measured),
        "replayed_step_ms": ms(side.replayed_ns),
        "matched": round(side.matched, 6),
    }


def _part_keys(part: Part) -> dict[str, Any]:
    return {
        "cause": part.cause,
        "ms": ms(part.ns),
        "interval_ms": [ms(ns) for ns in part.interval_ns],
        "alone_ms": ms(part.alone_ns),
        "undone_ms": ms(part.undone_ns),
    }


def _row_keys(row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "what": row.what,
        "count": [round(each, 6) for each in row.count],
        "device_ms": [ms(ns) for ns in row.device_ns],
        "host_ms": [ms(ns) for ns in row.host_ns],
        "precision": [each or None for each in row.precision],
        "moved": round(row.moved, 6),
    }


@text_blocks.register(Difference)
def _difference_blocks(report: Difference) -> Blocks:
    decimals = places(report.after.measured.step_ns)
    return [
        heading("Why the step differs"),
        *doubt_list(report.doubts),
        fact_table(
            _side_fact("before", report.before, decimals),
            _side_fact("after", report.after, decimals),
            (
                "differs",
                change_text(report.difference_ns, decimals),
                f"{_range(report.interval_ns, decimals)}, as the steps of both vary",
            ),
        ),
        _part_table(report, decimals),
        aside("alone: with this part alone as it is after; undone: with all but it as before"),
        *(block for each in report.tables for block in _side_by_side(each, decimals)),
        aside("device: work as recorded; host: calls and operators, what they wait for left out"),
    ]


def _side_fact(name: str, side: Side, decimals: int) -> tuple[str, str, str]:
    """Return what is known of one recording, in a line."""
    where = ", ".join(side.devices) or "no device"
    said = f"{MEASURED[side.measured.source]}; {short(side.source, WIDTH)}, {where}"
    found = f"{share(side.matched)} of its work found in the other"
    return name, duration(side.measured.step_ns, decimals), f"{said}; {found}"


def _part_table(report: Difference, decimals: int) -> Any:
    """Return the parts of the difference, what replay leaves open, and their sum."""
    rows: list[tuple[str | Text, ...]] = [
        (
            part.cause,
            change_text(part.ns, decimals),
            _range(part.interval_ns, decimals),
            change_text(part.alone_ns, decimals),
            change_text(part.undone_ns, decimals),
            CAUSES[part.cause],
        )
        for part in report.parts
    ]
    for name, ns, said in (
        ("not explained", report.unexplained_ns, "what the replays do not show"),
        ("together", report.difference_ns, "as measured"),
    ):
        rows.append((name, change_text(ns, decimals), "", "", "", said))
    heads = ("part, ms per step", "adds", f"{LEVEL:.0%} interval", "alone", "undone", "")
    return table("lrrrrl", rows, heads)


def _range(interval_ns: tuple[float, float], decimals: int) -> str:
    low, high = (change_text(ns, decimals).plain for ns in interval_ns)
    return f"{low} … {high}"


def _side_by_side(listed: Table, decimals: int) -> Blocks:
    """Return the rows that change most, and the sum of the others."""
    shown, others = listed.rows[:SHOWN_ROWS], listed.rows[SHOWN_ROWS:]
    rows = [(*_cells(row, decimals), _precision(row), row.what) for row in shown]
    if others:
        rows.append((*_cells(add_rows(others), decimals), "", ""))
    heads = (
        *(f"{listed.by}, ms per step", "count", "after", "device", "after", "host", "after"),
        *("change", "precision", ""),
    )
    return [table("lrrrrrrrll", rows, heads)]


def _cells(row: Row, decimals: int) -> tuple[str | Text, ...]:
    return (
        short(row.name, WIDTH),
        *(f"{each:,.4g}" for each in row.count),
        *(number(ns, decimals) for ns in (*row.device_ns, *row.host_ns)),
        change_text(row.change_ns, decimals),
    )


def _precision(row: Row) -> str:
    return " → ".join(dict.fromkeys(each for each in row.precision if each))
