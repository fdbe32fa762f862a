"""Measured pairs and the table of the truth set in, one list of `Observation` out.

That is what intervals are fitted on and judged by, wherever a number comes from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from benchmarks.truth.score import NOISY
from benchmarks.truth.ways import WAYS
from foretrace.analysis.error.difficulty import BY_RULE, TIMED, Difficulty, describe_difficulty
from foretrace.analysis.error.prediction_interval import step_interval
from foretrace.analysis.evidence.validation_scope import STEP, Place
from foretrace.transforms.edit.provenance import MEASURED, RULE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from foretrace.analysis.evidence.measured_pair import MeasuredPair

INTERLEAVED, PLAIN = "interleaved in one process", "plain processes"
"""How the truth was measured: beside the recorder's own steps, or as a user runs the job."""


@dataclass(frozen=True)
class Observation:
    """One prediction beside the truth.

    ``off`` is the signed relative error of what was compared, as ``measure`` names it ("step",
    "optimizer" or "kernels"). ``error`` is ln(true / predicted) of a step, ``known`` what its
    interval holds anyway on that side, as |ln|: the recorded steps vary, the unchanged replay
    misses. ``way`` is "measured" where operators of the job were timed, else "rule". An
    architecture that is ``tuned`` was known to whoever chose rules and constants; one that is
    ``held_out`` is never fitted on. ``place`` is what the truth tells of.
    """

    architecture: str
    what_ifs: tuple[str, ...]
    on: str
    way: str
    off: float
    error: float
    known: float
    difficulty: Difficulty
    measure: str = STEP
    tuned: bool = False
    held_out: bool = False
    source: str = INTERLEAVED
    place: Place | None = None

    @property
    def excess(self) -> float:
        """What the interval has to hold beyond what is known, as |ln|."""
        return math.sqrt(max(self.error**2 - self.known**2, 0.0))


def observe_pairs(pairs: Iterable[MeasuredPair]) -> Iterator[Observation]:
    """Yield both predictions of every pair that judges predictions."""
    for pair in pairs:
        if not (pair.is_conclusive and pair.is_foreseen):
            continue
        yield _observe(replace(pair, calibrated_ns=None))
        if pair.calibrated_ns is not None:
            yield _observe(pair)


def _observe(pair: MeasuredPair) -> Observation:
    """Return the best prediction of *pair*; of a part of a step, what its error is of the step."""
    whole_ns = pair.step_ns or pair.predicted_ns
    error = math.log1p((pair.after_ns - pair.predicted_ns) / whole_ns)
    return Observation(
        architecture=pair.model,
        what_ifs=pair.transforms,
        on=pair.hardware,
        way=pair.source,
        off=pair.error,
        error=error,
        known=_known(error, pair.step_interval, pair.replay_error),
        difficulty=pair.difficulty,
        measure=pair.measure,
        tuned=pair.tuned_on,
        held_out=pair.held_out,
        place=pair.tested_at,
    )


def _known(error: float, varied: tuple[float, float], replay_error: float) -> float:
    low, high = varied
    return math.hypot(math.log(high if error > 0 else low), math.log1p(replay_error))


def read_truth(table: Path) -> list[Observation]:
    """Return every prediction of the truth set in *table*; none where it was not measured yet.

    Rows whose own rounds leave too much open, and held-out ones that nobody looked at, are left out
    as in `benchmarks.truth.score`.
    """
    if not table.is_file():
        return []
    rows = pd.read_parquet(table)
    quiet = rows[(rows["problem"] == "") & (rows["noise"] <= NOISY)]
    return [
        observed
        for row in quiet.to_dict("records")
        for way in WAYS
        if (observed := _observe_row(row, way)) is not None
    ]


def _observe_row(row: dict[str, Any], way: str) -> Observation | None:
    """Return what was predicted in one *way*; ``None`` where nothing was, or it says no more."""
    predicted_ns = row.get(f"{way}_ns")
    is_timed = way != WAYS[0]
    if predicted_ns is None or pd.isna(predicted_ns) or (is_timed and not row[f"{way}_is_timed"]):
        return None
    error = math.log(row["after_ns"] / predicted_ns)
    shares = {name: row.get(f"{way}_share_{name}") for name in (*BY_RULE, *TIMED)}
    costs = {name: float(share) for name, share in shares.items() if share and not pd.isna(share)}
    ratio, python = 1 + row[f"{way}_change_share"], row[f"{way}_share_python"]
    varied = step_interval(tuple(row["recorded_steps_ns"]))
    return Observation(
        architecture=row["architecture"],
        what_ifs=tuple(row["change"].split("+")),
        on="cpu",
        way=MEASURED if is_timed else RULE,
        off=predicted_ns / row["after_ns"] - 1,
        error=error,
        known=_known(error, varied, row[f"{way}_replay_error"]),
        difficulty=describe_difficulty(costs, ratio, python),
        tuned=not row["held_out"],
        held_out=bool(row["held_out"]),
        source=PLAIN,
        place=Place("cpu", row["hardware"]),
    )
