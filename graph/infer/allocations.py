"""What an allocator's events show: who holds memory, moment by moment.

In: the memory events of one rank, and the phase of its host tasks. Out: `Allocations`, or None
where a recording has no such events. A block belongs to a part by the phases in which it was taken
and given back; what was taken before the recording is told from its size alone, elsewhere.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from foretrace.graph.model import PHASES
from foretrace.graph.state import MEMORY_PARTS, Allocations, Block

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from foretrace.graph.infer.events import Events
    from foretrace.graph.infer.tasks.host_tasks import HostTasks
    from foretrace.tracer.trace import TraceMeta

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

MOST_MOMENTS = 512
"""Moments that are kept: of each stretch of events the one at which most is held."""
ZERO_GRAD = re.compile(r"^Optimizer\.zero_grad")
_FORWARD, _BACKWARD, _OPTIMIZER = map(PHASES.index, ("forward", "backward", "optimizer"))


def find_allocations(
    events: Events, host: HostTasks, phase: Ints, module: tuple[Ints, list[str]], meta: TraceMeta
) -> Allocations | None:
    """Return who holds memory of the device that the recording shows most of, else of the host.

    *phase* and *module* are those of each host task, the latter with the paths of all modules.
    """
    rows = np.flatnonzero(events.is_kind("memory"))
    changes = events.column("bytes")[rows]
    rows = rows[np.isfinite(changes) & (changes != 0)]
    if not len(rows):
        return None
    devices = events.column("device")[rows].astype(np.int64)
    device = _busiest(devices)
    rows = rows[devices == device]
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    size, at = events.column("bytes")[rows], events.start_ns[rows]
    task = _last_tasks(events, host, rows)
    of_row = np.append(phase, -1)[task]
    ends = pair_blocks(events.correlation[rows], size)
    part = _parts(size, of_row, ends)
    held = _sum_parts(size, part, ends)
    if device < 0 and "live_bytes" in meta.extra:
        held += _predecessors(size, part, ends, at < _zeroed_at(events))
    kept = _highest(held.sum(axis=1))
    modules, paths = np.append(module[0], -1)[task], [*module[1], ""]
    return Allocations(
        device=device,
        start_ns=tuple(at[kept].tolist()),
        phases=tuple(PHASES[code] if code >= 0 else "" for code in of_row[kept].tolist()),
        held=tuple(map(tuple, held[kept].tolist())),
        left=float(size.sum()),
        before=_before(meta, device, size, ends),
        blocks=tuple(_blocks(size, part, ends, at, paths, modules)),
    )


def pair_blocks(address: Ints, size: Floats) -> Ints:
    """Return, per event, the row at which its block is given back or was taken; −1 for none.

    Events are in order of time. Where a recording has no addresses, the block given back is the
    youngest of its size.

    Examples
    --------
    >>> pair_blocks(np.array([7, 9, 7, 5]), np.array([4.0, 8.0, -4.0, -2.0])).tolist()
    [2, -1, 0, -1]
    >>> pair_blocks(np.full(4, -1), np.array([4.0, 4.0, -4.0, -4.0])).tolist()
    [3, 2, 1, 0]
    """
    key = np.where(address >= 0, address, np.abs(size).astype(np.int64))
    takes = size > 0
    by_key = np.argsort(key, kind="stable")
    step = np.where(takes[by_key], 1, -1)
    level = np.cumsum(step)
    first = np.append(True, np.diff(key[by_key]) != 0)
    level -= np.repeat((level - step)[first], np.diff(np.append(np.flatnonzero(first), len(key))))
    level = np.where(address[by_key] >= 0, 0, level + (step < 0))
    order = by_key[np.lexsort((by_key, level, key[by_key]))]
    depth = np.empty(len(key), np.int64)
    depth[by_key] = level
    before, after = order[:-1], order[1:]
    same = (key[before] == key[after]) & (depth[before] == depth[after])
    match = same & takes[before] & ~takes[after]
    ends = np.full(len(key), -1, np.int64)
    ends[before[match]], ends[after[match]] = after[match], before[match]
    return ends


def _busiest(devices: Ints) -> int:
    """Return the device with most events; −1, the host, where there is none."""
    found = devices[devices >= 0]
    return int(np.bincount(found).argmax()) if len(found) else -1


def _last_tasks(events: Events, host: HostTasks, rows: Ints) -> Ints:
    """Return the host task that ran last on each event's thread; −1 for none."""
    task = np.full(len(rows), -1, np.int64)
    for thread, span in host.spans.items():
        mine = np.flatnonzero(events.thread[rows] == thread)
        last = np.searchsorted(host.start_ns[span], events.start_ns[rows[mine]], side="right") - 1
        task[mine] = np.where(last >= 0, span.start + last, -1)
    return task


def _blocks(
    size: Floats, part: Ints, ends: Ints, at: Ints, paths: list[str], module: Ints
) -> Iterator[Block]:
    """Yield the activations that came and went while events were recorded, in order of time."""
    came = (part == MEMORY_PARTS.index("activations")) & (size > 0) & (ends >= 0)
    for row in np.flatnonzero(came).tolist():
        yield Block(int(at[row]), int(at[ends[row]]), float(size[row]), paths[int(module[row])])


def _sum_parts(size: Floats, part: Ints, ends: Ints) -> Floats:
    """Return the bytes of each of `MEMORY_PARTS` behind each event.

    What is given back and was never taken was there from the beginning.
    """
    change = np.zeros((len(size), len(MEMORY_PARTS)))
    change[np.arange(len(size)), part] = size
    held = np.cumsum(change, axis=0)
    unseen = (size < 0) & (ends < 0)
    at_first = np.bincount(part[unseen], weights=-size[unseen], minlength=len(MEMORY_PARTS))
    return held + at_first


def _predecessors(
    size: Floats, part: Ints, ends: Ints, before_zeroing: NDArray[np.bool_]
) -> Floats:
    """Return the bytes that one recorded step found and gave back unseen, behind each event.

    torch's CPU allocator does not tell when a block goes that came before it was watched. One step
    is like the next: what a step leaves was there when it began. A gradient goes when gradients are
    set to zero; anything else, such as a batch, when its successor comes.
    """
    held = np.zeros((len(size), len(MEMORY_PARTS)))
    gradients = MEMORY_PARTS.index("gradients")
    for row in np.flatnonzero((size > 0) & (ends < 0)).tolist():
        if part[row] == gradients:
            held[before_zeroing, gradients] += size[row]
        else:
            held[:row, part[row]] += size[row]
    return held


def _zeroed_at(events: Events) -> int:
    """Return when gradients are set to zero; the beginning, where no optimizer says it does."""
    ranges = events.is_kind("annotation", "op") & events.named(ZERO_GRAD)
    begins: Ints = events.start_ns[ranges]
    return int(begins.min()) if len(begins) else 0


def _parts(size: Floats, phase: Ints, ends: Ints) -> Ints:
    """Return the part (index in `MEMORY_PARTS`) that each event's block belongs to.

    A block that outlives the phase it was taken in is what that phase makes for the next ones;
    one that does not is temporary.
    """
    code = {name: at for at, name in enumerate(MEMORY_PARTS)}
    takes = size > 0
    stays = _outlives(phase, ends)
    part = np.full(len(size), code["inputs"])
    trains = bool((phase == _BACKWARD).any())
    for made_in, made, within in (
        (_FORWARD, "activations", "temporary" if trains else "activations"),
        (_BACKWARD, "gradients", "temporary"),
        (_OPTIMIZER, "optimizer_state", "update"),
    ):
        mine = takes & (phase == made_in)
        part[mine & stays], part[mine & ~stays] = code[made], code[within]
    old = ~takes & (ends < 0)
    part[old & (phase == _BACKWARD)] = code["activations"]
    part[old & (phase == _OPTIMIZER)] = code["gradients"]
    given_back = ~takes & (ends >= 0)
    part[given_back] = part[ends[given_back]]
    return part


def _outlives(phase: Ints, ends: Ints) -> NDArray[np.bool_]:
    """Tell which blocks are still held when another phase has taken or given back memory."""
    known = np.where(phase >= 0, phase, np.roll(phase, 1))
    turns = np.cumsum(np.append(False, known[1:] != known[:-1]))
    stays: NDArray[np.bool_] = (ends < 0) | (turns[ends] != turns)
    return stays


def _highest(total: Floats) -> Ints:
    """Return the events to keep, in order: of each stretch the one behind which most is held."""
    stretches = np.array_split(np.arange(len(total)), min(MOST_MOMENTS, len(total)))
    return np.array([stretch[np.argmax(total[stretch])] for stretch in stretches])


def _before(meta: TraceMeta, device: int, size: Floats, ends: Ints) -> float | None:
    """Return the bytes held all along; None where nothing tells.

    On a device the allocator's own total says it; on the host the recorder, which counts what is
    there when its last step is over.
    """
    there = float(size[(size > 0) & (ends < 0)].sum())
    unseen = -float(size[(size < 0) & (ends < 0)].sum())
    if device < 0:
        live = meta.extra.get("live_bytes") or {}
        return max(float(live["total"]) - there, 0.0) if live else None
    totals = meta.extra.get("memory") or {}
    if totals.get("device") != device or totals.get("before_bytes") is None:
        return None
    return max(float(totals["before_bytes"]) - unseen, 0.0)
