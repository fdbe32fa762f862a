"""The accuracy page: rows of the study in, Markdown out, what matters most first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.accuracy.error_table import coverage
from benchmarks.accuracy.markdown import spread_cell, spread_sentence
from benchmarks.accuracy.tables import (
    identity,
    other_devices,
    parts,
    public_pairs,
    recorded_pairs,
)
from foretrace.analysis.measured_pair import BIG_CHANGE, UNPREDICTED
from foretrace.analysis.prediction import LEVEL
from foretrace.analysis.validated_errors import ENOUGH_PAIRS, FEWEST_PAIRS, HARDWARE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.accuracy.error_table import Table
    from benchmarks.accuracy.rows import AccuracyStudy
    from foretrace.analysis.measured_pair import MeasuredPair

PICTURE = (
    "![Every judged pair, predicted against measured, and which share of the pairs has at most "
    "a given error: predictions, no change, the paper's constants](images/accuracy.svg)"
)
BIG = f'"no change" is off > {BIG_CHANGE:.0%}'


def page(study: AccuracyStudy, table: Table) -> str:
    """Return the accuracy page."""
    sections = [
        "# How far off it is",
        "",
        "`make accuracy` generates this page from the recordings that `traces/study.toml` lists.",
        "Times are milliseconds of one step; errors are signed percent of the measured value.",
        "",
        *_absent(study),
        *_in_short(study.pairs),
        PICTURE,
        "",
        *_by_what_if(study.pairs),
        *public_pairs(study),
        *other_devices(study.pairs),
        *_intervals(study.pairs),
        *_validated(table),
        *recorded_pairs(study.pairs),
        *parts(study.parts),
        *identity(study.identities),
    ]
    return "\n".join(sections).rstrip() + "\n"


def _absent(study: AccuracyStudy) -> list[str]:
    if not study.absent:
        return []
    count = len(study.absent)
    return [
        f"{count} of the listed recordings were not on the machine that made this page.",
        "The public set is not redistributed here.",
        "",
    ]


def judged(rows: Sequence[MeasuredPair]) -> list[MeasuredPair]:
    """Return the rows that judge predictions."""
    return [row for row in rows if row.is_conclusive and row.is_foreseen and row.is_of_one_device]


def _kinds(pairs: Sequence[MeasuredPair]) -> list[tuple[str, list[MeasuredPair]]]:
    """Return the judged pairs: recorded here, recorded here and held out, public."""
    own = [row for row in pairs if row.is_recorded_here]
    return [
        ("own", judged([row for row in own if not row.held_out])),
        ("held-out", judged([row for row in own if row.held_out])),
        ("public", judged([row for row in pairs if not row.is_recorded_here])),
    ]


def _in_short(pairs: Sequence[MeasuredPair]) -> list[str]:
    text = ["## In short", ""]
    for whose, judged in _kinds(pairs):
        big = [row for row in judged if row.is_big]
        for label, rows in ((f"where {BIG}", big), ("all", judged)):
            if rows:
                signs = f"right sign in {sum(map(_has_right_sign, rows))}"
                text.append(
                    f"- Median |error| over {len(rows)} {whose} pairs ({label}): "
                    f"{_headline(rows)}; {signs}."
                )
    public = _kinds(pairs)[2][1]
    if public:
        text.append(
            f"- Mean |error| over {len(public)} public pairs: "
            f"{np.mean([abs(row.error) for row in public]):.1%}; "
            f"no change {np.mean([abs(row.null_error) for row in public]):.1%}."
        )
    return [*text, "- Each also stands for itself below, beside two null models.", ""]


def _headline(rows: Sequence[MeasuredPair]) -> str:
    by_rule = [row.rule_error for row in rows]
    nulls: dict[str, Iterable[float | None]] = {
        "no change": [row.null_error for row in rows],
        "paper": [row.paper_error for row in rows],
    }
    if all(row.calibrated_ns is None for row in rows):
        return spread_sentence({"predicted": by_rule, **nulls})
    calibrated = [row.error for row in rows]
    return spread_sentence({"with calibration": calibrated, "without": by_rule, **nulls})


def _has_right_sign(row: MeasuredPair) -> bool:
    """Whether the prediction goes the way the measurement went, where that exceeds the noise."""
    noise = max(abs(row.noise or 0.0), 0.01)
    real = row.after_ns / row.before_ns - 1
    return abs(real) <= noise or real * (row.predicted_ns / row.before_ns - 1) > 0


def _by_what_if(pairs: Sequence[MeasuredPair]) -> list[str]:
    text = [
        "## By what-if",
        "",
        "|Error| in percent: median / 90th percentile / largest, over conclusive pairs.",
        'Errors "with calibration" are of costs that `foretrace calibrate` measured, where it can.',
        f"Pairs of {', '.join(UNPREDICTED)} count nowhere: generated code cannot be foreseen.",
        "",
    ]
    own, held_out, _public = _kinds(pairs)
    titles = {
        "own": "Pairs recorded by this project",
        "held-out": "Held-out models: recorded and predicted once, after the rules were fixed",
    }
    for whose, judged in (own, held_out):
        big = [row for row in judged if row.is_big]
        for label, rows in ((f"where {BIG}", big), ("all", judged)):
            if rows:
                text += [f"### {titles[whose]}, {label}", "", *_what_if_table(rows), ""]
    return text


def _what_if_table(rows: Sequence[MeasuredPair]) -> list[str]:
    kinds: dict[str, list[MeasuredPair]] = {}
    for row in rows:
        kinds.setdefault(" + ".join(row.transforms), []).append(row)
    lines = [(name, kinds[name]) for name in sorted(kinds)]
    return [
        "| what-if | pairs | with calibration | without | no change | paper |",
        "|---|--:|--:|--:|--:|--:|",
        *(_what_if_line(name, rows_of) for name, rows_of in [*lines, ("**all**", list(rows))]),
    ]


def _what_if_line(name: str, rows: Sequence[MeasuredPair]) -> str:
    cells = (
        spread_cell(row.error for row in rows),
        spread_cell(row.rule_error for row in rows),
        spread_cell(row.null_error for row in rows),
        spread_cell(row.paper_error for row in rows),
    )
    return f"| {name} | {len(rows)} | {' | '.join(cells)} |"


def _intervals(pairs: Sequence[MeasuredPair]) -> list[str]:
    judged = coverage([row for row in pairs if row.is_conclusive])
    if not judged:
        return []
    everything = coverage(pairs)
    count, inside = (sum(c.pairs for c in judged), sum(c.inside for c in judged))
    every, held = (sum(c.pairs for c in everything), sum(c.inside for c in everything))
    return [
        "## Intervals",
        "",
        f"An interval means to hold the truth in {LEVEL:.0%} of the cases.",
        "Here each was made without any pair of the model that it is judged on.",
        "The public loader pairs P1 to P3 are recordings of one job; each is judged by the others.",
        f"It held the measurement in {inside} of {count} ({inside / count:.0%}).",
        f"With inconclusive pairs it is {held} of {every} ({held / every:.0%}).",
        "",
        "| hardware | what-if | costs | pairs | held |",
        "|---|---|---|--:|--:|",
        *(
            f"| {c.hardware} | {c.transform} | {c.source} | {c.pairs} | {c.inside} |"
            for c in judged
        ),
        "",
    ]


def _validated(table: Table) -> list[str]:
    pooled = table.get("pooled", {})
    text = [
        "## Validated error of each transform",
        "",
        "How far the measurement lies from the prediction, as a share of the prediction.",
        "Intervals carry the last column: 9 of 10 further pairs should stay within it.",
        "Pairs that compare a part of the device time count with the error of that part.",
        "Pairs of what-ifs for several workers are those of accuracy-distributed.md.",
        "*All* counts the others.",
        f"A transform with fewer than {FEWEST_PAIRS} conclusive pairs is `unvalidated`.",
        f"With fewer than {ENOUGH_PAIRS} it takes the error of *all*, where that is larger.",
    ]
    if missed := table.get("unvalidated"):
        text.append(
            f"An unvalidated one may miss {missed['missed']:.0%} of the change it predicts."
        )
    text += [
        "",
        "| hardware | transform | costs | pairs | median | within |",
        "|---|---|---|--:|--:|--:|",
    ]
    for hardware in HARDWARE:
        for source, transforms in table.get(hardware, {}).items():
            text += [
                f"| {hardware} | {name} | {source} | {row['pairs']} | {row['median']:.1%} "
                f"| {row['p90']:.1%} |"
                for name, row in transforms.items()
            ]
            if (share := pooled.get(hardware, {}).get(source)) is not None:
                text.append(f"| {hardware} | *all* | {source} | | | {share:.1%} |")
    return [*text, ""]
