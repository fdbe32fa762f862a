"""From the text of a Kineto file to lists of fields: typed when msgspec is there, else not.

The arguments of an event stay undecoded until someone asks for some of them: a kernel has other
fields than an operator, and decoding only those asked for halves the time to load a file.
"""

from __future__ import annotations

import functools
import gc
import json
from dataclasses import dataclass, field
from decimal import Decimal
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.errors import TraceError
from foretrace.tracer.readers.kineto.begin_end import pair_ranges
from foretrace.tracer.readers.kineto.repair_json import mend, salvage

try:
    import msgspec
except ImportError:  # the machine that recorded may lack it
    msgspec = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foretrace.tracer.data_issues import Tally

EVENT_FIELDS = ("cat", "name", "pid", "tid", "ts", "dur", "args")
PHASES = "XisftMBEbenCIPNODRcvV"
"""Every phase of the Chrome trace format; Kineto writes the first six."""
SINGLE = (str, int, float, Decimal)
MEMORY_NAME = "[memory]"
PRECISE_US = 2.0**43
"""From here on neighbouring floats are more than a nanosecond apart: the text is needed."""


@dataclass(frozen=True)
class Arguments:
    """Which arguments to read: attribute -> key of single values, and of nested JSON."""

    single: tuple[tuple[str, str], ...]
    nested: tuple[tuple[str, str], ...] = ()


@dataclass
class KinetoFile:
    """What a Kineto file holds, column by column: complete events, then allocator instants."""

    columns: dict[str, list[Any]]
    flow_starts: list[Any] = field(default_factory=list)
    flow_ends: list[Any] = field(default_factory=list)
    unfinished: int = 0
    unbegun: int = 0
    meta: dict[str, Any] = field(default_factory=dict)
    _arrays: dict[str, np.ndarray] = field(default_factory=dict)

    def select(self, column: str, rows: np.ndarray) -> list[Any]:
        """Return one field of *rows*."""
        if column not in self._arrays:
            values = self.columns[column]
            self._arrays[column] = np.fromiter(values, dtype=object, count=len(values))
        return self._arrays[column][rows].tolist()

    def arguments(self, rows: np.ndarray, wanted: Arguments) -> dict[str, list[Any]]:
        """Return the *wanted* arguments of *rows*.

        Where there is none, a single one is −1 and a nested one is empty.
        """
        some = self.select("args", rows)
        if some and msgspec is not None and not isinstance(some[0], dict):
            try:
                decoded = _argument_decoder(wanted).decode(b"[" + b",".join(some) + b"]")
            except (msgspec.MsgspecError, UnicodeDecodeError):
                some = [json.loads(bytes(raw).decode("utf-8", "replace")) for raw in some]
            else:
                names = [name for name, _ in wanted.single + wanted.nested]
                return {name: list(map(attrgetter(name), decoded)) for name in names}
        some = [a if isinstance(a, dict) else {} for a in some]
        values = {name: [_single(a.get(key, -1)) for a in some] for name, key in wanted.single}
        for name, key in wanted.nested:
            values[name] = [
                json.dumps(a[key], default=float).encode() if key in a else b"" for a in some
            ]
        return values


def decode(raw: bytes, source: str, tally: Tally) -> KinetoFile:
    """Decode *raw*, mending what can be mended.

    Raises
    ------
    TraceError
        If it is no JSON, or JSON that is no trace.
    """
    collecting = gc.isenabled()
    gc.disable()  # a quarter of a million small objects make it run for nothing
    try:
        return _decode_typed(raw, tally) or _decode_slowly(raw, source, tally)
    except RecursionError as error:
        raise TraceError(f"{source}: nested too deeply to be a profiler trace") from error
    finally:
        if collecting:
            gc.enable()


def _decode_slowly(raw: bytes, source: str, tally: Tally) -> KinetoFile:
    try:
        return _decode_untyped(json.loads(raw, parse_float=Decimal), source, tally)
    except ValueError:
        pass  # something to mend
    text = mend(raw, tally)
    try:
        root = json.loads(text, parse_float=Decimal, strict=False)
    except ValueError:
        root = salvage(text, tally)
    return _decode_untyped(root, source, tally)


def _decode_untyped(root: Any, source: str, tally: Tally) -> KinetoFile:
    if isinstance(root, list):
        tally.add("bare_list")
        events, meta = root, {}
    elif isinstance(root, dict) and isinstance(root.get("traceEvents"), list):
        events = root["traceEvents"]
        meta = {key: value for key, value in root.items() if key != "traceEvents"}
    else:
        raise TraceError(f"{source}: {_what_it_is(root)}")
    good = [event for event in events if isinstance(event, dict)]
    tally.add("unreadable_events", len(events) - len(good))
    ranges, unfinished, unbegun = pair_ranges(good)
    complete = [e for e in good if e.get("ph") == "X"] + ranges
    memory = [e for e in good if e.get("ph") == "i" and e.get("name") == MEMORY_NAME]
    both = complete + memory
    columns = {f: [_single(e.get(f)) for e in both] for f in EVENT_FIELDS if f != "args"}
    columns["args"] = [e["args"] if isinstance(e.get("args"), dict) else {} for e in both]
    _place_instants(columns, len(complete))
    return KinetoFile(
        columns,
        [e.get("id") for e in good if e.get("ph") == "s"],
        [e.get("id") for e in good if e.get("ph") == "f"],
        unfinished,
        unbegun,
        meta,
    )


def _single(value: Any) -> Any:
    """Return *value* if it is one, else its text: a list where a name belongs is an odd name."""
    return value if value is None or isinstance(value, SINGLE) else str(value)


def one_line(names: Iterable[str]) -> str:
    """Return *names* in a row, for a message; line breaks in them become spaces."""
    return ", ".join(" ".join(name.split()) for name in names)


def _what_it_is(root: Any) -> str:
    if isinstance(root, dict) and isinstance(root.get("nodes"), list):
        return (
            "this is an execution trace (operators without times); "
            "give the Kineto trace recorded beside it"
        )
    if isinstance(root, dict) and any("rocprof" in str(key) for key in root):
        return "this is a profile of rocprof; record with torch.profiler, which names operators too"
    if root is None:
        return "this is no complete JSON and holds no event; record it again"
    return "this JSON holds no list 'traceEvents'; give a trace exported by torch.profiler"


def _place_instants(columns: dict[str, list[Any]], complete: int) -> None:
    """Allocator instants have no length and, in 2021, no category."""
    count = len(columns["name"]) - complete
    columns["dur"][complete:] = [0] * count
    columns["cat"][complete:] = ["cpu_instant_event"] * count


def _decode_typed(raw: bytes, tally: Tally) -> KinetoFile | None:
    """Decode without detours, or return None: the slow way then finds out what is odd."""
    if msgspec is None:
        return None
    try:
        root, bare = _decode_root(raw, "float")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    by_phase = _by_phase(root if bare else root.traceEvents, "float")
    if by_phase["E"]:
        return None  # ranges to pair
    complete, memory = by_phase["X"], _allocations(by_phase["i"])
    both = complete + memory
    columns = {f: list(map(attrgetter(f), both)) for f in EVENT_FIELDS}
    _place_instants(columns, len(complete))
    if _needs_text(columns["ts"]):
        again, _ = _decode_root(raw, "text")
        exact = _by_phase(again if bare else again.traceEvents, "text")
        columns["ts"] = [_decimal(e.ts) for e in exact["X"] + _allocations(exact["i"])]
    if bare:
        tally.add("bare_list")
    return KinetoFile(
        columns,
        [e.id for e in by_phase["s"]],
        [e.id for e in by_phase["f"]],
        len(by_phase["B"]),
        0,
        {} if bare else {k: getattr(root, k) for k in ROOT_FIELDS},
    )


def _by_phase(events: list[Any], times: str) -> dict[str, list[Any]]:
    lists: dict[Any, list[Any]] = {type_: [] for type_ in _event_types(times).values()}
    for event in events:
        lists[type(event)].append(event)
    return {phase: lists[type_] for phase, type_ in _event_types(times).items()}


def _allocations(instants: list[Any]) -> list[Any]:
    return [event for event in instants if event.name == MEMORY_NAME]


ROOT_FIELDS = ("deviceProperties", "distributedInfo", "baseTimeNanoseconds")


def _decode_root(raw: bytes, times: str) -> tuple[Any, bool]:
    start = 0
    while raw[start : start + 1].isspace():
        start += 1
    bare = raw[start : start + 1] == b"["
    return _root_decoder(times, bare).decode(raw), bare


def _needs_text(times: list[Any]) -> bool:
    """Say whether floats cannot hold these microseconds to the nanosecond."""
    kinds = set(map(type, times))
    return float in kinds and any(type(t) is float and t >= PRECISE_US for t in times)


def _decimal(text: Any) -> Decimal | str:
    value = bytes(text).decode()
    try:
        return Decimal(value)
    except ArithmeticError:
        return value.strip('"')


@functools.cache
def _event_types(times: str) -> dict[str, Any]:
    """Return one struct per phase: most phases carry nothing that is read."""
    scalar = int | float | str | None
    empty = msgspec.Raw(b"{}")
    time = (scalar, None) if times == "float" else (msgspec.Raw, msgspec.Raw(b"null"))
    instant = [("cat", scalar, None), ("name", scalar, None), ("pid", scalar, None),
               ("tid", scalar, None), ("ts", *time), ("args", msgspec.Raw, empty)]  # fmt: skip
    instant.insert(5, ("dur", scalar, None))
    fields: dict[str, list[Any]] = {
        "X": instant,
        "i": instant,
        "s": [("id", scalar, None)],
        "f": [("id", scalar, None)],
    }
    return {
        phase: msgspec.defstruct(
            f"Phase_{phase}", fields.get(phase, []), tag=phase, tag_field="ph", gc=False
        )
        for phase in PHASES
    }


@functools.cache
def _root_decoder(times: str, bare: bool) -> Any:  # noqa: FBT001
    event: Any = functools.reduce(lambda a, b: a | b, _event_types(times).values())
    if bare:
        return msgspec.json.Decoder(list[event])
    fields: list[Any] = [("traceEvents", list[event]), *((name, Any, None) for name in ROOT_FIELDS)]
    return msgspec.json.Decoder(msgspec.defstruct("Root", fields, gc=False))


@functools.cache
def _argument_decoder(wanted: Arguments) -> Any:
    scalar = int | float | str | None
    fields: list[Any] = [(name, scalar, -1) for name, _ in wanted.single]
    fields += [(name, msgspec.Raw, msgspec.Raw(b"")) for name, _ in wanted.nested]
    rename = dict(wanted.single + wanted.nested)
    args: Any = msgspec.defstruct("Args", fields, rename=rename, gc=False)
    return msgspec.json.Decoder(list[args])
