"""The list of what-ifs as a user reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from foretrace.transforms import describe
from foretrace.validated import status


@dataclass(frozen=True)
class Catalogue:
    """Every transform: name → (parameters with defaults, effect in one sentence).

    ``pairs`` counts the measured pairs that tested it: name → hardware → cost source → number;
    a transform without any is unvalidated.
    """

    transforms: dict[str, tuple[str, str]]
    pairs: dict[str, dict[str, dict[str, int]]]

    def status(self, name: str, hardware: str) -> str:
        """Return ``"validated"`` or ``"unvalidated"`` for a transform on ``"gpu"`` or ``"cpu"``."""
        return "validated" if self.pairs[name].get(hardware) else "unvalidated"


def catalogue() -> Catalogue:
    """List the transforms there are.

    >>> catalogue().transforms["faster_host"][0]
    'speedup: float'
    """
    transforms = {each["name"]: (_signature(each), each["effect"]) for each in describe()}
    return Catalogue(transforms, {name: status(name) for name in transforms})


def _signature(described: dict[str, Any]) -> str:
    """Return parameters as in ``speedup: float, pattern: str = '.*'``."""
    return ", ".join(
        f"{p['name']}: {p['type']}" + ("" if p["required"] else f" = {p['default']!r}")
        for p in described["parameters"]
    )
