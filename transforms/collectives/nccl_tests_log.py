"""Logs of nccl-tests (and rccl-tests), and the CSV of vTrain's NCCL tables, as table entries.

A data line is read from its end, where every version prints the same: one or two blocks that begin
with the time, out of place and in place. Lines that cannot be read are counted by reason.
"""

from __future__ import annotations

import gzip
import math
import re
import zlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from foretrace.errors import TraceError
from foretrace.transforms.cluster.cost_tables import CostEntry
from foretrace.transforms.costs.devices import find_device
from foretrace.util.text_file import BYTE_ORDER_MARK

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

KINDS_OF_TESTS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "alltoall": "all_to_all",
    "sendrecv": "send",
}
PREFIX = re.compile(r"^\s*(?:\[\d+,\d+\]<std(?:out|err)>:|\d+:\s)")
"""What mpirun --tag-output and srun --label put before each line."""
TEST = re.compile(r"\b([a-z_]+)_perf")
RANK = re.compile(
    r"^(?>.*?#\s*Rank\s+(\d+)\b)(?>.*?\bPid\s+\d+\s+on\s+)(\S*?)\s*+device\s+\d+\s+\[[^\]]*\]"
    r"\s+(\S.*)"
)
HEADER = re.compile(r"#\s+size\s+count\b")
DATA = re.compile(r"^\s*\d+\s+\d+\s+[a-z]")
MOST_BYTES = 1 << 28
CONSISTENT, WORTH_CHECKING = 0.05, 1.0
"""The bandwidth printed must match size / time (share), where it is at least so many GB/s."""
UNREADABLE = "could not be read"
WRONG = "had wrong results"
EMPTY = "moved 0 bytes"
UNITS = "have a time that does not match their bandwidth"


@dataclass(frozen=True)
class TestsLog:
    """What one log holds: its entries, and the lines left out, counted by reason."""

    entries: tuple[CostEntry, ...]
    left_out: Counter[str] = field(default_factory=Counter)


@dataclass
class _Test:
    """One run of a test within a log, as far as it was read."""

    kind: str | None
    ranks: set[int] = field(default_factory=set)
    hosts: set[str] = field(default_factory=set)
    device: str = ""
    block: int = 0
    lines: list[list[str]] = field(default_factory=list)


def read_log(path: Path, *, topology: str = "", ranks: int | None = None) -> TestsLog:
    """Read one log, plain or gzipped; or one file of vTrain's tables.

    Parameters
    ----------
    topology
        Class of what joins the ranks, as `topology_of` names it; "" fits any.
    ranks
        Number of ranks, where the log does not list them.

    Raises
    ------
    TraceError
        There is no result in it, or it does not say of how many ranks or of what.
    """
    text = _text(path)
    if text.startswith("size(B),"):
        return _vtrain(text, path, topology)
    left_out: Counter[str] = Counter()
    entries = [
        entry
        for test in _tests(text, path)
        for entry in _entries(test, topology, _ranks_of(test, ranks, path), left_out)
    ]
    if not entries:
        why = "".join(f"; {lines} line(s) {reason}" for reason, lines in sorted(left_out.items()))
        raise TraceError(f"{path}: no result of nccl-tests in it{why}")
    return TestsLog(tuple(entries), left_out)


def _text(path: Path) -> str:
    try:
        if path.exists() and not path.is_file():
            raise TraceError(f"{path}: no regular file")
        with path.open("rb") as plain:
            raw = plain.read(MOST_BYTES + 1)
        if raw[:2] == b"\x1f\x8b":
            with gzip.open(path) as file:
                raw = file.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise TraceError(f"{path}: cannot be read ({reason})") from error
    if len(raw) > MOST_BYTES:
        raise TraceError(f"{path}: more than {MOST_BYTES:,} bytes is no log of nccl-tests")
    return raw.removeprefix(BYTE_ORDER_MARK).decode("utf-8", errors="replace")


def _tests(text: str, path: Path) -> Iterator[_Test]:
    """Yield each run that has results, in order."""
    named = TEST.search(text) or TEST.search(path.name)
    test = _Test(_kind(named[1]) if named else None)
    for raw in text.splitlines():
        line = PREFIX.sub("", raw)
        title = TEST.search(line)
        if (title and "concluded" not in line) or "Using devices" in line:
            if test.lines:
                yield test
                test = _Test(test.kind)
            test.kind = _kind(title[1]) if title else test.kind
        elif rank := RANK.search(line):
            test.ranks.add(int(rank[1]))
            test.hosts.add(rank[2])
            test.device = rank[3].rstrip()
        elif HEADER.search(line):
            words = line.replace("#wrong", "wrong").lstrip("# ").split()
            test.block = len(words) - words.index("time") if "time" in words else 0
        elif DATA.match(line):
            test.lines.append(line.split())
    if test.lines:
        yield test


def _kind(name: str) -> str | None:
    return KINDS_OF_TESTS.get(name.strip("_"))


def _ranks_of(test: _Test, given: int | None, path: Path) -> int:
    """Return how many ranks took part; where they are not listed, from the bus bandwidth."""
    ranks = given or len(test.ranks) or _ranks_by_bandwidth(test)
    if test.kind is None:
        tests = ", ".join(KINDS_OF_TESTS)
        raise TraceError(f"{path}: does not say which test it is of, or none of {tests}")
    if not ranks:
        raise TraceError(f"{path}: does not say how many ranks took part; give --ranks")
    if ranks == 1:
        raise TraceError(
            f"{path}: one rank exchanges nothing; nccl-tests built without MPI runs every process "
            "as a group of its own"
        )
    return ranks


def _ranks_by_bandwidth(test: _Test) -> int:
    """Return the ranks at which size / time and the bus bandwidth differ as printed; 0 unknown."""
    per_rank = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}
    whole = per_rank.get(test.kind or "")
    best = max(_numbers(line, test.block) or [(0.0, 0.0, 0.0)] for line in test.lines)[0]
    if whole is None or not best[1] >= WORTH_CHECKING:  # nan is neither
        return 0
    share = best[2] / best[1] / whole
    return round(1 / (1 - share)) if share < 1 else 0


def _entries(test: _Test, topology: str, ranks: int, left_out: Counter[str]) -> Iterator[CostEntry]:
    device = _device(test.device)
    for line in test.lines:
        blocks = _numbers(line, test.block)
        size = int(line[0])
        if blocks is None:
            left_out[UNREADABLE] += 1
        elif any(
            word not in {"0", "N/A"} and _is_wrong(word) for word in _checks(line, test.block)
        ):
            left_out[WRONG] += 1
        elif not size:
            left_out[EMPTY] += 1
        elif not all(_is_consistent(size, *block[:2]) for block in blocks):
            left_out[UNITS] += 1
        else:
            times = [1000 * time_us for time_us, *_ in blocks]
            mean = sum(times) / len(times)
            spread = (max(times) - min(times)) / 2 / mean
            yield CostEntry(device, topology, str(test.kind), ranks, size, mean, spread)


def _numbers(line: Sequence[str], block: int) -> list[tuple[float, float, float]] | None:
    """Return time in µs, algorithm and bus bandwidth of each block; None where there is none."""
    width = 4
    if block not in {width, 2 * width} or len(line) < block + 3:
        return None
    try:
        blocks = [
            (float(line[at]), float(line[at + 1]), float(line[at + 2]))
            for at in range(len(line) - block, len(line), width)
        ]
    except ValueError:
        return None
    return blocks if all(0 < time_us < math.inf for time_us, *_ in blocks) else None


def _checks(line: Sequence[str], block: int) -> list[str]:
    """Return what each block says about wrong results: a count, or an error of rounding."""
    return [line[at] for at in range(len(line) - block + 3, len(line), 4)]


def _is_wrong(word: str) -> bool:
    return word.isdigit() and int(word) > 0


def _is_consistent(size: int, time_us: float, algorithm_gb_per_s: float) -> bool:
    by_time = size / time_us / 1000
    if max(by_time, algorithm_gb_per_s) < WORTH_CHECKING:
        return True
    return abs(by_time - algorithm_gb_per_s) <= CONSISTENT * by_time


def _device(recorded: str) -> str:
    device = find_device(recorded)
    return device.name if device else recorded


def _vtrain(text: str, path: Path, topology: str) -> TestsLog:
    """Read size, count, type and twice time in ns and bus bandwidth; the rest is in the name."""
    named = re.search(r"(?:(a100|v100)_allreduce_)?(?<!\d)(\d+)gpu", path.name, re.IGNORECASE)
    if not named:
        raise TraceError(f"{path}: its name does not say how many GPUs: expected a100_..._4gpu...")
    device = {"a100": "A100-SXM4-40GB", "v100": "V100-SXM2"}.get((named[1] or "").lower(), "")
    left_out: Counter[str] = Counter()
    entries = []
    for line in text.splitlines()[1:]:
        try:
            size, _, _, out, _, inside, _ = line.split(",")
            times = float(out), float(inside)
            mean = sum(times) / len(times)
            spread = (max(times) - min(times)) / 2 / mean
            entry = CostEntry(
                device, topology, "all_reduce", int(named[2]), int(size), mean, spread
            )
        except (ValueError, ZeroDivisionError):
            left_out[UNREADABLE] += 1
            continue
        if entry.bytes > 0 and min(times) > 0 and math.isfinite(mean):
            entries.append(entry)
        else:
            left_out[UNREADABLE] += 1
    if not entries:
        raise TraceError(f"{path}: no result of vTrain's NCCL tables in it")
    return TestsLog(tuple(entries), left_out)
