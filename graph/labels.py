"""Phase and module of every host task; device work inherits them from its launch.

In: events and host tasks of one rank. Out: category codes; −1 where it cannot be known.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from foretrace.graph.host import kind_is, matching
from foretrace.graph.model import PHASES

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from foretrace.graph.host import Host
    from foretrace.graph.threads import Threads

    Ints = NDArray[np.int64]

_RANGES = (
    ("forward", re.compile(r"^\W*(forward|fwd)\b", re.IGNORECASE)),
    ("backward", re.compile(r"^\W*(backward|bwd)\b", re.IGNORECASE)),
    ("optimizer", re.compile(r"^\W*optimizer\b|^Optimizer\.", re.IGNORECASE)),
    ("load", re.compile(r"^enumerate\(DataLoader\)|^\W*data[ _](copy|load)|^\[DALI\]", re.IGNORECASE)),
)
_BACKWARD_OP = re.compile(r"^autograd::engine|Backward\d*$|^torch::autograd::")
_MODULE = re.compile(r"^##(?!\s)")
_CODE = {name: code for code, name in enumerate(PHASES)}


def phases(events: pd.DataFrame, host: Host, threads: Threads) -> Ints:
    """Code (index in PHASES) of each host task's phase; −1 when unknown.

    Named ranges decide; then autograd's own operators and thread; what remains of the training
    threads' operators is forward.
    """
    phase = np.full(len(host), -1, np.int64)
    ranged = kind_is(events, "annotation", "op")
    for name, pattern in _RANGES:
        rows = np.flatnonzero(ranged & matching(events["name"], pattern))
        _paint(phase, events, host, rows, np.full(len(rows), _CODE[name]))
    below = _below(host, matching(events["name"], _BACKWARD_OP) & kind_is(events, "op"))
    free = phase < 0
    phase[free & below] = _CODE["backward"]
    for thread in threads.subordinates:
        phase[(host.thread == thread) & (phase < 0)] = _CODE["backward"]
    for thread in threads.loaders:
        phase[(host.thread == thread) & (phase < 0)] = _CODE["load"]
    has_operators = host.operator >= 0
    phase[(phase < 0) & has_operators & (host.thread == threads.main)] = _CODE["forward"]
    return phase


def modules(events: pd.DataFrame, host: Host) -> tuple[Ints, list[str]]:
    """Code of each host task's innermost module, and the module paths.

    Backward operators take the module of the forward operator with their sequence number.
    """
    rows = np.flatnonzero(kind_is(events, "annotation") & matching(events["name"], _MODULE))
    used, codes = np.unique(events["name"].cat.codes.to_numpy()[rows], return_inverse=True)
    paths = [str(name).lstrip("#") for name in events["name"].cat.categories[used]]
    module = np.full(len(host), -1, np.int64)
    if not len(rows):
        return module, []
    _paint(module, events, host, rows, codes)
    _backward_modules(module, events, host)
    return module, paths


def _paint(label: Ints, events: pd.DataFrame, host: Host, rows: Ints, codes: Ints) -> None:
    """Label the host tasks inside each range; inner ranges, which begin later, win."""
    start = events["start_ns"].to_numpy()[rows]
    end = start + events["duration_ns"].to_numpy()[rows]
    thread = events["thread"].to_numpy()[rows]
    for number in np.unique(thread):
        mine = np.flatnonzero(host.thread == number)
        here = np.flatnonzero(thread == number)
        here = here[np.lexsort((-end[here], start[here]))]
        first = np.searchsorted(host.start_ns[mine], start[here])
        last = np.searchsorted(host.start_ns[mine], end[here])
        for a, b, code in zip(first, last, codes[here], strict=True):
            label[mine[a:b]] = code


def _below(host: Host, flagged: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether a host task's operator, or any operator around it, is flagged."""
    flag = flagged.copy()
    up = host.parent.copy()
    while True:
        live = np.flatnonzero(up >= 0)
        if not len(live):
            break
        flag[live] |= flag[up[live]]
        up[live] = up[up[live]]
    own = np.where(host.operator >= 0, host.operator, host.event)
    return flag[own]


def _backward_modules(module: Ints, events: pd.DataFrame, host: Host) -> None:
    sequence = events["sequence"].to_numpy()
    forward_thread = events["forward_thread"].to_numpy()
    own = np.where(host.operator >= 0, host.operator, host.event)
    known = np.flatnonzero((module >= 0) & (sequence[own] >= 0))
    last = dict(zip(sequence[own[known]].tolist(), module[known].tolist(), strict=True))
    current = -1
    thread = None
    node = np.where((sequence >= 0) & (forward_thread > 0), sequence, -1)
    around = _inherit(host, node)
    backward = _below(host, matching(events["name"], _BACKWARD_OP) & kind_is(events, "op"))
    for task in np.flatnonzero(backward & (module < 0)).tolist():
        if host.thread[task] != thread:
            thread, current = host.thread[task], -1
        number = int(around[own[task]])
        current = last.get(number, current) if number >= 0 else current
        module[task] = current


def _inherit(host: Host, value: Ints) -> Ints:
    """Per event: its own value, else the nearest enclosing operator's; −1 without any."""
    result = value.copy()
    up = host.parent.copy()
    while True:
        empty = np.flatnonzero((result < 0) & (up >= 0))
        if not len(empty):
            return result
        result[empty] = result[up[empty]]
        still = empty[result[empty] < 0]
        up[still] = host.parent[up[still]]
