"""Check the parameters of what-ifs; an error names the parameter and its legal range."""

from __future__ import annotations

import difflib
import math
from typing import TYPE_CHECKING, Any

from foretrace.errors import TransformError

if TYPE_CHECKING:
    from collections.abc import Iterable

LARGEST = 1e300
"""No parameter is meant to be larger; whole numbers beyond this are no floating-point numbers."""


def positive(name: str, value: float) -> float:
    """Return *value* if it is a finite number above 0.

    Examples
    --------
    >>> positive("speedup", 0)
    Traceback (most recent call last):
    foretrace.errors.TransformError: speedup=0 is out of range; give a number above 0
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TransformError(f"{name}={value!r} is no number; give a number above 0")
    if not 0 < value < math.inf:
        raise TransformError(f"{name}={value!r} is out of range; give a number above 0")
    if value > LARGEST:
        raise TransformError(f"{name} is out of range; give a number up to {LARGEST:g}")
    return value


def whole(name: str, value: int, low: int) -> int:
    """Return *value* if it is a whole number of at least *low*."""
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise TransformError(f"{name}={value!r} is out of range; give a whole number from {low} on")
    return value


def reconcile(name: str, given: int | None, recorded: int | None, what: str) -> int | None:
    """Return what the user states or the recording knows, at least 1; both must agree.

    Examples
    --------
    >>> reconcile("recorded", None, 32, "samples")
    32
    >>> reconcile("recorded", 16, 32, "samples")
    Traceback (most recent call last):
    foretrace.errors.TransformError: recorded=16 contradicts this job (samples: 32); leave it out
    """
    if given is None:
        return recorded
    if whole(name, given, 1) != (given if recorded is None else recorded):
        raise TransformError(
            f"{name}={given} contradicts this job ({what}: {recorded}); leave it out"
        )
    return given


def choice(name: str, value: Any, allowed: Iterable[str]) -> str:
    """Return *value* if it is one of *allowed*."""
    options = tuple(allowed)
    if value not in options:
        hint = f"choose one of {', '.join(options)}{did_you_mean(value, options)}"
        raise TransformError(f"{name}={value!r} is unknown; {hint}")
    return str(value)


def did_you_mean(word: Any, options: Iterable[str]) -> str:
    """Return a hint at the closest of *options*, or nothing.

    Examples
    --------
    >>> did_you_mean("amps", ["amp", "remove_sync"])
    '; did you mean amp?'
    """
    close = difflib.get_close_matches(str(word), list(options), 1, 0.5)
    return f"; did you mean {close[0]}?" if close else ""
