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
_SHARDED = re.compile(r"^FSDP::pre_forward(?: \(|$)")
"""What FSDP2 does before a wrapped module runs; behind it stands the same with "post"."""
_ROOT = "model"
_SEQUENCE = re.compile(r"^Sequential_\d+$")
_NUMBER = re.compile(r"_\d+$")


class ModuleCalls(NamedTuple):
    """Calls of modules: the ``rows`` of events that begin them, when each ends, its path's code."""

    rows: Ints
    end_ns: Ints
    code: Ints
    paths: list[str]


class _Call(NamedTuple):
    """One call of a module by torch.profiler's name; ``above`` are the modules it ran in."""

    name: str
    above: tuple[str, ...]


def find_module_calls(events: Events) -> ModuleCalls:
    """Return the calls of modules; ranges that name paths go before stack frames.

    Where neither is there, the modules that FSDP2 wraps are known by what it does around them.
    """
    ends = events.start_ns + events.duration_ns
    annotations = np.flatnonzero(events.is_kind("annotation"))
    for pattern in (_OWN, _NUMBERED):
        rows = annotations[events.named(pattern, annotations)]
        if len(rows):
            used, code = np.unique(events.name[rows], return_inverse=True)
            paths = [events.names[c].lstrip("#") for c in used.tolist()]
            return ModuleCalls(rows, ends[rows], code, paths)
    frames = np.flatnonzero(events.is_kind("python"))
    rows = frames[events.named(_PYTHON, frames)] if len(frames) else frames
    if not len(rows):
        return _sharded_calls(events, annotations[events.named(_SHARDED, annotations)], ends)
    rows = rows[np.lexsort((-events.duration_ns[rows], events.start_ns[rows], events.thread[rows]))]
    used, code = np.unique(events.name[rows], return_inverse=True)
    path = name_paths(_nest(events, rows))
    paths = [path[_short(events.names[c])] for c in used.tolist()]
    return ModuleCalls(rows, ends[rows], code, paths)


def _sharded_calls(events: Events, rows: Ints, ends: Ints) -> ModuleCalls:
    """Return the calls of wrapped modules, which end with the next "post" of their name."""
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    number = {name: code for code, name in enumerate(events.names)}
    call_ends = ends[rows].copy()
    used, code = np.unique(events.name[rows], return_inverse=True)
    for place, name in enumerate(used.tolist()):
        after = number.get(events.names[name].replace("pre", "post", 1), -1)
        posts = np.flatnonzero(events.name == after)
        posts = posts[np.argsort(events.start_ns[posts], kind="stable")]
        mine = np.flatnonzero(code == place)
        at = np.searchsorted(events.start_ns[posts], call_ends[mine])
        call_ends[mine[at < len(posts)]] = ends[posts[at[at < len(posts)]]]
    paths = [events.names[c].partition("(")[2].rstrip(")") or _ROOT for c in used.tolist()]
    return ModuleCalls(rows, call_ends, code, paths)


def _short(name: str) -> str:
    return name.partition(": ")[2]


def _nest(events: Events, rows: Ints) -> list[_Call]:
    """Return the calls in order with the modules around each, by thread and time."""
    calls: list[_Call] = []
    around: list[tuple[int, str]] = []
    last = None
    ends = events.start_ns[rows] + events.duration_ns[rows]
    middles = (events.start_ns[rows] + ends) // 2  # rounded, a call may outlast what it is part of
    columns = (events.thread[rows], events.name[rows], middles, ends)
    for thread, code, middle, end in zip(*(each.tolist() for each in columns), strict=True):
        if thread != last:
            last, around = thread, []
        while around and around[-1][0] < middle:
            around.pop()
        name = _short(events.names[code])
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
    parts = {parent: _number(parent, inside, children) for parent, inside in children.items()}
    return {name: _path((*chain, name), parts) for name, chain in above.items()}


def _path(chain: tuple[str, ...], parts: dict[str, dict[str, str]]) -> str:
    inner = [parts.get(parent, {}).get(name, name) for parent, name in pairwise(chain)]
    return ".".join(inner) or _class(chain[0])


def _number(parent: str, inside: list[str], children: dict[str, list[str]]) -> dict[str, str]:
    """Return what those *inside* of *parent* are called there, where that is not their name."""
    if _SEQUENCE.match(parent):
        return {name: f"{place}.{name}" for place, name in enumerate(inside)}
    alike: dict[str, list[str]] = defaultdict(list)
    for name in inside:
        if name in children and not _SEQUENCE.match(name):
            alike[_class(name)].append(name)
    return {
        name: f"{block}.{place}"
        for block, names in alike.items()
        if len(names) > 1
        for place, name in enumerate(names)
    }


def _class(name: str) -> str:
    return _NUMBER.sub("", name)
