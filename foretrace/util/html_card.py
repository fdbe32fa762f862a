"""A title, facts and shares in, HTML for a notebook out; everything is escaped.

The classes that a notebook shows say what stands in their card; this says how it looks.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_BARS = 12
_WIDTH_EM = 12
_CELL = "text-align:left;padding:0 1em 0 0;overflow-wrap:anywhere"


def card(
    title: str,
    facts: Mapping[str, object],
    bars: Mapping[str, tuple[float, ...]] | None = None,
    unit: str = "ms",
) -> str:
    """Return a card: *facts* by name, and a bar per number of *bars*, its value beside it.

    Facts that are ``None`` are unknown. Of more bars than `MOST_BARS` the rest is counted.

    >>> "Graph &lt;1&gt;" in card("Graph <1>", {"tasks": 1_200})
    True
    """
    rows = [_row(name, escape(_text(value))) for name, value in facts.items()]
    longest = max((value for values in (bars or {}).values() for value in values), default=0) or 1
    shown = list((bars or {}).items())
    for name, values in shown[:MOST_BARS]:
        rows.append(_row(name, "".join(_bar(value, value / longest, unit) for value in values)))
    if len(shown) > MOST_BARS:
        rows.append(_row(f"and {len(shown) - MOST_BARS} more", ""))
    table = f"<table>{''.join(rows)}</table>"
    return f'<div class="foretrace"><strong>{escape(title)}</strong>{table}</div>'


def _row(name: str, cell: str) -> str:
    return f'<tr><th style="{_CELL}">{escape(name)}</th><td style="{_CELL}">{cell}</td></tr>'


def _bar(value: float, share: float, unit: str) -> str:
    style = f"display:inline-block;height:.6em;background:#3b7dd8;width:{share * _WIDTH_EM:.2f}em"
    return f'<div><span style="{style}"></span> {escape(_text(value))} {escape(unit)}</div>'


def _text(value: object) -> str:
    if value is None or value == "":
        return "unknown"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
