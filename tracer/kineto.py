"""Read what torch.profiler writes: Kineto's Chrome-trace JSON of every age since 2020."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.errors import TraceError
from foretrace.tracer import checks
from foretrace.tracer.columns import (
    categorical,
    event_frame,
    integers,
    nanoseconds,
    no_stream,
    numbers,
)
from foretrace.tracer.decode import Decoded, decode
from foretrace.tracer.oddities import Tally
from foretrace.tracer.trace import EVENT_KINDS, Device, Trace, TraceMeta

if TYPE_CHECKING:
    from collections.abc import Callable

KIND_OF_CATEGORY = {
    "cpu_op": "op",
    "operator": "op",
    "user_annotation": "annotation",
    "cuda_runtime": "runtime",
    "cuda_driver": "runtime",
    "runtime": "runtime",
    "kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memset": "memset",
    "memset": "memset",
    "cuda_sync": "sync",
    "gpu_user_annotation": "gpu_annotation",
    "python_function": "python",
    "overhead": "overhead",
    "cpu_instant_event": "memory",
}
IGNORED_CATEGORIES = {"trace", "ac2g", "fwdbwd", "async", "async_cpu_to_gpu", "none"}
DEVICE_KINDS = ("kernel", "memcpy", "memset", "gpu_annotation")
ANNOTATION_NAME = re.compile(r"ProfilerStep#|Optimizer\.|## ")
RANK_IN_NAME = re.compile(r"rank[-_]?(\d+)", re.IGNORECASE)
ITEM_BYTES = {
    "float": 4, "int": 4, "double": 8, "long": 8, "half": 2, "bfloat16": 2, "c10::half": 2,
    "c10::bfloat16": 2, "byte": 1, "char": 1, "bool": 1, "short": 2, "unsigned char": 1,
}  # fmt: skip


class _NoArgs:
    """Stands in for absent ``args``: every attribute is unknown."""

    copy_kind = sync_kind = group = element_type = grid = block = None
    shapes = shapes_old = dtypes = None

    def __getattr__(self, name: str) -> int:
        return -1


NO_ARGS = _NoArgs()


def read_kineto(raw: bytes, source: str) -> Trace:
    """Turn the bytes of a Kineto JSON file into a trace.

    Raises
    ------
    TraceError
        If it is no trace, or holds no event.
    """
    tally = Tally()
    decoded = decode(raw, source, tally)
    events = _complete_events(decoded.events, tally)
    if not events:
        raise TraceError(f"{source}: the trace holds no events; was the profiler stopped too early?")
    values, origin = _columns(events, tally)
    rank, world = _rank(decoded.meta, source, tally)
    values["rank"] = np.full(len(events), rank, np.int16)
    devices, limits = _devices(decoded.meta)
    if limits:
        values["blocks_per_sm"] = checks.resident_blocks(values, limits)
    for temporary in ("registers", "shared_memory"):
        values.pop(temporary, None)
    frame = event_frame(values, len(events))
    frame = checks.clean(frame, tally)
    frame, shifted = checks.to_origin(frame)
    meta = TraceMeta(
        format="kineto",
        source=source,
        devices=devices,
        ranks=(rank,),
        world_size=world,
        warnings=tally.counts(),
        extra={"origin_ns": origin + shifted},
    )
    return Trace(frame, meta)


def _complete_events(events: list[Any], tally: Tally) -> list[Any]:
    """Keep what has a kind: complete events and allocator instants; set ``kind`` beside each."""
    kept = []
    other: Counter[str] = Counter()
    kind_of: dict[Any, str | None] = {}
    for event in events:
        phase = event.ph
        if phase == "X":
            category = event.cat
            kind = kind_of.get(category, "")
            if kind == "":
                kind = kind_of[category] = _kind(category)
            if kind is None:
                other[str(category).lower()] += 1
            else:
                kept.append((event, kind))
        elif phase == "i" and event.name == "[memory]":
            kept.append((event, "memory"))
        elif phase == "B":
            other["unfinished"] += 1
    tally.add("unfinished_ranges", other.pop("unfinished", 0))
    tally.add("unknown_category", sum(n for c, n in other.items() if c not in IGNORED_CATEGORIES))
    return kept


def _kind(category: Any) -> str | None:
    name = str(category).lower()
    if name in KIND_OF_CATEGORY:
        return KIND_OF_CATEGORY[name]
    if name.endswith(("_runtime", "_driver")):
        return "runtime"
    return None


def _columns(events: list[Any], tally: Tally) -> tuple[dict[str, Any], int]:
    objects = [e for e, _ in events]
    kinds = [k for _, k in events]
    args = [e.args or NO_ARGS for e in objects]
    names = ["" if e.name is None else str(e.name) for e in objects]
    kind = np.array([EVENT_KINDS.index(k) for k in EVENT_KINDS])
    index = {k: i for i, k in enumerate(EVENT_KINDS)}
    kind = np.fromiter((index[k] for k in kinds), np.int8, len(kinds))
    return _build(objects, args, names, kind, tally)


def _build(
    objects: list[Any], args: list[Any], names: list[str], kind: np.ndarray, tally: Tally
) -> tuple[dict[str, Any], int]:
    from foretrace.tracer.columns import from_codes

    rows = len(objects)
    start, start_ok = nanoseconds([e.ts for e in objects], tally)
    is_memory = kind == EVENT_KINDS.index("memory")
    duration, duration_ok = nanoseconds(
        [0 if m else e.dur for e, m in zip(objects, is_memory, strict=True)], tally
    )
    tally.add("missing_duration", int((~duration_ok).sum()))
    start = np.where(start_ok & (start >= 0), start, -1)
    name = categorical(names)
    is_op = kind == EVENT_KINDS.index("op")
    annotation = np.array([bool(ANNOTATION_NAME.match(c)) for c in name.categories], bool)
    kind = np.where(is_op & annotation[name.codes], EVENT_KINDS.index("annotation"), kind)
    device_kind = np.isin(kind, [EVENT_KINDS.index(k) for k in DEVICE_KINDS])
    on_device = np.flatnonzero(device_kind | (kind == EVENT_KINDS.index("sync")))

    def of_device(attribute: str, convert: Callable[..., Any], fill: Any) -> Any:
        some = convert([getattr(args[i], attribute) for i in on_device], tally)
        full = np.full(rows, fill, some.dtype)
        full[on_device] = some
        return full

    stream = no_stream(of_device("stream", integers, -1))
    lane = integers(
        [_lane(objects[i].tid) for i in on_device], tally
    )
    in_lane = stream[on_device] < 0
    is_annotation = kind[on_device] == EVENT_KINDS.index("gpu_annotation")
    stream[on_device] = np.where(in_lane & is_annotation, lane, stream[on_device])
    thread = np.full(rows, -1, np.int64)
    host = np.flatnonzero(~device_kind & (kind != EVENT_KINDS.index("sync")))
    thread[host] = integers([_lane(objects[i].tid) for i in host], tally)
    device = of_device("device", integers, -1)
    pids = integers([objects[i].pid if type(objects[i].pid) is int else -1 for i in on_device], tally)
    device[on_device] = np.where(
        (device[on_device] < 0) & is_annotation & (pids < 1024), pids, device[on_device]
    )
    external = integers([a.external_id for a in args], tally)
    old = external < 0
    if old.any():
        rows_old = np.flatnonzero(old)
        external[rows_old] = integers([args[i].external_id_old for i in rows_old], tally)
    memory_rows = np.flatnonzero(is_memory)
    size = np.full(rows, np.nan)
    size[on_device] = numbers([args[i].bytes for i in on_device], tally)
    size[memory_rows] = numbers([args[i].memory_bytes for i in memory_rows], tally)
    size[on_device] = np.where(size[on_device] < 0, np.nan, size[on_device])
    values: dict[str, Any] = {
        "name": name,
        "kind": from_codes(kind, EVENT_KINDS),
        "device": device.astype(np.int16),
        "stream": stream,
        "thread": thread,
        "start_ns": start,
        "duration_ns": duration,
        "correlation": integers([a.correlation for a in args], tally),
        "external_id": external,
        "bytes": size,
        "graph_node": of_device("graph_node", integers, -1),
        "wait_stream": no_stream(of_device("wait_stream", integers, -1)),
        "wait_event": no_stream(of_device("wait_event", integers, -1)),
        "registers": of_device("registers", numbers, -1.0),
        "shared_memory": of_device("shared_memory", numbers, -1.0),
    }
    values |= _grid_columns(args, kind, rows, tally)
    values |= _op_columns(args, kind, thread, rows, tally)
    values |= _collective_columns(args, rows, size, tally)
    return values, 0


def _lane(value: Any) -> Any:
    if type(value) is str:
        return value.rsplit(" ", 1)[-1]
    return value


def _grid_columns(args: list[Any], kind: np.ndarray, rows: int, tally: Tally) -> dict[str, Any]:
    some = np.flatnonzero(kind == EVENT_KINDS.index("kernel"))
    blocks = np.full(rows, -1, np.int64)
    threads = np.full(rows, -1, np.int32)
    blocks[some] = integers([_product(args[i].grid) for i in some], tally)
    threads[some] = integers([_product(args[i].block) for i in some], tally)
    return {"blocks": blocks, "block_threads": threads}


def _product(sizes: Any) -> int | None:
    if not sizes:
        return None
    total = 1
    for size in sizes:
        if not isinstance(size, int | float):
            return None
        total *= int(size)
    return total


def _op_columns(
    args: list[Any], kind: np.ndarray, thread: np.ndarray, rows: int, tally: Tally
) -> dict[str, Any]:
    import json

    from foretrace.tracer.columns import from_codes

    some = np.flatnonzero(kind == EVENT_KINDS.index("op"))
    sequence = np.full(rows, -1, np.int64)
    sequence[some] = integers([args[i].sequence for i in some], tally)
    forward = np.full(rows, -1, np.int64)
    forward[some] = integers([args[i].forward_thread for i in some], tally)
    flops = np.full(rows, np.nan)
    counted = numbers([max(_n(args[i].flops), _n(args[i].flops_old)) for i in some], tally)
    flops[some] = np.where(counted > 0, counted, np.nan)

    def compact(values: list[Any]) -> Any:
        texts = [None if v is None else (bytes(v) if not isinstance(v, list) else v) for v in values]
        texts = [t if not isinstance(t, list) else json.dumps(t).encode() for t in texts]
        coded = categorical(texts)
        cats = [json.dumps(json.loads(c), separators=(",", ":")) for c in coded.categories]
        unique = list(dict.fromkeys(cats))
        where = {c: i for i, c in enumerate(unique)}
        lookup = np.array([where[c] for c in cats] + [-1])
        codes = np.full(rows, -1, np.int32)
        codes[some] = lookup[coded.codes]
        return from_codes(codes, unique)

    shapes = compact([args[i].shapes or args[i].shapes_old or None for i in some])
    dtypes = compact([args[i].dtypes or None for i in some])
    return {
        "sequence": sequence,
        "forward_thread": _forward_threads(sequence, forward, thread),
        "shapes": shapes,
        "dtypes": dtypes,
        "flops": flops,
    }


def _n(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return -1.0


def _forward_threads(sequence: np.ndarray, forward: np.ndarray, thread: np.ndarray) -> np.ndarray:
    """Map Kineto's internal forward thread ids to OS threads through the sequence numbers."""
    result = np.full(len(sequence), -1, np.int64)
    first = np.flatnonzero((sequence >= 0) & (forward <= 0))
    backward = np.flatnonzero((sequence >= 0) & (forward > 0))
    if not len(first) or not len(backward):
        return result
    order = np.argsort(sequence[first], kind="stable")
    known = sequence[first][order]
    at = np.minimum(np.searchsorted(known, sequence[backward]), len(known) - 1)
    found = known[at] == sequence[backward]
    result[backward[found]] = thread[first][order][at[found]]
    return result


def _collective_columns(
    args: list[Any], rows: int, size: np.ndarray, tally: Tally
) -> dict[str, Any]:
    some = [i for i, a in enumerate(args) if a.group_size != -1 or a.group is not None]
    group_size = np.full(rows, -1, np.int32)
    values: dict[str, Any] = {"group_size": group_size}
    if not some:
        return values
    group_size[some] = integers([args[i].group_size for i in some], tally)
    groups: list[str | None] = [None] * rows
    for i in some:
        groups[i] = args[i].group
        item = ITEM_BYTES.get(str(args[i].element_type).lower())
        elements = max(_n(args[i].elements_in), _n(args[i].elements_out))
        if item and elements >= 0:
            size[i] = elements * item
    values["group"] = categorical(groups)
    return values


def _rank(meta: dict[str, Any], source: str, tally: Tally) -> tuple[int, int | None]:
    info = meta.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    world = info.get("world_size")
    world = world if isinstance(world, int) else None
    if isinstance(info.get("rank"), int) and 0 <= info["rank"] < 2**15:
        return info["rank"], world
    match = RANK_IN_NAME.search(source)
    return (int(match[1]) if match else 0), world


def _devices(meta: dict[str, Any]) -> tuple[tuple[Device, ...], dict[int, dict[str, Any]]]:
    found = meta.get("deviceProperties")
    listed = [d for d in found if isinstance(d, dict)] if isinstance(found, list) else []
    devices = []
    for index, d in enumerate(listed):
        def number(key: str, d: dict[str, Any] = d) -> int | None:
            value = d.get(key)
            return value if isinstance(value, int) and value > 0 else None

        devices.append(
            Device(
                index=d["id"] if isinstance(d.get("id"), int) else index,
                name=str(d.get("name") or ""),
                sm_count=number("numSms"),
                memory_bytes=number("totalGlobalMem"),
                threads_per_sm=number("maxThreadsPerMultiprocessor"),
            )
        )
    return tuple(devices), {}
