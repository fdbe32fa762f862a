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

from foretrace.analysis.validation_scope import is_within
from foretrace.transforms.edit.provenance import MEASURED, RULE, applied
from foretrace.transforms.scenario import CUSTOM, is_built_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from foretrace.graph.model import Graph
    from foretrace.transforms.scenario import Scenario

TABLE = "validated.toml"
HARDWARE = ("gpu", "cpu")
FEWEST_PAIRS = 2
"""Fewer conclusive pairs than this validate nothing."""
GIVEN = ("faster_kernels", "faster_host", "faster_modules", "replace_kernel", "remove_modules")
"""What-ifs whose new costs the user states: no rule is behind them that could miss the change."""
ENOUGH_PAIRS = 4
"""Fewer than this cannot tell how far off a what-if gets: what all the others show counts too."""


@dataclass(frozen=True)
class ValidatedError:
    """The relative error to expect of a scenario.

    ``share`` is that of its validated transforms, ``missing`` names those that no pair has tested,
    and ``missed`` is the share of the *change* that the rule of such a transform may get wrong.
    """

    share: float
    missing: tuple[str, ...]
    missed: float = 0.0

    @property
    def is_validated(self) -> bool:
        """Whether every transform has been compared with measurements."""
        return not self.missing

    def of(self, ratio: float) -> float:
        """Return the error, as a share of the step, of a step predicted to change to *ratio*.

        >>> ValidatedError(0.03, ()).of(0.5), round(ValidatedError(0.0, ("new",), 0.5).of(0.5), 2)
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


def validated_error(
    changes: Iterable[tuple[str, str]], *, on_device: bool, where: str
) -> ValidatedError:
    """Return the error of *changes* together, each a transform and its cost source.

    Sources are ``"measured"`` and ``"rule"``; independent errors add in quadrature.
    """
    return combine(changes, load_table(), "gpu" if on_device else "cpu", where)


def combine(
    changes: Iterable[tuple[str, str]], table: Mapping[str, Any], hardware: str, where: str = ""
) -> ValidatedError:
    """Combine the errors that *table* knows for *hardware*.

    A transform with few pairs takes the error that all pairs of its source show, where larger.

    >>> row = {"pairs": 9, "median": 0.01}
    >>> table = {"cpu": {"rule": {"amp": {**row, "p90": 0.03}, "batch_size": {**row, "p90": 0.04}}}}
    >>> combine([("amp", "rule"), ("batch_size", "rule")], table, "cpu").share
    0.05
    >>> combine([("amp", "rule"), ("magic", "rule")], table, "cpu").missing
    ('magic',)
    """
    unique = list(dict.fromkeys(changes))
    rows = {change: find_row(*change, table.get(hardware, {}), where) for change in unique}
    shares = [_share(row, table, hardware, source) for (_, source), row in rows.items() if row]
    missing = tuple(dict.fromkeys(name for (name, _), row in rows.items() if not row))
    is_guessed = any(name not in GIVEN for name in missing)
    missed = table.get("unvalidated", {}).get("missed", 0.0) if is_guessed else 0.0
    return ValidatedError(math.hypot(*shares), missing, missed)


def find_row(
    name: str, source: str, rows: Mapping[str, Any], where: str
) -> Mapping[str, Any] | None:
    """Return what *rows* know of a transform; what a rule showed holds where nothing was timed.

    Pairs that say where they ran tell of the setting *where* only if one of them ran there.
    """
    row = rows.get(source, {}).get(name) or rows.get("rule", {}).get(name)
    return row if row and is_within(where, row.get("where", [where])) else None


def _share(row: Mapping[str, Any], table: Mapping[str, Any], hardware: str, source: str) -> float:
    if row["pairs"] >= ENOUGH_PAIRS:
        return float(row["p90"])
    pooled = table.get("pooled", {}).get(hardware, {}).get(source, 0.0)
    return max(float(row["p90"]), float(pooled))


def count_pairs(transform: str) -> dict[str, dict[str, int]]:
    """Return hardware → cost source → number of pairs that tested *transform*; empty without any.

    >>> count_pairs("a what-if that nobody tested")
    {}
    """
    table = load_table()
    pairs = {
        hardware: {s: t[transform]["pairs"] for s, t in table[hardware].items() if transform in t}
        for hardware in HARDWARE
    }
    return {hardware: sources for hardware, sources in pairs.items() if sources}


def list_settings(transform: str) -> tuple[str, ...]:
    """Return the settings of several workers that pairs tested *transform* in, if they name any."""
    table = load_table()
    rows = [t.get(transform, {}) for name in HARDWARE for t in table[name].values()]
    return tuple(dict.fromkeys(where for row in rows for where in row.get("where", ())))


@cache
def load_table() -> dict[str, Any]:
    """Read the table: hardware → source → transform → ``p90``, ``median``, ``pairs``.

    Beside ``gpu`` and ``cpu`` there are ``pooled`` (hardware → source → error of all pairs) and
    ``unvalidated`` (``missed``: the share of a change that rules got wrong).
    """
    file = files("foretrace.analysis").joinpath(TABLE)
    table = tomllib.loads(file.read_text("utf-8")) if file.is_file() else {}
    return {name: table.get(name, {}) for name in (*HARDWARE, "pooled", "unvalidated")}
