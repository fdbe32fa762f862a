"""Which call put what on a device: columns of events in, rows and counts out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.tracer.trace import EVENT_KINDS

if TYPE_CHECKING:
    from foretrace.tracer.data_issues import Tally

DEVICE_TASKS = ("kernel", "memcpy", "memset")
LAUNCH = re.compile(
    r"Launch|Mem(cpy|set)\w{0,40}Async|^(ur|pi)Enqueue(USM|Mem)|^piextUSMEnqueueMem"
    r"|^zeCommandListAppendMemory"
)
RANK_SHIFT = 48
"""Correlations have 32 bits, ranks 15."""


def is_kind(values: dict[str, Any], *kinds: str) -> np.ndarray:
    """Return which rows are of one of *kinds*."""
    wanted = np.zeros(len(EVENT_KINDS) + 1, bool)
    wanted[[EVENT_KINDS.index(kind) for kind in kinds]] = True
    return wanted[values["kind"].codes]


def link_keys(values: dict[str, Any], correlation: np.ndarray) -> np.ndarray:
    """Return ids that are unique over all ranks; a correlation is so in its own only."""
    return correlation + (values["rank"].astype(np.int64) << RANK_SHIFT)


def launches_of(values: dict[str, Any], rows: np.ndarray) -> np.ndarray:
    """Return the row of the call behind each of *rows*, or −1."""
    calls = np.flatnonzero(is_kind(values, "runtime") & (values["correlation"] >= 0))
    launch = np.full(len(rows), -1, np.int64)
    if not len(calls):
        return launch
    keys = link_keys(values, values["correlation"])
    call_keys, where = np.unique(keys[calls], return_index=True)
    wanted = keys[rows]
    at = np.minimum(np.searchsorted(call_keys, wanted), len(call_keys) - 1)
    hit = call_keys[at] == wanted
    launch[hit] = calls[where[at[hit]]]
    return launch


def count_links(values: dict[str, Any], tally: Tally) -> None:
    """Count what is odd about which call put what on a device."""
    start = values["start_ns"]
    tasks = np.flatnonzero(is_kind(values, *DEVICE_TASKS))
    if not len(tasks):
        return
    call = launches_of(values, tasks)
    linked = call >= 0
    tally.add("kernel_without_launch", np.count_nonzero(~linked))
    tally.add("kernel_before_launch", np.count_nonzero(start[tasks[linked]] < start[call[linked]]))
    tally.add("shared_correlation", np.count_nonzero(np.bincount(call[linked]) > 1))
    names = values["name"]
    launching = np.array([is_launch(name) for name in names.categories], bool)
    launches = np.flatnonzero(is_kind(values, "runtime") & launching[names.codes])
    tally.add("launch_without_kernel", np.count_nonzero(~np.isin(launches, call)))


def is_launch(name: str) -> bool:
    """Say whether a call of this name puts a kernel, copy or memset on a device."""
    return bool(LAUNCH.search(name)) and not name.endswith(
        ("HostFunc", "Attribute", "Configuration")
    )
