"""How times, shares and names are written in reports: ms, signed percent, "unknown" for unknown."""

from __future__ import annotations

import math

NS_PER_MS = 1e6
_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
MEASURED = {"profiled": "under the profiler", "unprofiled": "without the profiler"}
"""How a step was measured, in words."""


def places(step_ns: float) -> int:
    """Return how many decimals of a ms show *step_ns* to four digits: 1 at least, 3 at most.

    A report takes them from its measured step, so that its numbers can be compared.

    >>> places(1.2e9), places(95.66e6), places(5e6), places(2e3)
    (1, 2, 3, 3)
    """
    if not 0 < step_ns < math.inf:
        return 2
    return min(max(3 - math.floor(math.log10(step_ns / NS_PER_MS)), 1), 3)


def number(ns: float, decimals: int = 2) -> str:
    """Return ns in ms; what would be rounded to nothing is said to be less than the last digit.

    >>> number(93.309e6), number(4e3), number(0), number(-4e3), number(1234.5e6, 1)
    ('93.31', '<0.01', '0', '>-0.01', '1,234.5')
    """
    shown = f"{ns / NS_PER_MS:,.{decimals}f}"
    if ns and not shown.strip("-0."):
        least = f"{10**-decimals:.{decimals}f}"
        return f"<{least}" if ns > 0 else f">-{least}"
    return shown if ns else "0"


def duration(ns: float | None, decimals: int = 2) -> str:
    """Return a time in ms, with its unit.

    >>> duration(95.66e6), duration(None)
    ('95.66 ms', 'unknown')
    """
    return "unknown" if ns is None else f"{number(ns, decimals)} ms"


def share(part: float) -> str:
    """Return a part of 1 in percent; what is there is never shown as nothing.

    >>> share(0.588), share(0.0002), share(0.9999), share(0)
    ('58.8%', '<0.1%', '>99.9%', '0%')
    """
    if not part or part >= 1:
        return f"{part:.0%}"
    shown = f"{part:.1%}"
    return {"0.0%": "<0.1%", "100.0%": ">99.9%"}.get(shown, shown)


def size(count: float) -> str:
    """Return bytes in the unit that suits their number.

    >>> size(80e9), size(3.2e6), size(12), size(0)
    ('80.0 GB', '3.2 MB', '<0.1 kB', '0 kB')
    """
    unit, factor = next(((u, f) for u, f in _UNITS if count >= f), _UNITS[-1])
    shown = f"{count / factor:.1f} {unit}"
    return {"0.0 kB": "<0.1 kB" if count else "0 kB"}.get(shown, shown)


def ms(ns: float | None) -> float | None:
    """Return *ns* in ms for JSON; None where it is unknown or not finite."""
    return None if ns is None or not math.isfinite(ns) else round(ns / NS_PER_MS, 6)


def percent(part: float) -> float:
    """Return a share in percent for JSON."""
    return round(100 * part, 4)
