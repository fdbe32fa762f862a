"""Shapes and memory events for a window that was timed without them.

Recording shapes costs about as much again as recording the events, and on a CPU its many small
allocations keep the heap from reusing large blocks: steps grow by up to half. So a window is timed
without shapes, and one more step, not timed, is recorded with them and with what the allocator
does. Both are Kineto JSON files; operators are paired step by step.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from foretrace.tracer.recording.memory_events import move_memory_events
from foretrace.tracer.recording.profiler_window import STEP_RANGE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COPIED = ("Input Dims", "Input type", "flops")


def add_shapes(timed: Path, shaped: Path, counted: list[tuple[str, int, int]]) -> int:
    """Copy shapes and flops of the last step in *shaped* to every step in *timed*, in place.

    Its memory events go to the last step of *timed*.

    Parameters
    ----------
    timed, shaped
        Kineto JSON files of the same job.
    counted
        (operator, start in ns, FLOP) of operators in *shaped*, as torch counts them.

    Returns
    -------
    int
        Operators of *timed* for which no counterpart was found; they stay without shapes.
    """
    recording = json.loads(timed.read_text("utf-8"))
    model = json.loads(shaped.read_text("utf-8"))
    _put_flops(model, counted)
    steps = list(_steps(model))
    if not steps:
        return 0
    unmatched, pairs = 0, []
    around, twins = steps[-1]
    for span, step in _steps(recording):
        pairs = list(_pair_events(step, twins))
        for event, twin in pairs:
            if twin is None:
                unmatched += 1
                continue
            args, others = event.setdefault("args", {}), twin.get("args", {})
            args.update({key: others[key] for key in COPIED if key in others})
        pairs.append((span, around))
    recording["traceEvents"].extend(move_memory_events(model["traceEvents"], pairs))
    timed.write_text(json.dumps(recording), "utf-8")
    return unmatched


def _put_flops(recording: dict[str, Any], counted: list[tuple[str, int, int]]) -> None:
    """Write what torch counted into the operators; the JSON does not say it."""
    base = int(recording.get("baseTimeNanoseconds", 0))
    by_name: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for name, start, flop in counted:
        by_name[name].append((start - base, flop))
    operators: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in _operators(recording):
        if event["name"] in by_name:
            operators[event["name"]].append(event)
    for name, events in operators.items():
        flops = dict(by_name[name])
        near = sorted(flops)
        for event in events:
            start = round(event["ts"] * 1000)
            closest = min(near, key=lambda stamp: abs(stamp - start))
            if abs(closest - start) <= 1_000:  # noqa: PLR2004 - the JSON rounds to ns, old ones to us
                event.setdefault("args", {})["flops"] = flops[closest]


def _operators(recording: dict[str, Any]) -> list[dict[str, Any]]:
    operators = [
        e for e in recording["traceEvents"] if e.get("ph") == "X" and e.get("cat") == "cpu_op"
    ]
    return sorted(operators, key=lambda e: (e["ts"], -e["dur"]))


def _steps(recording: dict[str, Any]) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Yield the range of each step and its operators, in order of start."""
    ranges = [
        e
        for e in recording["traceEvents"]
        if e.get("ph") == "X" and str(e.get("name", "")).startswith(STEP_RANGE)
    ]
    operators = _operators(recording)
    for span in sorted(ranges, key=lambda e: e["ts"]):
        begin, end = span["ts"], span["ts"] + span["dur"]
        step = [e for e in operators if begin <= e["ts"] < end]
        if step:
            yield span, step


def _pair_events(
    step: list[dict[str, Any]], model: list[dict[str, Any]]
) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Pair the n-th operator of each name with its n-th in *model*, where both have as many."""
    twins: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in model:
        twins[event["name"]].append(event)
    mine: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in step:
        mine[event["name"]].append(event)
    for name, events in mine.items():
        matches = twins[name] if len(twins[name]) == len(events) else [None] * len(events)
        yield from zip(events, matches, strict=True)
