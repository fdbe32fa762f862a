"""Which operator of a changed job stands for which of the job as it is.

Both lists are in the order in which the job runs them; what stands for what keeps that order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.tracer.calibration.operator_call import Call

NONE = -1
SAME_SHAPES = 0.25
"""What equal shapes add to a pair of the same operator: it decides between neighbours."""


def align(before: Sequence[Call], after: Sequence[Call]) -> list[int]:
    """Return, per operator *after*, the position *before* of the one it replaces, or -1.

    The longest common subsequence of operators of the same name and phase, where an operator in
    place (``add_``) is the same as one that is not.
    """
    scores = _scores(before, after)
    best = np.zeros((len(before) + 1, len(after) + 1))
    for row, score in enumerate(scores):
        paired = np.where(score > 0, best[row, :-1] + score, 0)
        best[row + 1, 1:] = np.maximum.accumulate(np.maximum(best[row, 1:], paired))
    return _trace_back(best, scores)


def _scores(before: Sequence[Call], after: Sequence[Call]) -> np.ndarray:
    """Return (before, after): 0 for what cannot stand for each other, else at least 1."""
    names = {name: number for number, name in enumerate({_name(c) for c in (*before, *after)})}
    shapes = {shape: number for number, shape in enumerate({_shapes(c) for c in (*before, *after)})}
    rows, columns = (np.array([names[_name(c)] for c in calls], int) for calls in (before, after))
    mine, theirs = (np.array([shapes[_shapes(c)] for c in calls], int) for calls in (before, after))
    is_same = rows[:, None] == columns
    return is_same * (1 + SAME_SHAPES * (mine[:, None] == theirs))


def _name(call: Call) -> tuple[str, str]:
    return call.operator.removesuffix("_"), call.phase


def _shapes(call: Call) -> tuple[tuple[int, ...], ...]:
    return tuple(operand.shape for operand in call.operands)


def _trace_back(best: np.ndarray, scores: np.ndarray) -> list[int]:
    partners = [NONE] * scores.shape[1]
    row, column = scores.shape
    while row and column:
        score = scores[row - 1, column - 1]
        if score > 0 and best[row, column] == best[row - 1, column - 1] + score:
            row, column = row - 1, column - 1
            partners[column] = row
        elif best[row, column] == best[row - 1, column]:
            row -= 1
        else:
            column -= 1
    return partners
