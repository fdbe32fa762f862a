"""Perfetto's own format, read back with the message classes of its package."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from foretrace.analysis.unchanged.baseline import run_experiment
from foretrace.errors import ForetraceError
from foretrace.export import pftrace as module
from foretrace.export.pftrace import check_perfetto, export_pftrace
from foretrace.export.tracks import list_variants
from foretrace.graph.build import build
from foretrace.graph.literal import literal
from foretrace.tracer.readers.load import load

if TYPE_CHECKING:
    from pathlib import Path

perfetto = pytest.importorskip(
    "perfetto.protos.perfetto.trace.perfetto_trace_pb2",
    reason="perfetto's message classes are not installed: pip install 'foretrace[export]'",
)

BEGIN, END, COUNTER = 1, 2, 4
GRAPH = literal(
    [
        ("aten::mm", "host", 0, 5_000, "forward"),
        ("cudaLaunchKernel", "launch", 0, 2_000, "forward"),
        ("gemm", "kernel", 1, 30_000, "forward"),
        ("rélu", "kernel", 1, 10_000, None),
        ("cudaStreamSynchronize", "sync", 0, 1_000, None),
    ],
    [(1, 2, "launch", 4_000), (3, 4, "return", 2_000)],
    wrap=True,
)


class Loaded:
    """A trace as a viewer knows it: names by number, slices per track, flows, counters."""

    def __init__(self, path: Path) -> None:
        trace = perfetto.Trace()
        trace.ParseFromString(path.read_bytes())
        self.packets = list(trace.packet)
        data = self.packets[0].interned_data
        self.names = {each.iid: each.name for each in data.event_names}
        self.kinds = {each.iid: each.name for each in data.event_categories}
        self.keys = {each.iid: each.name for each in data.debug_annotation_names}
        self.values = {each.iid: each.str for each in data.debug_annotation_string_values}
        self.tracks = {
            p.track_descriptor.uuid: p.track_descriptor
            for p in self.packets
            if p.HasField("track_descriptor")
        }
        self.events: dict[int, list[Any]] = {}
        for packet in self.packets:
            if packet.HasField("track_event"):
                self.events.setdefault(packet.track_event.track_uuid, []).append(packet)

    def slices(self, track: int) -> list[tuple[str, int, int]]:
        """Return name, start and end of each slice of *track*; begins and ends must pair up."""
        found, stack = [], []
        for packet in self.events[track]:
            if packet.track_event.type == BEGIN:
                stack.append((self.names[packet.track_event.name_iid], packet.timestamp))
            else:
                found.append((*stack.pop(), packet.timestamp))

        assert stack == []
        return found


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """Write before and after, and read the file back."""
    path = tmp_path_factory.mktemp("export") / "timeline.pftrace"
    export_pftrace(list_variants(run_experiment(GRAPH, "faster_kernels(speedup=2)")), path)
    return Loaded(path)


def tracks(loaded: Loaded, kind: str) -> dict[str, int]:
    """Return full name → id of the tracks that are counters, or hold slices."""
    return {
        f"{loaded.tracks[t.parent_uuid].process.process_name}: {t.name}": t.uuid
        for t in loaded.tracks.values()
        if t.parent_uuid and t.HasField("counter") == (kind == "counter")
    }


@pytest.fixture(scope="module", params=["by hand", "recorded"])
def each(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """Return the graph written down by hand, and a recording of two streams, before and after."""
    if request.param == "by hand":
        found: Loaded = request.getfixturevalue("loaded")
        return found
    traces = request.getfixturevalue("public_traces")
    graph = build(load(traces / "hta" / "resnet50_ddp_a100_ws2_rank0.json.gz"))
    path = tmp_path_factory.mktemp("export") / "timeline.pftrace"
    export_pftrace(list_variants(run_experiment(graph, "faster_host(speedup=2)")), path)
    return Loaded(path)


def test_tracks_hang_under_their_processes(loaded: Loaded) -> None:
    """Lanes and the critical path, before and after."""
    assert set(tracks(loaded, "slices")) == {
        f"{label}, rank 0: {name}"
        for label in ("before", "after")
        for name in ("thread 100, main", "stream 8, compute", "critical path")
    }
    assert set(loaded.events) == {t.uuid for t in loaded.tracks.values() if t.parent_uuid}


def test_slices_have_their_names_and_lengths(loaded: Loaded) -> None:
    """In whole ns, and half as long after the change."""
    by_name = tracks(loaded, "slices")
    lengths = {
        label: {n: end - begin for n, begin, end in loaded.slices(by_name[f"{label}, rank 0: {s}"])}
        for label, s in (("before", "stream 8, compute"), ("after", "stream 8, compute"))
    }

    assert lengths == {
        "before": {"gemm": 30_000, "rélu": 10_000},
        "after": {"gemm": 15_000, "rélu": 5_000},
    }


def test_slices_of_a_track_nest(each: Loaded) -> None:
    """Times of a track never go back, and each end closes what began."""
    for track in tracks(each, "slices").values():
        times = [packet.timestamp for packet in each.events[track]]

        assert times == sorted(times)
        for first, second in itertools.pairwise(each.slices(track)):
            assert first[2] <= second[1]


def test_flows_resolve(each: Loaded) -> None:
    """Each has two ends, and each end is an event."""
    ends: dict[int, list[int]] = {}
    for packets in each.events.values():
        for packet in packets:
            for flow in packet.track_event.flow_ids:
                ends.setdefault(flow, []).append(packet.timestamp)

    assert {len(both) for both in ends.values()} == {2}
    assert len(ends) >= 6  # launch, wait and path, twice


def test_counters_go_forward_in_time(each: Loaded) -> None:
    """And never count less than nothing."""
    found = tracks(each, "counter")

    assert found
    for track in found.values():
        times = [packet.timestamp for packet in each.events[track]]
        values = [packet.track_event.counter_value for packet in each.events[track]]

        assert {packet.track_event.type for packet in each.events[track]} == {COUNTER}
        assert times == sorted(set(times))
        assert min(values) >= 0


def test_one_launch_is_outstanding_at_a_time(loaded: Loaded) -> None:
    """From its call until its kernel starts, before and after."""
    found = tracks(loaded, "counter")

    assert set(found) == {f"{label}, rank 0: launches outstanding" for label in ("before", "after")}
    for track in found.values():
        values = [packet.track_event.counter_value for packet in loaded.events[track]]

        assert set(values) == {0, 1}


def test_facts_stand_beside_slices(loaded: Loaded) -> None:
    """Kind, phase and cost of a task; what is unknown is left out."""
    track = tracks(loaded, "slices")["before, rank 0: stream 8, compute"]
    facts = {}
    for packet in loaded.events[track]:
        event = packet.track_event
        if event.type == BEGIN:
            said = {
                loaded.keys[a.name_iid]: loaded.values[a.string_value_iid].decode()
                for a in event.debug_annotations
            }
            facts[loaded.names[event.name_iid]] = (loaded.kinds[event.category_iids[0]], said)

    assert facts["gemm"] == ("kernel", {"phase": "forward", "cost": "recorded"})
    assert facts["rélu"] == ("kernel", {"cost": "recorded"})


def test_the_state_of_the_sequence_begins_once(loaded: Loaded) -> None:
    """A viewer would not know the names otherwise."""
    assert [packet.sequence_flags for packet in loaded.packets] == [1] + [2] * (
        len(loaded.packets) - 1
    )
    assert {packet.trusted_packet_sequence_id for packet in loaded.packets} == {1}


def test_long_traces_are_written_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loaded: Loaded
) -> None:
    """And read as one."""
    monkeypatch.setattr(module, "_CHUNK", 3)
    path = tmp_path / "timeline.pftrace"
    export_pftrace(list_variants(run_experiment(GRAPH, "faster_kernels(speedup=2)")), path)

    assert Loaded(path).packets == loaded.packets


def test_without_its_package_the_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence says what to install."""
    monkeypatch.setattr(module, "find_spec", lambda _name: None)

    with pytest.raises(ForetraceError, match=r"pip install 'foretrace\[export\]'"):
        check_perfetto()
