"""Progress of long work: one line on standard error, only when somebody watches a terminal."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_CLEAR_LINE = "\r\x1b[K"


@contextmanager
def stage(what: str) -> Iterator[None]:
    """Show *what* while the block runs, and remove it afterwards."""
    if not sys.stderr.isatty():
        yield
        return
    sys.stderr.write(f"{what} …")
    sys.stderr.flush()
    try:
        yield
    finally:
        sys.stderr.write(_CLEAR_LINE)
        sys.stderr.flush()
