"""Closed forms: Cynthia's times, Optimus' speeds and what they can be fitted to."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.errors import TransformError
from foretrace.transforms.closed_forms import (
    Surface,
    fair_share_times,
    fit_surface,
    in_step_time,
    overlapped_time,
    own_pace_time,
    time_at_own_pace,
    time_in_step,
)

SYNC = Surface((0.02, 1.5, 0.4, 0.1, 0.05), in_step=True, batch=256)
ASYNC = Surface((3.0, 2.0, 0.5, 0.25), in_step=False)


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


@pytest.mark.parametrize("surface", [SYNC, ASYNC])
def test_speeds_off_the_diagonal_tell_the_terms(surface: Surface) -> None:
    """12 points with 2 % noise predict the whole 6 x 6 grid within 10 %."""
    noise = np.random.default_rng(7).normal(1, 0.02, 12)
    points = [(p, w) for p in (1, 3, 6) for w in (1, 2, 4, 6)]
    speeds = [surface.speed(*each) * n for each, n in zip(points, noise, strict=True)]
    servers, workers = zip(*points, strict=True)
    found = fit_surface(servers, workers, speeds, in_step=surface.in_step, batch=surface.batch)
    grid = [(p, w) for p in range(1, 7) for w in range(1, 7)]

    assert all(term >= 0 for term in found.terms)
    assert max(abs(found.speed(*each) / surface.speed(*each) - 1) for each in grid) < 0.1


def test_as_many_servers_as_workers_tell_nothing() -> None:
    """The trap of Optimus' own measurements: perfect on the diagonal, unknown elsewhere."""
    equal = [1, 2, 3, 4, 6, 8]

    with pytest.raises(TransformError, match="6 points do not tell 4 terms of the speed apart"):
        fit_surface(equal, equal, [ASYNC.speed(n, n) for n in equal], in_step=False)


def test_too_few_points_tell_nothing() -> None:
    """Four points for five terms."""
    with pytest.raises(TransformError, match="4 points do not tell 5 terms"):
        fit_surface([1, 2, 1, 2], [1, 1, 2, 2], [1.0] * 4, in_step=True)


def test_no_term_is_negative() -> None:
    """Speeds that rise with more servers for no reason: the negative term is left out."""
    points = [(p, w) for p in (1, 2, 4) for w in (1, 2, 4)]
    servers, workers = zip(*points, strict=True)
    speeds = [w / (5.0 - 0.5 * p + w) for p, w in points]

    assert fit_surface(servers, workers, speeds, in_step=False).terms[3] == 0
