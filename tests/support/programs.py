"""Programs written down by hand: what tests of the engines run, and why it came out so."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.graph.model import EDGE_KINDS
from foretrace.replaying.critical_path import _read_causes, _step_back
from foretrace.replaying.engine.program import END_START, Program

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.replaying.engine.schedule import Schedule

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
    >>> program.src.tolist(), program.dst.tolist(), program.lag_ns.tolist(), program.shift.tolist()
    ([0, 1], [1, 0], [0, 2], [0, 1])
    """
    tasks = len(work_ns)
    columns = list(zip(*links, strict=True)) or [()] * len(Link._fields)
    src, dst, lag_ns, anchor, shift, kind = columns
    kinds = list(EDGE_KINDS)
    return Program(
        work_ns=np.array(work_ns, np.int64),
        lane=np.array(lane or [0] * tasks, np.int32),
        resource=np.array(resource or [NO_RESOURCE] * tasks, np.int32),
        holds=np.array(holds or [False] * tasks, np.bool_),
        src=np.array(src, np.int32),
        dst=np.array(dst, np.int32),
        lag_ns=np.array(lag_ns, np.int64),
        anchor=np.array(anchor, np.int8),
        kind=np.array([kinds.index(name) for name in kind], np.int8),
        shift=np.array(shift, np.int32),
        release_ns=np.array(release_ns or [0] * tasks, np.int64),
        repetitions=repetitions,
    )


def cause_of(schedule: Schedule, moment: int) -> tuple[int, int]:
    """Return which moment determined *moment*, and why: a position in `REASONS`.

    Where nothing but a release did, it is *moment* itself.
    """
    v = moment % (2 * schedule.prepared.program.tasks)
    before, why = _step_back(moment - v, v, *_read_causes(schedule)[:-1])
    return int(before), int(why)
