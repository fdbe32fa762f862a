"""Scales of intervals hold what they mean to, of architectures that they never saw."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.accuracy.intervals.interval_coverage import cover, leave_out, leave_out_what_ifs
from benchmarks.accuracy.intervals.observations import PLAIN, Observation
from benchmarks.accuracy.intervals.scale_fit import FEWEST, ONE_WIDTH, conformal_quantile, fit_scale
from foretrace.analysis.error.difficulty import Difficulty
from foretrace.analysis.error.error_scale import ARCHITECTURES, PAIRS, WIDEST


def draw(architectures: int, seed: int = 1, each: int = 8) -> list[Observation]:
    """Return answers whose errors grow with the share of rules; architectures are unlike."""
    random = np.random.default_rng(seed)
    made = []
    for number in range(architectures):
        spread = random.uniform(0.5, 1.5)
        for rule in random.uniform(0, 1, each):
            error = float(random.normal(0, spread * (0.01 + 0.05 * rule)))
            name, what_if = f"net {number}", "batch_size" if rule > 0.5 else "amp"
            made.append(
                Observation(
                    name, (what_if,), "cpu", "rule", error, error, 0.0, Difficulty(rule=float(rule))
                )
            )
    return made


@pytest.mark.parametrize("seed", range(3))
def test_new_architectures_are_held(seed: int) -> None:
    """Whatever the errors look like; with 30 architectures it costs little width."""
    covered = cover(leave_out(draw(30, seed)))

    assert 0.88 <= covered.holds <= 0.99
    assert covered.width < cover(leave_out(draw(30, seed), ONE_WIDTH)).width


def test_the_scale_finds_what_explains_errors() -> None:
    """Mean |error| of a normal is 0.8 of its spread; what explains nothing gets no weight."""
    scale = fit_scale(draw(60, each=40))

    assert scale.base == pytest.approx(0.008, abs=0.003)
    assert scale.slopes.rule == pytest.approx(0.04, abs=0.01)
    assert scale.slopes._replace(rule=0.0) == Difficulty()
    assert (scale.basis, scale.architectures, scale.pairs) == (ARCHITECTURES, 60, 2400)


def test_a_what_if_that_is_further_off_widens_its_own_interval() -> None:
    """Four times as far off as others of that difficulty; none becomes narrower."""
    odd = [
        replace(each, what_ifs=("odd",), error=4 * each.error) if number % 4 == 0 else each
        for number, each in enumerate(draw(30))
    ]
    factors = fit_scale(odd).factors

    assert factors["odd"] > 1.5
    assert min(factors.values()) > 1


def test_held_out_architectures_teach_nothing() -> None:
    """However far off they are."""
    seen = draw(12)
    unseen = [replace(each, architecture="new", error=9.0, held_out=True) for each in seen]

    assert fit_scale([*seen, *unseen]) == fit_scale(seen)


def test_runs_as_users_make_them_go_before_interleaved_ones() -> None:
    """Where there are enough of them."""
    near, plain = draw(12), [replace(each, source=PLAIN) for each in draw(20, seed=2)]
    few = [each for each in plain if each.architecture in ("net 0", "net 1")]

    assert fit_scale([*near, *plain]) == fit_scale(plain)
    assert fit_scale([*near, *few]).pairs == len(near) + len(few)


def test_one_more_architecture_may_be_anything() -> None:
    """Nine can hold 9 of 10 by their largest; of eight, pairs have to do, then the largest."""
    assert FEWEST == 9
    assert conformal_quantile([[float(n)] for n in range(9)]) == (8.0, ARCHITECTURES)
    assert conformal_quantile([[float(n)] * 3 for n in range(8)]) == (7.0, PAIRS)
    assert conformal_quantile([[float(n)] for n in range(8)]) == (7.0, WIDEST)


def test_an_architecture_with_many_pairs_counts_once() -> None:
    """A thousand small errors of one net do not hide those of nine others."""
    groups = [[0.0] * 1_000, *([1.0] for _ in range(9))]

    assert conformal_quantile(groups) == (1.0, ARCHITECTURES)


def test_what_no_pair_tested_is_no_surer_than_what_was() -> None:
    """A what-if left out of the fit gets at least the width that it had in it."""
    observations = draw(30)
    known, new = (
        {each.observation: each.half_width for each in judged}
        for judged in (leave_out(observations), leave_out_what_ifs(observations))
    )

    assert np.mean([new[each] >= 0.9 * known[each] for each in observations]) > 0.95
