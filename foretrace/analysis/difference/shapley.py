"""A value of every set of causes in, what each cause adds, averaged over all orders, out.

Shapley, "A value for n-person games" (Contributions to the Theory of Games II, 1953). Exact: every
set is valued once. The parts add up to the value of all causes less that of none.
"""

from __future__ import annotations

from itertools import combinations
from math import factorial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


def shapley_values(
    causes: Sequence[str], value: Callable[[frozenset[str]], float]
) -> dict[str, float]:
    """Return the part of each of *causes*; *value* is asked for sets of them, many times for each.

    >>> shapley_values("ab", lambda causes: 10.0 * (len(causes) == 2) + 2.0 * ("a" in causes))
    {'a': 7.0, 'b': 5.0}
    """
    count = len(causes)
    weight = [
        factorial(size) * factorial(count - size - 1) / factorial(count) for size in range(count)
    ]
    return {
        cause: sum(
            weight[len(before)] * (value(before | {cause}) - value(before))
            for before in _subsets([each for each in causes if each != cause])
        )
        for cause in causes
    }


def _subsets(causes: Sequence[str]) -> Iterator[frozenset[str]]:
    for size in range(len(causes) + 1):
        yield from map(frozenset, combinations(causes, size))
