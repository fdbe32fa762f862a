"""What measured pairs prove: the error of each what-if, and where it was tested.

Rows of the study in, the table of `foretrace.analysis.evidence.validated_errors` out; its
intervals are fitted in `benchmarks.accuracy.intervals`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.accuracy.intervals.observations import observe_pairs
from foretrace.analysis.error.prediction_interval import LEVEL
from foretrace.analysis.evidence.evidence import FEWEST_PAIRS
from foretrace.analysis.evidence.validated_errors import HARDWARE
from foretrace.transforms.edit.provenance import MEASURED, RULE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from benchmarks.accuracy.intervals.observations import Observation
    from foretrace.analysis.evidence.measured_pair import MeasuredPair
    from foretrace.analysis.evidence.validation_scope import Place

Table = dict[str, Any]


def error_table(pairs: Iterable[MeasuredPair], more: Iterable[Observation] = ()) -> Table:
    """Return what `validated.load_table` reads, from all conclusive pairs; *more* is evidence only.

    Held-out pairs count as evidence only, and pairs of several transforms nowhere. Of a pair that
    compares a part of the device time, the error is a share of the step where that is known, else
    of the part: of a step it is no larger. What cannot be foreseen has its own error, and is
    evidence of nothing.
    """
    every = list(pairs)
    conclusive = [pair for pair in every if pair.is_conclusive]
    judged = [pair for pair in conclusive if pair.is_foreseen and not pair.held_out]
    table: Table = {"gpu": {}, "cpu": {}}
    for (hardware, source), rows in _by_source([p for p in conclusive if not p.held_out]):
        names = sorted({row.transforms[0] for row in rows if len(row.transforms) == 1})
        by_name = {name: [r for r in rows if r.transforms == (name,)] for name in names}
        errors = {n: _errors(rows) for n, rows in by_name.items() if len(rows) >= FEWEST_PAIRS}
        if errors:
            table[hardware][source] = errors
    missed = [abs(math.log1p(r.rule_error) / math.log1p(r.null_error)) for r in judged if r.is_big]
    table["unvalidated"] = {"missed": _quantile(missed)} if missed else {}
    table["evidence"] = _evidence([*observe_pairs(every), *more])
    return table


def _evidence(observations: Iterable[Observation]) -> Table:
    """Return what-if → where it was tested alone, and how many of the truths are untuned.

    Held-out ones are the best of them.
    """
    counts: dict[str, dict[tuple[Place, str], list[int]]] = {}
    for each in observations:
        if len(each.what_ifs) == 1 and each.place is not None:
            at = counts.setdefault(each.what_ifs[0], {})
            at.setdefault((each.place, each.way), [0, 0])[each.tuned] += 1
    return {
        name: [
            {**place._asdict(), "source": source, "untuned": untuned, "tuned": tuned}
            for (place, source), (untuned, tuned) in sorted(at.items())
        ]
        for name, at in sorted(counts.items())
    }


def _by_source(
    pairs: Sequence[MeasuredPair],
) -> Iterator[tuple[tuple[str, str], list[MeasuredPair]]]:
    """Yield (hardware, source) and rows that all carry that source's prediction as their best."""
    for hardware in HARDWARE:
        rows = [row for row in pairs if row.hardware == hardware]
        yield (hardware, MEASURED), [row for row in rows if row.source == MEASURED]
        yield (hardware, RULE), [replace(row, calibrated_ns=None) for row in rows]


def _errors(rows: Sequence[MeasuredPair]) -> dict[str, Any]:
    misses = [row.miss for row in rows]
    where = sorted({row.where for row in rows if row.where})
    return {
        "pairs": len(rows),
        "median": round(float(np.median(misses)), 4),
        "p90": _quantile(misses),
        **({"where": where} if where else {}),
    }


def _quantile(misses: Sequence[float]) -> float:
    """Return what 9 of 10 *further* values stay below, in so far as this many can tell.

    Of n values the k-th smallest holds the next one with probability k / (n + 1).

    >>> _quantile([0.01] * 18 + [0.2, 0.3]), _quantile([0.1, 0.2])
    (0.181, 0.2)
    """
    return round(float(np.quantile(misses, LEVEL, method="weibull")), 4)
