"""One file that holds several processes, as tools merge them, in; a recording of each out.

A host event says its process. Whose the work of a device is, is told by the label that the merging
tool gave both, or by a rank among the arguments, or by the call that it shares a correlation with.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from foretrace.errors import TraceError
from foretrace.tracer.readers.kineto.decode import Arguments, one_line
from foretrace.tracer.trace import EVENT_KINDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.tracer.readers.kineto.decode import KinetoFile

    Rows = NDArray[np.int64]

ON_DEVICE = ("kernel", "memcpy", "memset", "sync", "gpu_annotation")
LABEL = re.compile(r"^(?:\[[^\]]+\]|\D*?rank\W?\d+)", re.IGNORECASE)
"""What merging tools put before the process id: "[TP00] 4000", "rank 3: 4000"."""
NUMBER = re.compile(r"(?<!\d)\d{1,4}(?!\d)")
MOST = np.iinfo(np.int16).max
"""The highest rank there is."""
LINK = Arguments(single=(("rank", "rank"), ("correlation", "correlation"), ("device", "device")))
NOBODY = -1
LEAST_CALLS, LEAST_SHARE = 4, 0.2
"""A process with fewer calls, or fewer than this share of the most, is a stray id and no rank."""
AGREE = 0.9
"""Share of its tasks that must name one process for a whole device to be its own."""


class Process(NamedTuple):
    """One process of a file: its recording, the kinds of its events, and its rank where known."""

    recording: KinetoFile
    kind: np.ndarray
    rank: int | None


def split_processes(recording: KinetoFile, kind: np.ndarray, source: str) -> list[Process]:
    """Return every process that launches work of its own; of one process, the file as it is.

    Raises
    ------
    TraceError
        Nothing says which of several processes the work of a device belongs to.
    """
    calls = _rows(kind, "runtime")
    hosts = calls if len(calls) else _rows(kind, "op")
    count = Counter(map(str, recording.select("pid", hosts)))
    most = max(count.values(), default=0)
    pids = [pid for pid, calls in count.items() if calls >= max(LEAST_CALLS, LEAST_SHARE * most)]
    if len(pids) < 2:  # noqa: PLR2004  # the usual file
        return [Process(recording, kind, None)]
    every = np.arange(len(kind))
    pid_of = np.array([str(pid) for pid in recording.select("pid", every)], dtype=object)
    number = {pid: place for place, pid in enumerate(pids)}
    owner = np.array([number.get(pid, NOBODY) for pid in pid_of], np.int64)
    link = recording.arguments(every, LINK)
    device = _rows(kind, *ON_DEVICE)
    owner[device] = NOBODY
    ranks = _declared_ranks(link["rank"], owner, len(pids)) or _labelled_ranks(pids)
    _claim_by_rank(owner, link["rank"], len(pids))
    _claim_by_label(owner, pid_of, pids)
    _claim_by_call(owner, kind, link, pid_of)
    work = _rows(kind, "kernel", "memcpy", "memset")
    if (owner[work] == NOBODY).any():
        raise TraceError(
            f"{source}: it holds {len(pids)} processes ({one_line(pids[:4])}), and nothing says "
            "whose the work of a device is; give the recording of each process"
        )
    working = np.unique(owner[work]) if len(work) else np.arange(len(pids))
    owner = np.where(np.isin(owner, working), owner, working[0])
    return [
        Process(_pick(recording, owner == one, first=place == 0), kind[owner == one],
                ranks[one] if ranks else None)
        for place, one in enumerate(working.tolist())
    ]  # fmt: skip


def _codes(*kinds: str) -> list[int]:
    return [EVENT_KINDS.index(each) for each in kinds]


def _rows(kind: np.ndarray, *kinds: str) -> Rows:
    return np.flatnonzero(np.isin(kind, _codes(*kinds)))


def _declared_ranks(values: list[Any], owner: Rows, processes: int) -> list[int] | None:
    """Return the rank that the host events of each process name, if each names one of its own."""
    named = [
        {values[row] for row in np.flatnonzero(owner == one).tolist()} - {-1, None}
        for one in range(processes)
    ]
    if not all(len(each) == 1 for each in named):
        return None
    ranks = [next(iter(each)) for each in named]
    distinct = len(set(ranks)) == processes
    return ranks if distinct and all(type(r) is int and 0 <= r <= MOST for r in ranks) else None


def _labelled_ranks(pids: list[str]) -> list[int] | None:
    """Return the ranks that labels tell: their number, or their place where they have several."""
    labels = [label[0] if (label := LABEL.match(pid)) else "" for pid in pids]
    if "" in labels or len(set(labels)) < len(labels):
        return None
    numbers = [NUMBER.findall(label) for label in labels]
    if all(len(each) == 1 for each in numbers) and len({int(n[0]) for n in numbers}) == len(pids):
        return [int(each[0]) for each in numbers]
    place = {label: rank for rank, label in enumerate(sorted(labels))}
    return [place[label] for label in labels]


def _claim_by_rank(owner: Rows, ranks: list[Any], processes: int) -> None:
    """Give rows without an owner to the process whose host events carry the same rank."""
    declared = _declared_ranks(ranks, owner, processes)
    if declared is None:
        return
    process = {rank: place for place, rank in enumerate(declared)}
    for row in np.flatnonzero(owner == NOBODY).tolist():
        owner[row] = process.get(ranks[row], NOBODY)


def _claim_by_label(owner: Rows, pid_of: np.ndarray, pids: list[str]) -> None:
    """Give rows without an owner to the process whose id begins with the same label."""
    labels = [label[0] if (label := LABEL.match(pid)) else "" for pid in pids]
    if "" in labels or len(set(labels)) < len(labels):
        return
    process = {label: place for place, label in enumerate(labels)}
    for row in np.flatnonzero(owner == NOBODY).tolist():
        label = LABEL.match(pid_of[row])
        owner[row] = process.get(label[0], NOBODY) if label else NOBODY


def _claim_by_call(
    owner: Rows, kind: np.ndarray, link: dict[str, list[Any]], pid_of: np.ndarray
) -> None:
    """Give the rows of a device to the process whose calls most of them share a correlation with.

    A device is told by process id and index. One that several processes use is split row by row.
    """
    callers: dict[Any, set[int]] = defaultdict(set)
    for row in _rows(kind, "runtime").tolist():
        callers[link["correlation"][row]].add(int(owner[row]))
    left: dict[tuple[str, Any], list[int]] = defaultdict(list)
    for row in np.flatnonzero((owner == NOBODY) & np.isin(kind, _codes(*ON_DEVICE))).tolist():
        left[pid_of[row], link["device"][row]].append(row)
    for rows in left.values():
        claims = [callers.get(link["correlation"][row], set()) for row in rows]
        alone = [next(iter(claim)) if len(claim) == 1 else NOBODY for claim in claims]
        votes = Counter(claim for claim in alone if claim != NOBODY)
        (winner, most), *_ = votes.most_common(1) or [(NOBODY, 0)]
        owner[rows] = winner if most >= AGREE * max(votes.total(), 1) else alone


def _pick(recording: KinetoFile, chosen: NDArray[np.bool_], *, first: bool) -> KinetoFile:
    """Return the recording of some rows; what belongs to no row goes with the first."""
    columns = {
        name: [value for value, take in zip(values, chosen.tolist(), strict=True) if take]
        for name, values in recording.columns.items()
    }
    rest: dict[str, Any] = {} if first else {"flow_starts": [], "flow_ends": []}
    if not first:
        rest |= {"unfinished": 0, "unbegun": 0}
    return replace(recording, columns=columns, _arrays={}, **rest)
