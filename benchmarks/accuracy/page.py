"""The accuracy page: rows of the study in, Markdown out, what matters most first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.accuracy.constants import constants
from benchmarks.accuracy.drawn_jobs import drawn_section, drawn_sentences
from benchmarks.accuracy.headlines import in_short
from benchmarks.accuracy.intervals.page import intervals
from benchmarks.accuracy.markdown import spread_cell
from benchmarks.accuracy.markdown import table as markdown_table
from benchmarks.accuracy.tables import (
    identity,
    other_devices,
    parts,
    public_pairs,
    recorded_pairs,
)
from foretrace.analysis.evidence.evidence import FEWEST_PAIRS, list_tested
from foretrace.analysis.evidence.measured_pair import BIG_CHANGE, UNPREDICTED
from foretrace.analysis.evidence.validated_errors import HARDWARE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pandas import DataFrame

    from benchmarks.accuracy.error_table import Table
    from benchmarks.accuracy.intervals.observations import Observation
    from benchmarks.accuracy.rows import AccuracyStudy
    from foretrace.analysis.evidence.measured_pair import MeasuredPair

PICTURE = (
    "![Every judged pair, predicted against measured, and which share of the pairs has at most "
    "a given error: predictions, no change, the paper's constants](images/accuracy.svg)"
)
BIG = f'"no change" is off > {BIG_CHANGE:.0%}'


def page(
    study: AccuracyStudy,
    table: Table,
    looks: int,
    observations: Sequence[Observation] = (),
    drawn: DataFrame | None = None,
) -> str:
    """Return the accuracy page; held-out models were looked at in *looks* campaigns.

    Intervals are judged by *observations*; *drawn* is the table of the truth set.
    """
    sections = [
        "# How far off it is",
        "",
        "`make accuracy` generates this page from the recordings that `traces/study.toml` lists.",
        "Times are milliseconds of one step; errors are signed percent of the measured value.",
        "[How far off is it for my kind of question?](how-far-off.md) is the short form.",
        "",
        *_absent(study),
        *in_short(study.pairs, looks, drawn_sentences(drawn)),
        PICTURE,
        "",
        *drawn_section(drawn),
        *_by_what_if(study.pairs, looks),
        *public_pairs(study),
        *other_devices(study.pairs),
        *intervals(observations, table.get("interval", {})),
        *_validated(table),
        *_evidence(table),
        *constants(),
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


def _kinds(pairs: Sequence[MeasuredPair]) -> dict[str, list[MeasuredPair]]:
    """Return the judged pairs recorded here: not tuned on, held out, tuned on."""
    own = judged([row for row in pairs if row.is_recorded_here])
    return {
        "untuned": [row for row in own if not row.held_out and not row.tuned_on],
        "held-out": [row for row in own if row.held_out],
        "tuned": [row for row in own if row.tuned_on],
    }


def _by_what_if(pairs: Sequence[MeasuredPair], looks: int) -> list[str]:
    text = [
        "## By what-if",
        "",
        "|Error| in percent: median / 90th percentile / largest, over conclusive pairs.",
        'Errors "with calibration" are of costs that `foretrace calibrate` measured, where it can.',
        f"Pairs of {', '.join(UNPREDICTED)} count nowhere: generated code cannot be foreseen.",
        "",
    ]
    titles = {
        "untuned": "Pairs recorded by this project, not tuned on",
        "held-out": f"Held-out models, not tuned on, looked at in {looks} campaigns",
        "tuned": "Pairs recorded by this project, tuned on",
    }
    for whose, rows_of in _kinds(pairs).items():
        big = [row for row in rows_of if row.is_big]
        for label, rows in ((f"where {BIG}", big), ("all", rows_of)):
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


def _validated(table: Table) -> list[str]:
    text = [
        "## Error of each what-if",
        "",
        "How far the measurement lies from the prediction, as a share of the prediction.",
        "9 of 10 further pairs of the same models should stay within the last column.",
        "Pairs that compare a part of the device time count with the error of that part.",
        "Pairs of what-ifs for several workers are those of accuracy-distributed.md.",
    ]
    if missed := table.get("unvalidated"):
        text.append(
            f"Where nothing validates a what-if, it may miss {missed['missed']:.0%} of the change."
        )
    text += [
        "",
        "| hardware | what-if | costs | pairs | median | within |",
        "|---|---|---|--:|--:|--:|",
    ]
    for hardware in HARDWARE:
        for source, transforms in table.get(hardware, {}).items():
            text += [
                f"| {hardware} | {name} | {source} | {row['pairs']} | {row['median']:.1%} "
                f"| {row['p90']:.1%} |"
                for name, row in transforms.items()
            ]
    return [*text, ""]


def _evidence(evidence: Table) -> list[str]:
    """Return where each what-if was tested, pairs that were tuned on apart."""
    rows = [
        (name, str(each.place), each.source, str(each.untuned), str(each.tuned))
        for name in evidence.get("evidence", {})
        for each in list_tested(name, "", evidence)
    ]
    return [
        "## What may call itself validated, and where",
        "",
        f"An answer is `validated` where at least {FEWEST_PAIRS} pairs that nothing was tuned on",
        "tested each of its what-ifs at the same kind of place: vendor and generation, whole",
        "steps, what sets the pace, the library of attention, for several workers their network.",
        "It is `tested elsewhere` where such pairs exist, but at another kind of place.",
        "",
        *markdown_table(("what-if", "place", "costs", "not tuned on", "tuned on"), rows),
        "",
    ]
