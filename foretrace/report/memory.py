"""Text and JSON of who holds a job's memory; importing this registers them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foretrace.analysis.memory import MemoryReport
from foretrace.analysis.memory_snapshot import SnapshotReport
from foretrace.report.dispatch import json_keys, text_blocks
from foretrace.report.number_format import ms, size
from foretrace.report.text_layout import CAUTION, Blocks, fact_table, heading, note_list, table
from foretrace.transforms.costs.peak_memory import PARTS

if TYPE_CHECKING:
    from foretrace.analysis.memory import Room, Variant
    from foretrace.transforms.costs.peak_memory import Memory

SOURCES = {
    "recorded": "recorded by the allocator",
    "partly recorded": "recorded; what was held before the recording is estimated",
    "shapes": "estimated from the operators' shapes",
    "estimate": "estimated from kernel times",
}


def memory_keys(memory: Memory) -> dict[str, Any]:
    """Return the JSON form of a peak, in GB."""
    return {
        "peak": _gb(memory.bytes),
        **{part: _gb(getattr(memory, part)) for part in PARTS},
        "phase": memory.phase,
        "source": memory.source,
    }


def memory_words(memory: Memory) -> str:
    """Return the parts of a peak in words; those that hold nothing are left out."""
    parts = [(part, getattr(memory, part)) for part in PARTS]
    return ", ".join(f"{part.replace('_', ' ')} {size(held)}" for part, held in parts if held)


@json_keys.register(MemoryReport)
def _memory_keys(report: MemoryReport) -> dict[str, Any]:
    return {
        "source": report.source,
        "device": report.device,
        "variants": [_variant_keys(each) for each in report.variants],
        "phases": {name: memory_keys(memory) for name, memory in report.phases.items()},
        "reserved_gb": None if report.reserved is None else _gb(report.reserved),
        "fragmentation_gb": None if report.fragmentation is None else _gb(report.fragmentation),
        "over_time": [
            {"start_ms": ms(start), "phase": phase, "gb": _gb(held)}
            for start, phase, held in report.over_time
        ],
        "refused": [{"what_if": text, "why": why} for text, why in report.refused],
    }


def _variant_keys(variant: Variant) -> dict[str, Any]:
    return {
        "what_ifs": list(variant.what_ifs),
        "memory_gb": memory_keys(variant.peak),
        "capacity_gb": None if variant.capacity is None else _gb(variant.capacity),
        "fits": variant.fits,
        "largest": {
            room.of: {"recorded": room.size, "times": round(room.times, 4), "largest": room.largest}
            for room in variant.rooms
        },
    }


def _gb(held: float) -> float:
    return round(held / 1e9, 6)


@text_blocks.register(MemoryReport)
def _memory_blocks(report: MemoryReport) -> Blocks:
    before = report.variants[0]
    return [
        heading(f"Memory of {report.source}"),
        fact_table(*_facts(report, before)),
        _parts(report),
        *_changes(report),
        *note_list("Refused", (f"{text}: {why}" for text, why in report.refused), CAUTION),
    ]


def _facts(report: MemoryReport, before: Variant) -> list[tuple[str, str, str]]:
    peak = before.peak
    facts = [("peak", size(peak.bytes), f"in {peak.phase or 'the step'}; {SOURCES[peak.source]}")]
    if report.reserved is not None and report.fragmentation is not None:
        text = f"by the allocator at most; {size(report.fragmentation)} of it not handed out"
        facts.append(("reserved", size(report.reserved), text))
    if before.capacity is not None:
        facts.append(("device", size(before.capacity), report.device or "the machine's memory"))
    return [*facts, *(_room_fact(room) for room in before.rooms)]


def _room_fact(room: Room) -> tuple[str, str, str]:
    name = f"largest {room.of}" if room.of == "batch" else f"longest {room.of}"
    known = "" if room.largest is None else f"{room.largest:,}"
    return name, known or f"{room.times:,.1f} x", f"{room.times:,.1f} times the recorded one fits"


def _parts(report: MemoryReport) -> Any:
    """Return who holds the memory, at the peak and at the highest moment of each phase."""
    columns = [report.variants[0].peak, *report.phases.values()]
    held = [part for part in PARTS if any(getattr(memory, part) for memory in columns)]
    rows = [
        (part.replace("_", " "), *(size(getattr(memory, part)) for memory in columns))
        for part in held
    ]
    rows.append(("together", *(size(memory.bytes) for memory in columns)))
    heads = ("Who holds it", "peak", *(f"in {name}" for name in report.phases))
    return table("l" + "r" * len(columns), rows, heads)


def _changes(report: MemoryReport) -> Blocks:
    """Return what each what-if does to the peak."""
    before, *others = report.variants
    if not others:
        return []
    rows = [
        (
            " + ".join(each.what_ifs) or "as recorded",
            size(each.peak.bytes),
            f"{each.peak.bytes / before.peak.bytes - 1:+.1%}" if before.peak.bytes else "",
            {True: "fits", False: "does not fit", None: "unknown"}[each.fits],
            *(_largest(each, of) for of in _kinds(report)),
        )
        for each in report.variants
    ]
    heads = ("What-if", "peak", "change", "device", *(f"most, {of}" for of in _kinds(report)))
    return [table("lrrl" + "r" * len(_kinds(report)), rows, heads)]


def _kinds(report: MemoryReport) -> tuple[str, ...]:
    return tuple(dict.fromkeys(room.of for each in report.variants for room in each.rooms))


def _largest(variant: Variant, of: str) -> str:
    room = next((room for room in variant.rooms if room.of == of), None)
    if room is None:
        return ""
    return f"{room.times:,.1f} x" if room.largest is None else f"{room.largest:,}"


@json_keys.register(SnapshotReport)
def _snapshot_keys(report: SnapshotReport) -> dict[str, Any]:
    return {
        "source": report.source,
        "devices": [
            {
                "device": each.device,
                "allocated_gb": _gb(each.allocated),
                "reserved_gb": _gb(each.reserved),
                "fragmentation_gb": _gb(each.fragmentation),
                "most_reserved_gb": _gb(each.most_reserved),
                "held_all_along_gb": _gb(each.least),
                "changes": each.changes,
            }
            for each in report.devices
        ],
    }


@text_blocks.register(SnapshotReport)
def _snapshot_blocks(report: SnapshotReport) -> Blocks:
    rows = [
        (
            f"device {each.device}",
            *map(size, (each.allocated, each.reserved, each.fragmentation, each.least)),
            f"{each.changes:,}",
        )
        for each in report.devices
    ]
    heads = ("At the peak", "allocated", "reserved", "not handed out", "held all along", "changes")
    return [heading(f"Snapshot {report.source}"), table("lrrrrr", rows, heads)]
