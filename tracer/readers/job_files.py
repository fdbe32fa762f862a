"""The files of a job's folder or archive in, those of one cycle of every rank out.

`tensorboard_trace_handler` (also of DeepSpeed and Megatron) writes
``host_pid.1700000000.pt.trace.json``, one file per cycle and process; torchtitan
``iteration_10/rank0_trace.json``; nsys whatever its user names, most often with the rank in it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

RECORDING = re.compile(r"\.((json|sqlite)(\.(gz|zst|bz2|xz))?|nsys-rep|qdrep)$", re.IGNORECASE)
RANK = re.compile(r"(?:rank|worker)[-_]?(\d{1,6})(?!\d)", re.IGNORECASE)
HANDLER = re.compile(r"^(?P<process>.+)\.(?P<when>\d{9,20})\.pt\.trace\.json", re.IGNORECASE)
MARKS = (b'"traceEvents"', b'"schemaVersion"', b'"deviceProperties"', b'"ph"')
HEAD = 1 << 16
"""What tells a recording from other JSON stands in so many bytes."""


class Chosen(NamedTuple):
    """Names of the files of one cycle, in the order of their ranks, and how many cycles it left."""

    names: list[str]
    earlier: int


def may_be_recording(name: str) -> bool:
    """Tell by its *name* whether a file of a job may be a recording.

    >>> [may_be_recording(n) for n in ("rank0_trace.json", "a.pt.trace.json.zst", "log.txt")]
    [True, True, False]
    """
    return RECORDING.search(name) is not None


def looks_like_recording(head: bytes) -> bool:
    """Tell by the beginning of its content whether a file is one: JSON may be anything."""
    return head.startswith(b"SQLite format 3\x00") or any(mark in head[:HEAD] for mark in MARKS)


def choose_cycle(names: Iterable[str]) -> Chosen:
    """Return the files of the last cycle that every process recorded.

    >>> choose_cycle(["a_1.1700000001.pt.trace.json", "a_1.1700000002.pt.trace.json"])
    Chosen(names=['a_1.1700000002.pt.trace.json'], earlier=1)
    >>> choose_cycle([f"iteration_{i}/rank{r}_trace.json" for i in (2, 10) for r in (0, 1)]).names
    ['iteration_10/rank0_trace.json', 'iteration_10/rank1_trace.json']
    """
    files: dict[tuple[int, str], list[str]] = defaultdict(list)
    for name in sorted(names, key=_naturally):
        files[_process(name)].append(name)
    if not files:
        return Chosen([], 0)
    last = min(len(cycles) for cycles in files.values()) - 1
    order = sorted(files, key=lambda process: (process[0], _naturally(process[1])))
    chosen = [files[process][last] for process in order]
    return Chosen(chosen, sum(map(len, files.values())) - len(chosen))


def _process(name: str) -> tuple[int, str]:
    """Return what tells the process that wrote a file from the others: its rank, or its name."""
    file = PurePath(name).name
    if rank := RANK.search(file):
        return int(rank[1]), ""
    if handled := HANDLER.match(file):
        return -1, handled["process"]
    return -1, name


def _naturally(name: str) -> list[tuple[int, str]]:
    """Return a key by which numbers in names count as numbers."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
