"""The list of what-ifs as a user reads it, and one of them in full."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foretrace.analysis.validated_errors import count_pairs, list_settings
from foretrace.transforms.registry import TRANSFORMS
from foretrace.transforms.scenario import find_transform
from foretrace.transforms.signatures import describe_what_if

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Entry:
    """One what-if.

    ``parameters`` are as in ``speedup: float, pattern: str = '.*'``, ``effect`` is one sentence,
    ``description`` the whole docstring. ``pairs`` counts the measured pairs that tested it:
    hardware → cost source → number; without any it is unvalidated. ``where`` are the settings of
    several workers in which they did, where that matters.
    """

    name: str
    parameters: str
    effect: str
    description: str
    pairs: dict[str, dict[str, int]]
    where: tuple[str, ...]

    def status(self, hardware: str) -> str:
        """Return ``"validated"`` or ``"unvalidated"`` on ``"gpu"`` or ``"cpu"``."""
        return "validated" if self.pairs.get(hardware) else "unvalidated"


@dataclass(frozen=True)
class Catalog:
    """Every what-if, in the order of the list."""

    entries: tuple[Entry, ...]


def list_what_ifs() -> Catalog:
    """List the what-ifs there are.

    >>> list_what_ifs().entries[1].parameters
    'speedup: float'
    """
    return Catalog(tuple(_make_entry(name, function) for name, function in TRANSFORMS.items()))


def find_entry(name: str) -> Entry:
    """Return the what-if *name*, also a user's own as ``file.py:function``.

    Raises
    ------
    TransformError
        There is none of that name.
    """
    return _make_entry(name, find_transform(name))


def _make_entry(name: str, function: Callable[..., object]) -> Entry:
    signature = describe_what_if(name, function)
    parameters = ", ".join(
        f"{p['name']}: {p['type']}" + ("" if p["required"] else f" = {p['default']!r}")
        for p in signature["parameters"]
    )
    return Entry(
        name=name,
        parameters=parameters,
        effect=signature["effect"],
        description=inspect.getdoc(function) or "",
        pairs=count_pairs(name),
        where=list_settings(name),
    )
