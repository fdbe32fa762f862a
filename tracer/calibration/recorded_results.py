"""What a step without data cannot know, taken from a real one: sizes and numbers that data decide.

Goes in: the operators of a real step, with their results. Comes out: results for a step without
data, for the operators whose result has a shape that depends on values, such as ``nonzero``.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from foretrace.tracer.calibration.operator_call import Operand

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foretrace.tracer.calibration.operator_call import Call


class RecordedResults:
    """Results of real calls, given out operator by operator, in order, again and again."""

    def __init__(self, calls: Iterable[Call] = ()) -> None:
        """Give out the results of *calls*."""
        self._calls: dict[str, deque[Call]] = defaultdict(deque)
        for call in calls:
            self._calls[call.operator].append(call)

    def pass_by(self, operator: str) -> Call | None:
        """Return the next real call of *operator*, after the last the first; None without any."""
        calls = self._calls[operator]
        calls.rotate(-1)
        return calls[-1] if calls else None


def read_by_host(call: Call | None, dtype: torch.dtype) -> bool | float:
    """Return what the host read in *call*: counts and indices; a decision is always true."""
    if dtype == torch.bool:
        return True
    if dtype.is_floating_point:
        return 1.0
    known = None if call is None else call.result
    return known if isinstance(known, int) and not isinstance(known, bool) else 1


def results_of(call: Call, given: Any) -> Any:
    """Return tensors like the results of *call* for the arguments *given* now.

    Where the first tensor is twice as big, there are twice as many rows; what had its type has
    its type now.
    """
    first = next((part for part in tree_leaves(given) if isinstance(part, torch.Tensor)), None)
    if first is None or not call.operands:
        raise ValueError(f"{call.operator} takes no tensor")
    then = call.operands[0]
    growth = first.numel() / max(math.prod(then.shape), 1)

    def grow(part: Any) -> Any:
        if not isinstance(part, Operand):
            return part
        dtype = first.dtype if part.dtype == then.dtype else part.dtype
        rows = [max(round(size * growth), min(size, 1)) for size in part.shape[:1]]
        shape = (*rows, *part.shape[1:])
        return torch.empty(shape, dtype=dtype, device=part.device)

    return tree_map(grow, call.result)
