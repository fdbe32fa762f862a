"""The error that real before/after pairs showed for each transform, as the study last found it.

`validated.toml` is written by ``python -m benchmarks.accuracy`` and never by hand. It tells apart
what was predicted from operators timed on the machine ("measured") and what by a rule ("rule").
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from foretrace.analysis.evidence import GIVEN, Evidence, judge
from foretrace.analysis.parts import MADE_OF
from foretrace.analysis.validation_scope import Place, is_within
from foretrace.transforms.edit.provenance import MEASURED, RULE, applied
from foretrace.transforms.scenario import CUSTOM, is_built_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from foretrace.graph.model import Graph
    from foretrace.transforms.scenario import Scenario

TABLE = "validated.toml"
HARDWARE = ("gpu", "cpu")
ENOUGH_PAIRS = 4
"""Fewer than this cannot tell how far off a what-if gets: what all the others show counts too."""


@dataclass(frozen=True)
class ValidatedError:
    """The relative error to expect of a scenario.

    ``share`` is what pairs showed, ``evidence`` says which and whether they tell of this place, and
    ``missed`` is the share of the *change* that a rule may get wrong where none does.
    """

    share: float
    evidence: Evidence
    missed: float = 0.0

    @property
    def missing(self) -> tuple[str, ...]:
        """The what-ifs that no pair has validated at this place."""
        return self.evidence.untested

    def of(self, ratio: float) -> float:
        """Return the error, as a share of the step, of a step predicted to change to *ratio*.

        >>> tested, new = Evidence("validated"), Evidence("unvalidated", ("new",))
        >>> ValidatedError(0.03, tested).of(0.5), round(ValidatedError(0.0, new, 0.5).of(0.5), 2)
        (0.03, 0.35)
        """
        return math.hypot(self.share, self.missed * abs(math.log(ratio)))


def list_cost_sources(scenario: Scenario, changed: Graph) -> list[tuple[str, str]]:
    """Return each what-if of *scenario* with where its costs in *changed* come from.

    A function of the user's own has no name here that evidence could be found under.
    """
    what_ifs = [each.name if is_built_in(each) else CUSTOM for each in scenario]
    applied_last = applied(changed)[-len(what_ifs) :] if what_ifs else ()
    sources = [MEASURED if each.source == MEASURED else RULE for each in applied_last]
    return list(zip(what_ifs, sources or [RULE] * len(what_ifs), strict=True))


def validated_error(changes: Iterable[tuple[str, str]], place: Place) -> ValidatedError:
    """Return the error of *changes* together at *place*, each a transform and its cost source.

    Sources are ``"measured"`` and ``"rule"``; independent errors add in quadrature.
    """
    return combine(changes, load_table(), place)


def combine(
    changes: Iterable[tuple[str, str]], table: Mapping[str, Any], place: Place
) -> ValidatedError:
    """Combine the errors that *table* knows for the hardware of *place*.

    A transform with few pairs, or none at such a place, takes the error that all pairs show, where
    larger: what was not tested is never surer than what was.

    >>> row = {"pairs": 9, "median": 0.01}
    >>> table = {"cpu": {"rule": {"amp": {**row, "p90": 0.03}, "batch_size": {**row, "p90": 0.04}}}}
    >>> combine([("amp", "rule"), ("batch_size", "rule")], table, Place("cpu", "any")).share
    0.05
    >>> combine([("magic", "rule")], table, Place("cpu", "any")).missing
    ('magic',)
    """
    unique = list(dict.fromkeys(changes))
    evidence = judge(unique, place, table)
    shares = [
        _share(change, table, place, is_tested=change[0] not in evidence.untested)
        for change in unique
    ]
    is_guessed = any(name not in GIVEN for name in evidence.untested)
    missed = table.get("unvalidated", {}).get("missed", 0.0) if is_guessed else 0.0
    return ValidatedError(math.hypot(*shares), evidence, missed)


def find_row(
    name: str, source: str, rows: Mapping[str, Any], where: str
) -> Mapping[str, Any] | None:
    """Return what *rows* know of a transform; what a rule showed holds where nothing was timed.

    Pairs that say where they ran tell of the setting *where* only if one of them ran there.
    """
    row = rows.get(source, {}).get(name) or rows.get("rule", {}).get(name)
    return row if row and is_within(where, row.get("where", [where])) else None


def _share(
    change: tuple[str, str], table: Mapping[str, Any], place: Place, *, is_tested: bool
) -> float:
    """Return the error of one what-if as a share of a step, and of what it is made of."""
    name, source = change
    if name in GIVEN:
        return 0.0 if not is_tested else _own_share(name, source, table, place)
    own = [_own_share(each, source, table, place) for each in (name, *MADE_OF.get(name, ()))]
    return max(*own, 0.0 if is_tested else _pooled(table, place.on, source))


def _own_share(name: str, source: str, table: Mapping[str, Any], place: Place) -> float:
    row = find_row(name, source, table.get(place.on, {}), place.workers)
    if row is None:
        return 0.0
    few = row["pairs"] < ENOUGH_PAIRS
    return max(float(row["p90"]), _pooled(table, place.on, source) if few else 0.0)


def _pooled(table: Mapping[str, Any], on: str, source: str) -> float:
    """Return the error that all pairs of such hardware show; of a rule where nothing was timed."""
    pooled = table.get("pooled", {}).get(on, {})
    return float(pooled.get(source, pooled.get("rule", 0.0)))


@cache
def load_table() -> dict[str, Any]:
    """Read the table: hardware → source → transform → ``p90``, ``median``, ``pairs``.

    Beside ``gpu`` and ``cpu`` there are ``pooled`` (hardware → source → error of all pairs),
    ``unvalidated`` (``missed``: the share of a change that rules got wrong) and ``evidence``
    (transform → how many pairs tested it at which place).
    """
    file = files("foretrace.analysis").joinpath(TABLE)
    table = tomllib.loads(file.read_text("utf-8")) if file.is_file() else {}
    return {name: table.get(name, {}) for name in (*HARDWARE, "pooled", "unvalidated", "evidence")}
