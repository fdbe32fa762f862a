"""Measured pairs in, the sentences at the head of the accuracy page out: one for each kind.

A kind is where it ran, who recorded it, and whether rules or constants were tuned on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.accuracy.markdown import spread

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from foretrace.analysis.evidence.measured_pair import MeasuredPair

TUNED = (
    '- "Tuned on": a rule or a constant was chosen while watching the pair, or an earlier '
    "recording of its model; such a pair proves nothing."
)
ON = {"cpu": "CPU", "gpu": "GPU"}
WHAT = {
    "step": "whole steps",
    "optimizer": "optimizer phases",
    "kernels": "kernel times on another device",
}


def in_short(pairs: Sequence[MeasuredPair], looks: int, drawn: Sequence[str] = ()) -> list[str]:
    """Return the section: a sentence for each kind; held-out models were looked at *looks* times.

    What counts is what no rule was tuned on. Lines about *drawn* jobs come first.
    """
    found = [pair for pair in pairs if pair.is_conclusive and pair.is_foreseen]
    return [
        "## In short",
        "",
        *drawn,
        *(f"- {_sentence(kind, rows)}" for kind, rows in _kinds(found, looks) if rows),
        TUNED,
        "",
    ]


def _kinds(pairs: Sequence[MeasuredPair], looks: int) -> Iterator[tuple[str, list[MeasuredPair]]]:
    """Yield every kind of pair in words, and its pairs."""
    for on, name in ON.items():
        here = [pair for pair in pairs if pair.hardware == on]
        for measure, what in WHAT.items():
            rows = [pair for pair in here if pair.measure == measure]
            title = f"{name}, {what}"
            untuned = [row for row in rows if not row.tuned_on and not row.held_out]
            yield f"{title}, not tuned on", untuned
            held_out = f"{title}, held-out models (looked at in {looks} campaigns)"
            yield held_out, [row for row in rows if row.held_out]
            yield f"{title}, tuned on", [row for row in rows if row.tuned_on]


def _sentence(kind: str, rows: Sequence[MeasuredPair]) -> str:
    by_rule = [row.rule_error for row in rows]
    text = f"{kind}: median |error| over {_count(rows)} {_spread(by_rule)} by rules"
    timed = [row for row in rows if row.calibrated_ns is not None]
    if timed:
        text += f"; {_compare(timed)}"
    text += f"; no change {_spread([row.null_error for row in rows])}"
    return f"{text}; right sign in {sum(map(has_right_sign, rows))}."


def _compare(timed: Sequence[MeasuredPair]) -> str:
    """Say what calibration makes of the pairs that have one, whether that is better or not."""
    before, after = ([row.rule_error for row in timed], [row.error for row in timed])
    medians = [float(np.median(np.abs(errors))) for errors in (before, after)]
    verdict = "better" if medians[1] < medians[0] else "no better"
    return (
        f"of {len(timed)} with a calibration {_spread(after)}, {verdict} than their "
        f"{_spread(before)} by rules"
    )


def _count(rows: Sequence[MeasuredPair]) -> str:
    return f"{len(rows)} pair{'s' * (len(rows) != 1)}"


def _spread(errors: Sequence[float]) -> str:
    """Return median and 90th percentile of the absolute *errors*.

    >>> _spread([0.01, -0.03])
    '2.0% (9 of 10 within 2.8%)'
    """
    median, p90, _ = spread(errors) or (0.0, 0.0, 0.0)
    return f"{median:.1%} (9 of 10 within {p90:.1%})"


def has_right_sign(row: MeasuredPair) -> bool:
    """Whether the prediction goes the way the measurement went, where that exceeds the noise."""
    noise = max(abs(row.noise or 0.0), 0.01)
    real = row.after_ns / row.before_ns - 1
    return abs(real) <= noise or real * (row.predicted_ns / row.before_ns - 1) > 0
