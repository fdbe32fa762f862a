"""The card of a network campaign: hardware, versions, command, protocol, and what was measured."""

from __future__ import annotations

import json
import platform
from typing import TYPE_CHECKING, Any

from benchmarks.shaped_network.cells import COLLECTIVES, collective_costs
from foretrace.tracer.recording.job_metadata import ALLOCATOR

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from benchmarks.shaped_network.cells import MeasuredCell

PROTOCOL = """\
One process per rank, pinned to a core (ranks in turn) with one thread and {allocator}, in a
network namespace of its own.
Namespaces are joined by veth pairs and a bridge.
Every rank sends through `tc tbf` at the named rate, burst {burst:,} bytes, congestion control
{congestion} as read back.
"Alone" is the same job on all ranks at once, connected with nobody, measured just before and after
every visit to a cell; the recordings in the archive were made the same way.
A cell is visited twice, up and down the rates.
Times are 20 % trimmed means over both visits, averaged over ranks; "repeats" is by how much the
visits differ.
Collectives ran back to back; an operation is over when its last rank is done.
A cell is inconclusive when repeats differ by more than 5 %, forward by more than 8 % from the job
alone, packets were dropped, or the bytes sent are not those of the scheme's formula."""
TRAINED = ("cell", "alone ms", "step ms", "repeats %", "spread %", "steps", "conclusive")
ALONE = ("kind", "ranks", "bytes", "Mbit/s", "ms", "spread %")


def write_card(cells: Sequence[MeasuredCell], jobs: dict[str, Any], path: Path) -> Path:
    """Write the card of *cells* to *path*, and for programs beside it as ``.json``."""
    card = _card(cells, jobs)
    path.write_text(_markdown(card, cells), "utf-8")
    path.with_suffix(".json").write_text(json.dumps(card, indent=1) + "\n", "utf-8")
    return path


def _card(cells: Sequence[MeasuredCell], jobs: dict[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = next((job["facts"] for job in jobs.values()), {})
    return {
        "machine": facts.get("machine"),
        "framework": facts.get("framework"),
        "command": facts.get("command"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "burst_bytes": cells[0].burst_bytes,
        "congestion_control": cells[0].congestion_control,
        "jobs": {
            name: {
                "batch_size": job["facts"]["batch_size"],
                "optimizer": job["facts"]["optimizer"],
                "warnings": job["facts"]["warnings"],
                ALLOCATOR: job["facts"].get("extra", {}).get(ALLOCATOR, {}),
            }
            for name, job in jobs.items()
        },
        "cells": [_row(cell) for cell in cells if cell.scheme not in COLLECTIVES],
        "collectives": [cost._asdict() for cost in collective_costs(cells)],
    }


def _row(cell: MeasuredCell) -> dict[str, Any]:
    return {
        "cell": cell.name,
        "alone_ms": None if cell.lone_ns is None else round(cell.lone_ns / 1e6, 3),
        "step_ms": round(cell.step_ns / 1e6, 3),
        "repeats_pct": round(100 * cell.noise, 2),
        "spread_pct": round(100 * cell.spread, 2),
        "steps": sum(len(run.step_ns[0]) for run in cell.runs),
        "problems": list(cell.problems),
        "facts": cell.facts,
    }


def _markdown(card: dict[str, Any], cells: Sequence[MeasuredCell]) -> str:
    machine = card["machine"]
    lines = [
        "# Distributed runs on shaped links",
        "",
        *([] if machine is None else _describe_recording(card, machine)),
        "",
        PROTOCOL.format(
            burst=card["burst_bytes"],
            congestion=card["congestion_control"],
            allocator=_describe_allocator(card["jobs"].values()),
        ),
        "",
        *_table(TRAINED, [_format_training(row) for row in card["cells"]]),
        "",
        *_table(ALONE, [_format_collective(row) for row in card["collectives"]]),
        "",
        *(f"{cell.name}: {'; '.join(cell.problems)}." for cell in cells if cell.problems),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _describe_recording(card: dict[str, Any], machine: dict[str, Any]) -> list[str]:
    recorded = f"Recorded by `{card['command']}` with {card['framework']}, Python {card['python']}"
    rates = f"{machine['fp32_gflops']} GFLOP/s in fp32, {machine['copy_gbps']} GB/s copied"
    return [f"{recorded}, {card['system']}.", f"{machine['cpu']}, one thread per rank: {rates}."]


def _describe_allocator(jobs: Iterable[dict[str, Any]]) -> str:
    """Return what the recordings had: they and the runs of a campaign share their processes."""
    return "a fixed allocator" if any(job[ALLOCATOR] for job in jobs) else "the usual allocator"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return []
    rule = " | ".join(["---", *["---:"] * (len(columns) - 1)])
    return [f"| {' | '.join(columns)} |", f"| {rule} |", *(f"| {' | '.join(r)} |" for r in rows)]


def _format_training(row: dict[str, Any]) -> list[str]:
    alone = "" if row["alone_ms"] is None else f"{row['alone_ms']:.1f}"
    numbers = [f"{row['step_ms']:.1f}", f"{row['repeats_pct']:.1f}", f"{row['spread_pct']:.1f}"]
    return [row["cell"], alone, *numbers, str(row["steps"]), "no" if row["problems"] else "yes"]


def _format_collective(row: dict[str, Any]) -> list[str]:
    keys = ("kind", "ranks", "bytes", "rate_mbit")
    return [
        *(str(row[key]) for key in keys),
        f"{row['ns'] / 1e6:.2f}",
        f"{100 * row['spread']:.1f}",
    ]
