"""Waits in the window for something that no recording shows: how long, and where most of it is.

In: `InferredRank` and `Selection`. Out: doubts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretrace.graph.state import Doubt
from foretrace.util.short_name import short

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.assemble.selection import Selection
    from foretrace.graph.infer.rank import InferredRank

    Ints = NDArray[np.int64]

MATTERS = 0.02
"""Share of the window that such waits must take to be worth a word."""
NAME_WIDTH = 60


def doubt_waits(rank: InferredRank, chosen: Selection) -> tuple[Doubt, ...]:
    """Say where streams, or calls, waited for something untraced."""
    return (*_doubt_streams(rank, chosen), *_doubt_calls(rank, chosen))


def _doubt_streams(rank: InferredRank, chosen: Selection) -> tuple[Doubt, ...]:
    if rank.untraced is None:
        return ()
    untraced = rank.untraced.wait_ns
    wait = untraced[chosen.device]
    devices, waited = rank.devices, chosen.device[wait > 0]
    if not _matters(rank, wait):
        return ()
    names = rank.events.name[devices.event]
    before = devices.before()
    pair = np.stack([devices.lane, np.where(before >= 0, names[before], -1), names])[:, waited]
    _, group = np.unique(pair, axis=1, return_inverse=True)
    spent = np.bincount(group.ravel(), weights=untraced[waited])
    task = int(waited[np.flatnonzero(group.ravel() == np.argmax(spent))[0]])
    text = (
        f"streams stand still for {_say(rank, wait.sum())} although nothing recorded holds them "
        f"back, most of it ({_say(rank, spent.max())}) here: this time is kept as it is, whatever "
        "changes; record every stream, thread and process that uses the device to see its cause"
    )
    after = f" after {_name(rank, before[task])}" if before[task] >= 0 else ""
    where = f"stream {devices.stream[task]}, before {_name(rank, task)}{after}"
    place = _tell_step(rank, devices.start_ns[task]) + where
    return (Doubt("untraced-wait", text, place, _share(rank, wait.sum())),)


def _doubt_calls(rank: InferredRank, chosen: Selection) -> tuple[Doubt, ...]:
    wait = rank.waits.untraced_ns[chosen.host]
    if not _matters(rank, wait):
        return ()
    call = int(chosen.host[np.argmax(wait)])
    host, events = rank.host, rank.events
    text = (
        f"blocking calls wait for {_say(rank, wait.sum())} longer than any recorded work of the "
        "device tells: this time is kept as it is, whatever changes; record every stream and "
        "process that uses the device to see its cause"
    )
    where = f"thread {host.thread[call]}, {events.names[events.name[host.event[call]]]}"
    place = _tell_step(rank, host.start_ns[call]) + where
    return (Doubt("untraced-wait", text, place, _share(rank, wait.sum())),)


def _matters(rank: InferredRank, wait: Ints) -> bool:
    return bool(_share(rank, wait.sum()) > MATTERS)


def _share(rank: InferredRank, wait_ns: float) -> float:
    return float(wait_ns / max(rank.window.end_ns - rank.window.start_ns, 1))


def _say(rank: InferredRank, wait_ns: float) -> str:
    """Return a time of the window per step, absolute and as a share."""
    each_ms = wait_ns / rank.window.steps / 1e6
    return f"{each_ms:,.3f} ms of a step ({_share(rank, wait_ns):.0%})"


def _name(rank: InferredRank, task: int) -> str:
    return short(rank.events.names[rank.events.name[rank.devices.event[task]]], NAME_WIDTH)


def _tell_step(rank: InferredRank, moment: int) -> str:
    step = int(np.searchsorted(rank.window.starts_ns, moment, side="right"))
    return f"step {max(step, 1)} of {rank.window.steps}, "
