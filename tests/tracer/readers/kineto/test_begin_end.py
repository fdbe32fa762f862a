"""Ranges written as begin and end are read as if they were complete events."""

from __future__ import annotations

from typing import Any

import pytest

from foretrace.tracer.readers.kineto.begin_end import pair_ranges
from foretrace.tracer.readers.kineto.read import read_kineto
from tests.support.recordings.bent import Event, base, text


def split(event: Event) -> list[Event]:
    """Return a complete event as its begin and its end."""
    begin = {k: v for k, v in event.items() if k != "dur"} | {"ph": "B"}
    end = {k: event[k] for k in ("name", "pid", "tid")} | {"ph": "E"}
    return [begin, end | {"ts": round(event["ts"] + event["dur"], 3)}]


def mark(phase: str, ts: float, name: str | None = None) -> Event:
    """Return one begin or end."""
    named = {} if name is None else {"name": name}
    return {"ph": phase, "ts": ts, "pid": 1, "tid": 1} | named


def spans(*marks: Event) -> list[tuple[str, float, float]]:
    """Return name, start and length of what *marks* pair to, by start."""
    paired: list[Any] = sorted(pair_ranges(list(marks))[0], key=lambda e: (e["ts"], -e["dur"]))
    return [(e["name"], float(e["ts"]), float(e["dur"])) for e in paired]


@pytest.mark.parametrize("backwards", [False, True])
def test_pairs_read_like_complete_events(backwards: bool) -> None:  # noqa: FBT001
    """Whatever their order in the file."""
    root = base()
    marks = [piece for event in root["traceEvents"] for piece in split(event)]
    bent = root | {"traceEvents": marks[::-1] if backwards else marks}

    expected = read_kineto(text(root), "trace.json").events
    columns = ["name", "kind", "start_ns", "duration_ns", "thread", "stream", "correlation"]

    paired = read_kineto(text(bent), "trace.json").events
    order = ["start_ns", "duration_ns", "kind", "name"]
    a, b = (each[columns].astype({"name": str, "kind": str}) for each in (expected, paired))
    assert a.sort_values(order).values.tolist() == b.sort_values(order).values.tolist()


def test_ranges_nest() -> None:
    """An end without a name closes the latest range; one with a name the latest of that name."""
    nested = [mark("B", 0, "outer"), mark("B", 2, "inner")]

    assert spans(*nested, mark("E", 5), mark("E", 9)) == [("outer", 0, 9), ("inner", 2, 3)]
    assert spans(*nested, mark("E", 5, "outer"), mark("E", 9)) == [("outer", 0, 5), ("inner", 2, 7)]


def test_back_to_back_ranges_of_one_name() -> None:
    """Where one ends and the next begins at once, the earlier ends, even if written later."""
    marks = [mark("B", 0, "k"), mark("B", 4, "k"), mark("E", 4, "k"), mark("E", 7, "k")]

    assert spans(*marks) == [("k", 0, 4), ("k", 4, 3)]


def test_what_has_no_other_end_is_counted() -> None:
    """A begin without end, an end without begin, and one without a time are left out."""
    root = base()
    root["traceEvents"] += [
        mark("B", 1001, "open"),
        mark("E", 1000, "closed") | {"tid": 2},
        mark("E", float("nan"), "when"),
    ]

    trace = read_kineto(text(root), "trace.json")

    assert trace.meta.warnings["unfinished_ranges"] == 1
    assert trace.meta.warnings["unbegun_ranges"] == 2
    assert "open" not in trace.events["name"].tolist()
