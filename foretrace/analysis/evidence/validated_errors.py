"""What measured pairs tell of a scenario at a place: was it tested, and how far off does it get.

`validated.toml` is written by ``python -m benchmarks.accuracy`` and never by hand. Its errors of
each what-if tell apart what was predicted from operators timed on the machine ("measured") and
what by a rule ("rule"); how wide an interval is, is told by its scales.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from foretrace.analysis.error.error_scale import ErrorScale, read_scale
from foretrace.analysis.evidence.evidence import GIVEN, Evidence, judge
from foretrace.analysis.evidence.validation_scope import Place, is_within
from foretrace.transforms.edit.provenance import MEASURED, RULE, applied
from foretrace.transforms.scenario import CUSTOM, is_built_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from foretrace.analysis.error.difficulty import Difficulty
    from foretrace.graph.model import Graph
    from foretrace.transforms.scenario import Scenario

TABLE = "validated.toml"
HARDWARE = ("gpu", "cpu")
REPLAYED = 0.02
"""Share by which a replay may be off after a change whose costs the user stated: unchanged, 32 of
34 public recordings are replayed within it, and of programs of known truth 9 in 10 after a change.
"""


@dataclass(frozen=True)
class ValidatedError:
    """The error to expect of a scenario at a place.

    ``evidence`` says which pairs tested it and whether they tell of this place, ``scale`` how far
    off answers on such hardware get, and ``missed`` is the share of the *change* that a rule may
    get wrong where no pair tested it.
    """

    what_ifs: tuple[str, ...]
    evidence: Evidence
    scale: ErrorScale
    missed: float = 0.0

    @property
    def missing(self) -> tuple[str, ...]:
        """The what-ifs that no pair has validated at this place."""
        return self.evidence.untested

    @property
    def guessed(self) -> tuple[str, ...]:
        """Those of them whose costs are not the user's own figures."""
        return tuple(name for name in self.missing if name not in GIVEN)

    def of(self, difficulty: Difficulty) -> float:
        """Return half the width of the interval, as |ln(true / predicted)|; none of no change.

        Where all costs are the user's own figures, no rule could be wrong. What was not tested is
        never surer than what was, and may miss a share of its change.

        >>> from foretrace.analysis.error.difficulty import Difficulty
        >>> scale = ErrorScale(base=0.01, quantile=3.0, untested=0.12)
        >>> tested, new = Evidence("validated"), Evidence("unvalidated", ("new",))
        >>> ValidatedError(("amp",), tested, scale).of(Difficulty(change=0.7))
        0.03
        >>> round(ValidatedError(("new",), new, scale, 0.5).of(Difficulty(change=0.7)), 2)
        0.37
        """
        if set(self.what_ifs) <= set(GIVEN):
            return REPLAYED if self.what_ifs else 0.0
        half = self.scale.half_width(difficulty, self.what_ifs, self.guessed)
        return math.hypot(half, self.missed * difficulty.change)


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

    Sources are ``"measured"`` and ``"rule"``.
    """
    return look_up(changes, load_table(), place)


def look_up(
    changes: Iterable[tuple[str, str]], table: Mapping[str, Any], place: Place
) -> ValidatedError:
    """Return what *table* knows of *changes* at *place*.

    >>> table = {"interval": {"cpu": {"base": 0.01, "quantile": 3.0, "untested": 0.1}}}
    >>> found = look_up([("magic", "rule")], table, Place("cpu", "any"))
    >>> found.missing, found.scale.untested
    (('magic',), 0.1)
    """
    asked = list(dict.fromkeys(changes))
    what_ifs = tuple(dict.fromkeys(name for name, _ in asked))
    scale = read_scale(table.get("interval", {}).get(place.on, {}))
    error = ValidatedError(what_ifs, judge(asked, place, table), scale)
    missed = table.get("unvalidated", {}).get("missed", 0.0)
    return replace(error, missed=missed) if error.guessed else error


def find_row(
    name: str, source: str, rows: Mapping[str, Any], where: str
) -> Mapping[str, Any] | None:
    """Return what *rows* know of a transform; what a rule showed holds where nothing was timed.

    Pairs that say where they ran tell of the setting *where* only if one of them ran there.
    """
    row = rows.get(source, {}).get(name) or rows.get("rule", {}).get(name)
    return row if row and is_within(where, row.get("where", [where])) else None


@cache
def load_table() -> dict[str, Any]:
    """Read the table: hardware → source → transform → ``p90``, ``median``, ``pairs``.

    Beside ``gpu`` and ``cpu`` there are ``interval`` (hardware → what `read_scale` reads),
    ``unvalidated`` (``missed``: the share of a change that rules got wrong) and ``evidence``
    (transform → how many pairs tested it at which place).
    """
    file = files("foretrace.analysis.evidence").joinpath(TABLE)
    table = tomllib.loads(file.read_text("utf-8")) if file.is_file() else {}
    return {
        name: table.get(name, {}) for name in (*HARDWARE, "interval", "unvalidated", "evidence")
    }
