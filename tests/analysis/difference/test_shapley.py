"""Parts of a value, averaged over all orders."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.analysis.difference.shapley import shapley_values

CAUSES = "abcd"


@given(st.lists(st.floats(-1e3, 1e3), min_size=16, max_size=16))
def test_parts_are_means_over_orders_and_add_up(drawn: list[float]) -> None:
    """As defined: what a cause adds when it comes after those before it, over all orders."""

    def value(causes: frozenset[str]) -> float:
        return drawn[sum(1 << CAUSES.index(each) for each in causes)]

    parts = shapley_values(CAUSES, value)

    orders = list(permutations(CAUSES))
    for cause in CAUSES:
        before = [frozenset(order[: order.index(cause)]) for order in orders]
        mean = sum(value(each | {cause}) - value(each) for each in before) / len(orders)
        assert parts[cause] == pytest.approx(mean, abs=1e-6)
    assert sum(parts.values()) == pytest.approx(drawn[15] - drawn[0], abs=1e-6)
