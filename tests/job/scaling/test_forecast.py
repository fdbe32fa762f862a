"""Speed over workers and servers: what a few points tell of all, and which points do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from foretrace.errors import RefusedError
from foretrace.job.scaling.experiment_design import next_points, tells_apart
from foretrace.job.scaling.forecast import (
    extent,
    fit,
    fit_absolute,
    fit_proportional,
    fit_relative,
    grid_up_to,
    in_words,
    leave_each_out,
    next_to_measure,
)
from foretrace.job.scaling.points import Points
from foretrace.job.scaling.surface import Form

if TYPE_CHECKING:
    from foretrace.job.scaling.forecast import Floats, Rule

SYNC, ASYNC = Form(), Form(in_step=False)
TERMS = {
    SYNC: np.array([4.0, 0.5, 0.3, 0.05, 0.05]),
    ASYNC: np.array([3.0, 2.0, 0.5, 0.25]),
}
GRID = grid_up_to(10, 10)
OFF_DIAGONAL = np.flatnonzero(GRID.workers != GRID.servers)
NOISE = 0.02
SEEDS = 200


def measured(form: Form, workers: list[float], servers: list[float], seed: int = 0) -> Points:
    """Return speeds with noise."""
    w, p = np.array(workers, float), np.array(servers, float)
    noise = np.random.default_rng(seed).normal(1, NOISE, len(w))
    return Points(w, p, form.speeds(TERMS[form], w, p) * noise)


def random_points(form: Form, seed: int) -> Points:
    """Return speeds at eight points that have not as many workers as servers."""
    chosen = np.random.default_rng(seed).choice(OFF_DIAGONAL, 8, replace=False)
    return measured(form, list(GRID.workers[chosen]), list(GRID.servers[chosen]), seed)


def grid_errors(form: Form, points: Points, rule: Rule = fit_relative) -> Floats:
    """Return how far off what *rule* makes of *points* is over the grid, relative."""
    return np.abs(rule(points, form)(*GRID) / form.speeds(TERMS[form], *GRID) - 1)


@pytest.mark.parametrize("form", [SYNC, ASYNC])
def test_eight_random_points_tell_the_whole_grid(form: Form) -> None:
    """2 % noise: 3 % on average over 10 x 10 points in most draws, and never far more."""
    means = [grid_errors(form, random_points(form, seed)).mean() for seed in range(SEEDS)]

    assert np.median(means) < 0.02
    assert np.quantile(means, 0.9) < 0.04


@pytest.mark.parametrize("form", [SYNC, ASYNC])
def test_eight_chosen_points_tell_more(form: Form) -> None:
    """Points that are chosen before anything is measured: 3 % in every draw."""
    places = next_to_measure(None, form, GRID, 8, is_noisy=False)
    workers, servers = ([float(each[at]) for each in places] for at in (0, 1))
    means = [
        grid_errors(form, measured(form, workers, servers, seed)).mean() for seed in range(SEEDS)
    ]

    assert np.median(means) < 0.015
    assert max(means) < 0.03


@pytest.mark.parametrize("form", [SYNC, ASYNC])
def test_intervals_hold_the_true_speeds(form: Form) -> None:
    """In about nine of ten cases, at points that were not measured."""
    truth = form.speeds(TERMS[form], *GRID)
    covered = []
    for seed in range(60):
        _, low, high = fit(random_points(form, seed), form).speeds(*GRID).T
        covered.append(((low <= truth) & (truth <= high)).mean())

    assert 0.85 < np.mean(covered) < 0.95


@pytest.mark.parametrize("form", [SYNC, ASYNC])
def test_as_many_servers_as_workers_tell_nothing(form: Form) -> None:
    """The trap of Optimus' own measurements: perfect on the diagonal, unknown elsewhere."""
    equal = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0]
    said = (
        "all 8 points have one ratio of workers to servers, 1, which does not tell the "
        rf"{len(form.terms)} terms of the speed apart; measure at 10 workers and \d servers, "
    )

    with pytest.raises(RefusedError, match=said):
        fit(measured(form, equal, equal), form)


def test_points_that_the_refusal_names_are_enough() -> None:
    """Two more off the diagonal tell the terms apart."""
    equal = [1.0, 2.0, 4.0, 8.0, 10.0]
    places = next_to_measure(measured(SYNC, equal, equal), SYNC, GRID, 2)
    workers, servers = (equal + [float(each[at]) for each in places] for at in (0, 1))

    assert fit(measured(SYNC, workers, servers), SYNC).terms.shape == (5,)


def test_one_number_of_servers_tells_nothing_of_others() -> None:
    """Workers per server go with the workers, and servers are a constant."""
    workers = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0]

    with pytest.raises(RefusedError, match="6 points do not tell the 5 terms of the speed apart"):
        fit(measured(SYNC, workers, [2.0] * 6), SYNC)


def test_as_many_points_as_terms_do_not_show_their_noise() -> None:
    """Five points for five terms: they lie on the surface, whatever their noise."""
    five = measured(SYNC, [1, 10, 1, 10, 5], [1, 1, 10, 10, 2])

    with pytest.raises(RefusedError, match="5 points for 5 terms do not show how much speeds scat"):
        fit(five, SYNC)
    assert fit(five, SYNC, noise=0.02).noise == 0.02


def test_a_job_without_servers_reduces_in_a_ring() -> None:
    """Each of n workers sends (n - 1) / n: Optimus' terms take it for a cost per worker."""
    form = Form(has_servers=False, splits_batch=False)
    workers, ones = np.array([1.0, 2, 4, 8]), np.ones(4)
    points = Points(workers, ones, 1 / (0.5 + 0.4 * (1 - 1 / workers)), has_servers=False)
    at_32 = [
        rule(points, form)(np.array([32.0]), ones[:1])[0] for rule in (fit_relative, fit_absolute)
    ]

    assert fit(points, form).terms == pytest.approx([0.5, 0.9, 0.0])
    assert at_32[0] == pytest.approx(1 / (0.5 + 0.4 * 31 / 32))
    assert at_32[1] < 0.8 * at_32[0]
    assert extent(points).servers.tolist() == [1] * 8


def test_no_term_is_negative() -> None:
    """Speeds that rise with more servers for no reason: the negative term is left out."""
    grid = grid_up_to(4, 4)
    speeds = grid.workers / (5.0 - 0.5 * grid.servers + grid.workers)

    assert fit(Points(*grid, speeds), ASYNC).terms[3] == 0


def test_relative_errors_are_the_better_ones() -> None:
    """A fit to the speeds themselves, where fast points decide, is further off over the grid."""
    means = {
        rule: np.mean([grid_errors(ASYNC, random_points(ASYNC, seed), rule) for seed in range(60)])
        for rule in (fit_relative, fit_absolute)
    }

    assert means[fit_relative] < 0.95 * means[fit_absolute]


def test_rules_are_judged_at_points_they_do_not_know() -> None:
    """Both fits come close; a speed in proportion to the workers does not."""
    points = random_points(SYNC, 3)
    errors = {
        rule: np.median(np.abs(leave_each_out(points, SYNC, rule)))
        for rule in (fit_relative, fit_absolute, fit_proportional)
    }

    assert errors[fit_relative] < 0.06
    assert errors[fit_proportional] > 5 * errors[fit_relative]


def test_points_that_alone_tell_something_are_not_left_out() -> None:
    """With one point fewer off the diagonal nothing could be fitted."""
    points = measured(ASYNC, [1, 2, 4, 8, 8, 1], [1, 2, 4, 8, 1, 8])

    assert len(leave_each_out(points, ASYNC, fit_relative)) == 4


def test_of_very_many_points_some_are_left_out_in_turn() -> None:
    """A thousand speeds: a hundred are foretold from the others."""
    chosen = np.random.default_rng(1).choice(OFF_DIAGONAL, 1_000)
    points = measured(SYNC, list(GRID.workers[chosen]), list(GRID.servers[chosen]))

    assert len(leave_each_out(points, SYNC, fit_proportional)) == 100
    assert fit(points, SYNC).noise == pytest.approx(NOISE, rel=0.1)


def test_the_next_points_lower_the_uncertainty_most() -> None:
    """Of all single points, the first one named leaves the least variance over the grid."""
    rows = np.array([[1.0, 2.0], [1.0, 3.0]])
    grid = np.column_stack((np.ones(9), np.arange(9.0)))
    left = [
        np.trace(grid @ np.linalg.inv(rows.T @ rows + np.outer(each, each)) @ grid.T)
        for each in grid
    ]

    assert next_points(rows, grid, 1) == [int(np.argmin(left))]


def test_points_without_noise_are_measured_once() -> None:
    """A grid of four has no fifth point."""
    grid = np.column_stack((np.ones(4), np.arange(4.0)))

    assert sorted(next_points(grid[:0], grid, 9, is_noisy=False)) == [0, 1, 2, 3]
    assert len(next_points(grid[:0], grid, 9)) == 9


def test_too_few_points_tell_nothing() -> None:
    """Two points for three terms."""
    assert not tells_apart(np.array([[1.0, 2.0, 3.0], [1.0, 1.0, 1.0]]))


def test_a_term_that_no_point_has_is_not_told() -> None:
    """One worker alone sends nothing."""
    alone = Points(np.ones(4), np.ones(4), np.ones(4), has_servers=False)

    with pytest.raises(RefusedError, match=r"4 points do not tell the 3 terms .* at 2 workers"):
        fit(alone, Form(has_servers=False))
    assert next_to_measure(None, Form(has_servers=False), grid_up_to(1, 1), 1) == [(1, 1)]


def test_a_large_grid_is_thinned() -> None:
    """A thousand workers: twelve numbers, from one to all."""
    found = np.unique(grid_up_to(1_000, 1).workers)

    assert len(found) <= 12
    assert (found[0], found[-1]) == (1, 1_000)


def test_points_are_named_in_words() -> None:
    """Without servers there are none to name."""
    assert in_words([(1, 1), (2, 1)], Form(has_servers=False)) == "1 worker, 2 workers"
