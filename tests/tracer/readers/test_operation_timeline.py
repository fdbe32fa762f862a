"""Operation-level timelines: what is read, what is counted, what is refused."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from foretrace.errors import TraceError
from foretrace.tracer.readers.load import load, save
from foretrace.tracer.readers.operation_timeline import is_timeline, read_timeline
from tests.support.recordings.operation_timeline import named_threads, operation, read

if TYPE_CHECKING:
    from pathlib import Path


ONE = [operation("forward-compute", 10.5, 2), operation("optimizer", 13, 1)]


def test_an_operation_is_a_kernel_of_its_rank_and_stream() -> None:
    """Rank = data-parallel rank x stages + stage; times are ns from the first start."""
    events = [
        operation("forward-compute", 10.5, 2.25, stage=1, dp=1),
        operation("forward-compute", 10, 1),
        operation("forward-send", 11, 1, seq_id=3),
    ]
    trace = read(events + named_threads(2, 2))

    kernels = trace.events[trace.events["kind"] == "kernel"]
    assert kernels["name"].tolist() == ["forward-compute", "forward-send", "forward-compute"]
    assert kernels["rank"].tolist() == [0, 0, 3]
    assert kernels["stream"].tolist() == [0, 1, 0]
    assert kernels["start_ns"].tolist() == [0, 1000, 500]
    assert kernels["duration_ns"].tolist() == [1000, 1000, 2250]
    assert kernels["sequence"].tolist() == [0, 3, 0]
    assert trace.meta.ranks == (0, 1, 2, 3)
    assert trace.meta.extra["timeline"] == {"dp": 2, "pp": 2}


def test_each_rank_has_an_annotation_around_each_step() -> None:
    """It begins with the first operation of the step and carries the step's number."""
    trace = read([*ONE, operation("forward-compute", 20, 2, step=9), *named_threads()])

    marks = trace.events[trace.events["kind"] == "annotation"]
    assert marks["name"].tolist() == ["step 7", "step 9"]
    assert marks["start_ns"].tolist() == [0, 9500]
    assert marks["duration_ns"].tolist() == [3500, 2000]
    assert marks["sequence"].tolist() == [7, 9]


def test_what_cannot_be_used_is_counted() -> None:
    """No start, no place, a negative length, the same again."""
    events = [
        *ONE,
        ONE[0],
        {**ONE[0], "ts": None},
        operation("gc", 13, 0, seq_id=None),
        operation("gc", 13, -1),
    ]
    trace = read(events + named_threads())

    assert trace.meta.warnings == {
        "unreadable_events": 1,
        "bad_timestamp": 1,
        "negative_duration": 1,
        "duplicate_events": 1,
    }
    assert trace.events.loc[trace.events["name"] == "gc", "duration_ns"].tolist() == [0]


@pytest.mark.parametrize(
    ("events", "text"),
    [
        (ONE, "thread 0 of process 0 is not named"),
        (ONE + named_threads(tp=1), "several tensor-parallel ranks"),
        ([operation("gc", 1, 1, model_chunk=1), *named_threads()], "several model chunks"),
        ([{**ONE[0], "ts": None}, *named_threads()], "no operation of this timeline has a time"),
        (
            [
                operation("gc", 1, 1, dp=40_000),
                *({**thread, "pid": 40_000} for thread in named_threads()),
            ],
            "more than 32767 ranks",
        ),
        ([{**ONE[0], "pid": "a"}], "no timeline of operations"),
    ],
)
def test_what_cannot_be_read_gets_one_sentence(events: list[dict[str, Any]], text: str) -> None:
    """It names the file and what is wrong."""
    with pytest.raises(TraceError, match=f"timeline.json: .*{text}"):
        read(events)


def test_a_file_that_is_cut_short_is_refused() -> None:
    """Half a timeline would lack the names of its threads."""
    raw = json.dumps(ONE + named_threads()).encode()

    with pytest.raises(TraceError, match="copy it again"):
        read_timeline(raw[:-20], "timeline.json")


def test_the_content_tells_a_timeline_from_a_kineto_trace(tmp_path: Path) -> None:
    """Packed or not; what was read can be kept in the project's own format."""
    raw = json.dumps(ONE + named_threads()).encode()
    (tmp_path / "packed.json.gz").write_bytes(gzip.compress(raw))
    trace = load(tmp_path / "packed.json.gz")
    save(trace, tmp_path / "own.parquet")

    assert is_timeline(raw)
    assert not is_timeline(b'{"traceEvents": []}')
    assert trace.meta.format == "timeline"
    assert load(tmp_path / "own.parquet").meta == trace.meta
