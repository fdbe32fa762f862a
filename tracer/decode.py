"""From the bytes of a Kineto file to event objects: typed when msgspec is there, else not.

Both ways end in objects with the attributes of `EVENT_FIELDS` and, under ``args``, `ARG_FIELDS`.
"""

from __future__ import annotations

import gc
import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from foretrace.errors import TraceError
from foretrace.tracer.oddities import Tally
from foretrace.tracer.repair import repaired, salvaged

Scalar = int | float | str | None

EVENT_FIELDS = {
    "ph": "ph", "cat": "cat", "name": "name", "pid": "pid", "tid": "tid",
    "ts": "ts", "dur": "dur", "id": "id",
}  # fmt: skip
ARG_FIELDS = {
    "external_id": "External id",
    "external_id_old": "external id",
    "correlation": "correlation",
    "device": "device",
    "stream": "stream",
    "bytes": "bytes",
    "memory_bytes": "Bytes",
    "memory_device": "Device Id",
    "sequence": "Sequence number",
    "forward_thread": "Fwd thread id",
    "flops": "flops",
    "flops_old": "Flops",
    "registers": "registers per thread",
    "shared_memory": "shared memory",
    "graph_node": "graph node id",
    "copy_kind": "kind",
    "sync_kind": "cuda_sync_kind",
    "wait_stream": "wait_on_stream",
    "wait_event": "wait_on_cuda_event_record_corr_id",
    "group": "Process Group Name",
    "group_size": "Group size",
    "elements_in": "In msg nelems",
    "elements_out": "Out msg nelems",
    "element_type": "dtype",
}
"""Attribute -> key in the file, for single values."""
LIST_FIELDS = {
    "grid": "grid",
    "block": "block",
    "shapes": "Input Dims",
    "shapes_old": "Input dims",
    "dtypes": "Input type",
}
TEXT_FIELDS = ("copy_kind", "sync_kind", "group", "element_type")
ROOT_FIELDS = {
    "events": "traceEvents",
    "device_properties": "deviceProperties",
    "distributed": "distributedInfo",
    "base_time": "baseTimeNanoseconds",
}


@dataclass
class Decoded:
    """What a Kineto file holds: its events and the metadata beside them."""

    events: list[Any]
    meta: dict[str, Any] = field(default_factory=dict)


def decode(raw: bytes, source: str, tally: Tally) -> Decoded:
    """Decode *raw*, repairing what can be repaired.

    Raises
    ------
    TraceError
        If the text is no JSON, or JSON that is no trace.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _decode(raw, source, tally)
    finally:
        if collecting:
            gc.enable()


def _decode(raw: bytes, source: str, tally: Tally) -> Decoded:
    decoded = _typed(raw, tally)
    if decoded is not None:
        return decoded
    try:
        root = json.loads(raw)
    except ValueError:
        text = repaired(raw, tally)
        decoded = _typed(text.encode(), tally)
        if decoded is not None:
            return decoded
        try:
            root = json.loads(text, strict=False)
        except ValueError:
            root = salvaged(text, tally)
    return _untyped(root, source, tally)


def _untyped(root: Any, source: str, tally: Tally) -> Decoded:
    if isinstance(root, list):
        tally.add("bare_list")
        return Decoded(_objects(root, tally))
    if isinstance(root, dict) and isinstance(root.get("traceEvents"), list):
        meta = {k: v for k, v in root.items() if k != "traceEvents"}
        return Decoded(_objects(root["traceEvents"], tally), meta)
    raise TraceError(f"{source}: {_what_it_is(root)}")


def _what_it_is(root: Any) -> str:
    if isinstance(root, dict) and isinstance(root.get("nodes"), list):
        return (
            "this is an execution trace (operators without times); "
            "give the Kineto trace recorded beside it"
        )
    if root is None:
        return "the file holds no JSON; record it again"
    return "JSON without a list 'traceEvents'; it is no profiler trace"


def _objects(events: list[Any], tally: Tally) -> list[Any]:
    good = [e for e in events if isinstance(e, dict)]
    tally.add("unreadable_events", len(events) - len(good))
    return [_object(e) for e in good]


def _object(event: dict[str, Any]) -> Any:
    args = event.get("args")
    made = SimpleNamespace(**{a: event.get(k) for a, k in EVENT_FIELDS.items()})
    made.args = _arguments(args) if isinstance(args, dict) else None
    return made


def _arguments(args: dict[str, Any]) -> Any:
    made = SimpleNamespace(**{a: _scalar(args.get(k, -1)) for a, k in ARG_FIELDS.items()})
    for name in TEXT_FIELDS:
        value = args.get(ARG_FIELDS[name])
        setattr(made, name, None if value is None else str(value))
    for name, key in LIST_FIELDS.items():
        value = args.get(key)
        setattr(made, name, value if isinstance(value, list) else None)
    return made


def _scalar(value: Any) -> Any:
    return value if isinstance(value, int | float | str) else None


try:
    import msgspec
except ImportError:  # the machine that recorded may not have it

    def _typed(raw: bytes, tally: Tally) -> Decoded | None:
        del raw, tally
        return None

else:
    _Args = msgspec.defstruct(
        "_Args",
        [(a, Scalar, None if a in TEXT_FIELDS else -1) for a in ARG_FIELDS]
        + [("grid", list[Scalar] | None, None), ("block", list[Scalar] | None, None)]
        + [(a, msgspec.Raw | None, None) for a in ("shapes", "shapes_old", "dtypes")],
        rename=ARG_FIELDS | LIST_FIELDS,
        gc=False,
    )
    _Event = msgspec.defstruct(
        "_Event",
        [(a, Scalar, None) for a in EVENT_FIELDS] + [("args", _Args | None, None)],
        gc=False,
    )
    _Root = msgspec.defstruct(
        "_Root",
        [
            ("events", list[_Event]),  # type: ignore[valid-type]
            ("deviceProperties", Any, None),
            ("distributedInfo", Any, None),
            ("baseTimeNanoseconds", Any, None),
        ],
        rename={"events": "traceEvents"},
        gc=False,
    )
    _ROOT = msgspec.json.Decoder(_Root)
    _LIST = msgspec.json.Decoder(list[_Event])  # type: ignore[valid-type]

    def _typed(raw: bytes, tally: Tally) -> Decoded | None:
        """Decode without detours, or return None: then the slow path finds out what is wrong."""
        try:
            if raw.lstrip()[:1] == b"[":
                events = _LIST.decode(raw)
                tally.add("bare_list")
                return Decoded(events)
            root = _ROOT.decode(raw)
        except msgspec.MsgspecError:
            return None
        meta = {
            k: getattr(root, k) for k in ("deviceProperties", "distributedInfo", "baseTimeNanoseconds")
        }
        return Decoded(root.events, meta)
