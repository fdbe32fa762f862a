"""Times in nanoseconds are told, and never taken for microseconds in silence."""

from __future__ import annotations

from typing import Any

import pytest

from foretrace.errors import TraceError
from foretrace.graph.build import build
from foretrace.tracer.readers.kineto.read import read_kineto
from tests.support.recordings.bent import base, host, text


def in_nanoseconds(first: int) -> dict[str, Any]:
    """Return the base trace, with more operators, in nanoseconds from *first* on."""
    root = base(first=0)
    root["traceEvents"] += [host("cpu_op", "aten::add", 200 + 5 * n, 4) for n in range(60)]
    for event in root["traceEvents"]:
        event.update(ts=first + round(event["ts"] * 1000), dur=round(event["dur"] * 1000))
    return root


def test_nanoseconds_since_1970_are_refused() -> None:
    """As microseconds they would lie 55,000 years ahead."""
    with pytest.raises(TraceError, match=r"look like nanoseconds \(such as 17485932"):
        read_kineto(text(in_nanoseconds(1_748_593_201_000_000_000)), "trace.json")


def test_nanoseconds_since_the_machine_started_are_doubted() -> None:
    """No operator of 60 is shorter than a millisecond, if these were microseconds.

    That comes first: what else looks odd, such as waits of 5 ms, may follow from it.
    """
    trace = read_kineto(text(in_nanoseconds(86_400_000_000_000)), "trace.json")

    assert build(trace).state.doubts[0].code == "time-unit"


def test_microseconds_are_not_doubted() -> None:
    """Some call takes a few of them."""
    root = in_nanoseconds(0)
    root["traceEvents"].append(host("cpu_op", "aten::view", 90_000, 2))

    assert "times_in_nanoseconds" not in read_kineto(text(root), "trace.json").meta.warnings


def test_milliseconds_are_doubted() -> None:
    """Half of the operators last 4 ns, if these were microseconds."""
    root = base(first=0)
    root["traceEvents"] += [host("cpu_op", "aten::add", 200 + 5 * n, 4) for n in range(60)]
    for event in root["traceEvents"]:
        event.update(ts=event["ts"] / 1000, dur=event["dur"] / 1000)
    trace = read_kineto(text(root), "trace.json")

    assert "time-unit" in {doubt.code for doubt in build(trace).state.doubts}
