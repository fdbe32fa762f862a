"""Batches that others trained on a device in, whether Foretrace says that they fit out.

Nobody published a peak in bytes of a job of which a trace is public. What is published is which
batch was trained on which device, and of some that it was the largest that fits.
"""

from __future__ import annotations

import csv
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from foretrace.analysis.memory import report_memory
from foretrace.graph.build import build
from foretrace.tracer.readers.load import load

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TRACE = "hta/resnet50_ddp_v100_ws1_rank0.json.gz"
"""ResNet-50 in fp32, batch 32 (see its row in the table of speed-ups)."""
ASKED = (
    ("T081", 128, 16, True, ()),
    ("T082", 640, 80, True, ()),
    ("T060", 256, 32, False, ()),
    ("T065", 256, 16, False, ("amp(dtype='fp16')",)),
)
"""Row of the table, batch, GiB of the device, whether it was the largest, what-ifs."""


class Batch(NamedTuple):
    """A batch that was trained, and what it needs: bytes of the device's ``capacity``."""

    row: str
    source: str
    what_ifs: tuple[str, ...]
    batch: int
    is_largest: bool
    needs: float
    capacity: float
    largest: int | None


def ask_published(table: Path, folder: Path) -> Iterator[Batch]:
    """Yield each of `ASKED`, by the rows of *table* and the trace below *folder*."""
    with table.open(encoding="utf-8", newline="") as file:
        rows = {row["id"]: row for row in csv.DictReader(file, delimiter="\t")}
    graph = build(load(folder / TRACE))
    for row, batch, room, is_largest, what_ifs in ASKED:
        if str(batch) not in rows[row]["batch_shapes"]:
            raise ValueError(f"{row} is about another batch than {batch}")
        asked = (*what_ifs, f"batch_size(n={batch}, recorded=32)")
        device = replace(graph.meta.devices[0], memory_bytes=room * 2**30)
        there = replace(graph, meta=replace(graph.meta, devices=(device,)))
        variant = report_memory(there, asked).variants[-1]
        fits = next(each for each in variant.rooms if each.of == "batch")
        yield Batch(
            row,
            rows[row]["source"].split()[0],
            what_ifs,
            batch,
            is_largest,
            variant.peak.bytes,
            variant.capacity or 0.0,
            fits.largest,
        )
