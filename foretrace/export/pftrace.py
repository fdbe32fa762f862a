"""Replays in, Perfetto's own trace format out, built from the message classes of its package.

The same tracks, flows and counter as in `foretrace.export`, in whole ns and a fraction of the size.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from foretrace.errors import ForetraceError
from foretrace.export.tracks import (
    COUNTER,
    CRITICAL,
    CRITICAL_TRACK,
    as_strings,
    count_outstanding,
    find_flows,
    path_slices,
)
from foretrace.util.atomic_write import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from foretrace.export.tracks import Variant

SEQUENCE = 1
"""All packets are one sequence: what was interned once holds for all of them."""
CLEARED, NEEDED = 1, 2
"""Flags of Perfetto: this packet begins the state of its sequence; this one needs it."""
COUNTER_TRACK = 20_000_000
FACTS = ("phase", "module", "cost")
_CHUNK = 10_000  # packets held as messages at once


def check_perfetto() -> None:
    """Refuse what needs Perfetto's message classes where they are not installed."""
    if find_spec("perfetto") is None:
        raise ForetraceError(
            "this format needs perfetto: pip install 'foretrace[export]'; or write a .json"
        )


def export_pftrace(variants: Sequence[Variant], path: Path) -> None:
    """Write *variants* to *path*, completely or not at all.

    Raises
    ------
    ForetraceError
        Perfetto's package is not installed.
    """
    check_perfetto()
    write_atomically(path, b"".join(_serialize(packets(variants))))


def packets(variants: Sequence[Variant]) -> Iterator[Any]:
    """Yield the packets: what is interned, then tracks and events of each variant."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

    interned = _Interned(variants)
    yield interned.packet(TracePacket)
    for variant in variants:
        yield from _tracks(variant, TracePacket)
        yield from _tasks(variant, interned, TracePacket)
        yield from _path(variant, interned, TracePacket)
        yield from _counter(variant, TracePacket)


def _serialize(packets: Iterable[Any]) -> Iterator[bytes]:
    """Yield *packets* as serialized traces; traces may be appended to one another."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    trace = Trace()
    for packet in packets:
        trace.packet.append(packet)
        if len(trace.packet) == _CHUNK:
            yield trace.SerializeToString()
            trace.Clear()
    yield trace.SerializeToString()


class _Interned:
    """Texts by the number that stands for them, from 1."""

    def __init__(self, variants: Sequence[Variant]) -> None:
        names, kinds, facts = ({"?": 1}, {CRITICAL: 1}, {"?": 1})
        for variant in variants:
            tasks = variant.graph.tasks
            _number(names, tasks["name"].cat.categories)
            _number(kinds, tasks["kind"].cat.categories)
            for fact in FACTS:
                _number(facts, tasks[fact].cat.categories)
            _number(facts, variant.timeline.critical_path["why"].cat.categories)
        self.names, self.kinds, self.facts = names, kinds, facts
        self.keys = {key: number for number, key in enumerate((*FACTS, "why"), 1)}

    def packet(self, kind: type[Any]) -> Any:
        """Return the packet that begins the sequence and says what the numbers mean."""
        packet = kind(trusted_packet_sequence_id=SEQUENCE, sequence_flags=CLEARED)
        data = packet.interned_data
        for numbers, place in (
            (self.names, data.event_names),
            (self.kinds, data.event_categories),
            (self.keys, data.debug_annotation_names),
        ):
            for text, number in numbers.items():
                place.add(iid=number, name=text)
        for text, number in self.facts.items():
            data.debug_annotation_string_values.add(iid=number, str=text.encode())
        return packet


def _number(numbers: dict[str, int], texts: Iterable[object]) -> None:
    for text in texts:
        numbers.setdefault(str(text), len(numbers) + 1)


def _uuid(variant: Variant, process: int, track: int) -> int:
    """Return a number for a track that no other has; processes are tracks number 0."""
    return ((variant.number + 1) << 56) + (process << 32) + track


def _tracks(variant: Variant, kind: type[Any]) -> Iterator[Any]:
    """Yield a descriptor per process and track."""
    for process, name in variant.process_names.items():
        packet = _packet(kind)
        packet.track_descriptor.uuid = _uuid(variant, process, 0)
        packet.track_descriptor.process.pid = process
        packet.track_descriptor.process.process_name = name
        packet.track_descriptor.child_ordering = packet.track_descriptor.EXPLICIT
        yield packet
    tracks = {
        track: (int(variant.process[lane]), lane + 1, name)
        for track, (lane, name) in variant.track_names.items()
    }
    tracks[CRITICAL_TRACK] = variant.first_process, 0, CRITICAL
    for track, (process, rank, name) in tracks.items():
        packet = _packet(kind)
        packet.track_descriptor.uuid = _uuid(variant, process, track)
        packet.track_descriptor.parent_uuid = _uuid(variant, process, 0)
        packet.track_descriptor.name = name
        packet.track_descriptor.sibling_order_rank = rank
        yield packet


def _tasks(variant: Variant, interned: _Interned, kind: type[Any]) -> Iterator[Any]:
    """Yield two packets per task, track by track in order of time."""
    tasks, timeline = variant.graph.tasks, variant.timeline
    names, kinds = as_strings(tasks["name"]), as_strings(tasks["kind"])
    facts = {fact: as_strings(tasks[fact]) for fact in FACTS}
    process = variant.process[tasks["lane"].to_numpy()].tolist()
    tracks, start, end = (
        each.tolist() for each in (variant.tracks, timeline.start_ns, timeline.end_ns)
    )
    at_start, at_end = _flow_ids(variant)
    for row in sorted(range(len(tasks)), key=lambda row: (tracks[row], start[row], end[row])):
        track = _uuid(variant, process[row], tracks[row])
        begin = _event(kind, track, start[row], 1)
        event = begin.track_event
        event.name_iid = interned.names[names[row] or "?"]
        event.category_iids.append(interned.kinds[str(kinds[row])])
        event.flow_ids.extend(at_start.get(row, ()))
        _annotate(event, {fact: facts[fact][row] for fact in FACTS}, interned)
        finish = _event(kind, track, end[row], 2)
        finish.track_event.flow_ids.extend(at_end.get(row, ()))
        yield from (begin, finish)


def _path(variant: Variant, interned: _Interned, kind: type[Any]) -> Iterator[Any]:
    track = _uuid(variant, variant.first_process, CRITICAL_TRACK)
    for begin, end, name, why in path_slices(variant):
        packet = _event(kind, track, begin, 1)
        packet.track_event.name_iid = interned.names[name]
        packet.track_event.category_iids.append(interned.kinds[CRITICAL])
        _annotate(packet.track_event, {"why": why}, interned)
        yield packet
        yield _event(kind, track, end, 2)


def _counter(variant: Variant, kind: type[Any]) -> Iterator[Any]:
    """Yield a counter track per process, and its values."""
    for process, (moments, counts) in count_outstanding(variant).items():
        packet = _packet(kind)
        track = _uuid(variant, process, COUNTER_TRACK)
        packet.track_descriptor.uuid = track
        packet.track_descriptor.parent_uuid = _uuid(variant, process, 0)
        packet.track_descriptor.name = COUNTER
        packet.track_descriptor.counter.SetInParent()
        yield packet
        for moment, count in zip(moments, counts, strict=True):
            packet = _event(kind, track, moment, 4)
            packet.track_event.counter_value = count
            yield packet


def _flow_ids(variant: Variant) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Return the flows tied to the begin, and to the end, of each task's slice."""
    arrows = find_flows(variant)
    at_start: dict[int, list[int]] = {}
    at_end: dict[int, list[int]] = {}
    first = ((variant.number + 1) << 40) + 1
    for task, is_at_end in ((arrows.src, arrows.src_at_end), (arrows.dst, arrows.dst_at_end)):
        for row, (each, late) in enumerate(zip(task.tolist(), is_at_end.tolist(), strict=True)):
            (at_end if late else at_start).setdefault(each, []).append(first + row)
    return at_start, at_end


def _packet(kind: type[Any]) -> Any:
    return kind(trusted_packet_sequence_id=SEQUENCE, sequence_flags=NEEDED)


def _event(kind: type[Any], track: int, moment: int, type_: int) -> Any:
    """Return an event: 1 begins a slice, 2 ends one, 4 is a value (Perfetto’s numbers)."""
    packet = _packet(kind)
    packet.timestamp = moment
    packet.track_event.type = type_
    packet.track_event.track_uuid = track
    return packet


def _annotate(event: Any, facts: Mapping[str, str | None], interned: _Interned) -> None:
    for key, value in facts.items():
        if value is not None:
            number = interned.facts[value]
            event.debug_annotations.add(name_iid=interned.keys[key], string_value_iid=number)
