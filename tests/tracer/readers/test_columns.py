"""From whatever a file says to typed columns: what survives, what is unknown, what is counted."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.tracer.data_issues import DATA_ISSUES, Tally, sentences
from foretrace.tracer.readers.columns import (
    categorical,
    from_codes,
    integers,
    nanoseconds,
    quantities,
    recode,
    small,
)
from foretrace.tracer.readers.kineto.decode import Arguments, decode
from foretrace.tracer.readers.kineto.read import read_kineto
from foretrace.tracer.readers.kineto.repair_json import salvage
from foretrace.tracer.readers.normalize import merge_nested_calls
from foretrace.tracer.trace import EVENT_KINDS
from tests.support.recordings.bent import base, device, host, text


@pytest.mark.parametrize(
    ("value", "found", "counted"),
    [
        ("7", 7, 0),
        (7.0, 7, 0),
        (None, -1, 0),
        ("", -1, 0),
        (2**80, -1, 0),
        ("stream", -1, 1),
        (float("nan"), -1, 1),
        ([7], -1, 1),
    ],
)
def test_ids(value: Any, found: int, counted: int) -> None:
    """Numbers in any clothes are ids; nonsense is unknown and counted, too large is unknown."""
    tally = Tally()

    assert integers([1, value], tally).tolist() == [1, found]
    assert tally.counts() == ({"bad_number": counted} if counted else {})


@pytest.mark.parametrize(
    ("value", "found", "counted"),
    [("7.5", 7.5, 0), (None, None, 0), ("", None, 0), (-1, None, 0), ("wide", None, 1)],
)
def test_quantities(value: Any, found: float | None, counted: int) -> None:
    """An unknown quantity is NaN and never 0 or -1."""
    tally = Tally()
    result = quantities([1, value], tally)

    assert result.tolist()[0] == 1.0
    assert result[1] == found or (found is None and np.isnan(result[1]))
    assert tally.counts() == ({"bad_number": counted} if counted else {})


def test_an_id_too_large_for_its_column_is_unknown() -> None:
    """A device number of 70,000 does not become another device."""
    assert small(np.array([3, 70_000]), np.int16).tolist() == [3, -1]


@given(st.lists(st.integers(0, 2**42 * 1000), min_size=1, max_size=20))
def test_microseconds_with_three_digits_convert_exactly(times: list[int]) -> None:
    """Below 2**42 µs a double holds every nanosecond, as text, number or Decimal."""
    floats, usable = nanoseconds([t / 1000 for t in times])
    exact, _ = nanoseconds([Decimal(t) / 1000 for t in times])

    assert floats.tolist() == times
    assert exact.tolist() == times
    assert usable.all()


@pytest.mark.parametrize("bad", [None, "soon", float("nan"), float("inf"), 10**30, [1], {}])
def test_useless_times_are_marked(bad: Any) -> None:
    """What is no time leaves its neighbours alone."""
    times, usable = nanoseconds([1.5, bad, 2])

    assert usable.tolist() == [True, False, True]
    assert times.tolist() == [1500, 0, 2000]


def test_integers_above_2_to_53_beside_floats_keep_their_digits() -> None:
    """Numpy would turn both into doubles."""
    times, _ = nanoseconds([2**53 + 1, 0.5])

    assert times.tolist() == [(2**53 + 1) * 1000, 500]


def test_a_start_that_is_text_among_times_since_1970() -> None:
    """Reading the text of the times keeps numbers in quotes, and drops words."""
    events = [host("cpu_op", "a", 1.7e15, 1), host("cpu_op", "b", 2, 1), host("cpu_op", "c", 3, 1)]
    events[0]["ts"], events[1]["ts"], events[2]["ts"] = 1.7e15, "1700000000000002.5", "late"
    trace = read_kineto(text({"traceEvents": events}), "t.json")

    assert trace.events["start_ns"].tolist() == [0, 2_500]
    assert trace.meta.warnings == {"bad_timestamp": 1}


def test_renaming_merges_and_forgets() -> None:
    """Equal new names become one category; None is unknown, and unknown stays so."""
    renamed = recode(from_codes(np.array([0, 1, 2, -1]), ["a", "A", "?"]), {"a": "a", "A": "a"}.get)

    assert renamed.codes.tolist() == [0, 0, -1, -1]
    assert renamed.categories.tolist() == ["a"]


def test_every_counter_is_declared_once_and_reads_as_a_sentence() -> None:
    """Names are unique, sentences take a count, and the gravest come first."""
    names = [issue.name for issue in DATA_ISSUES]
    said = sentences(dict.fromkeys(names, 3))

    assert len(names) == len(set(names))
    assert len(said) == len(names)
    assert said[0].startswith("3 ranks share no collective")
    with pytest.raises(AssertionError, match="undeclared issue 'typo'"):
        Tally().add("typo")


def calls(*spans: tuple[int, int]) -> dict[str, Any]:
    """Return calls of one thread, sorted, with correlations 1, 2, 3 …, and a kernel for each."""
    count = len(spans)
    kinds = [EVENT_KINDS.index("runtime"), EVENT_KINDS.index("kernel")]
    return {
        "kind": from_codes(np.repeat(kinds, count), EVENT_KINDS),
        "start_ns": np.array([start for start, _ in spans] * 2),
        "duration_ns": np.array([end - start for start, end in spans] * 2),
        "thread": np.array([5] * count + [-1] * count),
        "rank": np.zeros(2 * count, np.int16),
        "correlation": np.tile(np.arange(1, count + 1), 2),
    }


@pytest.mark.parametrize(
    ("spans", "correlations"),
    [
        ([(0, 100), (10, 20), (30, 40)], [1, 1, 1]),  # two calls inside one
        ([(0, 100), (10, 90), (20, 80)], [1, 1, 1]),  # the outermost wins
        ([(0, 10), (10, 20)], [1, 2]),  # one after the other
        ([(0, 10), (0, 10)], [1, 2]),  # within one tick of the clock
        ([(0, 10), (5, 15), (7, 12)], [1, 2, 2]),  # an overlap is no nesting
    ],
)
def test_nested_calls(spans: list[tuple[int, int]], correlations: list[int]) -> None:
    """A call inside another hands its device work to the outermost."""
    values = calls(*spans)
    dropped = merge_nested_calls(values, Tally())

    assert values["correlation"][len(spans) :].tolist() == correlations
    assert dropped.sum() == sum(c != i + 1 for i, c in enumerate(correlations))


def test_an_outer_call_without_correlation_takes_the_inner_one() -> None:
    """The kernel stays linked, whichever of both calls carries the id."""
    values = calls((0, 100), (10, 20))
    values["correlation"][0] = -1
    merge_nested_calls(values, Tally())

    assert values["correlation"].tolist() == [2, 2, 1, 2]


def test_process_groups_are_kept() -> None:
    """`pg_config` of the distributed info is in `extra`."""
    root = base()
    root["distributedInfo"]["pg_config"] = [{"pg_name": "0", "ranks": [0, 1]}]

    assert read_kineto(text(root), "t.json").meta.extra["process_groups"][0]["ranks"] == [0, 1]


@pytest.mark.parametrize("info", [None, 3, {"rank": "x", "world_size": []}, {"rank": 2**40}])
def test_odd_metadata_is_no_metadata(info: Any) -> None:
    """Nonsense where the job should be described leaves it undescribed."""
    root = base() | {"distributedInfo": info, "deviceProperties": {"id": 0}}
    meta = read_kineto(text(root), "t.json").meta

    assert (meta.ranks, meta.world_size, meta.devices) == ((0,), None, ())


def test_odd_grids_and_shapes_are_unknown() -> None:
    """What is no list of numbers has no product; what is no JSON has no shape."""
    kernels = [device("kernel", "k", i, 1, i) for i in range(1, 5)]
    for kernel, grid in zip(kernels, ["80", [80, "x"], [80, None], [0, 1, 1]], strict=True):
        kernel["args"]["grid"] = grid
    trace = read_kineto(text({"traceEvents": kernels}), "t.json")

    assert trace.events["blocks"].tolist() == [-1, -1, -1, -1]


def test_arguments_without_msgspec_s_help() -> None:
    """Arguments that are no object count as none; nested ones come back as JSON."""
    root = {"traceEvents": [host("cpu_op", "a", 1, 1, {"x": [1, 2]}), host("cpu_op", "b", 2, 1)]}
    root["traceEvents"][1]["args"] = 3
    recording = decode(text(root), "t.json", Tally())
    found = recording.arguments(np.array([0, 1]), Arguments((("y", "y"),), (("x", "x"),)))

    assert found["y"] == [-1, -1]
    assert found["x"] == [b"[1, 2]", b""]


def test_text_without_any_list_has_nothing_to_salvage() -> None:
    """There is no event to be found in it."""
    assert salvage('{"traceEvents": ', Tally()) is None


def test_unknown_strings_stay_unknown() -> None:
    """None is no category."""
    assert categorical(["a", None]).codes.tolist() == [0, -1]
