"""Where to measure a job's speed next: the points that tell most about all the others.

In: the rows of a linear model at measured points and over a grid, in units of the noise of one
measurement. Out: rows of the grid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

WORST_CONDITION = 1e6
"""Beyond this points do not tell the terms apart: with one ratio of workers to servers throughout,
two columns are multiples of each other."""
LITTLE_KNOWN = 1e-4
"""Information without any measurement, in that of one: a term may be a hundred times its noise."""


def tells_apart(rows: Floats) -> bool:
    """Tell whether measurements, one per row, tell the terms apart, one per column.

    Examples
    --------
    >>> tells_apart(np.array([[1.0, 1.0], [1.0, 2.0]])), tells_apart(np.array([[1.0, 1.0]] * 2))
    (True, False)
    """
    lengths = np.linalg.norm(rows, axis=0)
    if len(rows) < rows.shape[1] or not lengths.all():
        return False
    return bool(np.linalg.cond(rows / lengths) <= WORST_CONDITION)


def guess_rows(columns: Floats) -> Floats:
    """Return rows as if every term had an equal share in what is predicted over a grid.

    Examples
    --------
    >>> guess_rows(np.array([[1.0, 10.0], [1.0, 30.0]])).tolist()
    [[0.6666666666666666, 0.3333333333333333], [0.4, 0.6]]
    """
    means = columns.mean(axis=0)
    shares = columns / np.where(means > 0, means, 1.0)
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def next_points(rows: Floats, grid: Floats, count: int, *, is_noisy: bool = True) -> list[int]:
    """Return the rows of *grid* to measure next, the most telling first.

    Each is the one after which predictions over the grid are least uncertain on average (V-optimal)
    given *rows*, which are measured already, and those before it. A point is named twice only where
    that helps: where a measurement *is_noisy*.

    Examples
    --------
    >>> line = np.column_stack((np.ones(5), np.arange(5.0)))
    >>> next_points(line[:1], line, 2, is_noisy=False)
    [4, 0]
    """
    information = rows.T @ rows + np.diag((grid**2).mean(axis=0) + LITTLE_KNOWN) * LITTLE_KNOWN
    free = np.ones(len(grid), bool)
    chosen: list[int] = []
    for _ in range(count if is_noisy else min(count, len(grid))):
        spread = grid @ np.linalg.solve(information, grid.T)
        gain = (spread**2).sum(axis=0) / (1 + np.diag(spread))
        chosen.append(int(np.argmax(np.where(free, gain, -1.0))))
        information = information + np.outer(grid[chosen[-1]], grid[chosen[-1]])
        free[chosen[-1]] = is_noisy
    return chosen
