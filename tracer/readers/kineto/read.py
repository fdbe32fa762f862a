"""Read what torch.profiler writes: Kineto's Chrome-trace JSON of every age since 2020."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.tracer.data_issues import Tally
from foretrace.tracer.readers.columns import LATEST_NS, cut_name, integers
from foretrace.tracer.readers.kineto.columns import event_columns
from foretrace.tracer.readers.kineto.decode import SINGLE, decode
from foretrace.tracer.readers.kineto.kinds import event_kinds
from foretrace.tracer.readers.kineto.memory import peak_allocation
from foretrace.tracer.readers.kineto.processes import Process, split_processes
from foretrace.tracer.readers.kineto.time_unit import (
    look_like_longer_units,
    look_like_nanoseconds,
    refuse_nanoseconds,
)
from foretrace.tracer.readers.merge_ranks import join_ranks
from foretrace.tracer.readers.normalize import finish
from foretrace.tracer.readers.occupancy import WARP, Limits, add_resident_blocks
from foretrace.tracer.trace import Device, Trace, TraceMeta
from foretrace.util.schema import UNKNOWN_ID

if TYPE_CHECKING:
    from foretrace.tracer.readers.kineto.decode import KinetoFile

RANK_IN_NAME = re.compile(r"rank[-_]?(\d{1,4})", re.IGNORECASE)
MAX_RANK = np.iinfo(np.int16).max
MOST_RANKS = 2**24


def read_kineto(raw: bytes, source: str) -> Trace:
    """Turn the text of a Kineto file into a trace.

    Parameters
    ----------
    raw
        The uncompressed file.
    source
        Its name, for messages; a rank in it counts when the file says none.

    Raises
    ------
    TraceError
        If it is no trace of torch.profiler, or holds no usable event.
    """
    tally = Tally()
    recording = decode(raw, source, tally)
    kind = event_kinds(recording, source, tally)
    processes = split_processes(recording, kind, source)
    if len(processes) == 1:
        return _read_process(processes[0], source, tally, _rank(recording.meta, source))
    tally.add("several_processes", len(processes))
    traces = []
    for place, process in enumerate(processes):
        rank = (place, False) if process.rank is None else (process.rank, True)
        traces.append(_read_process(process, source, tally, rank))
        tally = Tally()
    trace = join_ranks(traces)
    return replace(trace, meta=replace(trace.meta, source=source))


def _read_process(process: Process, source: str, tally: Tally, rank: tuple[int, bool]) -> Trace:
    """Return the trace of one process; *rank* is its number, and whether the file says so."""
    recording, kind, _ = process
    values = event_columns(recording, kind, tally)
    if (values["start_ns"] < 0).all():
        refuse_nanoseconds(recording.columns["ts"], source)
    tally.add("times_in_nanoseconds", look_like_nanoseconds(recording, kind))
    tally.add("times_in_longer_units", look_like_longer_units(recording, kind))
    _count_the_rest(recording, tally)
    root = recording.meta
    number, own_rank = rank
    values["rank"] = np.full(len(kind), number, np.int16)
    properties = [p for p in _list(root.get("deviceProperties")) if isinstance(p, dict)]
    add_resident_blocks(values, _limits(properties))
    memory = np.flatnonzero(values["kind"] == "memory")
    peak = peak_allocation(recording, memory, values["start_ns"][memory], tally)
    frame, first = finish(values, source, tally)
    info = root.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    extra: dict[str, Any] = {"origin_ns": first + _integer(root.get("baseTimeNanoseconds"), 0)}
    extra["own_rank"] = own_rank
    if peak is not None:
        extra["memory"] = peak
    if _list(info.get("pg_config")):
        extra["process_groups"] = info["pg_config"]
    meta = TraceMeta(
        format="kineto",
        source=source,
        devices=tuple(_device(p, place) for place, p in enumerate(properties)),
        ranks=(number,),
        world_size=_world_size(info),
        warnings=tally.counts(),
        extra=extra,
    )
    return Trace(frame, meta)


def _count_the_rest(recording: KinetoFile, tally: Tally) -> None:
    tally.add("unfinished_ranges", recording.unfinished)
    tally.add("unbegun_ranges", recording.unbegun)
    starts, ends = (
        np.unique(integers(ids, tally)) for ids in (recording.flow_starts, recording.flow_ends)
    )
    tally.add("dangling_flows", len(np.setxor1d(starts, ends, assume_unique=True)))


def _rank(meta: dict[str, Any], source: str) -> tuple[int, bool]:
    """Return the rank, and whether the file or its name says it."""
    info = meta.get("distributedInfo")
    rank = _integer(info.get("rank"), -1) if isinstance(info, dict) else -1
    if 0 <= rank <= MAX_RANK:
        return rank, True
    match = RANK_IN_NAME.search(source)
    return (int(match[1]), True) if match else (0, False)


def _integer(value: Any, otherwise: int) -> int:
    """Return a whole number that the file may also write as a string."""
    number = int(integers([value if isinstance(value, SINGLE) else None], Tally())[0])
    return otherwise if number == UNKNOWN_ID or abs(number) > LATEST_NS else number


def _world_size(info: dict[str, Any]) -> int | None:
    size = _integer(info.get("world_size"), 0)
    return size if 0 < size <= MOST_RANKS else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _device(properties: dict[str, Any], place: int) -> Device:
    def size(key: str) -> int | None:
        return max(_integer(properties.get(key), 0), 0) or None

    return Device(
        index=_index(properties, place),
        name=cut_name(str(properties.get("name") or "")),
        sm_count=size("numSms"),
        memory_bytes=size("totalGlobalMem"),
        threads_per_sm=size("maxThreadsPerMultiprocessor"),
    )


def _index(properties: dict[str, Any], place: int) -> int:
    index = _integer(properties.get("id"), place)
    return index if 0 <= index <= MAX_RANK else place


def _limits(properties: list[dict[str, Any]]) -> dict[int, Limits]:
    def number(device: dict[str, Any], key: str) -> int:
        return _integer(device.get(key), 0)

    return {
        _index(device, place): Limits(
            warps=number(device, "maxThreadsPerMultiprocessor") // WARP,
            registers=number(device, "regsPerMultiprocessor"),
            shared_bytes=number(device, "sharedMemPerMultiprocessor"),
            capability=(number(device, "computeMajor"), number(device, "computeMinor")),
        )
        for place, device in enumerate(properties)
    }
