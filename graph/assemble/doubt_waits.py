"""Waits in the window for something that no recording shows: how long, and where most of it is.

In: `InferredRank` and `Selection`. Out: doubts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretrace.graph.state import Doubt

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.assemble.selection import Selection
    from foretrace.graph.infer.rank import InferredRank

    Ints = NDArray[np.int64]

MATTERS = 0.02
"""Share of the window that such waits must take to be worth a word."""


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
    place = np.stack([devices.lane, np.where(before >= 0, names[before], -1), names])[:, waited]
    _, group = np.unique(place, axis=1, return_inverse=True)
    spent = np.bincount(group.ravel(), weights=untraced[waited])
    task = int(waited[np.flatnonzero(group.ravel() == np.argmax(spent))[0]])
    text = (
        f"streams stand still for {_say(rank, wait.sum())} although nothing recorded holds them "
        f"back, most of it ({_say(rank, spent.max())}) here: this time is kept as it is, whatever "
        "changes; record every stream, thread and process that uses the device to see its cause"
    )
    after = f" after {_name(rank, before[task])}" if before[task] >= 0 else ""
    where = f"stream {devices.stream[task]}, before {_name(rank, task)}{after}"
    return (Doubt("untraced-wait", text, _tell_step(rank, devices.start_ns[task]) + where),)


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
    return (Doubt("untraced-wait", text, _tell_step(rank, host.start_ns[call]) + where),)


def _matters(rank: InferredRank, wait: Ints) -> bool:
    return bool(wait.sum() > MATTERS * (rank.window.end_ns - rank.window.start_ns))


def _say(rank: InferredRank, wait_ns: float) -> str:
    """Return a time of the window per step, absolute and as a share."""
    window = rank.window
    share = wait_ns / max(window.end_ns - window.start_ns, 1)
    return f"{wait_ns / window.steps / 1e6:,.3f} ms of a step ({share:.0%})"


def _name(rank: InferredRank, task: int) -> str:
    return rank.events.names[rank.events.name[rank.devices.event[task]]]


def _tell_step(rank: InferredRank, moment: int) -> str:
    step = int(np.searchsorted(rank.window.starts_ns, moment, side="right"))
    return f"step {max(step, 1)} of {rank.window.steps}, "
