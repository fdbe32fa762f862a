"""The longest common subsequence of two sequences: two lists in, pairs of places out."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence


def common_subsequence(
    left: Sequence[Hashable], right: Sequence[Hashable]
) -> tuple[list[int], list[int]]:
    """Return the places in both sequences of what they have in common, in order.

    One bit per element of *left*, a row of bits per element of *right*: thousands of elements that
    repeat a handful of values take milliseconds (Hyyrö, "Bit-parallel LCS-length computation
    revisited", 2004).

    >>> common_subsequence(["mm", "add", "relu"], ["mm", "relu", "add"])
    ([0, 1], [0, 2])
    """
    begin = _shared(zip(left, right, strict=False))
    least = min(len(left), len(right)) - begin
    end = min(_shared(zip(reversed(left), reversed(right), strict=False)), least)
    inner = _pairs(left[begin : len(left) - end], right[begin : len(right) - end])
    pairs = [
        *((at, at) for at in range(begin)),
        *((begin + one, begin + other) for one, other in inner),
        *((len(left) - at, len(right) - at) for at in range(end, 0, -1)),
    ]
    return [one for one, _ in pairs], [other for _, other in pairs]


def _shared(pairs: zip[tuple[Hashable, Hashable]]) -> int:
    """Return how many of *pairs* are equal before the first that is not."""
    count = 0
    for one, other in pairs:
        if one != other:
            break
        count += 1
    return count


def _pairs(left: Sequence[Hashable], right: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return the pairs of places of a longest common subsequence."""
    rows = _rows(left, right)
    pairs = []
    column, row = len(left), len(right)
    while row and column:
        bit = 1 << (column - 1)
        if rows[row - 1] & bit:  # the element of *left* adds nothing
            column -= 1
        elif row > 1 and not rows[row - 2] & bit:  # nor does that of *right*
            row -= 1
        else:
            column, row = column - 1, row - 1
            pairs.append((column, row))
    return pairs[::-1]


def _rows(left: Sequence[Hashable], right: Sequence[Hashable]) -> list[int]:
    """Return, per beginning of *right*, the elements of *left* that make it no longer, as bits."""
    places: dict[Hashable, int] = defaultdict(int)
    for place, value in enumerate(left):
        places[value] |= 1 << place
    everything = (1 << len(left)) - 1
    row, rows = everything, []
    for value in right:
        found = row & places[value]
        row = ((row + found) | (row - found)) & everything
        rows.append(row)
    return rows
