"""Loader threads are coupled by order, never by coincidence; unseen ones by when batches came."""

from __future__ import annotations

import numpy as np

from foretrace.graph.infer.loading.loaders import (
    Coupling,
    Loads,
    Units,
    couple_units,
    find_marker_waits,
    find_units,
    load_evenly,
    load_from_calls,
)
from foretrace.graph.infer.steps.next_calls import read_next_calls
from tests.support.recordings.events import MULTI_FETCH, Row, call, microseconds, note, op, parsed


def unit(stage: str, start: float, length: float, thread: int = 9) -> Row:
    """Return one unit of DALI's executor."""
    return note(f"[DALI][Executor] Run{stage}", start, length, thread=thread)


def test_units_of_a_stage_begin_and_end_with_their_calls() -> None:
    """The second unit consists of its own time around a call, and of the call."""
    rows = [unit("CPU", 0, 10), unit("GPU", 20, 30), call(30, 5, thread=9)]
    events, host, _ = parsed(rows)

    assert [[each.tolist() for each in stage] for stage in find_units(events, host)] == [
        [[0], [0]],
        [[1], [3]],
    ]


def test_stage_of_several_threads_keeps_the_busiest() -> None:
    """One straggler on thread 8 is no stage of its own."""
    rows = [unit("CPU", 0, 10, thread=8), unit("CPU", 20, 10), unit("CPU", 40, 10)]
    events, host, _ = parsed(rows)
    (stage,) = find_units(events, host)

    assert host.thread[stage.first].tolist() == [9, 9]


def chains(step_at: list[int], units_at: list[int], length: int) -> list[Coupling]:
    """Return the chains between steps and units that begin at these µs."""
    rows = [note(f"ProfilerStep#{at}", at, 1) for at in step_at]
    rows += [unit("CPU", at, length) for at in units_at]
    ordered = sorted(rows, key=lambda row: row["start_ns"])
    marks = [i for i, row in enumerate(ordered) if row["name"].startswith("Prof")]
    events, host, _ = parsed(rows, markers=marks)
    markers = np.flatnonzero(host.thread == 1)
    return couple_units(host, find_units(events, host), markers)


def test_offset_is_the_tightest_that_order_allows() -> None:
    """A unit begins 10 µs after each step, and the next step 490 µs after its unit."""
    fork, join = chains([0, 1_000, 2_000, 3_000], [10, 1_010, 2_010, 3_010], 500)

    assert (fork.kind, fork.offset, fork.lag_ns) == ("fork", 0, 10_000)
    assert (join.kind, join.offset, join.lag_ns) == ("join", 1, 490_000)


def test_units_of_a_warm_up_are_skipped() -> None:
    """Three batches were prefetched: step n frees the place for unit n + 3."""
    units_at = [-3_000, -2_000, -1_000, 20, 1_020, 2_020, 3_020]
    shifted = [at + 3_000 for at in units_at]
    fork, _ = chains([3_000, 4_000, 5_000, 6_000], shifted, 500)

    assert (fork.offset, fork.lag_ns) == (3, 20_000)


def test_no_offset_fits_when_units_come_too_early() -> None:
    """All units ran before the first step: nothing is coupled but the join."""
    found = chains([5_000, 6_000, 7_000], [0, 600, 1_200], 500)

    assert [chain.kind for chain in found] == ["join"]


def test_without_stages_or_steps_there_are_no_chains() -> None:
    """One step bounds no repetition."""
    _, host, _ = parsed([op("a", 0, 5)])
    stage = Units(np.array([0]), np.array([0]))

    assert couple_units(host, [], np.array([0, 0])) == []
    assert couple_units(host, [stage], np.array([0])) == []


def seen(loads: Loads | None) -> tuple[list[float], list[float], float]:
    """Return arrivals, work and the fetch's own cost in µs."""
    assert loads is not None
    return microseconds(loads.arrival_ns), microseconds(loads.work_ns), loads.own_ns / 1_000


def test_fetch_that_waits_shows_when_the_batch_came() -> None:
    """Fetches of 5, 0.1, 5 and 5 ms; the second found its batch ready."""
    lengths = (5_000, 100, 5_000, 5_000)
    rows = [op(MULTI_FETCH, 10_000 * i, length) for i, length in enumerate(lengths)]
    events, host, _ = parsed(rows)
    calls = read_next_calls(events, host, 1)
    assert calls is not None
    arrivals, work, own = seen(load_from_calls(calls))

    assert own == 100
    assert arrivals == [4_900, 24_900, 34_900]
    assert work == [5_000, 20_000, 10_000]


def test_batches_of_bursts_can_come_evenly() -> None:
    """Each of three calls gets a batch that takes 7 ms."""
    rows = [op(MULTI_FETCH, 10_000 * i, length) for i, length in enumerate((100, 5_000, 100))]
    events, host, _ = parsed(rows)
    calls = read_next_calls(events, host, 1)
    assert calls is not None

    assert seen(load_evenly(calls, 7_000_000))[1:] == ([7_000] * 3, 100)


def test_fetch_that_never_waits_is_plain_work() -> None:
    """Short fetches are."""
    rows = [op(MULTI_FETCH, 10_000 * i, 300) for i in range(3)]
    events, host, _ = parsed(rows)
    calls = read_next_calls(events, host, 1)

    assert calls is not None
    assert load_from_calls(calls) is None


def test_pause_between_step_ranges_is_waiting_for_a_batch() -> None:
    """Ranges of 4 ms every 10 ms; work after the range shortens the second pause by 1 ms."""
    rows = [note(f"step {i}", 10_000 * i, 4_000) for i in range(4)]
    rows += [op("aten::mm", 10_000 * i, 4_000) for i in range(4)]
    rows.append(op("log", 15_000, 500))
    events, host, _ = parsed(rows, markers=[0, 2, 5, 7])
    markers = np.flatnonzero(host.start_ns == host.end_ns)
    ends = events.start_ns[host.event[markers]] + events.duration_ns[host.event[markers]]
    arrivals, work, own = seen(find_marker_waits(host, markers, ends))

    assert own == 2_000
    assert arrivals == [8_000, 18_000, 28_000]
    assert work == [6_000, 10_000, 10_000]
    assert find_marker_waits(host, markers[:2], ends[:2]) is None
