"""One repetition of the window, and its unrolling into a program of many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.replay.program import Program

if TYPE_CHECKING:
    from typing import Any

    from foretrace.replay.program import Bytes, Flags, Ints, Longs


@dataclass(frozen=True)
class Window:
    """The tasks and edges of one repetition; ``dst`` lies ``shift`` repetitions after ``src``.

    The other columns are those of `Program`. ``release_ns`` bounds the first repetition only.
    """

    work_ns: Longs
    lane: Ints
    resource: Ints
    holds: Flags
    src: Ints
    dst: Ints
    lag_ns: Longs
    anchor: Bytes
    kind: Bytes
    shift: Ints
    release_ns: Longs | None = None


def unrolled(window: Window, repetitions: int) -> Program:
    """Return *window* repeated; edges that lead beyond the last repetition are left out.

    Edges within a repetition come first, then those across: the order that decides ties.
    """
    tasks = len(window.work_ns)
    within = np.flatnonzero(window.shift == 0)
    across = np.flatnonzero(window.shift > 0)
    across = across[np.argsort(window.shift[across], kind="stable")]
    copies = np.maximum(repetitions - window.shift[across], 0)
    seams = np.repeat(across, copies)
    offset = (np.arange(len(seams)) - np.repeat(np.cumsum(copies) - copies, copies)) * tasks
    release = np.zeros(tasks * repetitions, np.int64)
    if window.release_ns is not None:
        release[:tasks] = window.release_ns

    def edges(values: Any, dtype: type[np.generic]) -> Any:
        small = values.astype(dtype, copy=False)
        return np.concatenate((np.tile(small[within], repetitions), small[seams]))

    def rows(values: Any, shift: Any) -> Any:
        small = values.astype(np.int32, copy=False)
        starts = np.arange(repetitions, dtype=np.int32)[:, None] * np.int32(tasks)
        beyond = (small[seams] + offset + shift[seams] * tasks).astype(np.int32)
        return np.concatenate(((small[within] + starts).ravel(), beyond))

    return Program(
        work_ns=np.tile(window.work_ns.astype(np.int64, copy=False), repetitions),
        lane=np.tile(window.lane.astype(np.int32, copy=False), repetitions),
        resource=np.tile(window.resource.astype(np.int32, copy=False), repetitions),
        holds=np.tile(window.holds, repetitions),
        src=rows(window.src, np.zeros_like(window.shift)),
        dst=rows(window.dst, window.shift),
        lag_ns=edges(window.lag_ns, np.int64),
        anchor=edges(window.anchor, np.int8),
        kind=edges(window.kind, np.int8),
        tasks=tasks,
        repetitions=repetitions,
        release_ns=release,
    )
