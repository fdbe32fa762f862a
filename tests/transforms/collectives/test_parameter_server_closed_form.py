"""Closed forms: Cynthia's times and spotDNN's bandwidth."""

from __future__ import annotations

import pytest

from foretrace.transforms.collectives.parameter_server_closed_form import (
    fair_share_times,
    in_step_time,
    meeting_share,
    overlapped_time,
    own_pace_time,
    time_at_own_pace,
    time_in_step,
    worker_bandwidth,
)


def test_overlap_is_the_fluid_limit() -> None:
    """All communication hides behind computing, or the other way round."""
    assert in_step_time(10, 4, 3) == 17
    assert overlapped_time(10, 4, 3) == 10
    assert overlapped_time(5, 4, 3) == 7


def test_workers_at_their_own_pace_meet_the_bottleneck() -> None:
    """Three workers are as fast as three; the fourth and fifth wait for the server's link."""
    steps = [own_pace_time(14, 7, 7, workers, serving=7) for workers in (1, 4, 5)]

    assert steps == [28, 28, 35]
    assert [workers / step for workers, step in zip((1, 4, 5), steps, strict=True)] == [
        1 / 28,
        1 / 7,
        1 / 7,
    ]


def test_links_that_are_shared_evenly() -> None:
    """Alone a worker takes its own time; many keep the slowest link busy all the time."""
    own, many = (fair_share_times(100, [10, 20], workers) for workers in (1, 1_000))

    assert own == [10, 20]
    assert 100 + sum(many) == pytest.approx(1_000 * 20, rel=1e-3)


def test_training_times() -> None:
    """In step 100 steps of 2; three workers at their own pace share 100 steps."""
    assert time_in_step(100, 2.0) == 200
    assert time_at_own_pace(100, [2.0, 2.0, 4.0]) == 80


MEGABYTES, WORKER, SERVERS = 11.5, 142.0, 1200.0
"""Parameters of ResNet-110, and MB per second of a worker and of the servers, as published."""
G4DN_S = 1024 / 750 - (2 * MEGABYTES / WORKER - 2 * MEGABYTES / 10_000)
"""What a g4dn.4xlarge computes per step: its batch over its speed, less its transfers alone."""


def test_workers_of_spotdnn_meet_at_the_servers() -> None:
    """P(9) = 0.48: for that share of the time nine workers have 1200 / 9 each, else 142."""
    meeting = meeting_share(9, slope=0.8, offset=1.92)
    bandwidth = worker_bandwidth(WORKER, SERVERS, 9, meeting)
    step = G4DN_S + 2 * MEGABYTES / bandwidth

    assert f"{meeting:.2f}" == "0.48"
    assert f"{bandwidth:.2f}" == "137.84"
    assert f"{time_at_own_pace(1, [step] * 9):.6f}" == "0.152502"


def test_few_workers_of_spotdnn_do_not_meet() -> None:
    """The published P(4) is -0.32, which is no probability; many meet all the time."""
    assert [meeting_share(n, slope=0.8, offset=1.92) for n in (1, 4, 5, 100)] == [0, 0, 0, 1]
    assert worker_bandwidth(WORKER, SERVERS, 4, meeting=0.0) == WORKER
    assert worker_bandwidth(WORKER, SERVERS, 10, meeting=1.0) == SERVERS / 10
