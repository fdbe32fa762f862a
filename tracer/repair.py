"""Mend JSON that peers refuse: control characters, stray quotes and backslashes, cut files."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretrace.tracer.oddities import Tally

_REPLACEMENT = "\ufffd"
_BAD_ESCAPE = re.compile(r'\\(?:(["\\/bfnrt]|u[0-9a-fA-F]{4})|)')
_TRAILING_COMMA = re.compile(r",(\s*[\]}])")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_EVENT_START = re.compile(r'\{\s*"')


def repaired(raw: bytes, tally: Tally) -> str:
    """Return *raw* as text with everything mended that can be mended in place."""
    text = raw.decode("utf-8", errors="replace")
    tally.add("bad_utf8", text.count(_REPLACEMENT))
    text, count = _CONTROL.subn(lambda m: f"\\u{ord(m[0]):04x}", text)
    tally.add("control_characters", count)
    text = _double_backslashes(text, tally)
    return text


def _double_backslashes(text: str, tally: Tally) -> str:
    bad = 0

    def mend(match: re.Match[str]) -> str:
        nonlocal bad
        if match[1]:
            return match[0]
        bad += 1
        return "\\\\"

    text = _BAD_ESCAPE.sub(mend, text)
    tally.add("bad_escapes", bad)
    return text


def salvaged(text: str, tally: Tally) -> Any:
    """Return the events of a damaged file that can be read one by one; None if there are none."""
    decoder = json.JSONDecoder(strict=False)
    begin = text.find('"traceEvents"')
    bare = text.lstrip()[:1] == "["
    if begin < 0 and not bare:
        return None
    position = text.find("[", max(begin, 0)) + 1
    events = []
    while match := _EVENT_START.search(text, position):
        try:
            event, position = decoder.raw_decode(text, match.start())
            events.append(event)
        except ValueError:
            tally.add("truncated")
            break
    return events if bare else {"traceEvents": events}
