"""Several processes in one file, merged by a tool, are several ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from foretrace.errors import TraceError
from foretrace.tracer.readers.kineto.read import read_kineto
from tests.support.recordings.bent import Event, base, text

if TYPE_CHECKING:
    from collections.abc import Callable

    from foretrace.tracer.trace import Trace


def merge(*changes: Callable[[Event], None]) -> Trace:
    """Read a file that holds the base trace once per change, each event changed by it."""
    events = []
    for change in changes:
        for event in base()["traceEvents"]:
            change(event)
            events.append(event)
    return read_kineto(text({"traceEvents": events}), "merged.json")


def label(name: str) -> Callable[[Event], None]:
    """Return a change that puts a label before every process id."""
    return lambda event: event.update(pid=f"{name} {event['pid']}")


def offset(rank: int, *, correlation: int = 0, named: bool = False) -> Callable[[Event], None]:
    """Return a change that moves process ids, and correlations, by rank."""

    def change(event: Event) -> None:
        event["pid"] += 1000 * rank
        if "correlation" in event["args"]:
            event["args"]["correlation"] += correlation * rank
        if named:
            event["args"]["rank"] = rank

    return change


def count(trace: Trace) -> dict[int, int]:
    """Return the number of kernels of every rank."""
    kernels = trace.events[trace.events["kind"] == "kernel"]
    return dict(kernels["rank"].value_counts().sort_index())


def test_labels_tell_the_ranks() -> None:
    """The label of a device is that of its host; its number is the rank."""
    trace = merge(label("[TP01]"), label("[TP00]"))

    assert count(trace) == {0: 12, 1: 12}
    assert trace.meta.ranks == (0, 1)
    assert trace.meta.warnings == {"unaligned_ranks": 2, "several_processes": 2}
    assert trace.meta.source == "merged.json"


def test_labels_of_several_numbers_are_ranked_in_order() -> None:
    """Data-parallel and tensor-parallel rank say the order only."""
    trace = merge(label("[DP01-TP00]"), label("[DP00-TP01]"), label("[DP00-TP00]"))

    assert count(trace) == {0: 12, 1: 12, 2: 12}


def test_ranks_among_the_arguments() -> None:
    """A tool that writes the rank of every event."""
    trace = merge(offset(0, named=True), offset(3, named=True))

    assert count(trace) == {0: 12, 3: 12}


def test_correlations_lead_to_the_process() -> None:
    """No label, no rank: the call that launched a kernel is of one process only."""
    trace = merge(offset(0), offset(1, correlation=100))

    assert count(trace) == {0: 12, 1: 12}
    assert trace.meta.warnings["unknown_rank"] == 2


def test_what_cannot_be_told_apart_is_refused() -> None:
    """The same correlations in two processes, and nothing else to go by."""
    with pytest.raises(TraceError, match=r"it holds 2 processes \(9, 1009\)"):
        merge(offset(0), offset(1))


def test_stray_process_id_is_no_rank() -> None:
    """One call of an odd process is no process of its own."""
    root: dict[str, Any] = base()
    next(e for e in root["traceEvents"] if e["cat"] == "cuda_runtime")["pid"] = 77

    assert read_kineto(text(root), "trace.json").meta.ranks == (0,)
