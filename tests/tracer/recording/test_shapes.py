"""Shapes recorded apart from times: operators are paired step by step."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from foretrace.tracer.recording.shapes import add_shapes

if TYPE_CHECKING:
    from pathlib import Path


def event(name: str, start: float, length: float, **args: Any) -> dict[str, Any]:
    """One complete event; operators unless it is a step."""
    category = "user_annotation" if name.startswith("ProfilerStep#") else "cpu_op"
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": length, "args": args}


def write(path: Path, *events: dict[str, Any]) -> Path:
    """Write a Kineto file whose clock began at 1 ms."""
    path.write_text(json.dumps({"baseTimeNanoseconds": 1_000_000, "traceEvents": list(events)}))
    return path


def args_of(path: Path, name: str) -> list[dict[str, Any]]:
    """Arguments of all operators called *name*, in file order."""
    return [e["args"] for e in json.loads(path.read_text())["traceEvents"] if e["name"] == name]


def test_every_step_gets_the_shapes_of_the_last_recorded_one(tmp_path: Path) -> None:
    """The n-th operator of a name is the n-th of that name there."""
    timed = write(
        tmp_path / "timed.json",
        event("ProfilerStep#0", 0, 10),
        event("aten::mm", 1, 2),
        event("aten::mm", 4, 2),
        event("ProfilerStep#1", 10, 10),
        event("aten::mm", 11, 2),
        event("aten::mm", 14, 2),
        event("ProfilerStep#2", 20, 0),
    )
    shaped = write(
        tmp_path / "shaped.json",
        event("ProfilerStep#0", 0, 10),
        event("aten::mm", 1, 2, **{"Input Dims": [[9, 9]]}),
        event("ProfilerStep#1", 10, 10),
        event("aten::mm", 11, 2, **{"Input Dims": [[1, 2]], "Input type": ["float"]}),
        event("aten::mm", 13, 2, **{"Input Dims": [[3, 4]], "Sequence number": 7}),
    )

    assert add_shapes(timed, shaped, []) == 0
    assert (
        args_of(timed, "aten::mm")
        == [
            {"Input Dims": [[1, 2]], "Input type": ["float"]},
            {"Input Dims": [[3, 4]]},
        ]
        * 2
    )


def test_operators_that_ran_differently_stay_without_shapes(tmp_path: Path) -> None:
    """Three in one step and two in the other cannot be paired; other names still are."""
    timed = write(
        tmp_path / "timed.json",
        event("ProfilerStep#0", 0, 10),
        *(event("aten::mm", start, 1) for start in (1, 3, 5)),
        event("aten::relu", 7, 1),
    )
    shaped = write(
        tmp_path / "shaped.json",
        event("ProfilerStep#0", 0, 10),
        *(event("aten::mm", start, 1, **{"Input Dims": [[2, 2]]}) for start in (1, 3)),
        event("aten::relu", 7, 1, **{"Input Dims": [[5]]}),
    )

    assert add_shapes(timed, shaped, []) == 3
    assert args_of(timed, "aten::mm") == [{}, {}, {}]
    assert args_of(timed, "aten::relu") == [{"Input Dims": [[5]]}]


def test_counted_flops_come_along(tmp_path: Path) -> None:
    """Torch counts by start in ns since the epoch; the file counts from its base, in us."""
    timed = write(tmp_path / "timed.json", event("ProfilerStep#0", 0, 10), event("aten::mm", 1, 2))
    shaped = write(
        tmp_path / "shaped.json",
        event("ProfilerStep#0", 0, 10),
        event("aten::mm", 1.5, 2, **{"Input Dims": [[1, 2]]}),
    )

    add_shapes(timed, shaped, [("aten::mm", 1_001_500, 64), ("aten::mm", 9_000_000, 1)])

    assert args_of(timed, "aten::mm") == [{"Input Dims": [[1, 2]], "flops": 64}]


def test_flops_of_another_moment_are_not_taken(tmp_path: Path) -> None:
    """More than a microsecond apart is another operator."""
    timed = write(tmp_path / "timed.json", event("ProfilerStep#0", 0, 10), event("aten::mm", 1, 2))
    shaped = write(
        tmp_path / "shaped.json", event("ProfilerStep#0", 0, 10), event("aten::mm", 1.5, 2)
    )

    add_shapes(timed, shaped, [("aten::mm", 1_009_500, 64)])

    assert args_of(timed, "aten::mm") == [{}]


def test_without_a_step_nothing_is_paired(tmp_path: Path) -> None:
    """A window that never began a step has no shapes to give."""
    timed = write(tmp_path / "timed.json", event("ProfilerStep#0", 0, 10), event("aten::mm", 1, 2))
    shaped = write(tmp_path / "shaped.json", event("aten::mm", 1, 2))

    assert add_shapes(timed, shaped, []) == 0
    assert args_of(timed, "aten::mm") == [{}]
