"""Streams run in order: what outlasts the start of the next task is cut there."""

from __future__ import annotations

from typing import Any

import pytest

from foretrace.tracer.readers.kineto.read import read_kineto
from tests.support.recordings.bent import base, kernels, text


def lengths(root: dict[str, Any]) -> list[float]:
    """Return how long the kernels last, in µs, by start."""
    events = read_kineto(text(root), "trace.json").events
    return [ns / 1000 for ns in events.loc[events["kind"] == "kernel", "duration_ns"].tolist()]


def overlong(place: int, length: float, **arguments: Any) -> dict[str, Any]:
    """Return the base trace, a kernel of 9 µs every 10, with one of them longer."""
    root = base()
    for event in kernels(root["traceEvents"]):
        event["args"].update(arguments)
    kernels(root["traceEvents"])[place]["dur"] = length
    return root


@pytest.mark.parametrize("length", [40.0, 500.0, 31_000.0, 2_000_000.0])
def test_overlong_kernel_is_cut_at_the_next_start(length: float) -> None:
    """However long, and it is counted."""
    root = overlong(2, length)

    assert lengths(root) == [9, 9, 10, 9, 9, 9] + [9] * 6
    assert read_kineto(text(root), "t.json").meta.warnings == {"absurd_duration": 1}


def test_overlap_of_a_few_microseconds_stays() -> None:
    """Rounding, and kernels that begin while the one before them drains."""
    assert lengths(overlong(2, 14.0))[2] == 14


def test_last_kernel_of_a_step_ends_before_its_synchronisation_returns() -> None:
    """The next kernel starts 50 µs later, the synchronisation returned 13 µs after its start."""
    assert lengths(overlong(5, 31_000.0))[5] == 13


def test_kernel_ends_before_its_synchronisation_returns() -> None:
    """It reaches the next kernel by 5 µs only, and the synchronisation's return by 32."""
    root = overlong(5, 45.0)
    assert lengths(root)[5] == 13

    for event in kernels(root["traceEvents"])[6:]:
        event["args"]["device"] = 1
    assert lengths(root)[5] == 45


@pytest.mark.parametrize(("stream", "length"), [(7, 13.0), (8, 40.0)])
def test_synchronisation_of_the_only_stream_cuts(stream: int, length: float) -> None:
    """With two streams the call names none of them: the next kernel's start is all that cuts."""
    root = overlong(5, 31_000.0)
    for event in root["traceEvents"]:
        if event["name"] == "cudaDeviceSynchronize":
            event["name"] = "cudaStreamSynchronize"
    kernels(root["traceEvents"])[0]["args"]["stream"] = stream

    assert lengths(root)[5] == pytest.approx(length, abs=10)


@pytest.mark.parametrize(
    "arguments", [{"graph node id": 7}, {"correlation": 1}], ids=["node", "shared call"]
)
def test_graphs_overlap(arguments: dict[str, int]) -> None:
    """Branches of a CUDA graph share a stream in a recording."""
    assert lengths(overlong(2, 500.0, **arguments))[2] == 500


def test_streams_of_two_contexts_overlap() -> None:
    """A stream number belongs to its context; the next kernel of the same one starts 20 µs on."""
    root = overlong(2, 400.0)
    for place, event in enumerate(kernels(root["traceEvents"])):
        event["args"]["context"] = place % 2

    assert lengths(root)[2] == 20


def test_twins_are_no_overlap() -> None:
    """Two kernels that start together are kept as they are."""
    root = base()
    first, second, *_ = kernels(root["traceEvents"])
    second.update(ts=first["ts"], dur=300.0)
    first["dur"] = 300.0

    assert 300 in lengths(root)
