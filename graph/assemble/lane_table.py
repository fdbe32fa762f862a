"""The lane and operator tables of one rank's window.

In: `InferredRank` and `Selection`. Out: one row per thread, stream and loader; one per operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from foretrace.graph.infer.loading.loaders import NEXT_CALL
from foretrace.graph.infer.tasks.device_tasks import COLLECTIVE, KERNEL, MEMCPY, MEMSET, P2P
from foretrace.graph.model import DEVICE_KINDS, LANE_COLUMNS, OPERATOR_COLUMNS, PHASES
from foretrace.util.schema import table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.assemble.selection import Selection
    from foretrace.graph.infer.rank import InferredRank
    from foretrace.graph.infer.tasks.device_tasks import DeviceTasks

    Ints = NDArray[np.int64]

_STREAM_ROLES = {
    KERNEL: "compute",
    MEMSET: "compute",
    MEMCPY: "copy",
    COLLECTIVE: "communication",
    P2P: "communication",
}


def make_lane_table(rank: InferredRank, chosen: Selection) -> pd.DataFrame:
    """Build the lanes: threads, the main one first, then streams, then the loader."""
    devices, threads = rank.devices, rank.threads
    roles = {threads.main: "main"}
    roles.update(dict.fromkeys(threads.subordinates, "autograd"))
    roles.update(dict.fromkeys(threads.loaders, "loader"))
    ids = chosen.threads
    loaders = int(len(chosen.load) > 0)
    none = np.full(loaders, -1)
    _, first = np.unique(devices.lane, return_index=True)
    rows = len(ids) + devices.lanes + loaders
    return table(
        LANE_COLUMNS,
        {
            "kind": ["thread"] * len(ids) + ["stream"] * devices.lanes + ["loader"] * loaders,
            "rank": np.full(rows, rank.number),
            "device": np.concatenate([np.full(len(ids), -1), devices.device[first], none]),
            "id": np.concatenate([np.array(ids, np.int64), devices.stream[first], none + 1]),
            "role": [roles.get(thread, "other") for thread in ids]
            + _tell_stream_roles(devices)
            + ["loader"] * loaders,
        },
        rows,
    )


def _tell_stream_roles(devices: DeviceTasks) -> list[str]:
    """Return what each stream spends most time on; of equals the first in alphabetic order."""
    kinds = sorted(range(len(DEVICE_KINDS)), key=DEVICE_KINDS.__getitem__)
    shape = (devices.lanes, len(DEVICE_KINDS))
    cell = devices.lane * shape[1] + devices.kind
    busy = np.bincount(cell, weights=devices.busy_ns, minlength=shape[0] * shape[1]).reshape(shape)
    occurs = np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape) > 0
    most = np.argmax(np.where(occurs, busy, -1)[:, kinds], axis=1)
    return [_STREAM_ROLES[kinds[pick]] for pick in most.tolist()]


def make_operator_table(rank: InferredRank, chosen: Selection) -> tuple[pd.DataFrame, Ints]:
    """Build the operators, and the operator row of each event (index −1 stays −1)."""
    events, host, window = rank.events, rank.host, rank.window
    within = (events.start_ns >= window.start_ns) & (events.start_ns < window.end_ns)
    rows = np.flatnonzero(within & (events.is_kind("op") | events.named(NEXT_CALL)))
    number = np.full(len(events) + 1, -1, np.int64)
    number[rows] = np.arange(len(rows))
    row = number[host.operator]
    inside = chosen.host[row[chosen.host] >= 0]
    phase, module = (np.full(len(rows), -1, np.int32) for _ in range(2))
    phase[row[inside]] = rank.phase[inside]
    module[row[inside]] = rank.module[inside]
    values = {
        "name": events.category("name", rows),
        "parent": number[host.parent[rows]],
        "step": np.searchsorted(window.starts_ns, events.start_ns[rows], side="right") - 1,
        "phase": pd.Categorical.from_codes(phase, list(PHASES)),
        "module": pd.Categorical.from_codes(module, rank.module_names),
        "shapes": events.category("shapes", rows),
        "dtypes": events.category("dtypes", rows),
        "flops": events.column("flops")[rows],
        "duration_ns": events.duration_ns[rows],
    }
    return table(OPERATOR_COLUMNS, values, len(rows)), number
