"""Mend JSON that others refuse: stray bytes, quotes, backslashes and commas, and cut files."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretrace.tracer.data_issues import Tally

REPLACEMENT = "\ufffd"
CONTROL = re.compile(r"[\x00-\x1f]")
ESCAPE = re.compile(r'\\(?:(["\\/bfnrt]|u[0-9a-fA-F]{4})|)')
TRAILING_COMMA = re.compile(r",(?=\s*[\]}])")
STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""One that is cut off goes to the end: from each quote in it the rest would be looked at again."""
NO_NUMBER = re.compile(
    STRING.pattern + r"|(?<=[:,\[\s])[-+]?(?:inf(?:inity)?|nan(?:\(\w*\))?|\d\.#\w+)(?=\s*[,\]}])",
    re.DOTALL | re.IGNORECASE,
)
"""What C and Python print for a number that is none; strings are matched to be passed over."""
BOUNDARY = re.compile(r'\}\s*(?:,\s*(?=\{\s*"(?:ph|name|cat|pid|tid|ts)")|(?=\]))')
"""Where an event ends and the next one begins, or the list ends."""
CLOSING_QUOTE = re.compile(r'"\s*(?::|,\s*["{\[\-\dtfn]|[}\]])')
QUOTE = re.compile(r'\\.|"', re.DOTALL)
SEPARATORS = re.compile(r"[\s,]*")
WINDOW, NEAR = 1 << 16, 16
"""Characters that are looked at together; an error so near their end may come of the end."""


def mend(raw: bytes, tally: Tally) -> str:
    """Return *raw* as text, with everything mended that needs no knowledge of the structure."""
    text = raw.decode("utf-8-sig", errors="replace")
    tally.add("bad_utf8", text.count(REPLACEMENT) - raw.count(REPLACEMENT.encode()))
    text = _double_stray_backslashes(text, tally)
    text = _blank_non_numbers(text, tally)
    text, commas = TRAILING_COMMA.subn("", text)
    tally.add("trailing_commas", commas)
    controls = sum(len(CONTROL.findall(m[0])) for m in STRING.finditer(text))
    tally.add("control_characters", controls)
    return text


def _double_stray_backslashes(text: str, tally: Tally) -> str:
    stray = 0

    def double(match: re.Match[str]) -> str:
        nonlocal stray
        if match[1]:
            return match[0]
        stray += 1
        return r"\\"

    text = ESCAPE.sub(double, text)
    tally.add("bad_escapes", stray)
    return text


def _blank_non_numbers(text: str, tally: Tally) -> str:
    blanks = 0

    def blank(match: re.Match[str]) -> str:
        nonlocal blanks
        if match[0].startswith('"'):
            return match[0]
        blanks += 1
        return "null"

    text = NO_NUMBER.sub(blank, text)
    tally.add("bad_number", blanks)
    return text


def salvage(text: str, tally: Tally) -> Any:
    """Read the events of damaged text one by one, with the metadata around them.

    Returns the root as `json.loads` would, or None if there is nothing to read.
    """
    key = text.find('"traceEvents"')
    bare = text.lstrip()[:1] == "["
    start = text.find("[", max(key, 0))
    if start < 0 or not (bare or key >= 0):
        return None
    events, end = _events(text, start + 1, tally)
    if bare:
        return events or None
    head = _metadata(text[:key] + '"traceEvents": []}')
    tail = _metadata("{" + text[end + 1 :].lstrip(" \t\r\n,"))
    if tail is None and end < len(text):
        tally.add("truncated")
    return (head or {}) | (tail or {}) | {"traceEvents": events}


def _events(text: str, position: int, tally: Tally) -> tuple[list[Any], int]:
    """Return the events from *position* on, and where their list ends."""
    decoder = json.JSONDecoder(strict=False, parse_float=Decimal)
    events: list[Any] = []
    window = _Window(text, position)
    while True:
        window.skip_separators()
        if window.next_character() == "]":
            return events, window.place
        try:
            event = window.decode(decoder)
        except ValueError:
            chunk = window.cut_event()
            if chunk is None:
                tally.add("truncated")
                return events, len(text)
            event = _event_with_quotes(chunk, tally)
        if event is not None:
            events.append(event)


class _Window:
    """The part of a long text that is being read: an error costs what it spans, not all before."""

    def __init__(self, text: str, place: int) -> None:
        self._text = text
        self._base, self._at = place, 0
        self._view = text[place : place + WINDOW]

    @property
    def place(self) -> int:
        """Where reading goes on, in the whole text."""
        return self._base + self._at

    def skip_separators(self) -> None:
        """Go on to what is neither a space nor a comma."""
        while True:
            match = SEPARATORS.match(self._view, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._view) or not self._has_more():
                return
            self._move(WINDOW)

    def next_character(self) -> str:
        """Return what comes next; nothing at the end."""
        return self._view[self._at : self._at + 1]

    def decode(self, decoder: json.JSONDecoder) -> Any:
        """Return the value that begins here, and go on behind it.

        Raises
        ------
        ValueError
            There is none.
        """
        while True:
            try:
                event, self._at = decoder.raw_decode(self._view, self._at)
            except ValueError as error:
                if not (self._has_more() and _is_cut(error, len(self._view))):
                    raise
                size = len(self._view)
                self._move(WINDOW if self._at else 2 * size)
            else:
                return event

    def cut_event(self) -> str | None:
        """Return the text up to where the next event begins, and go on there; None at the last."""
        while True:
            boundary = BOUNDARY.search(self._view, self._at)
            if boundary is not None:
                chunk = self._view[self._at : boundary.start() + 1]
                self._at = boundary.start() + 1
                return chunk
            if not self._has_more():
                return None
            size = len(self._view)
            self._move(WINDOW if self._at else 2 * size)

    def _has_more(self) -> bool:
        return self._base + len(self._view) < len(self._text)

    def _move(self, size: int) -> None:
        self._base, self._at = self._base + self._at, 0
        self._view = self._text[self._base : self._base + size]


def _is_cut(error: ValueError, size: int) -> bool:
    """Tell whether reading failed because only *size* characters of the text were seen."""
    if not isinstance(error, json.JSONDecodeError):
        return False
    return error.pos >= size - NEAR or error.msg.startswith("Unterminated string")


def _event_with_quotes(chunk: str, tally: Tally) -> Any:
    """Read one event after escaping the quotes inside its strings; None if that does not help."""
    pieces, done, inside, mended = [], 0, False, 0
    for match in QUOTE.finditer(chunk):
        if match[0] != '"':
            continue
        if not inside:
            inside = True
        elif CLOSING_QUOTE.match(chunk, match.start()):
            inside = False
        else:
            pieces += [chunk[done : match.start()], "\\"]
            done = match.start()
            mended += 1
    try:
        event = json.loads("".join(pieces) + chunk[done:], strict=False, parse_float=Decimal)
    except ValueError:
        tally.add("unreadable_events")
        return None
    tally.add("raw_quotes", mended)
    return event


def _metadata(text: str) -> dict[str, Any] | None:
    try:
        event = json.loads(text, strict=False)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None
