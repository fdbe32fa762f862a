"""Calls of modules, and the path of each module, as recorders name them.

In: events of one rank. Out: rows of ranges with a code, and a path per code. Paths look as
``named_modules`` writes them: what stands in a list or a sequence is numbered.
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.infer.events import Events

    Ints = NDArray[np.int64]

_OWN = re.compile(r"^##(?!\s)")
_NUMBERED = re.compile(r"^(?=[A-Za-z_]\w*(?:\.\w+)+$).*?\.\d+(?:\.|$)")
"""A range of a user that names a module by its path, such as ``layers.3.attn``."""
_PYTHON = re.compile(r"^nn\.Module: \w")
"""What torch.profiler writes of each call with ``with_stack`` or ``with_modules``."""
_SEQUENCE = re.compile(r"^Sequential_\d+$")
_NUMBER = re.compile(r"_\d+$")


class ModuleCalls(NamedTuple):
    """Ranges of module calls: ``rows`` of events, the ``code`` of each, the path of each code."""

    rows: Ints
    code: Ints
    paths: list[str]


class _Call(NamedTuple):
    """One call of a module by torch.profiler's name; ``above`` are the modules it ran in."""

    name: str
    above: tuple[str, ...]


def find_module_calls(events: Events) -> ModuleCalls:
    """Return the calls of modules; ranges that name paths go before stack frames."""
    annotations = np.flatnonzero(events.is_kind("annotation"))
    for pattern in (_OWN, _NUMBERED):
        rows = annotations[events.named(pattern, annotations)]
        if len(rows):
            used, code = np.unique(events.name[rows], return_inverse=True)
            return ModuleCalls(rows, code, [events.names[c].lstrip("#") for c in used.tolist()])
    frames = np.flatnonzero(events.is_kind("python"))
    rows = frames[events.named(_PYTHON, frames)] if len(frames) else frames
    rows = rows[np.lexsort((-events.duration_ns[rows], events.start_ns[rows], events.thread[rows]))]
    used, code = np.unique(events.name[rows], return_inverse=True)
    path = name_paths(_nest(events, rows))
    return ModuleCalls(rows, code, [path[_short(events.names[c])] for c in used.tolist()])


def _short(name: str) -> str:
    return name.partition(": ")[2]


def _nest(events: Events, rows: Ints) -> list[_Call]:
    """Return the calls in order with the modules around each, by thread and time."""
    calls: list[_Call] = []
    around: list[tuple[int, str]] = []
    thread = None
    ends = events.start_ns[rows] + events.duration_ns[rows]
    middles = (events.start_ns[rows] + ends) // 2  # rounded, a call may outlast what it is part of
    for row, middle, end in zip(rows.tolist(), middles.tolist(), ends.tolist(), strict=True):
        if events.thread[row] != thread:
            thread, around = events.thread[row], []
        while around and around[-1][0] < middle:
            around.pop()
        name = _short(events.names[events.name[row]])
        if any(name == each for _, each in around):
            continue  # compiled code calls itself
        calls.append(_Call(name, tuple(each for _, each in around)))
        around.append((end, name))
    return calls


def name_paths(calls: list[_Call]) -> dict[str, str]:
    """Return the path of every module, from torch's names ("Linear_3") and what ran in what.

    The outermost module is left out of the paths of those inside. What runs in a sequence has its
    place in it, and so have modules of one class side by side that hold others: blocks in a list.

    >>> calls = [_Call("Net_0", ()), _Call("Block_0", ("Net_0",)),
    ...          _Call("Linear_0", ("Net_0", "Block_0")), _Call("Block_1", ("Net_0",)),
    ...          _Call("Linear_1", ("Net_0", "Block_1")), _Call("Linear_2", ("Net_0",))]
    >>> [name_paths(calls)[name] for name in ("Net_0", "Linear_0", "Block_1", "Linear_2")]
    ['Net', 'Block.0.Linear_0', 'Block.1', 'Linear_2']
    """
    above: dict[str, tuple[str, ...]] = {}
    for call in calls:  # a block that is run again in the backward pass runs in nothing there
        if call.name not in above or len(call.above) > len(above[call.name]):
            above.pop(call.name, None)
            above[call.name] = call.above
    children: dict[str, list[str]] = defaultdict(list)
    for name, chain in above.items():
        children[chain[-1] if chain else ""].append(name)
    return {name: _path((*chain, name), children) for name, chain in above.items()}


def _path(chain: tuple[str, ...], children: dict[str, list[str]]) -> str:
    parts = [_part(name, parent, children) for parent, name in pairwise(chain)]
    return ".".join(parts) or _class(chain[0])


def _part(name: str, parent: str, children: dict[str, list[str]]) -> str:
    """Return what *name* is called in its *parent*."""
    siblings = children[parent]
    if name in siblings and _SEQUENCE.match(parent):
        return f"{siblings.index(name)}.{name}"
    holders = [each for each in siblings if children.get(each) and not _SEQUENCE.match(each)]
    alike = [each for each in holders if _class(each) == _class(name)]
    if name in alike and len(alike) > 1:
        return f"{_class(name)}.{alike.index(name)}"
    return name


def _class(name: str) -> str:
    return _NUMBER.sub("", name)
