"""The list of what-ifs as a user reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from foretrace.transforms import describe


@dataclass(frozen=True)
class Catalogue:
    """Every transform: name → (parameters with defaults, effect in one sentence)."""

    transforms: dict[str, tuple[str, str]]


def catalogue() -> Catalogue:
    """List the transforms there are.

    >>> catalogue().transforms["faster_host"][0]
    'speedup: float'
    """
    return Catalogue({each["name"]: (_signature(each), each["effect"]) for each in describe()})


def _signature(described: dict[str, Any]) -> str:
    """Return parameters as in ``speedup: float, pattern: str = '.*'``."""
    return ", ".join(
        f"{p['name']}: {p['type']}" + ("" if p["required"] else f" = {p['default']!r}")
        for p in described["parameters"]
    )
