"""Tables of the page on distributed accuracy: rows of the study in, lines of Markdown out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.accuracy.distributed.megatron import LEFT_OUT, mean_errors
from benchmarks.accuracy.markdown import percent, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.accuracy.distributed.collectives import CheckRow, CollectiveRow
    from benchmarks.accuracy.distributed.megatron import MegatronRow
    from benchmarks.accuracy.distributed.operation_timelines import TimelineRow
    from benchmarks.accuracy.distributed.recorded_ranks import RanksStudy
    from benchmarks.accuracy.distributed.shaped_links import NetworkRow
    from benchmarks.accuracy.distributed.study import Distributed
    from benchmarks.accuracy.distributed.sweeps import SweepRow

LARGE = 1 << 20
"""Collectives from this size on are judged by their form; smaller ones wait for the scheduler."""


def ms(ns: float) -> str:
    """Return *ns* in milliseconds."""
    return f"{ns / 1e6:.1f}"


def every_cell(cells: Sequence[NetworkRow]) -> list[str]:
    """Return the section that lists all cells."""
    if not cells:
        return []
    columns = (
        *("cell", "alone", "measured", "predicted", "error", "series", "no change", "repeats"),
        "remark",
    )
    return ["## Every cell", "", *table(columns, map(_cell_line, cells)), ""]


def _cell_line(row: NetworkRow) -> list[str]:
    remarks = [*(["held out"] if row.held_out else []), *row.problems]
    return [
        *(row.name, ms(row.alone_ns), ms(row.measured_ns), ms(row.predicted_ns)),
        *(percent(error) for error in (row.error, row.series_error, row.alone_error)),
        f"{row.noise:.1%}",
        "; ".join(remarks),
    ]


def own_collectives(rows: Sequence[SweepRow]) -> list[str]:
    """Return the section on collectives that ran alone over shaped links."""
    if not rows:
        return []
    kinds: dict[tuple[str, int, bool], list[SweepRow]] = {}
    for row in rows:
        if row.bytes >= LARGE:
            kinds.setdefault((row.kind, row.ranks, row.racks), []).append(row)
    lines = [_sweep_line(*kind, rows) for kind, rows in kinds.items()]
    return [
        "### Collectives alone",
        "",
        "Forms of gloo against back-to-back operations of 1 MiB to 16 MiB, 100 Mbit/s to 1 Gbit/s.",
        "What-ifs on the preset `shaped-links` take the measured times themselves from its table.",
        "",
        *table(("kind", "ranks", "sizes and rates", "median error", "from", "to"), lines),
        "",
    ]


def _sweep_line(kind: str, ranks: int, racks: bool, rows: Sequence[SweepRow]) -> list[str]:  # noqa: FBT001 - a key's part
    errors = [row.error for row in rows]
    return [
        *(kind, f"{ranks}, in two racks" if racks else str(ranks), str(len(rows))),
        *(percent(float(error)) for error in (np.median(errors), min(errors), max(errors))),
    ]


def public_ddp(study: Distributed) -> list[str]:
    """Return the section on DDP jobs that NERSC recorded."""
    if not study.buckets and not study.more:
        return []
    buckets = [
        [
            *(row.year, f"{row.measured_ms:+.2f}", f"{row.predicted_ms:+.2f}", percent(row.error)),
            f"{row.recorded_before} to {row.recorded_after}",
            f"{len(row.before_mb)} to {len(row.after_mb)}",
        ]
        for row in study.buckets
    ]
    more = [
        [
            *(f"{row.year}, {row.what}", f"{row.measured_ms:.1f}"),
            *(f"{row.nominal_ms:.1f}", percent(row.error(row.nominal_ms))),
            *(
                ("", "")
                if row.calibrated_ms is None
                else (f"{row.calibrated_ms:.1f}", percent(row.error(row.calibrated_ms)))
            ),
            percent(row.error(row.null_ms)),
        ]
        for row in study.more
    ]
    return [
        "## DDP on A100, recorded by NERSC",
        "",
        "A U-Net on 4 GPUs of Perlmutter, before and after larger buckets that hold its gradients.",
        "Predicted from the trace before; differences in ms of a step.",
        "",
        *table(("year", "measured", "predicted", "error", "buckets", "predicted"), buckets),
        "",
        "The same job on 8 GPUs in two nodes, from the trace of 4; times as the tutorials print.",
        "Calibrated: the network's rate is fitted to the job before, and predicts the one after.",
        "",
        *table(("job", "measured", "nominal", "error", "calibrated", "error", "no change"), more),
        "",
    ]


def nccl_collectives(study: Distributed) -> list[str]:
    """Return the section on vTrain's NCCL tables and the DLRM's messages."""
    if not study.collectives:
        return []
    messages = [_message_line(row) for row in study.messages]
    return [
        "## Collectives of NCCL (vTrain)",
        "",
        "all_reduce among 2 to 8 GPUs of one machine: mean over all sizes.",
        "The null model is the same form with one bandwidth for all ranks; for tables, the form.",
        "",
        *table(
            ("device", "ranks", "by", "mean error", "mean |error|", "largest", "null", "remark"),
            map(_collective_line, study.collectives),
        ),
        "",
        *(
            ["The table of 8 V100 beside collectives of a DLRM on another such machine:", ""]
            if messages
            else []
        ),
        *(
            table(("kind", "MB", "measured us", "predicted us", "error", "by"), messages)
            if messages
            else []
        ),
        *([""] if messages else []),
    ]


def _collective_line(row: CollectiveRow) -> list[str]:
    return [
        *(row.device, str(row.ranks), row.what, percent(row.error)),
        *(f"{row.mean_error:.1%}", f"{row.worst_error:.1%}"),
        "" if row.null_error is None else percent(row.null_error),
        "fitted" if row.is_fitted else "",
    ]


def _message_line(row: CheckRow) -> list[str]:
    return [
        *(row.kind, f"{row.size / 1e6:.3f}", f"{row.measured_ns / 1e3:.0f}"),
        *(f"{row.predicted_ns / 1e3:.0f}", percent(row.error), row.source),
    ]


def megatron(rows: Sequence[MegatronRow]) -> list[str]:
    """Return the section on Megatron's step times under other plans."""
    if not rows:
        return []
    kinds: dict[str, list[MegatronRow]] = {}
    for row in rows:
        kinds.setdefault(row.change, []).append(row)
    lines = [
        [name, str(len(rows)), *(f"{error:.1%}" for error in mean_errors(rows))]
        for name, rows in kinds.items()
    ]
    return [
        "## Megatron-LM under other parallel plans (vTrain)",
        "",
        "Mean |error| of one measured step predicted from another; no constant is fitted.",
        ("The other null model: the bubble without communication (several nodes), or no bubble."),
        "",
        *table(("change", "pairs", "predicted", "no change", "other null"), lines),
        "",
        "Left out, since it proves nothing:",
        "",
        *(f"- {what}: {why}." for what, why in LEFT_OUT.items()),
        "",
    ]


def timelines(rows: Sequence[TimelineRow]) -> list[str]:
    """Return the section on ByteDance's operation-level timelines."""
    if not rows:
        return []
    kinds: dict[tuple[str, str], list[TimelineRow]] = {}
    for row in rows:
        kinds.setdefault((row.job, row.what), []).append(row)
    lines = [
        [*kind, str(len(rows)), f"{max(abs(row.error) for row in rows):.4%}"]
        for kind, rows in kinds.items()
    ]
    return [
        "## Operation-level timelines (StragglerAnalysis)",
        "",
        '"base" was measured; all else are published replays, which fix what the rules mean.',
        "",
        *table(("job", "number", "rows", "largest error"), lines),
        "",
    ]


def several_ranks(study: RanksStudy | None) -> list[str]:
    """Return the section on the DLRM whose eight ranks were recorded."""
    if study is None:
        return []
    return [
        "## Eight recorded ranks (DLRM)",
        "",
        (
            f"Replayed unchanged: {study.replayed_ns / 1e6:.2f} ms beside "
            f"{study.measured_ns / 1e6:.2f} ({percent(study.error, 2)}); "
            f"if all ranks began together: {percent(study.null_error)}."
        ),
        f"At {study.same_last} of {study.meetings} collectives the recorded rank arrives last.",
        f"{study.pace[:1].upper()}{study.pace[1:]}.",
        "",
    ]
