"""Answers: a value inside its interval, and what becomes of it."""

from __future__ import annotations

import math

import pytest

from foretrace.analysis.evidence.evidence import UNVALIDATED, VALIDATED
from foretrace.job.answer import Answer, exactly


@pytest.mark.parametrize("value", [0.5, 3.5, math.nan, math.inf])
def test_a_value_lies_in_its_interval(value: float) -> None:
    """Anything else is a bug of ours."""
    with pytest.raises(ValueError, match="is not inside 1 … 3"):
        Answer(value, 1, 3, "s")


def test_what_may_be_off_is_joined_in_quadrature() -> None:
    """By 3 % and 4 %, independently: by 5 %. Nothing takes less than no time."""
    found = Answer(10, 9.7, 10.3, "s").times(Answer(2, 1.92, 2.08, ""), "s")
    wide = Answer(10, 1, 20, "s").times(Answer(2, 0, 3, ""), "s")

    assert (found.low, found.value, found.high) == pytest.approx((19, 20, 21))
    assert wide.low == 0


def test_a_product_is_validated_if_both_are() -> None:
    """And holds the truth as often as the less sure of both."""
    sure = Answer(1, 1, 1, "s", level=0.95, status=VALIDATED)

    assert sure.times(exactly(2, "steps"), "s").status == VALIDATED
    assert sure.times(exactly(2, "steps"), "s").level == 0.9
    assert sure.times(Answer(1, 1, 1, ""), "s").status == UNVALIDATED
