"""What CUDA graphs leave unsaid: in the window's graphs, which answers may be wrong because of it.

In: `InferredRank` and `Selection`. Out: doubts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretrace.graph.assemble.doubt_waits import NAME_WIDTH
from foretrace.graph.infer.cuda_graphs.graph_launches import list_launches_with_graphs
from foretrace.graph.state import Doubt
from foretrace.util.short_name import short

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.assemble.selection import Selection
    from foretrace.graph.infer.rank import InferredRank

    Ints = NDArray[np.int64]

MATTERS = 0.02
"""Share of the window that the branches beside, or their delays, must take to be worth a word."""


def doubt_graphs(rank: InferredRank, chosen: Selection) -> tuple[Doubt, ...]:
    """Say where a graph's branches may wait for each other in a way that nobody recorded."""
    if rank.branches is None:
        return ()
    window_ns = rank.window.end_ns - rank.window.start_ns
    return (*_doubt_late(rank, chosen, window_ns), *_doubt_joins(rank, chosen, window_ns))


def _doubt_late(rank: InferredRank, chosen: Selection, window_ns: int) -> tuple[Doubt, ...]:
    """Say that a branch starts late and nothing tells why."""
    branches = rank.branches
    assert branches is not None
    here = chosen.device_row[branches.late] >= 0
    late_ns = branches.late_ns[here]
    if late_ns.sum() <= MATTERS * window_ns:
        return ()
    text = (
        f"a branch of a CUDA graph starts {late_ns.max() / 1e3:,.0f} us after its graph and the "
        "recording does not tell what it waits for: the delay is kept whatever changes; record "
        "the graph's kernels without capturing them"
    )
    place = _place(rank, branches.late[here][np.argmax(late_ns)])
    return (Doubt("graph-branch", text, place, float(late_ns.sum() / window_ns)),)


def _doubt_joins(rank: InferredRank, chosen: Selection, window_ns: int) -> tuple[Doubt, ...]:
    """Say that branches work side by side: where they join again inside the graph is not seen."""
    devices = rank.devices
    beside: list[Ints] = []
    for lane, launches in list_launches_with_graphs(devices, rank.host, chosen.device).items():
        calls = [launch.call for launch in launches if len(launch.heads) > 1]
        inside = np.isin(devices.launch[chosen.device], calls)
        beside.append(chosen.device[inside & (devices.lane[chosen.device] != lane)])
    tasks = np.concatenate(beside) if beside else np.empty(0, np.int64)
    share = devices.busy_ns[tasks].sum() / max(window_ns, 1)
    if share <= MATTERS:
        return ()
    text = (
        f"branches of a CUDA graph take {share:.0%} of a step beside its main stream; which kernel "
        "waits for which inside a graph is not recorded, so that a change of some of its kernels "
        "may be off by as much; record without capturing the graph to see it"
    )
    return (Doubt("graph-dependencies", text, _place(rank, tasks[0]), float(share)),)


def _place(rank: InferredRank, task: int) -> str:
    """Return a task's stream and name."""
    devices, events = rank.devices, rank.events
    name = short(events.names[events.name[devices.event[task]]], NAME_WIDTH)
    return f"stream {devices.stream[task]}, {name}"
