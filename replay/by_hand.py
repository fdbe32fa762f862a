"""Programs written down by hand: what examples and tests of the engines run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.graph.model import EDGE_KINDS
from foretrace.replay.program import END_START, Program

if TYPE_CHECKING:
    from collections.abc import Sequence

NO_RESOURCE = -1


class Link(NamedTuple):
    """An edge from row ``src`` to row ``dst``, ``shift`` repetitions later."""

    src: int
    dst: int
    lag_ns: int = 0
    anchor: int = END_START
    shift: int = 0
    kind: str = "data"


def by_hand(
    work_ns: Sequence[int],
    links: Sequence[Link] = (),
    *,
    repetitions: int = 1,
    lane: Sequence[int] | None = None,
    resource: Sequence[int] | None = None,
    holds: Sequence[bool] | None = None,
    release_ns: Sequence[int] | None = None,
) -> Program:
    """Return *repetitions* of the tasks, each on lane 0, without resource, unless told otherwise.

    *release_ns* bounds the first repetition only.

    >>> program = by_hand([5, 7], [Link(0, 1), Link(1, 0, 2, shift=1)], repetitions=2)
    >>> program.src.tolist(), program.dst.tolist(), program.lag_ns.tolist()
    ([0, 2, 1], [1, 3, 2], [0, 0, 2])
    """
    tasks = len(work_ns)
    copies = [
        (k * tasks + link.src, (k + link.shift) * tasks + link.dst, link)
        for link in links
        for k in range(repetitions - link.shift)
    ]
    release = np.zeros(tasks * repetitions, np.int64)
    release[:tasks] = 0 if release_ns is None else release_ns
    kinds = list(EDGE_KINDS)
    return Program(
        work_ns=_repeated(work_ns, np.int64, repetitions),
        lane=_repeated(lane or [0] * tasks, np.int32, repetitions),
        resource=_repeated(resource or [NO_RESOURCE] * tasks, np.int32, repetitions),
        holds=_repeated(holds or [False] * tasks, np.bool_, repetitions),
        src=np.array([src for src, _, _ in copies], np.int32),
        dst=np.array([dst for _, dst, _ in copies], np.int32),
        lag_ns=np.array([link.lag_ns for _, _, link in copies], np.int64),
        anchor=np.array([link.anchor for _, _, link in copies], np.int8),
        kind=np.array([kinds.index(link.kind) for _, _, link in copies], np.int8),
        tasks=tasks,
        repetitions=repetitions,
        release_ns=release,
    )


def _repeated(values: Sequence[int], dtype: type[np.generic], repetitions: int) -> np.ndarray:
    return np.tile(np.array(values, dtype), repetitions)
