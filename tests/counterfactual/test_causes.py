"""A few programs before and after one cause: `diff` names it, and its parts add up."""

from __future__ import annotations

import pytest

from tests.counterfactual.causes import CAUSES, draw_pair, judge_pair

SEEDS = (0, 5, 6, 7, 9, 10, 21)
"""One of each cause."""


@pytest.mark.parametrize("seed", SEEDS)
def test_the_cause_is_the_largest_part(seed: int) -> None:
    """And all parts are the difference of the measured steps."""
    pair = draw_pair(seed)
    assert pair is not None
    judged = judge_pair(pair)

    assert judged.is_named, judged
    assert abs(judged.sum_off_ns) <= 0.01 * abs(judged.said_ns)


def test_every_cause_is_tried() -> None:
    """None is left out."""
    assert {pair.cause for seed in SEEDS if (pair := draw_pair(seed))} == set(CAUSES)
