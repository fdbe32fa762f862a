"""Rows of published measurements in, their page out: grouped by how close a trace is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.accuracy.markdown import percent, table
from benchmarks.accuracy.published.study import GROUPS, REST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.accuracy.published.study import PublishedRow

ORDER = tuple(dict.fromkeys([*(group for _, group in GROUPS), REST]))
"""Groups, the closest first."""


def published_page(rows: Sequence[PublishedRow]) -> str:
    """Return the page about *rows*."""
    asked = [row for row in rows if not row.problem]
    sections = [
        "# Against what others published",
        "",
        "`make accuracy` generates this page from a table of changes that others measured and",
        "published, and from public traces of like jobs; neither is redistributed here.",
        "A ratio is the time of a step after the change over that before, of the same samples.",
        "Each is asked as a user would ask, without any option but those shown.",
        "The authors measured on other machines, often with other software and another batch:",
        "an error here holds theirs and ours.",
        "",
        *_summary(asked),
        *(line for group in ORDER for line in _group(group, asked)),
        *_not_asked([row for row in rows if row.problem]),
    ]
    return "\n".join(sections).rstrip() + "\n"


def _summary(rows: Sequence[PublishedRow]) -> list[str]:
    lines = [_summarize(group, [row for row in rows if row.group == group]) for group in ORDER] + [
        _summarize("**all**", rows)
    ]
    columns = ("rows", "count", "median error", "of no change", "interval holds", "right sign")
    return ["## In short", "", *table(columns, [line for line in lines if line]), ""]


def _summarize(name: str, rows: Sequence[PublishedRow]) -> tuple[str, ...]:
    if not rows:
        return ()
    inside, signs = (sum(getattr(row, what) for row in rows) for what in ("is_inside", "has_sign"))
    return (
        name,
        str(len(rows)),
        _median([row.error for row in rows]),
        _median([row.null_error for row in rows]),
        f"{inside} ({inside / len(rows):.0%})",
        str(signs),
    )


def _median(errors: Sequence[float]) -> str:
    return f"{float(np.median(np.abs(errors))):.1%}"


def _group(group: str, asked: Sequence[PublishedRow]) -> list[str]:
    rows = [row for row in asked if row.group == group]
    if not rows:
        return []
    columns = (
        *("row", "job", "change", "asked of", "what-if"),
        *("published", "predicted", "error", "no change", "interval", "inside", "status"),
    )
    return [f"## {group}", "", *table(columns, map(_cells, rows)), ""]


def _cells(row: PublishedRow) -> tuple[str, ...]:
    low, high = row.interval
    return (
        f"{row.name}, {row.source.split()[0]}",
        f"{row.model}, {row.devices}",
        row.change,
        f"`{row.trace.partition('.')[0]}`",
        f"`{row.asked}`",
        f"{row.published:.3f}",
        f"{row.predicted:.3f}",
        percent(row.error),
        percent(row.null_error),
        f"{low:.3f} … {high:.3f}",
        "yes" if row.is_inside else "**no**",
        ", ".join([row.status, *row.doubts, *["tuned on"] * row.tuned_on]),
    )


def _not_asked(rows: Sequence[PublishedRow]) -> list[str]:
    if not rows:
        return []
    lines = [
        (row.name, f"{row.model}, {row.devices}", row.change, f"{row.published:.3f}", row.problem)
        for row in rows
    ]
    columns = ("row", "job", "change", "published", "why not")
    return ["## What cannot be asked", "", *table(columns, lines), ""]
