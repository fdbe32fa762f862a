"""Text and JSON of what is in a trace; importing this registers them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foretrace.analysis.rank_pace import pace_setter
from foretrace.analysis.summary import Summary
from foretrace.report.dispatch import json_keys, text_blocks
from foretrace.report.memory import memory_keys, memory_words
from foretrace.report.number_format import duration, ms, number, places, share, size
from foretrace.report.prediction import identity_facts, identity_keys, identity_path
from foretrace.report.text_layout import (
    CAUTION,
    Blocks,
    aside,
    doubt_list,
    fact_table,
    heading,
    note_list,
    table,
)
from foretrace.report.utilisation import utilisation_blocks, utilisation_keys
from foretrace.transforms.costs.kernel_names import OTHER
from foretrace.util.short_name import short

if TYPE_CHECKING:
    from foretrace.analysis.summary import Steps

Fact = tuple[str, str, str]


@json_keys.register(Summary)
def _summary_keys(report: Summary) -> dict[str, Any]:
    steps = report.steps
    return {
        "source": report.source,
        "format": report.format,
        "devices": list(report.devices),
        "ranks": list(report.ranks),
        "world_size": report.world_size,
        "framework": report.framework,
        "batch_size": report.batch_size,
        "span_ms": ms(report.span_ns),
        "events": report.events,
        "device_busy_ms": ms(report.busy_ns),
        "device_classes_ms": {name: ms(ns) for name, ns in report.classes_ns.items()},
        "unclassified_ms": {name: ms(ns) for name, ns in report.unclassified_ns.items()},
        "kernels": [
            {"name": name, "ms": ms(ns), "count": count}
            for name, (ns, count) in report.kernels_ns.items()
        ],
        "steps": steps.count if steps else None,
        "steps_problem": report.steps_problem,
        "phases_ms": {
            name: {"host": ms(host), "device": ms(device)}
            for name, (host, device) in (steps.phases_ns.items() if steps else ())
        },
        "memory_gb": _memory_keys(steps) if steps else None,
        "utilisation": utilisation_keys(steps.utilisation) if steps else None,
        **_pace_keys(steps),
        **_step_keys(report),
        "warnings": _warnings(report),
    }


def _step_keys(report: Summary) -> dict[str, Any]:
    if report.steps:
        return identity_keys(report.steps.identity)
    unknown = dict.fromkeys(("measured_step_ms", "replayed_step_ms", "error_pct"))
    return {"doubts": [], **unknown}


def _warnings(report: Summary) -> list[str]:
    return [*report.warnings, *(report.steps.identity.warnings if report.steps else ())]


def _pace_keys(steps: Steps | None) -> dict[str, Any]:
    """Return who of several ranks waits for whom; nothing where there is one rank."""
    if steps is None or not steps.paces:
        return {}
    each = [
        {
            "rank": one.rank,
            "begins_ms": ms(one.begins_ns),
            "waits_ms": ms(one.waits_ns),
            "collectives": one.meets,
            "last_at": one.last_at,
            "awaited_ms": ms(one.awaited_ns),
            "path_ms": ms(one.path_ns),
        }
        for one in steps.paces
    ]
    return {"pace": pace_setter(steps.paces), "pace_of_ranks": each}


def _memory_keys(steps: Steps) -> dict[str, Any] | None:
    if steps.memory is None:
        return None
    room = None if steps.memory_bytes is None else round(steps.memory_bytes / 1e9, 6)
    return {**memory_keys(steps.memory), "device": room}


@text_blocks.register(Summary)
def _summary_blocks(report: Summary) -> Blocks:
    return [
        heading(f"{report.source} ({report.format})"),
        *doubt_list(report.steps.identity.doubts if report.steps else ()),
        fact_table(*_recording(report), *_steps(report)),
        *_parts(report.steps),
        *_device_time(report),
        *note_list("Warnings", _warnings(report), CAUTION),
    ]


def _recording(report: Summary) -> list[Fact]:
    """Return what was recorded, line by line."""
    devices = ", ".join(dict.fromkeys(report.devices)) or "no accelerator named"
    counts = ", ".join(f"{count:,} {kind}" for kind, count in report.events.items())
    facts = [
        ("device", "", devices),
        ("ranks", f"{len(report.ranks)}", _ranks(report)),
        ("recorded", duration(report.span_ns, places(report.span_ns)), counts or "nothing"),
    ]
    return [*facts, ("framework", "", report.framework)] if report.framework else facts


def _ranks(report: Summary) -> str:
    """Say which ranks of the job were recorded."""
    first, last = min(report.ranks, default=0), max(report.ranks, default=0)
    is_range = report.ranks == tuple(range(first, last + 1))
    which = f"{first} to {last}" if is_range and last > first else ", ".join(map(str, report.ranks))
    of = f", of {report.world_size} in the job" if report.world_size else ""
    word = "number" if len(report.ranks) == 1 else "numbers"
    return f"recorded: {word} {which}{of}"


def _steps(report: Summary) -> list[Fact]:
    steps = report.steps
    if steps is None:
        return [("steps", "none", str(report.steps_problem))]
    return [
        ("steps", f"{steps.count}", "in the window that is replayed"),
        *identity_facts(steps.identity),
        *_memory(steps),
    ]


def _memory(steps: Steps) -> list[Fact]:
    memory = steps.memory
    if memory is None:
        return []
    room = "" if steps.memory_bytes is None else f"of {size(steps.memory_bytes)} at the peak: "
    return [("memory", size(memory.bytes), f"{room}{memory_words(memory)} ({memory.source})")]


def _parts(steps: Steps | None) -> Blocks:
    """Return where the time of a step goes."""
    if steps is None:
        return []
    decimals = places(steps.identity.measured.step_ns)
    rows = [
        (name, number(host, decimals), number(device, decimals))
        for name, (host, device) in steps.phases_ns.items()
    ]
    return [
        table("lrr", rows, ("Work per step by phase, ms", "host", "device")),
        aside("host: the traced calls alone, without waiting and the time between them"),
        *identity_path(steps.identity),
        *_paces(steps, decimals),
        *utilisation_blocks(steps.utilisation, decimals),
    ]


def _paces(steps: Steps, decimals: int) -> Blocks:
    if not steps.paces:
        return []
    rows = [
        (
            f"rank {one.rank}",
            *(number(ns, decimals) for ns in (one.begins_ns, one.waits_ns, one.awaited_ns)),
            f"{one.last_at} of {one.meets}",
        )
        for one in steps.paces
    ]
    heads = ("Ranks, ms per step", "begins", "waits", "awaited", "last at")
    return [table("lrrrr", rows, heads), aside(str(pace_setter(steps.paces)), "")]


def _unclassified(report: Summary) -> Blocks:
    """Name the kernels whose class is unknown, and say which share of the time they are."""
    if not report.unclassified_ns:
        return []
    part = share(report.classes_ns[OTHER] / report.busy_ns)
    names = ", ".join(short(name) for name in report.unclassified_ns)
    return [aside(f"other: kernels of no known class, {part} of this time: {names}")]


def _device_time(report: Summary) -> Blocks:
    """Return what the devices did in the whole recording."""
    if not report.busy_ns:
        return []
    decimals = places(report.busy_ns)
    classes = [
        (name, duration(ns, decimals), share(ns / report.busy_ns))
        for name, ns in report.classes_ns.items()
    ]
    kernels = [
        (duration(ns, decimals), f"{count:,} x", short(name))
        for name, (ns, count) in report.kernels_ns.items()
    ]
    return [
        heading("Device time, whole recording"),
        table("lrr", classes),
        *_unclassified(report),
        heading("Longest kernels, whole recording"),
        table("rrl", kernels),
    ]
