"""What two sequences have in common, by the textbook's table."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from foretrace.util.common_subsequence import common_subsequence

WORDS = st.lists(st.integers(0, 3), max_size=12)


@given(WORDS, WORDS)
def test_nothing_in_common_is_longer(left: list[int], right: list[int]) -> None:
    """The places rise in both sequences, hold the same values, and are as many as can be."""
    mine, theirs = common_subsequence(left, right)

    assert [left[at] for at in mine] == [right[at] for at in theirs]
    assert all(places == sorted(set(places)) for places in (mine, theirs))
    assert len(mine) == _longest(left, right)


def test_thousands_of_a_handful_of_names_are_no_work() -> None:
    """An unrolled recurrent layer: 10,000 operators of four names, a tenth of them new."""
    recorded = ["mm", "add", "sigmoid", "mul", "add"] * 2000
    listed = [name for place, name in enumerate(recorded) if place % 10]

    assert len(common_subsequence(recorded, listed)[0]) == len(listed)


def _longest(left: list[int], right: list[int]) -> int:
    table = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for row, one in enumerate(left):
        for column, other in enumerate(right):
            best = max(table[row][column + 1], table[row + 1][column])
            table[row + 1][column + 1] = table[row][column] + 1 if one == other else best
    return table[-1][-1]
