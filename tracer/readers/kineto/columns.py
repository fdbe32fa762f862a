"""The columns of the event table from the fields of a Kineto recording, kind by kind."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.tracer.readers.columns import (
    categorical,
    encode_names,
    from_codes,
    integers,
    nanoseconds,
    no_stream,
    quantities,
    small,
)
from foretrace.tracer.readers.kineto.collectives import add_collectives
from foretrace.tracer.readers.kineto.decode import Arguments
from foretrace.tracer.readers.kineto.shapes import compact_lists
from foretrace.tracer.trace import EVENT_KINDS

if TYPE_CHECKING:
    from foretrace.tracer.data_issues import Tally
    from foretrace.tracer.readers.kineto.decode import KinetoFile

EXTERNAL = ("external_id", "External id")
EXTERNAL_2020 = Arguments(single=(("external_id", "external id"),))
SHAPES_2020 = Arguments(single=(), nested=(("shapes", "Input dims"),))
OPERATOR = Arguments(
    single=(
        EXTERNAL,
        ("sequence", "Sequence number"),
        ("forward_thread", "Fwd thread id"),
        ("flops", "flops"),
    ),
    nested=(("shapes", "Input Dims"), ("dtypes", "Input type")),
)
CALL = Arguments(single=(EXTERNAL, ("correlation", "correlation")))
DEVICE = Arguments(
    single=(
        EXTERNAL,
        ("correlation", "correlation"),
        ("device", "device"),
        ("stream", "stream"),
        ("context", "context"),
        ("bytes", "bytes"),
        ("graph_node", "graph node id"),
        ("registers", "registers per thread"),
        ("shared_bytes", "shared memory"),
        ("copy_kind", "kind"),
    ),
    nested=(("grid", "grid"), ("block", "block")),
)
SYNC = Arguments(
    single=(
        EXTERNAL,
        ("correlation", "correlation"),
        ("device", "device"),
        ("stream", "stream"),
        ("sync_kind", "cuda_sync_kind"),
        ("wait_stream", "wait_on_stream"),
        ("wait_event", "wait_on_cuda_event_record_corr_id"),
    )
)
ANNOTATION = Arguments(single=(EXTERNAL,))
MEMORY = Arguments(single=(("bytes", "Bytes"), ("device", "Device Id"), ("address", "Addr")))

ANNOTATION_NAME = re.compile(r"ProfilerStep#|Optimizer\.|## ")
"""What is an annotation although it was recorded as an operator (until 2021)."""
MAX_DEVICES = 1024
"""A smaller process id of a device event is a device index."""
NAMED_THREADS = 2**40
"""Threads whose id is no number are counted from here."""


def code(kind: str) -> int:
    """Return the place of *kind* in `EVENT_KINDS`."""
    return EVENT_KINDS.index(kind)


def event_columns(recording: KinetoFile, kind: np.ndarray, tally: Tally) -> dict[str, Any]:
    """Return every column but the rank; rows without a kind (−1) are there, too.

    Besides `EVENT_COLUMNS` there are ``registers`` and ``shared_bytes`` of kernels, and the
    ``context`` of device tasks.
    """
    fields = recording.columns
    name = encode_names(fields["name"])
    annotation = np.array([bool(ANNOTATION_NAME.match(n)) for n in name.categories], dtype=bool)
    kind = np.where((kind == code("op")) & annotation[name.codes], code("annotation"), kind)
    start, start_ok = nanoseconds(fields["ts"])
    duration, duration_ok = nanoseconds(fields["dur"])
    tally.add("missing_duration", int((~duration_ok & (kind >= 0)).sum()))
    rows = len(kind)
    values: dict[str, Any] = {
        "name": name,
        "kind": kind,
        "start_ns": np.where(start_ok, start, -1),
        "duration_ns": np.where(duration_ok, duration, 0),
        "device": np.full(rows, -1, np.int16),
        "block_threads": np.full(rows, -1, np.int32),
        "group_size": np.full(rows, -1, np.int32),
    }
    for column in ("stream", "thread", "correlation", "external_id", "sequence", "forward_thread",
                   "blocks", "graph_node", "wait_stream", "wait_event", "context",
                   "registers", "shared_bytes"):  # fmt: skip
        values[column] = np.full(rows, -1, np.int64)
    for column in ("bytes", "flops"):
        values[column] = np.full(rows, np.nan)
    _threads(values, recording, tally)
    _operators(values, recording, tally)
    _device_tasks(values, recording, tally)
    _syncs(values, recording, tally)
    _calls_and_annotations(values, recording, tally)
    add_collectives(values, recording, tally)
    values["kind"] = from_codes(values["kind"], EVENT_KINDS)
    return values


def _rows(values: dict[str, Any], *kinds: str) -> np.ndarray:
    return np.flatnonzero(np.isin(values["kind"], [code(k) for k in kinds]))


def _set_external(
    values: dict[str, Any], recording: KinetoFile, rows: np.ndarray, ids: list[Any], tally: Tally
) -> None:
    external = integers(ids, tally)
    lack = np.flatnonzero(external < 0)
    if len(lack):
        old = recording.arguments(rows[lack], EXTERNAL_2020)
        external[lack] = integers(old["external_id"], tally)
    values["external_id"][rows] = external


def _lane(value: Any) -> Any:
    """Return the number in a thread id such as "5555" or "stream 7"."""
    return value.rsplit(" ", 1)[-1] if type(value) is str else value


def _threads(values: dict[str, Any], recording: KinetoFile, tally: Tally) -> None:
    rows = _rows(values, "op", "annotation", "runtime", "python", "memory", "overhead")
    ids = recording.select("tid", rows)
    if str in set(map(type, ids)):
        names = {v for v in ids if type(v) is str and not v.lstrip("-").isdigit()}
        number = {name: NAMED_THREADS + i for i, name in enumerate(sorted(names))}
        ids = [number.get(v, v) for v in ids]
    values["thread"][rows] = integers(ids, tally)


def _operators(values: dict[str, Any], recording: KinetoFile, tally: Tally) -> None:
    rows = _rows(values, "op")
    fields = recording.arguments(rows, OPERATOR)
    _set_external(values, recording, rows, fields["external_id"], tally)
    sequence = integers(fields["sequence"], tally)
    values["sequence"][rows] = sequence
    forward = integers(fields["forward_thread"], tally)
    values["forward_thread"][rows] = _forward_threads(sequence, forward, values["thread"][rows])
    flops = quantities(fields["flops"], tally)
    values["flops"][rows] = np.where(flops > 0, flops, np.nan)
    count = len(values["kind"])
    values["shapes"] = compact_lists(fields["shapes"], rows, count)
    if not (values["shapes"].codes >= 0).any():
        old = recording.arguments(rows, SHAPES_2020)
        values["shapes"] = compact_lists(old["shapes"], rows, count)
    values["dtypes"] = compact_lists(fields["dtypes"], rows, count)


def _forward_threads(sequence: np.ndarray, forward: np.ndarray, thread: np.ndarray) -> np.ndarray:
    """Replace the profiler's own numbering of forward threads by the threads themselves.

    An operator with a forward thread above 0 is a backward one; the forward operator has the same
    sequence number.
    """
    result = np.full(len(sequence), -1, np.int64)
    first = np.flatnonzero((sequence >= 0) & (forward <= 0))
    backward = np.flatnonzero((sequence >= 0) & (forward > 0))
    if not len(first) or not len(backward):
        return result
    sequences, where = np.unique(sequence[first], return_index=True)
    at = np.minimum(np.searchsorted(sequences, sequence[backward]), len(sequences) - 1)
    hit = sequences[at] == sequence[backward]
    result[backward[hit]] = thread[first][where[at[hit]]]
    return result


def _device_tasks(values: dict[str, Any], recording: KinetoFile, tally: Tally) -> None:
    rows = _rows(values, "kernel", "memcpy", "memset", "gpu_annotation")
    fields = recording.arguments(rows, DEVICE)
    _set_external(values, recording, rows, fields["external_id"], tally)
    for column in ("correlation", "graph_node", "context", "registers", "shared_bytes"):
        values[column][rows] = integers(fields[column], tally)
    values["bytes"][rows] = quantities(fields["bytes"], tally)
    stream, device = _device_lanes(recording, rows, fields, tally)
    values["stream"][rows], values["device"][rows] = stream, device
    values["blocks"][rows] = _products(fields["grid"])
    values["block_threads"][rows] = small(_products(fields["block"]), np.int32)
    _name_copies(values, rows, fields["copy_kind"])


def _device_lanes(
    recording: KinetoFile, rows: np.ndarray, fields: dict[str, list[Any]], tally: Tally
) -> tuple[np.ndarray, np.ndarray]:
    """Return streams and devices; what the arguments lack is in the thread and process ids."""
    stream = no_stream(integers(fields["stream"], tally))
    lack = np.flatnonzero(stream < 0)
    stream[lack] = integers([_lane(t) for t in recording.select("tid", rows[lack])], tally)
    device = integers(fields["device"], tally)
    lack = np.flatnonzero(device < 0)
    process = integers(recording.select("pid", rows[lack]), tally)
    device[lack] = np.where(process < MAX_DEVICES, process, -1)
    return stream, small(device, np.int16)


def _products(sizes: list[Any]) -> np.ndarray:
    """Multiply the three sizes of a grid or a block, given as JSON; −1 where there are none."""
    some = categorical(list(map(bytes, sizes)))
    return np.array([*(_product(c) for c in some.categories), -1], np.int64)[some.codes]


def _product(text: bytes) -> int:
    try:
        product = (
            int(np.prod([int(size) for size in json.loads(text)], dtype=np.int64)) if text else -1
        )
    except (TypeError, ValueError, OverflowError, RecursionError):
        return -1
    return product if product > 0 else -1


def _name_copies(values: dict[str, Any], rows: np.ndarray, kinds: list[Any]) -> None:
    """Call every copy "Memcpy …": some ROCm versions name them "CopyHostToDevice"."""
    names = values["name"]
    copies = rows[values["kind"][rows] == code("memcpy")]
    odd = np.array([not n.startswith("Memcpy ") for n in names.categories], dtype=bool)
    odd_rows = copies[odd[names.codes[copies]]]
    if not len(odd_rows):
        return
    kind_of = dict(zip(rows.tolist(), kinds, strict=True))
    texts = np.asarray(names, dtype=object)
    for row in odd_rows.tolist():
        short = str(kind_of[row]) if kind_of[row] != -1 else _direction(texts[row])
        texts[row] = f"Memcpy {short} ({texts[row]})"
    values["name"] = categorical(texts)


def _direction(name: str) -> str:
    match = re.search(r"(Host|Device)\w{0,20}?To(Host|Device)", name)
    return f"{match[1][0]}to{match[2][0]}" if match else "Unknown"


def _syncs(values: dict[str, Any], recording: KinetoFile, tally: Tally) -> None:
    rows = _rows(values, "sync")
    fields = recording.arguments(rows, SYNC)
    _set_external(values, recording, rows, fields["external_id"], tally)
    values["correlation"][rows] = integers(fields["correlation"], tally)
    values["device"][rows] = small(integers(fields["device"], tally), np.int16)
    stream = no_stream(integers(fields["stream"], tally))
    values["stream"][rows] = stream
    wait = no_stream(integers(fields["wait_stream"], tally))
    whole_stream = np.array(["Stream Sync" in str(k) for k in fields["sync_kind"]], dtype=bool)
    values["wait_stream"][rows] = np.where(whole_stream & (wait < 0), stream, wait)
    values["wait_event"][rows] = no_stream(integers(fields["wait_event"], tally))


def _calls_and_annotations(values: dict[str, Any], recording: KinetoFile, tally: Tally) -> None:
    rows = _rows(values, "runtime")
    fields = recording.arguments(rows, CALL)
    _set_external(values, recording, rows, fields["external_id"], tally)
    values["correlation"][rows] = integers(fields["correlation"], tally)
    rows = _rows(values, "annotation")
    fields = recording.arguments(rows, ANNOTATION)
    _set_external(values, recording, rows, fields["external_id"], tally)
    rows = _rows(values, "memory")
    fields = recording.arguments(rows, MEMORY)
    changed = integers(fields["bytes"], tally)  # negative when freed
    values["bytes"][rows] = np.where(changed == -1, np.nan, changed)
    values["device"][rows] = small(integers(fields["device"], tally), np.int16)
    values["correlation"][rows] = integers(fields["address"], tally)
