"""The drawing of the rooms: a `docs.rooms.Room` in, an SVG out, the same bytes for the same rooms.

Rooms stand in rows, importers above what they import; an arrow that passes a row has a place of its
own there, so that it crosses no box. All lengths are in px.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from docs.rooms import read_rooms

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from docs.rooms import Room

TITLE, COUNT = 13, 11
"""Sizes of the type."""
CHARACTER = 0.6
"""How wide a character is, in sizes of its type."""
PAD, GAP, ROW_GAP, HEAD = 12, 14, 30, 42
PASSAGE = 8
"""The width of the place of an arrow that passes a row."""
INNER_WIDEST = 640
"""Where the boxes of a row are wider together, they stand in several; not those of the whole."""
FILLS = ("#ffffff", "#eef3fb", "#dbe6f6", "#c8d9f1")
"""By depth."""
STYLE = (
    "text{font-family:system-ui,sans-serif;fill:#1a2433}"
    f".t{{font-size:{TITLE}px;font-weight:600}}.c{{font-size:{COUNT}px;fill:#55637a}}"
    "rect{stroke:#8ba0c0}path{fill:none;stroke:#3f5f94;stroke-width:1.2}"
)
ARROW_HEAD = (
    '<defs><marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path d="M0 0L8 4L0 8z" style="fill:#3f5f94"/></marker></defs>'
)


@dataclass(eq=False)
class Box:
    """A room with its place, or, without one, the place of an arrow that passes a row."""

    room: Room | None
    rows: list[list[Box]] = field(default_factory=list)
    routes: list[list[Box]] = field(default_factory=list)
    width: float = PASSAGE
    height: float = 0
    x: float = 0
    y: float = 0

    @property
    def middle(self) -> float:
        """Return the x of its middle."""
        return self.x + self.width / 2


def draw_rooms() -> str:
    """Return the drawing of all rooms of the package."""
    whole = _box(read_rooms())
    _place(whole, 1, 1)
    size = f"{whole.width + 2:g} {whole.height + 2:g}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" role="img">',
        "<title>The rooms of Foretrace, each above those that it imports</title>",
        f"<style>{STYLE}</style>",
        ARROW_HEAD,
        *_draw(whole, 0),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _box(room: Room, widest: float = math.inf) -> Box:
    """Return the box of *room* with all boxes in it, in rows up to *widest*, not yet placed."""
    box = Box(room)
    box.rows = [
        line
        for row in room.rows
        for line in _lines([_box(each, INNER_WIDEST) for each in row], widest)
    ]
    box.routes = _routes(box)
    _order(box)
    texts = [(_title(room), TITLE), (_count(room), COUNT)]
    inner = [sum(each.width for each in row) + GAP * (len(row) - 1) for row in box.rows]
    box.width = round(max([len(t) * size * CHARACTER for t, size in texts] + inner) + 2 * PAD)
    heights = [max(each.height for each in row) for row in box.rows]
    box.height = HEAD + sum(heights) + (ROW_GAP * (len(heights) - 1) + PAD if heights else 0)
    return box


def _lines(boxes: Sequence[Box], widest: float) -> Iterator[list[Box]]:
    """Yield *boxes* in rows that are not wider than *widest*."""
    line: list[Box] = []
    for box in boxes:
        if line and sum(each.width + GAP for each in line) + box.width > widest:
            yield line
            line = []
        line.append(box)
    yield line


def _title(room: Room) -> str:
    name = room.name.rpartition(".")[2]
    return "replaying, in replay/" if name == "replaying" else name


def _count(room: Room) -> str:
    """Say how large *room* is; lines in hundreds, so that not every change is a new drawing."""
    lines = f"{round(room.lines, -2):,} lines" if room.lines >= 100 else "under 100 lines"  # noqa: PLR2004
    return lines if room.modules == 1 else f"{room.modules} modules, {lines}"


def _routes(box: Box) -> list[list[Box]]:
    """Return, per arrow in *box*, the boxes it joins; add a passage to every row between."""
    row_of = {each.room.name: at for at, row in enumerate(box.rows) for each in row if each.room}
    named = {each.room.name: each for row in box.rows for each in row if each.room}
    routes = []
    for source, target in box.room.arrows if box.room else ():
        passages = [Box(None) for _ in range(row_of[source] + 1, row_of[target])]
        for at, passage in enumerate(passages, row_of[source] + 1):
            box.rows[at].append(passage)
        routes.append([named[source], *passages, named[target]])
    return routes


def _order(box: Box) -> None:
    """Sort every row by where the arrows from above, then those from below, come from."""
    above: dict[Box, list[Box]] = {}
    below: dict[Box, list[Box]] = {}
    for route in box.routes:
        for upper, lower in pairwise(route):
            above.setdefault(lower, []).append(upper)
            below.setdefault(upper, []).append(lower)
    for near, rows in [(above, box.rows), (below, box.rows[::-1])] * 2 + [(above, box.rows)]:
        place = {each: _share(row, each) for row in box.rows for each in row}
        for row in rows:
            row.sort(key=lambda each: _mean([place[n] for n in near.get(each, [each])]))
            place |= {each: _share(row, each) for each in row}


def _share(row: Sequence[Box], box: Box) -> float:
    return (row.index(box) + 0.5) / len(row)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _place(box: Box, x: float, y: float) -> None:
    """Give *box* and all boxes in it their places; every row is spread over the whole width."""
    box.x, box.y = x, y
    y += HEAD
    for row in box.rows:
        height = max(each.height for each in row)
        room = box.width - 2 * PAD - sum(each.width for each in row)
        gap = room / (len(row) + 1)
        at = x + PAD + gap
        for each in row:
            if each.room is None:
                each.height = height
            _place(each, round(at, 1), y)
            at += each.width + gap
        y += height + ROW_GAP


def _draw(box: Box, depth: int) -> Iterator[str]:
    """Yield the elements of *box* and of all in it; arrows above the boxes that they join."""
    if box.room is None:
        return
    yield (
        f'<rect x="{box.x:g}" y="{box.y:g}" width="{box.width:g}" height="{box.height:g}" rx="5" '
        f'fill="{FILLS[min(depth, len(FILLS) - 1)]}"/>'
    )
    for text, style, y in ((_title(box.room), "t", 18), (_count(box.room), "c", 34)):
        yield f'<text class="{style}" x="{box.x + PAD:g}" y="{box.y + y:g}">{escape(text)}</text>'
    for row in box.rows:
        for each in row:
            yield from _draw(each, depth + 1)
    ends = {each: (_ends(each, box, 0), _ends(each, box, -1)) for row in box.rows for each in row}
    bottom = {each: max(e.y + e.height for e in row) for row in box.rows for each in row}
    for route in box.routes:
        yield _arrow(route, ends[route[0]][0], ends[route[-1]][1], bottom)


def _ends(box: Box, around: Box, end: int) -> list[list[Box]]:
    """Return the routes that begin (0) or end (-1) at *box*, from left to right."""
    mine = [route for route in around.routes if route[end] is box]
    return sorted(mine, key=lambda route: route[1 if end == 0 else -2].middle)


def _arrow(
    route: list[Box], starts: list[list[Box]], ends: list[list[Box]], bottom: dict[Box, float]
) -> str:
    """Return the path of one arrow, through the passages of the rows between."""
    first, last = route[0], route[-1]
    x = first.x + first.width * (starts.index(route) + 1) / (len(starts) + 1)
    path = f"M{x:.1f} {first.y + first.height:.1f}V{bottom[first]:.1f}"
    y = bottom[first]
    for each in route[1:]:
        share = (ends.index(route) + 1) / (len(ends) + 1) if each is last else 0.5
        there = each.x + each.width * share
        half = (y + each.y) / 2
        path += f"C{x:.1f} {half:.1f} {there:.1f} {half:.1f} {there:.1f} {each.y:.1f}"
        x, y = there, bottom[each] if each is not last else each.y
        if each is not last:
            path += f"V{y:.1f}"
    return f'<path d="{path}" marker-end="url(#a)"/>'
