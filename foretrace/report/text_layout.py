"""What text reports are made of, as rich lays it out: headings, facts, tables and notes.

Words come from traces and users: none is read as markup, and what a terminal might obey is shown
as "�". Colours and line breaks are for terminals; elsewhere the same blocks are plain lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from foretrace.report.number_format import MEASURED, duration, number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from foretrace.analysis.unchanged.measured_step import Measured
    from foretrace.graph.state import Doubt

Cell = str | Text
Blocks = list[RenderableType]
"""Parts of a report in order, each with lines of its own."""
GOOD, BAD, CAUTION, ASIDE, TITLE = "green", "red", "yellow", "dim", "bold"
"""Styles, by what they say."""
PLAIN: dict[str, Any] = {
    "width": 1_000_000,  # no line is broken
    "color_system": None,
    "force_terminal": False,
    "legacy_windows": False,
}
INDENT = 2
NO_GAIN = 0.005
"""Half a percent is no gain to speak of."""
NARROWEST = 12
"""Columns that words keep on a narrow terminal."""


def render(blocks: Iterable[RenderableType], *, terminal: bool = False) -> str:
    """Return *blocks* as text: in the colours and the width of the terminal, or as plain lines."""
    settings = {} if terminal else PLAIN
    console = Console(markup=False, emoji=False, highlight=False, force_jupyter=False, **settings)
    with console.capture() as captured:
        for block in blocks:
            console.print(text(block) if isinstance(block, str) else block, crop=False)
    shown = captured.get()
    return shown if terminal else "".join(f"{line.rstrip()}\n" for line in shown.split("\n")[:-1])


def text(words: str, style: str = "") -> Text:
    """Return *words* as they are, but for what a terminal might obey."""
    return Text("".join(char if char.isprintable() else "\ufffd" for char in words), style)


def heading(words: str) -> Text:
    """Return the head of a report, or of a part of it."""
    return text(words, TITLE)


def table(aligns: str, rows: Iterable[Sequence[Cell]], heads: Sequence[str] = ()) -> Table:
    """Return *rows* in columns under *heads*, the first of which is the title of the table.

    *aligns* has a letter per column: "l" for words, which may be broken on a narrow terminal, "r"
    for numbers, which never are.
    """
    shown = Table(box=None, pad_edge=False, show_header=bool(heads), header_style="")
    cells = [[cell if isinstance(cell, Text) else text(cell) for cell in row] for row in rows]
    for at, align in enumerate(aligns):
        title = TITLE if not at and align == "l" else ""
        head = text(heads[at], title) if heads else text("")
        widest = max((row[at].cell_len for row in cells), default=0) + (0 if at else INDENT)
        if align == "r":
            least = max(widest, head.cell_len)
            shown.add_column(head, justify="right", no_wrap=True, min_width=least)
        else:
            shown.add_column(head, overflow="fold", min_width=min(widest, NARROWEST))
    for first, *others in cells:
        shown.add_row(_indented(first), *others)
    return shown


def aside(words: str, style: str = ASIDE) -> Padding:
    """Return an indented line below a table, about it."""
    return _indented(text(words, style))


def _indented(words: Text) -> Padding:
    return Padding(words, (0, 0, 0, INDENT))


def fact_table(*rows: tuple[str, Cell, Cell]) -> Table:
    """Return a line for each name, its value, and what there is to say of it."""
    return table("lrl", rows)


def note_list(title: str, texts: Iterable[str], style: str = "") -> Blocks:
    """Return *title* and a line per note; nothing without notes."""
    texts = list(texts)
    grid = Table.grid()
    for note in texts:
        grid.add_row("  - ", text(note, style))
    return [heading(title), grid] if texts else []


def doubt_list(doubts: Iterable[Doubt]) -> Blocks:
    """Return what in an answer may be wrong, to stand before its numbers."""
    return note_list("Doubts", map(str, doubts), CAUTION)


def doubt_keys(doubts: Iterable[Doubt]) -> list[dict[str, str]]:
    """Return the JSON form of doubts."""
    return [doubt.keys for doubt in doubts]


def measured_fact(step: Measured, decimals: int) -> tuple[str, str, str]:
    """Return the fact of the measured step: how long, how measured, and what began it."""
    marker = f", steps from {step.steps_from}" if step.steps_from else ""
    return "measured", duration(step.step_ns, decimals), f"{MEASURED[step.source]}{marker}"


def change_text(ns: float, decimals: int) -> Text:
    """Return a signed difference of times: less is a gain."""
    shown = number(ns, decimals)
    sign = "+" if ns > 0 and shown[0].isdigit() else ""
    return text(sign + shown, BAD if ns > 0 else GOOD if ns < 0 else "")


def gain_text(gain: float) -> Text:
    """Return how many times as fast something is."""
    return text(f"{gain:.2f}x", style_of(gain))


def style_of(gain: float) -> str:
    """Return the style of a gain, which half a percent is not."""
    return GOOD if gain >= 1 + NO_GAIN else BAD if gain <= 1 - NO_GAIN else ""
