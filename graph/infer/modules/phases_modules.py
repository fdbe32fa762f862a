"""Phase and module of every host task; device work inherits them from its launch.

In: events and host tasks of one rank. Out: category codes; −1 where it cannot be known.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from foretrace.graph.infer.modules.module_calls import find_module_calls
from foretrace.graph.infer.tasks.host_tasks import find_enclosing
from foretrace.graph.model import PHASES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.infer.events import Events
    from foretrace.graph.infer.tasks.host_tasks import HostTasks
    from foretrace.graph.infer.tasks.threads import Threads

    Ints = NDArray[np.int64]

_RANGES = (
    ("forward", re.compile(r"^\W*(forward|fwd)\b", re.IGNORECASE)),
    ("backward", re.compile(r"^\W*(backward|bwd)\b", re.IGNORECASE)),
    ("optimizer", re.compile(r"^\W*optimizer\b|^Optimizer\.", re.IGNORECASE)),
    (
        "load",
        re.compile(r"^enumerate\(DataLoader\)|^\W*data[ _](copy|load)|^\[DALI\]", re.IGNORECASE),
    ),
)
_BACKWARD_OP = re.compile(r"^autograd::engine|Backward\d*$|^torch::autograd::")
_CODE = {name: code for code, name in enumerate(PHASES)}


def assign_phases(events: Events, host: HostTasks, threads: Threads) -> Ints:
    """Code (index in PHASES) of each host task's phase; −1 when unknown.

    Named ranges decide; then autograd's own operators and thread; what remains of the training
    threads' operators is forward.
    """
    phase = np.full(len(host), -1, np.int64)
    ranges = np.flatnonzero(events.is_kind("annotation", "op"))
    for name, pattern in _RANGES:
        rows = ranges[events.named(pattern, ranges)]
        _paint(phase, events, host, rows, np.full(len(rows), _CODE[name]))
    phase[(phase < 0) & _is_backward(events, host)] = _CODE["backward"]
    for name, group in (("backward", threads.subordinates), ("load", threads.loaders)):
        phase[(phase < 0) & host.on(group)] = _CODE[name]
    phase[(phase < 0) & (host.operator >= 0) & host.on([threads.main])] = _CODE["forward"]
    return phase


def assign_modules(events: Events, host: HostTasks) -> tuple[Ints, list[str]]:
    """Code of each host task's innermost module, and the module paths.

    Backward operators take the module of the forward operator with their sequence number.
    """
    calls = find_module_calls(events)
    module = np.full(len(host), -1, np.int64)
    if len(calls.rows):
        _paint(module, events, host, calls.rows, calls.code, calls.end_ns)
        _assign_backward_modules(module, events, host)
    return module, calls.paths


def _paint(
    label: Ints,
    events: Events,
    host: HostTasks,
    rows: Ints,
    codes: Ints,
    end_ns: Ints | None = None,
) -> None:
    """Label the host tasks inside each range; inner ranges, which begin later, win.

    Ranges end with their events, or where *end_ns* says.
    """
    start = events.start_ns[rows]
    end = start + events.duration_ns[rows] if end_ns is None else end_ns
    thread = events.thread[rows]
    order = np.lexsort((-end, start, thread))
    for number, mine in host.spans.items():
        here = order[thread[order] == number]
        first, last = (np.searchsorted(host.start_ns[mine], each[here]) for each in (start, end))
        _fill_ranges(label[mine], first, last, codes[here])


@njit(cache=True)
def _fill_ranges(label: Ints, first: Ints, last: Ints, codes: Ints) -> None:
    for i in range(len(first)):
        label[first[i] : last[i]] = codes[i]


def _is_backward(events: Events, host: HostTasks) -> NDArray[np.bool_]:
    """Tell whether a host task's operator, or any operator around it, is autograd's."""
    is_backward = events.is_kind("op") & events.named(_BACKWARD_OP)
    return find_enclosing(host, is_backward) >= 0


def _assign_backward_modules(module: Ints, events: Events, host: HostTasks) -> None:
    sequence = events.column("sequence")
    own = host.own_event
    forward = np.flatnonzero((module >= 0) & (sequence[own] >= 0))
    module_of = dict(zip(sequence[own[forward]].tolist(), module[forward].tolist(), strict=True))
    is_node = (sequence >= 0) & (events.column("forward_thread") > 0)
    node = find_enclosing(host, is_node)
    current, thread = -1, None
    for task in np.flatnonzero(_is_backward(events, host) & (module < 0)).tolist():
        if host.thread[task] != thread:
            current, thread = -1, host.thread[task]
        if node[task] >= 0:
            current = module_of.get(int(sequence[node[task]]), current)
        module[task] = current
