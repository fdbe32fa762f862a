"""What an interval leaves open is named with the cheapest thing that settles it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from foretrace.analysis.advise import advise
from foretrace.analysis.prediction import Prediction, predict
from foretrace.analysis.settling import Settling, gain_range, is_undecided, settle
from foretrace.graph.state import Doubt
from tests.support.jobs.simple import cpu_job, gpu_job
from tests.support.recordings.calibrations import calibration

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

MIN = 60_000_000_000


def asked(text: str, low: float, high: float) -> Prediction:
    """Return the answer to *text* whose step of 1 min becomes *low* to *high* min."""
    found = predict(gpu_job(), "faster_kernels(speedup=2)")
    measured = replace(found.measured, step_ns=float(MIN))
    ends = (low * MIN, high * MIN)
    return replace(found, scenario=(text,), measured=measured, interval_ns=ends)


def imported(graph: Graph) -> Graph:
    """Return *graph* as recorded by somebody else's profiler, which times no plain steps."""
    return replace(graph, meta=replace(graph.meta, unprofiled_step_ns=()))


def recorded(graph: Graph) -> Graph:
    """Return *graph* as a recording of the recorder."""
    return replace(graph, meta=replace(graph.meta, unprofiled_step_ns=(1_800_000,)))


def test_an_interval_with_both_ends_on_one_side_is_decided() -> None:
    """0.5 to 0.9 of the step is a gain of 1.1 to 2, whatever it is."""
    sure, open_ = asked("amp", 0.5, 0.9), asked("amp", 0.9, 1.1)

    assert gain_range(sure) == pytest.approx((1 / 0.9, 2))
    assert (is_undecided(sure), is_undecided(open_)) == (False, True)
    assert settle(gpu_job(), [sure]) == ()


@pytest.mark.parametrize(
    ("text", "graph", "action"),
    [
        ("cuda_graphs", recorded(gpu_job()), "run 50 steps with it and 50 without"),
        ("amp", imported(gpu_job()), "run 50 steps with it and 50 without"),
        ("amp", recorded(gpu_job()), "time its operators with foretrace calibrate"),
        ("batch_size(n=64)", imported(gpu_job()), "record it once at that batch size"),
        ("batch_size(n=64)", recorded(gpu_job()), "time its operators with foretrace calibrate"),
    ],
)
def test_the_cheapest_thing_that_can_be_done_is_named(text: str, graph: Graph, action: str) -> None:
    """Only what is recorded here can be timed; only a batch size can be recorded anew."""
    (found,) = settle(graph, [asked(text, 0.9, 1.1)])

    assert (found.scenarios, found.action) == ((text,), action)


def test_what_was_timed_already_is_tried() -> None:
    """A calibration that leaves it open will do so again."""
    graph = recorded(cpu_job()).with_state(calibration=calibration([("aten::mm", "[]", 100.0)]))
    (found,) = settle(graph, [asked("amp", 0.9, 1.1)])

    assert found.action.startswith("run 50 steps")


def test_a_busy_machine_is_recorded_again() -> None:
    """Neither a trial nor a calibration tells more from a recording that others disturbed."""
    doubts = (Doubt("drift", "the steps drift"),)
    (found,) = settle(recorded(gpu_job()), [replace(asked("amp", 0.9, 1.1), doubts=doubts)])

    assert found.action == "record again on a quiet machine"


def test_minutes_are_those_of_the_steps_and_of_starting_twice() -> None:
    """50 steps of a minute each before, and 50 as long as predicted after."""
    open_ = asked("cuda_graphs", 0.9, 1.1)
    (found,) = settle(gpu_job(), [open_])

    assert found.minutes == round(1 + 50 * (1 + open_.predicted_ns / MIN))
    assert str(found) == (
        "cuda_graphs: does it gain at all? run 50 steps with it and 50 without "
        f"(about {found.minutes} min)"
    )


def test_candidates_that_cannot_be_told_apart_are_named_together() -> None:
    """The best may be the second; the third is clearly behind."""
    ranked = [asked("a", 0.4, 0.6), asked("b", 0.5, 0.7), asked("c", 0.8, 0.9)]
    (found,) = settle(gpu_job(), ranked)

    assert (found.scenarios, found.question) == (("a", "b"), "which is best?")
    assert str(found).endswith("min each)")


def test_advice_brings_it_along() -> None:
    """Of what should save time; a prediction without an open end needs nothing."""
    found = advise(gpu_job(steps=3))

    assert all(isinstance(each, Settling) for each in found.settling)
    assert not any("checkpoint" in text for each in found.settling for text in each.scenarios)
