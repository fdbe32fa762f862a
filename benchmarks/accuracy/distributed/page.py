"""The page on distributed accuracy: rows of the study in, Markdown out, what matters most first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.accuracy.distributed.shaped_links import EASY, JUDGED_MBIT
from benchmarks.accuracy.distributed.tables import (
    every_cell,
    megatron,
    nccl_collectives,
    own_collectives,
    public_ddp,
    several_ranks,
    timelines,
)
from benchmarks.accuracy.intervals.interval_coverage import cover
from benchmarks.accuracy.markdown import spread_cell, spread_sentence, table
from foretrace.analysis.error.prediction_interval import LEVEL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.accuracy.distributed.shaped_links import NetworkRow
    from benchmarks.accuracy.distributed.study import Distributed
    from benchmarks.accuracy.intervals.interval_coverage import Judged

SERIES = "computing plus bytes over bandwidth"
DDP = "ddp"
RUNS = f"""\
Real training on one machine with two cores: a process per rank in a network namespace of its own, \
links shaped with `tc tbf`, gloo (see the card in `traces`).
Each cell is predicted from a recording of the job alone, at the pace that it had around the \
cell.
"{SERIES.capitalize()}" is the null model to beat: the job alone, then the bytes of the ring with \
the frames' headers.
A cell is judged where it is conclusive, its links reach at most {JUDGED_MBIT} Mbit/s and that \
null model is more than {EASY:.0%} off.
What predictions take from this machine is in the preset `shaped-links`: the costs of collectives \
and of computing in their company come from runs of these alone, two constants from an earlier \
campaign."""


def distributed_page(study: Distributed, judged: Sequence[Judged] = ()) -> str:
    """Return the page; *judged* are the conclusive cells and their intervals."""
    parts = [
        "# How far off predictions of distributed jobs are",
        "",
        "`make accuracy` generates this page from the recordings that `traces/study.toml` lists.",
        "Times are milliseconds of one step; errors are signed percent of the measured value.",
        "",
        *_absent(study),
        *_in_short(study),
        *_own_runs(study, judged),
        *own_collectives(study.sweeps),
        *public_ddp(study),
        *nccl_collectives(study),
        *megatron(study.plans),
        *timelines(study.timelines),
        *several_ranks(study.ranks),
        *every_cell(study.cells),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _absent(study: Distributed) -> list[str]:
    if not study.absent:
        return []
    return [f"Not on the machine that made this page: {', '.join(study.absent)}.", ""]


def _in_short(study: Distributed) -> list[str]:
    own = [row for row in study.cells if not row.held_out]
    held_out = [row for row in study.cells if row.held_out]
    groups = {
        "DDP": [row for row in own if row.scheme == DDP],
        "DDP of held-out models": [row for row in held_out if row.scheme == DDP],
        "other schemes": [row for row in own if row.scheme != DDP],
    }
    lines = [
        f"- Median |error| over {len(rows)} cells of {name}: {_headline(rows)}."
        for name, group in groups.items()
        if (rows := [row for row in group if row.is_judged])
    ]
    return ["## In short", "", *lines, *_public_in_short(study), ""]


def _headline(rows: Sequence[NetworkRow]) -> str:
    return spread_sentence(
        {
            "predicted": [row.error for row in rows],
            SERIES: [row.series_error for row in rows],
            "no change": [row.alone_error for row in rows],
        }
    )


def _public_in_short(study: Distributed) -> list[str]:
    lines = [
        f"- Other buckets on 4 A100 of {row.year}: {row.measured_ms:+.2f} ms a step, "
        f"{row.predicted_ms:+.2f} predicted."
        for row in study.buckets
    ]
    if study.more:
        worst = max(abs(row.error(row.nominal_ms)) for row in study.more)
        null = max(abs(row.error(row.null_ms)) for row in study.more)
        lines.append(
            f"- From 4 to 8 A100 over two nodes: at most {worst:.1%} off with the nominal network, "
            f"no change {null:.1%}."
        )
    return lines


def _own_runs(study: Distributed, judged: Sequence[Judged]) -> list[str]:
    if not study.cells:
        return ["## Runs over shaped links", "", "None are in this checkout.", ""]
    return [
        "## Runs over shaped links",
        "",
        *RUNS.splitlines(),
        "",
        *_by_scheme(study.cells),
        *_by("rate", "Mbit/s", study.cells, lambda row: str(row.rate_mbit or "unshaped")),
        *_by("model", "model", study.cells, lambda row: row.model + held(row)),
        *_by("ranks", "ranks", study.cells, lambda row: str(row.ranks)),
        *_unforeseen(study),
        *_intervals(judged),
    ]


def held(row: NetworkRow) -> str:
    """Return the remark on held-out models."""
    return " (held out)" if row.held_out else ""


def _by_scheme(cells: Sequence[NetworkRow]) -> list[str]:
    kinds: dict[str, list[NetworkRow]] = {}
    for row in cells:
        kinds.setdefault(row.scheme + held(row), []).append(row)
    return ["### By scheme", "", *_table("scheme", kinds), ""]


def _by(
    what: str, title: str, cells: Sequence[NetworkRow], key: Callable[[NetworkRow], str]
) -> list[str]:
    """Return the DDP cells by some property, those on fast links as well."""
    kinds: dict[str, list[NetworkRow]] = {}
    for row in cells:
        if row.scheme == DDP:
            kinds.setdefault(key(row), []).append(row)
    kinds = dict(sorted(kinds.items(), key=lambda kind: (not kind[0].isdigit(), _number(kind[0]))))
    return [f"### DDP by {what}", "", *_table(title, kinds), ""]


def _number(text: str) -> tuple[int, str]:
    return (int(text), "") if text.isdigit() else (0, text)


def _table(title: str, kinds: dict[str, list[NetworkRow]]) -> list[str]:
    columns = (
        *(title, "cells", "conclusive", "judged", "judged: error", SERIES),
        *("no change", "conclusive: error", SERIES),
    )
    return table(columns, [_line(name, rows) for name, rows in kinds.items()])


def _line(name: str, rows: Sequence[NetworkRow]) -> list[str]:
    good = [row for row in rows if row.is_conclusive]
    judged = [row for row in good if row.is_judged]
    return [
        *(name, str(len(rows)), str(len(good)), str(len(judged))),
        spread_cell(row.error for row in judged),
        spread_cell(row.series_error for row in judged),
        spread_cell(row.alone_error for row in judged),
        spread_cell(row.error for row in good),
        spread_cell(row.series_error for row in good),
    ]


def _unforeseen(study: Distributed) -> list[str]:
    if not study.unforeseen:
        return []
    return [*(f"- {name}: no number, {why}" for name, why in study.unforeseen.items()), ""]


def _intervals(judged: Sequence[Judged]) -> list[str]:
    if not judged:
        return []
    count, holds, width, constant = cover(judged)
    return [
        f"Intervals of {LEVEL:.0%}, made of pairs on one machine and of no cell, held the",
        f"measurement in {holds:.0%} of {count} conclusive cells.",
        f"Their mean half width is {width:.3f}; one of {constant:.3f} for all would have done.",
        "They are no narrower since these are few models on links of one kind.",
        "",
    ]
