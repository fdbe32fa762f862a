"""How times, shares and notes are written in reports: ms, signed percent, "unknown" for unknown."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foretrace.predict import Measured

NS_PER_MS = 1e6
_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
_MEASURED = {"profiled": "under the profiler", "unprofiled": "without the profiler"}


def measured(step: Measured) -> str:
    """Return the line about the measured step."""
    return f"  measured    {time(step.step_ns)}   {_MEASURED[step.source]}"


def bullets(title: str, notes: Iterable[str]) -> list[str]:
    """Return *title* and a line per note; nothing without notes."""
    notes = list(notes)
    return [title, *(f"  - {note}" for note in notes)] if notes else []


def short(name: str, width: int = 90) -> str:
    """Return *name*, cut to *width* characters.

    >>> short("elementwise_kernel", 12)
    'elementwise…'
    """
    return name if len(name) <= width else name[: width - 1] + "…"


def time(ns: float | None) -> str:
    """Return a time in ms, as wide as "unknown"."""
    return f"{'unknown':>13}" if ns is None else f"{ns / NS_PER_MS:10.2f} ms"


def size(count: float) -> str:
    """Return bytes in the unit that suits their number.

    >>> size(80e9), size(3.2e6), size(12)
    ('80.0 GB', '3.2 MB', '0.0 kB')
    """
    unit, factor = next(((u, f) for u, f in _UNITS if count >= f), _UNITS[-1])
    return f"{count / factor:.1f} {unit}"


def ms(ns: float | None) -> float | None:
    """Return *ns* in ms for JSON; None where it is unknown or not finite."""
    return None if ns is None or not math.isfinite(ns) else round(ns / NS_PER_MS, 6)


def percent(share: float) -> float:
    """Return a share in percent for JSON."""
    return round(100 * share, 4)
