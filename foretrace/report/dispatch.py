"""One function per kind of result: its JSON keys, and the parts of its text.

A module that knows a kind of result registers both here; `foretrace.report.forms` asks for them.
"""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretrace.report.text_layout import Blocks


@singledispatch
def json_keys(report: object) -> dict[str, Any]:
    """Return the JSON keys of *report*."""
    raise TypeError(f"no JSON form for {type(report).__name__}")


@singledispatch
def text_blocks(report: object) -> Blocks:
    """Return the parts of the text of *report*, each with lines of its own."""
    raise TypeError(f"no text form for {type(report).__name__}")
