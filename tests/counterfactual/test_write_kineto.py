"""What the recording of a window keeps, and what it leaves out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.counterfactual.program import HostWork, Launch, Program, SyncStream, program
from tests.counterfactual.simulate import simulate
from tests.counterfactual.write_kineto import Style, recording

STYLE = Style(first=4, steps=2)


def recorded(asked: Program, style: Style = STYLE) -> list[dict[str, Any]]:
    """Return the events of a recording of *asked*."""
    ran = simulate(asked, 8, recorded=style.window)
    return list(recording(ran.hosts[0], style)["traceEvents"])


def correlations(events: list[dict[str, Any]], category: str, name: str = "") -> list[int]:
    """Return the correlations of the events of *category* that are called something like *name*."""
    found = [event for event in events if event.get("cat") == category and name in event["name"]]
    return [event["args"]["correlation"] for event in found]


def test_work_launched_before_the_window_has_no_call() -> None:
    """The device is four kernels behind: the first ones of the window are an earlier step's."""
    events = recorded(program(Launch("a", 100_000), HostWork(50_000)))
    launches = correlations(events, "cuda_runtime", "Launch")
    kernels = correlations(events, "kernel")

    assert len(launches) == 2
    assert kernels[-2:] == launches
    assert len(kernels) > 2


def test_cut_end_loses_what_still_runs() -> None:
    """Without the profiler's own wait, the last kernels are missing."""
    asked = program(Launch("a", 100_000), HostWork(50_000))
    events = recorded(asked, replace(STYLE, drained=False))

    assert len(correlations(events, "cuda_runtime", "Launch")) == 2
    assert not set(correlations(events, "kernel")) & set(correlations(events, "cuda_runtime"))


def test_final_wait_is_the_profilers() -> None:
    """It lies behind the last step."""
    events = recorded(program(Launch("a", 100_000), HostWork(50_000)))
    final = next(event for event in events if event["name"] == "cudaDeviceSynchronize")
    last = next(event for event in events if event["name"] == "ProfilerStep#5")

    assert final["ts"] > last["ts"] + last["dur"]


@pytest.mark.parametrize("sync_events", [True, False])
def test_sync_events_are_optional(sync_events: bool) -> None:  # noqa: FBT001
    """Their call is always there."""
    events = recorded(program(Launch("a", 9_000), SyncStream()), Style(4, 2, sync_events))

    assert len(correlations(events, "cuda_sync")) == (2 if sync_events else 0)
    assert len(correlations(events, "cuda_runtime", "StreamSync")) == 2


def test_old_files_count_whole_microseconds() -> None:
    """Starts and lengths alike."""
    events = recorded(program(Launch("a", 9_123)), replace(STYLE, whole_us=True))

    assert all(isinstance(event["ts"], int) for event in events)
