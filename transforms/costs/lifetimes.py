"""When each tensor that forward keeps for backward lies on the device, and what what-ifs change.

In: a graph and its `Activations`. Out: `Lifetimes`: one row per tensor and stay. Times are those of
the host, at which an allocator takes and gives back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.transforms.edit.columns import is_in
from foretrace.transforms.edit.select import call_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from foretrace.graph.model import Graph
    from foretrace.graph.state import ActivationChange, Block
    from foretrace.transforms.costs.activations import Activations
    from foretrace.transforms.edit.columns import Mask, Rows

    Floats = npt.NDArray[np.float64]


COLUMNS = ("begin", "end", "size", "step", "kind", "module")


@dataclass(frozen=True)
class Lifetimes:
    """Stays of tensors, in order of ``begin``; both ends belong to a stay.

    ``size`` is in bytes, ``kind`` as in `Activations`, ``module`` the path of the module that keeps
    it, "" where it has none. They are what modules read, or, of ``are_outputs``, what they wrote.
    """

    begin: Rows
    end: Rows
    size: Floats
    step: Rows
    kind: npt.NDArray[np.str_]
    module: npt.NDArray[np.str_]
    are_outputs: bool = False

    def held(self, times: Rows) -> Floats:
        """Return the bytes on the device at each of *times*.

        Examples
        --------
        >>> names = np.array(["", ""])
        >>> two = Lifetimes(np.array([0, 5]), np.array([9, 7]), np.array([8.0, 4.0]),
        ...                 np.zeros(2, np.int64), names, names)
        >>> two.held(np.array([0, 5, 7, 8, 10])).tolist()
        [8.0, 12.0, 12.0, 8.0, 0.0]
        """
        leaving = np.argsort(self.end, kind="stable")
        came = np.append(0.0, np.cumsum(self.size))
        left = np.append(0.0, np.cumsum(self.size[leaving]))
        gone = np.searchsorted(self.end[leaving], times, side="left")
        held: Floats = came[np.searchsorted(self.begin, times, side="right")] - left[gone]
        return held

    def after(self, changes: tuple[ActivationChange, ...]) -> Lifetimes:
        """Return them after *changes*, one after the other."""
        return reduce(_change, changes, self)

    def where(self, chosen: Mask | Rows) -> Lifetimes:
        """Return the chosen ones."""
        return replace(self, **{name: getattr(self, name)[chosen] for name in COLUMNS})


def find_lifetimes(graph: Graph, kept: Activations) -> Lifetimes:
    """Return when the tensors *kept* lie on the device: from their forward to their backward task.

    What backward does not need stays to the end of its step; without any backward pass an output
    goes when the next operator has read it.
    """
    call, start = call_of(graph), graph.tasks["start_ns"].to_numpy().astype(np.int64)
    host = np.where(call >= 0, start[call], start)
    steps = graph.tasks["step"].to_numpy().astype(np.int64)
    ends = np.zeros(int(steps.max(initial=0)) + 2, np.int64)
    np.maximum.at(ends, steps, host)
    step = steps[kept.forward]
    stays = Lifetimes(
        begin=host[kept.forward],
        end=np.where(kept.backward >= 0, host[kept.backward], ends[step]),
        size=np.nan_to_num(kept.size),
        step=step,
        kind=kept.kind,
        module=graph.tasks["module"].astype(object).fillna("").to_numpy().astype(str)[kept.forward],
    )
    stays = stays.where(np.argsort(stays.begin, kind="stable"))
    if not is_in(graph.tasks["phase"], "backward").any():
        stays = replace(stays, end=_next_begin(stays, 1, stays.end))
    return stays


def recorded_lifetimes(blocks: Sequence[Block]) -> Lifetimes:
    """Return when an allocator's *blocks* lay on the device; their kinds are not known."""
    begin, end, size, module = zip(*blocks, strict=True) if blocks else ((),) * 4
    return Lifetimes(
        begin=np.array(begin, np.int64),
        end=np.array(end, np.int64),
        size=np.array(size, np.float64),
        step=np.zeros(len(begin), np.int64),
        kind=np.full(len(begin), ""),
        module=np.array(module, np.str_),
        are_outputs=True,
    )


def _change(stays: Lifetimes, change: ActivationChange) -> Lifetimes:
    chosen = np.isin(stays.kind, change.kinds) if change.kinds else np.ones(len(stays.kind), bool)
    if change.calls:
        return _recompute(stays, _calls_of(stays, change.calls))
    mine, others = stays.where(chosen), stays.where(~chosen)
    if change.ahead is not None:
        return _join(others, *_park(mine, change.ahead))
    smaller = replace(mine, size=mine.size * change.factor)
    if not change.encoded or change.factor == 1:
        return _join(others, smaller)
    return _join(others, smaller, replace(mine, end=mine.begin), replace(mine, begin=mine.end))


def _park(stays: Lifetimes, ahead: int) -> tuple[Lifetimes, ...]:
    """Return the stays of tensors that leave while the next layers run, and come back *ahead*.

    A tensor lies on the device until the layer *ahead* later begins, and again from the moment at
    which the one *ahead* before it in backward is needed; the last ones do not leave.
    """
    need = np.lexsort((-np.arange(len(stays.end)), stays.end, stays.step))
    back = np.full(len(need), -1, np.int64)
    same = stays.step[need[ahead:]] == stays.step[need[:-ahead]]
    back[need[ahead:][same]] = stays.end[need[:-ahead][same]]
    gone = _next_begin(stays, ahead, stays.end) - 1
    leaves = (back >= 0) & (back > gone + 1) & (back < stays.end)
    first, again = stays.where(leaves), stays.where(leaves)
    first, again = replace(first, end=gone[leaves]), replace(again, begin=back[leaves])
    return stays.where(~leaves), first, again


def _recompute(stays: Lifetimes, call: Rows) -> Lifetimes:
    """Return the stays of tensors of which a checkpointed call keeps only one.

    That is what it reads first, its input, or what it writes last, which others read. The others go
    when the next operator has read them, and come again, all of a call, when the first of them is
    needed.
    """
    key = call * (int(stays.step.max(initial=0)) + 1) + stays.step
    inner = call >= 0
    order = -1 if stays.are_outputs else 1
    single = np.where(inner, key, -1 - np.arange(len(key)))[::order]
    _, first = np.unique(single, return_index=True)
    inner[::order][first] = False
    needed = np.full(int(key.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(needed, key[inner], stays.end[inner])
    read, again = _next_begin(stays, 1, stays.end), needed[np.maximum(key, 0)]
    lost = inner & (read < again)
    once, anew = replace(stays, end=read).where(lost), replace(stays, begin=again).where(lost)
    return _join(stays.where(~lost), once, anew)


def _calls_of(stays: Lifetimes, calls: tuple[str, ...]) -> Rows:
    """Return the place in *calls* of the module that each tensor is kept in; −1 for none."""
    call = np.full(len(stays.module), -1, np.int64)
    for place, path in enumerate(calls):
        inside = (stays.module == path) | np.char.startswith(stays.module, f"{path}.")
        call[inside | (path == "")] = place
    return call


def _next_begin(stays: Lifetimes, ahead: int, default: Rows) -> Rows:
    """Return when the tensor *ahead* later in the same step begins to stay."""
    after: Rows = default.copy()
    same = stays.step[ahead:] == stays.step[:-ahead]
    after[:-ahead][same] = stays.begin[ahead:][same]
    return after


def _join(*parts: Lifetimes) -> Lifetimes:
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(each, name) for each in parts]) for name in COLUMNS
    }
    both = replace(parts[0], **columns)
    return both.where(np.argsort(both.begin, kind="stable"))
