"""The list of what-ifs as a user reads it, and one of them in full."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foretrace.analysis.evidence.evidence import best_status, list_tested
from foretrace.analysis.evidence.validated_errors import load_table
from foretrace.transforms.registry import TRANSFORMS
from foretrace.transforms.scenario import find_transform
from foretrace.transforms.signatures import describe_what_if

if TYPE_CHECKING:
    from collections.abc import Callable

    from foretrace.analysis.evidence.evidence import PairsAt


@dataclass(frozen=True)
class Entry:
    """One what-if.

    ``parameters`` are as in ``speedup: float, pattern: str = '.*'``, ``effect`` is one sentence,
    ``description`` the whole docstring. ``tested`` says at which places how many measured pairs
    tested it; without any it is unvalidated.
    """

    name: str
    parameters: str
    effect: str
    description: str
    tested: tuple[PairsAt, ...]

    def status(self, hardware: str) -> str:
        """Return the best status that an answer on ``"gpu"`` or ``"cpu"`` can have."""
        return best_status(self.tested, self.name, hardware)


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
        tested=tuple(list_tested(name, "", load_table())),
    )
