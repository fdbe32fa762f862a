"""Several ranks become one recording, on one clock."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from foretrace.errors import TraceError
from foretrace.tracer.readers.kineto.read import read_kineto
from foretrace.tracer.readers.load import load, save
from foretrace.tracer.readers.merge_ranks import join_ranks
from tests.support.recordings.bent import Event, base, device, host, text

if TYPE_CHECKING:
    from pathlib import Path

    from foretrace.tracer.trace import Trace

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def rank(number: int, starts: list[float], late: float = 0, **root: Any) -> Trace:
    """Read a rank whose all-reduces begin at *starts* and end together at 30, 60, 90 … µs."""
    events: list[Event] = [host("cpu_op", "step", 1 + late, 100)]
    for i, start in enumerate(starts):
        end = 30 * (i + 1)
        events.append(device("kernel", ALL_REDUCE, start + late, end - start, i + 1))
    about = {"distributedInfo": {"rank": number, "world_size": 2}} | root
    return read_kineto(text(about | {"traceEvents": events}), f"r{number}.json")


def test_clocks_are_aligned_on_the_ends_of_collectives() -> None:
    """Rank 1's clock is 7 µs late; it arrives at other times, but leaves with rank 0."""
    both = join_ranks([rank(0, [10, 40, 70]), rank(1, [25, 50, 85], late=7)])
    ends = both.events["start_ns"] + both.events["duration_ns"]
    kernels = both.events["kind"] == "kernel"

    assert both.meta.ranks == (0, 1)
    assert both.meta.extra["rank_clocks"] == {
        "end_spread_ns": 0,
        "0": {"offset_ns": 0, "collectives": 3},
        "1": {"offset_ns": -7000, "collectives": 3},
    }
    assert ends[kernels].tolist() == [29_000, 59_000, 89_000] * 2
    assert both.events["rank"].tolist() == [0] * 4 + [1] * 4


def test_recorded_origins_are_honoured() -> None:
    """Two base times 2 µs apart shift a rank by 2 µs before anything is estimated."""
    both = join_ranks(
        [rank(0, [], baseTimeNanoseconds=10_000), rank(1, [], baseTimeNanoseconds=12_000)]
    )

    assert both.events["start_ns"].tolist() == [0, 2_000]
    assert both.meta.warnings["unaligned_ranks"] == 2


def test_what_was_odd_adds_up_but_shares_do_not() -> None:
    """Two ranks with 3 dropped copies each have 6; two disturbed by 40 % were not by 80 %."""
    known = {"duplicate_events": 3, "cpu_taken_away": 40}
    traces = [rank(number, [10]) for number in (0, 1)]
    both = join_ranks([replace(t, meta=replace(t.meta, warnings=known)) for t in traces])

    assert both.meta.warnings == {"duplicate_events": 6, "cpu_taken_away": 40}


def test_origins_a_day_apart_cannot_be_compared() -> None:
    """Clocks that were never set start together."""
    day = 24 * 3600 * 10**9
    both = join_ranks([rank(0, []), rank(1, [], baseTimeNanoseconds=day)])

    assert both.events["start_ns"].tolist() == [0, 0]


def test_what_is_left_of_the_disagreement_is_reported() -> None:
    """One all-reduce ends 1 µs apart: the median offset is 0 and the spread 1 µs."""
    first, second = rank(0, [10, 40, 70]), rank(1, [10, 40, 70])
    length = second.events["duration_ns"].to_numpy().copy()
    length[-1] += 1_000
    changed = type(second)(second.events.assign(duration_ns=length), second.meta)

    clocks = join_ranks([first, changed]).meta.extra["rank_clocks"]

    assert (clocks["1"]["offset_ns"], clocks["end_spread_ns"]) == (0, 1_000)


def test_send_and_receive_align_only_as_an_all_to_all() -> None:
    """A pair of ranks says nothing about the others; an all-to-all has them all."""

    def sending(number: int, *more: Event) -> Trace:
        kernel = device("kernel", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage)", 5, 9, 1)
        root = {"distributedInfo": {"rank": number}, "traceEvents": [kernel, *more]}
        return read_kineto(text(root), f"r{number}.json")

    everyone = host("user_annotation", "nccl:all_to_all", 4, 1)
    pair = join_ranks([sending(0), sending(1)])
    all_ranks = join_ranks([sending(0, everyone), sending(1, everyone)])

    assert pair.meta.extra["rank_clocks"]["1"]["collectives"] == 0
    assert all_ranks.meta.extra["rank_clocks"]["1"]["collectives"] == 1


def test_collectives_of_the_host_align_where_there_is_no_device() -> None:
    """Gloo runs on the CPU: its ranges serve as well."""

    def on_cpu(number: int, late: float) -> Trace:
        event = host("user_annotation", "gloo:all_reduce", 10 + late, 5)
        root = {"distributedInfo": {"rank": number}, "traceEvents": [event]}
        return read_kineto(text(root), f"r{number}.json")

    both = join_ranks([on_cpu(0, 0), on_cpu(1, 3)])

    assert both.meta.extra["rank_clocks"]["1"] == {"offset_ns": -3_000, "collectives": 1}


def test_files_without_a_rank_get_the_place_they_were_given_in(tmp_path: Path) -> None:
    """Neither the file nor its name says a rank: the order of the arguments does."""
    root = base()
    del root["distributedInfo"]
    paths = [tmp_path / name for name in ("b.json", "a.json")]
    for path in paths:
        path.write_bytes(text(root))
    both = load(paths)

    assert both.meta.ranks == (0, 1)
    assert both.meta.source == "b.json and 1 more"
    assert both.meta.warnings == {"unknown_rank": 2, "unaligned_ranks": 2}


def test_the_same_rank_twice_is_refused() -> None:
    """Two files of one rank are two recordings, not one job."""
    with pytest.raises(TraceError, match=r"r1\.json: rank 1, like r1\.json; give each rank once"):
        join_ranks([rank(1, []), rank(1, [])])


def test_a_merged_file_is_not_merged_again(tmp_path: Path) -> None:
    """It holds its ranks already; loading it alone gives them back."""
    both = join_ranks([rank(0, [10]), rank(1, [12])])
    path = save(both, tmp_path / "both.parquet")

    assert load([path]).meta.ranks == (0, 1)
    with pytest.raises(TraceError, match="it already holds several ranks"):
        load([path, path])


def test_no_file_at_all_is_refused() -> None:
    """An empty list of files is an error."""
    with pytest.raises(TraceError, match="no trace given"):
        load([])


def numbered(number: int, first: int) -> Trace:
    """Read a rank of six steps from *first* on; each reduces at its end, the 4th ends late."""
    events: list[Event] = []
    for step in range(first, first + 6):
        at = 1_000 * step + 2_000 * (step > 4)
        events.append(host("user_annotation", f"ProfilerStep#{step}", at, 900))
        end = 800 + 2_000 * (step == 4)
        events.append(device("kernel", ALL_REDUCE, at + end - 100, 100, step + 1))
    about = {"distributedInfo": {"rank": number, "world_size": 2}}
    return read_kineto(text(about | {"traceEvents": events}), f"r{number}.json")


def test_ranks_that_recorded_other_steps_align_by_their_numbers() -> None:
    """Steps 0 to 5 and 2 to 7: the clocks agree, though the n-th collectives do not."""
    both = join_ranks([numbered(0, 0), numbered(1, 2)])

    assert both.meta.extra["rank_clocks"] == {
        "end_spread_ns": 0,
        "0": {"offset_ns": 0, "collectives": 4},
        "1": {"offset_ns": 0, "collectives": 4},
    }


def test_a_lost_collective_leaves_clocks_aligned() -> None:
    """Rank 1 lost its first one, and its clock is 7 µs late; there are no steps to count by."""
    lacking = rank(1, [25, 50, 85, 100, 130], late=7)
    kept = lacking.events.drop(lacking.events.index[lacking.events["kind"] == "kernel"][0])
    both = join_ranks(
        [rank(0, [10, 40, 70, 95, 125]), replace(lacking, events=kept.reset_index(drop=True))]
    )

    assert both.meta.extra["rank_clocks"]["1"] == {"offset_ns": -7000, "collectives": 4}
