"""``python -m foretrace.accuracy``: run the study, write docs/accuracy.md and validated.toml.

Every number on that page and every validated error in the package comes from here.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from foretrace.atomic import write_atomically
from foretrace.predict import LEVEL, interval
from foretrace.study import NOISE_LIMIT, PairRow, Study, every_transform, read_list, run_study
from foretrace.validated import TABLE, combine

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from foretrace.study import IdentityRow

ROOT = Path(__file__).resolve().parent.parent
STUDY = ROOT / "traces" / "study.toml"
PAGE = ROOT / "docs" / "accuracy.md"
README = ROOT / "README.md"
BEGIN, END = "<!-- accuracy: written by `make accuracy` -->", "<!-- end -->"
FEWEST_PAIRS = 2
"""Fewer conclusive pairs than this validate nothing."""
IDENTITY_LIMIT = 0.02
"""An identity error above this is an exception that needs a cause."""
BIG_CHANGE = 0.10
"""Pairs on which "no change" is off by more than this show what a prediction is worth."""

Table = dict[str, dict[str, dict[str, float]]]


def main() -> None:
    """Run the study of this checkout and rewrite its page and table."""
    study = run_study(read_list(STUDY), STUDY.parent)
    table = error_table(study.pairs)
    text = page(study, table)
    write_atomically(ROOT / "foretrace" / TABLE, toml(table).encode())
    write_atomically(PAGE, text.encode())
    write_atomically(README, quoted(README.read_text("utf-8"), text).encode())
    sys.stdout.write(f"wrote {PAGE.name} and {TABLE}: {len(study.pairs)} pairs\n")


def quoted(readme: str, accuracy: str) -> str:
    """Return *readme* with the medians and means of the page *accuracy* between its marks."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    said = [line for line in accuracy.splitlines() if line.lstrip("- ").startswith(("Med", "Mean"))]
    sentences = "\n".join(f"- {line.removeprefix('- ')}" for line in said)
    return f"{before}{BEGIN}\n{sentences}\n{END}{after}"


def error_table(pairs: Iterable[PairRow]) -> Table:
    """Return hardware → transform → errors, from conclusive pairs of one transform each."""
    judged = [p for p in pairs if p.is_conclusive and p.measure == "step"]
    table: Table = {"gpu": {}, "cpu": {}}
    for hardware, transform in every_transform(tuple(judged)):
        same = [p for p in judged if (p.hardware, p.transforms) == (hardware, (transform,))]
        if len(same) >= FEWEST_PAIRS:
            errors = np.abs([p.error for p in same])
            table[hardware][transform] = {
                "pairs": len(same),
                "median": round(float(np.median(errors)), 4),
                "p90": round(float(np.quantile(errors, 0.9, method="higher")), 4),
            }
    return table


def toml(table: Table) -> str:
    """Write *table* as TOML."""
    lines = ["# Written by `python -m foretrace.accuracy`; docs/accuracy.md shows the pairs."]
    for hardware, transforms in table.items():
        for name, row in sorted(transforms.items()):
            lines += ["", f"[{hardware}.{name}]", *(f"{key} = {row[key]}" for key in row)]
    return "\n".join(lines) + "\n"


def page(study: Study, table: Table) -> str:
    """Return the accuracy page."""
    parts = [
        "# How far off it is",
        "",
        "`make accuracy` generates this page from the recordings that `traces/study.toml` lists.",
        "Times are milliseconds of one step; errors are signed percent of the measured value.",
        "",
        *_absent(study),
        *_identity(study.identities),
        *_public_pairs(study),
        *_recorded_pairs(study),
        *_coverage(study.pairs),
        *_table(table),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _absent(study: Study) -> list[str]:
    if not study.absent:
        return []
    count = len(study.absent)
    return [
        f"{count} of the listed recordings were not on the machine that made this page.",
        "The public set is not redistributed here.",
        "",
    ]


def _identity(rows: Sequence[IdentityRow]) -> list[str]:
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
            f"Median |error| over {len(good)} recordings: {np.median(errors):.2%}.",
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
        f"| {_percent(row.error, 2)} | {remark} |"
    )


_HEAD = (
    "| pair | change | before | after | predicted | error | no change | paper | noise | remark |",
    "|---|---|--:|--:|--:|--:|--:|--:|--:|---|",
)


def _public_pairs(study: Study) -> list[str]:
    rows = [row for row in study.pairs if row.noise is None]
    return [
        "## Public pairs",
        "",
        "Recorded and measured by others; the recordings are named in `traces/study.toml`.",
        "Every rule of the graph was developed on these same recordings, so none is held out.",
        '"Optimizer" rows compare the device time of the optimizer phase and count in no mean.',
        "",
        *_HEAD,
        *map(_pair_line, rows),
        "",
        *_means(rows, "public"),
        *(f"- {name}: no number, {why}" for name, why in study.problems.items()),
        "",
    ]


def _recorded_pairs(study: Study) -> list[str]:
    rows = [row for row in study.pairs if row.noise is not None]
    text = [
        "## Pairs recorded by this project",
        "",
        "Both variants ran interleaved in one process, without the profiler.",
        "The step is the mean without the lowest and highest fifth.",
        f"A pair whose two halves differ by more than {NOISE_LIMIT:.0%} is inconclusive.",
        "It is listed and counts nowhere.",
        "",
    ]
    if not rows:
        return [*text, "None are in this checkout.", ""]
    return [*text, *_HEAD, *map(_pair_line, rows), "", *_means(rows, "own"), ""]


def _pair_line(row: PairRow) -> str:
    noise = "" if row.noise is None else f"{abs(row.noise):.1%}"
    remarks = [
        *(["inconclusive"] if not row.is_conclusive else []),
        *(["tuned on"] if row.tuned_on else []),
        *([row.measure] if row.measure != "step" else []),
    ]
    paper = "" if row.paper_error is None else _percent(row.paper_error)
    return (
        f"| {row.name} | {row.change} | {_ms(row.before_ns)} | {_ms(row.after_ns)} "
        f"| {_ms(row.predicted_ns)} | {_percent(row.error)} | {_percent(row.null_error)} | {paper} "
        f"| {noise} | {', '.join(remarks)} |"
    )


def _means(rows: Sequence[PairRow], whose: str) -> list[str]:
    judged = [row for row in rows if row.is_conclusive and row.measure == "step"]
    big = [row for row in judged if abs(row.null_error) > BIG_CHANGE]
    text = []
    for label, chosen in (("all", judged), (f'where "no change" is off > {BIG_CHANGE:.0%}', big)):
        if chosen:
            papers = [abs(row.paper_error) for row in chosen if row.paper_error is not None]
            paper = f"{np.mean(papers):.1%}" if papers else "no constants"
            text.append(
                f"- Mean |error| over {len(chosen)} {whose} pairs ({label}): "
                f"{np.mean([abs(row.error) for row in chosen]):.1%}; "
                f"no change {np.mean([abs(row.null_error) for row in chosen]):.1%}; "
                f"paper {paper}; right sign in {sum(map(_has_right_sign, chosen))}."
            )
    return text


def _has_right_sign(row: PairRow) -> bool:
    """Whether the prediction goes the way the measurement went, where that exceeds the noise."""
    noise = max(abs(row.noise or 0.0), 0.01)
    real = row.after_ns / row.before_ns - 1
    return abs(real) <= noise or real * (row.predicted_ns / row.before_ns - 1) > 0


def _coverage(pairs: Sequence[PairRow]) -> list[str]:
    """Count how often an interval made *without* a pair holds that pair's measurement."""
    judged = [row for row in pairs if row.is_conclusive and row.measure == "step"]
    known = inside = 0
    for row in judged:
        others = error_table([other for other in judged if other is not row])
        error = combine(row.transforms, others[row.hardware])
        if error.is_validated:
            low, high = interval(row.predicted_ns, row.step_interval, error.share)
            known += 1
            inside += low <= row.after_ns <= high
    if not known:
        return []
    return [
        "## Intervals",
        "",
        f"An interval means to hold the truth in {LEVEL:.0%} of the cases.",
        "Here each was made without the pair that it is judged on.",
        f"It held the measurement in {inside} of {known} ({inside / known:.0%}).",
        "",
    ]


def _table(table: Table) -> list[str]:
    text = [
        "## Validated error of each transform",
        "",
        f"A transform with fewer than {FEWEST_PAIRS} conclusive pairs is `unvalidated`.",
        "",
        "| hardware | transform | pairs | median | 90th percentile |",
        "|---|---|--:|--:|--:|",
    ]
    return text + [
        f"| {hardware} | {name} | {row['pairs']} | {row['median']:.1%} | {row['p90']:.1%} |"
        for hardware, transforms in table.items()
        for name, row in sorted(transforms.items())
    ]


def _ms(ns: float) -> str:
    return f"{ns / 1e6:.2f}"


def _percent(share: float, digits: int = 1) -> str:
    return f"{share:+.{digits}%}"


if __name__ == "__main__":
    main()
