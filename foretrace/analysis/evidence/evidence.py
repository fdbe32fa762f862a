"""What-ifs and the place of an answer in, its status and the pairs behind it out.

Every output that says how sure an answer is asks here. Pairs that a rule or a constant was tuned
on validate nothing; others do, where they were measured at the same kind of place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from foretrace.analysis.evidence.validation_scope import STEP, Place
from foretrace.transforms.edit.provenance import RULE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

VALIDATED, ELSEWHERE, UNVALIDATED = "validated", "tested elsewhere", "unvalidated"
STATUSES = (VALIDATED, ELSEWHERE, UNVALIDATED)
"""Best first: an answer has the worst of its what-ifs."""
FEWEST_PAIRS = 2
"""Fewer conclusive pairs than this validate nothing."""

GIVEN = ("faster_kernels", "faster_host", "faster_modules", "replace_kernel")
"""What-ifs whose new costs the user states: no rule is behind them that could miss the change."""


class PairsAt(NamedTuple):
    """How many conclusive pairs tested a what-if at one place: not tuned on, and tuned on."""

    place: Place
    source: str
    untuned: int
    tuned: int

    @property
    def pairs(self) -> int:
        """All of them."""
        return self.untuned + self.tuned

    def __str__(self) -> str:
        """Return it as outputs name it.

        >>> str(PairsAt(Place("gpu", "NVIDIA Ampere"), "rule", 0, 2))
        '2 pairs, NVIDIA Ampere, tuned on'
        """
        tuned = "tuned on" if not self.untuned else "not tuned on"
        if self.untuned and self.tuned:
            tuned = f"{self.tuned} of them tuned on"
        return f"{self.pairs} pair{'s' * (self.pairs != 1)}, {self.place}, {tuned}"


@dataclass(frozen=True)
class Evidence:
    """The status of an answer; ``untested`` names the what-ifs that nothing validates there.

    ``lines`` has one for each what-if: the pairs that tell of it, else those elsewhere.
    """

    status: str
    untested: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()


def judge(changes: Iterable[tuple[str, str]], place: Place, table: Mapping[str, Any]) -> Evidence:
    """Judge what-ifs with their cost sources, asked at *place*, by the evidence of *table*.

    Examples
    --------
    >>> row = {"on": "cpu", "hardware": "AMD CPU", "source": "rule", "untuned": 4, "tuned": 0}
    >>> table = {"evidence": {"amp": [row]}}
    >>> judge([("amp", "rule")], Place("cpu", "AMD CPU"), table).status
    'validated'
    >>> judge([("amp", "rule")], Place("cpu", "Intel CPU"), table)
    ... # doctest: +NORMALIZE_WHITESPACE
    Evidence(status='tested elsewhere', untested=('amp',),
             lines=('amp: elsewhere 4 pairs, AMD CPU, not tuned on',))
    """
    asked = list(dict.fromkeys(changes))
    each = [_judge_one(name, list_tested(name, source, table), place) for name, source in asked]
    untested = [name for (name, _), (s, _) in zip(asked, each, strict=True) if s != VALIDATED]
    lines = [
        f"{name}: {'your own figure, ' * (name in GIVEN)}{line}"
        for (name, _), (_, line) in zip(asked, each, strict=True)
    ]
    return Evidence(
        worst_of(status for status, _ in each),
        tuple(dict.fromkeys(untested)),
        tuple(dict.fromkeys(lines)),
    )


def worst_of(statuses: Iterable[str]) -> str:
    """Return the status that several answers have together.

    >>> worst_of(["validated", "unvalidated", "tested elsewhere"])
    'unvalidated'
    """
    return max(statuses, key=STATUSES.index, default=VALIDATED)


def list_tested(what_if: str, source: str, table: Mapping[str, Any]) -> list[PairsAt]:
    """Return where pairs tested *what_if* by costs of *source*; by a rule where nothing was timed.

    ``""`` as the source asks for all of them.
    """
    found = [_read(row) for row in table.get("evidence", {}).get(what_if, ())]
    if not source:
        return found
    return [each for each in found if each.source == source] or [
        each for each in found if each.source == RULE
    ]


def best_status(tested: Sequence[PairsAt], what_if: str, on: str) -> str:
    """Return the best status that an answer to *what_if* on "gpu" or "cpu" can have.

    It is what `judge` says of the places where pairs tested it.
    """
    there = [each for each in tested if each.place.on == on]
    found = (_judge_one(what_if, there, each.place._replace(measure=STEP))[0] for each in there)
    return min(found, key=STATUSES.index, default=UNVALIDATED)


def _read(row: Mapping[str, Any]) -> PairsAt:
    place = Place(**{field: row[field] for field in Place._fields if field in row})
    return PairsAt(place, row["source"], row["untuned"], row["tuned"])


def _judge_one(what_if: str, tested: Sequence[PairsAt], place: Place) -> tuple[str, str]:
    """Return the status of one what-if, and the pairs that it rests on, those here first.

    Elsewhere counts what was measured of whole steps, on GPUs for GPUs and on CPUs for CPUs: they
    have rules of their own.
    """
    here = [each for each in tested if each.place.tells_of(place, what_if)]
    others = [each for each in tested if each not in here and each.place.on == place.on]
    line = "; ".join(
        f"{where}{name_pairs(of)}" for where, of in (("", here), ("elsewhere ", others)) if of
    )
    if _count_untuned(here) >= FEWEST_PAIRS:
        return VALIDATED, name_pairs(here)
    steps = [each for each in others if each.place.measure == STEP]
    status = ELSEWHERE if _count_untuned([*here, *steps]) >= FEWEST_PAIRS else UNVALIDATED
    return status, line or "no pair"


def _count_untuned(tested: Iterable[PairsAt]) -> int:
    return sum(each.untuned for each in tested)


def name_pairs(tested: Sequence[PairsAt]) -> str:
    """Return the place with most pairs in words, and how many other places there are."""
    first, *others = sorted(tested, key=lambda each: (-each.untuned, -each.tuned))
    more = sum(each.pairs for each in others)
    if not more:
        return str(first)
    return f"{first}; and {more} at {len(others)} other place{'s' * (len(others) != 1)}"
