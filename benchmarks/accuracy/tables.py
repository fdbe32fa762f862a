"""Tables of the accuracy page, a row per recording: rows of the study in, lines of Markdown out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.accuracy.markdown import percent, spread
from benchmarks.accuracy.window_start import WHAT_IFS
from foretrace.tracer.step_stats import NOISE_LIMIT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.accuracy.rows import AccuracyStudy, IdentityRow, PartRow
    from foretrace.analysis.evidence.measured_pair import MeasuredPair

AGREE = 0.01
"""Answers closer than this agree."""
IDENTITY_LIMIT = 0.02
"""An identity error above this is an exception that needs a cause."""

_COLUMNS = (
    *("pair", "change", "before", "after", "predicted", "error"),
    *("without calibration", "no change", "paper", "noise", "remark"),
)
_HEAD = (
    f"| {' | '.join(_COLUMNS)} |",
    f"|---|---|{'--:|' * (len(_COLUMNS) - 3)}---|",
)


def _pair_line(row: MeasuredPair) -> str:
    remarks = [
        *(["held out"] if row.held_out else []),
        *(["tuned on"] if row.tuned_on else []),
        *([] if row.is_conclusive else ["inconclusive"]),
        *([row.measure] if row.measure == "optimizer" else []),
    ]
    cells = [
        *(row.name, row.change, _ms(row.before_ns), _ms(row.after_ns), _ms(row.predicted_ns)),
        percent(row.error),
        "" if row.calibrated_ns is None else percent(row.rule_error),
        percent(row.null_error),
        "" if row.paper_error is None else percent(row.paper_error),
        "" if row.noise is None else f"{abs(row.noise):.1%}",
        ", ".join(remarks),
    ]
    return f"| {' | '.join(cells)} |"


def public_pairs(study: AccuracyStudy) -> list[str]:
    """Return the section on pairs that others measured."""
    rows = [row for row in study.pairs if not row.is_recorded_here and row.is_of_one_device]
    return [
        "## Public pairs",
        "",
        "Recorded and measured by others; the recordings are named in `traces/study.toml`.",
        "Every rule of the graph was developed on these same recordings, so none is held out.",
        '"Optimizer" rows compare the device time of the optimizer phase.',
        "A pair whose recording misses its step is inconclusive and counts nowhere.",
        "",
        *_by_tuning(rows),
        *(f"- {name}: no number, {why}" for name, why in study.problems.items()),
        *([""] if study.problems else []),
    ]


def other_devices(pairs: Sequence[MeasuredPair]) -> list[str]:
    """Return the section on kernels that moved to another device."""
    rows = [row for row in pairs if not row.is_of_one_device]
    if not rows:
        return []
    return [
        "## Moving to another device",
        "",
        "Time of all kernels of the same workload on both devices, collectives left out.",
        "That is no step: these pairs validate none, whichever device they moved to.",
        "",
        *_by_tuning(rows),
    ]


def _by_tuning(rows: Sequence[MeasuredPair]) -> list[str]:
    """Return two tables: pairs that nothing was tuned on first, then the others."""
    apart = {
        "Not tuned on": [row for row in rows if not row.tuned_on],
        "Tuned on": [row for row in rows if row.tuned_on],
    }
    text = []
    for title, of in apart.items():
        judged = [row.error for row in of if row.is_conclusive]
        median, _, largest = spread(judged) or (0.0, 0.0, 0.0)
        says = f"Median |error| {median:.1%}, largest {largest:.1%}; conclusive: {len(judged)}."
        text += [f"### {title}", "", says, "", *_HEAD, *map(_pair_line, of), ""] if of else []
    return text


def recorded_pairs(pairs: Sequence[MeasuredPair]) -> list[str]:
    """Return the section on this project's own pairs: what counts first."""
    own = [row for row in pairs if row.is_recorded_here]
    text = [
        "## Pairs recorded by this project",
        "",
        "Both variants ran interleaved in one process, without the profiler.",
        "The step is the mean without the lowest and highest fifth.",
        f"A pair whose two halves differ by more than {NOISE_LIMIT:.0%} is inconclusive.",
        "It is listed and counts nowhere.",
        "",
    ]
    if not own:
        return [*text, "None are in this checkout.", ""]
    parts = {
        "Conclusive": [row for row in own if row.is_conclusive and row.is_foreseen],
        "Not predicted": [row for row in own if not row.is_foreseen],
        "Inconclusive": [row for row in own if not row.is_conclusive and row.is_foreseen],
    }
    for title, rows in parts.items():
        if rows:
            text += [f"### {title}", "", *_HEAD, *map(_pair_line, rows), ""]
    return text


def parts(rows: Sequence[PartRow]) -> list[str]:
    """Return the section on recordings opened later or closed earlier; nothing without any."""
    if not rows:
        return []
    good = [row for row in rows if not row.problem]
    agree = sum(row.off <= AGREE for row in good)
    apart = [row for row in good if row.off > AGREE]
    doubted = sum(bool(row.doubts) for row in apart)
    text = [
        "## Opened elsewhere",
        "",
        "Each public recording as if it had been opened some steps later, or closed some earlier.",
        f"Asked are {', '.join(f'`{what_if}`' for what_if in WHAT_IFS)}.",
        "*Off* compares a part with what the whole recording answers of the same steps.",
        "Steps differ, and so do their answers: *of all steps* compares with all of them.",
        "",
        (
            f"In {agree} of {len(good)} parts all answers are within {AGREE:.0%}; "
            f"of the {len(apart)} others, {doubted} carry a doubt."
        ),
        "",
        "| recording | parts | agree | off | left out there | of all steps | doubts |",
        "|---|--:|--:|--:|---|--:|---|",
    ]
    names = dict.fromkeys(row.trace for row in rows)
    return [*text, *(_parts_line([r for r in rows if r.trace == name]) for name in names), ""]


def _parts_line(rows: Sequence[PartRow]) -> str:
    """Return the line of one recording: its worst part."""
    worst = max(rows, key=lambda row: (bool(row.problem), row.off))
    first, last = worst.dropped
    place = f"{first} first, {last} last"
    agree = sum(row.off <= AGREE and not row.problem for row in rows)
    head = f"| {worst.trace} | {len(rows)} | {agree} "
    if worst.problem:
        return f"{head}| | {place} | | {worst.problem} |"
    all_steps = max(row.off_whole for row in rows if not row.problem)
    codes = ", ".join(dict.fromkeys(code for row in rows for code in row.doubts))
    return f"{head}| {worst.off:.1%} | {place} | {all_steps:.1%} | {codes} |"


def identity(rows: Sequence[IdentityRow]) -> list[str]:
    """Return the section on recordings replayed without any change."""
    good = [row for row in rows if not row.problem]
    text = [
        "## Identity: the replay without any change",
        "",
        "Nothing on a device lane is copied from the recorded start times.",
        "This guards against regressions; it proves no prediction.",
        "",
    ]
    if good:
        errors = np.abs([row.error for row in good])
        within = int((errors <= IDENTITY_LIMIT).sum())
        text += [
            f"Median |error| over {len(good)} unchanged recordings: {np.median(errors):.2%}.",
            f"{within} of them are within {IDENTITY_LIMIT:.0%}; the largest is {errors.max():.2%}.",
            "",
        ]
    text.append("| recording | steps | measured | replayed | error | remark |")
    text.append("|---|--:|--:|--:|--:|---|")
    return [*text, *map(_identity_line, rows), ""]


def _identity_line(row: IdentityRow) -> str:
    if row.problem:
        return f"| {row.trace} | | | | | {row.problem} |"
    remark = row.cause or ("not explained" if abs(row.error) > IDENTITY_LIMIT else "")
    return (
        f"| {row.trace} | {row.steps} | {_ms(row.measured_ns)} | {_ms(row.replayed_ns)} "
        f"| {percent(row.error, 2)} | {remark} |"
    )


def _ms(ns: float) -> str:
    return f"{ns / 1e6:.2f}"
