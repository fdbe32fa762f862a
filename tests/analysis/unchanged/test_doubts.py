"""What may be wrong in an answer: said with a code and its place, and never without a cause."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from foretrace.analysis.advise import advise
from foretrace.analysis.prediction import predict
from foretrace.analysis.sensitivity import sensitivity
from foretrace.analysis.unchanged.identity import identity
from foretrace.analysis.unchanged.parting import find_parting
from foretrace.graph.infer.steps.missing_work import DOUBTED_ISSUES
from foretrace.graph.literal import literal
from foretrace.graph.state import Doubt
from foretrace.replaying.replay import replay
from foretrace.tracer.trace import TraceMeta
from foretrace.transforms.edit.provenance import grow_samples
from foretrace.transforms.scenario import parse_scenario
from tests.support.jobs.kernels import device_bound
from tests.support.jobs.simple import gpu_job
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

US = 1_000


def stalling(stall_us: int, **meta: Any) -> Graph:
    """Return two steps: a launch (10 µs), a gemm (30), a copy (20) that begins late, a wait for it.

    The copy begins *stall_us* after the gemm ended, and nothing in the graph tells why.
    """
    step_us = 80 + stall_us
    tasks, edges = [], []
    start: list[int] = []
    length: list[int] = []
    for step in range(2):
        row, begin = 4 * step, step * step_us * US
        tasks += [
            ("cudaLaunchKernel", "launch", 0, 10 * US, "forward"),
            ("cudaStreamSynchronize", "sync", 0, 5 * US, "forward"),
            ("gemm", "kernel", 1, 30 * US, "forward"),
            ("Memcpy DtoH", "memcpy", 1, 20 * US, "forward"),
        ]
        edges += [(row, row + 2, "launch", 20 * US), (row, row + 3, "launch", 20 * US)]
        start += [begin, begin + 10 * US, begin + 20 * US, begin + (50 + stall_us) * US]
        length += [10 * US, (70 + stall_us) * US, 30 * US, 20 * US]
    waits = ["none", "stream", "none", "none"] * 2
    columns = {
        "step": [0] * 4 + [1] * 4,
        "start_ns": start,
        "duration_ns": length,
        "wait": waits,
        "wait_lane": [1 if each == "stream" else -1 for each in waits],
        "return_ns": [10 * US if each == "stream" else 0 for each in waits],
    }
    return literal(
        tasks,
        edges,
        columns=columns,
        wrap=True,
        measured_step_ns=float(step_us * US),
        meta=TraceMeta(format="kineto", source="literal", **meta),
    )


def codes(graph: Graph, *texts: str) -> list[str]:
    """Return the doubts about a prediction."""
    return [doubt.code for doubt in predict(graph, parse_scenario(texts)).doubts]


def test_what_a_replay_explains_is_not_doubted() -> None:
    """Without the stall recording and replay are the same."""
    graph = stalling(0)

    assert identity(graph).error == 0
    assert find_parting(replay(graph)) is None
    assert codes(graph, "faster_kernels(speedup=2)") == []


def test_a_stall_that_nothing_explains_is_named_with_its_place() -> None:
    """60 µs of a step, before the copy; the call that waits for it is as late, and not to blame."""
    (doubt,) = identity(stalling(60)).doubts

    assert doubt.code == "replay-off"
    assert doubt.place == "step 1 of the window, stream 8 (compute), before Memcpy DtoH"
    assert "is -42.9% off the measured step" in doubt.text
    assert "the device is idle for 0.060 ms before Memcpy DtoH" in doubt.text
    assert "0.060 ms of a step" in doubt.text
    assert "quiet machine" not in doubt.text


def test_a_stall_that_only_one_step_has_is_found_in_it() -> None:
    """Shares of a step are over all of them."""
    graph = stalling(60)
    tasks = graph.tasks.copy()
    tasks.loc[4:, "start_ns"] -= 60 * US
    tasks.loc[3, "start_ns"] -= 60 * US
    tasks.loc[1, "duration_ns"] -= 60 * US
    graph = replace(graph, tasks=tasks, measured_step_ns=110.0 * US)

    parting = find_parting(replay(graph))

    assert parting is not None
    assert (parting.task, parting.is_recorded) == (7, True)
    assert (parting.largest_ns, parting.step_ns) == (60 * US, 30 * US)


def test_a_wait_that_did_not_happen_is_named_with_what_it_waits_for() -> None:
    """The replay lets the copy wait 100 µs for its launch, in the recording it came after 40."""
    graph = stalling(0)
    lag = graph.edges["lag_ns"].mask(
        (graph.edges["kind"] == "launch") & graph.edges["dst"].isin([3, 7]), 110 * US
    )
    graph = replace(graph, edges=graph.edges.assign(lag_ns=lag.astype("int64")))

    (doubt,) = identity(graph).doubts

    assert "is +75.0% off" in doubt.text
    assert "no answer from it can be trusted" in doubt.text
    assert "Memcpy DtoH waits 0.060 ms longer for cudaLaunchKernel (launch, literal)" in doubt.text
    assert doubt.place.endswith("before Memcpy DtoH")


@pytest.mark.parametrize(("shorter_us", "is_noise"), [(140, False), (60, True)])
def test_a_quiet_machine_is_asked_for_where_noise_is_the_cause(
    shorter_us: int, *, is_noise: bool
) -> None:
    """Steps without the profiler that differ by more than the replay is off, explain it."""
    steps_ns = (shorter_us * US, (280 - shorter_us) * US) * 2

    (doubt,) = identity(stalling(60, unprofiled_step_ns=steps_ns)).doubts

    assert ("record again on a quiet machine" in doubt.text) == is_noise
    assert ("stream 8" in doubt.place) == (not is_noise)


def test_steps_that_take_longer_without_the_profiler_are_noise() -> None:
    """A profiler does not make anything faster."""
    doubts = identity(stalling(0, unprofiled_step_ns=(120_000,) * 4)).doubts

    assert [doubt.code for doubt in doubts] == ["replay-off"]
    assert "can only be noise: record again on a quiet machine" in doubts[0].text


def test_steps_that_the_profiler_slows_too_much_are_no_noise() -> None:
    """What helps is to record less of each event."""
    (doubt,) = identity(stalling(0, unprofiled_step_ns=(50_000,) * 4)).doubts

    assert "more than its cost per event explains: record without shapes" in doubt.text


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        ({"world_size": 8}, "1 of 8 ranks are recorded: load the others"),
        ({"warnings": {"launch_without_kernel": 7}}, "7 launches have no device task"),
        ({}, "record every process that uses the device"),
    ],
)
def test_what_is_missing_is_said(changes: dict[str, Any], advice: str) -> None:
    """Whatever the recording lacks may be the cause; else, what may have used the device."""
    assert advice in identity(stalling(60, **changes)).doubts[0].text


def test_a_step_to_be_named_is_asked_for_where_no_place_tells_why() -> None:
    """A recording without any stall, and steps that somebody guessed to be longer."""
    guess = Doubt("steps-guessed", "a guess")
    graph = replace(device_bound(), measured_step_ns=35_000.0).with_state(doubts=(guess,))

    assert "give --step" in identity(graph).doubts[0].text


def test_the_page_explains_every_code() -> None:
    """docs/reading-the-numbers.md is written by hand."""
    page = (ROOT / "docs" / "reading-the-numbers.md").read_text("utf-8")
    folders = [ROOT / name for name in ("graph", "transforms", "foretrace")]
    found = {*DOUBTED_ISSUES.values()}
    for path in (path for folder in folders for path in folder.rglob("*.py")):
        found.update(re.findall(r"\bDoubt\(\s*\"([a-z-]+)\"", path.read_text("utf-8")))

    assert "replay-off" in found
    assert sorted(code for code in found if f"`{code}`" not in page) == []


def test_doubts_of_the_recording_are_those_of_every_answer() -> None:
    """Whichever command gives it."""
    guess = Doubt("steps-guessed", "a guess")
    graph = gpu_job().with_state(doubts=(guess,))

    assert guess in identity(graph).doubts
    assert guess in predict(graph, parse_scenario(["faster_host(speedup=2)"])).doubts
    assert guess in advise(graph).doubts
    assert all(guess in each.prediction.doubts for each in advise(graph).single)
    assert guess in sensitivity(graph).doubts


@pytest.mark.parametrize(
    ("warnings", "code"),
    [
        ({"cpu_taken_away": 20}, "disturbed"),
        ({"cpu_taken_away": 2}, None),
        ({"truncated": 1}, "data-lost"),
        ({"unreadable_events": 1}, "data-lost"),
        ({"duplicate_events": 9}, None),
    ],
)
def test_what_a_reader_lost_is_doubted(warnings: dict[str, int], code: str | None) -> None:
    """And a machine that others had; not what was mended."""
    found = codes(stalling(0, warnings=warnings), "faster_kernels(speedup=2)")

    assert found == ([code] if code else [])


@pytest.mark.parametrize(("workers", "is_doubted"), [(1, True), (64, False)])
def test_many_workers_may_be_many_times_as_fast(workers: int, *, is_doubted: bool) -> None:
    """Forty times the samples in the same time is a slip on one worker, and not on 64."""

    def change(graph: Graph) -> Graph:
        meta = replace(graph.meta, world_size=workers)
        return grow_samples(replace(graph, meta=meta), 40)

    (*doubts,) = predict(gpu_job(), [change]).doubts

    assert ("many-times" in {doubt.code for doubt in doubts}) == is_doubted
